"""Limits on the light, units and settings of the Santec driver: byte-exact dialogues in both command sets."""

import contextlib
import math

import pytest
from _scripted_link import ScriptServer
from qcodes.instrument import Instrument

from drivers import SantecTSL570
from optinc_hw.clock import SimulatedClock
from optinc_hw.errors import ConfigurationError, DeviceError, IdentityError, LimitError, ReplyError

NO_ERROR = (b":SYST:ERR?\r", b'0,"No error"\r')
LEGACY, SCPI = (b":WAV?\r", b"1550.0000\r"), (b":WAV?\r", b"+1.55000000E-006\r")
IN_DBM, IN_MW = (b":POW:UNIT?\r", b"0\r"), (b":POW:UNIT?\r", b"1\r")
AUTO, MANUAL = (b":POW:ATT:AUT?\r", b"1\r"), (b":POW:ATT:AUT?\r", b"0\r")
CLOSE_SHUTTER = [(b":POW:SHUT 1\r", None), NO_ERROR, (b":POW:SHUT?\r", b"1\r")]
DIODE_ON = [(b":POW:STAT 1\r", None), NO_ERROR, (b":POW:STAT?\r", b"1\r")]
OPEN_SHUTTER = [(b":POW:SHUT 0\r", None), NO_ERROR, (b":POW:SHUT?\r", b"0\r")]


def idn(model):
    return (b"*IDN?\r", b"SANTEC,%s,21020001,0001.0000.0001\r" % model.encode())


@contextlib.contextmanager
def laser_on(*steps, answers="TSL-570", **kwargs):
    with ScriptServer(idn(answers), *steps) as server:
        laser = SantecTSL570("laser", server.visa_address, **{"timeout": 5.0} | kwargs)
        laser.clock = SimulatedClock()
        try:
            yield laser
        finally:
            laser.close()


@pytest.mark.parametrize("model", ["TSL-550", "TSL-570", "TSL-710", "TSL-770"])
def test_any_model_answers_or_the_one_that_is_named(model):
    with laser_on(answers=model) as laser:
        assert laser.model == model
    with laser_on(answers=model, model=model) as laser:
        assert ("command_set" in laser.parameters) == (model in ("TSL-570", "TSL-770"))


def test_another_model_than_the_one_that_is_named_is_refused():
    with ScriptServer(idn("TSL-570")) as server, pytest.raises(IdentityError, match="SANTEC TSL-770"):
        SantecTSL570("laser", server.visa_address, model="TSL-770", timeout=5.0)
    assert not Instrument.exist("laser")


def test_a_model_that_does_not_exist_is_refused_before_connecting():
    with pytest.raises(ConfigurationError, match=r"TSL-500.*TSL-550, TSL-570, TSL-710, TSL-770"):
        SantecTSL570("laser", "TCPIP0::127.0.0.1::1::SOCKET", model="TSL-500")
    assert not Instrument.exist("laser")


@pytest.mark.parametrize(
    ("reads", "power"),
    [
        ([AUTO, IN_DBM, (b":POW?\r", b"13.00\r")], r"0\.0199"),
        ([AUTO, IN_MW, (b":POW?\r", b"1.1000\r")], r"0\.0011"),
        ([MANUAL, (b":POW:ATT?\r", b"10.00\r")], r"0\.00199"),
    ],
)
def test_light_above_the_limit_is_not_let_out_whoever_set_it(reads, power):
    """The power may have been set at the front panel, or the attenuator may be by hand."""
    with laser_on(*reads * 3, max_power=1e-3) as laser:
        message = rf"set to emit {power}.* W, but max_power is 0\.001 W"
        with pytest.raises(LimitError, match=message):
            laser.set_light(True)
        with pytest.raises(LimitError, match=message):
            laser.shutter_open(True)
        with pytest.raises(LimitError, match=message):
            laser.output(True)


@pytest.mark.parametrize("reads", [[AUTO, IN_DBM, (b":POW?\r", b"0.00\r")], [MANUAL, (b":POW:ATT?\r", b"13.00\r")]])
def test_light_at_the_limit_is_let_out(reads):
    steps = [*reads, NO_ERROR, *DIODE_ON, *OPEN_SHUTTER, *CLOSE_SHUTTER]
    with laser_on(*steps, max_power=1e-3) as laser:
        laser.set_light(True)


