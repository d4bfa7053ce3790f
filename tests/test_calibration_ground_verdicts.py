"""Verdicts about common grounds: "none" means that a return worth speaking of is excluded, not that none was seen."""

import numpy as np
import pytest
from test_calibration_ground import circuit

from calibration import fit_common_ground
from optinc_hw.errors import CalibrationError

LIMIT = 0.05
GROUPS = {"found": lambda _: None, "stated": lambda heaters: [0] * heaters}
HOW = pytest.mark.parametrize("groups", GROUPS.values(), ids=GROUPS)


def lift(voltage, current, ground_ohm):
    """Largest share of a heater's largest voltage by which a return of all heaters lifts its ground."""
    return ground_ohm * current.sum(axis=1).max() / voltage.max(axis=0).min()


def together(rng, heaters, ground_ohm, jitter, settings=40):
    """Voltages that move together but for ``jitter``, and the currents that obey Kirchhoff's laws."""
    voltage = np.linspace(1.0, 6.0, settings)[:, None] * (1.0 + jitter * rng.standard_normal((settings, heaters)))
    resistance = 1200.0 * (1.0 + 0.03 * rng.standard_normal(heaters))
    current = np.zeros_like(voltage)
    for _ in range(400):
        across = voltage - ground_ohm * current.sum(axis=1, keepdims=True)
        current = across / (resistance * (1.0 + 2.0 * across * current))
    return voltage, current


@HOW
@pytest.mark.parametrize("noise_a", [0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2])
@pytest.mark.parametrize("ground_ohm", [0.0, 3.0, 30.0])
def test_a_return_that_could_matter_is_never_said_to_be_none(groups, noise_a, ground_ohm):
    for seed in range(4):
        voltage, current = circuit(np.random.default_rng(seed), [0] * 6, ground_ohm, 40, noise_a=noise_a)
        fit = fit_common_ground(voltage, current, groups=groups(6))
        if fit.verdict == "none":
            assert lift(voltage, current, ground_ohm) < fit.unseen_lift <= LIMIT
            assert f"{fit.unseen_lift:.2%} of its heater's voltage or more is excluded" in fit.reason
        elif fit.verdict == "poor" and noise_a < 1e-3:
            assert fit.unseen_lift > LIMIT
            assert "would not be seen" in fit.reason


def test_noise_that_hides_every_return_is_poor_and_quiet_readings_are_not():
    quiet, loud = (circuit(np.random.default_rng(0), [0] * 6, 0.0, 40, noise_a=noise) for noise in (1e-6, 1e-3))
    assert fit_common_ground(*quiet).verdict == "none"
    assert fit_common_ground(*quiet).unseen_lift < 0.01
    for groups in (None, [0] * 6):
        assert fit_common_ground(*loud, groups=groups).verdict == "poor"


@HOW
@pytest.mark.parametrize("heaters", [2, 6])
@pytest.mark.parametrize("jitter", [0.0, 1e-9, 1e-6, 1e-4])
@pytest.mark.parametrize("noise_a", [0.0, 1e-7])
@pytest.mark.parametrize("ground_ohm", [3.0, 30.0, 100.0])
def test_voltages_that_move_together_tell_no_ground(groups, heaters, jitter, noise_a, ground_ohm):
    """A return then looks like more resistance of each heater's own; only how that grows limits its size."""
    rng = np.random.default_rng(7)
    voltage, current = together(rng, heaters, ground_ohm, jitter)
    fit = fit_common_ground(voltage, current + noise_a * rng.standard_normal(current.shape), groups=groups(heaters))
    right = np.nanmax(np.abs(fit.resistance_ohm - ground_ohm) / fit.sigma_ohm, initial=0.0) < 5.0
    excluded = lift(voltage, current, ground_ohm) < fit.unseen_lift <= LIMIT
    assert fit.verdict == "poor" or (right if fit.verdict == "found" else excluded)


@HOW
@pytest.mark.parametrize("heaters", [2, 6])
@pytest.mark.parametrize("ground_ohm", [3.0, 30.0])
def test_voltages_that_move_apart_by_a_few_per_cent_do(groups, heaters, ground_ohm):
    fit = fit_common_ground(*together(np.random.default_rng(7), heaters, ground_ohm, 0.02), groups=groups(heaters))
    assert fit.verdict == "found"
    assert fit.resistance_ohm == pytest.approx([ground_ohm], rel=1e-3)


@HOW
@pytest.mark.parametrize("heaters", [2, 3, 6, 12])
@pytest.mark.parametrize(("ground_ohm", "verdict"), [(0.0, "none"), (2.0, "found")])
def test_the_fewest_settings_without_noise_are_enough(groups, heaters, ground_ohm, verdict):
    """Ten more than heaters to find the groups, eight for stated ones."""
    for seed in range(5):
        settings = heaters + 10 if groups(heaters) is None else 8
        data = circuit(np.random.default_rng(seed), [0] * heaters, ground_ohm, settings)
        fit = fit_common_ground(*data, groups=groups(heaters))
        assert fit.verdict == verdict, fit.reason
        assert fit.unseen_lift < 1e-6


def test_heat_of_neighbours_hides_no_ground_with_few_settings():
    """The others' heat lowers currents by up to 5 %; it is fitted beside the returns."""
    for seed in range(20):
        data = circuit(np.random.default_rng(seed), [0] * 12, 0.0, 22, heating=0.2, noise_a=2e-6)
        assert fit_common_ground(*data).verdict == "none"


@HOW
@pytest.mark.parametrize("ground_ohm", [-3.0, -1.0])
def test_a_return_of_negative_resistance_is_no_circuit(groups, ground_ohm):
    """Currents of the wrong sign, or a leak from one channel into the next."""
    data = circuit(np.random.default_rng(8), [0] * 6, ground_ohm, 60, noise_a=5e-7)
    fit = fit_common_ground(*data, groups=groups(6))
    assert fit.verdict == "poor"
    assert "signs of currents" in fit.reason


def test_heaters_stated_to_be_alone_tell_of_no_return_unless_the_settings_find_groups():
    data = circuit(np.random.default_rng(9), [0, 1, 2], 0.0, 30, noise_a=1e-6)
    few = fit_common_ground(data[0][:10], data[1][:10], groups=[0, 1, 2])
    assert few.verdict == "poor"
    assert np.isinf(few.unseen_lift)
    assert fit_common_ground(*data, groups=[0, 1, 2]).verdict == "none"


def test_a_heater_whose_currents_are_noise_is_named():
    rng = np.random.default_rng(10)
    voltage, current = circuit(rng, [0] * 4, 0.0, 40, noise_a=1e-6)
    current[:, 2] = -np.abs(current[:, 2])
    current[0, 2], voltage[0, 2] = 1e-9, 0.3
    fit = fit_common_ground(voltage, current)
    assert fit.verdict == "poor"
    assert "heaters [2] follow no resistance law" in fit.reason
    assert fit_common_ground(voltage, current, groups=[0] * 4).verdict == "poor"


@pytest.mark.parametrize(
    "groups", [[0.0, 0.0, 1.0], [True, False, True], ["a", "a", "b"], [0, 0, 1j], [[0, 0, 1]], 0, [0, None, 1]]
)
def test_groups_are_whole_numbers(groups):
    data = circuit(np.random.default_rng(5), [0, 0, 0], 1.0, 20)
    with pytest.raises(CalibrationError, match="groups"):
        fit_common_ground(*data, groups=groups)
