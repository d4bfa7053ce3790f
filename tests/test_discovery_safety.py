"""Discovery of chips with shorts and bad links: no heater beyond its limits, and a dark chip whatever happens."""

import numpy as np
import pytest
from discovery_benches import mesh, watched
from safety_benches import FAMILIES, write_folder

from calibration._discovery_electrical import discover_electrical
from calibration._discovery_file import propose_chip_file
from calibration._discovery_resistances import read_resistances
from calibration._discovery_run import discover
from optinc_hw.bench import Bench
from optinc_hw.errors import CalibrationError, InstrumentError, LinkError
from simulated_instruments.faults import Dropped, LostReply, ShortedHeater

SOURCES_LIMIT_A = 0.024
"""The current at which the sources of the default bench stop by themselves."""


@pytest.mark.parametrize("ohm", [1.0, 2.0, 5.0, 20.0, 50.0, 100.0])
def test_a_short_is_found_and_never_takes_more_than_its_limits(ohm):
    with mesh() as (bench, watch):
        watch.faults.inject_on_chip(ShortedHeater("mzi_1_1_theta", ohm))
        found = discover_electrical(bench)
        k = bench.layout.heater_index["mzi_1_1_theta"]
        assert found.state == ("ok",) * k + ("short",) + ("ok",) * (11 - k)
        assert found.resistance_ohm[k] == pytest.approx(ohm, rel=0.05)
        assert watch.most_a[k] <= bench.max_current[k]
        assert watch.most_a[k] ** 2 * ohm <= bench.max_power[k]
        assert found.resistance_ohm[k + 1] == pytest.approx(1200.0, rel=0.1)


@pytest.mark.parametrize("ohm", [0.01, 0.3])
def test_a_dead_short_is_found_by_the_refusal_of_its_source(ohm):
    with mesh() as (bench, watch):
        watch.faults.inject_on_chip(ShortedHeater("mzi_1_1_theta", ohm))
        result = discover(bench)
        k = bench.layout.heater_index["mzi_1_1_theta"]
        assert [v.state for v in result.heaters] == ["ok"] * k + ["short"] + ["ok"] * (11 - k)
        assert "mzi_1_1_theta: short (below 1 ohm)" in result.summary
        assert watch.most_a[k] <= SOURCES_LIMIT_A
        assert not watch.volts().any()
        assert "# discovery: short" in propose_chip_file(bench.folder, result).text


def test_several_shorts_are_not_taken_for_what_is_usual():
    with mesh() as (bench, watch):
        shorted = bench.layout.heaters[2:10]
        for name, ohm in zip(shorted, (2.0, 3.0, 5.0, 0.2, 10.0, 20.0, 4.0, 7.0), strict=True):
            watch.faults.inject_on_chip(ShortedHeater(name, ohm))
        state = discover_electrical(bench).state
        assert {name for name, one in zip(bench.layout.heaters, state, strict=True) if one == "short"} == set(shorted)
        assert state[0] == state[1] == state[10] == state[11] == "ok"


@pytest.mark.parametrize("ohm", [200.0, 300.0, 500.0])
def test_a_heater_of_low_resistance_is_used_within_its_current_limit(ohm):
    with mesh() as (bench, watch):
        watch.faults.inject_on_chip(ShortedHeater("mzi_1_1_theta", ohm))
        result = discover(bench)
        assert {v.state for v in result.heaters} == {"ok"}
        assert f"mzi_1_1_theta: {ohm:.3g}" in result.summary
        assert (watch.most_a <= bench.max_current).all()


@pytest.mark.parametrize("ohm", [1.0, 20.0])
@pytest.mark.parametrize("family", FAMILIES)
def test_shorts_on_all_kinds_of_sources(tmp_path, family, ohm):
    folder = write_folder(tmp_path / "bench", family)
    with watched(lambda: Bench.open(folder, simulate=True)) as (bench, watch):
        watch.faults.inject_on_chip(ShortedHeater(bench.layout.heaters[1], ohm))
        read = read_resistances(bench, 0.3 * bench.max_voltage)
        assert watch.most_a[1] <= bench.max_current[1]
        assert not watch.volts().any()
        resistance = read.voltage_v / np.where(read.refused, np.inf, read.current_a)
        assert resistance[1] < 120.0
        np.testing.assert_allclose(np.delete(resistance, 1), 1200.0, rtol=0.1)


def test_a_chip_with_modulators_is_refused_before_anything_moves():
    with watched(lambda: Bench.simulated(2, 1)) as (bench, watch):
        with pytest.raises(CalibrationError, match=r"bare meshes only.*nothing was driven"):
            discover(bench)
        assert not watch.most_a.any()
        assert not watch.chip._light.at(bench.clock.now() + 10.0)[0]


STAGES = ["electrical", "channels"]


def interrupted(bench, stage, happen, monkeypatch):
    """Discover, with something happening in a stage."""
    if stage == "channels":
        discover(bench, progress=lambda *told: happen())
    else:
        reads = []
        read = bench.read_detectors

        def reading():
            reads.append(1)
            if len(reads) == 60:
                happen()
            return read()

        monkeypatch.setattr(bench, "read_detectors", reading)
        discover(bench)


@pytest.mark.parametrize("stage", STAGES)
def test_an_interruption_stays_one_although_the_laser_cannot_be_switched_off(stage, monkeypatch):
    with mesh() as (bench, watch):
        light, gone = bench.light, []

        def switch(on):
            if gone and not on:
                raise LinkError("laser: link is dead")
            light(on)

        def interrupt():
            gone.append(1)
            raise KeyboardInterrupt

        monkeypatch.setattr(bench, "light", switch)
        with pytest.raises(KeyboardInterrupt) as caught:
            interrupted(bench, stage, interrupt, monkeypatch)
        assert any("could not be left dark: laser: link is dead" in note for note in caught.value.__notes__)
        assert not watch.volts().any()
        gone.clear()


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("fault", [Dropped(), LostReply()])
def test_heaters_that_cannot_be_switched_off_are_told(stage, fault, monkeypatch):
    with mesh() as (bench, watch):
        bench.station.components["heaters_0"].timeout(0.3)
        with pytest.raises(InstrumentError) as caught:
            interrupted(bench, stage, lambda: watch.faults.inject("heaters_0", fault, count=None), monkeypatch)
        assert watch.volts().any() == any("could not be left dark" in note for note in caught.value.__notes__)
        watch.faults.clear()


@pytest.mark.parametrize("stage", STAGES)
def test_an_error_of_the_callers_leaves_the_chip_dark(stage, monkeypatch):
    def fail():
        raise ValueError("bar")

    with mesh() as (bench, watch):
        with pytest.raises(ValueError, match="bar"):
            interrupted(bench, stage, fail, monkeypatch)
        assert not watch.volts().any()
        assert not watch.chip._light.at(bench.clock.now() + 10.0)[0]
