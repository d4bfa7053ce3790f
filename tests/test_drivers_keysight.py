"""The Keysight driver against byte-exact scripts."""

import contextlib
import json
import struct
from itertools import chain

import numpy as np
import pytest
from _scripted_link import HangUp, ScriptServer, raises_in_time
from hypothesis import given
from hypothesis import strategies as st
from qcodes.instrument import Instrument

from drivers import KeysightN7745A
from drivers._keysight_parsing import parse_slots
from optinc_hw.errors import (
    ConfigurationError,
    DeviceError,
    IdentityError,
    LimitError,
    LinkError,
    LinkTimeoutError,
    ReplyError,
)

IDN = (b"*IDN?\n", b"Agilent Technologies,N7745A,DE00000001,V1.16\n")
NO_ERROR = (b"syst:err?\n", b'+0,"No error"\n')
PORTS = 2


def block(data):
    size = str(len(data)).encode()
    return b"#" + str(len(size)).encode() + size + data + b"\n"


def slots(ports=PORTS):
    return (b"read:pow:all:conf?\n", block(b"".join(struct.pack("<HH", port + 1, 1) for port in range(ports))))


def ask(setting, *replies):
    return [(f"sens{slot}:pow:{setting}?\n".encode(), reply) for slot, reply in enumerate(replies, start=1)]


def powers(*values):
    return (b"read:pow:all?\n", block(struct.pack(f"<{len(values)}f", *values)))


WATTS = ask("unit", b"+1\n", b"+1\n")
AVERAGING = ask("atim", b"+1.00000000E-002\n", b"+2.00000000E-002\n")
WAVELENGTHS = ask("wav", b"+1.55000000E-006\n", b"+1.31000000E-006\n")
RANGES = ask("rang", b"+0.00000000E+000\n", b"-3.00000000E+001\n")
AUTOMATIC = ask("rang:auto", b"+1\n", b"+0\n")


@contextlib.contextmanager
def meter_on(*steps, ports=PORTS, timeout=5.0):
    with ScriptServer(IDN, slots(ports), *steps) as server:
        meter = KeysightN7745A("meter", server.visa_address, ports=ports, timeout=timeout)
        try:
            yield meter
        finally:
            meter.close()


def test_connecting_and_closing_only_asks():
    with meter_on(IDN) as meter:
        assert meter.port_count == 2
        assert meter.IDN()["serial"] == "DE00000001"
        meter.make_safe()


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([(b"*IDN?\n", b"SANTEC,TSL-570,1,2\n")], "Keysight N774"),
        ([(b"*IDN?\n", b"Keysight Technologies,N7714A,1,2\n")], "Keysight N774"),
        ([IDN, slots(4)], "2 ports are expected"),
        ([IDN, (slots()[0], block(struct.pack("<HH", 1, 1) + struct.pack("<HH", 2, 2)))], "2 ports are expected"),
    ],
)
def test_wrong_meter_is_refused_and_leaves_nothing_behind(steps, message):
    with ScriptServer(*steps) as server, pytest.raises(IdentityError, match=message):
        KeysightN7745A("meter", server.visa_address, ports=2, timeout=5.0)
    assert not Instrument.exist("meter")


def test_impossible_number_of_ports():
    with pytest.raises(ConfigurationError, match="ports"):
        KeysightN7745A("meter", "TCPIP0::127.0.0.1::1::SOCKET", ports=0)
    with pytest.raises(LinkError, match="cannot open"):
        KeysightN7745A("meter", "TCPIP0::127.0.0.1::1::SOCKET")


def test_initialising_sets_and_verifies_every_port():
    def port(slot):
        return [
            (f"sens{slot}:pow:unit 1\nsens{slot}:pow:rang:auto 1\ninit{slot}:cont 0\n".encode(), None),
            NO_ERROR,
            (f"sens{slot}:pow:wav 1.55000000E-06\n".encode(), None),
            NO_ERROR,
            (f"sens{slot}:pow:wav?\n".encode(), b"+1.55000000E-006\n"),
            (f"sens{slot}:pow:atim 1.00000000E-02\n".encode(), None),
            NO_ERROR,
            (f"sens{slot}:pow:atim?\n".encode(), b"+1.00000000E-002\n"),
        ]

    steps = [(b"syst:err?\n", b'-230,"left by others"\n'), NO_ERROR, *port(1), *port(2), *WATTS, powers(1e-3, 2e-3)]
    with meter_on(*steps) as meter:
        meter.initialise(1550e-9, 10e-3)
        assert meter.read_powers().power_w == pytest.approx([1e-3, 2e-3])


