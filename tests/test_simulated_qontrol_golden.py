"""Dialogs recorded from real Qontrol modules, as shapes: for the simulated chain and for the driver's parsers.

Commands and replies are typed from facts about a chain of two Q8iv modules (firmware 2.4.1); numbers in replies are
patterns.
"""

import re

import pytest

from drivers._qontrol_protocol import (
    CHAIN_LINE,
    FIRMWARE,
    MODULE_ID,
    expect,
    parse_amperes,
    parse_ok,
    parse_volts,
    qontrol_dialect,
)
from optinc_hw.clock import SimulatedClock
from simulated_instruments import HiddenChip, SimulatedQontrol

V = rb"[+-]\d+\.\d{4} V\n"
I = rb"[+-]\d+\.\d{4} mA\n"  # noqa: E741 - as the command is called
VIP = rb"%s: [+-]\d+\.\d{4} V, [+-]\d+\.\d{4} mA(?:,[ \d]{4,}\.\d{4} mW,[ \d]{6,}\d Ohm)?\n"
VIPALL = b"".join(VIP % b"%d,%d" % (module, channel) for module in range(2) for channel in range(8))
CAL = rb"(?:[+-]\d+,){3}[+-]\d+\n"
NVM = b"".join(rb"%02X : 0x[0-9A-F]{4},  %02X : 0x[0-9A-F]{4}\n" % (k, k + 1) for k in range(0, 256, 2))
module_id = expect(MODULE_ID, "identity")
chain_line = expect(CHAIN_LINE, "chain line")
firmware = expect(FIRMWARE, "firmware")

GOLDEN = [
    (b"ID?\n", rb"Q8iv-0001\n", module_id),
    (b"ID1?\n", rb"Q8iv-[0-9A-F]{4}\n", module_id),
    (b"IDALL?\n", rb"(?:Q8iv-[0-9A-F]{4}\n){2}", module_id),
    (b"FIRMWARE?\n", rb"v2\.4\.1\n", firmware),
    (b"LIFETIME?\n", rb"\d+ s\n", None),
    (b"NUP=0\n", rb"(?:\x06OK\n){2}", None),
    (b"NUPALL?\n", rb"Q8iv-0001: 0\nQ8iv-[0-9A-F]{4}: 1\n", chain_line),
    (b"NUP?\n", rb"Q8iv-0001: 0\n", chain_line),
    (b"VFULL?\n", rb"\+12\.0000 V\n", parse_volts),
    (b"IFULL?\n", rb"\+24\.0000 mA\n", parse_amperes),
    (b"VFULLALL?\n", rb"(?:\+12\.0000 V\n){2}", parse_volts),
    (b"IFULLALL?\n", rb"(?:\+24\.0000 mA\n){2}", parse_amperes),
    (b"NCHAN?\n", rb"8\n", None),
    (b"V3?\n", V, parse_volts),
    (b"v3?\n", V, parse_volts),
    (b"I3?\n", I, parse_amperes),
    (b"VALL?\n", rb"(?:%s){16}" % V, parse_volts),
    (b"IALL?\n", rb"(?:%s){16}" % I, parse_amperes),
    (b"VIPALL?\n", VIPALL, None),
    (b"V3=2.5\n", rb"OK\n", parse_ok),
    (b"v3=2.5\n", rb"OK\n", parse_ok),
    (b"I3=4.3\n", rb"OK\n", parse_ok),
    (b"VVEC0=1,2,3,4,5,4,3,2\n", rb"OK\n", parse_ok),
    (b"VVEC8=1,2,3,4,5,4,3,2\n", rb"OK\n", parse_ok),
    (b"IVEC8=1,1,1,1\n", rb"OK\n", parse_ok),
    (b"VMAX3=10\n", rb"OK\n", parse_ok),
    (b"IMAX3=20\n", rb"OK\n", parse_ok),
    (b"VMAX3?\n", rb"\+12\.0000 V\n", parse_volts),
    (b"IMAX3?\n", rb"\+24\.0000 mA\n", parse_amperes),
    (b"VMAXALL?\n", rb"(?:\+12\.0000 V\n){16}", parse_volts),
    (b"VCAL3?\n", CAL, None),
    (b"ICAL3?\n", CAL, None),
    (b"LOG?\n", rb"", None),
    (b"NVMALL?\n", NVM + NVM, None),
    (b"ADCT?\n", rb"5\n", None),
    (b"ADCN?\n", rb"2\n", None),
    (b"LED?\n", rb"1\n", None),
    (b"OK?\n", rb"1\n", None),
    (b"SAFE?\n", rb"1\n", None),
    (b"HELP?\n", rb"(?:[ -~]+\n){5,}", None),
    (b"VERR3?\n", rb"E00:01\n", None),
    (b"IERR3?\n", rb"E00:01\n", None),
    (b"ROCOM0?\n", rb"E00:01\n", None),
    (b"CCFN0?\n", rb"E10:00\n", None),
    (b"V0=" + b",".join([b"1"] * 16) + b"\n", rb"E14:00\nE15:00\n", None),
    (bytes.fromhex("88000000000000"), V, parse_volts),
    (bytes.fromhex("A9000000000000"), rb"(?:%s){16}" % V, parse_volts),
    (bytes.fromhex("8100000000E8D4"), rb"OK\n", parse_ok),
    (bytes.fromhex("82000000080008") + bytes(16), rb"OK\n", parse_ok),
    (bytes.fromhex("82000000000010") + bytes(32), rb"OK\nOK\n", parse_ok),
]


