"""Detectors that share a meter's port behind an optical switch, from chip.yaml to the light on the hidden chip."""

import re

import numpy as np
import pytest

from optinc_hw.bench import Bench, check_bench, write_bench_folder
from optinc_hw.bench._switching import plan_passes
from optinc_hw.bench.chip_file import DetectorEntry, SwitchEntry
from optinc_hw.bench.write import instrument_names
from optinc_hw.cli import app
from optinc_hw.errors import ConfigurationError, IdentityError

PORTS = 2
NAMES = ("rx_0_plus", "rx_1_plus", "rx_0_minus", "rx_1_minus")


def plain_folder(folder):
    write_bench_folder(folder, PORTS, {name: f"nowhere:{name}" for name in instrument_names(PORTS)})
    return folder


def switched_folder(folder, driver="DiConMemsSwitch", size="channels: 4", ways=None):
    """The default bench with all photodiodes on one port of one meter, behind a switch."""
    plain_folder(folder)
    station, chip = folder / "station.yaml", folder / "chip.yaml"
    text = station.read_text()
    text = re.sub(r"  meter_minus_0:\n(    .*\n)+", "", text).replace("ports: 8", "ports: 1")
    station.write_text(
        text + f"  switch:\n    type: drivers.{driver}\n    address: 'nowhere:switch'\n    init: {{{size}}}\n"
    )
    ways = dict(zip(NAMES, ((k, 0) for k in range(4)), strict=True)) if ways is None else ways
    head = chip.read_text().split("\ndetectors:\n")[0]
    lines = [
        f"  {name}: {{instrument: meter_plus_0, port: 0, switch: {{instrument: switch, input: {a}, output: {b}}}}}"
        for name, (a, b) in ways.items()
    ]
    chip.write_text("\n".join([head, "detectors:", *lines, ""]))
    return folder


@pytest.mark.parametrize(("driver", "size"), [("DiConMemsSwitch", "channels: 4"), ("PolatisOXC", "ports: 4")])
def test_readings_behind_a_switch_agree_with_those_of_a_meter_for_each(tmp_path, driver, size):
    powers = []
    for folder in (plain_folder(tmp_path / "plain"), switched_folder(tmp_path / "switched", driver, size)):
        with Bench.open(folder, simulate=True, seed=5) as bench:
            bench.set_voltages(np.linspace(1.0, 5.0, len(bench.layout.heaters)))
            bench.settle()
            bench.light(on=True)
            powers.append(np.mean([bench.read_detectors().power_w for _ in range(8)], axis=0))
            assert bench.readings == 8
    assert powers[1] == pytest.approx(powers[0], rel=5e-3, abs=1e-8)
    assert np.ptp(powers[0]) > 1e-5


def test_a_switch_is_only_moved_where_it_must(tmp_path):
    with Bench.open(switched_folder(tmp_path / "bench"), simulate=True) as bench:
        bench.read_detectors()
        before = bench.clock.now()
        bench.read_detectors()
        settle = bench.station.components["switch"].settle_time
        averaging = bench.description.chip.averaging_time_s
        assert bench.clock.now() - before == pytest.approx(4 * (settle + averaging), rel=0.05)


def test_wiring_is_shown_with_the_way_through_the_switch(tmp_path):
    report = check_bench(switched_folder(tmp_path / "bench"))
    assert [row.switch for row in report.detectors] == [f"switch[{k} -> 0]" for k in (0, 1, 2, 3)]
    rows = {row.name: row for row in report.instruments}
    assert (rows["switch"].role, rows["switch"].used, rows["meter_plus_0"].used) == ("switch", 4, 1)
    from typer.testing import CliRunner

    assert "switch[3 -> 0]" in CliRunner().invoke(app, ["check", str(tmp_path / "bench")]).stdout


@pytest.mark.parametrize(
    ("ways", "message"),
    [
        ({**dict(zip(NAMES, ((k, 0) for k in range(4)), strict=True)), "rx_1_minus": (0, 0)}, "already used by"),
        ({**dict(zip(NAMES, ((k, 0) for k in range(4)), strict=True)), "rx_1_minus": (3, 1)}, "already used by"),
    ],
)
def test_two_detectors_on_one_way_or_on_two_outputs_are_refused(tmp_path, ways, message):
    with pytest.raises(ConfigurationError, match=message):
        check_bench(switched_folder(tmp_path / "bench", ways=ways))


def test_a_switch_that_is_too_small_is_refused(tmp_path):
    folder = switched_folder(tmp_path / "bench", size="channels: 3")
    with pytest.raises((IdentityError, ConfigurationError), match="switch"):
        Bench.open(folder, simulate=True)


def test_a_meter_is_no_switch(tmp_path):
    folder = switched_folder(tmp_path / "bench", driver="KeysightN7745A", size="ports: 4")
    with pytest.raises(ConfigurationError, match="cannot serve as switch"):
        check_bench(folder)


def entry(port, way=None):
    switch = None if way is None else SwitchEntry(instrument="s", input=way[0], output=way[1])
    return DetectorEntry(instrument="meter", port=port, switch=switch)


@pytest.mark.parametrize(
    ("entries", "passes"),
    [
        ([entry(0), entry(1)], [[0, 1]]),
        ([entry(0, (0, 0)), entry(0, (1, 0)), entry(1)], [[0, 2], [1]]),
        ([entry(0, (0, 0)), entry(1, (1, 1)), entry(0, (2, 0)), entry(1, (3, 1))], [[0, 1], [2, 3]]),
        ([entry(0, (0, 0)), entry(1, (0, 1))], [[0], [1]]),
    ],
)
def test_detectors_are_read_together_where_nothing_collides(entries, passes):
    planned = plan_passes(entries)
    assert [sorted(k for found in one.elements.values() for k in found.tolist()) for one in planned] == passes
