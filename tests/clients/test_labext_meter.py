"""LabExT's driver of the N7744A (GPL: run here, nothing of it is copied), unmodified, on the simulated meter.

It sets no line ends, so it needs HiSLIP. It asks ``*OPC?`` and empties the error queue after every set.
"""

import numpy as np
import pytest
from LabExT.Instruments.PowerMeterN7744A import PowerMeterN7744A

from optinc_hw.clock import SimulatedClock
from simulated_instruments import BenchWiring, HiddenChip, HiddenEffects, InstrumentSpec, SimulatedBench

LIGHT_W = 75e-6  # on each photodiode of the perfect chip of 2 ports with 2 mW

pytestmark = pytest.mark.usefixtures("labext_settings")


@pytest.fixture
def bench():
    clock = SimulatedClock()
    chip = HiddenChip.from_seed(1, 2, effects=HiddenEffects.none(), clock=clock)
    chip.set_laser(2e-3, 1550e-9)
    specs = (
        InstrumentSpec("laser", "santec_tsl570"),
        InstrumentSpec("meter", "keysight_n7745a", 4, {"model": "N7744A"}),
    )
    wiring = BenchWiring(
        heaters={}, detectors={name: ("meter", k) for k, name in enumerate(chip.layout.detectors)}, laser="laser"
    )
    with SimulatedBench(chip, specs, wiring, clock) as running:
        yield running, chip, clock


@pytest.fixture
def meter(bench):
    running, _, _ = bench
    theirs = PowerMeterN7744A(running.open_hislip("meter"), channel=2)
    theirs.open()
    theirs.clear()
    yield theirs
    theirs.close()


def test_settings(meter):
    assert meter.idn().startswith("Agilent Technologies,N7744A")
    meter.wavelength = 1310.0
    assert meter.wavelength == pytest.approx(1310.0)
    for unit in ("dBm", "Watt"):
        meter.unit = unit
        assert meter.unit == unit
    meter.range = -20
    assert meter.range == -20.0
    assert not meter.autoranging
    meter.range = "auto"
    assert meter.autoranging
    meter.averagetime = 0.05
    assert meter.averagetime == 0.05
    meter.autogain = False
    assert not meter.autogain
    found = meter.get_instrument_parameter()
    assert found["unit"] == "Watt"
    assert found["averagetime"] == 0.05


def test_power(meter, bench):
    _, _, clock = bench
    meter.unit = "Watt"
    meter.averagetime = 0.05
    assert meter.power == pytest.approx(LIGHT_W, rel=1e-3)
    meter.unit = "dBm"
    assert meter.power == pytest.approx(10 * np.log10(LIGHT_W / 1e-3), abs=0.01)
    meter.range = -30
    clock.sleep(0.05)
    assert meter.power == np.inf
    meter.check_instrument_errors()  # -231 is among those that it does not mind


def test_software_triggers(meter, bench):
    _, chip, _ = bench
    meter.unit = "Watt"
    meter.trigger(continuous=False)
    meter.trigger()
    first = meter.fetch_power()
    assert first == pytest.approx(LIGHT_W, rel=1e-3)
    chip.set_laser(4e-3, 1550e-9)
    assert meter.fetch_power() == first
    meter.trigger()
    assert meter.fetch_power() == pytest.approx(2.0 * LIGHT_W, rel=1e-3)
    meter.trigger(continuous=True)
    meter.trigger()  # ignored by the meter, and so is the error
    meter.check_instrument_errors()


def test_free_running_log(meter, bench):
    _, chip, clock = bench
    meter.unit = "Watt"
    meter.range = 0
    meter.averagetime = 0.01
    meter.logging_setup(n_measurement_points=500)
    meter.logging_start()
    assert meter.logging_busy()
    chip.set_laser(4e-3, 1550e-9, at_s=clock.now() + 2.505)
    clock.sleep(5.0)
    assert not meter.logging_busy()
    data = meter.logging_get_data()
    np.testing.assert_allclose(data, [LIGHT_W] * 250 + [2.0 * LIGHT_W] * 250, atol=1e-8)
    meter.check_instrument_errors()


def test_triggered_logs(meter, bench):
    _, chip, clock = bench
    meter.unit = "dBm"
    meter.range = 0
    meter.averagetime = 0.001
    for each in (True, False):
        chip.set_laser(2e-3, 1550e-9)
        meter.logging_setup(n_measurement_points=3, triggered=True, trigger_each_meas_separately=each)
        meter.logging_start()
        clock.sleep(1.0)
        for factor in (1, 2, 4) if each else (1,):
            assert meter.logging_busy()
            chip.set_laser(factor * 2e-3, 1550e-9)
            meter.command("trig 1")
            clock.sleep(0.003)
        while meter.logging_busy():
            clock.sleep(0.001)
        data = meter.logging_get_data()
        expected = LIGHT_W * np.array([1, 2, 4] if each else [1, 1, 1])
        np.testing.assert_allclose(data, 10 * np.log10(expected / 1e-3), atol=0.01)
    meter.logging_setup()
    meter.logging_start()
    meter.logging_stop()
    assert not meter.logging_busy()
    meter.check_instrument_errors()
