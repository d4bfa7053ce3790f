"""The simulated Santec lasers command by command, as the table of their wire protocol has them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optinc_hw.clock import SimulatedClock
from optinc_hw.errors import ConfigurationError
from simulated_instruments import HiddenChip, HiddenEffects, SimulatedSantecTSL570


class Laser:
    """A laser on an ideal chip, asked through one session."""

    def __init__(self, model="TSL-570"):
        self.clock = SimulatedClock()
        self.chip = HiddenChip.from_seed(0, 2, effects=HiddenEffects.none(), clock=self.clock)
        self.instrument = SimulatedSantecTSL570(self.chip, self.clock, model)
        self.session = self.instrument.open_session()

    def __call__(self, *commands):
        return b"".join(self.session.receive(command.encode() + b"\r") for command in commands).decode()

    def light(self):
        """Power that enters the chip, seen by the receivers' share of it."""
        return self.chip.detector_powers().sum() / 0.15


@pytest.fixture
def laser():
    return Laser()


@pytest.mark.parametrize(
    ("commands", "reply"),
    [
        (["*IDN?"], "SANTEC,TSL-570,21020001,0001.0000.0001\r"),
        ([":SYSTem:COMMunicate:CODe?"], "0\r"),
        ([":SYST:COD?"], "0\r"),
        ([":WAV?"], "1550.0000\r"),
        ([":wavelength 1540.1234", ":WAV?"], "1540.1234\r"),
        ([":WAV 1540.12344", "WAV?"], "1540.1234\r"),
        ([":WAV MIN", ":WAV?"], "1480.0000\r"),
        ([":WAV:SWE:RANG:MAX?"], "1640.0000\r"),
        ([":FREQ?"], "193.41449\r"),
        ([":FREQ 194", ":FREQ?", ":WAV?"], "194.00000\r1545.3219\r"),
        ([":WAV 1550nm", ":SYST:ERR?", ":WAV?"], '-148,"Character data not allowed"\r1550.0000\r'),
        ([":WAV 1700", ":SYST:ERR?"], '-222,"Data out of range"\r'),
        ([":POW?"], "0.00\r"),
        ([":POW 10", ":POW?"], "10.00\r"),
        ([":POW -3.5", ":POW:UNIT 1", ":POW?"], "0.4467\r"),
        ([":POW:UNIT 1", ":POW 2", ":POW?", ":POW:UNIT?"], "2.0000\r1\r"),
        ([":POW:UNIT 1", ":POW 0", ":SYST:ERR?"], '-222,"Data out of range"\r'),
        ([":POW 14", ":SYST:ERR?"], '-222,"Data out of range"\r'),
        ([":POW 3mW", ":SYST:ERR?"], '-148,"Character data not allowed"\r'),
        ([":SYST:COMM:COD 1", ":WAV?", ":POW?"], "+1.55000000E-006\r+0.00000000E+000\r"),
        ([":SYST:COMM:COD 1", ":WAV 1540.5nm", ":WAV?"], "+1.54050000E-006\r"),
        ([":SYST:COMM:COD 1", ":WAV 1.5405e-6", ":WAV?"], "+1.54050000E-006\r"),
        ([":SYST:COMM:COD 1", ":WAV 1540", ":SYST:ERR?"], '-222,"Data out of range"\r'),
        ([":SYST:COMM:COD 1", ":FREQ 194THz", ":FREQ?"], "+1.94000000E+014\r"),
        ([":SYST:COMM:COD 1", ":POW 3mW", ":POW:UNIT 1", ":POW?"], "+3.00000000E+000\r"),
        ([":SYST:COMM:COD 1", ":POW 6 dBm", ":POW?"], "+6.00000000E+000\r"),
        ([":POW:STAT?", ":POW:STAT 1", ":POW:STAT?"], "0\r1\r"),
        ([":POW:SHUT?", ":POW:SHUT 0", ":POW:SHUT?"], "1\r0\r"),
        ([":POW:ATT 12.5", ":POW:ATT?", ":POW:ATT:AUT?", ":POW:ATT:AUT 1", ":POW:ATT:AUT?"], "12.50\r0\r1\r"),
        ([":COHC 1", ":COHCtrl?", ":WAV:UNIT 1", ":WAV:UNIT?"], "1\r1\r"),
        ([":POW:ATT 30.1", ":POW:ATT -1", ":SYST:ERR?"], '-222,"Data out of range"\r'),
        ([":WAV:FIN -12.345", ":WAV:FIN?", ":WAV:FIN:DIS", ":WAV:FIN?"], "-12.35\r0.00\r"),
        ([":WAV:FIN 100.1", ":SYST:ERR?"], '-222,"Data out of range"\r'),
        ([":FREQ 193.414494", ":FREQ?"], "193.41449\r"),
        ([":SYST:ALER?"], "No alerts\r"),
        ([":SYST:VERS?"], "0001.0000.0001\r"),
        ([":SYST:COMM:GPIB:DEL 2", ":SYST:COMM:GPIB:DEL?"], "2\r"),
        ([":SYST:COMM:GPIB:DEL 4", ":SYST:ERR?"], '-222,"Data out of range"\r'),
        ([":SYST:COMM:ETH:PORT?", ":SYST:COMM:ETH:IPAD 10.0.0.7", ":SYST:COMM:ETH:IPAD?"], "5000\r10.0.0.7\r"),
        ([":SYST:COMM:ETH:SMAS?;DGAT?;MAC?"], "255.255.255.0;192.168.1.1;00-25-2C-00-00-01\r"),
        ([":SYST:COMM:ETH:IPAD 10.0.7", ":SYST:ERR?"], '-108,"Parameter not allowed"\r'),
        ([":POW:ACT?"], "-60.00\r"),
        ([":POW 7", ":POW:STAT 1", ":POW:ACT?"], "7.00\r"),
        ([":SYST:LOCK?", ":SYST:ERR?"], '0\r0,"No error"\r'),
        ([":NONSENSE 1", "SYST:ERR?"], '-113,"Undefined header"\r'),
        ([":WAV# 1", "SYST:ERR?"], '-102,"Syntax error"\r'),
        ([":WAV,1550", "SYST:ERR?"], '-103,"Invalid separator"\r'),
        ([":WAV 1550 1551", "SYST:ERR?"], '-103,"Invalid separator"\r'),
        ([":WAV 1550,1551", "SYST:ERR?"], '-108,"Parameter not allowed"\r'),
        ([":WAV? 1,2", "SYST:ERR?"], '-108,"Parameter not allowed"\r'),
        ([":WAV", "SYST:ERR?"], '-109,"Missing parameter"\r'),
        ([":WAV red", "SYST:ERR?"], '-148,"Character data not allowed"\r'),
        ([":POW:SHUT open", "SYST:ERR?"], '-148,"Character data not allowed"\r'),
        ([":WAV:SWE:SOFT", "SYST:ERR?"], '-200,"Execution error"\r'),
        (
            [":POW:STAT 2", ":POW:STAT", ":SYST:ERR?", ":SYST:ERR?"],
            '-222,"Data out of range"\r-109,"Missing parameter"\r',
        ),
        ([":X", "*CLS", ":SYST:ERR?"], '0,"No error"\r'),
        ([":WAV 1540", ":POW 3", "*RST", ":WAV?;:POW?"], "1550.0000;0.00\r"),
    ],
)
def test_commands(laser, commands, reply):
    assert laser(*commands) == reply


