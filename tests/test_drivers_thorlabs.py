"""The Thorlabs driver against byte-exact scripts and the simulated meters."""

import contextlib
import locale
import math
import struct

import numpy as np
import pytest
from _scripted_link import SHORT_S, HangUp, ScriptServer, raises_in_time
from hypothesis import given
from hypothesis import strategies as st
from qcodes.instrument import Instrument

from drivers import ThorlabsPM
from drivers._thorlabs_sensor import parse_sensor
from drivers.thorlabs import _array_size
from optinc_hw.clock import SimulatedClock
from optinc_hw.errors import (
    ConfigurationError,
    DeviceError,
    IdentityError,
    LimitError,
    LinkError,
    LinkTimeoutError,
    ReplyError,
)

IDN = (b"*IDN?\n", b"THORLABS,PM100D,P0012345,2.8.0\n")
NEWER = (b"*IDN?\n", b"Thorlabs,PM101,M00512345,1.4.0\n")
SENSOR = (b"SYST:SENS:IDN?\n", b'"S120C","16060232","2-JUN-2021",1,18,33\n')
NO_ERROR = (b"SYST:ERR?\n", b'0,"No error"\n')
WATT = (b"SENS:POW:UNIT?\n", b"W\n")
COUNT = (b"SENS:AVER:COUN?\n", b"10\n")
FINE = (b"STAT:QUES:COND?\n", b"0\n")
LIMITS = [(b"SENS:CORR:WAV? MIN\n", b"4.000000E+02\n"), (b"SENS:CORR:WAV? MAX\n", b"1.100000E+03\n")]


def measured(reply, questionable=b"0\n"):
    return [(b"MEAS:POW?\n", reply), (b"STAT:QUES:COND?\n", questionable)]


@contextlib.contextmanager
def meter_on(*steps, timeout=5.0, identity=IDN, **options):
    with ScriptServer(identity, SENSOR, *steps) as server:
        meter = ThorlabsPM("meter", server.visa_address, timeout=timeout, **options)
        meter.clock = SimulatedClock()
        try:
            yield meter
        finally:
            meter.close()


def test_connecting_and_closing_only_asks():
    with meter_on(IDN, model="PM100D", sensor="S120C") as meter:
        assert meter.port_count == 1
        assert meter.IDN()["serial"] == "P0012345"
        assert (meter.sensor.name, meter.sensor.kind, meter.sensor.flags) == ("S120C", 1, 33)
        assert str(meter.sensor) == "S120C 16060232, calibrated 2-JUN-2021"
        meter.make_safe()


@pytest.mark.parametrize(
    ("steps", "options", "message"),
    [
        ([(b"*IDN?\n", b"SANTEC,TSL-570,1,2\n")], {}, "Thorlabs PM100D"),
        ([(b"*IDN?\n", b"TTTTHORLABS,PM100D,P0012345,2.8.0\n")], {}, "Thorlabs PM100D"),  # D-05
        ([(b"*IDN?\n", b"Thorlabs,PM103E,1,2\n")], {}, "Thorlabs PM100D"),  # its framing is another one
        ([IDN], {"model": "PM400"}, "a PM400 is expected"),
        ([IDN, SENSOR], {"sensor": "S155C"}, "S155C is expected"),
        ([IDN, (SENSOR[0], b'"ES111C","1","9-SEP-2018",3,18,2\n')], {}, "does not measure power"),
        ([IDN, (SENSOR[0], b'"no sensor","","",0,0,0\n')], {}, "no sensor"),
    ],
)
def test_what_is_not_the_expected_meter_is_refused_and_leaves_nothing_behind(steps, options, message):
    with ScriptServer(*steps) as server, pytest.raises(IdentityError, match=message):
        ThorlabsPM("meter", server.visa_address, timeout=5.0, **options)
    assert not Instrument.exist("meter")


