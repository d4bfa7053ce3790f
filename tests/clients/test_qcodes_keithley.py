"""QCoDeS' own Keithley driver, unmodified, on the simulated 2600B."""

import json

import pytest
from driver_cases import CASES, simulated
from qcodes.instrument_drivers.Keithley import Keithley2600MeasurementStatus, Keithley2614B

CASE = next(case for case in CASES if case.id == "keithley_2600")


@pytest.fixture
def source():
    with simulated(CASE) as (bench, chip, _):
        client = Keithley2614B("keithley", bench.addresses["device"], visalib="@py", timeout=5)
        yield client, chip
        client.close()


def test_identity_and_model(source):
    client, _ = source
    assert client.model == "2614B"
    assert client.get_idn() == {
        "vendor": "Keithley Instruments Inc.",
        "model": "2614B",
        "serial": "1398687",
        "firmware": "3.3.5",
    }


def test_sources_a_voltage_and_measures_current_and_resistance(source):
    client, chip = source
    smu = client.smua
    assert smu.mode() == "voltage"
    assert smu.output() is False
    smu.limiti(20e-3)
    smu.sourcerange_v(20)
    smu.volt(2.5)
    assert smu.volt() == pytest.approx(0.0, abs=1e-3)
    smu.output(True)
    assert smu.volt() == pytest.approx(2.5, abs=1e-3)
    assert smu.volt.measurement_status is Keithley2600MeasurementStatus.NORMAL
    assert chip.heater_voltage(0) == pytest.approx(2.5, abs=1e-3)
    current = smu.curr()
    assert current == pytest.approx(chip.heater_current(0), abs=1e-6)
    assert smu.res() == pytest.approx(2.5 / current, rel=1e-3)
    smu.output(False)
    assert smu.output.get() is False
    assert chip.heater_voltage(0) == 0.0


def test_its_compliance_status(source):
    client, chip = source
    smu = client.smub
    smu.limiti(1e-3)
    smu.volt(5.0)
    smu.output(True)
    assert smu.curr() == pytest.approx(1e-3, rel=1e-2)
    assert smu.curr.measurement_status is Keithley2600MeasurementStatus.CURRENT_COMPLIANCE_ERROR
    assert chip.heater_current(1) == pytest.approx(1e-3, rel=1e-2)
    smu.mode("current")
    smu.curr(0.5e-3)
    assert smu.mode.get() == "current"
    assert chip.heater_current(1) == pytest.approx(0.5e-3, rel=1e-2)


def test_settings_snapshot_display_and_reset(source):
    client, chip = source
    smu = client.smua
    smu.nplc(0.5)
    smu.four_wire_measurement(True)
    smu.measurerange_i(0.01)
    assert smu.nplc() == 0.5
    assert smu.four_wire_measurement() is True
    assert smu.measurerange_i() == 0.01
    assert smu.measure_autorange_i_enabled() is False
    client.display_settext("heater")
    client.display_clear()
    client.display_normal()
    client.exit_key()
    smu.volt(1.0)
    smu.output(True)
    client.reset()
    assert chip.heater_voltage(0) == 0.0
    snapshot = client.snapshot(update=True)
    assert snapshot["submodules"]["smua"]["parameters"]["nplc"]["value"] == 1.0
    assert json.dumps(snapshot["submodules"]["smub"]["parameters"]["sourcerange_v"]["value"])
    assert client.ask("errorqueue.count") == "0.00000e+00"
