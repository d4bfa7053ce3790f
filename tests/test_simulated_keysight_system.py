"""The simulated Keysight power meter as a whole: models, zeroing, status, errors, restarts, coupling."""

import contextlib
import re
import socket

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optinc_hw.clock import SimulatedClock
from optinc_hw.errors import ConfigurationError
from simulated_instruments import (
    BenchWiring,
    HiddenChip,
    HiddenEffects,
    InstrumentSpec,
    SimulatedBench,
    SimulatedKeysightN7745A,
)

OVER_RANGE = float(np.finfo(np.float32).max)
POWER_ON, COMMAND_ERROR, EXECUTION_ERROR, DEVICE_ERROR, QUERY_ERROR, OPERATION_COMPLETE = 128, 32, 16, 8, 4, 1


class Meter:
    """A meter on the plus photodiodes of a 4-port chip; ports 5 to 8 are dark."""

    def __init__(self, effects=None, ports=8, model=None):
        self.clock = SimulatedClock()
        self.chip = HiddenChip.from_seed(1, 4, effects=effects, clock=self.clock)
        self.chip.set_laser(4e-3, 1550e-9)
        detectors = {port: port for port in range(4)}
        self.device = SimulatedKeysightN7745A("m", ports, self.chip, detectors, self.clock, model=model)
        self.session = self.device.open_session()

    def raw(self, *commands):
        return b"".join(self.session.receive(command.encode() + b"\n") for command in commands)

    def __call__(self, *commands):
        return self.raw(*commands).decode()

    def errors(self):
        found = []
        while (entry := self("syst:err?")) != '+0,"No error"\n':
            found.append(int(entry.split(",")[0]))
        return found

    def events(self):
        return int(self("*esr?"))


@pytest.fixture
def meter():
    return Meter()


@pytest.mark.parametrize(
    ("model", "ports", "identity"),
    [
        ("N7744A", 4, "Agilent Technologies,N7744A,"),
        ("N7745A", 8, "Agilent Technologies,N7745A,"),
        ("N7744C", 4, "Keysight Technologies,N7744C,"),
        ("N7745C", 8, "Keysight Technologies,N7745C,"),
    ],
)
def test_models(model, ports, identity):
    meter = Meter(ports=ports, model=model)
    assert meter("*idn?").startswith(identity)
    assert len(meter("*idn?").split(",")) == 4
    assert len(meter.raw("read:pow:all?")) == 4 + 4 * ports + 1


@pytest.mark.parametrize(("model", "ports"), [("N7745C", 4), ("N7744C", 8), ("N7747A", 8)])
def test_impossible_models(model, ports):
    with pytest.raises(ConfigurationError, match=model):
        Meter(ports=ports, model=model)


@pytest.mark.parametrize(
    ("command", "reply"),
    [
        ("sens1:pow:gain:auto?", "+1\n"),
        ("sens1:pow:gain:auto 0;auto?", "+0\n"),
        ("sens1:corr:coll:zero?", "+0\n"),
        ("sens:corr:coll:zero:all?", "+0\n"),
        ("stat:oper:cond?", "+0\n"),
        ("sens1:pow:unit 1;:sens8:pow:unit w;:sens:pow:unit:all:csv?", "1,0,0,0,0,0,0,1\n"),
    ],
)
def test_commands(meter, command, reply):
    assert meter(command) == reply


