"""Problem reports of others about calibrations, tried on ours.

The rows of the project's collection of public problem reports, the report, and the test that tries its whole kind:

=====  ==========================================================================================================
C-01   qiboteam/qibocal 475 and 225 (half an oscillation; a far-off frequency from a clean picture):
       ``test_c01_...`` below; ``test_calibration_curves.test_any_fringe_is_fitted_or_refused``
C-02   BBN-Q/Qlab 71 (a failed fit replaced the good frequency, and the next calibrations started from it):
       ``test_c02_...`` below; ``test_calibration_failures``: what a failed calibration keeps
C-04   qiboteam/qibocal 337 (sign of the correction reversed): ``test_c04_...`` below
C-05   BBN-Q/Auspex 279 (no convergence criterion, sometimes the wrong direction): ``test_c05_...`` below
C-07   BBN-Q/Auspex 178 (two frequencies fitted where there is one): ``test_c07_...`` below; clipped detectors,
       outliers and drift also in ``test_calibration_curves``
C-08   qiskit-community/qiskit-experiments 896 (less than one period): ``test_c08_...`` below;
       ``test_calibration_curves.test_part_of_a_fringe_is_too_short_and_the_needed_range_is_said``
C-10   NVIDIA/TensorRT 2650 (calibrate once, then broadcast): ``test_calibration_distributed.test_c10_...``
C-11   IBM/aihwkit 565 (wrong device under DDP; fatal after loading a checkpoint):
       ``test_calibration_distributed.test_c11_...``
=====  ==========================================================================================================
"""

import logging
import re
from types import SimpleNamespace

import numpy as np
import pytest
from twins import imperfect_twin

from calibration import find_extreme, fit_phase_curve
from calibration._electrical import use_fringes, use_resistances
from optinc_hw.errors import CalibrationError
from optinc_hw.photonics import ChipModel

TWO_PI = 2.0 * np.pi
SPAN_W = 0.04


def sweep(periods, points=60, noise=0.003, seed=0, span_w=SPAN_W):
    """Powers in W, readings, and the efficiency in rad/W of a fringe."""
    rng = np.random.default_rng(seed)
    power, efficiency = np.linspace(0.0, span_w, points), TWO_PI * periods / span_w
    clean = 1.2 + np.cos(efficiency * power + rng.uniform(0.0, TWO_PI))
    return power, clean + noise * rng.standard_normal(points), efficiency


def is_right(fit, efficiency):
    return abs(fit.efficiency - efficiency) < max(5.0 * fit.efficiency_sigma, 1e-6 * efficiency)


@pytest.mark.parametrize("noise", [0.0, 0.003, 0.03])
@pytest.mark.parametrize("periods", [0.3, 0.5, 0.9, 1.0, 2.5, 20.0])
def test_c01_half_a_period_to_twenty_give_the_right_efficiency_or_a_refusal(periods, noise):
    for seed in range(4):
        power, readings, efficiency = sweep(periods, noise=noise, seed=seed)
        fit = fit_phase_curve(power, readings)
        assert is_right(fit, efficiency) if fit.good else fit.reason
        if periods < 0.5:
            assert not fit.good
        if periods >= 2.5 and noise < 0.01:
            assert fit.good


def session_with(heaters, detectors):
    movable = np.ones(len(heaters), dtype=bool)
    layout = SimpleNamespace(heaters=heaters, detectors=detectors, movable=movable, bare=False)
    nominal = SimpleNamespace(resistance_ohm=1200.0, p_pi_w=0.02)
    bench = SimpleNamespace(description=SimpleNamespace(chip=SimpleNamespace(nominal=nominal)))
    return SimpleNamespace(
        bench=bench, layout=layout, efficiency=np.full(len(heaters), 120.0),
        resistance_ohm=np.full(len(heaters), 1200.0), beta_per_w=np.full(len(heaters), 0.8),
    )  # fmt: skip


def test_c02_a_failed_phase_curve_changes_nothing_and_says_why(caplog):
    """Ten times the noise on one of two heaters: the good fit of the other is not taken over either."""
    session = session_with(("a", "b"), ("rx",))
    curves = [sweep(1.3, 14, noise, seed=1, span_w=0.08) for noise in (0.02, 0.2)]
    raw = {
        "fringe_power": np.stack([power for power, _, _ in curves]),
        "fringe_readings": np.stack([readings[:, None] for _, readings, _ in curves]),
    }
    with caplog.at_level(logging.ERROR), pytest.raises(CalibrationError, match=r"no clear fringe for b \(contrast"):
        use_fringes(session, raw)
    assert session.efficiency.tolist() == [120.0, 120.0]
    assert "the old efficiencies stay" in caplog.text


