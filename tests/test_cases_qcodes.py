"""Public problem reports about QCoDeS instruments (rows Q-* of the list of cases), tried on ours.

Q-11 (a second monitor) does not apply: nothing here starts a monitor. Q-20 (two processes and one database): runs of
calibration go to files of their own, never into QCoDeS' database. Q-04 (delegates without a source) concerns classes of
QCoDeS itself; ours have no delegate parameters.
"""

import enum
import json
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from _recording_proxy import RecordingProxy
from driver_cases import CASES, opened, simulated
from qcodes.dataset import LinSweep, dond, initialise_or_create_database_at, load_or_create_experiment
from qcodes.instrument import Instrument
from qcodes.station import Station
from qcodes.utils import NumpyJSONEncoder

from drivers import QontrolQ8iv
from optinc_hw.bench import Bench, DetectorReading, PhotonicChip
from optinc_hw.errors import ConfigurationError, LinkError

Q8IV = next(case for case in CASES if case.id == "qontrol_q8iv")
ONE_OF_EACH_ROLE = list({case.role: case for case in CASES}.values())


class Colour(enum.Enum):
    RED = 1


@pytest.fixture
def chip():
    with Bench.simulated(ports=2) as bench:
        chip = PhotonicChip("chip", bench=bench)
        yield chip
        chip.close()


@pytest.mark.parametrize("case", ONE_OF_EACH_ROLE, ids=lambda case: case.id)
def test_q01_snapshots_survive_json_with_odd_metadata(case):
    odd = {
        "integer": np.int64(3),
        "number": np.float32(0.5),
        "array": np.arange(3),
        "complex": 1 + 2j,
        "nan": float("nan"),
        "path": Path("a/b"),
        "colour": Colour.RED,
    }
    with simulated(case) as (bench, _, clock), opened(case, bench.addresses["device"], clock) as device:
        device.metadata.update(odd)
        snapshot = device.snapshot(update=True)
        back = json.loads(json.dumps(snapshot, cls=NumpyJSONEncoder))
        assert back["metadata"]["integer"] == 3
        assert back["metadata"]["array"] == [0, 1, 2]
        assert back["metadata"]["complex"] == {"__dtype__": "complex", "re": 1.0, "im": 2.0}
        del snapshot["metadata"], back["metadata"]
        assert snapshot == back  # what is ours was plain JSON already


def test_q02_metadata_in_a_circle_is_an_error_and_not_an_endless_recursion():
    with simulated(Q8IV) as (bench, _, clock), opened(Q8IV, bench.addresses["device"], clock) as device:
        circle = {}
        circle["self"] = circle
        device.metadata["circle"] = circle
        with pytest.raises(ValueError, match="Circular"):
            json.dumps(device.snapshot(update=False), cls=NumpyJSONEncoder)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_q05_a_failed_constructor_leaves_no_name_behind(case):
    nowhere = "socket://127.0.0.1:1" if "socket://" in _address(case) else "TCPIP0::127.0.0.1::1::SOCKET"
    with pytest.raises(LinkError):
        case.driver("device", nowhere, **case.init)
    assert not Instrument.exist("device")
    with simulated(case) as (bench, _, clock), opened(case, bench.addresses["device"], clock) as device:
        assert device.get_idn()["vendor"]


def _address(case):
    with simulated(case) as (bench, _, _):
        return bench.addresses["device"]


def test_q07_a_name_that_is_taken_is_refused_and_never_changed():
    with simulated(Q8IV) as (bench, _, clock), opened(Q8IV, bench.addresses["device"], clock) as device:
        with pytest.raises(ConfigurationError, match="open already"):
            QontrolQ8iv("device", bench.addresses["device"], modules=2)
        station = Station(device)
        assert list(station.components) == ["device"]


@pytest.mark.parametrize("name", ["mzi-1", "1laser", "heater 3", "ch0.5", "", "a b"])
def test_q08_names_that_are_no_identifiers_are_refused_early(name):
    with pytest.raises(ConfigurationError, match="identifier"):
        QontrolQ8iv(name, "socket://127.0.0.1:1", modules=2)