@pytest.mark.parametrize("terminator", [b"\r", b"\n", b"\r\n"])
def test_any_terminator_is_taken_and_cr_is_sent(laser, terminator):
    assert laser.session.receive(b":WAV 1541" + terminator + b":WAV?" + terminator) == b"1541.0000\r"


def test_light_needs_diode_and_open_shutter(laser):
    laser(":POW:UNIT 1", ":POW 10")
    for command, power in [(":POW:STAT 1", 0.0), (":POW:SHUT 0", 0.01), (":POW:SHUT 1", 0.0), (":POW:SHUT 0", 0.01)]:
        laser(command)
        laser.clock.sleep(1.0)
        assert laser.light() == pytest.approx(power)
    laser(":POW:STAT 0")  # darkness does not wait
    assert laser.light() == 0.0


def test_settings_take_time(laser):
    laser(":POW:UNIT 1", ":POW 10", ":POW:SHUT 0")
    laser.clock.sleep(1.0)
    assert laser("*OPC?") == "1\r"
    laser(":POW:STAT 1")
    assert (laser("*OPC?"), laser.light()) == ("0\r", 0.0)
    laser.clock.sleep(1.0)
    assert laser("*OPC?") == "1\r"
    assert laser.light() == pytest.approx(0.01)
    laser(":WAV 1560")
    laser.clock.sleep(0.09)
    assert laser("*OPC?") == "0\r"
    laser.clock.sleep(0.02)
    assert laser("*OPC?") == "1\r"
    laser(":WAV 1560")  # it is there already
    assert laser("*OPC?") == "1\r"


