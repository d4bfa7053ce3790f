"""The simulated Qontrol chain, byte for byte at its session."""

import math
import re

import numpy as np
import pytest
from _qontrol_sessions import DAC_STEP_V, chain, numbers
from hypothesis import given
from hypothesis import strategies as st

from optinc_hw.clock import SimulatedClock
from optinc_hw.errors import ConfigurationError
from simulated_instruments import HiddenChip, SimulatedQontrol


@pytest.mark.parametrize(
    ("command", "reply"),
    [
        (b"ID?", b"Q8iv-0001\n"),
        (b"id1?", b"Q8iv-0002\n"),
        (b"IDALL?", b"Q8iv-0001\nQ8iv-0002\n"),
        (b"NUP=0", b"\x06OK\n\x06OK\n"),
        (b"nup?", b"Q8iv-0001: 0\n"),
        (b"NUPALL?", b"Q8iv-0001: 0\nQ8iv-0002: 1\n"),
        (b"FIRMWARE?", b"v2.4.1\n"),
        (b"LIFETIME?", b"156607 s\n"),
        (b"VFULL?", b"+12.0000 V\n"),
        (b"VFULLALL?", b"+12.0000 V\n+12.0000 V\n"),
        (b"ifull?", b"+24.0000 mA\n"),
        (b"IFULLALL?", b"+24.0000 mA\n+24.0000 mA\n"),
        (b"NCHAN?", b"8\n"),
        (b"VMAX3?", b"+12.0000 V\n"),
        (b"IMAX15?", b"+24.0000 mA\n"),
        (b"VMAXALL?", b"+12.0000 V\n" * 16),
        (b"VCAL3?", b"+1,+0,+0,+0\n"),
        (b"OK?", b"1\n"),
        (b"VERR3?", b"E00:01\n"),
        (b"CCFN0?", b"E10:00\n"),
        (b"V3=2.5", b"OK\n"),
        (b"v3=2.5\r", b"OK\n"),
        (b"VVEC8=1,2,3,4,5,6,7,0", b"OK\n"),
        (b"V3=12.5", b"E01:03\n"),
        (b"V11=12.5", b"E01:03\n"),
        (b"VVEC8=1,13,2", b"E01:01\n"),
        (b"I3=25", b"E02:03\n"),
        (b"VMAX3=13", b"E01:03\n"),
        (b"V0=" + b",".join([b"1"] * 16), b"E14:00\nE15:00\n"),
        (b"VVEC0=1,2,3,4,5,6,7,8,9", b"E14:00\nE15:00\n"),
        (b"VVEC4=1,2,3,4,5", b"E12:04\n"),
        (b"V16=1", b"E12:00\n"),
        (b"V16?", b"E12:00\n"),
        (b"ID2?", b"E12:02\n"),
        (b"V=1", b"E12:00\n"),
        (b"V3=x", b"E11:03\n"),
        (b"V3=", b"E11:03\n"),
        (b"V3=-1", b"E11:03\n"),
        (b"V3=nan", b"E11:03\n"),
        (b"V3=1,2", b"E11:03\n"),
        (b"V3?1", b"E11:00\n"),
        (b"NUP=1", b"E11:00\n"),
        (b"VFULL=3", b"E13:00\n"),
        (b"WHAT?", b"E10:00\n"),
        (b"WHAT=1", b"E10:00\n"),
        (b"hello", b"E10:00\n"),
        (b"", b""),
    ],
)
def test_commands(command, reply):
    session, _ = chain()
    assert session.receive(command + b"\n") == reply


def test_voltages_are_quantised_and_measured_with_noise():
    session, chip = chain()
    assert session.receive(b"V3=2.5\n") == b"OK\n"
    assert chip.heater_voltage(3) == pytest.approx(2.5, abs=DAC_STEP_V / 2)
    assert (chip.heater_voltage(3) / DAC_STEP_V) == pytest.approx(round(2.5 / DAC_STEP_V), abs=1e-9)
    readings = np.array([numbers(session.receive(b"VALL?\n"), "V") for _ in range(200)])
    assert readings.shape == (200, 16)
    assert readings[:, 3].mean() == pytest.approx(chip.heater_voltage(3), abs=3e-5)
    assert readings.std(axis=0) == pytest.approx(np.full(16, 1e-4), rel=0.4)
    assert numbers(session.receive(b"V3?\n"), "V")[0] == pytest.approx(2.5, abs=1e-3)


def test_currents_carry_offset_and_noise_and_open_channels_none():
    session, chip = chain()
    session.receive(b"VVEC0=1,2,3,4,5,6,7,8\nVVEC8=5,5,5,5,5,5,5,5\n")
    currents = 1e-3 * np.mean([numbers(session.receive(b"IALL?\n"), "mA") for _ in range(100)], axis=0)
    expected = [chip.heater_current(k) if k < 14 else 0.0 for k in range(16)]
    assert np.abs(currents - expected).max() < 12e-6
    assert np.abs(currents - expected).max() > 0.5e-6


def test_current_mode_finds_the_voltage():
    session, chip = chain()
    assert session.receive(b"I2=4\n") == b"OK\n"
    assert chip.heater_current(2) == pytest.approx(4e-3, rel=1e-4)
    assert session.receive(b"IVEC0=1,2\n") == b"OK\n"
    assert chip.heater_current(1) == pytest.approx(2e-3, rel=1e-4)


def test_open_load_in_current_mode_runs_to_the_voltage_limit():
    session, _ = chain()
    assert session.receive(b"VMAX15=3\n") == b"OK\n"
    assert session.receive(b"I15=1\n") == b"OK\n"
    error, voltage = session.receive(b"V15?\n").splitlines(keepends=True)  # the error comes with a later command
    assert error == b"E01:07\n"
    assert numbers(voltage, "V")[0] == pytest.approx(3.0, abs=1e-3)


