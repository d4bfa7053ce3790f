"""Chips whose light enters one port at a time: chip.yaml, the switch before the chip, and readings of it."""

import logging
import threading
from dataclasses import replace

import bench_fakes
import numpy as np
import pytest
from bench_fakes import SETTINGS, calls, write_fake_folder
from test_calibration_record import record_of
from typer.testing import CliRunner

from optinc_hw.bench import (
    Bench,
    BenchTileRunner,
    PhaseDrive,
    PhotonicChip,
    TwinTileRunner,
    check_bench,
    measure_transfer_matrix,
)
from optinc_hw.cli import app
from optinc_hw.errors import CalibrationError, ConfigurationError, InstrumentError, LimitError
from optinc_hw.photonics import TwinParameters

PORTS = 4
HEATERS = PORTS * (PORTS - 1)


@pytest.fixture
def folder(tmp_path):
    bench_fakes.reset()
    return write_fake_folder(tmp_path / "bench", PORTS, "mesh")


def rewrite(folder, old, new, file="chip.yaml"):
    path = folder / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def inputs(folder, text):
    """Replace the section ``inputs`` of the chip file, which is its last one."""
    path = folder / "chip.yaml"
    path.write_text(path.read_text().split("\ninputs:")[0] + "\n" + text + "\n")


def way(port, channel, output=0, switch="input_switch"):
    return f"  {port}: {{switch: {{instrument: {switch}, input: {channel}, output: {output}}}}}"


def test_a_bare_mesh_has_its_mesh_heaters_and_one_detector_an_output(folder):
    with Bench.open(folder) as bench:
        assert len(bench.layout.heaters) == HEATERS
        assert bench.layout.detectors == ("rx_0", "rx_1", "rx_2", "rx_3")
        assert bench.read_detectors().power_w.shape == (PORTS,)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("inputs: 3", "chip.yaml: inputs: 3: is neither modulators nor a mapping; give modulators, or a mapping from"),
        ("inputs: {}", "chip.yaml: inputs: no port can be lit; add an entry for each port, or write modulators"),
        ("inputs: {a: {}}", "inputs.a.[key]: 'a' is not allowed: input should be a valid integer; give modulators, or"),
        ("inputs: {4: {}}", "inputs.4: a chip of 4 ports has no input port 4; give a port from 0 to 3"),
        ("inputs: {-1: {}}", "inputs.-1.[key]: -1 is not allowed"),
        ("inputs: {0: {swich: 1}}", "inputs.0.swich: unknown key (its value is 1); did you mean 'switch'?"),
        (
            "inputs: {0: {switch: {input: 1}}}",
            "inputs.0.switch.instrument: this key is missing; add it: the name of a switch in station.yaml",
        ),
        ("inputs:\n" + way(0, -1), "inputs.0.switch.input: -1 is not allowed"),
        ("inputs:\n  0: {}\n" + way(1, 1), "inputs.0: the laser cannot be fixed to this port and reach others too"),
        ("inputs: {0: {}, 1: {}}", "inputs.1: the laser cannot be fixed to this port and reach others too"),
        (f"inputs:\n{way(0, 2)}\n{way(1, 2)}", "inputs.1.switch: input_switch[2 -> 0] is already used by inputs.0"),
        (f"inputs:\n{way(0, 0)}\n{way(1, 1, 1)}", "have no port of a switch in common, on which the laser could be"),
        ("inputs:\n" + way(0, 0, switch="switch"), "station.yaml has no instrument 'switch'; did you mean 'input_swit"),
        (
            "inputs:\n" + way(0, 0, switch="meter_0"),
            "cannot serve as input switch: it has no connect, disconnect, conn",
        ),
    ],
)
def test_faults_of_the_inputs_are_named_with_a_remedy(folder, text, message):
    inputs(folder, text)
    with pytest.raises(ConfigurationError) as caught:
        check_bench(folder)
    assert message in str(caught.value)


def test_a_detector_may_not_need_the_way_of_the_light(folder):
    rewrite(
        folder,
        "{instrument: meter_0, port: 0}",
        "{instrument: meter_0, port: 0, switch: {instrument: input_switch, input: 9, output: 0}}",
    )
    with pytest.raises(ConfigurationError, match=r"needs a port of the switch that detectors\.rx_0 needs too"):
        check_bench(folder)


def test_names_of_a_chip_with_modulators_are_unknown_to_a_bare_mesh(folder):
    rewrite(folder, "  mzi_0_0_theta:", "  in_0_theta:")
    with pytest.raises(
        ConfigurationError, match="a chip of 4 ports with inputs: ports, receivers: power has no heater"
    ):
        check_bench(folder)


