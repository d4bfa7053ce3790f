"""The Santec driver against byte-exact scripts, in both command sets and both power units."""

import contextlib
import json
import math

import pytest
from _scripted_link import HangUp, ScriptServer
from qcodes.instrument import Instrument

from drivers import SantecTSL570
from optinc_hw.clock import SimulatedClock
from optinc_hw.errors import DeviceError, IdentityError, LimitError, LinkError, LinkTimeoutError, ReplyError

IDN = (b"*IDN?\r", b"SANTEC,TSL-570,21020001,0001.0000.0001\r")
NO_ERROR = (b":SYST:ERR?\r", b'0,"No error"\r')
LEGACY_AT_1550 = (b":WAV?\r", b"1550.0000\r")
SCPI_AT_1550 = (b":WAV?\r", b"+1.55000000E-006\r")
IN_DBM = (b":POW:UNIT?\r", b"0\r")
IN_MW = (b":POW:UNIT?\r", b"1\r")
AUTO = (b":POW:ATT:AUT?\r", b"1\r")
MANUAL = (b":POW:ATT:AUT?\r", b"0\r")
EMITS_1_MW = [AUTO, IN_DBM, (b":POW?\r", b"0.00\r")]
CLOSE_SHUTTER = [(b":POW:SHUT 1\r", None), NO_ERROR, (b":POW:SHUT?\r", b"1\r")]


@contextlib.contextmanager
def laser_on(*steps, **kwargs):
    with ScriptServer(IDN, *steps) as server:
        laser = SantecTSL570("laser", server.visa_address, **{"timeout": 5.0} | kwargs)
        laser.clock = SimulatedClock()
        try:
            yield laser
        finally:
            laser.close()


def test_connecting_and_closing_only_asks():
    with laser_on(IDN) as laser:
        assert laser.IDN()["model"] == "TSL-570"


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (b"Keysight Technologies,N7745C,1,2\r", IdentityError),
        (b"SANTEC,MPM-210H,1,2\r", IdentityError),
        (b"SSSSANTEC\r", ReplyError),
        (b"\xffSANTEC,TSL-570,1,2\r", ReplyError),
        (b"", LinkTimeoutError),
    ],
)
def test_wrong_identity_is_refused_and_leaves_nothing_behind(reply, error):
    with ScriptServer((b"*IDN?\r", reply)) as server, pytest.raises(error, match="laser at TCPIP"):
        SantecTSL570("laser", server.visa_address, timeout=0.1 if error is LinkTimeoutError else 5.0)
    assert not Instrument.exist("laser")


@pytest.mark.parametrize(
    ("present", "command"),
    [(LEGACY_AT_1550, b":WAV 1551.2345\r"), (SCPI_AT_1550, b":WAV 1.5512345E-06\r")],
)
def test_wavelength_is_set_in_the_unit_of_the_command_set(present, command):
    with laser_on(present, NO_ERROR, (command, None), NO_ERROR, present, *CLOSE_SHUTTER) as laser:
        laser.wavelength(1551.2345e-9)
        assert laser.wavelength() == pytest.approx(1550e-9, rel=1e-12)


@pytest.mark.parametrize(
    ("unit", "command", "reply"),
    [(IN_DBM, b":POW 6.99\r", b"6.99\r"), (IN_MW, b":POW 5.0000\r", b"+5.00000000E+000\r")],
)
def test_power_is_set_in_the_unit_in_force(unit, command, reply):
    with laser_on(unit, NO_ERROR, (command, None), NO_ERROR, unit, (b":POW?\r", reply), *CLOSE_SHUTTER) as laser:
        laser.power(5e-3)
        assert laser.power_dbm.cache.get(get_if_invalid=False) == pytest.approx(6.9897, abs=1e-4)
        assert laser.power() == pytest.approx(5e-3, rel=1e-3)


def test_power_as_a_level():
    steps = [IN_DBM, NO_ERROR, (b":POW -3.00\r", None), NO_ERROR, IN_DBM, (b":POW?\r", b"-3.00\r"), *CLOSE_SHUTTER]
    with laser_on(*steps) as laser:
        laser.power_dbm(-3.0)
        assert laser.power_dbm() == pytest.approx(-3.0)


