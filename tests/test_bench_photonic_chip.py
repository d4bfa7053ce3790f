"""The chip as a QCoDeS instrument, on instruments without a wire."""

import json

import bench_fakes
import numpy as np
import pytest
from bench_fakes import JOURNAL, SETTINGS, calls, write_fake_folder
from qcodes.dataset import LinSweep, dond, initialise_or_create_database_at, load_or_create_experiment
from qcodes.instrument import Instrument
from qcodes.station import Station

from optinc_hw.bench import Bench, PhotonicChip
from optinc_hw.errors import ConfigurationError, InstrumentError, LimitError


@pytest.fixture
def folder(tmp_path):
    bench_fakes.reset()
    return write_fake_folder(tmp_path / "bench", 4)


@pytest.fixture
def chip(folder):
    with Bench.open(folder) as bench:
        chip = PhotonicChip("chip", bench=bench)
        yield chip
        chip.close()


def test_voltage_and_power_of_a_heater(chip):
    chip.mzi_0_0_theta.voltage(6.0)
    assert chip.bench.voltages[chip.bench.layout.heater_index["mzi_0_0_theta"]] == 6.0
    assert chip.mzi_0_0_theta.power() == pytest.approx(36.0 / 1200.0)
    chip.heaters[0].power(0.03)
    assert chip.in_0_theta.voltage() == pytest.approx(6.0)
    assert len(chip.heaters) == len(chip.bench.layout.heaters)


def test_limits_hold_through_the_instrument(chip):
    with pytest.raises(ValueError, match="between"):
        chip.lo.voltage(10.5)
    with pytest.raises(LimitError, match="heater lo: power"):
        chip.lo.voltage(9.5)
    assert chip.lo.voltage() == 0.0


def test_powers_flag_invalid_readings(chip):
    powers = chip.powers()
    assert powers.shape == (8,)
    assert np.flatnonzero(np.isnan(powers)).tolist() == [1, 5]
    chip.light(True)
    assert calls("laser", "light") == [("laser", "light", True)]


def test_dond_over_a_heater_stores_all_detectors(chip, tmp_path):
    initialise_or_create_database_at(str(tmp_path / "data.db"))
    experiment = load_or_create_experiment("test", "sample")
    dataset, _, _ = dond(
        LinSweep(chip.in_0_theta.voltage, 0.0, 2.0, 3),
        chip.powers,
        do_plot=False,
        show_progress=False,
        exp=experiment,
    )
    data = dataset.get_parameter_data()["chip_powers"]
    assert data["chip_powers"].shape == (3, 8)
    np.testing.assert_array_equal(data["chip_in_0_theta_voltage"][:, 0], [0.0, 1.0, 2.0])
    np.testing.assert_array_equal(data["chip_port_index"][0], np.arange(8))
    assert np.isnan(data["chip_powers"][0, 1])
    dataset.conn.close()


@pytest.mark.parametrize("update", [True, False, None, "All", "Only_invalid", "Never"])
def test_the_snapshot_is_plain_json_and_asks_no_instrument(chip, update):
    chip.in_0_phi.voltage(1.5)
    JOURNAL.clear()
    snapshot = json.loads(json.dumps(chip.snapshot(update=update), allow_nan=False))
    assert snapshot["submodules"]["in_0_phi"]["parameters"]["voltage"]["value"] == 1.5
    assert JOURNAL == []
    chip.print_readable_snapshot()


def test_it_loads_from_a_station_file_and_closing_it_makes_the_chip_safe(folder, tmp_path):
    path = tmp_path / "session.yaml"
    path.write_text(
        f"instruments:\n  chip:\n    type: optinc_hw.bench.PhotonicChip\n    init:\n      folder: '{folder}'\n"
    )
    station = Station(config_file=str(path), default=False, use_monitor=False)
    chip = station.load_instrument("chip")
    assert chip.get_idn()["model"] == "optinc_4"
    chip.in_0_phi.voltage(1.5)
    station.close_all_registered_instruments()
    assert [e[0] for e in calls(what="make_safe")] == ["heaters_0"]


def test_closing_it_frees_its_name_also_when_an_instrument_is_dead(folder):
    chip = PhotonicChip("chip", folder=folder)
    chip.in_0_phi.voltage(1.5)
    SETTINGS["dead"] = ("heaters_0",)
    with pytest.raises(InstrumentError, match="heaters_0: link is dead"):
        chip.close()
    assert not Instrument.exist("chip")


def test_closing_it_leaves_a_borrowed_bench_open(chip):
    bench = chip.bench
    chip.in_0_phi.voltage(1.5)
    chip.close()
    assert calls(what="make_safe") == []
    bench.set_voltages(bench.voltages)


def test_exactly_one_of_bench_and_folder(folder):
    with pytest.raises(ConfigurationError, match="got neither of bench and folder"):
        PhotonicChip("chip")
    with Bench.open(folder) as bench, pytest.raises(ConfigurationError, match="got both of bench and folder"):
        PhotonicChip("chip", bench=bench, folder=folder)


def test_all_instruments_closed_by_qcodes_before_the_bench(folder):
    with Bench.open(folder) as bench:
        bench.set_voltages(np.ones(len(bench.layout.heaters)))
        Instrument.close_all()
    assert len(calls(what="close")) == 4
