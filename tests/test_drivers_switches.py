"""Drivers of optical switches: bytes on the wire, and the light behind the simulated ones."""

import pytest
from _scripted_link import ScriptServer
from driver_cases import CASES, opened, simulated

from drivers import DiConMemsSwitch, PolatisOXC
from optinc_hw.clock import SimulatedClock
from optinc_hw.errors import ConfigurationError, DeviceError, IdentityError, LimitError, ReplyError
from simulated_instruments import (
    BenchWiring,
    HiddenChip,
    InstrumentSpec,
    SimulatedBench,
    SimulatedDiCon1xN,
    SimulatedPolatisOXC,
    SwitchPath,
)

POLATIS_HELLO = ((b"*IDN?\n", b"Polatis,I-OST-24x24-LU1-DMHNS,002414,6.5.2.18\n"), (b":oxc:swit:size?\n", b"24,24\n"))
DICON_HELLO = ((b"ID?\r", b"\nDiCon MEMS\r\n"), (b"ID?\r", b"\nDiCon MEMS\r\n"), (b"CF?\r", b"\nMEMS,8\r\n"))
NO_ERROR = (b":syst:err?\n", b'0,"No error"\n')


def polatis(server, **init):
    switch = PolatisOXC("switch", server.visa_address, **init)
    switch.clock = SimulatedClock()
    return switch


def dicon(server, **init):
    switch = DiConMemsSwitch("switch", server.serial_url, channels=8, **init)
    switch.clock = SimulatedClock()
    return switch


def test_polatis_connects_free_ports():
    script = (
        (b":oxc:swit:conn:port? 2\n", b'""\n'),
        (b":oxc:swit:conn:port? 2\n", b'""\n'),
        (b":oxc:swit:conn:port? 28\n", b'""\n'),
        NO_ERROR,
        (b":oxc:swit:conn:add (@2),(@28)\n", None),
        NO_ERROR,
        (b"*OPC?\n", b"0\n"),
        (b"*OPC?\n", b"1\n"),
        (b":oxc:swit:conn:port? 2\n", b'"28"\n'),
    )
    with ScriptServer(*POLATIS_HELLO, *script) as server:
        switch = polatis(server)
        switch.connect(1, 3)
        assert switch.connected_outputs[1].cache.get(get_if_invalid=False) == 3
        switch.close()


def test_polatis_drops_what_the_ports_had():
    script = (
        (b":oxc:swit:conn:port? 2\n", b'"30"\n'),
        (b":oxc:swit:conn:port? 2\n", b'"30"\n'),
        NO_ERROR,
        (b":oxc:swit:conn:sub (@2),(@30)\n", None),
        NO_ERROR,
        (b":oxc:swit:conn:port? 28\n", b'"5"\n'),
        (b":oxc:swit:conn:sub (@5),(@28)\n", None),
        NO_ERROR,
        (b":oxc:swit:conn:add (@2),(@28)\n", None),
        NO_ERROR,
        (b"*OPC?\n", b"1\n"),
        (b":oxc:swit:conn:port? 2\n", b'"28"\n'),
    )
    with ScriptServer(*POLATIS_HELLO, *script) as server:
        switch = polatis(server)
        switch.connect(1, 3)
        switch.close()


def test_polatis_lets_no_light_pass():
    script = (
        (b":oxc:swit:conn:port? 2\n", b'"30"\n'),
        NO_ERROR,
        (b":oxc:swit:conn:sub (@2),(@30)\n", None),
        NO_ERROR,
        (b"*OPC?\n", b"1\n"),
        (b":oxc:swit:conn:port? 2\n", b'""\n'),
        (b":oxc:swit:conn:port? 3\n", b'""\n'),
        (b"*OPC?\n", b"1\n"),
        (b":oxc:swit:conn:port? 3\n", b'""\n'),
    )
    with ScriptServer(*POLATIS_HELLO, *script) as server:
        switch = polatis(server)
        switch.disconnect(1)
        assert switch.connected_outputs[1].cache.get(get_if_invalid=False) == -1
        switch.disconnect(2)  # there is nothing to drop
        switch.close()