def test_limits_are_checked_before_anything_is_sent():
    with laser_on(max_power=1e-3) as laser:
        for watts in (1.1e-3, 0.0, -1e-9, math.nan, math.inf):
            with pytest.raises(LimitError, match=r"laser: power cannot be .* 0\.001 W"):
                laser.set_power(watts)
        for metres in (1550.0, 0.0, math.nan, 193e12):
            with pytest.raises(LimitError, match="wavelength"):
                laser.set_wavelength(metres)
        with pytest.raises(LimitError, match="cannot be 3e-06 m; the limits are"):
            laser.set_wavelength((0.1 + 0.2) * 1e-5)
        with pytest.raises(LimitError, match="max_power"):
            laser.max_power = 0.0


def test_errors_of_others_are_logged_and_ours_are_raised_together(caplog):
    steps = [
        LEGACY_AT_1550,
        (b":SYST:ERR?\r", b'-113,"Undefined header"\r'),
        NO_ERROR,
        (b":WAV 1700.0000\r", None),
        (b":SYST:ERR?\r", b'-222,"Data out of range"\r'),
        (b":SYST:ERR?\r", b"-200,Execution error\r"),
        NO_ERROR,
        *CLOSE_SHUTTER,
    ]
    message = r":WAV 1700.*-222 Data out of range; -200 Execution error"
    with laser_on(*steps) as laser, pytest.raises(DeviceError, match=message):
        laser.set_wavelength(1700e-9)
    assert "Undefined header" in caplog.text


def test_endless_error_queue_ends():
    endless = [(b":SYST:ERR?\r", b'-350,"Queue overflow"\r')] * 100
    steps = [LEGACY_AT_1550, NO_ERROR, (b":WAV 1550.0000\r", None), *endless, *CLOSE_SHUTTER]
    with laser_on(*steps) as laser, pytest.raises(DeviceError, match="more than 100 others"):
        laser.set_wavelength(1550e-9)


def test_light_is_diode_and_shutter_with_the_inverted_sense_of_the_wire():
    steps = [*EMITS_1_MW, NO_ERROR, (b":POW:STAT 1\r", None), NO_ERROR, (b":POW:STAT?\r", b"1\r")]
    steps += [(b":POW:SHUT 0\r", None), NO_ERROR, (b":POW:SHUT?\r", b"0\r"), (b":POW:SHUT?\r", b"0\r")]
    steps += [(b":POW:STAT?\r", b"+1\r"), *CLOSE_SHUTTER, *CLOSE_SHUTTER]
    with laser_on(*steps) as laser:
        laser.set_light(True)
        assert laser.shutter_open() is True
        assert laser.output() is True
        laser.set_light(False)


def test_a_switch_that_does_not_switch_is_an_error():
    steps = [*EMITS_1_MW, NO_ERROR, (b":POW:SHUT 0\r", None), NO_ERROR, (b":POW:SHUT?\r", b"1\r"), *CLOSE_SHUTTER]
    with laser_on(*steps) as laser, pytest.raises(DeviceError, match=r"shutter.*although"):
        laser.shutter_open(True)


def test_settling_is_waited_for_on_the_clock_and_the_targets_are_verified():
    steps = [LEGACY_AT_1550, NO_ERROR, (b":WAV 1555.0000\r", None), NO_ERROR]
    steps += [IN_DBM, (b":POW 0.00\r", None), NO_ERROR]
    steps += [(b"*OPC?\r", b"0\r"), (b"*OPC?\r", b"0\r"), (b"*OPC?\r", b"1\r"), (b":WAV?\r", b"1555.0000\r")]
    steps += [IN_DBM, (b":POW?\r", b"0.00\r"), AUTO, *CLOSE_SHUTTER]
    with laser_on(*steps) as laser:
        laser.set_wavelength(1555e-9)
        laser.set_power(1e-3)
        laser.wait_settled(10.0)
        assert laser.clock.now() == pytest.approx(0.02)


def test_laser_that_never_settles():
    with laser_on(*[(b"*OPC?\r", b"0\r")] * 4) as laser, pytest.raises(DeviceError, match=r"within 0\.03 s"):
        laser.wait_settled(0.03)


