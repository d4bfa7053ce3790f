"""The Keysight laser driver against byte-exact scripts, and whole sweeps on its simulated instruments."""

import json
import math

import pytest
from _scripted_link import HangUp, ScriptServer
from keysight_laser_scripts import IDN, IN_DBM, IN_WATTS, LOCKED, NO_ERROR, OFF, POWER_1_MW, RANGE, UNLOCKED, laser_on
from qcodes.instrument import Instrument

from drivers import KeysightLaser
from optinc_hw.errors import ConfigurationError, DeviceError, IdentityError, LimitError, LinkError, ReplyError


def test_connecting_and_closing_only_asks():
    with laser_on(IDN) as laser:
        assert laser.IDN()["model"] == "N7776C"


def test_the_module_of_a_mainframe_is_asked_for():
    connect = [
        (b"*IDN?\n", b"Agilent Technologies,8164B,DE1,V5\n"),
        (b"slot2:idn?\n", b"Agilent Technologies ,81600B  ,DE2,V4\n"),
        (b"sour2:wav? min\n", b"+1.44000000E-006\n"),
        (b"sour2:wav? max\n", b"+1.64000000E-006\n"),
    ]
    path = [NO_ERROR, (b"outp2:path lows\n", None), NO_ERROR, *[(b"outp2:path?\n", b"LOWS\n")] * 2]
    with laser_on((b"sour2:wav?\n", b"+1.55000000E-006\n"), *path, connect=connect, model="8164B", slot=2) as laser:
        assert laser.wavelength() == pytest.approx(1550e-9)
        laser.output_path("low_sse")
        assert laser.output_path() == "low_sse"


@pytest.mark.parametrize(
    ("steps", "kwargs", "error"),
    [
        ([(b"*IDN?\n", b"Agilent Technologies,N7745A,DE1,V1\n")], {}, IdentityError),
        ([(b"*IDN?\n", b"SANTEC,N7776C,1,2\n")], {}, IdentityError),
        ([IDN], {"model": "N7778C"}, IdentityError),
        ([IDN], {"slot": 1}, IdentityError),
        ([(b"*IDN?\n", b"\xffKeysight,N7776C,1,2\n")], {}, ReplyError),
        ([(b"*IDN?\n", b"Agilent,8164B,1,2\n"), (b"slot0:idn?\n", b"Agilent,81635A,1,2\n")], {}, IdentityError),
        ([(b"*IDN?\n", b"Agilent,8164B,1,2\n"), (b"slot0:idn?\n", b"\xfe\n")], {}, ReplyError),
        ([IDN, (b"sour0:wav? min\n", b"+1.48000000E+003\n")], {}, ReplyError),
    ],
)
def test_what_is_not_the_laser_is_refused_and_leaves_nothing_behind(steps, kwargs, error):
    with ScriptServer(*steps) as server, pytest.raises(error, match="laser at TCPIP"):
        KeysightLaser("laser", server.visa_address, timeout=5.0, **kwargs)
    assert not Instrument.exist("laser")


@pytest.mark.parametrize("kwargs", [{"model": "N7711A"}, {"slot": 5}, {"slot": -1}])
def test_arguments_that_cannot_be(kwargs):
    with pytest.raises(ConfigurationError, match="laser"):
        KeysightLaser("laser", "TCPIP0::127.0.0.1::1::SOCKET", **kwargs)


def test_wavelength_goes_out_with_its_unit_and_comes_back_in_metres():
    steps = [NO_ERROR, (b"sour0:wav 1551.2345nm\n", None), NO_ERROR, (b"sour0:wav?\n", b"+1.55123450E-006\n"), *OFF]
    with laser_on(*steps) as laser:
        laser.wavelength(1551.2345e-9)
        assert laser.wavelength() == pytest.approx(1551.2345e-9, rel=1e-12)


@pytest.mark.parametrize("reply", [b"+1.55000000E+003\n", b"1550\n", b"+9.91E+037\n", b"nan\n", b"1,55E-6\n", b"+0\n"])
def test_what_is_no_wavelength_in_metres_is_refused(reply):
    with laser_on((b"sour0:wav?\n", reply)) as laser, pytest.raises(ReplyError):
        laser.wavelength()


