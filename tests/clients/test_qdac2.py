"""QDevil's own QDAC-II driver (qcodes_contrib_drivers), unmodified, on the simulated instrument."""

import math

import pytest
from driver_cases import PORTS
from qcodes_contrib_drivers.drivers.QDevil.QDAC2 import QDac2

from simulated_instruments import BenchWiring, HiddenChip, InstrumentSpec, SimulatedBench


@pytest.fixture
def source():
    chip = HiddenChip.from_seed(3, PORTS)
    specs = (InstrumentSpec("device", "qdevil_qdac2", 24), InstrumentSpec("laser", "santec_tsl570"))
    wiring = BenchWiring({name: ("device", k) for k, name in enumerate(chip.layout.heaters)}, {}, "laser")
    with SimulatedBench(chip, specs, wiring, chip.clock) as bench:
        client = QDac2("qdac", bench.addresses["device"], visalib="@py", timeout=5)
        yield client, chip
        client.close()


def test_identity_and_size(source):
    client, _ = source
    assert client.IDN()["model"] == "QDAC-II"
    assert client.n_channels() == 24
    assert client.mac() == "04-91-62-C0-10-16"


def test_sets_a_constant_voltage_and_measures_the_current(source):
    client, chip = source
    channel = client.ch01
    channel.output_range("high")
    channel.measurement_range("high")
    channel.dc_constant_V(2.5)
    assert channel.dc_constant_V.get() == pytest.approx(2.5)
    assert chip.heater_voltage(0) == pytest.approx(2.5, abs=1e-4)
    assert channel.dc_last_V() == pytest.approx(2.5, abs=1e-4)
    assert channel.read_current_A() == [pytest.approx(chip.heater_current(0), abs=1e-6)]
    assert channel.fetch_current_A() == [pytest.approx(chip.heater_current(0), abs=1e-6)]
    assert channel.current_last_A() == channel.fetch_current_A()[0]
    channel.measurement_range("low")
    assert channel.read_current_A() == [9.9e37]  # this driver does not know the over-range code
    assert client.errors() == '0, "No error"'


def test_settings_of_a_channel(source):
    client, _ = source
    channel = client.ch24
    channel.output_mode(range="low", filter="med")
    assert channel.output_range() == "low"
    assert channel.output_filter() == "med"
    assert channel.output_low_range_maximum_V() == 2.0
    channel.dc_slew_rate_V_per_s(100.0)
    assert channel.dc_slew_rate_V_per_s() == 100.0
    channel.measurement_nplc(5)
    assert channel.measurement_nplc() == 5
    channel.measurement_count(3)
    assert len(channel.read_current_A()) == 3
    assert channel.n_measurements_available() == 3
    assert len(channel.clear_measurements()) == 3
    channel.dc_next_V(1.5)
    channel.dc_initiate()
    assert channel.dc_constant_V() == pytest.approx(1.5)


def test_currents_of_an_arrangement(source):
    client, chip = source
    client.ch02.dc_constant_V(1.0)
    with client.arrange(contacts={"upper": 1, "lower": 2}) as arrangement:
        arrangement.set_virtual_voltages({"upper": 0.5, "lower": 1.5})
        assert arrangement.currents_A(current_range="high") == [
            pytest.approx(chip.heater_current(k), abs=1e-6) for k in (0, 1)
        ]
    assert client.n_errors() == 0


def test_errors_come_out_of_the_queue_one_by_one_and_together(source):
    client, _ = source
    client.write("sour1:volt 11")
    client.write("nonsense")
    client.write("sour25:volt 1")
    assert client.n_errors() == 3
    assert client.error() == '-222, "Data out of range"'
    assert client.errors() == '-113, "Undefined header",-114, "Header suffix out of range"'
    assert client.errors() == '0, "No error"'


def test_snapshot_and_reset_by_command(source):
    client, chip = source
    client.ch01.dc_constant_V(2.0)
    snapshot = client.ch01.snapshot(update=True)
    assert snapshot["parameters"]["dc_constant_V"]["value"] == pytest.approx(2.0)
    assert math.isclose(snapshot["parameters"]["output_high_range_maximum_V"]["value"], 10.0)
    client.write("*rst")
    assert client.ch01.dc_constant_V() == 0.0
    assert chip.heater_voltage(0) == 0.0
