"""Arguments of fits of bare meshes that make no sense are refused before anything is computed or measured."""

from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest

from calibration import (
    BenchProbe,
    MeshData,
    NoiseModel,
    Settings,
    cross_validate,
    effect_asked_for,
    find_start,
    fit_mesh,
    fit_twin,
    held_out,
    refit,
    residual_over_noise,
)
from calibration._journal import Journal
from calibration._journal_probe import JournaledProbe, ReplayProbe
from calibration._mesh_calibrate import total_variation_of
from calibration._mesh_space import BLOCKS, PriorWidths
from calibration._run_opening import run_header
from optinc_hw import Bench
from optinc_hw.errors import CalibrationError
from optinc_hw.photonics import TwinParameters
from tests._lab_mesh import LabMesh
from tests.mesh_truths import NOISE, exact, measured, nominal, quiet, rough, settings, truth
from tests.test_mesh_checks import PORTS, fitted, rng


def fit(**changes):
    return fit_mesh(fitted()[2], nominal(PORTS), NOISE, quiet, **changes)


@pytest.mark.parametrize(
    ("free", "message"),
    [
        (("offset", "nonsense"), "unknown.*nonsense"), (("offset", "offset"), "twice.*offset"), ((), "empty"),
        (set(), "empty"), ("offset", "is text"), (3, "no collection"), (None, "no collection"), ((3,), "unknown"),
        ((["offset"],), "no collection|unknown"),
    ],
)  # fmt: skip
def test_blocks_that_are_none_are_refused(free, message):
    with pytest.raises(CalibrationError, match=message):
        fit(free=free)


@pytest.mark.parametrize("free", [("offset",), ["eta"], {"offset", "output"}, frozenset(BLOCKS)])
def test_any_blocks_can_be_free(free):
    chip, _, data, _, _ = fitted()
    found = fit_mesh(data, rough(chip, rng()), NOISE, quiet, free=free, rounds=0)
    assert found.space.free == frozenset(free)
    for name in set(BLOCKS) - set(free) - {"crosstalk"}:
        place = found.space.slices[name]
        np.testing.assert_allclose(found.vector[place], found.space.centre[place], atol=1e-6, err_msg=name)


@pytest.mark.parametrize("value", [-1, 1.0, True, "1", None, np.nan])
def test_rounds_and_seeds_are_whole_numbers(value):
    _, before, data, _, _ = fitted()
    for name in ("rounds", "seed"):
        with pytest.raises(CalibrationError, match=name):
            fit(**{name: value})
    with pytest.raises(CalibrationError, match="rounds"):
        refit(before, data, NOISE, quiet, rounds=value)


@pytest.mark.parametrize("reach", [-1.0, np.nan, np.inf, "far", True, None])
def test_a_reach_is_a_distance(reach):
    with pytest.raises(CalibrationError, match="reach"):
        fit(reach=reach)


@pytest.mark.parametrize("folds", [1, 0, -2, 2.0, True])
def test_folds_are_two_or_more(folds):
    with pytest.raises(CalibrationError, match="parts"):
        cross_validate(fitted()[2], nominal(PORTS), NOISE, folds, rng())


def test_a_twin_to_begin_at_is_of_the_same_chip():
    with pytest.raises(CalibrationError, match="begin is a twin"):
        fit(begin=nominal(4))


@pytest.mark.parametrize("width", [0.0, -0.1, np.nan, np.inf, True, "wide", None])
def test_prior_widths_are_above_zero(width):
    with pytest.raises(CalibrationError, match="prior width of eta"):
        PriorWidths(eta=width)


@pytest.mark.parametrize(
    "parts",
    [
        (0.0, 0.0), (-1e-3, 1e-5), (1e-3, -1e-5), (np.nan, 1e-5), (1e-3, np.nan), (np.inf, 1e-5), (1e-3, np.inf),
        (1e-3, 0.0), (True, 1e-5), ("a", 1e-5), (1e-3, None), (1e-3, 1j), (np.array([1e-3, 1e-3]), 1e-5),
    ],
)  # fmt: skip
def test_noise_that_no_reading_has_is_refused(parts):
    with pytest.raises(CalibrationError, match="noise"):
        NoiseModel(*parts)