def test_polatis_that_does_not_let_go_is_reported():
    script = (
        (b":oxc:swit:conn:port? 1\n", b'"25"\n'),
        NO_ERROR,
        (b":oxc:swit:conn:sub (@1),(@25)\n", None),
        NO_ERROR,
        (b"*OPC?\n", b"1\n"),
        (b":oxc:swit:conn:port? 1\n", b'"25"\n'),
    )
    with ScriptServer(*POLATIS_HELLO, *script) as server:
        switch = polatis(server)
        with pytest.raises(DeviceError, match="input 0 is still connected"):
            switch.disconnect(0)
        switch.close()


@pytest.mark.parametrize("reply", [b'"49"', b"28", b'"0"', b'"2', b'"2x"'])
def test_polatis_refuses_replies_that_are_no_port(reply):
    with ScriptServer(*POLATIS_HELLO, (b":oxc:swit:conn:port? 1\n", reply + b"\n")) as server:
        switch = polatis(server)
        with pytest.raises(ReplyError):
            switch.connected_outputs[0].get()
        switch.close()


def test_polatis_that_stands_otherwise_is_reported():
    script = (
        (b":oxc:swit:conn:port? 1\n", b'""\n'),
        (b":oxc:swit:conn:port? 1\n", b'""\n'),
        (b":oxc:swit:conn:port? 25\n", b'""\n'),
        NO_ERROR,
        (b":oxc:swit:conn:add (@1),(@25)\n", None),
        NO_ERROR,
        (b"*OPC?\n", b"1\n"),
        (b":oxc:swit:conn:port? 1\n", b'""\n'),
    )
    with ScriptServer(*POLATIS_HELLO, *script) as server:
        switch = polatis(server)
        with pytest.raises(DeviceError, match="input 0 is not connected with output 0"):
            switch.connect(0, 0)
        switch.close()


def test_polatis_of_another_size_is_refused():
    with ScriptServer(*POLATIS_HELLO) as server, pytest.raises(IdentityError, match="24 inputs, but 8"):
        polatis(server, ports=8)


def test_dicon_selects_and_reads_back():
    script = ((b"I1 4\r", None), (b"I1?\r", b"\n4\r\n"), (b"PK\r", None), (b"I1?\r", b"\n0\r\n"))
    with ScriptServer(*DICON_HELLO, *script) as server:
        switch = dicon(server)
        switch.connect(3)
        assert switch.clock.now() == pytest.approx(0.025)
        switch.park()
        assert switch.channel.cache.get(get_if_invalid=False) == -1
        switch.close()  # sends nothing: the script is at its end


def test_dicon_parks_only_what_is_selected():
    script = ((b"I1?\r", b"\n4\r\n"), (b"I1?\r", b"\n4\r\n"), (b"PK\r", None), (b"I1?\r", b"\n0\r\n"))
    with ScriptServer(*DICON_HELLO, *script) as server:
        switch = dicon(server)
        switch.disconnect(2)
        assert switch.clock.now() == 0.0
        switch.disconnect(3)
        assert switch.clock.now() == pytest.approx(0.025)
        switch.close()


def test_dicon_repeats_a_lost_command_and_gives_up_in_the_end():
    lost = ((b"I1 4\r", None), (b"I1?\r", b"\n1\r\n"))
    with ScriptServer(*DICON_HELLO, *lost, (b"I1 4\r", None), (b"I1?\r", b"\n4\r\n"), *(lost * 3)) as server:
        switch = dicon(server)
        switch.connect(3)
        with pytest.raises(DeviceError, match="although 3 was set 3 times"):
            switch.connect(3)
        switch.close()


def test_dicon_of_another_size_is_refused():
    hello = (*DICON_HELLO[:2], (b"CF?\r", b"\nMEMS,16\r\n"))
    with ScriptServer(*hello) as server, pytest.raises(IdentityError, match="16 channels, but 8"):
        dicon(server)


def test_nonsense_is_refused_before_anything_is_sent():
    with pytest.raises(ConfigurationError, match="channels"):
        DiConMemsSwitch("switch", "socket://127.0.0.1:1", channels=0)
    with ScriptServer(*DICON_HELLO) as server:
        switch = dicon(server)
        for port in (-1, 8, 1.0, True):
            with pytest.raises(LimitError, match="Nothing was changed"):
                switch.connect(port)
            with pytest.raises(LimitError, match="Nothing was changed"):
                switch.disconnect(port)
        with pytest.raises(LimitError, match="settle_time"):
            switch.settle_time = -1.0
        switch.close()


