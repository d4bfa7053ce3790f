"""The simulated Santec power meter mainframe: command by command, averaging, ranges, zero and logging memory."""

import struct

import numpy as np
import pytest
import pyvisa
from hypothesis import given, settings
from hypothesis import strategies as st

from optinc_hw.clock import SimulatedClock
from optinc_hw.errors import ConfigurationError
from simulated_instruments import (
    BenchWiring,
    HiddenChip,
    HiddenEffects,
    InstrumentSpec,
    SimulatedBench,
    SimulatedSantecMPM210H,
)

SETTINGS = (
    "UNIT?", "WAV?", "AVG?", "FGSAVG?", "AUTO?", "LEV?", "WMOD?", "WSET?", "SPE?", "LOGN?", "TRIG?", "STAT?",
    "DWAV? 0,1", "DWAV? 2,4", "DAUTO? 0", "DLEV? 2,3", "IDIS?", "LOGG? 0,1", "ERR?", "ERR?",
)  # fmt: skip
USES = (
    "UNIT 1", "WAV 1310", "AVG 2", "AUTO 0", "LEV 3", "WMOD SWEEP2", "WSET 1540,1550,1", "SPE 100", "LOGN 2", "TRIG 1",
    "MEAS", "STOP", "ZERO", "DWAV 2,4,1300", "DAUTO 0,0", "DLEV 2,3,4", "READ? 0", "BAD", "READ? 1",
)  # fmt: skip


class Meter:
    """A mainframe with modules in slots 0 and 2; ports 0 to 2 on the photodiodes of a chip of two ports."""

    def __init__(self, effects=None, slots=(0, 2)):
        self.clock = SimulatedClock()
        self.chip = HiddenChip.from_seed(1, 2, effects=effects, clock=self.clock)
        self.chip.set_laser(4e-3, 1550e-9)
        self.instrument = SimulatedSantecMPM210H("m", slots, self.chip, {0: 0, 1: 1, 4: 2}, self.clock)
        self.session = self.instrument.open_session()

    def raw(self, *commands):
        return b"".join(self.session.receive(command.encode() + b"\r") for command in commands)

    def __call__(self, *commands):
        return self.raw(*commands).decode()

    def values(self, command):
        return np.array([float(text) for text in self(command).removesuffix("\r").split(",")])

    def logged(self, slot, channel, points):
        reply = self.raw(f"LOGG? {slot},{channel}")
        size = str(4 * points).encode()
        head = b"#" + str(len(size)).encode() + size
        assert reply.startswith(head)
        assert reply[-1:] == b"\r"
        return np.array(struct.unpack(f"<{points}f", reply[len(head) : -1]))

    def powers(self):
        """What the photodiodes' electronics show without noise."""
        parameters = self.chip.parameters
        return (parameters.gain * self.chip.detector_powers() + parameters.dark_w)[:3]


@pytest.fixture
def meter():
    return Meter()


@pytest.mark.parametrize(
    ("commands", "reply"),
    [
        (["*IDN?"], "SANTEC,MPM-210H,00000000,Ver.2.0\r"),
        (["IDIS?"], "1,0,1,0,0\r"),
        (["MMVER? 2"], "Santec,MPM-211,00000002M211,Ver1.11\r"),
        (["MMVER? 1", "ERR?"], "-301,Module does not exist\r"),
        (["ERR?"], "0,No error\r"),
        (["UNIT?", "UNIT 1", "UNIT?"], "0\r1\r"),
        (["UNIT 2", "ERR?"], "-222,Data out of range\r"),
        (["UNIT on", "ERR?"], "-104,Data type error\r"),
        (["WAV?", "WAV 1310.5", "WAV?"], "1550.000\r1310.500\r"),
        (["WAV 1249.9", "ERR?", "WAV 1630.001", "ERR?"], "-222,Data out of range\r-222,Data out of range\r"),
        (["DWAV 2,4,1300", "DWAV? 2,4", "DWAV? 2,3", "WAV?"], "1300.000\r1550.000\r1550.000\r"),
        (["DWAV 5,1,1300", "DWAV? 0,1", "DWAV? 2,4"], "1300.000\r1300.000\r"),
        (["DWAV 2,5,1300", "ERR?"], "-222,Data out of range\r"),
        (["DWAV 1,1,1300", "ERR?"], "-301,Module does not exist\r"),
        (["AVG?", "AVG 0.01", "AVG?", "AVG 10000", "AVG?"], "1.00\r0.01\r10000.00\r"),
        (["AVG 0.009", "ERR?"], "-222,Data out of range\r"),
        (["FGSAVG 5", "FGSAVG?", "AVG?"], "5.00\r1.00\r"),
        (["AUTO?", "AUTO 0", "AUTO?", "DAUTO? 2"], "1\r0\r0\r"),
        (["DAUTO 2,0", "DAUTO? 2", "DAUTO? 0"], "0\r1\r"),
        (["LEV?", "LEV 5", "LEV?", "DLEV? 0,1"], "1\r5\r5\r"),
        (["DLEV 0,1,3", "DLEV? 0,1", "DLEV? 0,2"], "3\r1\r"),
        (["LEV 6", "ERR?"], "-222,Data out of range\r"),
        (["WMOD?", "WMOD SWEEP2", "WMOD?"], "CONST1\rSWEEP2\r"),
        (["WMOD FREE-RUN", "WMOD?", "WMOD SLOW", "ERR?"], "FREERUN\r-104,Data type error\r"),
        (["WSET 1540,1550,0.5", "WSET?"], "1540.000,1550.000,0.500\r"),
        (["WSET 1550,1540,0.5", "ERR?"], "-222,Data out of range\r"),
        (["SPE 5", "SPE?"], "5.000\r"),
        (["LOGN 1000000", "LOGN?", "LOGN 1000001", "ERR?"], "1000000\r-222,Data out of range\r"),
        (["TRIG 1", "TRIG?"], "1\r"),
        (["STAT?", "LOGG? 0,1", "ERR?"], "-1,0\r-221,Settings conflict\r"),
        (["CWAV? 0,1", "CWAV? 0,20", "CWAVPO? 2,4,20"], "1250.000\r1630.000\r0.000\r"),
        (["CWAV? 0,21", "ERR?"], "-222,Data out of range\r"),
        (["READ? 1", "ERR?"], "-301,Module does not exist\r"),
        (["READ?", "ERR?"], "-108,Parameter not allowed\r"),
        (["WAV 1550,2", "ERR?"], "-108,Parameter not allowed\r"),
        (["DWAV 0,,1550", "ERR?"], "-103,Invalid separator\r"),
        (["unit?", "ERR?"], "-113,Undefined header\r"),  # capitals only
        (["UNIT?;WAV?", "ERR?"], "-113,Undefined header\r"),  # one command a line
        (["ABCDEFGHIJKLM", "ERR?"], "-110,Command header error\r"),
        (["WAV 15\t50", "ERR?"], "-101,Invalid character\r"),
        (["BAD", "WORSE", "ERR?", "ERR?", "ERR?"], "-113,Undefined header\r-113,Undefined header\r0,No error\r"),
    ],
)
def test_commands(meter, commands, reply):
    assert meter(*commands) == reply


