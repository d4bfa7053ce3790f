"""station.yaml and chip.yaml: what is accepted, and what each refusal says."""

import contextlib
import re

import pytest
from bench_fakes import write_fake_folder
from hypothesis import given, settings
from hypothesis import strategies as st
from qcodes.station import Station

from optinc_hw.bench import check_bench, instrument_names, read_description, write_bench_folder
from optinc_hw.errors import ConfigurationError, OptincError
from optinc_hw.photonics.layout import ChipLayout


@pytest.fixture
def folder(tmp_path):
    return write_fake_folder(tmp_path / "bench")


def replace(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


@pytest.mark.parametrize("ports", [2, 3, 8, 9, 16, 24])
def test_the_default_folder_is_complete_for_any_number_of_ports(tmp_path, ports):
    report = check_bench(write_fake_folder(tmp_path / "bench", ports))
    layout = ChipLayout(ports)
    assert report.ports == ports
    assert tuple(row.element for row in report.heaters) == layout.heaters
    assert tuple(row.element for row in report.detectors) == layout.detectors
    assert {row.name for row in report.instruments} == set(instrument_names(ports))
    assert sum(row.used for row in report.instruments if row.role == "heaters") == len(layout.heaters)
    assert all(row.max_power_w == 0.060 for row in report.heaters)


def test_the_default_wiring_of_eight_ports(folder):
    report = check_bench(folder)
    assert instrument_names(8) == ("heaters_0", "heaters_1", "meter_plus_0", "meter_minus_0", "laser")
    places = {row.element: (row.instrument, row.channel) for row in (*report.heaters, *report.detectors)}
    assert places["in_0_theta"] == ("heaters_0", 0)
    assert places["lo"] == ("heaters_1", 24)
    assert places["rx_3_minus"] == ("meter_minus_0", 3)
    assert report.max_total_power_w == pytest.approx(4.0, abs=0.01)
    assert report.calibration is None


def test_station_file_loads_unchanged_in_a_plain_qcodes_station(folder, recwarn):
    station = Station(config_file=str(folder / "station.yaml"), default=False, use_monitor=False)
    laser = station.load_instrument("laser", update_snapshot=False)
    assert laser.address == "fake:laser"
    assert [w for w in recwarn if "ValidationWarning" in w.category.__name__] == []
    laser.close()


def test_nothing_is_overwritten(folder):
    before = (folder / "chip.yaml").read_text()
    with pytest.raises(ConfigurationError, match=r"station\.yaml exists already and is not overwritten"):
        write_bench_folder(folder, 8, dict.fromkeys(instrument_names(8), "x"))
    assert (folder / "chip.yaml").read_text() == before
    assert sorted(p.name for p in folder.iterdir()) == ["chip.yaml", "station.yaml"]


def test_addresses_must_match_the_instruments(tmp_path):
    addresses = dict.fromkeys(instrument_names(4), "x")
    addresses["lazer"] = addresses.pop("laser")
    with pytest.raises(ConfigurationError, match="addresses for laser, lazer are missing or not needed"):
        write_bench_folder(tmp_path / "bench", 4, addresses)
    with pytest.raises(ConfigurationError, match="ports = 1: a chip has 2 to 64 ports"):
        write_bench_folder(tmp_path / "bench", 1, {})
    assert not (tmp_path / "bench").exists()


CHIP_FAULTS = [
    ("version: 1", "version: 2", "version: 2 is not allowed"),
    ("name: optinc_8", "name: chip-8", "name: 'chip-8' is not a name; use letters, digits and underscores"),
    ("name: optinc_8", "nmae: optinc_8", "nmae: unknown key (its value is 'optinc_8'); did you mean 'name'?"),
    ("ports: 8", "ports: 8.0", "ports: 8.0 is not allowed"),
    ("ports: 8", "ports: 1", "ports: 1 is not allowed"),
    ("layout: rectangular", "layout: hexagonal", "layout: 'hexagonal' is not allowed"),
    ("wavelength_nm: 1550.0", "wavelenght_nm: 1550.0", "laser.wavelenght_nm: unknown key"),
    ("wavelength_nm: 1550.0", "wavelenght_nm: 1550.0", "did you mean 'wavelength_nm'?"),
    ("  wavelength_nm: 1550.0\n", "", "laser.wavelength_nm: this key is missing; add it: the wavelength in nm"),
    ("power_dbm: 10.0", "power_dbm: yes", "laser.power_dbm: 'yes' is not allowed"),
    ("power_dbm: 10.0", "power_dbm: 40", "laser.power_dbm: 40 is not allowed"),
    ("settle_s: 0.0005", "settle_s: -1", "settling.settle_s: -1 is not allowed"),
    ("settle_s: 0.0005", "settle_s: .nan", "settling.settle_s: nan is not allowed"),
    ("step_v: 2.5", "step_v: 0", "ramp.step_v: 0 is not allowed"),
    ("total_power_w: 4.0", "total_power_w: '4'", "limits.total_power_w: '4"),
    ("heater_voltage_v: 0.0", "heater_voltage_v: 1.0", "safe_state.heater_voltage_v: 1.0 is not allowed"),
    ("laser_shutter: closed", "laser_shutter: open", "safe_state.laser_shutter: 'open' is not allowed"),
    ("calibration: null", "calibration: ../other.json", "calibration: '../other.json' is not allowed"),
    ("calibration: null", "calibration: lost.json", "calibration: the record 'lost.json' does not exist"),
    ("    max_power_w: 0.060\n", "", "heaters.in_0_theta.max_power_w: no limit for in_0_theta and 88 more"),
    ("channel: 0}", "chanel: 0}", "heaters.in_0_theta.chanel: unknown key (its value is 0); did you mean 'channel'?"),
    (
        "channel: 1}",
        "channel: 0}",
        "heaters.in_0_phi.channel: channel 0 of 'heaters_0' is already used by heaters.in",
    ),
    ("channel: 0}", "channel: -1}", "heaters.in_0_theta.channel: -1 is not allowed"),
    (
        "heaters_0, channel: 0}",
        "heatrs_0, channel: 0}",
        "in_0_theta.instrument: station.yaml has no instrument",
    ),
    ("heaters_0, channel: 0}", "heatrs_0, channel: 0}", "did you mean 'heaters_0'?"),
    ("  in_0_theta:", "  in_0_teta:", "heaters.in_0_teta: a chip of 8 ports has no heater of this name; did you mean"),
    ("  in_0_theta:", "  in_0_teta:", "heaters: not wired: in_0_theta; add an entry for each of them"),
    ("  rx_0_plus:", "  rx_9_plus:", "detectors.rx_9_plus: a chip of 8 ports has no detector of this name"),
    (
        "port: 1}",
        "port: 0}",
        "rx_1_plus.port: port 0 of 'meter_plus_0' is already used by detectors.rx_0_plus",
    ),
    ("port: 1}", "prt: 1}", "detectors.rx_1_plus.prt: unknown key (its value is 1); did you mean 'port'?"),
    ("serial_numbers: {}", "serial_numbers: {lasr: x}", "serial_numbers.lasr: station.yaml has no instrument 'lasr'"),
    ("ports: 8", "ports: 8\nports: 8", "not valid YAML"),
    ("ports: 8", "ports: [8", "not valid YAML"),
]


@pytest.mark.parametrize(("old", "new", "message"), CHIP_FAULTS)
def test_a_wrong_chip_file_is_refused_with_place_value_and_remedy(folder, old, new, message):
    replace(folder / "chip.yaml", old, new)
    with pytest.raises(ConfigurationError) as caught:
        check_bench(folder)
    assert message in str(caught.value)
    assert str(folder / "chip.yaml") in str(caught.value)
    assert ";" in str(caught.value)


STATION_FAULTS = [
    ("instruments:", "instrument:", "instrument: unknown key"),
    ("  laser:", "  1laser:", "instruments.1laser"),
    ("  laser:", "  las-er:", "use letters, digits and underscores only"),
    ("address: 'fake:laser'", "adress: 'fake:laser'", "instruments.laser.adress: unknown key"),
    ("address: 'fake:laser'", "address: 7", "instruments.laser.address: 7 is not allowed"),
    ("    address: 'fake:laser'\n", "", "instruments.laser.address: this key is missing"),
    ("address: 'fake:laser'", "address: ' '", "instruments.laser.address: this key is missing or empty"),
    ("address: 'fake:laser'", "address: 'FAKE:heaters_0'", "'FAKE:heaters_0' is also the address of 'heaters_0'"),
    ("bench_fakes.FakeLaser", "bench_fakes.FakeLazer", "module 'bench_fakes' has no class 'FakeLazer'"),
    ("bench_fakes.FakeLaser", "no_such_module.Laser", "module 'no_such_module' cannot be imported"),
    ("bench_fakes.FakeLaser", "pathlib.Path", "'pathlib.Path' is no QCoDeS instrument"),
    ("bench_fakes.FakeLaser", "bench_fakes.FakeMeter", "cannot serve as laser: it has no set_wavelength, set_power"),
    ("bench_fakes.FakeLaser", "FakeLaser", "instruments.laser.type: 'FakeLaser' is not"),
    ("  laser:\n", "  laser:\n    driver: x\n", "instruments.laser.driver: unknown key"),
    (
        "  laser:\n",
        "  laser:\n    parameters: {power: {initial_value: 1.0}}\n",
        "instruments.laser.parameters.power.initial_value: unknown key",
    ),
]


@pytest.mark.parametrize(("old", "new", "message"), STATION_FAULTS)
def test_a_wrong_station_file_is_refused_with_place_value_and_remedy(folder, old, new, message):
    replace(folder / "station.yaml", old, new)
    with pytest.raises(ConfigurationError) as caught:
        check_bench(folder)
    assert message in str(caught.value)
    assert str(folder / "station.yaml") in str(caught.value)


def test_a_driver_module_that_fails_while_it_is_imported_is_named(folder, tmp_path, monkeypatch):
    (tmp_path / "broken_lab_driver.py").write_text("raise RuntimeError('no licence')")
    monkeypatch.syspath_prepend(tmp_path)
    replace(folder / "station.yaml", "bench_fakes.FakeLaser", "broken_lab_driver.Laser")
    with pytest.raises(ConfigurationError, match=r"cannot be imported \(RuntimeError: no licence\)"):
        check_bench(folder)


def test_all_faults_are_reported_at_once(folder):
    replace(folder / "chip.yaml", "settle_s: 0.0005", "settle_s: -1")
    replace(folder / "chip.yaml", "ports: 8", "ports: 0")
    with pytest.raises(ConfigurationError, match="2 problems:") as caught:
        check_bench(folder)
    assert len(str(caught.value).splitlines()) == 3


@pytest.mark.parametrize("name", ["station.yaml", "chip.yaml"])
def test_a_missing_or_foreign_file_is_named(folder, name):
    (folder / name).write_text("- a list\n")
    with pytest.raises(ConfigurationError, match=f"{re.escape(name)}: holds list, not a mapping"):
        check_bench(folder)
    (folder / name).write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        check_bench(folder)
    (folder / name).unlink()
    with pytest.raises(ConfigurationError, match=f"{re.escape(name)}: file not found"):
        check_bench(folder)


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match="no such folder; give the folder that holds"):
        check_bench(tmp_path / "absent")


