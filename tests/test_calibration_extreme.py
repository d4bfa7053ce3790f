"""Searches for an extreme: they end, keep to their readings and limits, and mean what they call converged."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration import find_extreme
from optinc_hw.errors import CalibrationError

SEEDS = st.integers(0, 2**32 - 1)
KINDS = st.sampled_from(["minimum", "maximum"])


class Meter:
    """A curve with noise that counts its readings, and fails the test that asks for more than are allowed."""

    def __init__(self, curve, limits, allowed, noise=0.0, seed=0):
        self.curve, self.limits, self.allowed, self.noise = curve, limits, allowed, noise
        self.rng, self.asked = np.random.default_rng(seed), []

    def __call__(self, setting):
        assert self.limits[0] <= setting <= self.limits[1]
        self.asked.append(setting)
        assert len(self.asked) <= self.allowed
        return self.curve(setting) + self.noise * self.rng.standard_normal()


def smooth(rng, span):
    """A random sum of a few waves and a slope over an interval of length ``span``."""
    sizes, turns, shifts = rng.normal(size=4), rng.uniform(0.2, 3.0, 4), rng.uniform(0.0, 6.3, 4)
    slope = rng.normal()

    def curve(setting):
        place = setting / span
        return float(slope * place + sizes @ np.cos(2.0 * np.pi * turns * place + shifts))

    return curve


@given(
    SEEDS, st.floats(-10.0, 10.0), st.floats(1e-3, 50.0), st.floats(0.0, 1.0), st.floats(1e-5, 0.5),
    st.sampled_from([0.0, 1e-6, 1e-3, 0.03, 0.3, 3.0]), st.sampled_from([0.0, 0.5, 1.0, 2.0]), st.integers(5, 60),
    KINDS,
)  # fmt: skip
@settings(max_examples=400)
def test_every_search_ends_within_its_readings_and_limits(
    seed, low, span, place, tolerance, noise, true_share, allowed, kind
):
    limits = (low, low + span)
    start = min(low + place * span, limits[1])
    meter = Meter(smooth(np.random.default_rng(seed), span), limits, allowed, true_share * noise, seed)
    found = find_extreme(
        meter, start, limits, tolerance=tolerance * span, kind=kind, noise=noise, max_evaluations=allowed
    )
    assert found.settings == tuple(meter.asked)
    assert len(found.settings) == len(found.readings)
    assert limits[0] <= found.setting <= limits[1]
    assert found.setting in found.settings
    assert found.uncertainty >= 0.0
    assert found.reason
    assert found.at_limit == (found.setting in limits)


@pytest.mark.parametrize("allowed", range(5, 13))
def test_a_search_in_noise_that_runs_out_of_readings_says_so(allowed):
    """Fewer than three readings are left when noise hides the rest: it ends, not converged."""
    for seed in range(40):
        meter = Meter(lambda x: (x - 0.4) ** 2, (0.0, 1.0), allowed, 0.02, seed)
        found = find_extreme(meter, 0.1, (0.0, 1.0), tolerance=1e-3, noise=0.02, max_evaluations=allowed)
        assert found.converged or found.reason


def test_a_curve_that_bends_the_other_way_over_the_whole_range_ends():
    """The lowest reading is a limit, and no parabola through the range has a lowest point inside."""
    found = find_extreme(lambda x: x - 0.4 * x**2, 0.3, (0.0, 1.0), tolerance=1e-3, noise=0.004)
    assert found.converged
    assert found.at_limit
    assert found.setting == 0.0
    assert found.uncertainty < 0.2


@given(
    st.floats(-5.0, 5.0), st.floats(0.05, 20.0), st.floats(0.0, 1.0), st.floats(-0.3, 1.3), st.floats(1e-3, 0.2),
    st.floats(0.1, 10.0), st.floats(-3.0, 3.0), st.sampled_from([0.0, 1e-4, 1e-2, 0.1]), st.integers(5, 60), KINDS,
)  # fmt: skip
@settings(max_examples=400)
def test_what_converged_on_a_clean_parabola_is_within_its_uncertainty(
    low, span, start, vertex, tolerance, height, level, noise, allowed, kind
):
    limits, truth, sign = (low, low + span), low + vertex * span, 1.0 if kind == "minimum" else -1.0
    meter = Meter(lambda x: level + sign * height * ((x - truth) / span) ** 2, limits, allowed)
    found = find_extreme(
        meter, min(low + start * span, limits[1]), limits, tolerance=tolerance * span, kind=kind, noise=noise * height,
        max_evaluations=allowed,
    )  # fmt: skip
    if found.converged and not found.at_limit:
        assert abs(found.setting - truth) <= found.uncertainty * (1.0 + 1e-9)
    if found.converged and found.at_limit and limits[0] < truth < limits[1]:
        assert abs(found.setting - truth) <= max(found.uncertainty, tolerance * span) * (1.0 + 1e-9)


@pytest.mark.parametrize("start", [1.0 - 1e-16, 1.0 - 1e-13, 1e-16, 0.3])
@pytest.mark.parametrize("truth", [-0.25, 1.25])
def test_a_setting_a_rounding_beside_a_limit_is_the_limit(start, truth):
    found = find_extreme(lambda x: 1.0 + (x - truth) ** 2, start, (0.0, 1.0), tolerance=0.125)
    assert found.at_limit
    assert found.setting == (0.0 if truth < 0.0 else 1.0)


@pytest.mark.parametrize("noise", [1e-3, 1e-2, 5e-2])
def test_in_noise_the_truth_is_within_the_uncertainty_but_for_rare_chance(noise):
    """Three standard deviations: 0.3 % of the searches may miss, of 400 one to four."""
    missed, ended = 0, 0
    for seed in range(400):
        start = np.random.default_rng(seed + 1000).uniform(0.0, 1.0)
        meter = Meter(lambda x: 3.0 * (x - 0.43) ** 2, (0.0, 1.0), 40, noise, seed)
        found = find_extreme(meter, start, (0.0, 1.0), tolerance=1e-3, noise=noise)
        if found.converged and not found.at_limit:
            ended += 1
            missed += abs(found.setting - 0.43) > found.uncertainty
    assert ended > 200
    assert missed <= 0.02 * ended


@pytest.mark.parametrize(("tolerance", "start"), [(0.3, 0.5), (0.5, 0.5), (1.5, 0.0)])
def test_a_setting_that_was_read_twice_counts_with_the_mean_of_its_readings(tolerance, start):
    """The parabola's lowest point is a limit that was read before."""
    calls = []

    def reading(setting):
        calls.append(setting)
        return setting + 0.2 * (-1.0) ** len(calls)

    found = find_extreme(reading, start, (0.0, 1.0), tolerance=tolerance, noise=0.05, max_evaluations=20)
    at_best = [value for setting, value in zip(found.settings, found.readings, strict=True) if setting == found.setting]
    assert len(at_best) > 1
    assert found.reading == pytest.approx(np.mean(at_best))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_evaluations": True}, "max_evaluations"),
        ({"max_evaluations": 7.5}, "max_evaluations"),
        ({"max_evaluations": np.nan}, "max_evaluations"),
        ({"kind": "min"}, "'min'"),
        ({"limits": (0.0, 1.0, 2.0)}, "limits"),
        ({"limits": ("0", "1")}, "limits"),
        ({"limits": 3.0}, "limits"),
        ({"limits": (0.0, np.nan)}, "between"),
        ({"start": "0.2"}, "start"),
        ({"start": 0.2 + 0.0j}, "start"),
        ({"start": np.ma.masked}, "start"),
        ({"tolerance": True}, "tolerance"),
        ({"tolerance": None}, "tolerance"),
        ({"noise": 1j}, "noise"),
        ({"measure": lambda _: 1.0 + 1.0j}, "reading"),
        ({"measure": lambda _: "1.0"}, "reading"),
        ({"measure": lambda _: None}, "reading"),
        ({"measure": lambda _: np.array([1.0, 2.0])}, "reading"),
        ({"measure": lambda _: np.ma.masked}, "reading"),
    ],
)
def test_a_search_that_makes_no_sense_is_refused(change, message):
    asked = {"measure": lambda x: x**2, "start": 0.5, "limits": (0.0, 1.0), "tolerance": 0.1, "noise": 0.0} | change
    with pytest.raises(CalibrationError, match=message):
        find_extreme(asked.pop("measure"), **asked)