def test_zeroing_takes_seconds_and_removes_what_the_electronics_add():
    effects = HiddenEffects.none()
    meter = Meter(effects)
    meter.chip.set_laser(0.0, 1550e-9)
    object.__setattr__(meter.chip.parameters, "dark_w", meter.chip.parameters.dark_w + 20e-9)
    meter("sens1:pow:unit W;rang -30;:init1:cont 0;:sens2:pow:unit W;rang -30;:init2:cont 0")
    assert float(meter("read1:pow?")) == pytest.approx(20e-9, rel=1e-3)
    before = meter.clock.now()
    meter("sens1:corr:coll:zero")
    assert meter.clock.now() == before
    assert meter("stat:oper:cond?") == "+2\n"
    assert meter("*opc?") == "1\n"
    assert meter.clock.now() - before > 1.0
    assert meter("stat:oper:cond?") == "+0\n"
    assert meter("sens1:corr:coll:zero?") == "+0\n"
    assert float(meter("read1:pow?")) == pytest.approx(0.0, abs=1e-11)
    assert float(meter("read2:pow?")) == pytest.approx(20e-9, rel=1e-3)
    meter("*rst", "sens1:pow:unit W;rang -30;:init1:cont 0")
    assert float(meter("read1:pow?")) == pytest.approx(0.0, abs=1e-11)  # a reset does not undo it
    meter.device.restart()
    meter("sens1:pow:unit W;rang -30;:init1:cont 0")
    assert float(meter("read1:pow?")) == pytest.approx(20e-9, rel=1e-3)


def test_zeroing_fails_where_there_is_light(meter):
    meter("sens:corr:coll:zero:all")
    before = meter.clock.now()
    assert meter("sens1:corr:coll:zero?") == "+1\n"  # waits for the end
    assert meter.clock.now() - before > 1.0
    assert meter("sens8:corr:coll:zero?") == "+0\n"
    assert meter("sens:corr:coll:zero:all?") == "+1\n"
    meter("sens1:pow:unit W")
    assert float(meter("read1:pow?")) > 1e-6


def test_codes_come_with_errors():
    """Too much light, and the decibels of nothing (D-35)."""
    meter = Meter(HiddenEffects.none())
    meter("sens1:pow:unit W;rang -30;:init1:cont 0")
    assert float(meter("read1:pow?")) == pytest.approx(OVER_RANGE)
    assert meter.errors() == [-231]
    for port in range(2, 9):
        meter(f"sens{port}:pow:unit W")
    meter.raw("read:pow:all?")
    assert meter.errors() == [-231]
    meter.chip.set_laser(0.0, 1550e-9)
    meter("sens1:pow:unit DBM")
    assert float(meter("read1:pow?")) == pytest.approx(-OVER_RANGE)
    assert meter.errors() == [-261]


@pytest.mark.parametrize(
    ("command", "event", "code"),
    [
        ("nonsense", COMMAND_ERROR, -113),
        ("sens1:pow:atim much", COMMAND_ERROR, -104),
        ("init1", EXECUTION_ERROR, -213),
        ("sens1:pow:wav 1nm", EXECUTION_ERROR, -222),
        ("sens1:pow:unit volt", EXECUTION_ERROR, -224),
    ],
)
def test_event_status_tells_the_class_of_errors(meter, command, event, code):
    assert meter.events() == POWER_ON
    assert meter.events() == 0
    meter(command)
    assert meter.events() == event
    assert meter.errors() == [code]
    meter(command, "*cls")
    assert (meter.events(), meter.errors()) == (0, [])


def test_operation_complete_event(meter):
    meter("*cls", "init1:cont 0", "init1", "*opc")
    assert meter.events() == 0
    meter.clock.sleep(0.2)
    assert meter.events() == OPERATION_COMPLETE
    assert meter.events() == 0


def test_error_flood(meter):
    meter.events()
    assert meter.device.flood_errors(40) == b""
    found = meter.errors()
    assert len(found) == 30
    assert found[-1] == -350
    assert meter.events() == DEVICE_ERROR
    assert meter("*idn?").startswith("Agilent")


COMMANDS = st.sampled_from(
    [
        "sens{}:pow:wav 1310nm",
        "sens{}:pow:unit W",
        "sens{}:pow:rang -20",
        "sens{}:pow:atim 1ms",
        "sens{}:pow:gain:auto 0",
        "sens{}:corr:coll:zero",
        "init{}:cont 0",
        "init{}",
        "trig{}:inp sme",
        "trig{}:outp meas",
        "trig:conf loop",
        "trig 1",
        "sens{}:func:par:logg 7,2ms",
        "sens{}:func:par:stab 7,1,1ms",
        "sens{}:func:par:minm refr,7",
        "sens{}:func:stat logg,star",
        "sens{}:func:stat minm,star",
        "read{}:pow?",
        "read:pow:all?",
        "*opc",
        "nonsense",
        "sens{}:pow:wav 1m",
    ]
)
QUERIES = (
    ["syst:err?", "*esr?", "trig:conf?", "stat:oper:cond?", "sens1:func:par:logg?;stab?;minm?"]
    + [f"sens{port}:pow:wav?;unit?;atim?;rang?;rang:auto?" for port in (1, 5)]
    + [f"sens{port}:pow:gain:auto?;:sens{port}:corr:coll:zero?;:init{port}:cont?" for port in (1, 5)]
    + [f"trig{port}:inp?;outp?;:sens{port}:func:stat?" for port in (1, 5)]
)