def test_an_instrument_that_the_chip_does_not_use_is_allowed_and_shown(folder):
    path = folder / "station.yaml"
    path.write_text(path.read_text() + "  spare:\n    type: bench_fakes.FakeMeter\n    address: 'fake:spare'\n")
    rows = {row.name: row for row in check_bench(folder).instruments}
    assert rows["spare"].role is None
    assert rows["spare"].used == 0
    assert "spare" not in read_description(folder).roles


def test_yaml_1_2_numbers_and_words(folder):
    """``1e-3`` is a number and ``on`` a word, unlike in YAML 1.1."""
    replace(folder / "chip.yaml", "settle_s: 0.0005", "settle_s: 1e-3")
    replace(folder / "chip.yaml", "name: optinc_8", "name: on")
    chip = read_description(folder).chip
    assert (chip.settling.settle_s, chip.name) == (1e-3, "on")


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=30, deadline=None)
@given(
    value=JUNK | st.fixed_dictionaries({}, optional=dict.fromkeys(["mzis", "missing", "stuck"], JUNK)),
    key=st.sampled_from(["laser", "heaters", "detectors", "limits", "ports", "calibration", "name", "layout", "mesh"]),
)
def test_no_content_raises_anything_but_our_error(tmp_path_factory, value, key):
    from ruamel.yaml import YAML

    folder = write_fake_folder(tmp_path_factory.mktemp("junk") / "bench", ports=2)
    yaml = YAML(typ="safe", pure=True)
    data = yaml.load((folder / "chip.yaml").read_text())
    data[key] = value
    with (folder / "chip.yaml").open("w", encoding="utf-8") as file:
        yaml.dump(data, file)
    with contextlib.suppress(OptincError):
        read_description(folder)