def test_a_switch_that_is_too_small_is_found_when_connecting(folder):
    rewrite(folder, "channels: 4", "channels: 3", "station.yaml")
    with pytest.raises(InstrumentError, match=r"'input_switch' has 3 inputs, but chip\.yaml uses input 3"):
        Bench.open(folder)


def test_the_report_shows_which_ports_can_be_lit(folder):
    inputs(folder, f"inputs:\n{way(0, 1)}\n{way(3, 2)}")
    report = check_bench(folder)
    assert [(row.port, row.switch) for row in report.inputs] == [
        (0, "input_switch[1 -> 0]"),
        (3, "input_switch[2 -> 0]"),
    ]
    assert (report.receivers, {row.name: row.used for row in report.instruments}["input_switch"]) == ("power", 2)
    shown = CliRunner().invoke(app, ["check", str(folder)]).stdout
    assert "one port at a time" in shown
    assert "input_switch[2 -> 0]" in shown


def test_one_port_is_lit_and_read_back(folder):
    with Bench.open(folder) as bench:
        assert (bench.lit_port, bench.port_changes) == (None, 0)
        bench.light_port(2)
        assert calls("input_switch", "connect") == [("input_switch", "connect", 2, 0)]
        assert (bench.lit_port, bench.port_changes) == (2, 1)
        bench.light_port(2)
        assert len(calls("input_switch", "connect")) == 1
        assert bench.port_changes == 1
        bench.light_port(0)
        assert SETTINGS["connected"] == {0: 0}
        bench.light_port(None)
        assert SETTINGS["connected"] == {}
        assert (bench.lit_port, bench.port_changes) == (None, 3)


def test_opening_asks_how_the_switch_stands_and_moves_nothing(folder):
    SETTINGS["connected"] = {3: 0}
    with Bench.open(folder) as bench:
        assert bench.lit_port == 3
    assert calls("input_switch", "connect") == calls("input_switch", "disconnect") == []


def test_a_port_that_was_chosen_by_others_is_dropped_too(folder):
    with Bench.open(folder) as bench:
        SETTINGS["connected"] = {1: 0}  # somebody else at the switch
        bench.light_port(None)
        assert SETTINGS["connected"] == {}


@pytest.mark.parametrize(
    ("port", "error", "message"),
    [
        (4, LimitError, "there is no input port 4; nothing was switched; give a port from 0 to 3, or None for no port"),
        (-1, LimitError, "there is no input port -1"),
        (True, LimitError, "there is no input port True"),
        (1.0, LimitError, "there is no input port 1.0"),
        (1, ConfigurationError, "there is no way of the light to port 1; ports that can be lit are 0, 3; nothing was"),
    ],
)
def test_ports_that_cannot_be_lit_are_refused(folder, port, error, message):
    inputs(folder, f"inputs:\n{way(0, 1)}\n{way(3, 2)}")
    with Bench.open(folder) as bench:
        bench.light_port(3)
        with pytest.raises(error, match=message):
            bench.light_port(port)
        assert bench.lit_port == 3


def test_a_chip_with_modulators_has_no_single_port(tmp_path):
    bench_fakes.reset()
    with Bench.open(write_fake_folder(tmp_path / "bench", 2)) as bench:
        assert bench.lit_port is None
        for action in (lambda: bench.light_port(0), lambda: bench.measure(np.zeros(11), port=0)):
            with pytest.raises(ConfigurationError, match="this chip has input modulators, which all get light at once"):
                action()
        assert bench.measure(np.zeros(11)).power_w.shape == (4,)


def test_a_laser_may_be_fixed_to_the_one_port(folder):
    inputs(folder, "inputs: {1: {}}")
    with Bench.open(folder) as bench:
        assert bench.lit_port == 1
        bench.light_port(1)
        with pytest.raises(ConfigurationError, match=r"fixed to port 1.*bench\.light\(False\)"):
            bench.light_port(None)
        assert bench.measure(np.zeros(HEATERS), port=1).power_w.shape == (PORTS,)
    assert calls("input_switch") == []


def test_a_switch_that_does_not_let_go_is_reported(folder):
    with Bench.open(folder) as bench:
        bench.light_port(1)
        SETTINGS["jammed"] = True
        with pytest.raises(InstrumentError, match=r"light still passes input_switch\[1 -> 0\] although"):
            bench.light_port(None)
        assert bench.lit_port is None


def test_a_dead_switch_leaves_the_lit_port_unknown(folder):
    with Bench.open(folder) as bench:
        bench.light_port(1)
        SETTINGS["dead"] = ("input_switch",)
        with pytest.raises(InstrumentError):
            bench.light_port(2)
        assert bench.lit_port is None
        SETTINGS["dead"] = ()
        bench.light_port(2)
        assert bench.lit_port == 2


