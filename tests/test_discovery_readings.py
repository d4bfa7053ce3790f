"""Discovery where readings fail: no light, dead meters, invalid readings, phases that are stated as stuck."""

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from _discovery_chips import NO_PHASE, FaultyMesh
from discovery_benches import mesh
from test_discovery_file import folder

from calibration import find_start
from calibration._discovery import HeaterState, judge
from calibration._discovery_electrical import ElectricalFindings, Settling, discover_electrical, fit_settling
from calibration._discovery_figures import plot_discovery
from calibration._discovery_file import propose_chip_file
from calibration._discovery_map import ChannelMap, find_channels
from calibration._discovery_run import discover, noise_of_readings
from calibration._twin_fit import NoiseModel
from optinc_hw.bench import Bench
from optinc_hw.errors import CalibrationError
from simulated_instruments.faults import DeadDetector, PowerDrop

__all__ = ["folder"]
NOISE = NoiseModel(1e-3, 1e-5)


class Failing(FaultyMesh):
    """Readings that something else is done to from one sweep on."""

    def __init__(self, ports, seed, change, sweeps=0, **flaws):
        super().__init__(ports, seed, **flaws)
        self._change, self._left = change, sweeps

    def measure(self, stage, power_w, lit):
        readings = super().measure(stage, power_w, lit)
        self._left -= 1
        return readings if self._left >= 0 else self._change(readings)


def dark(readings):
    return 1e-5 * np.random.default_rng(1).standard_normal(readings.shape)