def test_refused_or_ignored_settings_are_errors():
    refused = [
        NO_ERROR,
        (b"sens2:pow:wav 9.00000000E-07\n", None),
        (b"syst:err?\n", b'-222,"Out of range"\n'),
        NO_ERROR,
    ]
    ignored = [(b"sens2:pow:atim 3.00000000E-02\n", None), NO_ERROR, (b"sens2:pow:atim?\n", b"+2.50000000E-002\n")]
    with meter_on(*refused, *ignored) as meter:
        with pytest.raises(DeviceError, match="Out of range"):
            meter.channels[1].wavelength(900e-9)
        with pytest.raises(DeviceError, match=r"sens2:pow:atim.*0\.025 although 0\.03"):
            meter.channels[1].averaging_time(30e-3)
        for value in (0.0, -1.0, float("nan"), float("inf")):
            with pytest.raises(LimitError):
                meter.initialise(value, 10e-3)
        with pytest.raises(LimitError, match="no port 2"):
            meter.read_power(2)


READINGS = st.floats(width=32, allow_subnormal=False)


@given(st.lists(READINGS, min_size=1, max_size=8))
def test_codes_are_flagged_and_no_plausible_number_replaces_them(values):
    judged = KeysightN7745A._judge(_AlwaysWatts(), np.array(values))
    for value, watts, valid in zip(values, *judged, strict=True):
        assert valid == (abs(value) < 0.1)
        assert watts == value if valid else np.isnan(watts)


class _AlwaysWatts:
    _queue_is_ours_since = 0

    def _check_units(self):
        pass


def test_readings_are_flagged():
    over, under = 3.4028235e38, -3.4028235e38
    steps = [*WATTS, *AVERAGING, powers(over, 1e-3), powers(np.nan, -5e-9), powers(under, np.inf)]
    with meter_on(*steps) as meter:
        first, second, third = (meter.read_powers() for _ in range(3))
    assert first.valid.tolist() == [False, True]
    assert np.isnan(first.power_w[0])
    assert first.power_w[1] == np.float32(1e-3)
    assert second.valid.tolist() == [False, True]
    assert second.power_w[1] == np.float32(-5e-9)
    assert third.valid.tolist() == [False, False]
    assert first.power_w.dtype == np.float64


def test_units_are_checked_before_the_first_reading_and_when_a_number_is_impossible():
    in_dbm = (b"sens1:pow:unit?\n", b"+0\n")
    steps = [in_dbm, *WATTS, *AVERAGING, powers(1e-3, 1e-3), powers(-23.5, 1e-3), in_dbm, *WATTS, powers(0.2, 1e-3)]
    with meter_on(*steps, *WATTS) as meter:
        with pytest.raises(DeviceError, match="port 0 measures in dBm"):
            meter.read_powers()
        assert meter.read_powers().valid.all()
        with pytest.raises(DeviceError, match="dBm"):
            meter.read_powers()
        assert meter.read_powers().valid.tolist() == [False, True]  # in W, but beyond what a meter can take


def test_single_port_readings():
    steps = [*WATTS, *AVERAGING, (b"read2:pow?\n", b"+1.33555600E-006\n"), (b"read1:pow?\n", b"+3.40282347E+038\n")]
    with meter_on(*steps) as meter:
        assert meter.channels[1].power() == pytest.approx(1.335556e-6)
        assert np.isnan(meter.channels[0].power())