@pytest.mark.parametrize(
    ("unit", "reply", "watts"),
    [
        (IN_DBM, b"+3.01030000E+000\n", 2e-3),
        (IN_WATTS, b"+2.00000000E-003\n", 2e-3),
        (IN_DBM, b"-2.00000000E+002\n", None),
        (IN_WATTS, b"-1.00000000E+001\n", None),
        (IN_WATTS, b"+1.00000000E+001\n", None),  # 10 dBm, not 10 W
        (IN_WATTS, b"+3.40282347E+038\n", None),
        ((b"sour0:pow:unit?\n", b"+2\n"), None, None),
    ],
)
def test_power_is_read_in_the_unit_in_force(unit, reply, watts):
    steps = [unit] if reply is None else [unit, (b"sour0:pow?\n", reply)]
    with laser_on(*steps) as laser:
        if watts is None:
            with pytest.raises(ReplyError):
                laser.power()
        else:
            assert laser.power() == pytest.approx(watts)


@pytest.mark.parametrize(
    ("name", "value", "command", "reply"),
    [
        ("sweep_start", 1540e-9, b"sour0:wav:swe:star 1540.0000nm", b"+1.54000000E-006"),
        ("sweep_step", 10e-12, b"sour0:wav:swe:step 10.0pm", b"+1.00000000E-011"),
        ("sweep_speed", 40e-9, b"sour0:wav:swe:spe 40.000000nm/s", b"+4.00000000E-008"),
        ("sweep_dwell", 0.2, b"sour0:wav:swe:dwel 0.200000s", b"+2.00000003E-001"),
        ("sweep_cycles", 3, b"sour0:wav:swe:cycl 3", b"+3"),
        ("sweep_two_way", True, b"sour0:wav:swe:rep TWOW", b"TWOW"),
        ("lambda_logging", True, b"sour0:wav:swe:llog 1", b"+1"),
        ("trigger_input", "sweep_start", b"trig0:inp SWS", b"SWS"),
        ("trigger_output", "step", b"trig0:outp STF", b"STF"),
        ("trigger_route", "loop_back", b"trig:conf LOOP", b"LOOP"),
    ],
)
def test_settings_are_read_back(name, value, command, reply):
    query = command.split()[0] + b"?\n"
    steps = [NO_ERROR, (command + b"\n", None), NO_ERROR, (query, reply + b"\n")]
    with laser_on(*steps) as laser:
        laser.parameters[name](value)
    other = {"sweep_two_way": b"ONEW", "trigger_input": b"IGN", "trigger_output": b"DIS", "trigger_route": b"DEF"}
    steps[-1] = (query, other.get(name, b"+0") + b"\n")
    if name == "sweep_start":
        steps[-1] = (query, b"+1.54500000E-006\n")
    with laser_on(*steps) as laser, pytest.raises(DeviceError, match=f"{name} is .* although"):
        laser.parameters[name](value)


def test_power_goes_out_with_its_unit():
    steps = [NO_ERROR, (b"sour0:pow 5.000000mW\n", None), NO_ERROR, (b"sour0:pow 0.501187mW\n", None), NO_ERROR, *OFF]
    with laser_on(*steps) as laser:
        laser.power(5e-3)
        laser.power_dbm(-3.0)


def test_limits_are_checked_before_anything_is_sent():
    with laser_on(max_power=1e-3) as laser:
        for watts in (1.1e-3, 0.0, -1e-9, math.nan, math.inf):
            with pytest.raises(LimitError, match="laser: power cannot be"):
                laser.set_power(watts)
        for metres in (1550.0, 1479e-9, 1621e-9, math.nan):
            with pytest.raises(LimitError, match="laser: wavelength cannot be"):
                laser.set_wavelength(metres)
        for sweep in [(1560e-9, 1550e-9, 1e-8, 1e-11), (1550e-9, 1560e-9, 0.0, 1e-11), (1550e-9, 1560e-9, 1e-8, 1e-14)]:
            with pytest.raises(LimitError, match="laser: a sweep"):
                laser.sweep(*sweep)
        with pytest.raises(LimitError, match="arm_sweep"):
            laser.finish_sweep()
        for pin in ("", "12a4", "1234\nsour0:pow:stat 1", "1,2"):
            with pytest.raises(LimitError, match="PIN"):
                laser.unlock(pin)