def test_the_attenuator_cannot_be_opened_beyond_the_limit():
    steps = [NO_ERROR, (b":POW:ATT 13.00\r", None), NO_ERROR, *[(b":POW:ATT?\r", b"13.00\r")] * 2]
    steps += [(b":POW:ATT?\r", b"12.00\r"), IN_DBM, (b":POW?\r", b"1.00\r"), *CLOSE_SHUTTER]
    with laser_on(*steps, max_power=1e-3) as laser:
        with pytest.raises(LimitError, match=r"attenuation of 12\.9 dB could emit 0\.00102"):
            laser.attenuation(12.9)
        laser.attenuation(13.0)
        assert laser.attenuation() == 13.0
        with pytest.raises(LimitError, match="automatic power control off could emit"):
            laser.auto_power(False)
        with pytest.raises(LimitError, match="automatic power control on could emit"):
            laser.auto_power(True)


def test_automatic_power_control_is_switched_and_verified():
    steps = [(b":POW:ATT?\r", b"0.00\r"), NO_ERROR, (b":POW:ATT:AUT 0\r", None), NO_ERROR, MANUAL]
    steps += [IN_DBM, (b":POW?\r", b"0.00\r"), (b":POW:ATT:AUT 1\r", None), NO_ERROR, MANUAL, *CLOSE_SHUTTER]
    with laser_on(*steps) as laser:
        laser.auto_power(False)
        with pytest.raises(DeviceError, match=r"automatic power control .* is 0 .*although 1"):
            laser.auto_power(True)


def test_a_power_that_the_attenuator_does_not_follow_is_not_settled():
    steps = [IN_DBM, NO_ERROR, (b":POW 0.00\r", None), NO_ERROR, (b"*OPC?\r", b"1\r")]
    steps += [IN_DBM, (b":POW?\r", b"0.00\r"), MANUAL, *CLOSE_SHUTTER]
    with laser_on(*steps) as laser:
        laser.set_power(1e-3)
        with pytest.raises(DeviceError, match="automatic power control is off"):
            laser.wait_settled(1.0)


@pytest.mark.parametrize(
    ("present", "command", "reply"),
    [(LEGACY, b":FREQ 193.41449\r", b"193.41449\r"), (SCPI, b":FREQ 1.9341449E+14\r", b"+1.93414490E+014\r")],
)
def test_frequency_in_the_unit_of_the_command_set(present, command, reply):
    steps = [present, NO_ERROR, (command, None), NO_ERROR, (b":FREQ?\r", reply)]
    steps += [(b"*OPC?\r", b"1\r"), LEGACY, *CLOSE_SHUTTER]
    with laser_on(*steps) as laser:
        laser.frequency(193.41449e12)
        assert laser.frequency() == pytest.approx(193.41449e12, rel=1e-12)
        laser.wait_settled(1.0)  # the wavelength belongs to the frequency


@pytest.mark.parametrize("reply", [b"1550.0000\r", b"0\r", b"1.55E-6\r", b"9.91E37\r"])
def test_what_is_no_frequency_is_refused(reply):
    with laser_on((b":FREQ?\r", reply)) as laser, pytest.raises(ReplyError, match=r"frequency|out-of-range"):
        laser.frequency()


def test_units_follow_the_laser_when_somebody_switches_them_in_between():
    steps = [IN_DBM, (b":POW?\r", b"3.00\r"), IN_MW, (b":POW?\r", b"3.0000\r")]
    steps += [LEGACY, NO_ERROR, (b":WAV 1551.0000\r", None), NO_ERROR, SCPI, (b":WAV 1.5520000E-06\r", None), NO_ERROR]
    with laser_on(*steps, *CLOSE_SHUTTER) as laser:
        assert laser.power() == pytest.approx(10**0.3 * 1e-3)
        assert laser.power() == pytest.approx(3e-3)
        laser.wavelength(1551e-9)
        laser.wavelength(1552e-9)