def test_noise_may_be_the_floor_alone():
    assert NoiseModel(0.0, np.float32(2.0)).sigma(np.array([0.0, 1.0])) == pytest.approx([2.0, 2.0])
    assert NoiseModel(1, 1).sigma(np.array([0.0])) == pytest.approx([1.0])


HOMODYNE = TwinParameters.nominal(2, input_amplitude=1.0, lo_amplitude=1.0)
HEATERS, DETECTORS = len(HOMODYNE.offset), len(HOMODYNE.gain)
POWER, SEEN = np.full((40, HEATERS), 1e-3), np.full((40, DETECTORS), 1e-3)


@pytest.mark.parametrize(
    ("power_w", "readings_w", "message"),
    [
        (POWER[1:], SEEN, "row a setting"), (POWER[0], SEEN, "row a setting"), (POWER + 0j, SEEN, "heater powers"),
        (POWER, SEEN.astype(str), "readings"), (np.ma.masked_less(POWER, 1.0), SEEN, "masked"),
        (POWER[:, 1:], SEEN, "chip"), (POWER, SEEN[:, 1:], "chip"), (-POWER, SEEN, "row 0 is -0.001 W"),
        (POWER * np.nan, SEEN, "NaN or Inf"), (POWER, SEEN * np.nan, "NaN or Inf"), (POWER[:0], SEEN[:0], "setting"),
    ],
)  # fmt: skip
def test_settings_of_chips_with_modulators(power_w, readings_w, message):
    with pytest.raises(CalibrationError, match=message):
        fit_twin(Settings(power_w, readings_w), HOMODYNE, NOISE, quiet)
    with pytest.raises(CalibrationError, match=message):
        residual_over_noise(HOMODYNE, Settings(power_w, readings_w), NOISE)


def dark_input(ports):
    """A chip one of whose fibres is dark, its readings, and its twin with a little light there."""
    chip = truth(ports, 1)
    amplitude = chip.input_amplitude.copy()
    amplitude[ports - 1] = 1e-9
    dark = replace(chip, input_amplitude=amplitude)
    return dark, measured(dark, 60, np.random.default_rng(1))


@pytest.mark.parametrize("ports", [2, 3, 4])
def test_a_dark_input_port_has_no_shares_and_a_twin_is_judged_by_the_others(ports):
    dark, data = dark_input(ports)
    judged = held_out(dark, data, NOISE)
    lit = data.take(data.lit != ports - 1)
    assert judged.count == 60
    assert judged.tvd == pytest.approx(held_out(dark, lit, NOISE).tvd)
    assert judged.worst_tvd < 0.003
    assert 0.8 < judged.chi < 1.2
    assert total_variation_of(dark, data, NOISE) == pytest.approx(judged.tvd, rel=0.2)


@pytest.mark.parametrize("readings", ["none", "noise", "negative"])
def test_readings_without_light_judge_nothing(readings):
    chip = truth(3, 1)
    power_w, lit = settings(chip, 30, rng())
    light = exact(chip, power_w, lit)
    noise = NOISE.floor_w * rng().standard_normal(light.shape)
    dark = MeshData(power_w, lit, {"none": 0.0 * light, "noise": noise, "negative": -light}[readings])
    for judge in (held_out, total_variation_of):
        with pytest.raises(CalibrationError, match=r"0 of 30 readings have light.*check the laser"):
            judge(chip, dark, NOISE)


class Answering(LabMesh):
    """A chip whose probe answers wrongly."""

    answer = staticmethod(lambda readings: readings)

    def measure(self, stage, power_w, lit):
        return self.answer(super().measure(stage, power_w, lit))


