"""The CoBrite driver against byte-exact scripts, and settling on its simulated instrument."""

import contextlib
import json
import math

import pytest
from _scripted_link import HangUp, ScriptServer
from driver_cases import CASES, opened, simulated
from hypothesis import given
from hypothesis import strategies as st
from qcodes.instrument import Instrument

from drivers import CobriteLaser
from drivers._cobrite_protocol import parse_identity, parse_layout
from optinc_hw.clock import SimulatedClock
from optinc_hw.errors import ConfigurationError, DeviceError, IdentityError, LimitError, LinkError, ReplyError

IDN = (b"*IDN?;", b"ID Photonics,CoBrite-DX,21070001,2.2.0;")
LAY = (b"LAY?;", b"LAY,1,1,DEV2;")
LIM = (b"LIM? 1,1,1;", b"191.5,196.25,6.0,6.0,15.5;")
CONNECT = [IDN, LAY, LIM]
OFF = [(b"STAT 1,1,1,0;", b"OK;"), (b"STAT? 1,1,1;", b"0;")]
ACCEPTED = b"OK;"


@contextlib.contextmanager
def laser_on(*steps, connect=CONNECT, **kwargs):
    with ScriptServer(*connect, *steps) as server:
        laser = CobriteLaser("laser", server.visa_address, **{"timeout": 5.0} | kwargs)
        laser.clock = SimulatedClock()
        try:
            yield laser
        finally:
            laser.close()


def test_connecting_and_closing_only_asks():
    with laser_on(IDN) as laser:
        assert laser.IDN() == {
            "vendor": "ID Photonics", "model": "CoBrite-DX", "serial": "21070001", "firmware": "2.2.0",
        }  # fmt: skip


def test_mx_with_its_header_and_empty_slots():
    layout = (b"LAY?;", b"SYSTEM MX,1\n1,1,TLS4\r\n1,2,EMP\n1,3,TLS1;")
    idn = (b"*IDN?;", b"ID Photonics,CoBrite-MX,21070001;")
    limits = (b"LIM? 1,1,4;", LIM[1])
    wavelength = (b"WAV? 1,1,4;", b"1550.1;")
    with laser_on(wavelength, connect=[idn, layout, limits], model="MX", port=[1, 1, 4]) as laser:
        assert laser.wavelength() == pytest.approx(1550.1e-9)


@pytest.mark.parametrize(
    ("steps", "kwargs", "error"),
    [
        ([(b"*IDN?;", b"SANTEC,TSL-570,21020001,0001.0000.0001;")], {}, IdentityError),
        ([(b"*IDN?;", b"\xffID Photonics,CoBrite-DX,1,2;")], {}, ReplyError),
        ([(b"*IDN?;", b"CoBrite;")], {}, ReplyError),
        ([IDN, LAY], {"port": (1, 1, 3)}, IdentityError),
        ([IDN, LAY], {"port": (1, 2, 1)}, IdentityError),
        ([IDN, LAY], {"model": "MX"}, IdentityError),
        ([IDN, (b"LAY?;", b"1,1,TLS4\nLAY,1,1,DEV2;")], {}, ReplyError),
        ([IDN, LAY, (b"LIM? 1,1,1;", b"ERR 104,power down;")], {}, DeviceError),
        ([IDN, LAY, (b"LIM? 1,1,1;", b"191.5,196.25,6.0,6.0;")], {}, ReplyError),
        ([IDN, LAY, (b"LIM? 1,1,1;", b"196.25,191.5,6.0,6.0,15.5;")], {}, ReplyError),
    ],
)
def test_what_is_not_the_laser_is_refused_and_leaves_nothing_behind(steps, kwargs, error):
    with ScriptServer(*steps) as server, pytest.raises(error, match="laser at TCPIP"):
        CobriteLaser("laser", server.visa_address, timeout=5.0, **kwargs)
    assert not Instrument.exist("laser")