def test_readings_in_both_units(meter):
    before = meter.clock.now()
    meter("AVG 10")
    levels = meter.values("READ? 0")
    assert meter.clock.now() - before == pytest.approx(0.010)
    np.testing.assert_allclose(levels[:2], 10 * np.log10(meter.powers()[:2] / 1e-3), atol=0.05)
    meter("UNIT 1")
    np.testing.assert_allclose(meter.values("READ? 0")[:2], 1e3 * meter.powers()[:2], rtol=0.02)
    second = meter.values("READ? 2")
    assert second[0] == pytest.approx(1e3 * meter.powers()[2], rel=0.02)
    assert np.abs(second[1:]).max() < 1e-7  # nothing is before these
    meter("UNIT 0")
    dark = np.concatenate([meter.values("READ? 2")[1:] for _ in range(20)])
    assert dark.min() == -200.0  # noise below zero has no level
    assert dark.max() < -60.0


def test_readings_stay_at_the_end_of_their_range():
    meter = Meter(HiddenEffects.none())
    power = meter.powers()[0]
    assert 105e-6 < power < 1e-3
    meter("UNIT 1", "AUTO 0")
    for level, limit_w in enumerate((10e-3, 1e-3, 100e-6, 10e-6, 1e-6), start=1):
        meter(f"LEV {level}")
        assert meter.values("READ? 0")[0] == pytest.approx(1e3 * min(power, 1.05 * limit_w), rel=1e-5)
    meter("DLEV 0,1,1")
    assert meter.values("READ? 0")[0] == pytest.approx(1e3 * power, rel=1e-5)
    meter("LEV 5", "AUTO 1")
    assert meter.values("READ? 0")[0] == pytest.approx(1e3 * power, rel=1e-5)
    meter.chip.set_laser(10.0, 1550e-9)
    assert meter.values("READ? 0")[0] == pytest.approx(10.5)


def test_zeroing_makes_the_mainframe_busy_for_three_seconds():
    meter = Meter(HiddenEffects.none())
    offset = meter.powers()[0]
    meter("UNIT 1")
    assert meter("ZERO") == ""
    assert meter("READ? 0", "ERR?", "WAV 1310", "ERR?") == "-284,Program currently running\r" * 2
    assert meter("*IDN?", "STAT?").endswith("-1,0\r")
    meter.clock.sleep(3.0)
    assert abs(meter.values("READ? 0")[0]) < 1e-6 * 1e3 * offset
    meter.chip.set_laser(12e-3, 1550e-9)
    assert meter.values("READ? 0")[0] == pytest.approx(2e3 * offset, rel=1e-5)


