"""Modules, binary frames and error lines of Qontrol chains, byte for byte."""

import pytest
from _qontrol_scripts import FIND, OK, SAFE, ZEROS, chain_on, chain_steps, connect_steps, vall, vvec
from _scripted_link import ScriptServer
from hypothesis import given
from hypothesis import strategies as st

from drivers import Qontrol
from drivers._qontrol_protocol import voltage_code, voltage_frame
from optinc_hw.errors import ConfigurationError, DeviceError, IdentityError, LimitError

FULL_CURRENTS = {"Q8iv": "+24.0000 mA", "Q8b": "+83.3333 mA", "Q8bi": "+100.0000 mA", "Q8a": "+100.0000 mA"}


def family_steps(kind, modules=1):
    found = (b"ID?\n", f"{kind}-0001\n".encode())
    return [found, FIND[1], *chain_steps(modules, kind.encode(), f"{FULL_CURRENTS[kind]}\n".encode())]


def refused(match, *steps, **kwargs):
    with ScriptServer(*FIND, *steps) as server, pytest.raises(IdentityError, match=match):
        Qontrol("heaters", server.serial_url, timeout=5.0, **kwargs)


# Types of modules -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FULL_CURRENTS)
@pytest.mark.parametrize("named", [True, False])
def test_each_type_has_its_own_full_scale(kind, named):
    kwargs = {"module_type": kind} if named else {}
    milliamperes = float(FULL_CURRENTS[kind].split()[0])
    with chain_on(driver=Qontrol, connect=family_steps(kind), **kwargs) as chain:
        assert chain.module_type == kind
        chain.set_channel_limits(0, max_voltage=12.0, max_current=1e-3 * milliamperes)
        with pytest.raises(LimitError, match="full scale"):
            chain.set_channel_limits(0, max_current=1.01e-3 * milliamperes)
        with pytest.raises(LimitError, match="full scale"):
            chain.set_channel_limits(0, max_voltage=12.1)


def test_another_type_than_the_one_asked_for_is_refused():
    refused(r"Q8iv-0001.*type Q8bi", *chain_steps(), modules=1, module_type="Q8bi")


def test_chains_of_several_types_are_refused():
    steps = chain_steps(2)
    mixed = (steps[0][0], b"Q8iv-0001: 0\nQ8b-0002: 1\n")
    refused(r"Q8b-0002.*same type.*chain of its own", mixed, *steps[1:3], mixed, modules=2)


def test_motor_cards_and_unknown_full_scales_are_refused():
    motor = [(command, reply.replace(b"Q8iv", b"M2")) for command, reply in chain_steps()]
    refused(r"M2-0001.*one of Q8iv, Q8b, Q8bi, Q8a", *motor, modules=1)
    refused(r"Q8iv-0001.*0\.05 A.*0\.024 A", *chain_steps(full=b"+50.0000 mA\n"), modules=1)


def test_there_is_no_other_type():
    with pytest.raises(ConfigurationError, match=r"Q16.*Q8iv, Q8b, Q8bi, Q8a"):
        Qontrol("heaters", "socket://127.0.0.1:1", modules=1, module_type="Q16")


@pytest.mark.parametrize("late_after", [1, 2, 3])
def test_a_module_too_many_is_found_even_if_its_line_is_late(late_after):
    steps = chain_steps(1)[: late_after + 1]
    command, reply = steps[late_after]
    refused("exactly 1 modules", *steps[:late_after], (command, b"Q8iv-0002: 1\n" + reply), modules=1)


def test_numbers_in_the_chain_must_be_those_of_the_channels():
    refused(r"numbers \[0, 2\]", (b"NUPALL?\n", b"Q8iv-0001: 0\nQ8iv-0002: 2\n"), modules=2)


def test_a_chain_that_changes_while_it_is_asked_is_refused():
    steps = chain_steps()
    refused("Q8iv-0001.*then.*Q8iv-0007", *steps[:3], (b"NUPALL?\n", b"Q8iv-0007: 0\n"), modules=1)


def test_a_stale_answer_of_the_same_form_is_not_taken_for_the_fresh_one():
    # Whoever was here before asked ID? or FIRMWARE? and left.
    for stale in ((b"ID?\n", b"Q8iv-0009\nQ8iv-0001\n"), (b"ID?\n", b"v1.0\nQ8iv-0001\n")):
        with ScriptServer(stale, FIND[1], *chain_steps()) as server:
            Qontrol("heaters", server.serial_url, modules=1).close()
    stale = [(b"ID?\n", b"Q8iv-0001\n"), (b"FIRMWARE?\n", b"Q8iv-0001\nv2.4.1\n")]
    with ScriptServer(*stale, *chain_steps()) as server:
        Qontrol("heaters", server.serial_url, modules=1).close()


