"""The Santec MPM-210H driver against byte-exact scripts."""

import contextlib
import json
import math

import numpy as np
import pytest
from _scripted_link import SHORT_S, HangUp, ScriptServer, raises_in_time
from hypothesis import given
from hypothesis import strategies as st
from qcodes.instrument import Instrument

from drivers import SantecMPM210H
from drivers._mpm_parsing import judge_powers, parse_log_state, parse_ports, parse_slots
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

IDN = (b"*IDN?\r", b"SANTEC,MPM-210H,00000000,Ver.2.0\r")
SLOTS = (b"IDIS?\r", b"1,1,0,0,0\r")
MODULES = [
    (b"MMVER? 0\r", b"Santec,MPM-211,00000000M211,Ver1.11\r"),
    (b"MMVER? 1\r", b"Santec,MPM-211,00000001M211,Ver1.11\r"),
]
NO_ERROR = (b"ERR?\r", b"0,No error\r")
DBM, MILLIWATT = (b"UNIT?\r", b"0\r"), (b"UNIT?\r", b"1\r")
AUTO = (b"AUTO?\r", b"1\r")
AVERAGING = (b"AVG?\r", b"10.00\r")
BRIGHT = [(b"READ? 0\r", b"0.1,0.2,0.3,0.4\r"), (b"READ? 1\r", b"0.5,0.6,0.7,0.8\r")]
BRIGHT_W = [1e-4, 2e-4, 3e-4, 4e-4, 5e-4, 6e-4, 7e-4, 8e-4]


@contextlib.contextmanager
def meter_on(*steps, timeout=5.0, modules=2, connecting=(IDN, SLOTS, *MODULES)):
    with ScriptServer(*connecting, *steps) as server:
        meter = SantecMPM210H("meter", server.visa_address, modules=modules, timeout=timeout)
        meter.clock = SimulatedClock()
        try:
            yield meter
        finally:
            meter.close()


def setting(word, value, shown):
    return [(f"{word} {value}\r".encode(), None), NO_ERROR, (f"{word}?\r".encode(), f"{shown}\r".encode())]


# Connecting


def test_connecting_and_closing_only_asks():
    with meter_on(IDN) as meter:
        assert meter.port_count == 8
        assert [str(module.model) for module in meter.modules.values()] == ["MPM-211", "MPM-211"]
        assert meter.IDN()["model"] == "MPM-210H"
        meter.make_safe()


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([(b"*IDN?\r", b"SANTEC,TSL-570,1,2\r")], "SANTEC MPM-210H"),
        ([(b"*IDN?\r", b"SSSSANTEC,MPM-210H,00000000,Ver.2.0\r")], "SANTEC MPM-210H"),  # D-05
        ([IDN, (b"IDIS?\r", b"1,0,0,0,0\r"), MODULES[0]], "2 modules are expected"),
        ([IDN, (b"IDIS?\r", b"0,0,0,0,0\r")], "no modules"),
    ],
)
def test_another_mainframe_is_refused_and_leaves_nothing_behind(steps, message):
    with ScriptServer(*steps) as server, pytest.raises(IdentityError, match=message):
        SantecMPM210H("meter", server.visa_address, modules=2, timeout=5.0)
    assert not Instrument.exist("meter")


def test_impossible_arguments():
    for modules in (0, 6):
        with pytest.raises(ConfigurationError, match="1 to 5"):
            SantecMPM210H("meter", "TCPIP0::127.0.0.1::1::SOCKET", modules=modules)
    with pytest.raises(LinkError, match="cannot open"):
        SantecMPM210H("meter", "TCPIP0::127.0.0.1::1::SOCKET")


def test_ports_of_other_modules_are_counted_in_a_reading():
    connecting = [
        IDN,
        (b"IDIS?\r", b"0,1,0,1,0\r"),
        (b"MMVER? 1\r", b"Santec,MPM-212,00000000M212,Ver1.11\r"),
        (b"MMVER? 3\r", b"Santec,MPM-211,00000000M211,Ver1.11\r"),
        AVERAGING,
        (b"READ? 1\r", b"-20.123,-20.454\r"),
    ]
    steps = [
        MILLIWATT,
        AUTO,
        AVERAGING,
        (b"READ? 1\r", b"0.1,0.2\r"),
        (b"READ? 3\r", b"0.3,0.4,0.5,0.6\r"),
        MILLIWATT,
        AUTO,
        (b"READ? 3\r", b"0.3,0.4,0.5,0.6\r"),
    ]
    with meter_on(*steps, connecting=connecting) as meter:
        assert meter.port_count == 6
        assert meter.read_powers().power_w == pytest.approx([1e-4, 2e-4, 3e-4, 4e-4, 5e-4, 6e-4])
        assert meter.channels[3].power() == pytest.approx(4e-4)
        for index in (-1, 6):
            with pytest.raises(LimitError, match="ports 0 to 5"):
                meter.read_power(index)