@settings(max_examples=25)
@given(st.lists(st.tuples(COMMANDS, st.integers(1, 8), st.sampled_from([0.0, 0.005, 5.0])), max_size=12))
def test_a_restarted_meter_is_like_a_new_one(commands):
    """Whatever was done before (S-01)."""
    used = Meter()
    for command, port, seconds in commands:
        used.raw(command.format(port))
        used.clock.sleep(seconds)
    used.device.restart()
    assert used(*QUERIES) == Meter()(*QUERIES)
    values = used.raw("sens1:pow:unit W;:read1:pow?")
    assert float(values) == pytest.approx(float(Meter()("sens1:pow:unit W;:read1:pow?")), rel=0.05)


def test_laser_and_heaters_change_the_readings_through_the_chip_alone():
    """What one instrument sends out is what another one sees (S-07)."""
    clock = SimulatedClock()
    chip = HiddenChip.from_seed(3, 2, effects=HiddenEffects.none(), clock=clock)
    specs = (
        InstrumentSpec("laser", "santec_tsl570"),
        InstrumentSpec("heaters", "qontrol_q8iv", 2),
        InstrumentSpec("meter", "keysight_n7745a", 4, {"model": "N7744C"}),
    )
    wiring = BenchWiring(
        heaters={name: ("heaters", k) for k, name in enumerate(chip.layout.heaters)},
        detectors={name: ("meter", k) for k, name in enumerate(chip.layout.detectors)},
        laser="laser",
    )
    with SimulatedBench(chip, specs, wiring, clock) as bench, contextlib.ExitStack() as stack:
        laser, heaters, meter = (
            stack.enter_context(Line(bench.addresses[name])) for name in ("laser", "heaters", "meter")
        )

        def powers():
            clock.sleep(10.0)
            return np.frombuffer(meter.ask("read:pow:all?\n", 21)[4:-1], "<f4")

        for port in range(1, 5):
            meter.ask(f"sens{port}:pow:unit W;:init{port}:cont 0;*opc?\n", 2)
        assert powers() == pytest.approx(np.zeros(4), abs=1e-9)
        laser.ask(":POW:STAT 1\r:POW:SHUT 0\r:POW 0\r:SYST:ERR?\r", 13)
        at_one_milliwatt = powers()
        assert at_one_milliwatt.max() > 1e-6
        laser.ask(":POW 3.0103\r:SYST:ERR?\r", 13)
        assert powers() == pytest.approx(2.0 * at_one_milliwatt, rel=1e-3)
        before = powers()
        count = len(chip.layout.heaters)
        heaters.ask("".join([f"V{k}={1 + 0.3 * k}\n" for k in range(count)]), 3 * count)
        assert np.abs(powers() - before).max() > 1e-6
        laser.ask(":POW:SHUT 1\r:SYST:ERR?\r", 13)
        assert powers() == pytest.approx(np.zeros(4), abs=1e-9)


class Line(contextlib.closing):
    """A plain socket to a served instrument."""

    def __init__(self, address):
        port = int(re.search(r"127\.0\.0\.1:{1,2}(\d+)", address).group(1))
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10.0)
        super().__init__(self.socket)

    def __enter__(self):
        return self

    def ask(self, text, count):
        self.socket.sendall(text.encode())
        reply = b""
        while len(reply) < count:
            reply += self.socket.recv(count - len(reply))
        return reply