def test_over_current_limits_the_voltage():
    session, chip = chain()
    assert session.receive(b"IMAX2=2\n") == b"OK\n"
    assert session.receive(b"V2=5\n") == b"OK\nE02:02\n"
    assert chip.heater_current(2) == pytest.approx(2e-3, rel=1e-4)
    assert session.receive(b"IMAX2?\n") == b"+2.0000 mA\n"


def test_lower_limits_pull_an_output_down():
    session, chip = chain()
    session.receive(b"V2=5\nV3=5\n")
    assert session.receive(b"VMAX2=3\n") == b"OK\nE01:02\n"
    assert chip.heater_voltage(2) == pytest.approx(3.0, abs=DAC_STEP_V)
    assert session.receive(b"IMAX3=1\n") == b"OK\nE02:03\n"
    assert chip.heater_current(3) == pytest.approx(1e-3, rel=1e-3)
    assert session.receive(b"VMAX2=4\nV2=4.5\n") == b"OK\nE01:02\n"


def test_refused_voltage_leaves_its_channel_and_sets_the_others():
    session, chip = chain()
    session.receive(b"V1=1.5\n")
    assert session.receive(b"VVEC0=1,12.1,2\n") == b"E01:01\n"
    assert [round(chip.heater_voltage(k), 3) for k in range(3)] == [1.0, 1.5, 2.0]


def test_set_all_channels():
    session, chip = chain()
    assert session.receive(b"VALL=0.5\n") == b"OK\n"
    assert all(chip.heater_voltage(k) == pytest.approx(0.5, abs=DAC_STEP_V) for k in range(14))
    assert session.receive(b"VALL=1,2\n") == b"E11:00\n"


def test_vipall_shows_power_only_with_current():
    session, _ = chain()
    session.receive(b"V9=3\n")
    lines = session.receive(b"VIPALL?\n").decode().splitlines()
    assert len(lines) == 16
    assert re.fullmatch(r"0,0: [+-]0\.\d{4} V, [+-]0\.\d{4} mA", lines[0])
    match = re.fullmatch(r"1,1: \+(\d\.\d{4}) V, \+(\d\.\d{4}) mA, ([ \d]{2}\d\.\d{4}) mW, ([ \d]{6}) Ohm", lines[9])
    assert match is not None
    voltage, current, power, resistance = map(float, match.groups())
    assert power == pytest.approx(voltage * current, rel=1e-3)
    assert resistance == pytest.approx(1e3 * voltage / current, rel=1e-3)


def test_error_log_belongs_to_the_module():
    clock = SimulatedClock()
    chip = HiddenChip.from_seed(4, 4, clock=clock)
    session = SimulatedQontrol("q", 2, chip, {}, clock).open_session()
    assert session.receive(b"LOG?\n") == b""
    session.receive(b"V1=13\n")
    clock.sleep(150.0)
    session.receive(b"V2=13\nV10=13\n")
    clock.sleep(5.0)
    assert session.receive(b"LOG?\n") == b"#  0, E01:02, 5 s ago\n#  1, E01:01, 2 m ago\n"
    assert session.receive(b"LOGALL?\n").count(b"\n") == 3
    clock.sleep(7200.0)
    assert session.receive(b"LOG1?\n") == b"#  0, E01:02, 2 h ago\n"
    session.receive(b"V1=13\n" * 100)
    assert session.receive(b"LOG?\n").count(b"\n") == 64


def test_sessions_share_the_chain():
    instrument = SimulatedQontrol("q", 1, HiddenChip.from_seed(0, 2), {0: 0}, SimulatedClock())
    one, two = instrument.open_session(), instrument.open_session()
    one.receive(b"V0=")
    assert two.receive(b"V0=1\n") == b"OK\n"
    assert one.receive(b"2\n") == b"OK\n"
    assert numbers(two.receive(b"V0?\n"), "V")[0] == pytest.approx(2.0, abs=1e-3)


def test_new_chain_finds_voltages_as_they_are():
    chip = HiddenChip.from_seed(0, 2)
    chip.set_heater_voltages({3: 2.0})
    session = SimulatedQontrol("q", 1, chip, {5: 3}, chip.clock).open_session()
    assert numbers(session.receive(b"V5?\n"), "V")[0] == pytest.approx(2.0, abs=1e-3)


GARBLED, _ = chain(modules=1, loads=2)


@given(st.text(st.characters(max_codepoint=127), max_size=64))
def test_garbled_text_never_breaks_a_session(text):
    GARBLED.receive(text.encode("ascii") + b"\n")
    assert GARBLED.receive(b"ID?\n") == b"Q8iv-0001\n"


def test_endless_line_overflows():
    session, _ = chain()
    assert session.receive(b"V" * 5000) == b"E14:00\nE15:00\n"
    assert session.receive(b"ID?\n") == b"Q8iv-0001\n"


@pytest.mark.parametrize(("modules", "heaters"), [(0, {}), (33, {}), (1, {8: 0}), (1, {-1: 0})])
def test_impossible_chains(modules, heaters):
    with pytest.raises(ConfigurationError, match="simulated q"):
        SimulatedQontrol("q", modules, HiddenChip.from_seed(0, 2), heaters, SimulatedClock())


def test_voltage_noise_comes_from_the_chip_seed():
    replies = [chain()[0].receive(b"VALL?\nIALL?\n") for _ in range(2)]
    assert replies[0] == replies[1]
    assert not math.isclose(float(replies[0].split()[0]), 0.0, abs_tol=1e-12)
