"""The interlock refuses a whole vector before anything moves, and says which heater and why."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optinc_hw.bench import Interlock
from optinc_hw.errors import ConfigurationError, LimitError


def interlock(count=3, *, total=1.0, resistance=1000.0, beta=0.0):
    return Interlock(
        names=[f"h{k}" for k in range(count)],
        max_voltage=np.full(count, 10.0),
        max_current=np.full(count, 0.009),
        max_power=np.full(count, 0.064),
        max_total_power=total,
        resistance_ohm=np.full(count, resistance),
        resistance_beta_per_w=np.full(count, beta),
    )


def test_limits_in_force_cannot_be_written_to():
    limit = np.array([5.0])
    other = np.ones(1)
    one = Interlock(
        names=["h0"],
        max_voltage=limit,
        max_current=other,
        max_power=other,
        max_total_power=1.0,
        resistance_ohm=1e3 * other,
        resistance_beta_per_w=0.0 * other,
    )
    limit[0] = 50.0
    for array in (one.max_voltage, one.max_current, one.max_power, one.resistance_ohm, one.resistance_beta_per_w):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 50.0
    with pytest.raises(LimitError, match="exceeds max_voltage_v = 5 V"):
        one.check(np.array([6.0]))


@given(
    power=st.floats(0.0, 0.2),
    resistance=st.floats(10.0, 1e5),
    beta=st.floats(0.0, 5.0) | st.floats(-2.0, 0.0) | st.just(0.0) | st.floats(1e-12, 1e-6),
)
def test_power_and_voltage_are_inverse(power, resistance, beta):
    one = interlock(1, resistance=resistance, beta=beta)
    voltage = one.voltage(np.array([power]))
    np.testing.assert_allclose(one.power(voltage), [power], rtol=1e-9, atol=1e-15)


def test_a_warm_heater_draws_less_than_the_cold_resistance_says():
    power = interlock(1, beta=0.8).power(np.array([10.0]))
    assert power == pytest.approx(np.roots([0.8 * 1000.0, 1000.0, -100.0]).max())


def test_a_voltage_that_no_power_balances_is_refused():
    with pytest.raises(LimitError, match="heater h1: current inf A"):
        interlock(beta=-6.0).check(np.array([0.0, 7.9, 0.0]))


@pytest.mark.parametrize(
    ("voltages", "message"),
    [
        ([0.0, 10.5, 11.0], r"heater h1: voltage 10.5 V exceeds max_voltage_v = 10 V \(and 1 more heaters\)"),
        ([0.0, 0.0, 9.5], r"heater h2: current 0.0095 A at 9.5 V and 1000 ohm exceeds max_current_a = 0.009 A"),
        ([8.5, 0.0, 0.0], r"heater h0: power 0.07225 W at 8.5 V and 1000 ohm exceeds max_power_w = 0.064 W"),
        ([0.0, -0.1, 0.0], r"heater h1: voltage -0.1 V is not in the range from 0 V to 10 V"),
        ([0.0, np.nan, 0.0], r"heater h1: voltage nan V is not in the range"),
        ([np.inf, 0.0, 0.0], r"heater h0: voltage inf V is not in the range"),
        ([0.0, 0.0], r"got voltages of shape \(2,\) for 3 heaters"),
    ],
)
def test_each_limit_is_named_with_heater_value_unit_and_remedy(voltages, message):
    with pytest.raises(LimitError, match=message) as caught:
        interlock().check(np.array(voltages))
    assert "nothing was moved" in str(caught.value)


def test_total_power_is_limited():
    limited = interlock(total=0.1)
    limited.check(limited.voltage(np.array([0.05, 0.05, 0.0])))
    with pytest.raises(LimitError, match=r"all heaters together: power 0.11 W exceeds limits.total_power_w = 0.1 W"):
        limited.check(limited.voltage(np.array([0.05, 0.06, 0.0])))


def test_values_exactly_at_the_limits_are_allowed():
    at_power = interlock(total=3 * 0.064)
    at_power.check(at_power.voltage(np.full(3, 0.064)))
    at_voltage = interlock(resistance=2000.0)
    at_voltage.check(np.full(3, 10.0))


def test_a_calibrated_resistance_replaces_the_nominal_one():
    nominal = interlock()
    with pytest.raises(LimitError):
        nominal.check(np.full(3, 8.5))
    nominal.with_resistance(np.full(3, 1200.0), np.zeros(3)).check(np.full(3, 8.5))
    with pytest.raises(ConfigurationError, match=r"interlock: resistance_ohm has shape \(2,\)"):
        nominal.with_resistance(np.full(2, 1200.0), np.zeros(3))