SWITCHES = [case for case in CASES if case.role == "switch"]


@pytest.mark.parametrize("case", SWITCHES, ids=lambda case: case.id)
def test_simulated_switches_do_what_their_drivers_say(case):
    with simulated(case) as (bench, _, clock), opened(case, bench.addresses["device"], clock) as switch:
        assert switch.connections() == {}
        switch.connect(2, 0)
        assert switch.connections() == {2: 0}
        switch.connect(1, 0)
        assert switch.connections() == {1: 0}
        switch.disconnect(2)
        assert switch.connections() == {1: 0}
        switch.disconnect(1)
        assert switch.connections() == {}


def test_light_passes_after_the_mirrors_have_moved():
    clock = SimulatedClock()
    polatis_oxc, dicon_1xn = SimulatedPolatisOXC(4, clock), SimulatedDiCon1xN(4, clock)
    polatis_oxc.open_session().receive(b"oxc:swit:conn:add (@1,3),(@5,8)\r\n")
    dicon_1xn.open_session().receive(b"i1 3\r")
    assert not polatis_oxc.passes(2, 3)
    assert not dicon_1xn.passes(2, 0)
    clock.sleep(0.02)
    assert polatis_oxc.passes(0, 0)
    assert polatis_oxc.passes(2, 3)
    assert not polatis_oxc.passes(0, 1)
    assert dicon_1xn.passes(2, 0)
    assert not dicon_1xn.passes(1, 0)
    for switch in (polatis_oxc, dicon_1xn):
        switch.restart()
        assert not any(switch.passes(k, j) for k in range(4) for j in range(4))


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("oxc:swit:conn:add (@1),(@2)", "-222"),
        ("oxc:swit:conn:add (@1),(@5,6)", "-222"),
        ("oxc:swit:conn:add (@1,1),(@5,6)", "-224"),
        ("oxc:swit:conn:add", "-109"),
        ("oxc:swit:conn:add 1,5", "-104"),
        ("oxc:swit:conn:sub (@1),(@5)", "-224"),
        ("oxc:swit:conn:port? 9", "-222"),
        ("oxc:swit:nonsense", "-113"),
    ],
)
def test_polatis_simulator_queues_errors_and_stays_silent(command, error):
    session = SimulatedPolatisOXC(4, SimulatedClock()).open_session()
    assert session.receive(command.encode() + b"\n") == b""
    assert session.receive(b"syst:err?\n").startswith(error.encode() + b',"')
    assert session.receive(b"syst:err?\n") == b'0,"No error"\n'


def test_a_meter_behind_a_switch_sees_one_detector_at_a_time():
    clock = SimulatedClock()
    chip = HiddenChip.from_seed(1, 2, clock=clock)
    specs = (
        InstrumentSpec("laser", "santec_tsl570"),
        InstrumentSpec("meter", "keysight_n7745a", 1),
        InstrumentSpec("switch", "dicon_1xn", 4),
    )
    names = chip.layout.detectors
    wiring = BenchWiring(
        {},
        dict.fromkeys(names, ("meter", 0)),
        "laser",
        {name: SwitchPath("switch", k, 0) for k, name in enumerate(names)},
    )
    chip.set_laser(1e-3, 1550e-9)
    with SimulatedBench(chip, specs, wiring, clock) as bench:
        switch = DiConMemsSwitch("switch", bench.addresses["switch"], channels=4)
        switch.clock = clock
        from drivers import KeysightN7745A

        meter = KeysightN7745A("meter", bench.addresses["meter"], ports=1)
        meter.initialise(1550e-9, 1e-2)
        assert abs(meter.read_powers().power_w[0]) < 1e-7
        seen = []
        for k in range(len(names)):
            switch.connect(k)
            seen.append(meter.read_powers().power_w[0])
        assert seen == pytest.approx(chip.detector_powers(), rel=0.1, abs=2e-7)
        switch.close()
        meter.close()