def test_c02_a_failed_resistance_changes_nothing_and_says_why(caplog):
    session = session_with(("a", "b"), ("rx",))
    voltage = np.linspace(1.0, 6.0, 7)[:, None] * np.ones(2)
    current = voltage / 1000.0
    current[:, 1] = 2e-6
    with caplog.at_level(logging.ERROR), pytest.raises(CalibrationError, match=r"b: .*open or damaged"):
        use_resistances(session, {"resistance_voltage": voltage, "resistance_current": current})
    assert session.resistance_ohm.tolist() == [1200.0, 1200.0]
    assert session.beta_per_w.tolist() == [0.8, 0.8]
    assert "the old resistances stay" in caplog.text


@pytest.mark.parametrize(("ohm", "word"), [(500.0, "shorted"), (2600.0, "open or damaged")])
def test_c02_a_resistance_that_is_not_the_heaters_is_named(ohm, word):
    """Another resistor on the wire follows Ohm's law as well; chip.yaml says what the heater has."""
    session = session_with(("a", "b"), ("rx",))
    voltage = np.linspace(1.0, 6.0, 7)[:, None] * np.ones(2)
    current = voltage / np.array([1000.0, ohm])
    with pytest.raises(
        CalibrationError, match=rf"b: {re.escape(f'{ohm:.3g}')} ohm is .* that the heater can have.*{word}"
    ):
        use_resistances(session, {"resistance_voltage": voltage, "resistance_current": current})
    assert session.resistance_ohm.tolist() == [1200.0, 1200.0]


@pytest.mark.parametrize("error", [-0.5, -0.2, 0.2, 0.5])
def test_c04_a_second_correction_is_smaller_than_the_first(error):
    """A record whose offset is wrong either way; calibrate, apply, calibrate again around the corrected bias."""
    twin = imperfect_twin(2, seed=3)
    model, heater = ChipModel.from_parameters(twin), int(twin.layout.mesh_theta[0])
    period, wanted = TWO_PI / twin.efficiency[heater], 2.0

    def measured_offset(bias_w):
        """Offset as a sweep of a little more than two periods around a bias tells it."""
        steps = np.linspace(-1.1, 1.1, 50) * period + bias_w
        powers = np.zeros((len(steps), len(twin.offset)))
        powers[:, heater] = steps
        noise = 1e-3 * np.random.default_rng(0).standard_normal((len(steps), 4))
        fit = fit_phase_curve(steps, model.readings(twin, powers) * (1.0 + noise))
        assert fit.good
        return fit

    believed = measured_offset(2.0 * period).offset + error
    corrections = []
    for _ in range(3):
        bias = ((wanted - believed) % TWO_PI) / twin.efficiency[heater] + 2.0 * period
        found = measured_offset(bias).offset
        corrections.append(float(np.angle(np.exp(1j * (found - believed)))))
        believed += corrections[-1]
    assert corrections[0] * error < 0.0
    assert abs(corrections[1]) < 0.5 * abs(corrections[0])
    assert abs(corrections[2]) < 0.2 * abs(corrections[0])


@pytest.mark.parametrize("kind", ["minimum", "maximum"])
@pytest.mark.parametrize("noise", [0.0, 0.003])
def test_c05_a_bias_search_converges_from_anywhere_and_stays_inside_its_limits(kind, noise):
    rng = np.random.default_rng(5)
    limits, extreme = (0.0, 7.0), {"minimum": np.pi - 1.0, "maximum": TWO_PI - 1.0}[kind]
    for start in rng.uniform(*limits, 20):
        asked = []

        def reading(phase, asked=asked):
            asked.append(phase)
            return 1.0 + np.cos(phase + 1.0) + noise * rng.standard_normal()

        found = find_extreme(reading, start, limits, tolerance=0.01, kind=kind, noise=noise)
        assert min(asked) >= limits[0]
        assert max(asked) <= limits[1]
        assert len(asked) <= 40
        assert found.reason
        if found.converged and not found.at_limit:
            assert abs(found.setting - extreme) <= max(found.uncertainty, 0.011)
        if noise == 0.0:
            assert found.converged