@pytest.mark.parametrize("kwargs", [{"model": "DX3"}, {"port": (1, 1)}, {"port": (1, 1, 0)}])
def test_arguments_that_cannot_be(kwargs):
    with pytest.raises(ConfigurationError, match="laser"):
        CobriteLaser("laser", "TCPIP0::127.0.0.1::1::SOCKET", **kwargs)
    assert not Instrument.exist("laser")


def test_wavelength_frequency_offset_and_power_are_read_back():
    steps = [(b"WAV 1,1,1,1551.2345;", ACCEPTED), (b"WAV? 1,1,1;", b"1551.2345;")]
    steps += [(b"FREQ 1,1,1,193.500000;", ACCEPTED), (b"FREQ? 1,1,1;", b"193.5000;")]
    steps += [(b"OFF 1,1,1,-1.500;", ACCEPTED), (b"OFF? 1,1,1;", b"-1.5;")]
    steps += [(b"POW 1,1,1,10.00;", ACCEPTED), (b"POW? 1,1,1;", b"10.00;"), (b"POW? 1,1,1;", b"10.00;"), *OFF]
    with laser_on(*steps) as laser:
        laser.wavelength(1551.2345e-9)
        assert laser.frequency.cache() == pytest.approx(299_792_458 / 1551.2345e-9)
        laser.frequency(193.5e12)
        assert laser.wavelength.cache() == pytest.approx(299_792_458 / 193.5e12)
        laser.frequency_offset(-1.5e9)
        laser.power(10e-3)
        assert laser.power_dbm() == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("set_it", "steps", "what"),
    [
        (lambda laser: laser.set_wavelength(1551e-9), [b"WAV 1,1,1,1551.0000;", b"WAV? 1,1,1;", b"1550.1;"], "WAV"),
        (lambda laser: laser.set_frequency(193e12), [b"FREQ 1,1,1,193.000000;", b"FREQ? 1,1,1;", b"193.1;"], "FREQ"),
        (lambda laser: laser.frequency_offset(1e9), [b"OFF 1,1,1,1.000;", b"OFF? 1,1,1;", b"0.0;"], "OFF"),
        (lambda laser: laser.set_power(10e-3), [b"POW 1,1,1,10.00;", b"POW? 1,1,1;", b"7.00;"], "POW"),
        (lambda laser: laser.output(True), [b"STAT 1,1,1,1;", b"STAT? 1,1,1;", b"0;"], "output"),
    ],
)
def test_settings_that_were_silently_lost_are_found(set_it, steps, what):
    command, query, reply = steps
    power = [(b"POW? 1,1,1;", b"10.00;")] if what == "output" else []
    interlock = [(b"INTL?;", b"0;")] if what == "output" else []
    with (
        laser_on(*power, (command, ACCEPTED), (query, reply), *interlock, *OFF) as laser,
        pytest.raises(DeviceError, match=f"{what}.* although"),
    ):
        set_it(laser)


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (b"ERR 100,POW bad value;", "error 100.*command error"),
        (b"ERR101,POW;", "error 101.*number of arguments"),
        (b"ERR 104,POW;", "error 104.*powered down; wake"),
        (b"ERR 201,POW;", r"error 201.*log_in\(\)"),
        (b"ERR 204,POW;", "error 204.*another session"),
        (b"ERR -1,POW;", "error -1.*unknown error"),
    ],
)
def test_refusals_are_put_into_words(reply, words):
    with laser_on((b"POW 1,1,1,10.00;", reply), *OFF) as laser, pytest.raises(DeviceError, match=words):
        laser.set_power(10e-3)


@pytest.mark.parametrize("reply", [b"10.00;", b"ERR;", b"OK\xff;", b"\x00;"])
def test_what_is_no_acknowledgement_is_a_bad_reply(reply):
    steps = [(b"POW 1,1,1,10.00;", reply), IDN, *OFF]
    with laser_on(*steps) as laser, pytest.raises(ReplyError):
        laser.set_power(10e-3)


