"""The drivers of one bench together against the simulated instruments, over real sockets and a pseudo terminal."""

import gc
import threading

import numpy as np
import pytest

from drivers import KeysightN7745A, QontrolQ8iv, SantecTSL570
from optinc_hw.clock import SimulatedClock
from optinc_hw.errors import DeviceError, LimitError, LinkError
from simulated_instruments import BenchWiring, HiddenChip, InstrumentSpec, SimulatedBench

PORTS = 2


@pytest.fixture
def clock():
    return SimulatedClock()


@pytest.fixture
def chip(clock):
    return HiddenChip.from_seed(3, PORTS, clock=clock)


@pytest.fixture
def bench(chip, clock):
    layout = chip.layout
    specs = (
        InstrumentSpec("heaters", "qontrol_q8iv", 2),
        InstrumentSpec("laser", "santec_tsl570", 1),
        InstrumentSpec("meter", "keysight_n7745a", 4),
    )
    wiring = BenchWiring(
        heaters={name: ("heaters", index) for index, name in enumerate(layout.heaters)},
        detectors={name: ("meter", index) for index, name in enumerate(layout.detectors)},
        laser="laser",
    )
    with SimulatedBench(chip, specs, wiring, clock) as running:
        yield running


@pytest.fixture
def instruments(bench, clock):
    heaters = QontrolQ8iv("heaters", bench.addresses["heaters"], modules=2)
    laser = SantecTSL570("laser", bench.addresses["laser"])
    meter = KeysightN7745A("meter", bench.addresses["meter"], ports=4)
    opened = (heaters, laser, meter)
    for instrument in opened:
        instrument.clock = clock
    yield opened
    for instrument in opened:
        instrument.close()


# The whole way through the simulators -----------------------------------------------------------------------------


def test_connecting_and_closing_change_nothing(bench, chip):
    chip.set_heater_voltages({1: 2.0})
    chip.set_laser(1e-3, 1550e-9)
    before = chip.detector_powers()
    for _ in range(2):  # also: the names are free again
        opened = [
            QontrolQ8iv("heaters", bench.addresses["heaters"], modules=2),
            SantecTSL570("laser", bench.addresses["laser"]),
            KeysightN7745A("meter", bench.addresses["meter"], ports=4),
        ]
        for instrument in opened:
            instrument.snapshot(update=True)
            instrument.close()
            instrument.close()
    assert np.array_equal(chip.detector_powers(), before)
    assert chip.heater_voltage(1) == 2.0


def test_light_heat_and_readings(instruments, chip, clock):
    heaters, laser, meter = instruments
    meter.initialise(1550e-9, 10e-3)
    dark = meter.read_powers()
    assert dark.valid.all()
    assert np.abs(dark.power_w).max() < 1e-7
    laser.set_wavelength(1550e-9)
    laser.set_power(5e-3)
    laser.set_light(True)
    laser.wait_settled(5.0)
    assert meter.read_powers().power_w.max() > 1e-5
    heaters.set_voltages({0: 4.0, 9: 2.5})
    assert chip.heater_voltage(0) == pytest.approx(4.0, abs=2e-4)
    assert heaters.read_voltages()[[0, 9]] == pytest.approx([4.0, 2.5], abs=2e-3)
    assert heaters.read_currents()[0] == pytest.approx(chip.heater_current(0), abs=20e-6)
    assert heaters.nonzero_outputs().keys() == {0, 9}
    heaters.close()
    laser.close()
    assert chip.heater_voltage(0) == 0.0
    assert meter.read_powers().power_w.max() < 1e-7
    assert clock.now() > 0.5


def test_limits_with_a_measured_resistance(instruments, chip):
    heaters, _, _ = instruments
    heaters.set_channel_limits(0, max_power=20e-3)
    heaters.set_voltages({0: 4.0})  # about 13 mW
    with pytest.raises(LimitError, match="power"):
        heaters.set_voltages({0: 8.0})
    assert chip.heater_voltage(0) == pytest.approx(4.0, abs=2e-4)


def test_refusal_of_the_hardware(instruments):
    heaters, _, _ = instruments
    heaters.write("VMAX2=1")
    with pytest.raises(DeviceError, match=r"E01:02.*channel 2 or 10"):
        heaters.set_voltages({2: 1.5})
    heaters.set_voltages({2: 0.5})


def test_both_command_sets_and_units_of_the_laser(instruments):
    _, laser, _ = instruments
    for code in (0, 1):
        for unit in (0, 1):
            laser.write(f":SYST:COMM:COD {code}")
            laser.write(f":POW:UNIT {unit}")
            laser.set_wavelength(1549.1234e-9 + code * 1e-9)
            laser.set_power(2e-3)
            laser.wait_settled(10.0)
            assert laser.wavelength() == pytest.approx(1549.1234e-9 + code * 1e-9, abs=1e-13)
            assert laser.power() == pytest.approx(2e-3, rel=2e-3)
    with pytest.raises(DeviceError):
        laser.set_wavelength(1400e-9)


def test_meter_without_initialising_is_refused_because_it_starts_in_dbm(instruments):
    _, _, meter = instruments
    with pytest.raises(DeviceError, match="dBm"):
        meter.read_powers()


def test_threads_of_several_drivers(instruments):
    heaters, laser, meter = instruments
    meter.initialise(1550e-9, 1e-3)
    problems = []

    def repeat(action):
        try:
            for _ in range(60):
                action()
        except (OSError, AssertionError, DeviceError, LinkError) as error:
            problems.append(error)

    def check_heaters():
        assert len(heaters.read_voltages()) == 16

    def move_heaters():
        heaters.set_voltages({5: 0.5})
        heaters.set_voltages({5: 0.25})

    def check_laser():
        assert laser.wavelength() == pytest.approx(1550e-9)
        assert laser.power() == pytest.approx(1e-3)

    actions = [check_heaters, move_heaters, check_laser, check_laser, meter.read_powers, meter.read_powers]
    threads = [threading.Thread(target=repeat, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


def test_pseudo_terminal_of_the_chain(bench, clock):
    heaters = QontrolQ8iv("heaters", bench.open_pty("heaters"), modules=2)
    heaters.clock = clock
    heaters.set_voltages({3: 1.5})
    assert heaters.read_voltage(3) == pytest.approx(1.5, abs=2e-3)
    heaters.close()


def test_dying_simulator_leaves_a_closable_driver(bench, instruments):
    heaters, laser, meter = instruments
    heaters.set_voltages({0: 0.5})
    laser.set_power(1e-3)
    bench.__exit__(None, None, None)
    for instrument in (heaters, laser, meter):
        with pytest.raises(LinkError):
            instrument.get_idn()
        instrument.close()


def test_forgotten_instrument_is_made_safe_when_it_is_collected(bench, chip, clock):
    heaters = QontrolQ8iv("forgotten", bench.addresses["heaters"], modules=2)
    heaters.clock = clock
    heaters.set_voltages({0: 1.0})
    del heaters
    gc.collect()
    assert chip.heater_voltage(0) == 0.0