def test_impossible_arguments():
    with pytest.raises(ConfigurationError, match="PM100D, PM100USB, PM101, PM400"):
        ThorlabsPM("meter", "TCPIP0::127.0.0.1::1::SOCKET", model="PM103E")
    with pytest.raises(LinkError, match="cannot open"):
        ThorlabsPM("meter", "TCPIP0::127.0.0.1::1::SOCKET")


def test_serial_line_finds_its_place_first():
    with ScriptServer((b"*IDN?\n", b"junk\nThorlabs,PM101,M00512345,1.4.0\n"), NEWER, SENSOR) as server:
        meter = ThorlabsPM("meter", server.serial_url, timeout=1.0)
        assert meter.sample_time == 1e-3
        meter.close()


def test_another_sensor_after_a_reconnection_is_refused():
    other = (SENSOR[0], b'"S120C","999","2-JUN-2021",1,18,33\n')
    with meter_on((b"MEAS:POW?\n", HangUp()), IDN, IDN, other) as meter:
        with pytest.raises(LinkError):
            meter.ask_raw("MEAS:POW?")
        with pytest.raises(IdentityError, match="S120C 999"):
            meter.reconnect()


def test_initialising_sets_and_verifies():
    steps = [
        *LIMITS,
        (b"SYST:ERR?\n", b'-113,"left by others"\n'),
        NO_ERROR,
        (b"SENS:POW:UNIT W\n", None),
        NO_ERROR,
        WATT,
        (b"SENS:POW:RANG:AUTO 1\n", None),
        NO_ERROR,
        (b"SENS:POW:RANG:AUTO?\n", b"1\n"),
        *LIMITS,
        (b"SENS:CORR:WAV 850\n", None),
        NO_ERROR,
        (b"SENS:CORR:WAV?\n", b"8.500000E+02\n"),
        (b"SENS:AVER:COUN 33\n", None),  # 100 ms of 3 ms
        NO_ERROR,
        (b"SENS:AVER:COUN?\n", b"33\n"),
        WATT,  # all of them once more
        (b"SENS:POW:RANG:AUTO?\n", b"1\n"),
        (b"SENS:CORR:WAV?\n", b"8.500000E+02\n"),
        (b"SENS:AVER:COUN?\n", b"33\n"),
        WATT,
        *measured(b"1.234567E-03\n"),
    ]
    with meter_on(*steps) as meter:
        meter.initialise(850.3e-9, 0.1)
        assert meter.read_powers().power_w.tolist() == [1.234567e-3]
        assert meter.wavelength.cache.get() == pytest.approx(850e-9)


def test_silently_coerced_settings_are_errors():
    steps = [
        *LIMITS,
        NO_ERROR,
        (b"SENS:CORR:WAV 633\n", None),
        NO_ERROR,
        (b"SENS:CORR:WAV?\n", b"6.350000E+02\n"),
        (b"SENS:AVER:COUN 5000\n", None),
        NO_ERROR,
        (b"SENS:AVER:COUN?\n", b"3000\n"),
        (b"SENS:POW:RANG:AUTO 1\n", None),
        NO_ERROR,
        (b"SENS:POW:RANG:AUTO?\n", b"0\n"),
        (b"SENS:CORR 3.0000\n", None),
        NO_ERROR,
        (b"SENS:CORR?\n", b"0.000000E+00\n"),
        (b"SENS:POW:RANG? MAX\n", b"5.0E-2\n"),
        (b"SENS:POW:RANG 1.000000E-03\n", None),
        NO_ERROR,
        (b"SENS:POW:RANG?\n", b"5.0E-4\n"),
    ]
    with meter_on(*steps) as meter:
        with pytest.raises(DeviceError, match="wavelength is 635 nm although 633 nm"):
            meter.wavelength(633e-9)
        with pytest.raises(DeviceError, match="samples is 3000  although 5000"):
            meter.averaging_count(5000)
        with pytest.raises(DeviceError, match="automatic range"):
            meter.auto_range(True)
        with pytest.raises(DeviceError, match=r"input loss is 0\.0 dB although 3"):
            meter.input_loss(3)
        with pytest.raises(DeviceError, match=r"range is 0\.0005 W although 0\.001 W"):
            meter.set_range(1e-3)