def test_limits_are_checked_before_anything_is_sent():
    with laser_on(max_power=20e-3) as laser:
        for watts in (0.0, math.nan, -1.0, 1e-3, 21e-3, math.inf):
            with pytest.raises(LimitError, match="laser: power cannot be"):
                laser.set_power(watts)
        for metres in (1550.0, math.nan, 1527.6e-9, 1565.5e-9):
            with pytest.raises(LimitError, match=r"laser: (wavelength|frequency) cannot be"):
                laser.set_wavelength(metres)
        for hertz in (191.49e12, 196.26e12, math.nan, 193.4):
            with pytest.raises(LimitError, match="frequency cannot be"):
                laser.set_frequency(hertz)
        for hertz in (6.1e9, -6.1e9):
            with pytest.raises(LimitError, match="frequency_offset cannot be"):
                laser.frequency_offset(hertz)


def test_light_above_the_limit_is_not_let_out():
    with laser_on((b"POW? 1,1,1;", b"13.00;"), max_power=10e-3) as laser, pytest.raises(LimitError, match="max_power"):
        laser.set_light(True)


def test_an_open_interlock_is_named():
    steps = [(b"POW? 1,1,1;", b"10.00;"), (b"STAT 1,1,1,1;", ACCEPTED), (b"STAT? 1,1,1;", b"0;"), (b"INTL?;", b"1;")]
    with laser_on(*steps, *OFF) as laser, pytest.raises(DeviceError, match="interlock is open"):
        laser.set_light(True)


def test_settling_is_polled_on_the_clock_and_everything_is_verified():
    steps = [(b"WAV 1,1,1,1551.0000;", ACCEPTED), (b"WAV? 1,1,1;", b"1551.0;")]
    steps += [(b"BUSY? 1,1,1;", b"1;")] * 3 + [(b"BUSY? 1,1,1;", b"0;"), (b"WAV? 1,1,1;", b"1551.0;")]
    with laser_on(*steps, (b"LALAR? 1,1,1;", b"0;"), *OFF) as laser:
        laser.set_wavelength(1551e-9)
        laser.wait_settled(10.0)
        assert 0.0 < laser.clock.now() < 1.0


def test_a_laser_that_never_settles_or_has_an_alarm():
    with laser_on(*[(b"BUSY? 1,1,1;", b"1;")] * 4) as laser, pytest.raises(DeviceError, match=r"within 0\.14 s"):
        laser.wait_settled(0.14)
    with (
        laser_on((b"BUSY? 1,1,1;", b"0;"), (b"LALAR? 1,1,1;", b"8;")) as laser,
        pytest.raises(DeviceError, match="alarm 8"),
    ):
        laser.wait_settled(1.0)


@pytest.mark.parametrize(
    ("reply", "watts"),
    [(b"10.00;", 10e-3), (b"-60.00;", 1e-9), (b"-200.0;", math.nan), (b"nan;", math.nan), (b"9.91E37;", math.nan)],
)
def test_measured_power_and_its_codes(reply, watts):
    with laser_on((b"APOW? 1,1,1;", reply)) as laser:
        assert laser.power_actual() == pytest.approx(watts, nan_ok=True)


def test_monitor_in_si():
    monitor = (b"MON? 1,1,1;", b"25.00,31.50,182.3,-240.1;")
    with laser_on(*[monitor] * 4) as laser:
        readings = [laser.chip_temperature(), laser.base_temperature(), laser.diode_current(), laser.cooler_current()]
        assert readings == pytest.approx([298.15, 304.65, 0.1823, -0.2401])


def test_dither_that_cannot_be_switched_off():
    steps = [(b"DIT? 1,1,1;", b"-1;"), (b"DIT 1,1,1,0;", ACCEPTED), (b"DIT? 1,1,1;", b"-1;")]
    with laser_on(*steps) as laser:
        assert laser.dither() is True
        with pytest.raises(DeviceError, match="dither"):
            laser.dither(False)


