"""Limits of heater channels."""

import numpy as np
import pytest

from drivers._heater_limits import HeaterLimits, resistance_of
from optinc_hw.errors import LimitError


@pytest.fixture
def limits():
    return HeaterLimits("heaters", 8, 12.0, 24e-3)


@pytest.mark.parametrize("volts", [-0.1, 12.1, np.nan, np.inf])
def test_full_scale_is_the_limit_at_first(limits, volts):
    limits.check_voltage(0, 0.0)
    limits.check_voltage(0, 12.0)
    with pytest.raises(LimitError, match=r"heaters.*channel 3.*12 V"):
        limits.check_voltage(3, volts)


@pytest.mark.parametrize(
    "limit",
    [
        {"max_voltage": 0.0},
        {"max_voltage": 12.5},
        {"max_voltage": np.nan},
        {"max_current": -1.0},
        {"max_current": 25e-3},
        {"max_power": 0.3},
    ],
)
def test_impossible_limits_are_refused_and_change_nothing(limits, limit):
    arguments = {"max_voltage": 5.0, "max_current": 1e-3, "max_power": 1e-3} | limit
    with pytest.raises(LimitError, match=next(iter(limit))):
        limits.set(2, **arguments)
    assert limits.max_voltage(2) == 12.0
    assert not limits.unproven({2: 12.0})


def test_only_a_limit_below_full_scale_needs_a_resistance(limits):
    assert not limits.unproven({0: 12.0})
    limits.set(0, None, None, 50e-3)
    limits.set(1, None, 10e-3, None)
    assert not limits.unproven({0: 2.0})  # at most 48 mW, whatever the resistance
    assert limits.unproven({0: 2.2})
    assert limits.unproven({1: 0.1})
    assert not limits.unproven({1: 0.0})
    limits.learn([1.0, 0.4] + [np.nan] * 6, [1e-3, 1e-3] + [0.0] * 6)
    assert not limits.unproven({0: 2.2})
    assert limits.unproven({1: 1.0})  # 0.4 V are too few to learn from


def test_load_is_predicted_from_the_resistance_with_a_margin(limits):
    limits.set(0, None, 10e-3, 50e-3)
    limits.check_load(0, 12.0)  # nothing is known yet
    limits.learn([1.0] + [np.nan] * 7, [1e-3] * 8)
    limits.check_load(0, 7.4)  # 54.8 mW from the cool resistance, within the margin
    with pytest.raises(LimitError, match=r"power of .* W, above the limit of 0\.05 W"):
        limits.check_load(0, 7.5)
    limits.set(0, None, 5e-3, 100e-3)
    with pytest.raises(LimitError, match=r"current of 0\.006 A, above the limit of 0\.005 A"):
        limits.check_load(0, 6.0)
    limits.check_load(0, 6.0, resistance=1500.0)


def test_open_heater_has_infinite_resistance(limits):
    assert resistance_of(5.0, 3e-6) == np.inf
    assert resistance_of(5.0, -11e-6) == np.inf
    limits.set(0, None, 1e-3, 1e-3)
    limits.check_load(0, 12.0, resistance=np.inf)


def test_targets_are_ripe_for_a_measurement_at_half_a_volt_or_at_their_end(limits):
    assert limits.ripe(0.5, 3.0)
    assert not limits.ripe(0.4, 3.0)
    assert limits.ripe(0.2, 0.2)
