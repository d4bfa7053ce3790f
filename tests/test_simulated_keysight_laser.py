"""The simulated Keysight lasers, command by command: units, lock, tuning, sweeps, wavelength log, restart."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optinc_hw.clock import SimulatedClock
from optinc_hw.errors import ConfigurationError
from simulated_instruments import HiddenChip, HiddenEffects, InstrumentSpec, SimulatedKeysightLaser
from simulated_instruments._kind import Surroundings
from simulated_instruments.keysight_laser import KIND

RECEIVERS_SHARE = 0.15
NO_ERROR = '+0,"No error"\n'
CONTINUOUS = "sour0:wav:swe:mode cont;star 1550nm;stop 1551nm;step 10pm;spe 50nm/s;llog 1;:trig0:outp stf"
STATE = [
    "sour0:wav?", "sour0:pow?", "sour0:pow:unit?", "sour0:pow:stat?", "lock?", "trig:conf?", "trig0:inp?;outp?",
    "sour0:wav:swe?;swe:mode?;star?;stop?;step?;spe?;dwel?;cycl?;rep?;llog?;flag?", "sour0:read:poin? llog",
    "outp0:path?", "*OPC?", "syst:err?",
]  # fmt: skip


class Laser:
    """A laser on an ideal chip, asked through one session."""

    def __init__(self, *model):
        self.clock = SimulatedClock()
        self.chip = HiddenChip.from_seed(0, 2, effects=HiddenEffects.none(), clock=self.clock)
        self.instrument = SimulatedKeysightLaser(self.chip, self.clock, *model)
        self.session = self.instrument.open_session()

    def __call__(self, *commands):
        return self.bytes(*commands).decode()

    def bytes(self, *commands):
        return b"".join(self.session.receive(command.encode() + b"\n") for command in commands)

    def light(self):
        return self.chip.detector_powers().sum() / RECEIVERS_SHARE

    def wavelength(self):
        return float(self("sour0:wav?"))


@pytest.fixture
def laser():
    return Laser()


@pytest.mark.parametrize(
    ("commands", "reply"),
    [
        (["*IDN?"], "Keysight Technologies,N7776C,DE00000011,V5.25\n"),
        (["sour0:wav 1550.000nm", "sour0:wav?"], "+1.55000000E-006\n"),
        ([":SOURce0:WAVelength 1.5512345E-6", ":SOUR0:CHAN1:WAV?"], "+1.55123450E-006\n"),
        (["sour0:wav 1551234.5 pm;wav?"], "+1.55123450E-006\n"),
        (["sour0:wav 1.55 um", "SOUR0:WAV? MAX", "sour0:wav? def"], "+1.62000000E-006\n+1.55000000E-006\n"),
        (["sour0:wav MIN", "sour0:wav?"], "+1.48000000E-006\n"),
        (["sour0:wav 1550", "syst:err?"], '-222,"Data out of range"\n'),
        (["sour0:wav 1550 dBm", "syst:err?"], '-131,"Invalid suffix"\n'),
        (["sour0:pow 3 dBm", "sour0:pow?"], "+3.00000000E+000\n"),
        (["sour0:pow 3 mW", "sour0:pow:unit 1", "sour0:pow?"], "+3.00000000E-003\n"),
        (["sour0:pow:unit W;:sour0:pow 2e-3;pow?;pow:unit?"], "+2.00000000E-003;+1\n"),
        (["sour0:pow:unit DBM;:sour0:pow 5;pow?;pow:unit?"], "+5.00000000E+000;+0\n"),
        (["sour0:pow 30 mW", "sour0:pow 99 dBm", "syst:err?;err?"], '-222,"Data out of range";' * 2),
        (["sour0:pow:stat?", "sour0:pow:stat 1", "sour0:pow:stat?"], "+0\n+1\n"),
        (["outp0 on;outp0?;:sour0:pow:stat off;:outp0:stat?"], "+1;+0\n"),
        (["outp0:path high;path?"], "HIGH\n"),
        (["outp0:path lows", "syst:err?"], '-224,"Illegal parameter value"\n'),
        (["lock?", "lock 1,1234", "lock?", "sour0:pow:stat 1", "syst:err?"], '+0\n+1\n-203,"Command protected"\n'),
        (["lock 1,1234;lock 0,4321;lock?;syst:err?"], '+1;-203,"Command protected"\n'),
        (["lock 1,1234;lock 0,1234;lock?"], "+0\n"),
        (["lock 0", "syst:err?"], '-109,"Missing parameter"\n'),
        (["sour1:wav?", "syst:err?"], '-114,"Header suffix out of range"\n'),
        (["sour0:wav:swe:mode?;star?;stop?"], "STEP;+1.54500000E-006;+1.55500000E-006\n"),
        (["sour0:wav:swe:mode man;mode?;mode continuous;mode?"], "MAN;CONT\n"),
        (["sour0:wav:swe:spe 40nm/s;speed?;spe? max"], "+4.00000000E-008;+2.00000000E-007\n"),
        (["sour0:wav:swe:step 10pm;step:widt?"], "+1.00000000E-011\n"),
        (["sour0:wav:swe:dwel 200ms;dwel?;cycl 3;cycl?"], "+2.00000000E-001;+3\n"),
        (["sour0:wav:swe:rep twow;rep?;rep onew;rep?"], "TWOW;ONEW\n"),
        (["sour0:wav:swe:star 1550nm;stop 1560nm;step 10pm;exp?"], "+1001\n"),
        (["sour0:wav:swe:pmax? 1550nm,1560nm"], "+2.00000000E-002\n"),
        (["sour0:wav:swe:pmax? 1550nm", "syst:err?"], '-109,"Missing parameter"\n'),
        (["sour0:wav:swe:chec?"], "0,OK\n"),
        (["sour0:wav:swe?;swe:flag?;:sour0:read:points? llog"], "+0;+0;+0\n"),
        (["sour0:read:data? llog", "sour0:read:data? pmax", "syst:err?"], '#10\n-224,"Illegal parameter value"\n'),
        (["trig:conf loop;conf?;conf def;conf?"], "LOOP;DEF\n"),
        (["trig0:inp sws;inp?;outp stf;outp?", "trig0:inp ign;outp dis"], "SWS;STF\n"),
        (["trig0:inp x", "syst:err?"], '-224,"Illegal parameter value"\n'),
        (["trig 1", "sour0:wav:swe:soft", "syst:err?;err?"], '-211,"Trigger ignored";-211,"Trigger ignored"\n'),
        (["sour0:wav:swe:step:next", "sour0:wav:swe cont", "syst:err?;err?"], '-221,"Settings conflict";' * 2),
        (["*OPT?;*TST?;*ESR?"], "N7776C;+0;+0\n"),
        (["nonsense", "syst:err?", "syst:err?"], '-113,"Undefined header"\n' + NO_ERROR),
        (["sour0:wav 1540nm;:sour0:pow 5;:trig0:inp sws;*rst;:sour0:wav?;pow?;:trig0:inp?"],
         "+1.55000000E-006;+0.00000000E+000;IGN\n"),
    ],
)  # fmt: skip
def test_commands(laser, commands, reply):
    assert laser(*commands) == reply.removesuffix(";") + ("" if reply.endswith("\n") else "\n")


@pytest.mark.parametrize(
    ("settings", "number"),
    [
        ("sour0:wav:swe:star 1560nm;stop 1550nm", 368),
        ("sour0:wav:swe:mode cont;star 1550nm;stop 1550.01nm;spe 200nm/s", 369),
        ("sour0:wav:swe:mode cont;star 1480nm;stop 1620nm;spe 0.5nm/s;:trig0:outp dis", 0),
        ("sour0:wav:swe:mode cont;star 1550nm;stop 1560nm;step 0.5pm;spe 40nm/s;:trig0:outp stf", 371),
        ("sour0:wav:swe:mode cont;star 1550nm;stop 1560nm;step 0.5pm;spe 40nm/s;:trig0:outp dis", 0),
        ("sour0:wav:swe:mode cont;star 1550nm;stop 1561nm;step 0.1pm;spe 1nm/s;:trig0:outp stf", 373),
        ("sour0:wav:swe:mode cont;llog 1;:trig0:outp dis", 375),
        ("sour0:wav:swe:mode step;llog 1;:trig0:outp stf", 376),
        ("sour0:wav:swe:step 0.25pm", 377),
    ],
)
def test_sweeps_that_do_not_fit_together_are_named_and_not_started(laser, settings, number):
    laser(settings)
    assert laser("sour0:wav:swe:chec?").startswith(f"{number},")
    laser("sour0:wav:swe 1")
    assert laser("syst:err?").startswith(f"{number:+d},")
    assert laser("sour0:wav:swe?") == ("+0\n" if number else "+1\n")


def test_modules_in_a_mainframe_and_the_models_that_there_are():
    laser = Laser("8164B", 2)
    assert laser("*IDN?") == "Agilent Technologies,8164B,DE00000011,V5.25\n"
    assert laser("slot2:idn?") == "Agilent Technologies,81600B,DE00000012,V4.02\n"
    assert laser("*OPT?", "sour2:wav?") == ",,81600B,,\n+1.55000000E-006\n"
    assert laser("outp2:path lows;path?") == "LOWS\n"
    assert laser("slot0:idn?", "syst:err?").startswith("-114,")
    for arguments in (("8166B",), ("8164B", 5), ("N7776C", 1)):
        with pytest.raises(ConfigurationError, match="Keysight"):
            Laser(*arguments)
    chip = HiddenChip.from_seed(0, 2)
    for spec in (InstrumentSpec("l", "keysight_laser", 2), InstrumentSpec("l", "keysight_laser", 1, {"slot": "x"})):
        with pytest.raises(ConfigurationError, match="simulated l"):
            KIND.build(spec, Surroundings(chip, chip.clock, {}))


def test_tuning_takes_time_and_opc_waits_for_it(laser):
    laser("sour0:pow 10 mW", "sour0:pow:stat 1")
    assert laser.light() == 0.0
    assert laser("*OPC?") == "1\n"
    assert laser.light() == pytest.approx(0.01)
    before = laser.clock.now()
    laser("sour0:wav 1590nm")
    assert laser("*OPC?") == "1\n"
    assert laser.clock.now() - before > 0.1
    before = laser.clock.now()
    laser("sour0:wav 1590nm;*OPC?")  # it is there already
    assert laser.clock.now() == before
    laser("sour0:pow:stat 0")
    assert laser.light() == 0.0


def test_locking_switches_the_light_off(laser):
    laser("sour0:pow:stat 1;*OPC?")
    assert laser.light() > 0.0
    laser("lock 1,1234")
    assert (laser.light(), laser("sour0:pow:stat?")) == (0.0, "+0\n")


def test_a_triggered_sweep_moves_the_light_and_logs_it(laser):
    laser("sour0:pow:stat 1;*OPC?", CONTINUOUS, "trig0:inp sws", "sour0:wav:swe 1")
    assert laser("sour0:wav:swe?;swe:flag?") == "+1;+0\n"
    assert laser("*OPC?;:sour0:wav:swe:flag?") == "1;+1\n"
    laser.clock.sleep(5.0)  # it waits as long as it takes
    assert laser.wavelength() == pytest.approx(1550e-9)
    laser("sour0:wav:swe:soft")
    for share in (0.25, 0.5, 0.75):
        laser.clock.sleep(0.005)
        assert laser.wavelength() == pytest.approx(1550e-9 + share * 1e-9, abs=1e-12)
        assert laser.light() == pytest.approx(1e-3)
    assert laser("sour0:read:poin? llog") == "+0\n"
    laser.clock.sleep(0.006)
    assert laser("sour0:wav:swe?;swe:flag?;llog?;:sour0:read:poin? llog") == "+0;+0;+0;+101\n"
    reply = laser.bytes("sour0:read:data? llog")
    assert (reply[:5], reply[-1:], len(reply)) == (b"#3808", b"\n", 5 + 808 + 1)
    log = np.array(struct.unpack("<101d", reply[5:-1]))
    np.testing.assert_allclose(log, np.linspace(1550e-9, 1551e-9, 101), atol=1e-12)
    assert np.all(np.diff(log) > 0.0)
    assert np.ptp(np.diff(log)) > 1e-14  # as real sweeps, it is not quite linear
    assert laser.wavelength() == pytest.approx(1551e-9, abs=1e-12)
    assert laser("syst:err?") == NO_ERROR


def test_each_of_several_cycles_waits_for_its_trigger(laser):
    laser(CONTINUOUS, "sour0:wav:swe:cycl 2;:trig0:inp sws", "sour0:wav:swe 1;*OPC?")
    flags = []
    for command in ("sour0:wav:swe:soft", "trig 1"):
        flags.append(laser("sour0:wav:swe:flag?"))
        laser(command)
        laser.clock.sleep(0.021)
        flags.append(laser("sour0:wav:swe:flag?"))
        laser.clock.sleep(1.0)
    assert flags == ["+1\n", "+2\n", "+3\n", "+0\n"]
    assert laser("sour0:wav:swe?", "syst:err?") == "+0\n" + NO_ERROR


def test_there_and_back(laser):
    laser(CONTINUOUS, "sour0:wav:swe:rep twow;exp?", "sour0:wav:swe 1;*OPC?")
    laser.clock.sleep(0.03)
    assert laser.wavelength() == pytest.approx(1550.5e-9, abs=1e-12)
    laser.clock.sleep(0.02)
    assert laser("sour0:read:poin? llog") == laser("sour0:wav:swe:exp?") == "+202\n"
    assert laser.wavelength() == pytest.approx(1550e-9, abs=1e-12)


def test_steps_with_pause_and_steps_by_hand(laser):
    laser("sour0:wav:swe:star 1550nm;stop 1552nm;step 1nm;dwel 1s", "sour0:wav 1550nm;*OPC?", "sour0:wav:swe 1;*OPC?")
    assert laser.wavelength() == pytest.approx(1550e-9)
    laser.clock.sleep(1.5)
    assert laser.wavelength() == pytest.approx(1551e-9)
    laser("sour0:wav:swe paus")
    laser.clock.sleep(50.0)
    assert laser("sour0:wav:swe?") == "+2\n"
    assert laser.wavelength() == pytest.approx(1551e-9)
    laser("sour0:wav:swe:step:prev")
    assert laser.wavelength() == pytest.approx(1550e-9)
    laser("sour0:wav:swe:step:prev;prev;next;next")  # not before the first
    assert laser.wavelength() == pytest.approx(1552e-9)
    laser("sour0:wav:swe cont")
    laser.clock.sleep(2.0)
    assert laser("sour0:wav:swe?;:sour0:wav?", "syst:err?") == "+0;+1.55200000E-006\n" + NO_ERROR


def test_a_manual_sweep_ends_after_its_last_step(laser):
    laser("sour0:wav:swe:mode man;star 1550nm;stop 1551nm;step 1nm", "sour0:wav:swe 1;*OPC?")
    laser.clock.sleep(50.0)
    visited = [laser.wavelength()]
    laser("sour0:wav:swe:step:next")
    visited.append(laser.wavelength())
    assert visited == pytest.approx([1550e-9, 1551e-9])
    assert laser("sour0:wav:swe?", "sour0:wav:swe:step:next", "sour0:wav:swe?") == "+1\n+0\n"


def test_triggers_take_the_next_step(laser):
    laser("sour0:wav:swe:star 1550nm;stop 1552nm;step 1nm;:trig0:inp next", "sour0:wav:swe 1;*OPC?", "trig 1", "trig 1")
    assert laser.wavelength() == pytest.approx(1552e-9)


def test_a_sweep_can_be_stopped_and_forbids_other_tuning(laser):
    laser(CONTINUOUS, "sour0:wav:swe 1;*OPC?")
    laser("sour0:wav 1540nm", "sour0:wav:swe:star 1549nm")
    assert laser("syst:err?;err?") == '-221,"Settings conflict";-221,"Settings conflict"\n'
    laser.clock.sleep(0.01)
    laser("sour0:wav:swe 0")
    laser.clock.sleep(5.0)
    assert laser("sour0:wav:swe?") == "+0\n"
    assert laser.wavelength() == pytest.approx(1550.5e-9, abs=1e-12)


def test_light_that_is_switched_on_during_a_sweep_goes_with_it(laser):
    laser("sour0:wav:swe:mode cont;star 1550nm;stop 1560nm;spe 0.5nm/s", "sour0:wav:swe 1;*OPC?", "sour0:pow:stat 1")
    assert laser.light() == 0.0
    laser.clock.sleep(1.0)
    assert laser.light() == pytest.approx(1e-3)
    laser("sour0:pow:stat 0")
    assert laser.light() == 0.0


@given(
    start_pm=st.integers(1_500_000, 1_600_000),
    steps=st.integers(1, 300),
    step_pm=st.integers(1, 50),
    speed=st.sampled_from([1, 7, 40, 200]),
    two_way=st.booleans(),
    share=st.floats(0.0, 1.0),
)
def test_any_sweep_keeps_to_its_settings(start_pm, steps, step_pm, speed, two_way, share):
    laser = Laser()
    span_pm = steps * step_pm
    laser("sour0:wav:swe:mode cont;llog 1;:trig0:outp stf", f"sour0:wav:swe:rep {'twow' if two_way else 'onew'}")
    laser(f"sour0:wav:swe:star {start_pm}pm;stop {start_pm + span_pm}pm;step {step_pm}pm;spe {speed}nm/s")
    possible = laser("sour0:wav:swe:chec?") == "0,OK\n"
    laser("sour0:wav:swe 1;*OPC?")
    assert laser("sour0:wav:swe?") == ("+1\n" if possible else "+0\n")
    if not possible:
        return
    duration = span_pm * 1e-3 / speed * (2 if two_way else 1)
    laser.clock.sleep(share * duration)
    travelled_pm = span_pm * (1.0 - abs(1.0 - 2.0 * share) if two_way else share)
    assert laser.wavelength() == pytest.approx((start_pm + travelled_pm) * 1e-12, abs=0.5e-12)
    laser.clock.sleep(duration + 1e-9)  # sums of times and differences of wavelengths are not exact
    assert laser("sour0:wav:swe?") == "+0\n"
    assert laser("sour0:read:poin? llog") == laser("sour0:wav:swe:exp?")
    data = laser.bytes("sour0:read:data? llog")
    log_pm = np.frombuffer(data[2 + int(data[1:2]) : -1]) * 1e12
    grid = start_pm + step_pm * np.arange(steps + 1)
    expected = np.concatenate([grid, grid[::-1]]) if two_way else grid
    np.testing.assert_allclose(log_pm, expected, rtol=0.0, atol=0.5)


def test_queue_is_thirty_deep(laser):
    assert laser.instrument.flood_errors(40) == b""
    entries = [laser("syst:err?") for _ in range(31)]
    assert entries[0] == '-310,"System error"\n'
    assert entries[29:] == ['-350,"Queue overflow"\n', NO_ERROR]


COMMANDS = st.sampled_from(
    [CONTINUOUS, "trig0:inp sws", "sour0:wav:swe 1", "sour0:wav:swe:soft", "sour0:wav:swe paus", "sour0:wav 1540nm"]
)
MORE = st.sampled_from(["sour0:pow 5;pow:unit 1", "sour0:pow:stat 1", "lock 1,1234", "trig:conf loop", "x", "*OPC?"])


@given(commands=st.lists(COMMANDS | MORE, max_size=8), passed=st.floats(0.0, 2.0))
def test_restart_equals_a_fresh_laser(commands, passed):
    used, fresh = Laser(), Laser()
    used(*commands)
    used.clock.sleep(passed)
    used.instrument.flood_errors(3)
    used.instrument.restart()
    assert used(*STATE) == fresh(*STATE)
    for laser in (used, fresh):
        laser.clock.sleep(100.0)
        assert laser.light() == 0.0
        laser("sour0:pow:stat 1", "*OPC?")
        assert laser.light() == pytest.approx(1e-3)