def test_c05_a_reading_that_does_not_depend_on_the_bias_is_no_extreme():
    found = find_extreme(lambda _: 0.3, 1.0, (0.0, 7.0), tolerance=0.01, noise=1e-3)
    assert not found.converged
    assert "does not change by more than its noise" in found.reason


def test_c05_an_extreme_beyond_a_limit_is_said_to_be_there():
    found = find_extreme(lambda x: x, 3.0, (1.0, 7.0), tolerance=0.01)
    assert (found.setting, found.at_limit) == (1.0, True)
    assert "limit" in found.reason


def test_c05_no_search_without_sense():
    for start, limits, tolerance, evaluations in (
        (8.0, (0.0, 7.0), 0.1, 40), (1.0, (7.0, 0.0), 0.1, 40), (1.0, (0.0, 7.0), 0.0, 40), (1.0, (0.0, 7.0), 0.1, 4),
    ):  # fmt: skip
        with pytest.raises(CalibrationError):
            find_extreme(np.cos, start, limits, tolerance=tolerance, max_evaluations=evaluations)
    with pytest.raises(CalibrationError, match=r"is nan; check the detector"):
        find_extreme(lambda _: np.nan, 1.0, (0.0, 7.0), tolerance=0.1)


@pytest.mark.parametrize("periods", [1.5, 2.5, 6.0])
def test_c07_one_fringe_is_never_fitted_with_two(periods):
    for seed in range(6):
        power, readings, efficiency = sweep(periods, noise=0.01, seed=seed)
        fit = fit_phase_curve(power, readings)
        assert "second" not in fit.terms
        assert fit.good
        assert is_right(fit, efficiency)


@pytest.mark.parametrize("share", [0.05, 0.2, 0.4])
def test_c07_two_fringes_are_told_apart(share):
    power, readings, efficiency = sweep(3.0, seed=2)
    fit = fit_phase_curve(power, readings + share * np.cos(TWO_PI * 5.3 * power / SPAN_W))
    assert fit.good
    assert is_right(fit, efficiency)
    assert "second" in fit.terms
    assert fit.second_efficiency == pytest.approx(TWO_PI * 5.3 / SPAN_W, rel=0.03)
    assert fit.second_strength == pytest.approx(share, rel=0.15)


def test_c07_two_fringes_of_one_strength_are_not_decided_between():
    power, readings, _ = sweep(3.0, seed=2)
    fit = fit_phase_curve(power, readings + 0.9 * np.cos(TWO_PI * 5.3 * power / SPAN_W))
    assert not fit.good
    assert "which is the heater's?" in fit.reason


@pytest.mark.parametrize("what", ["offset", "sign", "clipped", "outlier", "outliers", "reversed", "shuffled", "all"])
def test_c07_what_else_led_fits_astray(what):
    power, readings, efficiency = sweep(2.2, seed=4)
    order = np.random.default_rng(0).permutation(len(power))
    if what in ("offset", "all"):
        readings = readings + 50.0
    if what in ("sign", "all"):
        readings = -readings
    if what in ("clipped", "all"):
        readings = np.minimum(readings, np.quantile(readings, 0.8))
    if what in ("outlier", "outliers", "all"):
        readings[[7]] += 1.0
    if what == "outliers":
        readings[[20, 33]] -= [0.4, 1e6]
    if what == "reversed":
        power, readings = power[::-1], readings[::-1]
    if what in ("shuffled", "all"):
        power, readings = power[order], readings[order]
    fit = fit_phase_curve(power, readings)
    assert fit.good, fit.reason
    assert is_right(fit, efficiency)
    assert fit.outliers == {"outlier": 1, "outliers": 3, "all": 1}.get(what, 0)
    assert (fit.clipped > 5) is (what in ("clipped", "all"))


@pytest.mark.parametrize("noise", [0.0, 0.003])
def test_c08_a_limit_that_comes_first_is_named_with_the_power_that_is_needed(noise):
    power, readings, efficiency = sweep(0.4, noise=noise, seed=1)
    fit = fit_phase_curve(power, readings)
    assert not fit.good
    assert fit.reason.startswith("range too short")
    assert fit.needed_w == pytest.approx(0.5 * TWO_PI / efficiency, rel=0.15)
