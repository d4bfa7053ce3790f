"""What happens inside a simulated Qontrol chain: late errors, restarts, floods, changing loads, types."""

import numpy as np
import pytest
from _qontrol_sessions import DAC_STEP_V, chain, frame, numbers
from hypothesis import given, settings
from hypothesis import strategies as st

from optinc_hw.clock import SimulatedClock
from optinc_hw.errors import ConfigurationError
from simulated_instruments import BenchWiring, HiddenChip, InstrumentSpec, SimulatedBench, SimulatedQontrol
from simulated_instruments.faults import OpenHeater, ShortedHeater

COMMANDS = st.sampled_from(
    [
        b"V0=3\n",
        b"I1=2\n",
        b"I15=1\n",
        b"VMAX2=4\n",
        b"IMAX3=1\n",
        b"VVEC8=1,2,3,4,5,6,7,8\n",
        b"V0=13\n",
        b"nonsense\n",
        b"NUP=0\n",
        frame(0, words=(0x8000,), everywhere=True),
        frame(3, address=4, words=(0x0100,)),
    ]
)
STATE = (
    b"IDALL?",
    b"NUPALL?",
    b"VFULLALL?",
    b"IFULLALL?",
    b"VMAXALL?",
    b"IMAXALL?",
    b"LOGALL?",
    b"NVMALL?",
    b"VCALALL?",
)


def made(kind="Q8iv", loads=14):
    clock = SimulatedClock()
    chip = HiddenChip.from_seed(4, 4, clock=clock)
    return SimulatedQontrol("q", 2, chip, {k: k for k in range(loads)}, clock, kind), chip


@given(st.lists(COMMANDS, max_size=8))
@settings(max_examples=30, deadline=None)
def test_restart_equals_a_fresh_instrument(commands):
    used, chip = made()
    session = used.open_session()
    session.receive(b"".join(commands))
    used.restart()
    assert session.receive(b"ID?\n").endswith(b"E90:00\nE90:00\nQ8iv-0001\n")
    fresh, _ = made()
    other = fresh.open_session()
    for command in STATE:
        assert session.receive(command + b"\n") == other.receive(command + b"\n")
    assert np.abs(numbers(session.receive(b"VALL?\n"), "V")).max() < 1e-3
    assert np.abs(numbers(session.receive(b"IALL?\n"), "mA")).max() < 20e-3
    assert [chip.heater_voltage(k) for k in range(14)] == [0.0] * 14
    assert session.receive(b"V0=2\n") == b"OK\n"


def test_memory_outlasts_a_restart():
    instrument, _ = made()
    session = instrument.open_session()
    session.receive(frame(0x26, words=(0x1234,), everywhere=True))
    instrument.restart()
    session.receive(b"ID?\n")
    assert session.receive(b"NVMALL?\n").startswith(b"00 : 0x1234,")


def test_late_errors_and_restarts_reach_every_client_once():
    instrument, _ = made()
    one, two = instrument.open_session(), instrument.open_session()
    assert one.receive(b"I15=1\n") == b"OK\n"  # an open load
    assert one.receive(b"OK?\n") == b"E01:07\n1\n"
    assert one.receive(b"OK?\n") == b"1\n"
    instrument.restart()
    assert two.receive(frame(0x37, read=True)) == b"E01:07\nE90:00\nE90:00\n1\n"
    assert two.receive(b"\n") == b""
    assert instrument.open_session().receive(b"OK?\n") == b"1\n"


def test_clients_who_never_ask_do_not_fill_the_memory():
    instrument, _ = made()
    silent, busy = instrument.open_session(), instrument.open_session()
    for _ in range(1000):
        busy.receive(b"I15=1\n")
    assert silent.receive(b"OK?\n").count(b"E01:07\n") == 64


@pytest.mark.parametrize(("count", "lines"), [(0, 0), (3, 3), (16, 16), (17, 17), (500, 17)])
def test_floods_of_errors_are_cut_off_with_the_error_that_says_so(count, lines):
    instrument, _ = made()
    flood = instrument.flood_errors(count).splitlines()
    assert len(flood) == lines
    assert (flood[-1:] == [b"E30:00"]) == (count > 16)
    assert {line[:4] for line in flood} <= {b"E01:", b"E30:"}
    logged = instrument.open_session().receive(b"LOGALL?\n")
    assert logged.count(b"E01:") == min(count, 64 + 63)
    assert logged.count(b"E30:") == (count > 16)


def test_a_heater_that_shorts_draws_no_more_than_the_limit():
    instrument, chip = made()
    session = instrument.open_session()
    session.receive(b"V2=5\nV3=5\n")
    chip.inject(ShortedHeater(chip.layout.heaters[2]))
    assert session.receive(b"V3?\n").startswith(b"E02:02\n+5.0")
    assert chip.heater_current(2) == pytest.approx(24e-3, rel=0.02)
    assert session.receive(b"V2=5\n") == b"OK\nE02:02\n"


def test_a_heater_that_opens_makes_current_mode_run_to_the_voltage_limit():
    instrument, chip = made()
    session = instrument.open_session()
    chip.inject(OpenHeater(chip.layout.heaters[2]))
    assert session.receive(b"I2=2\n") == b"OK\n"
    error, voltage = session.receive(b"V2?\n").splitlines(keepends=True)
    assert error == b"E01:02\n"
    assert numbers(voltage, "V")[0] == pytest.approx(12.0, abs=1e-3)


@pytest.mark.parametrize(
    ("kind", "current"),
    [("Q8iv", b"+24.0000"), ("Q8b", b"+83.3333"), ("Q8bi", b"+100.0000"), ("Q8a", b"+100.0000")],
)
def test_types_of_modules(kind, current):
    session, chip = chain(kind=kind)
    assert session.receive(b"IDALL?\n") == f"{kind}-0001\n{kind}-0002\n".encode()
    assert session.receive(b"NUPALL?\n") == f"{kind}-0001: 0\n{kind}-0002: 1\n".encode()
    assert session.receive(b"IFULLALL?\n") == (current + b" mA\n") * 2
    assert session.receive(b"IMAX0?\n") == current + b" mA\n"
    assert session.receive(b"VFULL?\nVMAX15?\n") == b"+12.0000 V\n" * 2
    assert kind.encode() in session.receive(b"HELP?\n").splitlines()[0]
    assert session.receive(b"V0=2\n") == b"OK\n"
    assert chip.heater_voltage(0) == pytest.approx(2.0, abs=DAC_STEP_V)
    assert session.receive(b"I1=101\n") == b"E02:01\n"


def test_the_type_is_an_option_of_the_bench():
    clock = SimulatedClock()
    chip = HiddenChip.from_seed(0, 2, clock=clock)
    laser = InstrumentSpec("laser", "santec_tsl570")
    wiring = BenchWiring({}, {}, "laser")
    spec = InstrumentSpec("heaters", "qontrol", 1, {"module_type": "Q16"})
    with pytest.raises(ConfigurationError, match=r"heaters.*Q16.*Q8iv, Q8b, Q8bi, Q8a"):
        SimulatedBench(chip, (spec, laser), wiring, clock)