def test_attenuator_takes_over_from_automatic_power(laser):
    laser(":POW 0", ":POW:STAT 1", ":POW:SHUT 0", ":POW:ATT 10")
    laser.clock.sleep(1.0)
    assert laser.light() == pytest.approx(1e-3 * 10**0.3)
    laser(":POW:ATT:AUT 1")
    laser.clock.sleep(1.0)
    assert laser.light() == pytest.approx(1e-3)


@pytest.mark.parametrize(
    ("model", "commands", "reply"),
    [
        ("TSL-550", ["*IDN?"], "SANTEC,TSL-550,15020001,0001.0000.0001\r"),
        ("TSL-710", ["*IDN?"], "SANTEC,TSL-710,17020001,0001.0000.0001\r"),
        ("TSL-770", ["*IDN?"], "SANTEC,TSL-770,23020001,0001.0000.0001\r"),
        ("TSL-550", [":SOUR:WAV 1551", ":WAV?", "SOURCE:WAVELENGTH?"], "1551.0000\r1551.0000\r"),
        ("TSL-550", [":SOUR:POW:LEV 3", ":SOUR:POW:LEV?;UNIT?"], "3.00;0\r"),
        ("TSL-550", ["SOUR:WAV:SWE:STAT 1", "SOUR:WAV:SWE:STAT?", "WAV:SWE?"], "4\r4\r"),
        ("TSL-550", ["SOUR:TRIG:OUTP:STEP:WIDT 0.02", "TRIG:OUTP:STEP?"], "0.0200\r"),
        ("TSL-550", [":SYST:COMM:COD?", ":SYST:ERR?"], '-113,"Undefined header"\r'),
        ("TSL-550", [":WAV:SWE:SPE 0.5", ":WAV:SWE:SPE?", ":WAV:SWE:SPE 100", ":WAV:SWE:SPE?"], "0.5\r100\r"),
        ("TSL-550", [":WAV:SWE:SPE 0.4", ":WAV:SWE:SPE 101", ":SYST:ERR?", ":WAV:SWE:SPE?"], None),
        ("TSL-570", [":SOUR:WAV 1551", ":SYST:ERR?"], '-113,"Undefined header"\r'),
        ("TSL-570", [":WAV:SWE:SPE 200", ":WAV:SWE:SPE?"], "200\r"),
        ("TSL-570", [":WAV:SWE:SPE 3", ":SYST:ERR?", ":WAV:SWE:SPE?"], '-222,"Data out of range"\r10\r'),
        ("TSL-770", [":SYST:COMM:COD 1", ":SYST:COD?", ":WAV?"], "1\r+1.55000000E-006\r"),
    ],
)
def test_models(model, commands, reply):
    expected = '-222,"Data out of range"\r10\r' if reply is None else reply
    assert Laser(model)(*commands) == expected


def test_there_is_no_other_model():
    with pytest.raises(ConfigurationError, match="TSL-510"):
        Laser("TSL-510")


