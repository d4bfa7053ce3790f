"""Sweeps of the simulated Santec laser: what the chip sees while time passes, states, triggers and logs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drivers import SantecTSL570
from optinc_hw.clock import SimulatedClock
from simulated_instruments import HiddenChip, HiddenEffects, SimulatedBench, SimulatedSantecTSL570, default_bench

READY_S = 0.05  # tuning takes that and 5 ms per nm
STOPPED, RUNNING, WAITING, PREPARING = "0\r", "1\r", "3\r", "4\r"
LIT = (":POW:STAT 1", ":POW:SHUT 0")
ONE_WAY = (":WAV:SWE:STAR 1550", ":WAV:SWE:STOP 1560", ":WAV:SWE:SPE 10", ":TRIG:OUTP 3", ":TRIG:OUTP:STEP 0.5")


def warm_chip(clock):
    """Make a chip with heaters on, whose phases therefore change with the wavelength."""
    chip = HiddenChip.from_seed(0, 2, effects=HiddenEffects(), clock=clock)
    chip.set_heater_voltages(dict.fromkeys(range(len(chip.layout.heaters)), 3.0))
    clock.sleep(1.0)
    return chip


class Laser:
    """A laser on a chip, asked through one session."""

    def __init__(self):
        self.clock = SimulatedClock()
        self.chip = warm_chip(self.clock)
        self.instrument = SimulatedSantecTSL570(self.chip, self.clock)
        self.session = self.instrument.open_session()

    def __call__(self, *commands):
        return self.raw(*commands).decode()

    def raw(self, *commands):
        return b"".join(self.session.receive(command.encode() + b"\r") for command in commands)

    def sees(self, wavelength_nm, power_w=1e-3):
        """Tell whether the chip is lit like another one of the same seed on which a laser stands still."""
        other = warm_chip(SimulatedClock())
        other.set_laser(power_w, wavelength_nm * 1e-9)
        return np.allclose(self.chip.detector_powers(), other.detector_powers(), rtol=1e-6, atol=0.0)


@pytest.fixture
def laser():
    laser = Laser()
    laser(*LIT, *ONE_WAY)
    laser.clock.sleep(1.0)
    return laser


def test_wavelength_matters_to_what_the_chip_shows(laser):
    assert laser.sees(1550.0)
    assert not laser.sees(1550.1)


def test_one_continuous_sweep_takes_its_time_and_moves_the_light(laser):
    laser(":WAV 1555")
    laser.clock.sleep(1.0)
    laser(":WAV:SWE 1")
    assert laser(":WAV:SWE?", "*OPC?") == PREPARING + "0\r"
    laser.clock.sleep(READY_S + 0.025 + 1e-9)
    assert laser(":WAV:SWE?", "*OPC?", ":WAV?") == RUNNING + "0\r" + "1550.0000\r"
    laser.clock.sleep(0.25)
    assert laser(":WAV?") == "1552.5000\r"
    assert laser.sees(1552.5)
    assert laser(":READ:POIN?", ":WAV:SWE:COUN?") == "6\r0\r"
    laser.clock.sleep(0.75)
    assert laser(":WAV:SWE?", "*OPC?", ":WAV?", ":WAV:SWE:COUN?") == STOPPED + "1\r1560.0000\r1\r"
    assert laser.sees(1560.0)


@pytest.mark.parametrize(("first", "last"), [(1550, 1560), (1560, 1550)])
def test_log_as_blocks_of_the_documented_types(laser, first, last):
    laser(f":WAV:SWE:STAR {first}", f":WAV:SWE:STOP {last}", ":POW 5", ":WAV:SWE 1")
    laser.clock.sleep(2.0)
    assert laser(":READ:POIN?") == "21\r"
    data, powers = laser.raw(":READ:DAT?"), laser.raw(":READ:DAT:POW?")
    for reply in (data, powers):
        assert reply[:4] == b"#284"
        assert reply[-1:] == b"\r"
        assert len(reply) == 4 + 84 + 1
    steps = np.frombuffer(data[4:-1], "<i4")
    np.testing.assert_array_equal(steps, np.linspace(first, last, 21) * 1e4)
    np.testing.assert_allclose(np.frombuffer(powers[4:-1], "<f4"), 5.0, rtol=1e-6)


def test_without_triggers_of_step_nothing_is_logged(laser):
    laser(":TRIG:OUTP 2", ":WAV:SWE 1")
    laser.clock.sleep(2.0)
    assert laser(":READ:POIN?") == "0\r"
    assert laser.raw(":READ:DAT?") == b"#10\r"


def test_a_new_sweep_drops_the_old_log(laser):
    laser(":WAV:SWE 1")
    laser.clock.sleep(2.0)
    assert laser(":READ:POIN?", ":WAV:SWE 1", ":READ:POIN?", ":WAV:SWE:COUN?") == "21\r0\r0\r"


@pytest.mark.parametrize("command", [":WAV:SWE:SOFT", ":TRIG:INP:SOFT"])
def test_standby_waits_for_the_software_trigger(laser, command):
    laser(":TRIG:INP:STAN 1", ":WAV:SWE 1")
    laser.clock.sleep(READY_S + 100.0)
    assert laser(":WAV:SWE?", ":WAV?", "*OPC?") == WAITING + "1550.0000\r0\r"
    laser.instrument.trigger()  # the input is not enabled
    assert laser(":WAV:SWE?") == WAITING
    assert laser(command, ":WAV:SWE?") == RUNNING
    laser.clock.sleep(0.5)
    assert laser.sees(1555.0)
    laser.clock.sleep(0.6)
    assert laser(":WAV:SWE?", ":READ:POIN?") == STOPPED + "21\r"


def test_an_edge_at_the_enabled_input_starts(laser):
    laser(":TRIG:INP:EXT 1", ":WAV:SWE 1")
    laser.instrument.trigger()  # too early: it does not wait yet
    laser.clock.sleep(1.0)
    assert laser(":WAV:SWE?") == WAITING
    laser.instrument.trigger()
    assert laser(":WAV:SWE?") == RUNNING


def test_modes_cycles_and_delays(laser):
    laser(":WAV:SWE:MOD 3", ":WAV:SWE:CYCL 2", ":WAV:SWE:DEL 3", ":WAV:SWE 1")
    laser.clock.sleep(READY_S)
    found = []
    for wait in (0.0, 0.5, 1.0, 1.5, 2.0, 0.5, 1.0, 1.0):
        laser.clock.sleep(wait)
        found.append(laser(":WAV?", ":WAV:SWE:COUN?").split("\r")[:2])
    # there in 1 s, back in 1 s, 3 s of rest at the start, and once more
    assert found == [
        ["1550.0000", "0"], ["1555.0000", "0"], ["1555.0000", "0"], ["1550.0000", "1"],
        ["1550.0000", "1"], ["1555.0000", "1"], ["1555.0000", "1"], ["1550.0000", "2"],
    ]  # fmt: skip
    assert laser(":WAV:SWE?", ":READ:POIN?") == STOPPED + "42\r"


def test_steps_and_their_dwell(laser):
    laser(":WAV:SWE:MOD 0", ":WAV:SWE:STEP 5", ":WAV:SWE:DWEL 1", ":WAV:SWE 1")
    step_s = READY_S + 0.025 + 1.0
    laser.clock.sleep(READY_S + 0.5 * step_s)
    for wavelength in (1550.0, 1555.0, 1560.0):
        assert laser(":WAV?") == f"{wavelength:.4f}\r"
        assert laser.sees(wavelength)
        laser.clock.sleep(step_s)
    assert laser(":WAV:SWE?", ":READ:POIN?") == STOPPED + "3\r"


def test_repeats_until_stopped(laser):
    laser(":WAV:SWE:REP")
    laser.clock.sleep(READY_S + 1000.0)
    assert laser(":WAV:SWE?") == RUNNING
    count = int(laser(":WAV:SWE:COUN?"))
    assert count == int(1000.0 / (1.0 + READY_S + 0.05))  # a scan and the way back
    laser(":WAV:SWE 0")
    at = laser(":WAV?")
    laser.clock.sleep(10.0)
    assert laser(":WAV:SWE?", ":WAV?") == STOPPED + at
    assert laser.sees(float(at))


def test_power_and_shutter_act_during_a_sweep(laser):
    laser(":WAV:SWE 1")
    laser.clock.sleep(READY_S + 0.25)
    laser(":POW 3")
    assert laser.sees(1552.5)  # the power has not changed yet
    laser.clock.sleep(0.25)
    assert laser.sees(1555.0, 1e-3 * 10**0.3)
    laser(":POW:SHUT 1")
    assert laser.chip.detector_powers().sum() == 0.0
    laser(":POW:SHUT 0")
    laser.clock.sleep(0.25)
    assert laser.sees(1557.5, 1e-3 * 10**0.3)


def test_what_a_sweep_refuses(laser):
    error = '-200,"Execution error"\r'
    laser(":WAV:SWE 1")
    for command in (":WAV 1555", ":FREQ 194", ":WAV:SWE 1", ":WAV:SWE:REP", ":WAV:SWE:SOFT"):
        assert laser(command, ":SYST:ERR?") == error
    laser(":WAV:SWE 0")
    for setting in (":WAV:SWE:STOP 1550", ":WAV:SWE:STOP 1640"):
        # nothing to sweep over; or no room to come to speed at the end of the range
        assert laser(":WAV:SWE:SPE 200", setting, ":WAV:SWE 1", ":SYST:ERR?") == error
    assert laser(":WAV:SWE?") == STOPPED


def test_the_range_shrinks_with_the_speed(laser):
    wide = laser(":WAV:SWE:RANG:MIN?;MAX?")
    assert wide == "1480.0000;1640.0000\r"
    low, high = map(float, laser(":WAV:SWE:SPE 200", ":WAV:SWE:RANG:MIN?;MAX?").split(";"))
    assert 1480.0 < low < high < 1640.0
    frequencies = laser(":FREQ:SWE:RANG:MIN?;MAX?").split(";")
    assert list(map(float, frequencies)) == pytest.approx([299792.458 / high, 299792.458 / low], abs=1e-5)


@settings(max_examples=60, deadline=None)
@given(
    mode=st.integers(0, 3),
    ends=st.tuples(st.integers(14_800, 16_400), st.integers(14_800, 16_400)).filter(lambda ends: ends[0] != ends[1]),
    step_nm=st.sampled_from([0.3, 1.0, 7.0, 200.0 / 3.0]),
    cycles=st.integers(0, 3),
    waits=st.lists(st.floats(0.0, 20.0), min_size=3, max_size=12),
)
def test_time_moves_a_sweep_on_and_never_out_of_its_bounds(mode, ends, step_nm, cycles, waits):
    laser = Laser()
    start, stop = (end / 10.0 for end in ends)
    laser(f":WAV:SWE:STAR {start}", f":WAV:SWE:STOP {stop}", f":WAV:SWE:MOD {mode}", f":WAV:SWE:CYCL {cycles}")
    laser(f":WAV:SWE:STEP {step_nm:.4f}", f":TRIG:OUTP:STEP {step_nm:.4f}", ":TRIG:OUTP 3", ":WAV:SWE 1")
    assert laser(":SYST:ERR?") == '0,"No error"\r'
    points = int(abs(stop - start) / float(f"{step_nm:.4f}") + 1e-6) + 1
    last_count, states = 0, []
    for wait in [*waits, 1e5]:
        laser.clock.sleep(wait)
        state, count, wavelength, logged = laser(":WAV:SWE?", ":WAV:SWE:COUN?", ":WAV?", ":READ:POIN?").split("\r")[:4]
        assert min(start, stop, 1550.0) <= float(wavelength) <= max(start, stop, 1550.0)
        assert last_count <= int(count) <= max(1, cycles)
        assert 0 <= int(logged) <= points * (1 + mode // 2)
        last_count = int(count)
        states.append(int(state))
    assert [{4: 0, 1: 1, 0: 2}[state] for state in states] == sorted({4: 0, 1: 1, 0: 2}[state] for state in states)
    assert (states[-1], last_count, int(logged)) == (0, max(1, cycles), points * (1 + mode // 2))


def test_the_driver_sweeps_while_a_meter_reads():
    """The driver on a bench: its log is the sweep that was asked for, and the detectors saw the same light."""
    clock = SimulatedClock()
    chip = warm_chip(clock)
    with SimulatedBench(chip, *default_bench(2), clock) as bench:
        laser = SantecTSL570("laser", bench.addresses["laser"])
        laser.clock = clock
        try:
            laser.set_power(2e-3)
            laser.set_light(True)
            laser.wait_settled(10.0)
            laser.arm_sweep(1540e-9, 1550e-9, 20e-9, 0.1e-9)
            assert laser.sweep_state() == "waiting for trigger"
            laser.trigger_sweep()
            clock.sleep(0.25)
            seen = chip.detector_powers()
            log = laser.finish_sweep(trigger=False)
            np.testing.assert_allclose(log.wavelength_m, np.linspace(1540e-9, 1550e-9, 101), atol=1e-13)
            np.testing.assert_allclose(log.power_w, 2e-3, rtol=2e-3)
            assert log.valid.all()
            laser.set_wavelength(1545e-9)
            laser.wait_settled(10.0)
            np.testing.assert_allclose(chip.detector_powers(), seen, rtol=1e-6)
            laser.set_wavelength(1545.1e-9)
            laser.wait_settled(10.0)
            assert not np.allclose(chip.detector_powers(), seen, rtol=1e-6, atol=0.0)
            assert laser.wavelength_error() == pytest.approx(0.0, abs=1e-13)
        finally:
            laser.close()
        assert chip.detector_powers().sum() == 0.0