def test_limits_are_checked_before_anything_is_set():
    steps = [*LIMITS, *LIMITS, (b"SENS:POW:RANG? MAX\n", b"5.0E-2\n")]
    with meter_on(*steps) as meter:
        with pytest.raises(LimitError, match=r"1550 nm.*400 to 1100 nm"):
            meter.initialise(1550e-9, 0.1)
        with pytest.raises(LimitError, match="whole"):
            meter.wavelength(633.5e-9)
        with pytest.raises(LimitError, match="399 nm"):
            meter.wavelength(399e-9)
        with pytest.raises(LimitError, match=r"up to 0\.05 W"):
            meter.set_range(0.06)
        for wavelength, time in ((math.nan, 0.1), (850e-9, math.nan), (850e-9, 0.0), (math.inf, 0.1), (-1.0, 0.1)):
            with pytest.raises(LimitError):
                meter.initialise(wavelength, time)
        for points, interval in ((0, 1e-3), (10_001, 1e-3), (10, 99e-6), (10, 1.5), (10, 100.5e-6), (10, math.nan)):
            with pytest.raises(LimitError, match=r"1\.\.10000"):
                meter.record(points, interval)


def test_fixed_wavelength_is_told():
    fixed = (SENSOR[0], b'"S000C","1","2-JUN-2021",2,18,1\n')
    with ScriptServer(IDN, fixed) as server:
        meter = ThorlabsPM("meter", server.visa_address, timeout=5.0)
        with pytest.raises(LimitError, match="cannot be set"):
            meter.initialise(850e-9, 0.1)
        meter.close()


def test_decimals_have_points_in_every_locale():  # D-31
    names = ("de_DE.UTF-8", "fr_FR.UTF-8", "de_DE.utf8")
    before = locale.setlocale(locale.LC_NUMERIC)
    for name in names:
        with contextlib.suppress(locale.Error):
            locale.setlocale(locale.LC_NUMERIC, name)
    try:
        set_loss = [NO_ERROR, (b"SENS:CORR 0.5000\n", None), NO_ERROR, (b"SENS:CORR?\n", b"5.000000E-01\n")]
        with meter_on(*set_loss, (b"SENS:CORR?\n", b"0,5\n"), IDN, IDN) as meter:
            meter.input_loss(0.5)
            with pytest.raises(ReplyError, match="0,5"):
                meter.input_loss()
            meter.get_idn()
    finally:
        locale.setlocale(locale.LC_NUMERIC, before)


@pytest.mark.parametrize("unit", [b"DBM\n", b'"DBM"\n', b"V\n"])
def test_another_unit_is_refused_at_every_reading(unit):  # D-32, D-34
    with meter_on(WATT, COUNT, *measured(b"1.0E-3\n"), (WATT[0], unit)) as meter:
        assert meter.read_powers().valid.all()
        with pytest.raises(DeviceError, match=r"not in W; call initialise"):
            meter.read_powers()


CODES = [b"9.9E37", b"+9.90000000E+37", b"-9.9E+37", b"9.91E+37", b"inf", b"-inf", b"INFINITY", b"-INFINITY", b"nan"]


@pytest.mark.parametrize("code", CODES)
def test_out_of_range_codes_are_flagged(code):  # D-26, D-28
    with meter_on(WATT, COUNT, *measured(code + b"\n")) as meter:
        reading = meter.read_powers()
        assert reading.valid.tolist() == [False]
        assert np.isnan(reading.power_w[0])