def test_errors_of_others_are_logged_and_ours_are_raised_together(caplog):
    steps = [(b"syst:err?\n", b'-113,"Undefined header"\n'), NO_ERROR, (b"sour0:wav 1550.0000nm\n", None)]
    steps += [
        (b"syst:err?\n", b'-222,"Data out of range"\n'),
        (b"syst:err?\n", b'-221,"Settings conflict"\n'),
        NO_ERROR,
    ]
    message = r"sour0:wav 1550.*-222 Data out of range; -221 Settings conflict"
    with laser_on(*steps, *OFF) as laser, pytest.raises(DeviceError, match=message):
        laser.set_wavelength(1550e-9)
    assert "Undefined header" in caplog.text


def test_light_is_switched_on_and_verified():
    on = [*POWER_1_MW, UNLOCKED, NO_ERROR, (b"sour0:pow:stat 1\n", None), NO_ERROR, (b"sour0:pow:stat?\n", b"+1\n")]
    with laser_on(*on, *OFF, *OFF) as laser:
        laser.set_light(True)
        laser.set_light(False)
    on[-1] = (b"sour0:pow:stat?\n", b"+0\n")
    with laser_on(*on, *OFF) as laser, pytest.raises(DeviceError, match=r"output.* although"):
        laser.set_light(True)


def test_too_much_light_is_not_let_out():
    with laser_on(*POWER_1_MW, max_power=0.5e-3) as laser, pytest.raises(LimitError, match="max_power"):
        laser.set_light(True)


def test_a_locked_laser_is_unlocked_only_on_demand():
    steps = [*POWER_1_MW, LOCKED, NO_ERROR, (b"lock 0,1234\n", None), NO_ERROR, UNLOCKED]
    steps += [(b"lock 1,1234\n", None), NO_ERROR, LOCKED, (b"lock 0,4321\n", None)]
    steps += [(b"syst:err?\n", b'-203,"Command protected"\n'), NO_ERROR]
    with laser_on(*steps, *OFF) as laser:
        with pytest.raises(DeviceError, match=r"locked.*unlock\(\)"):
            laser.set_light(True)
        laser.unlock("1234")
        laser.lock("1234")
        with pytest.raises(DeviceError, match="Command protected"):
            laser.unlock("4321")


def test_settling_is_waited_for_by_the_laser_and_verified():
    steps = [NO_ERROR, (b"sour0:wav 1555.0000nm\n", None), NO_ERROR, (b"sour0:pow 1.000000mW\n", None), NO_ERROR]
    steps += [(b"*OPC?\n", b"1\n"), (b"sour0:wav?\n", b"+1.55500000E-006\n"), *POWER_1_MW]
    steps += [(b"*OPC?\n", b"1\n"), (b"sour0:wav?\n", b"+1.55500100E-006\n"), *OFF]
    with laser_on(*steps) as laser:
        laser.set_wavelength(1555e-9)
        laser.set_power(1e-3)
        laser.wait_settled(10.0)
        with pytest.raises(DeviceError, match=r"wavelength is .* although"):
            laser.wait_settled(10.0)


def test_a_laser_that_never_settles():
    with laser_on((b"*OPC?\n", None)) as laser:
        laser.timeout(0.05)
        with pytest.raises(DeviceError, match=r"within 0\.05 s"):
            laser.wait_settled(0.05)


def test_laser_is_switched_off_through_a_reopened_link():
    steps = [
        NO_ERROR,
        (b"sour0:pow 1.000000mW\n", None),
        NO_ERROR,
        (b"sour0:wav?\n", HangUp()),
        IDN,
        IDN,
        *RANGE,
        NO_ERROR,
        *OFF,
    ]
    with laser_on(*steps) as laser:
        laser.set_power(1e-3)
        with pytest.raises(LinkError):
            laser.wavelength()


def test_snapshots_use_the_bus_as_documented():
    read = [IDN, (b"sour0:wav?\n", b"+1.55E-006\n"), *POWER_1_MW, (b"sour0:pow:stat?\n", b"+0\n"), UNLOCKED]
    with laser_on(*read * 2) as laser:
        laser.snapshot_base(False)
        laser.snapshot_base(None)
        laser.snapshot_base("Only_invalid")
        snapshot = laser.snapshot_base("All")
        assert snapshot == json.loads(json.dumps(snapshot, allow_nan=False))
        assert snapshot["parameters"]["locked"]["value"] is False