def test_command_set_and_power_unit_are_switched_only_on_request():
    steps = [(b":SYST:COMM:COD?\r", b"0\r"), NO_ERROR, (b":SYST:COMM:COD 1\r", None), NO_ERROR]
    steps += [(b":SYST:COMM:COD?\r", b"1\r"), (b":POW:UNIT 1\r", None), NO_ERROR, IN_MW, IN_MW]
    with laser_on(*steps) as laser:
        assert laser.command_set() == "legacy"
        laser.command_set("scpi")
        laser.power_unit("mW")
        assert laser.power_unit() == "mW"


def test_fine_tuning_and_coherence():
    steps = [NO_ERROR, (b":WAV:FIN -12.50\r", None), NO_ERROR, *[(b":WAV:FIN?\r", b"-12.50\r")] * 2]
    steps += [(b":WAV:FIN:DIS\r", None), NO_ERROR, (b":COHC 1\r", None), NO_ERROR, *[(b":COHC?\r", b"1\r")] * 2]
    with laser_on(*steps) as laser:
        laser.fine_tuning(-12.5)
        assert laser.fine_tuning() == -12.5
        laser.stop_fine_tuning()
        laser.coherence_control(True)
        assert laser.coherence_control() is True


@pytest.mark.parametrize("shutter", [b"0\r", b"1\r"])
def test_a_laser_that_went_dark_by_itself_has_not_settled(shutter):
    """After a power failure, for example, in which it may be at the wavelength and power that were set."""
    steps = [AUTO, IN_DBM, (b":POW?\r", b"0.00\r"), NO_ERROR, *DIODE_ON, *OPEN_SHUTTER, (b"*OPC?\r", b"1\r")]
    steps += [(b":POW:STAT?\r", b"1\r"), (b":POW:SHUT?\r", shutter), *CLOSE_SHUTTER]
    with laser_on(*steps) as laser:
        laser.set_light(True)
        dark = pytest.raises(DeviceError, match=r"shutter \(:POW:SHUT\) is 1 .*although 0")
        with dark if shutter == b"1\r" else contextlib.nullcontext():
            laser.wait_settled(1.0)


def test_a_setting_that_was_lost_on_the_way_is_noticed():
    steps = [NO_ERROR, (b":COHC 1\r", None), NO_ERROR, (b":COHC?\r", b"0\r")]
    steps += [LEGACY, (b":TRIG:OUTP:STEP 0.0200\r", None), NO_ERROR, (b":TRIG:OUTP:STEP?\r", b"0.0100\r")]
    steps += [(b":WAV:SWE:SPE 50\r", None), NO_ERROR, (b":WAV:SWE:SPE?\r", b"10\r")]
    with laser_on(*steps) as laser:
        with pytest.raises(DeviceError, match=r":COHC is False .*although True"):
            laser.coherence_control(True)
        with pytest.raises(DeviceError, match=r":TRIG:OUTP:STEP is 1e-11 m although 2e-11 m"):
            laser.trigger_step(20e-12)
        with pytest.raises(DeviceError, match=r":WAV:SWE:SPE is 10 nm/s although 50 nm/s"):
            laser.sweep_speed(50e-9)


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (b'7,"Inter lock detection"\r', "7 interlock open"),
        (b"23\r", "23 warming up"),
        (b"No.28 Exhaust Fan Error\r", "28 fan error"),
        (b"99,Unheard of\r", "99 Unheard of"),
        (b"No alerts\r", "No alerts"),
    ],
)
def test_alerts_in_words(reply, text):
    with laser_on((b":SYST:ALER?\r", reply), (b":SYST:LOCK?\r", b"1\r")) as laser:
        assert laser.alert() == text
        assert laser.interlocked() is True


def test_the_residual_error_is_there_after_settling_and_unknown_before():
    steps = [
        LEGACY,
        NO_ERROR,
        (b":WAV 1551.0000\r", None),
        NO_ERROR,
        (b"*OPC?\r", b"1\r"),
        (b":WAV?\r", b"1551.0002\r"),
    ]
    with laser_on(*steps, *CLOSE_SHUTTER) as laser:
        assert math.isnan(laser.wavelength_error())
        laser.set_wavelength(1551e-9)
        laser.wait_settled(1.0)
        assert laser.wavelength_error.cache.get(get_if_invalid=False) == pytest.approx(2e-13, abs=1e-17)
        assert laser.wavelength.cache.get(get_if_invalid=False) == pytest.approx(1551.0002e-9)