def test_other_modules_after_a_reconnection_are_refused():
    other = (b"MMVER? 1\r", b"Santec,MPM-211,00000009M211,Ver1.11\r")
    with meter_on((b"WAV?\r", HangUp()), IDN, IDN, SLOTS, MODULES[0], other) as meter:
        with pytest.raises(LinkError):
            meter.wavelength()
        with pytest.raises(IdentityError, match=r"00000009M211.*as before"):
            meter.reconnect()


# Settings


def test_initialising_sets_and_verifies():
    steps = [
        (b"ERR?\r", b"-113,left by others\r"),
        NO_ERROR,
        *setting("UNIT", 1, 1),
        *setting("AUTO", 1, 1),
        *setting("WAV", "1550.120", "1550.120"),
        *setting("AVG", "10.00", "10.00"),
        MILLIWATT,  # all of them once more
        AUTO,
        (b"WAV?\r", b"1550.120\r"),
        AVERAGING,
        MILLIWATT,
        AUTO,
        *BRIGHT,
    ]
    with meter_on(*steps) as meter:
        meter.initialise(1550.12e-9, 10.003e-3)
        reading = meter.read_powers()
        assert reading.power_w == pytest.approx(BRIGHT_W)
        assert reading.valid.all()


def test_a_restart_while_initialising_is_noticed():
    steps = [
        NO_ERROR,
        *setting("UNIT", 1, 1),
        *setting("AUTO", 1, 1),
        *setting("WAV", "1550.000", "1550.000"),
        *setting("AVG", "10.00", "10.00"),
        DBM,
    ]
    with meter_on(*steps) as meter, pytest.raises(DeviceError, match="UNIT is 0"):
        meter.initialise(1550e-9, 10e-3)


def test_refused_or_ignored_settings_are_errors():
    refused = [NO_ERROR, (b"WAV 1310.000\r", None), (b"ERR?\r", b"-221,conflict\r"), NO_ERROR]
    steps = [
        *refused,
        *setting("AVG", "20.00", "10.00"),
        *setting("LEV", 3, 1),
        *setting("AUTO", 0, 1),
        *setting("WAV", "1310.000", "1310.002"),
        (b"LEV?\r", b"6\r"),
        IDN,
        IDN,
    ]
    with meter_on(*steps) as meter:
        with pytest.raises(DeviceError, match=r"-221 conflict \(settings cannot change while it measures\)"):
            meter.wavelength(1310e-9)
        with pytest.raises(DeviceError, match=r"averaging time is 10\.00 ms although 20\.00 ms"):
            meter.averaging_time(20e-3)
        with pytest.raises(DeviceError, match="LEV is 1  although 3"):
            meter.range_level(3)
        with pytest.raises(DeviceError, match="AUTO is 1  although 0"):
            meter.auto_range(False)
        with pytest.raises(DeviceError, match=r"wavelength is 1310\.002 nm although 1310\.000 nm"):
            meter.wavelength(1310e-9)
        with pytest.raises(ReplyError, match="range level"):
            meter.range_level()
        meter.get_idn()