def test_a_reading_never_takes_a_restarted_switch_for_light(folder, caplog):
    with Bench.open(folder) as bench, caplog.at_level(logging.WARNING):
        bench.measure(np.zeros(HEATERS), port=1)
        SETTINGS["connected"] = {}  # it has restarted
        bench.measure(np.zeros(HEATERS), port=1)
        assert SETTINGS["connected"] == {1: 0}
    assert "connections do not stand any more (1 to 0)" in caplog.text


def test_a_measurement_sets_waits_and_reads_in_that_order(folder):
    with Bench.open(folder) as bench:
        bench.read_detectors()
        before = len(bench_fakes.JOURNAL)
        slept = bench.clock.now()
        bench.measure(np.full(HEATERS, 1.0), port=3)
        assert bench.clock.now() - slept >= bench.description.chip.settling.settle_s
        moved = [entry[:2] for entry in bench_fakes.JOURNAL[before:]]
        assert moved[:2] == [("input_switch", "connect"), ("heaters_0", "set_voltages")]
        assert bench.readings == 2
        with pytest.raises(LimitError, match="nothing was moved"):
            bench.measure(np.full(HEATERS, 99.0))


def test_the_lit_port_is_a_parameter_of_the_qcodes_instrument(folder):
    with Bench.open(folder) as bench:
        chip = PhotonicChip("chip", bench=bench)
        assert chip.lit_port() == -1
        chip.lit_port(2)
        assert (bench.lit_port, chip.lit_port()) == (2, 2)
        chip.lit_port(-1)
        assert bench.lit_port is None
        with pytest.raises(ValueError, match="-1 and 3"):
            chip.lit_port(4)
        assert chip.powers().shape == (PORTS,)
        assert not hasattr(chip, "transfer_matrix")
        chip.close()


def test_a_bare_mesh_has_no_complex_matrix_to_measure(folder):
    with Bench.open(folder) as bench, pytest.raises(ConfigurationError, match="with modulators and homodyne receivers"):
        measure_transfer_matrix(bench)
    assert calls("heaters_0", "set_voltages") == []


def test_a_bare_mesh_runs_no_tiles(folder):
    twin = TwinParameters.nominal(PORTS, input_amplitude=0.03, lo_amplitude=0.0, inputs="ports", receivers="power")
    record = record_of(twin)
    with Bench.open(folder) as bench:
        bench.save_record(record)
        for make in (lambda: BenchTileRunner(bench), lambda: TwinTileRunner(record)):
            with pytest.raises(ConfigurationError, match="inputs: ports and receivers: power; tiles need modulators"):
                make()


def test_a_record_of_another_kind_of_chip_is_refused(folder):
    other = TwinParameters.nominal(PORTS, input_amplitude=0.03, lo_amplitude=0.03, receivers="power")
    with (
        Bench.open(folder) as bench,
        pytest.raises(CalibrationError, match="inputs: modulators, receivers: power, but"),
    ):
        bench.save_record(record_of(other))


@pytest.mark.parametrize("curved", [False, True])
def test_a_phase_is_met_also_where_heat_acts_with_its_square(folder, curved):
    rng = np.random.default_rng(3)
    nominal = TwinParameters.nominal(PORTS, input_amplitude=0.03, lo_amplitude=0.0, inputs="ports", receivers="power")
    crosstalk = np.eye(HEATERS) + 0.01 * rng.standard_normal((HEATERS, HEATERS))
    np.fill_diagonal(crosstalk, 1.0)
    twin = replace(nominal, crosstalk=crosstalk, second_order=np.array([2e-3, 3e-3]) * curved)
    with Bench.open(folder) as bench:
        bench.save_record(record_of(twin))
        drive = PhaseDrive(bench)
        bench.set_voltages(np.full(HEATERS, 4.0))
        before = drive.phases()
        drive.set({3: before[3] + 1.0})
        moved = drive.phases() - before
    assert moved[3] == pytest.approx(1.0, abs=1e-7)
    np.testing.assert_allclose(np.delete(moved, 3), 0.0, atol=1e-7)


def test_threads_never_read_one_anothers_setting(folder, monkeypatch):
    seen = []

    def reading(self):
        seen.append((float(bench.voltages[0]), next(iter(SETTINGS["connected"]))))
        return bench_fakes._Reading(np.zeros(8), np.ones(8, dtype=np.bool_))

    monkeypatch.setattr(bench_fakes.FakeMeter, "read_powers", reading)

    def work(port):
        for _ in range(20):
            bench.measure(np.full(HEATERS, float(port)), port=port)

    with Bench.open(folder) as bench:
        threads = [threading.Thread(target=work, args=(port,)) for port in (1, 2, 3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(seen) == 60
    assert all(volts == port for volts, port in seen)
