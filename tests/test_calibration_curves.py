"""Fits of one heater: the right value, or a verdict with a reason; never a plausible wrong one."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from calibration import fit_phase_curve
from calibration._curves import MAX_RELATIVE_SIGMA
from optinc_hw.errors import CalibrationError

SEEDS = st.integers(0, 2**32 - 1)
TWO_PI = 2.0 * np.pi
SPAN_W = 0.04


def fringe(periods, points=30, offset=1.0, noise=0.0, rng=None, amplitude=1e-6, mean=1.2e-6):
    """Powers in W, readings in W, and the true efficiency in rad/W."""
    power = np.linspace(0.0, SPAN_W, points)
    efficiency = TWO_PI * periods / SPAN_W
    readings = mean + amplitude * np.cos(efficiency * power + offset)
    if rng is not None:
        readings = readings + noise * amplitude * rng.standard_normal(points)
    return power, readings, efficiency


def assert_right_or_refused(fit, efficiency):
    """A good verdict must be true within its own uncertainty, and no verdict comes without a reason."""
    if fit.good:
        assert fit.reason == ""
        assert abs(fit.efficiency / efficiency - 1.0) < max(0.03, 5.0 * fit.efficiency_sigma / efficiency)
        assert fit.efficiency_sigma <= MAX_RELATIVE_SIGMA * fit.efficiency
    else:
        assert fit.reason


@given(
    st.floats(0.05, 20.0),
    st.floats(0.0, TWO_PI),
    st.sampled_from([0.0, 0.001, 0.01, 0.03, 0.1, 1.0]),
    st.integers(50, 120),
    SEEDS,
)
@settings(max_examples=10)
def test_any_fringe_is_fitted_or_refused(periods, offset, noise, points, seed):
    power, readings, efficiency = fringe(periods, points, offset, noise, np.random.default_rng(seed))
    fit = fit_phase_curve(power, readings)
    assert_right_or_refused(fit, efficiency)
    if noise <= 0.005 and periods > 1.2:
        assert fit.good
    if periods < 0.4:
        assert not fit.good


@pytest.mark.parametrize("periods", [0.6, 0.9, 1.0, 1.5, 2.5, 20.0])
def test_clean_fringes_of_a_period_and_more_are_exact(periods):
    power, readings, efficiency = fringe(periods, points=80)
    fit = fit_phase_curve(power, readings)
    assert fit.good
    assert fit.efficiency == pytest.approx(efficiency, rel=1e-6)
    assert fit.offset == pytest.approx(1.0, abs=1e-5)
    assert fit.amplitude == pytest.approx(1e-6, rel=1e-4)
    assert fit.mean == pytest.approx(1.2e-6, rel=1e-4)
    assert fit.slope == pytest.approx(0.0, abs=1e-8)
    assert fit.periods == pytest.approx(periods, rel=1e-6)
    np.testing.assert_allclose(fit.readings(power), readings, atol=1e-11)


@pytest.mark.parametrize("periods", [0.2, 0.3, 0.4])
def test_part_of_a_fringe_is_too_short_and_the_needed_range_is_said(periods):
    """The heater's limit came first."""
    power, readings, _ = fringe(periods)
    fit = fit_phase_curve(power, readings)
    assert not fit.good
    assert fit.reason.startswith(f"range too short: {periods:.2f} periods, 0.5 are needed (sweep at least")
    needed = float(fit.reason.split("at least ")[1].split(" W")[0])
    assert needed == pytest.approx(0.5 * SPAN_W / periods, rel=0.02)


def test_the_longest_and_the_shortest_period_are_bounded_by_the_sweep():
    for periods in (0.05, 14.6):
        power, readings, efficiency = fringe(periods)
        assert not fit_phase_curve(power, readings).good
    power, readings, efficiency = fringe(2.0)
    fit = fit_phase_curve(power, readings, efficiency_range=(1.2 * efficiency, 3 * efficiency))
    assert not fit.good
    assert fit.reason