def test_interlock(laser):
    laser(":POW:STAT 1", ":POW:SHUT 0")
    laser.clock.sleep(1.0)
    assert laser.light() > 0.0
    laser.instrument.set_interlock(True)
    assert laser.light() == 0.0
    assert laser(":POW:STAT?", ":SYST:LOCK?", ":SYST:ALER?")[:5] == "0\r1\r7"
    assert laser(":POW:STAT 1", ":SYST:ERR?", ":POW:STAT?") == '-200,"Execution error"\r0\r'
    laser.instrument.set_interlock(False)
    assert laser(":POW:STAT 1", ":POW:STAT?", ":SYST:LOCK?", ":SYST:ALER?") == "1\r0\rNo alerts\r"


def test_error_floods_fill_the_queue(laser):
    assert laser.instrument.flood_errors(50) == b""
    assert laser(":SYST:ERR?") == '-410,"Query INTERRUPTED"\r'
    assert laser(*[":SYST:ERR?"] * 29).endswith('-350,"Queue overflow"\r')
    assert laser(":SYST:ERR?") == '0,"No error"\r'


def test_after_a_shutdown_only_power_helps(laser):
    laser(":WAV 1560", ":SPEC:SHUT")
    assert laser("*IDN?", ":WAV?") == ""
    laser.instrument.restart()
    assert laser(":WAV?") == "1550.0000\r"


COMMANDS = [
    ":WAV 1560", ":FREQ 195", ":WAV:FIN 5", ":WAV:UNIT 1", ":COHC 1", ":POW 7", ":POW:UNIT 1", ":POW:STAT 1",
    ":POW:SHUT 0", ":POW:ATT 3", ":POW:ATT:AUT 1", ":SYST:COMM:COD 1", ":SYST:COMM:GPIB:DEL 2",
    ":SYST:COMM:ETH:PORT 1", ":SYST:COMM:ETH:IPAD 10.0.0.7", ":WAV:SWE:STAR 1500", ":WAV:SWE:STOP 1501",
    ":WAV:SWE:STEP 2", ":FREQ:SWE:STEP 0.1", ":WAV:SWE:SPE 100", ":WAV:SWE:MOD 2", ":WAV:SWE:DWEL 1",
    ":WAV:SWE:DEL 2", ":WAV:SWE:CYCL 3", ":TRIG:OUTP 3", ":TRIG:OUTP:STEP 0.5", ":TRIG:OUTP:SETT 1",
    ":TRIG:INP:EXT 1", ":TRIG:INP:STAN 1", ":TRIG:INP:ACT 1", ":TRIG:THR 1", ":WAV:SWE 1", ":WAV:SWE:REP",
    ":WAV:SWE:SOFT", ":WAV:SWE 0", ":BAD", ":DISP:BRIG 3", ":SPEC:SHUT", "*RST",
]  # fmt: skip
QUESTIONS = [
    "*IDN?", "*OPC?", ":SYST:ERR?", ":SYST:ALER?", ":SYST:LOCK?", ":DISP:BRIG?", ":READ:POIN?", ":READ:DAT?",
    ":WAV:SWE?", ":WAV:SWE:COUN?", ":POW:ACT?", ":WAV:SWE:RANG:MIN?", ":FREQ?", ":SYST:COMM:ETH:IPAD?",
    *(f"{command.split()[0]}?" for command in COMMANDS if command[0] == ":" and " " in command),
]  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(COMMANDS) | st.floats(0.0, 3.0), max_size=12), st.booleans())
def test_after_a_restart_it_is_as_fresh_as_a_new_one(steps, reboot):
    used, fresh = Laser(), Laser()
    for step in steps:
        if isinstance(step, str):
            used(step)
        else:
            used.clock.sleep(step)
            fresh.clock.sleep(step)
    if reboot and ":SPEC:SHUT" not in steps:
        used(":SPEC:REB")
    else:
        used.instrument.restart()
    assert used(*QUESTIONS) == fresh(*QUESTIONS)
    assert used.light() == fresh.light() == 0.0
    for laser in (used, fresh):
        laser(":POW:STAT 1", ":POW:SHUT 0", ":WAV 1551")
        laser.clock.sleep(1.0)
    assert used(*QUESTIONS) == fresh(*QUESTIONS)
    assert used.light() == fresh.light() > 0.0