def test_limits_are_checked_before_anything_is_sent():
    with meter_on() as meter:
        for wavelength in (1249e-9, 1631e-9, 1550.0, 0.0, math.nan, math.inf):
            with pytest.raises(LimitError, match="1250 to 1630 nm"):
                meter.initialise(wavelength, 0.01)
        for time in (9e-6, 10.1, 0.0, math.nan, math.inf):
            with pytest.raises(LimitError, match="averaging time"):
                meter.initialise(1550e-9, time)
        with pytest.raises(LimitError, match="steps of 10 us"):
            meter.averaging_time(1.001e-3)
        for points in (0, 1_000_001):
            with pytest.raises(LimitError, match="1 to 1000000"):
                meter.arm_log(points, 1e-3)
        good = (1540e-9, 1550e-9, 0.1e-9)
        for grid, speed in (
            ((1550e-9, 1540e-9, 0.1e-9), 1e-8), ((1240e-9, 1550e-9, 0.1e-9), 1e-8), ((1540e-9, 1640e-9, 0.1e-9), 1e-8),
            ((1540e-9, 1550e-9, 0.0), 1e-8), (good, 0.0), (good, math.inf), ((1540e-9, 1550e-9, 0.1005e-12), 1e-8),
            ((1540e-9, 1550e-9, 1e-15), 1e-8), ((1540e-9, 1550e-9, math.nan), 1e-8),
        ):  # fmt: skip
            with pytest.raises(LimitError):
                meter.arm_sweep(grid, speed)


# Readings


def test_levels_are_converted_and_sentinels_flagged():  # D-32, D-35
    levels = [
        (b"READ? 0\r", b"-20.123,-20.454,0.000,10.000\r"),
        (b"READ? 1\r", b"-200.000,-99.000,10.500,99.000\r"),
    ]
    with meter_on(DBM, AUTO, AVERAGING, *levels, MILLIWATT, AUTO, *BRIGHT) as meter:
        reading = meter.read_powers()
        assert reading.valid.tolist() == [True] * 4 + [False, True, False, False]
        assert reading.power_w[:4] == pytest.approx([9.72075e-6, 9.00742e-6, 1e-3, 1e-2], rel=1e-5)
        assert reading.power_w[5] == pytest.approx(10**-12.9)
        assert np.isnan(reading.power_w[[4, 6, 7]]).all()
        assert meter.read_powers().power_w == pytest.approx(BRIGHT_W)  # somebody switched the unit


@pytest.mark.parametrize("code", ["9.9E37", "-9.91E+37", "inf", "-inf", "nan", "3.4028235E+38"])
def test_codes_are_flagged(code):  # D-26
    for unit in (DBM, MILLIWATT):
        readings = [(b"READ? 0\r", f"{code},1.0,1.0,1.0\r".encode()), BRIGHT[1]]
        with meter_on(unit, AUTO, AVERAGING, *readings) as meter:
            reading = meter.read_powers()
            assert reading.valid.tolist() == [False] + [True] * 7
            assert np.isnan(reading.power_w[0])


@pytest.mark.parametrize("reply", [b"9.91E+37\r", b"1.0\r", b"0\r", b"6\r", b"nan\r"])
def test_what_is_no_range_level(reply):  # D-28
    with meter_on((b"LEV?\r", reply), IDN, (b"LEV?\r", b"5\r")) as meter:
        with pytest.raises(ReplyError):
            meter.range_level()
        assert meter.range_level() == 5


def test_readings_above_the_range_in_use_are_flagged():
    fixed = [MILLIWATT, (b"AUTO?\r", b"0\r"), (b"LEV?\r", b"3\r")]
    over = [(b"READ? 0\r", b"0.105,0.1,-0.001,-0.2\r"), BRIGHT[1]]
    top = [(b"READ? 0\r", b"10.5,10.0,9.0,25.0\r"), BRIGHT[1]]
    with meter_on(*fixed, AVERAGING, *over, MILLIWATT, AUTO, *top) as meter:
        assert meter.read_powers().valid.tolist() == [False, True, True, False] + [False] * 4
        assert meter.read_powers().valid.tolist() == [False, True, True, False] + [True] * 4


@given(st.lists(st.floats(), min_size=1, max_size=8), st.booleans(), st.sampled_from([1e-6, 1e-4, 1e-2]))
def test_no_plausible_number_replaces_a_code(values, milliwatts, limit):
    power, valid = judge_powers(np.array(values), milliwatts=milliwatts, limits_w=np.full(len(values), limit))
    for value, watts, good in zip(values, power.tolist(), valid.tolist(), strict=True):
        if good:
            assert abs(watts) <= limit
            assert watts == pytest.approx(value * 1e-3 if milliwatts else 1e-3 * 10 ** (value / 10))
        else:
            assert math.isnan(watts)