def test_logging_in_and_raw_commands():
    steps = [(b"PASS IDP;", ACCEPTED), (b"PASS?;", b"1;"), (b"TYP? 1,1,1;", b"GC;"), (b"IDENT 1;", ACCEPTED)]
    steps += [(b"PASS 0;", ACCEPTED), (b"PASS?;", b"0;")]
    with laser_on(*steps) as laser:
        laser.log_in()
        assert laser.ask("TYP? 1,1,1") == "GC"
        laser.write("IDENT 1")
        with pytest.raises(DeviceError, match="password"):
            laser.log_in("0")


def test_laser_is_switched_off_through_a_reopened_link():
    steps = [(b"POW 1,1,1,10.00;", ACCEPTED), (b"POW? 1,1,1;", b"10.00;"), (b"WAV? 1,1,1;", HangUp())]
    with laser_on(*steps, IDN, *CONNECT, *OFF) as laser:
        laser.set_power(10e-3)
        with pytest.raises(LinkError):
            laser.wavelength()


def test_another_chassis_behind_the_reopened_link_gets_no_command(caplog):
    other = (b"*IDN?;", b"ID Photonics,CoBrite-DX,99999999,2.2.0;")
    steps = [(b"POW 1,1,1,10.00;", ACCEPTED), (b"POW? 1,1,1;", b"10.00;"), (b"WAV? 1,1,1;", HangUp())]
    with laser_on(*steps, other, other) as laser:
        laser.set_power(10e-3)
        with pytest.raises(LinkError):
            laser.wavelength()
    assert "99999999" in caplog.text


def test_a_snapshot_is_two_exchanges():
    read = [IDN, (b"CONF? 1,1,1;", b"193.4,0.5,10.0,1,0,-1;")]
    with laser_on(*read * 2) as laser:
        laser.snapshot_base(False)
        laser.snapshot_base(None)
        laser.snapshot_base("Only_invalid")
        snapshot = laser.snapshot_base("All")
        assert snapshot == json.loads(json.dumps(snapshot, allow_nan=False))
        values = {name: entry.get("value") for name, entry in snapshot["parameters"].items()}
        assert (values["frequency"], values["frequency_offset"], values["output"]) == (193.4e12, 0.5e9, True)
        assert values["wavelength"] == pytest.approx(299_792_458 / 193.4e12)
        assert (values["dither"], values["power"]) == (True, pytest.approx(10e-3))


@pytest.mark.parametrize("case", [case for case in CASES if case.driver is CobriteLaser], ids=lambda case: case.id)
def test_settling_on_the_simulated_laser(case):
    with simulated(case) as (bench, chip, clock), opened(case, bench.addresses["device"], clock) as laser:
        laser.set_wavelength(1552e-9)
        laser.set_power(12e-3)
        laser.set_light(True)
        with pytest.raises(DeviceError, match="within"):
            laser.wait_settled(0.5)
        assert chip.detector_powers().sum() == 0.0
        laser.wait_settled(20.0)
        assert chip.detector_powers().sum() > 0.0
        assert laser.power_actual() == pytest.approx(12e-3, rel=5e-3)
        assert laser.wavelength_error() == pytest.approx(0.0, abs=1e-13)
        laser.make_safe()
        assert chip.detector_powers().sum() == 0.0


@given(st.text(alphabet=st.characters(codec="ascii"), max_size=40))
def test_parsers_give_values_or_value_errors(text):
    for parse in (parse_layout, parse_identity):
        with contextlib.suppress(ValueError):
            parse(text)


@given(st.dictionaries(st.tuples(st.integers(1, 9), st.integers(1, 9)), st.integers(0, 8), min_size=1))
def test_layouts_round_trip(devices):
    dx = "\n".join(f"LAY,{chassis},{slot},DEV{count}" for (chassis, slot), count in devices.items())
    mx = "\n".join(
        f"{chassis},{slot},{f'TLS{count}' if count else 'EMP'}" for (chassis, slot), count in devices.items()
    )
    assert parse_layout(dx) == (False, devices)
    assert parse_layout(mx) == (True, devices)
