"""pymeasure's Keithley 2600 driver, unmodified, on the simulated 2600B."""

import pytest
from driver_cases import CASES, simulated
from pymeasure.adapters import VISAAdapter
from pymeasure.instruments.keithley import Keithley2600

# The client's own class warns that it does not know whether the instrument speaks SCPI.
pytestmark = pytest.mark.filterwarnings("ignore:It is not known whether this device support SCPI:FutureWarning")

CASE = next(case for case in CASES if case.id == "keithley_2600")


@pytest.fixture
def source():
    with simulated(CASE) as (bench, chip, _):
        adapter = VISAAdapter(
            bench.addresses["device"], visa_library="@py", write_termination="\n", read_termination="\n", timeout=5000
        )
        yield Keithley2600(adapter), chip
        adapter.close()


def test_applies_a_voltage_and_measures(source):
    client, chip = source
    assert "Model 2614B" in client.id
    channel = client.ChA
    channel.apply_voltage(compliance_current=0.02)
    channel.source_output = "ON"
    channel.source_voltage = 2.0
    assert channel.source_voltage == pytest.approx(2.0)
    assert chip.heater_voltage(0) == pytest.approx(2.0, abs=1e-3)
    assert channel.voltage == pytest.approx(2.0, abs=1e-3)
    assert channel.current == pytest.approx(chip.heater_current(0), abs=1e-6)
    assert channel.resistance == pytest.approx(2.0 / chip.heater_current(0), rel=1e-3)
    channel.measure_current(nplc=2, current=0.1, auto_range=False)
    assert channel.ask("measure.nplc") == 2.0  # its own property measure_nplc cannot be read: it indexes its limits
    assert channel.current_range == pytest.approx(0.1)
    channel.ramp_to_voltage(0.0, steps=3, pause=0.0)
    channel.source_output = "OFF"
    assert channel.source_output == "OFF"
    assert chip.heater_voltage(0) == 0.0
    assert client.next_error == (0, "Queue Is Empty")


def test_applies_a_current_within_its_compliance(source):
    client, chip = source
    channel = client.ChB
    channel.apply_current(compliance_voltage=3.0)
    channel.source_current = 1e-3
    channel.source_output = "ON"
    assert channel.source_mode == "current"
    assert chip.heater_current(1) == pytest.approx(1e-3, rel=1e-3)
    channel.source_current = 0.05
    assert channel.voltage == pytest.approx(3.0, abs=2e-3)


def test_errors_come_from_the_queue(source):
    client, _ = source
    client.write("smua.source.levelv=999")
    assert client.next_error == (1102, "Parameter too big")
    assert client.next_error == (0, "Queue Is Empty")
    client.ChA.source_voltage = -7.5
    assert client.ChA.source_voltage == pytest.approx(-7.5)