def test_q10_loading_three_times_leaves_one_of_everything(tmp_path):
    with simulated(Q8IV) as (bench, _, _):
        path = tmp_path / "station.yaml"
        path.write_text(
            "instruments:\n  device:\n    type: drivers.QontrolQ8iv\n    enable_forced_reconnect: true\n"
            f"    address: '{bench.addresses['device']}'\n    init: {{modules: 2}}\n"
            "    parameters:\n      timeout: {monitor: true}\n"
        )
        station = Station(config_file=str(path), default=False)
        monitored = []
        for _ in range(3):
            station.load_instrument("device")
            monitored.append(len(station._monitor_parameters))
        assert monitored == [1, 1, 1]
        assert list(station.components) == ["device"]
        station.close_all_registered_instruments()


@contextmanager
def recorded(case):
    """The driver of a case on its simulated instrument, and the proxy between them."""
    with (
        simulated(case) as (bench, _, clock),
        RecordingProxy(bench.addresses["device"]) as proxy,
        opened(case, proxy.address, clock) as device,
    ):
        yield device, proxy


def exchanges(proxy, action):
    before = proxy.sent.count(b"\n")
    action()
    return proxy.sent.count(b"\n") - before


def test_q13_snapshots_read_exactly_what_their_flag_says():
    with recorded(Q8IV) as (device, proxy):
        device.snapshot(update=True)
        counts = {
            flag: exchanges(proxy, lambda flag=flag: device.snapshot(update=flag))
            for flag in (True, "All", None, "Only_invalid", False, "Never")
        }
    everything = counts[True]
    assert 0 < everything < 8
    assert counts == {True: everything, "All": everything, None: 0, "Only_invalid": 0, False: 0, "Never": 0}


def test_q14_adding_64_channels_to_a_station_takes_a_few_exchanges():
    case = Q8IV.__class__("q64", QontrolQ8iv, "heaters", 8, {"modules": 8})
    with recorded(case) as (device, proxy):
        assert len(device.channels) == 64
        assert exchanges(proxy, lambda: Station(device)) < 8


def test_q16_and_q17_arrays_that_share_a_run_keep_shape_axes_and_nan(chip, tmp_path, monkeypatch):
    initialise_or_create_database_at(str(tmp_path / "data.db"))
    experiment = load_or_create_experiment("test", "sample")
    matrix = np.array([[1 + 2j, 3], [4, 5j]])
    powers = np.array([1.0, np.nan, 3.0, 4.0])
    monkeypatch.setattr("optinc_hw.bench.photonic_chip.measure_transfer_matrix", lambda bench: matrix)
    reading = DetectorReading(np.nan_to_num(powers), np.isfinite(powers))
    monkeypatch.setattr(chip.bench, "read_detectors", lambda: reading)
    sweep = LinSweep(chip.lo.voltage, 0.0, 1.0, 3)
    dataset, _, _ = dond(sweep, chip.transfer_matrix, chip.powers, exp=experiment, do_plot=False)
    data = dataset.to_xarray_dataset()
    assert data["chip_powers"].dims == ("chip_lo_voltage", "chip_port_index")
    assert data["chip_powers"].values == pytest.approx(np.tile(powers, (3, 1)), nan_ok=True)
    assert data["chip_transfer_matrix"].dims == ("chip_lo_voltage", "chip_output_port", "chip_input_port")
    assert data["chip_transfer_matrix"].sel(chip_output_port=0.0, chip_input_port=1.0).values.tolist() == [3, 3, 3]
    path = tmp_path / "run.nc"
    data["chip_powers"].to_dataset(name="powers").to_netcdf(path, engine="h5netcdf")
    import xarray

    with xarray.open_dataset(path, engine="h5netcdf") as loaded:
        assert np.flatnonzero(np.isnan(loaded["powers"].values[0])).tolist() == [1]
    dataset.conn.close()


def test_q19_readable_snapshots_of_everything(chip, capsys):
    chip.print_readable_snapshot()
    for module in chip.submodules.values():
        if isinstance(module, Instrument) or hasattr(module, "print_readable_snapshot"):
            module.print_readable_snapshot()
    assert "mzi_0_0_theta" in capsys.readouterr().out