def session():
    clock = SimulatedClock()
    chip = HiddenChip.from_seed(4, 4, clock=clock)
    return SimulatedQontrol("q", 2, chip, {k: k for k in range(16)}, clock).open_session()


@pytest.mark.parametrize(("command", "reply", "parser"), GOLDEN)
def test_simulated_chain_answers_as_recorded_and_the_driver_understands(command, reply, parser):
    answer = session().receive(command)
    assert re.fullmatch(reply, answer)
    lines = answer.decode("ascii").splitlines()
    if parser is not None:
        assert lines
        for line in lines:
            parser(line)
    event = qontrol_dialect(2).event
    assert [event.fullmatch(line.encode()) is not None for line in lines] == [reply[:1] == b"E" for _ in lines]


@pytest.mark.parametrize(
    ("line", "parser", "value"),
    [
        ("+2.5000 V", parse_volts, 2.5),
        ("-0.0036 mA", parse_amperes, -3.6e-6),
        ("+12.0000 V", parse_volts, 12.0),
        ("+24.0000 mA", parse_amperes, 24e-3),
        ("+83.3333 mA", parse_amperes, 83.3333e-3),
        ("OK", parse_ok, None),
    ],
)
def test_recorded_lines_have_their_values(line, parser, value):
    assert parser(line) == (None if value is None else pytest.approx(value, rel=1e-12))


def test_recorded_names_are_taken_apart():
    assert module_id("Q8iv-0001").groups() == ("Q8iv", "0001")
    assert module_id("Q8iv-****").groups() == ("Q8iv", "****")
    assert chain_line("Q8iv-****: 1").groups() == ("Q8iv-****", "1")
    assert firmware("v2.4.1")[0] == "v2.4.1"


def test_significant_currents_come_with_power_and_resistance_in_the_recorded_columns():
    recorded = b"1,5: +0.2048 V, +22.0300 mA,   4.5130 mW,      9 Ohm\n"
    assert re.fullmatch(VIP % b"1,5", recorded)
    chain = session()
    assert chain.receive(b"V13=2\n") == b"OK\n"
    line = chain.receive(b"VIPALL?\n").splitlines(keepends=True)[13]
    columns = [recorded.index(unit) - recorded.index(b" mA") for unit in (b" mW", b" Ohm")]
    assert [line.index(unit) - line.index(b" mA") for unit in (b" mW", b" Ohm")] == columns


def test_a_full_log_is_numbered_in_two_columns():
    chain = session()
    chain.receive(b"V0=13\n" * 12)
    lines = chain.receive(b"LOG?\n").decode().splitlines()
    assert lines == [f"# {k:2d}, E01:00, 0 s ago" for k in range(12)]
    assert re.fullmatch(r"#  0, E\d\d:\d\d, \d+ [smh] ago", lines[0])
