"""The simulated CoBrite: replies byte for byte, rights and locks of sessions, tuning that takes time, restart."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optinc_hw.clock import SimulatedClock
from optinc_hw.errors import ConfigurationError
from simulated_instruments import HiddenChip, HiddenEffects, InstrumentSpec, SimulatedCobrite
from simulated_instruments._kind import Surroundings
from simulated_instruments.cobrite import KIND

RECEIVERS_SHARE = 0.15
STATE = [
    *(f"{query} 1,1,{device}" for query in ("CONF?", "WAV?", "FREQ?", "APOW?", "BUSY?", "LALAR?") for device in (1, 2)),
    "LAY?", "PASS?", "LOCK?", "INTL?", "ALAR?", "*OPC?", "ERR?",
]  # fmt: skip


class Unit:
    """A CoBrite on an ideal chip, asked through one session."""

    def __init__(self, **kwargs):
        self.clock = SimulatedClock()
        self.chip = HiddenChip.from_seed(0, 2, effects=HiddenEffects.none(), clock=self.clock)
        self.instrument = SimulatedCobrite(self.chip, self.clock, **kwargs)
        self.session = self.instrument.open_session()

    def __call__(self, *commands):
        return b"".join(self.session.receive(command.encode() + b";") for command in commands).decode()

    def light(self):
        return self.chip.detector_powers().sum() / RECEIVERS_SHARE


@pytest.fixture
def unit():
    return Unit()


@pytest.mark.parametrize(
    ("commands", "reply"),
    [
        (["LAY?"], "LAY,1,1,DEV2;"),
        (["INTI"], "OK;"),
        (["WAV 1,1,1,1550.1", "WAV? 1,1,1"], "OK;1550.1000;"),
        (["wav 1, 1, 1, 1550.1", "wav? 1,1,1"], "OK;1550.1000;"),
        (["FREQ 1,1,2,193.5", "FREQ? 1,1,2", "WAV? 1,1,2"], "OK;193.500000;1549.3150;"),
        (["OFF 1,1,1,-1.5", "OFF? 1,1,1"], "OK;-1.500;"),
        (["POW 1,1,1,7.5", "POW? 1,1,1"], "OK;7.50;"),
        (["STAT? 1,1,1", "STAT 1,1,1,1", "STAT? 1,1,1", "STAT? 1,1,2"], "0;OK;1;0;"),
        (["CONF 1,1,1,193.4,1.25,10,1,0", "CONF? 1,1,1"], "OK;193.400000,1.250,10.00,1,1,0;"),
        (["DIT 1,1,1,0", "DIT? 1,1,1"], "OK;0;"),
        (["BUSY? 1,1,1", "STAT 1,1,1,1", "BUSY? 1,1,1", "*OPC?", "BWAI 1,1,1", "BUSY? 1,1,1"], "0;OK;1;0;OK;0;"),
        (["STAT 1,1,2,1", "*WAI", "*OPC?"], "OK;OK;1;"),
        (["APOW? 1,1,1", "STAT 1,1,1,1", "BWAI 1,1,1", "APOW? 1,1,1"], "-60.00;OK;OK;10.00;"),
        (["PASS?", "PASS IDP", "PASS?", "INTI", "PASS?"], "0;OK;1;OK;0;"),
        (["PASS IDP", "PASS 0", "PASS?"], "OK;OK;0;"),
        (["PASS IDP", "LOCK 1", "LOCK?", "POW 1,1,1,8", "LOCK 0"], "OK;OK;0;OK;OK;"),
        (["ABOR", "ALAR?", "LALAR? 1,1,1", "INTL?", "IPADDR?"], "OK;0;0;0;127.0.0.1;"),
        (["ERR?", "NONSENSE", "ERR?"], "0,no error;ERR 100,NONSENSE unknown command;100,NONSENSE unknown command;"),
        (["WAV 1,1,1,0x10", "WAV? 1,1,1"], "ERR 100,0x10 is no number;1549.9999;"),
        (["STAT 1,1,1,2"], "ERR 100,2 is neither 0 nor 1;"),
        (["WAV? 1,1,3"], "ERR 100,no laser at 1,1,3;"),
        (["WAV? a,1,3"], "ERR 100,a port is chassis,slot,device;"),
        (["WAV?"], "ERR 101,3 arguments expected;"),
        (["CONF 1,1,1,193.4,0,10,1"], "ERR 101,8 arguments expected;"),
        (["*IDN? 1"], "ERR 101,0 arguments expected;"),
        (["LOCK 1"], "ERR 201,level 1 required;"),
        (["PASS WRONG", "PASS?"], "ERR 201,wrong password;0;"),
    ],
)
def test_commands(unit, commands, reply):
    assert unit(*commands) == reply


@pytest.mark.parametrize(
    ("command", "limit"),
    [("WAV", 0), ("FREQ", 0), ("FREQ", 1), ("OFF", 2), ("POW", 3), ("POW", 4)],
)
def test_values_outside_of_the_limits_it_tells_are_refused(unit, command, limit):
    value = float(unit("LIM? 1,1,1").rstrip(";").split(",")[limit])
    value = 299_792.458 / value if command == "WAV" else value
    assert unit(f"{command} 1,1,1,{value:.4f}") == "OK;"
    beyond = value + (0.01 if limit in (1, 2, 4) or command == "WAV" else -0.01)
    before = unit("CONF? 1,1,1")
    assert unit(f"{command} 1,1,1,{beyond:.4f}").startswith("ERR 100,")
    assert unit("CONF? 1,1,1") == before


def test_nothing_of_a_refused_configuration_is_taken(unit):
    before = unit("CONF? 1,1,1")
    assert unit("CONF 1,1,1,194.0,0,99,1,1").startswith("ERR 100,")
    assert unit("CONF? 1,1,1") == before


def test_messages_may_come_in_pieces_and_together(unit):
    assert unit.session.receive(b"WAV 1,1,1,15") == b""
    assert unit.session.receive(b"40.5;WAV?") == b"OK;"
    assert unit.session.receive(b" 1,1,1;\r\n;LAY?;") == b"1540.5000;LAY,1,1,DEV2;"
    assert unit.session.receive(b"\xff\xfe;") == b"ERR 100,?? unknown command;"


@pytest.mark.parametrize(
    ("kwargs", "layout"),
    [
        ({"model": "MX"}, "SYSTEM MX\n1,1,TLS4\n1,2,EMP;"),
        ({"model": "MX", "port": (1, 3, 2)}, "SYSTEM MX\n1,1,TLS4\n1,2,EMP\n1,3,TLS2;"),
        ({"model": "DX2", "port": (2, 1, 3)}, "LAY,1,1,DEV2\nLAY,2,1,DEV3;"),
    ],
)
def test_layouts(kwargs, layout):
    assert Unit(**kwargs)("LAY?") == layout


@pytest.mark.parametrize("kwargs", [{"model": "EX"}, {"port": (0, 1, 1)}, {"port": (1, 1, 9)}, {"tuning_time_s": -1.0}])
def test_what_cannot_be_built(kwargs):
    with pytest.raises(ConfigurationError, match="CoBrite"):
        Unit(**kwargs)


@pytest.mark.parametrize(
    "spec", [InstrumentSpec("l", "cobrite", 2), InstrumentSpec("l", "cobrite", 1, {"port": "1,1"})]
)
def test_specifications_that_do_not_fit(spec):
    chip = HiddenChip.from_seed(0, 2)
    with pytest.raises(ConfigurationError, match="simulated l"):
        KIND.build(spec, Surroundings(chip, chip.clock, {}))


def test_light_follows_after_the_tuning_time():
    unit = Unit(tuning_time_s=2.0)
    unit("POW 1,1,1,10", "STAT 1,1,1,1")
    assert (unit("BUSY? 1,1,1"), unit.light()) == ("1;", 0.0)
    unit.clock.sleep(1.99)
    assert (unit("BUSY? 1,1,1"), unit.light()) == ("1;", 0.0)
    unit.clock.sleep(0.02)
    assert unit("BUSY? 1,1,1") == "0;"
    assert unit.light() == pytest.approx(0.01)
    unit("FREQ 1,1,1,194")  # dark while it tunes
    assert unit.light() == 0.0
    unit.clock.sleep(2.0)
    assert unit.light() == pytest.approx(0.01)
    unit("POW 1,1,1,7")  # a small change leaves the old light on
    assert unit.light() == pytest.approx(0.01)
    unit.clock.sleep(0.21)
    assert unit.light() == pytest.approx(1e-3 * 10**0.7)
    unit("STAT 1,1,1,0")
    assert (unit("BUSY? 1,1,1"), unit.light()) == ("0;", 0.0)


def test_only_the_laser_on_the_chip_lights_it():
    unit = Unit(port=(1, 1, 2), tuning_time_s=0.0)
    unit("STAT 1,1,1,1")
    assert unit.light() == 0.0
    unit("STAT 1,1,2,1")
    assert unit.light() == pytest.approx(0.01)
    unit("STAT 1,1,1,0", "FREQ 1,1,1,194")
    assert unit.light() == pytest.approx(0.01)


def test_rights_belong_to_a_session_and_a_lock_keeps_the_others_out(unit):
    other = unit.instrument.open_session()
    unit("PASS IDP", "LOCK 1")
    assert other.receive(b"PASS?;LOCK?;POW? 1,1,1;") == b"0;1;10.00;"
    assert other.receive(b"POW 1,1,1,8;") == b"ERR 204,locked by another session;"
    assert other.receive(b"PASS IDP;LOCK 1;") == b"OK;ERR 204,locked by another session;"
    unit("LOCK 0")
    assert other.receive(b"POW 1,1,1,8;") == b"OK;"


def test_a_lock_ends_with_its_session(unit):
    other = unit.instrument.open_session()
    other.receive(b"PASS IDP;LOCK 1;")
    assert unit("LOCK?") == "1;"
    del other
    assert unit("LOCK?") == "0;"


def test_standby_and_interlock_darken_and_block():
    unit = Unit(tuning_time_s=0.0)
    unit("STAT 1,1,1,1")
    unit.instrument.set_standby(True)
    assert (unit("STAT? 1,1,1", "LAY?"), unit.light()) == ("ERR 104,power down;LAY,1,1,DEV2;", 0.0)
    unit.instrument.set_standby(False)
    assert unit("STAT? 1,1,1", "STAT 1,1,1,1", "STAT? 1,1,1") == "0;OK;1;"
    unit.instrument.set_interlock(True)
    assert unit.light() == 0.0
    assert unit("INTL?", "STAT 1,1,1,1", "STAT? 1,1,1") == "1;OK;0;"


def test_flooding_leaves_one_error_and_says_nothing(unit):
    assert unit.instrument.flood_errors(50) == b""
    assert unit("ERR?") == "100,internal error 50;"


COMMANDS = st.sampled_from(
    ["PASS IDP", "LOCK 1", "NONSENSE", "STAT 1,1,1,1", "STAT 1,1,2,1", "CONF 1,1,1,192.1,1,8,1,0", "WAV 1,1,2,1551",
     "POW 1,1,1,12", "OFF 1,1,1,3", "BWAI 1,1,1", "STAT 1,1,1,0", "DIT 1,1,2,0"]
)  # fmt: skip


@given(commands=st.lists(COMMANDS, max_size=8), standby=st.booleans(), interlock=st.booleans())
def test_restart_equals_a_fresh_unit(commands, standby, interlock):
    used, fresh = Unit(), Unit()
    used(*commands)
    used.instrument.set_standby(standby)
    used.instrument.set_interlock(interlock)
    used.instrument.flood_errors(2)
    used.instrument.restart()
    assert used(*STATE) == fresh(*STATE)
    for unit in (used, fresh):
        unit.clock.sleep(100.0)
        assert unit.light() == 0.0
        assert unit("STAT 1,1,1,1", "BUSY? 1,1,1", "BWAI 1,1,1", "MON? 1,1,1").startswith("OK;1;OK;25.00,")
    assert used.light() == pytest.approx(fresh.light())