def test_uneven_steps_tell_a_fringe_from_its_alias():
    rng = np.random.default_rng(0)
    power = np.sort(rng.uniform(0.0, SPAN_W, 40))
    efficiency = TWO_PI * 25.0 / SPAN_W
    fit = fit_phase_curve(
        power, np.cos(efficiency * power), efficiency_range=(0.3 * TWO_PI / SPAN_W, 40 * TWO_PI / SPAN_W)
    )
    assert fit.good
    assert fit.efficiency == pytest.approx(efficiency, rel=1e-4)


@given(SEEDS, st.floats(0.9, 5.0))
@settings(max_examples=10)
def test_the_fit_does_not_depend_on_order_sign_unit_or_level(seed, periods):
    rng = np.random.default_rng(seed)
    power, readings, _ = fringe(periods, 40, rng.uniform(0, TWO_PI), 0.003, rng)
    fit = fit_phase_curve(power, readings)
    order = rng.permutation(40)
    for other in (
        fit_phase_curve(power[::-1], readings[::-1]),
        fit_phase_curve(power[order], readings[order]),
        fit_phase_curve(power, -readings),
        fit_phase_curve(power, 1e9 * readings),
        fit_phase_curve(power, readings + 1e-3),
    ):
        assert other.good == fit.good
        assert other.efficiency == pytest.approx(fit.efficiency, rel=1e-4)
    inverted = fit_phase_curve(power, -readings)
    assert np.cos(inverted.offset - fit.offset) == pytest.approx(-1.0, abs=1e-6)


def test_a_sweep_that_does_not_begin_at_zero():
    power = np.linspace(0.02, 0.06, 30)
    fit = fit_phase_curve(power, np.cos(200.0 * power + 2.0))
    assert fit.good
    assert fit.efficiency == pytest.approx(200.0, rel=1e-6)
    assert fit.offset == pytest.approx(2.0, abs=1e-4)


@given(SEEDS, st.floats(0.5, 3.0), st.floats(0.3, 0.95), st.booleans())
@settings(max_examples=12)
@example(3973, 0.84375, 0.75, False)  # clipped for two points at each end of a short sweep
def test_a_clipped_detector_never_gives_a_wrong_value(seed, periods, level, at_bottom):
    rng = np.random.default_rng(seed)
    power, readings, efficiency = fringe(periods, 40, rng.uniform(0, TWO_PI), 0.002, rng, mean=0.0)
    clipped = np.minimum(readings, level * 1e-6)
    assert_right_or_refused(fit_phase_curve(power, -clipped if at_bottom else clipped), efficiency)


@pytest.mark.parametrize("level", [0.5, 0.8, 0.93])
def test_what_a_clipped_detector_still_shows_is_enough(level):
    power, readings, efficiency = fringe(1.5, 40, noise=0.002, rng=np.random.default_rng(0), mean=0.0)
    fit = fit_phase_curve(power, np.minimum(readings, level * 1e-6))
    assert fit.good
    assert fit.clipped == pytest.approx((readings > level * 1e-6).sum(), abs=1)
    assert fit.efficiency == pytest.approx(efficiency, rel=max(0.005, 4 * fit.efficiency_sigma / efficiency))


@pytest.mark.parametrize("periods", [1.0, 2.0, 5.0, 10.0])
def test_equal_maxima_of_several_periods_are_not_a_clipped_detector(periods):
    power, readings, _ = fringe(periods, points=101, offset=0.0)
    rounded = np.round(readings, 12)  # a converter's steps make the turning points exactly equal
    order = np.random.default_rng(0).permutation(101)
    assert fit_phase_curve(power[order], rounded[order]).good


def test_a_dark_detector_with_coarse_steps_is_not_taken_for_a_clipped_one():
    power, readings, efficiency = fringe(1.25, 40)
    rng = np.random.default_rng(0)
    coarse = 1e-9 * rng.integers(0, 2, 40)
    fit = fit_phase_curve(power, np.stack([readings, coarse, np.zeros(40)], axis=1))
    assert fit.good
    assert fit.efficiency == pytest.approx(efficiency, rel=1e-3)