def start_of(chip):
    return find_start(chip, rng(), NoiseModel(chip.relative, chip.floor_w), lambda *_: None)


@pytest.mark.parametrize(
    "answer",
    [
        lambda readings: readings[1:], lambda readings: readings[:, 1:], lambda readings: readings[0],
        lambda readings: readings + 0j, lambda readings: None, lambda readings: np.ma.masked_less(readings, np.inf),
    ],
)  # fmt: skip
def test_a_start_refuses_answers_that_do_not_fit_the_sweep(answer):
    chip = Answering(3, 0)
    chip.answer = answer
    with pytest.raises(CalibrationError, match="readings"):
        start_of(chip)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_power_w", np.full(6, np.nan)), ("max_power_w", np.full(6, -1.0)), ("max_power_w", np.ones(5)),
        ("max_total_power_w", np.nan), ("max_total_power_w", 0.0), ("nominal_efficiency", np.zeros(6)),
        ("nominal_efficiency", np.full(6, np.inf)), ("nominal_efficiency", np.ones(7)), ("nominal_efficiency", "a"),
    ],
)  # fmt: skip
def test_a_start_refuses_a_probe_without_limits(name, value):
    chip = LabMesh(3, 0)
    setattr(chip, name, value)
    with pytest.raises(CalibrationError, match=r"power|efficienc"):
        start_of(chip)


def probe_of(bench):
    heaters = len(bench.layout.heaters)
    return BenchProbe(bench, np.full(heaters, 1000.0), np.zeros(heaters), np.zeros(PORTS), lambda *_: None)


@pytest.mark.parametrize(
    ("power_w", "lit", "message"),
    [
        (np.zeros((2, 6)), [0, PORTS], "row 1"), (np.zeros((2, 6)), [0, -1], "row 1"),
        (np.zeros((2, 6)), [0.0, 1.0], "lit ports"), (np.full((1, 6), -1e-3), [0], "row 0 is -0.001 W"),
        (np.full((1, 6), np.nan), [0], "nan W"), (np.zeros((2, 5)), [0, 1], "shape"), (np.zeros(6), [0], "shape"),
    ],
)  # fmt: skip
def test_a_bench_is_not_touched_by_a_sweep_that_is_none(power_w, lit, message):
    with Bench.simulated(PORTS, 0, kind="mesh") as bench:
        probe = probe_of(bench)
        with pytest.raises(CalibrationError, match=message):
            probe.measure("sweep", power_w, lit)
        assert (bench.readings, probe.readings) == (0, 0)


def test_a_sweep_of_no_settings_reads_nothing_and_is_given_back(tmp_path, monkeypatch):
    with Bench.simulated(PORTS, 0, kind="mesh") as bench:
        monkeypatch.setattr(bench, "light", lambda **_: pytest.fail("the light was switched"))
        probe = probe_of(bench)
        assert probe.measure("nothing", np.empty((0, 6)), np.empty(0, dtype=int)).shape == (0, PORTS)
        header = run_header(bench, 0, {}, datetime(2026, 1, 1, tzinfo=UTC))
        with Journal.create(tmp_path / "run.journal", header) as journal:
            stored = JournaledProbe(probe, journal)
            assert stored.measure("nothing", np.empty((0, 6)), np.empty(0, dtype=int)).shape == (0, PORTS)
            assert stored.readings == journal.readings == 0
            assert journal.steps == ()
            again = ReplayProbe(Journal.replay(header, journal.steps))
            assert again.measure("nothing", np.empty((0, 6)), np.empty(0, dtype=int)).shape == (0, PORTS)
            assert again.readings == 0


@pytest.mark.parametrize("block", ["nonsense", "", 3, None, ["eta"]])
def test_effects_that_no_fit_has_are_not_judged(block):
    _, before, data, _, _ = fitted()
    with pytest.raises(CalibrationError, match="not free"):
        effect_asked_for(before, data, NOISE, block)