@pytest.mark.parametrize("reply", [b"9.91E+37\n", b"2.5\n", b"0\n", b"-3\n", b"nan\n"])
def test_what_is_no_number_of_samples(reply):  # D-28
    with meter_on((COUNT[0], reply), IDN, COUNT) as meter:
        with pytest.raises(ReplyError):
            meter.averaging_count()
        assert meter.averaging_count() == 10


def test_questionable_readings_are_flagged():
    steps = [WATT, COUNT, *measured(b"1.0E-3\n", b"8\n"), WATT, *measured(b"1.0E-3\n", b"1029\n")]
    with meter_on(*steps) as meter:
        assert np.isnan(meter.power())
        assert meter.power() == 1e-3  # bit 3 is not set


@pytest.mark.parametrize(
    ("reply", "dbm"),
    [(b"2.0E-3", 3.0103), (b"0.0", math.nan), (b"-1E-9", math.nan), (b"inf", math.nan), (b"1E-30", -270.0)],
)
def test_powers_that_have_no_level(reply, dbm):  # D-35
    with meter_on(WATT, COUNT, *measured(reply + b"\n")) as meter:
        assert meter.power_dbm() == pytest.approx(dbm, abs=1e-4, nan_ok=True)


@pytest.mark.parametrize(
    "reply", [b"1.2.3\n", b"-0.-1\n", b"0,5\n", b"1.0E-3 W\n", b"W\n", b"\xff1.0E-3\n", b"1E-3\n2E-3\n"]
)
def test_bad_replies_raise_and_the_next_reading_is_right(reply):  # D-29
    with meter_on(WATT, COUNT, (b"MEAS:POW?\n", reply), IDN, WATT, *measured(b"2E-3\n")) as meter:
        with pytest.raises(ReplyError):
            meter.read_powers()
        assert meter.read_powers().power_w[0] == 2e-3


def test_unfinished_reply_raises_and_the_next_reading_is_right():  # D-10
    with meter_on(WATT, COUNT, (b"MEAS:POW?\n", b"1.2"), IDN, WATT, *measured(b"2E-3\n")) as meter:
        with raises_in_time(LinkTimeoutError, meter, match=r"1\.2"):
            meter.read_powers()
        assert meter.read_powers().power_w[0] == 2e-3


def test_the_deadline_of_a_reading_is_above_its_averaging_time():
    steps = [WATT, (COUNT[0], b"100\n"), (b"MEAS:POW?\n", b"")]
    # The timeout, 100 samples of 1 ms, and 50 ms for changing the range.
    deadline = f"within {SHORT_S + 0.15:g} s"
    with meter_on(*steps, identity=NEWER) as meter, raises_in_time(LinkTimeoutError, meter, match=deadline):
        meter.read_powers()


def test_dead_link():
    with meter_on(WATT, COUNT, (b"MEAS:POW?\n", HangUp())) as meter:
        with pytest.raises(LinkError):
            meter.read_powers()
        with pytest.raises(LinkError, match="down"):
            meter.get_idn()
    with pytest.raises(LinkError, match="closed"):
        meter.read_powers()
    meter.close()


NAMES = st.text(st.characters(codec="ascii", exclude_characters='"\n\r'), max_size=12)


@given(NAMES, NAMES, NAMES, st.integers(0, 9), st.integers(0, 99), st.integers(0, 511))
def test_any_quoted_texts_are_sensors(name, serial, date, kind, subtype, flags):
    sensor = parse_sensor(f'"{name}","{serial}","{date}",{kind},{subtype},{flags}')
    assert (sensor.name, sensor.serial, sensor.calibrated) == (name.strip(), serial.strip(), date.strip())
    assert (sensor.kind, sensor.subtype, sensor.flags) == (kind, subtype, flags)
    assert sensor.measures_power == (kind != 0 and flags % 2 == 1)


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ('"S120C","16060232","2-JUN-2021",1,18,33', ("S120C", "16060232", "2-JUN-2021", 1, 18, 33)),
        ("S302C,19051104,14-MAR-2022, 2, 18, 353", ("S302C", "19051104", "14-MAR-2022", 2, 18, 353)),
        ('"S1, new","1","a,b",1,0,1', ("S1, new", "1", "a,b", 1, 0, 1)),
    ],
)
def test_sensors(text, fields):
    sensor = parse_sensor(text)
    assert (sensor.name, sensor.serial, sensor.calibrated, sensor.kind, sensor.subtype, sensor.flags) == fields