FAILURES = {
    "dark": dark,
    "zero": lambda readings: 0.0 * readings,
    "invalid": lambda readings: np.nan * readings,
    "frozen": lambda readings: np.ones_like(readings),
    "frozen, each at its own": lambda readings: np.ones_like(readings) * np.arange(1.0, readings.shape[1] + 1.0),
    "one left": lambda readings: np.where(np.arange(readings.shape[1]) == 1, readings, 0.0),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_chip_that_shows_nothing_is_no_chip_of_dead_heaters(name):
    chip = Failing(4, 1, FAILURES[name])
    with pytest.raises(CalibrationError, match="check laser"):
        find_channels(chip, NOISE, np.random.default_rng(0))


@pytest.mark.parametrize("name", ["dark", "zero", "invalid"])
@pytest.mark.parametrize("share", [0.02, 0.3, 0.7, 0.85, 0.99])
def test_light_that_is_lost_on_the_way_is_told(name, share):
    whole = Failing(4, 1, FAILURES[name], sweeps=10**6)
    find_channels(whole, NOISE, np.random.default_rng(0))
    chip = Failing(4, 1, FAILURES[name], sweeps=int(share * (10**6 - whole._left)))
    with pytest.raises(CalibrationError, match="no detector sees light in 'discovery"):
        find_channels(chip, NOISE, np.random.default_rng(0))


def test_channels_that_all_do_nothing_are_no_finding():
    chip = FaultyMesh(4, 1)
    chip.acts_on[:] = NO_PHASE
    with pytest.raises(CalibrationError, match="no reading follows any of the 12 channels"):
        find_channels(chip, NOISE, np.random.default_rng(0))


@pytest.mark.parametrize("value", [0.3, 0.0, np.inf, np.nan])
def test_one_detector_that_always_reads_the_same_is_dead(value):
    def change(readings):
        readings[:, 1] = value
        return readings

    chip = Failing(6, 1, change)
    found = judge(chip.layout, find_channels(chip, NOISE, np.random.default_rng(0)))
    assert [v.state for v in found.detectors] == ["ok", "dead", "ok", "ok", "ok", "ok"]
    assert {v.state for v in found.heaters} == {"ok"}


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_single_invalid_readings_tell_nothing_of_wires(value):
    def change(readings):
        readings[0, 0] = value
        return readings

    chip = Failing(4, 1, change)
    found = judge(chip.layout, find_channels(chip, NOISE, np.random.default_rng(0)))
    assert {v.state for v in found.heaters} == {"ok"}
    start = find_start(Failing(4, 1, change), np.random.default_rng(0), NOISE, lambda *told: None)
    assert all(verdict.good for verdict in start.verdicts)


@pytest.mark.parametrize("after_s", [0.0, 0.02])
def test_a_laser_without_light_is_told(after_s):
    with mesh() as (bench, watch):
        watch.faults.inject_on_chip(PowerDrop(1e-9), after_s=after_s)
        with pytest.raises(CalibrationError, match="no detector sees light"):
            discover(bench)
        assert not watch.volts().any()


def test_an_input_without_light_is_a_complaint_and_no_end():
    with mesh() as (bench, _):
        choose, ports = bench.light_port, []

        def light_port(port):
            ports.append(port)
            choose(None if port == 0 else port)

        bench.light_port = light_port
        found = discover_electrical(bench)
        assert ports == [0, 1]
        assert found.complaints == ("input port 0: no detector sees its light; check its fibre and the switch",)
        assert np.isfinite(found.relative_noise).any()


def spoiled(bench, spoil):
    """Let ``spoil`` mark readings of a bench as invalid: it gets their number, powers and validity."""
    read, count = bench.read_detectors, [0]

    def reading():
        real = read()
        valid = real.valid.copy()
        spoil(count[0], real.power_w, valid)
        count[0] += 1
        return replace(real, power_w=np.where(valid, real.power_w, np.nan), valid=valid)

    bench.read_detectors = reading


def single(count, power_w, valid):
    valid[:] &= count != 3


def scattered(count, power_w, valid):
    valid[count % len(valid)] = False


def one_in_the_dark(count, power_w, valid):
    valid[1] &= count >= 20


@pytest.mark.parametrize("spoil", [single, scattered, one_in_the_dark])
def test_noise_is_known_although_readings_are_invalid(spoil):
    with mesh() as (bench, _):
        clean = discover_electrical(bench)
    with mesh() as (bench, _):
        spoiled(bench, spoil)
        found = discover_electrical(bench)
    want, got = noise_of_readings(clean), noise_of_readings(found)
    assert got.relative == pytest.approx(want.relative, rel=0.3)
    assert got.floor_w == pytest.approx(want.floor_w, rel=0.5)
    np.testing.assert_allclose(found.dark_w, clean.dark_w, atol=3.0 * want.floor_w)
    assert found.complaints == clean.complaints == ()


@pytest.mark.parametrize("valid_ones", [0, 1])
def test_detectors_without_valid_dark_readings_are_refused(valid_ones):
    def spoil(count, power_w, valid):
        valid[:] &= count < valid_ones

    with mesh() as (bench, watch):
        spoiled(bench, spoil)
        with pytest.raises(CalibrationError, match="no detector gives 2 valid readings out of 20 without light"):
            discover(bench)
        assert not watch.most_a.any()


def test_settling_is_seen_between_invalid_readings():
    time = np.arange(1, 81) * 0.1
    readings = (1 + 0.2 * np.exp(-time / 0.7))[:, None].repeat(2, axis=1)
    readings[::7, 0], readings[::2, 1], readings[1::4, 1] = np.nan, np.nan, np.nan
    found = fit_settling(time, readings, np.array([1e-4, 1e-4]), 0.5)
    assert found.time_constant_s[0] == pytest.approx(0.7, rel=0.05)
    assert np.isnan(found.time_constant_s[1])


STUCK = "\nmesh:\n  stuck: {mzi_1_1: {phi_rad: 1.0}, mzi_2_0: {theta_rad: 0.5}}\n"


@pytest.mark.parametrize("wired", [True, False])
def test_stuck_phases_are_not_driven_and_nothing_is_said_of_their_heaters(folder, wired):
    path = folder / "chip.yaml"
    lines = path.read_text().splitlines()
    stuck = ("mzi_1_1_phi", "mzi_2_0_theta")
    kept = [line for line in lines if wired or not line.strip().startswith(stuck)]
    path.write_text("\n".join(kept) + STUCK)
    before = path.read_text()
    with Bench.open(folder, simulate=True, seed=1) as bench:
        places = [bench.layout.heater_index[name] for name in stuck]
        move, highest = bench.set_voltages, np.zeros(12)

        def watched(voltages):
            np.maximum(highest, voltages, out=highest)
            move(voltages)

        bench.set_voltages = watched
        result = discover(bench)
        assert highest[places].tolist() == [0.0, 0.0]
        assert (np.delete(highest, places) > 0.0).all()
    states = {v.name: (v.state, v.driven_by) for v in result.heaters}
    assert {states.pop(name) for name in stuck} == {("stuck", None)}
    assert {state for state, _ in states.values()} == {"ok"}
    assert "inf ohm" not in result.summary
    assert "10 of 12 phases can be moved" in result.summary
    proposal = propose_chip_file(folder, result)
    assert (proposal.text, proposal.diff) == (before, "")


def test_the_picture_shows_every_state_that_a_heater_can_have(tmp_path):
    chip, heaters = FaultyMesh(4, 1), 12
    state = ["ok", "ok", "open", "short", "short", "stuck", *["ok"] * 6]
    ohm = np.array([1e3, 1e3, np.inf, 20.0, 0.0, np.nan, *[1e3] * 6])
    ones, nothing = np.ones(4), np.zeros(4)
    electrical = ElectricalFindings(ohm, tuple(state), nothing, ones, ones, Settling(nothing, nothing), ())
    channel = np.array([1, 0, -1, -1, -1, -1, -1, -1, 8, 9, 10, 11])
    undecided, acts = np.arange(heaters) == 8, np.arange(heaters) != 6
    found = ChannelMap(
        channel, undecided, acts, np.arange(4), nothing > 0, np.zeros(6), np.ones(12), np.ones(12), np.ones(12), 0.0, 0
    )
    result = judge(chip.layout, found, electrical)
    states = {verdict.state for verdict in result.heaters}
    assert states == set(get_args(HeaterState))
    figure = plot_discovery(result)
    figure.savefig(tmp_path / "discovery.png")
    shown = {text.get_text() for text in figure.axes[0].get_legend().get_texts()}
    assert states <= shown
    named = {text.get_text() for text in figure.axes[1].texts}
    assert named == {chip.layout.heaters[k] for k in (2, 3, 4)}
    assert "below 1 ohm" in result.summary


def test_a_dead_detector_is_no_lack_of_light():
    with mesh() as (bench, watch):
        watch.faults.inject_on_chip(DeadDetector("rx_2"))
        result = discover(bench)
        assert [v.state for v in result.detectors] == ["ok", "ok", "dead", "ok"]


class Untouched(FaultyMesh):
    """A chip that must not be measured."""

    def measure(self, stage, power_w, lit):
        raise AssertionError(f"{stage} was measured")


@pytest.mark.parametrize(
    "unusable",
    [
        np.zeros(5, dtype=bool), np.zeros((12, 1), dtype=bool), np.bool_(False), np.zeros(12, dtype=int), np.zeros(12),
        [0] * 12, [False] * 11, ["a"] * 12, [[False], []], {}, "none", np.ones(12, dtype=bool), [True] * 12,
        np.ma.masked_array(np.zeros(12, dtype=bool), mask=np.arange(12) == 3),
    ],
)  # fmt: skip
def test_what_is_no_choice_of_channels_is_refused_before_a_reading(unusable):
    with pytest.raises(CalibrationError, match="unusable"):
        find_channels(Untouched(4, 1), NOISE, np.random.default_rng(0), unusable)


@pytest.mark.parametrize("make", [np.array, list, tuple])
def test_a_choice_of_channels_may_be_any_sequence_of_booleans(make):
    chip = FaultyMesh(4, 1)
    found = find_channels(chip, NOISE, np.random.default_rng(0), make([False] * 7 + [True] + [False] * 4))
    assert found.channel.tolist() == [*range(7), -1, *range(8, 12)]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("max_power_w", np.full(5, 0.06), "max_power_w has shape"),
        ("max_power_w", np.full(12, np.nan), "max_power_w. of heater 0 is nan"),
        ("max_total_power_w", 0.0, "max_total_power_w must be above 0 W"),
        ("nominal_efficiency", np.zeros(12), "nominal efficiency of heater 0"),
    ],
)
def test_limits_of_no_chip_are_refused_before_a_reading(name, value, said):
    chip = Untouched(4, 1)
    setattr(chip, name, value)
    with pytest.raises(CalibrationError, match=said):
        find_channels(chip, NOISE, np.random.default_rng(0))