@pytest.mark.parametrize(
    "code", ["+9.9E37", "-9.9E+037", "9.91E37", "+3.40282347E+038", "-3.40282347E+038", "NAN", "inf"]
)
def test_codes_of_every_kind_are_no_readings(code):
    """Codes for overload, underload and not-a-number, as text and as float32 (D-26)."""
    replies = [(b"read1:pow?\n", code.encode() + b"\n"), powers(float(code), 1e-3)]
    with meter_on(*WATTS, *AVERAGING, *replies) as meter:
        assert np.isnan(meter.read_power(0))
        reading = meter.read_powers()
    assert reading.valid.tolist() == [False, True]
    assert np.isnan(reading.power_w[0])


def test_powers_near_nothing_stay_what_they_are():
    """The driver keeps to W, where 0, 1e-30 W and an offset below 0 are numbers; only decibels have none (D-35)."""
    with meter_on(*WATTS, *AVERAGING, powers(0.0, 1e-30), powers(-1e-9, 1e-3)) as meter:
        for expected in ([0.0, 1e-30], [-1e-9, 1e-3]):
            reading = meter.read_powers()
            assert reading.valid.all()
            assert reading.power_w == pytest.approx(expected, rel=1e-6, abs=0.0)


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (block(b"\x00" * 4), ReplyError),
        (block(b"\x00" * 12), ReplyError),
        (block(b"\x00" * 8)[:-4], LinkTimeoutError),
        (b"+1.0E-3\n", ReplyError),
        (block(b"\x00" * 8) + b"\n+1\n", ReplyError),
    ],
)
def test_bad_blocks_raise_and_the_next_reading_is_right(reply, error):
    with meter_on(*WATTS, *AVERAGING, (b"read:pow:all?\n", reply), IDN, powers(1e-3, 2e-3)) as meter:
        with raises_in_time(error, meter):
            meter.read_powers()
        assert meter.read_powers().power_w == pytest.approx([1e-3, 2e-3])


def test_block_with_line_ends_and_split_anywhere():
    raw = struct.pack("<2f", np.frombuffer(b"\n\r\n:", "<f4")[0], 1e-3)
    parts = [bytes([byte]) for byte in block(raw)]
    with meter_on(*WATTS, *AVERAGING, (b"read:pow:all?\n", parts)) as meter:
        assert meter.read_powers().power_w[1] == np.float32(1e-3)


def test_averaging_time_of_all_ports():
    step = [(b"sens%d:pow:atim 1.00000000E-01\n", b"sens%d:pow:atim?\n") for _ in range(2)]
    sets = chain.from_iterable(
        [(write % slot, None), NO_ERROR, (read % slot, b"+1.00000000E-001\n")]
        for slot, (write, read) in enumerate(step, start=1)
    )
    with meter_on(*AVERAGING, NO_ERROR, *sets) as meter:
        assert meter.averaging_time() == 20e-3
        meter.averaging_time(0.1)
        assert meter.channels[0].averaging_time.cache.get() == 0.1


def test_dead_link():
    with meter_on(*WATTS, *AVERAGING, (b"read:pow:all?\n", HangUp())) as meter:
        with pytest.raises(LinkError):
            meter.read_powers()
        with pytest.raises(LinkError, match="down"):
            meter.get_idn()
    with pytest.raises(LinkError, match="closed"):
        meter.read_powers()
    meter.close()


def test_snapshots_use_the_bus_as_documented():
    settings = list(chain.from_iterable(zip(WAVELENGTHS, AVERAGING, RANGES, AUTOMATIC, strict=True)))
    with meter_on(*[IDN, *settings] * 2) as meter:
        meter.snapshot_base(False)
        meter.snapshot_base(None)
        meter.snapshot_base("Only_invalid")
        snapshot = meter.snapshot_base(True)
        assert snapshot == json.loads(json.dumps(snapshot, allow_nan=False))
        assert snapshot["parameters"]["averaging_time"]["value"] == 20e-3
        ports = snapshot["submodules"]["channels"]["channels"]
        assert ports["meter_ch1"]["parameters"]["range_dbm"]["value"] == -30.0
        assert ports["meter_ch0"]["parameters"]["auto_range"]["value"] is True


def test_configuration_blocks():
    assert parse_slots(struct.pack("<4H", 1, 1, 2, 1)) == [(1, 1), (2, 1)]
    with pytest.raises(ValueError, match="pairs"):
        parse_slots(b"\x01\x00\x01")