@given(SEEDS, st.floats(0.5, 3.0), st.sampled_from([0.3, 1.0, 5.0, 1e6]))
@settings(max_examples=12)
def test_one_outlier_never_gives_a_wrong_value(seed, periods, size):
    rng = np.random.default_rng(seed)
    power, readings, efficiency = fringe(periods, 30, rng.uniform(0, TWO_PI), 0.003, rng)
    readings[rng.integers(30)] += size * 1e-6 * rng.choice([-1, 1])
    assert_right_or_refused(fit_phase_curve(power, readings), efficiency)


@given(SEEDS, st.floats(0.9, 3.0), st.floats(-3.0, 3.0))
@settings(max_examples=10)
def test_slow_drift_is_taken_up(seed, periods, drift):
    """Heat that reaches neighbours changes the readings slowly."""
    rng = np.random.default_rng(seed)
    power, readings, efficiency = fringe(periods, 30, rng.uniform(0, TWO_PI), 0.002, rng)
    fit = fit_phase_curve(power, readings + drift * 1e-6 * power / SPAN_W)
    assert_right_or_refused(fit, efficiency)
    if periods > 1.4:
        assert fit.good
        # Slope and bend share the drift; together they are what the line rises by.
        risen = fit.slope * SPAN_W + fit.bend * SPAN_W**2
        assert risen == pytest.approx(drift * 1e-6, abs=0.05e-6)


@given(SEEDS, st.integers(8, 40), st.integers(1, 6))
@settings(max_examples=12)
def test_noise_alone_is_no_fringe(seed, points, detectors):
    readings = np.random.default_rng(seed).standard_normal((points, detectors))
    fit = fit_phase_curve(np.linspace(0, SPAN_W, points), readings)
    assert not fit.good
    assert fit.reason


@pytest.mark.parametrize("level", [0.0, 1.2e-6, -5.0])
def test_readings_that_do_not_move_are_no_fringe(level):
    fit = fit_phase_curve(np.linspace(0, SPAN_W, 20), np.full(20, level))
    assert not fit.good
    assert "no clear fringe" in fit.reason


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_invalid_readings_drop_their_points(bad):
    power, readings, efficiency = fringe(1.5, 30)
    both = np.stack([readings, 0.3 * readings], axis=1)
    both[3, 1] = both[11, 0] = bad
    power[20] = bad
    fit = fit_phase_curve(power, both)
    assert fit.good
    assert fit.efficiency == pytest.approx(efficiency, rel=1e-6)
    assert fit.detector == 0
    both[:] = bad
    fit = fit_phase_curve(power, both)
    assert not fit.good
    assert fit.reason == "only 0 valid points at different powers; 8 are needed"


def test_points_that_repeat_a_few_powers_are_no_sweep():
    power = np.repeat([0.0, 0.01, 0.02, 0.03], 5)
    fit = fit_phase_curve(power, np.cos(200.0 * power))
    assert not fit.good
    assert fit.reason == "only 4 valid points at different powers; 8 are needed"


def test_detectors_share_the_efficiency():
    rng = np.random.default_rng(3)
    power, _, efficiency = fringe(1.2)
    phases, sizes = rng.uniform(0, TWO_PI, 6), np.array([1.0, 0.5, 0.1, 0.3, 0.0, 0.7])
    readings = 1.0 + sizes * np.cos(efficiency * power[:, None] + phases) + 0.01 * rng.standard_normal((30, 6))
    fit = fit_phase_curve(power, readings)
    assert fit.good
    assert fit.efficiency == pytest.approx(efficiency, rel=5 * fit.efficiency_sigma / efficiency)
    assert fit.amplitude == pytest.approx(1.0, abs=0.03)
    assert np.cos(fit.offset - phases[0]) > 0.99
    alone = fit_phase_curve(power, readings[:, 0])
    assert fit.efficiency_sigma < alone.efficiency_sigma


