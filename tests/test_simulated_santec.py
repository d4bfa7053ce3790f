"""The simulated Santec laser: command by command, and driven by pymeasure over a socket."""

import math

import pytest
from pymeasure.instruments.santec import TSL570

from optinc_hw.clock import SimulatedClock
from simulated_instruments import HiddenChip, HiddenEffects, SimulatedBench, SimulatedSantecTSL570, default_bench


class Laser:
    """A laser on an ideal chip, asked through one session."""

    def __init__(self):
        self.clock = SimulatedClock()
        self.chip = HiddenChip.from_seed(0, 2, effects=HiddenEffects.none(), clock=self.clock)
        self.session = SimulatedSantecTSL570(self.chip, self.clock).open_session()

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
        ([":POW:ACT?"], "-60.00\r"),
        ([":POW 7", ":POW:STAT 1", ":POW:ACT?"], "7.00\r"),
        ([":SYST:LOCK?", ":SYST:ERR?"], '0\r0,"No error"\r'),
        ([":NONSENSE 1", "SYST:ERR?"], '-113,"Undefined header"\r'),
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


def test_pymeasure_sets_and_reads_wavelength_and_power():
    clock = SimulatedClock()
    chip = HiddenChip.from_seed(0, 2, effects=HiddenEffects.none(), clock=clock)
    with SimulatedBench(chip, *default_bench(2), clock) as bench:
        laser = TSL570(
            bench.addresses["laser"], visa_library="@py", read_termination="\r", write_termination="\r", timeout=5000
        )
        try:
            assert laser.id == "SANTEC,TSL-570,21020001,0001.0000.0001"
            laser.wavelength_setpoint = 1545.5
            assert laser.wavelength_setpoint == pytest.approx(1545.5)
            laser.command_set = "SCPI"
            assert laser.command_set == "SCPI"
            laser.wavelength_setpoint = 1.5523e-6
            assert laser.wavelength_setpoint == pytest.approx(1.5523e-6)
            assert laser.frequency_setpoint == pytest.approx(299_792_458 / 1.5523e-6, rel=1e-7)
            assert laser.wavelength_min == pytest.approx(1.48e-6)
            laser.power_unit = "dBm"
            laser.power_setpoint = 6.5
            assert laser.power_setpoint == pytest.approx(6.5)
            laser.output_enabled = True
            assert laser.power == pytest.approx(6.5)
            laser.power_unit = "mW"
            assert laser.power == pytest.approx(10**0.65, rel=1e-6)
            laser.write(":POW:SHUT 0")
            assert laser.check_errors() == []
            clock.sleep(5.0)
            assert chip.detector_powers().sum() / 0.15 == pytest.approx(10**0.65 * 1e-3, rel=1e-6)
            laser.wavelength_setpoint = 1.7e-6
            assert math.isclose(laser.wavelength_setpoint, 1.5523e-6)
        finally:
            laser.adapter.close()