def test_logging_at_one_wavelength(meter):
    meter("UNIT 1", "AVG 10", "WMOD CONST2", "LOGN 20", "MEAS")
    assert meter("STAT?") == "0,0\r"
    meter.clock.sleep(0.055)
    assert meter("STAT?") == "0,5\r"
    assert meter("WAV 1310", "ERR?") == "-221,Settings conflict\r"
    assert meter("READ? 0", "ERR?", "LOGG? 0,1", "ERR?", "MEAS", "ERR?") == "-284,Program currently running\r" * 3
    bright = meter.powers()
    meter.chip.set_laser(8e-3, 1550e-9)
    meter.clock.sleep(0.145)
    assert meter("STAT?") == "1,20\r"
    log = meter.logged(0, 1, 20)
    np.testing.assert_allclose(log[:5], 1e3 * bright[0], rtol=0.05)
    np.testing.assert_allclose(log[5:], 2e3 * bright[0], rtol=0.05)
    np.testing.assert_allclose(meter.logged(2, 1, 20)[:5], 1e3 * bright[2], rtol=0.05)
    meter("UNIT 0")
    np.testing.assert_allclose(meter.logged(0, 1, 20), 10 * np.log10(log), atol=1e-3)


def test_logging_a_sweep_takes_its_time(meter):
    meter("WMOD SWEEP1", "WSET 1540,1550,0.5", "SPE 10", "LOGN 5", "MEAS")
    meter.clock.sleep(1.0)
    assert meter("STAT?") == "0,20\r"
    meter("STOP")
    assert meter("STAT?") == "-1,20\r"
    assert meter.logged(0, 1, 20).shape == (20,)
    meter("MEAS")
    meter.clock.sleep(1.05)
    assert meter("STAT?") == "1,21\r"
    meter("WSET 1250,1630,0.001", "MEAS")
    assert meter("STAT?") == "0,0\r"  # 380 001 points


def test_external_triggers(meter):
    meter("LOGN 4", "TRIG 1", "MEAS")
    meter.clock.sleep(100.0)
    assert meter("STAT?") == "0,0\r"
    meter.instrument.pulse(3)
    assert meter("STAT?") == "0,3\r"
    meter.instrument.pulse(3)
    assert meter("STAT?") == "1,4\r"


@settings(max_examples=30)
@given(st.lists(st.sampled_from(SETTINGS + USES), max_size=10))
def test_restart_equals_a_fresh_mainframe_after_any_use(commands):
    USED(*commands)
    USED.instrument.restart()
    fresh = Meter(HiddenEffects.none())
    assert [USED(command) for command in SETTINGS] == [fresh(command) for command in SETTINGS]


USED = Meter(HiddenEffects.none())


def test_a_flood_of_errors_fills_the_queue(meter):
    assert meter.instrument.flood_errors(30) == b""
    replies = [meter("ERR?") for _ in range(21)]
    assert replies[:19] == ["101,Module communication error\r"] * 19
    assert replies[19:] == ["-350,Queue overflow\r", "0,No error\r"]


@given(st.text(alphabet="READUNITWVLOGMS?* .,-0125\t;", max_size=30))
def test_garbled_commands_never_break_the_mainframe(message):
    GARBLED.raw(message, "STOP")
    GARBLED.instrument.restart()
    assert GARBLED("ERR?", "UNIT?") == "0,No error\r0\r"


GARBLED = Meter()


@pytest.mark.parametrize(
    ("slots", "detectors"), [((), {}), ((0, 0), {}), ((5,), {}), ((-1,), {}), ((2, 0), {}), ((0,), {4: 0})]
)
def test_impossible_mainframes(slots, detectors):
    with pytest.raises(ConfigurationError, match="simulated m"):
        SimulatedSantecMPM210H("m", slots, HiddenChip.from_seed(0, 2), detectors, SimulatedClock())


def test_pyvisa_reads_a_log_on_a_bench():
    clock = SimulatedClock()
    chip = HiddenChip.from_seed(1, 2, clock=clock)
    chip.set_laser(4e-3, 1550e-9)
    laser = InstrumentSpec("laser", "santec_tsl570")
    wiring = BenchWiring(heaters={}, detectors={"rx_1_plus": ("m", 5)}, laser="laser")
    with pytest.raises(ConfigurationError, match=r"1\.\.5 modules"):
        SimulatedBench(chip, (InstrumentSpec("m", "santec_mpm210h", 6), laser), wiring, clock)
    with SimulatedBench(chip, (InstrumentSpec("m", "santec_mpm210h", 2), laser), wiring, clock) as bench:
        manager = pyvisa.ResourceManager("@py")
        meter = manager.open_resource(bench.addresses["m"], read_termination="\r", write_termination="\r", timeout=5000)
        try:
            assert meter.query("IDIS?") == "1,1,0,0,0"
            for command in ("UNIT 1", "LOGN 50", "AVG 10", "MEAS"):
                meter.write(command)
            assert meter.query("STAT?") == "0,0"
            clock.sleep(0.5)
            assert meter.query("STAT?") == "1,50"
            values = meter.query_binary_values("LOGG? 1,2", datatype="f", is_big_endian=False)
            assert np.mean(values) == pytest.approx(1e3 * (chip.parameters.gain * chip.detector_powers())[1], rel=0.02)
            assert len(values) == 50
        finally:
            meter.close()
            manager.close()