@pytest.mark.parametrize("lost", ["wavelength", "power"])
def test_setting_that_was_silently_lost_is_found_after_settling(lost):
    if lost == "wavelength":
        steps = [SCPI_AT_1550, NO_ERROR, (b":WAV 1.5550000E-06\r", None), NO_ERROR, (b"*OPC?\r", b"1\r"), SCPI_AT_1550]
    else:
        steps = [
            IN_MW,
            NO_ERROR,
            (b":POW 2.0000\r", None),
            NO_ERROR,
            (b"*OPC?\r", b"1\r"),
            IN_MW,
            (b":POW?\r", b"1.9\r"),
        ]
    with laser_on(*steps, *CLOSE_SHUTTER) as laser:
        if lost == "wavelength":
            laser.set_wavelength(1555e-9)
        else:
            laser.set_power(2e-3)
        with pytest.raises(DeviceError, match=f"{lost} is .* although"):
            laser.wait_settled(1.0)


@pytest.mark.parametrize("reply", [b"193.4145\r", b"0\r", b"+9.91E+037\r", b"nan\r", b"1550,0\r"])
def test_what_is_no_wavelength_is_refused(reply):
    with laser_on((b":WAV?\r", reply)) as laser, pytest.raises(ReplyError):
        laser.wavelength()


@pytest.mark.parametrize(
    ("unit", "reply", "watts"),
    [
        (IN_DBM, b"-10.00\r", 1e-4),
        (IN_MW, b"0.1000\r", 1e-4),
        (IN_DBM, b"-200.00\r", None),
        (IN_DBM, b"-3.40282347E+038\r", None),
        (IN_DBM, b"-inf\r", None),
        (IN_DBM, b"+9.9E37\r", None),
        (IN_MW, b"-9.9E37\r", None),
        (IN_MW, b"9.91E37\r", None),
        (IN_DBM, b"NAN\r", None),
        (IN_MW, b"-0.000001\r", -1e-9),
        (IN_MW, b"0.0000\r", 0.0),
        (IN_MW, b"+1E-027\r", 1e-30),
    ],
)
def test_monitor_readings_and_codes(unit, reply, watts):
    with laser_on(unit, (b":POW:ACT?\r", reply)) as laser:
        reading = laser.power_actual()
        assert math.isnan(reading) if watts is None else reading == pytest.approx(watts)


@pytest.mark.parametrize("reply", [b"0.0000\r", b"-0.000001\r"])
def test_a_power_without_level_is_flagged(reply):
    with laser_on(IN_MW, (b":POW?\r", reply)) as laser:
        assert math.isnan(laser.power_dbm())


def test_sentinel_as_setpoint_is_refused():
    with laser_on(IN_DBM, (b":POW?\r", b"-200.00\r")) as laser, pytest.raises(ReplyError, match="no level"):
        laser.power()


def test_shutter_is_closed_through_a_reopened_link():
    steps = [IN_DBM, NO_ERROR, (b":POW 0.00\r", None), NO_ERROR, (b":WAV?\r", HangUp()), IDN, IDN]
    steps += [NO_ERROR, *CLOSE_SHUTTER]  # whose errors these are is not known after a break
    with laser_on(*steps) as laser:
        laser.set_power(1e-3)
        with pytest.raises(LinkError):
            laser.wavelength()


def test_another_laser_behind_the_reopened_link_gets_no_command(caplog):
    other = (b"*IDN?\r", b"SANTEC,TSL-570,99999999,0001.0000.0001\r")
    steps = [IN_DBM, NO_ERROR, (b":POW 0.00\r", None), NO_ERROR, (b":WAV?\r", HangUp()), other, other]
    with laser_on(*steps) as laser:
        laser.set_power(1e-3)
        with pytest.raises(LinkError):
            laser.wavelength()
    assert "99999999" in caplog.text


def test_crlf_replies_are_understood():
    with laser_on((b":WAV?\r", b"1550.0000\r\n"), (b":POW:SHUT?\r", b"\n1\r\n")) as laser:
        assert laser.wavelength() == pytest.approx(1550e-9)
        assert laser.shutter_open() is False


def test_snapshots_use_the_bus_as_documented():
    read = [IDN, LEGACY_AT_1550, IN_DBM, (b":POW?\r", b"0.00\r"), AUTO]
    read += [(b":POW:STAT?\r", b"0\r"), (b":POW:SHUT?\r", b"1\r")]
    with laser_on(*read * 2) as laser:
        laser.snapshot_base(False)
        laser.snapshot_base(None)
        laser.snapshot_base("Only_invalid")
        snapshot = laser.snapshot_base("All")
        assert snapshot == json.loads(json.dumps(snapshot, allow_nan=False))
        assert snapshot["parameters"]["shutter_open"]["value"] is False