# Binary frames ----------------------------------------------------------------------------------------------------


def test_frames_are_those_of_the_facts():
    assert voltage_frame(0, [0xE8D4]) == bytes.fromhex("8100000000E8D4")
    words = list(range(1, 9))
    assert voltage_frame(8, words) == bytes.fromhex("82000000080008") + b"".join(w.to_bytes(2, "big") for w in words)
    assert voltage_frame(0x1234, [0]) == bytes.fromhex("81000012340000")


@given(st.floats(0.0, 12.0))
def test_codes_never_exceed_the_voltage_and_miss_it_by_less_than_a_step(volts):
    step = 12.0 / 0xFFFF
    code = voltage_code(volts, 12.0)
    assert 0 <= code <= 0xFFFF
    assert code * step <= volts + 1e-5 * step
    assert volts - code * step < step


def test_every_code_is_reached():
    assert [voltage_code(code * 12.0 / 0xFFFF, 12.0) for code in range(0x10000)] == list(range(0x10000))


def test_binary_chain_sets_with_frames_and_reads_with_text():
    at_1v, at_2v = round(0xFFFF / 12 - 0.5).to_bytes(2, "big"), int(2 * 0xFFFF / 12).to_bytes(2, "big")
    steps = [
        vall(count=16),
        (bytes.fromhex("8100000003") + at_1v, OK),
        (bytes.fromhex("82000000080002") + at_1v + at_1v, OK),
        (bytes.fromhex("8100000003") + at_2v, OK),
        vall(0.0, 0.0, 0.0, 2.0, count=16),
        (bytes.fromhex("82000000000008") + bytes(6) + at_1v + bytes(8), OK),
        (bytes.fromhex("82000000080008") + bytes(16), OK),
        (bytes.fromhex("8100000003") + bytes(2), OK),
        vall(count=16),
    ]
    with chain_on(*steps, driver=Qontrol, connect=connect_steps(2), modules=2, binary=True) as chain:
        chain.set_voltages({3: 2.0, 8: 1.0, 9: 1.0})


def test_refused_frame():
    steps = [vall(), (bytes.fromhex("81000000030AAA"), b"E01:03\n"), *FIND, vall(), vall()]
    zeros = (bytes.fromhex("82000000000008") + bytes(16), OK)
    with chain_on(*steps, zeros, vall(), driver=Qontrol, binary=True) as chain:
        with pytest.raises(DeviceError, match=r"E01:03 \(over-voltage\)"):
            chain.set_voltages({3: 0.5})
        assert chain.nonzero_outputs() == {}


# Error lines ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (b"E90:00\n", "powered up, outputs are at 0 V"),
        (b"E30:00\n", "some suppressed"),
        (b"E01:03\nE02:04\nE30:00\n", r"channel 3 or 11.*channel 4 or 12.*suppressed"),
    ],
)
@pytest.mark.parametrize("question", ["V0?", "FIRMWARE?", "ID?"])
def test_after_any_error_line_the_next_ramp_starts_from_measured_voltages(error, words, question):
    answers = {"V0?": b"+0.5000 V\n", "FIRMWARE?": b"v2.4.1\n", "ID?": b"Q8iv-0001\n"}
    actions = {"V0?": lambda c: c.read_voltage(0), "FIRMWARE?": lambda c: c.ask("FIRMWARE?"), "ID?": lambda c: c.IDN()}
    steps = [vall(count=16), vvec("0=0.50000"), (f"{question}\n".encode(), error + answers[question])]
    steps += [vall(count=16), vvec("0=0.50000"), vall(0.5, count=16), vvec(f"0={ZEROS}"), vvec(f"8={ZEROS}")]
    with chain_on(*steps, vall(count=16), modules=2) as chain:
        chain.set_voltages({0: 0.5})
        with pytest.raises(DeviceError, match=words):
            actions[question](chain)
        chain.set_voltages({0: 0.5})  # it may be at 0 V by now: is sent although it was set before


def test_a_restart_in_the_middle_of_a_ramp_stops_it():
    steps = [vall(), vvec("0=1.00000"), vvec("0=2.00000", b"E90:00\nOK\n"), *SAFE]
    with chain_on(*steps) as chain:
        with pytest.raises(DeviceError, match="powered up") as caught:
            chain.set_voltages({0: 5.0})
        assert "stopped in step 2" in caught.value.__notes__[0]