def pulls(periods, usual, rng, count=25):
    """Errors over their standard deviations of efficiencies and offsets; deviations of the stated usual size."""
    found = []
    for _ in range(count):
        offset = rng.uniform(0, TWO_PI)
        power, _, efficiency = fringe(periods, 20)
        u = 2.0 * power / SPAN_W - 1.0
        bow, slope, bend = usual * np.array([0.04, 0.1, 0.05]) * rng.standard_normal(3)
        phase = efficiency * power + offset + bow * np.pi * periods * (u**2 - 1.0)
        readings = np.cos(phase) + slope * u + bend * u**2 + 0.02 * rng.standard_normal(20)
        fit = fit_phase_curve(power, readings)
        turn = np.angle(np.exp(1j * (fit.offset - offset)))
        found.append([(fit.efficiency - efficiency) / fit.efficiency_sigma, turn / fit.offset_sigma])
    return np.array(found)


@pytest.mark.parametrize("periods", [0.8, 1.3])
def test_stated_uncertainties_cover_noise_and_what_the_sweep_hides(periods):
    rng = np.random.default_rng(1)
    spread = np.std(pulls(periods, 1.0, rng), axis=0)
    assert (spread > 0.4).all()
    assert (spread < 1.25).all()
    assert np.abs(pulls(periods, 0.0, rng)).max() < 4.0


def test_steps_of_a_converter_are_no_fringe():
    power = np.linspace(0.0, SPAN_W, 13)
    # Half a period in quarters of its amplitude: the plateaus and edges alone look like a curve of 2.3 periods.
    steps = np.array([1.75, 2.0, 2.25, 2.5, 2.5, 2.75, 2.75, 2.75, 2.5, 2.5, 2.25, 2.0, 1.75])
    assert not fit_phase_curve(power, steps).good
    fine, _, efficiency = fringe(1.5, 40)
    readings = np.round((1.5 + np.cos(efficiency * fine + 1.0)) * 64.0) / 64.0
    fit = fit_phase_curve(fine, readings)
    assert fit.good
    assert abs(fit.efficiency - efficiency) < 4.0 * fit.efficiency_sigma


@pytest.mark.parametrize(("points", "good"), [(14, False), (30, True)])
def test_a_harmonic_needs_points_that_resolve_it(points, good):
    power = np.linspace(0.0, SPAN_W, points)
    phase = TWO_PI * 4.5 * power / SPAN_W + 0.4
    fit = fit_phase_curve(power, 2.0 + np.cos(phase) + 0.1 * np.cos(2.0 * phase + 1.0))
    assert fit.terms == ("harmonic",)
    assert fit.good == good
    assert good or "do not resolve the second harmonic" in fit.reason


def test_a_short_sweep_with_many_deviations_at_once_is_refused():
    # A transient at the first points that slope, bend, gain and curvature share among them.
    x = np.linspace(0.0, 1.0, 32)
    readings = 2.2 + 0.395 * np.exp(-x / 0.0786) + np.cos(TWO_PI * 1.305 * x + 3.344)
    fit = fit_phase_curve(SPAN_W * x, readings)
    assert not fit.good
    assert "several deviations at once" in fit.reason


@pytest.mark.parametrize(
    ("power", "readings", "limits", "message"),
    [
        (np.zeros(5), np.zeros(6), None, r"got \(5,\), \(6, 1\)"),
        (np.zeros((5, 1)), np.zeros(5), None, r"got \(5, 1\)"),
        (np.zeros(5), np.zeros((5, 0)), None, r"\(5, 0\)"),
        (np.zeros(5), np.zeros((5, 2, 2)), None, r"\(5, 2, 2\)"),
        (np.arange(9.0), np.arange(9.0), (2.0, 1.0), "give 0 < smallest < largest"),
        (np.arange(9.0), np.arange(9.0), (0.0, 1.0), "0 < smallest"),
        (np.arange(9.0), np.arange(9.0), (np.nan, 1.0), "nan"),
        (np.arange(9.0), np.arange(9.0), (1.0, np.inf), "inf"),
    ],
)
def test_sweeps_of_wrong_shape_are_refused(power, readings, limits, message):
    with pytest.raises(CalibrationError, match=message):
        fit_phase_curve(power, readings, efficiency_range=limits)