@pytest.mark.parametrize(
    "text", ["", "no sensor", '"S120C","1","2",1,18', '"S120C","1","2",1,18,33,0', '"S","1","2",a,1,1']
)
def test_what_is_no_sensor(text):
    with pytest.raises(ValueError, match="no sensor of the form"):
        parse_sensor(text)


def test_zeroing_that_did_not_begin():
    steps = [NO_ERROR, (b"SENS:CORR:COLL:ZERO:INIT\n", None), NO_ERROR, (b"SENS:CORR:COLL:ZERO:STAT?\n", b"0\n")]
    with meter_on(*steps) as meter, pytest.raises(DeviceError, match="did not begin"):
        meter.zero()


# The array mode


def array(*values):
    return f"{len(values)},".encode() + struct.pack(f"<{len(values)}f", *values)


def armed(points, interval_us=100):
    return [
        NO_ERROR,
        (f"CONF:ARR {points},{interval_us}\nINIT\n".encode(), None),
        NO_ERROR,
        (b"FETC:STAT?\n", b"0\n"),
        (b"FETC:STAT?\n", b"1\n"),
    ]


def test_array_is_read_in_pieces_and_codes_are_flagged():
    newline = struct.unpack("<f", b"\n,\r\n")[0]
    first = [newline, np.inf, np.nan, -1e-9, 9.9e37, *([1e-3] * 35)]
    pieces = [bytes([byte]) for byte in array(*first)]
    steps = [
        WATT,
        *armed(42),
        (b"FETC:ARR? 0,40\n", [*pieces, b"\n"]),
        (b"FETC:ARR? 40,2\n", array(2e-3, 3e-3) + b"\n"),
        IDN,
    ]
    with meter_on(*steps) as meter:
        trace = meter.record(42, 100e-6)
        meter.get_idn()
    assert trace.power_w.shape == trace.valid.shape == (1, 42)
    assert np.flatnonzero(~trace.valid[0]).tolist() == [1, 2, 4]
    assert trace.power_w[0, [0, 3, 40, 41]].tolist() == [newline, *(float(np.float32(v)) for v in (-1e-9, 2e-3, 3e-3))]
    assert np.isnan(trace.power_w[0, 1])


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (array(1e-3) + b"\n", ReplyError),
        (array(1e-3, 2e-3, 3e-3) + b"\n", ReplyError),
        (array(1e-3, 2e-3)[:-1], LinkTimeoutError),
        (array(1e-3, 2e-3) + b"\n1\n", ReplyError),
        (b"#18" + array(1e-3, 2e-3)[2:] + b"\n", ReplyError),
    ],
)
def test_bad_arrays_raise_and_the_next_reading_is_right(reply, error):
    steps = [WATT, *armed(2), (b"FETC:ARR? 0,2\n", reply), IDN, WATT, COUNT, *measured(b"2E-3\n")]
    with meter_on(*steps) as meter:
        with raises_in_time(error, meter):
            meter.record(2, 100e-6)
        assert meter.read_powers().power_w[0] == 2e-3


@given(st.binary(max_size=12))
def test_array_sizes(head):
    try:
        size = _array_size(head)
    except ValueError:
        assert not head.partition(b",")[0].isdigit() or len(head.partition(b",")[0]) > 5
    else:
        assert size is None or size == head.index(b",") + 1 + 4 * int(head[: head.index(b",")])