@pytest.mark.parametrize(
    "reply", [b"0.1,0.2,0.3\r", b"0.1,0.2,0.3,0.4,0.5\r", b"0,1;0,2;0,3\r", b"0.1,-0.-1,0.3,0.4\r", b"0.1,0.2,0.3,\r",
              b"0.1,0.2,0.3,\xff\r", b"0.1,0.2,0.3,0.4\r0.1\r", b"SANTEC,MPM-211,1,2\r"]
)  # fmt: skip
def test_bad_readings_raise_and_the_next_one_is_right(reply):  # D-29
    steps = [MILLIWATT, AUTO, AVERAGING, (b"READ? 0\r", reply), IDN, MILLIWATT, AUTO, *BRIGHT]
    with meter_on(*steps) as meter:
        with pytest.raises(ReplyError):
            meter.read_powers()
        assert meter.read_powers().power_w == pytest.approx(BRIGHT_W)


def test_late_readings_and_modules_are_never_taken_for_the_identity():
    late = b"1E-1,2E-1,3E-1,4E-1\rSantec,MPM-211,00000000M211,Ver1.11\r"
    again = (IDN[0], late + IDN[1])
    steps = [MILLIWATT, AUTO, AVERAGING, (b"READ? 0\r", b"0.1,0.2"), again, MILLIWATT, AUTO, *BRIGHT]
    with meter_on(*steps) as meter:
        with raises_in_time(LinkTimeoutError, meter, match=rf"within {SHORT_S + 0.01:g} s.*0\.1,0\.2"):  # D-10
            meter.read_powers()
        assert meter.read_powers().power_w == pytest.approx(BRIGHT_W)


def test_zeroing_waits_and_asks_for_errors():
    refused = [NO_ERROR, (b"ZERO\r", None), (b"ERR?\r", b"-284,busy\r")]
    failed = [NO_ERROR, (b"ZERO\r", None), NO_ERROR, (b"ERR?\r", b"-300,device\r"), NO_ERROR]
    with meter_on(NO_ERROR, *refused, *failed) as meter:
        with pytest.raises(DeviceError, match="zeroing failed: -284 busy"):
            meter.zero()
        assert meter.clock.now() == 0.0
        with pytest.raises(DeviceError, match="a fault of the mainframe"):
            meter.zero()
        assert meter.clock.now() == pytest.approx(3.5)


def test_dead_link():
    with meter_on(MILLIWATT, AUTO, AVERAGING, (b"READ? 0\r", HangUp())) as meter:
        with pytest.raises(LinkError):
            meter.read_powers()
        with pytest.raises(LinkError, match="down"):
            meter.get_idn()
    with pytest.raises(LinkError, match="closed"):
        meter.read_powers()
    meter.close()


def test_snapshots_use_the_bus_as_documented():
    shown = [IDN, (b"WAV?\r", b"1550.000\r"), AVERAGING, AUTO, (b"LEV?\r", b"1\r")]
    with meter_on(*shown * 2) as meter:
        meter.snapshot_base(False)
        meter.snapshot_base(None)
        meter.snapshot_base("Only_invalid")
        snapshot = meter.snapshot_base(True)
        assert snapshot == json.loads(json.dumps(snapshot, allow_nan=False))
        assert snapshot["parameters"]["averaging_time"]["value"] == 10e-3


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=1, max_size=6))
def test_readings_parse_as_they_were_written(values):
    text = ",".join(f"{value:.6E}" for value in values)
    if len(values) <= 4:
        assert parse_ports(text) == [
            float(f"{v:.6E}") if abs(v) < 1e20 else pytest.approx(math.nan, nan_ok=True) for v in values
        ]
    else:
        with pytest.raises(ValueError, match="1 to 4"):
            parse_ports(text)
    with pytest.raises(ValueError, match="instead of"):
        parse_ports(text, len(values) + 1)


@pytest.mark.parametrize("text", ["", "1", "1,1,0,0", "1,1,0,0,0,0", "1,2,0,0,0", "yes,1,1,1,1"])
def test_what_is_no_list_of_slots(text):
    with pytest.raises(ValueError, match=r"slots|integer|neither"):
        parse_slots(text)


@pytest.mark.parametrize("text", ["", "0", "2,5", "0,-1", "1,5,0", "0.0,1"])
def test_what_is_no_log_state(text):
    with pytest.raises(ValueError, match="no state"):
        parse_log_state(text)
