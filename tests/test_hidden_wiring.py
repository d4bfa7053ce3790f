"""Laser, optical switch and input ports of a simulated bench, over the instruments' own protocols."""

import dataclasses
import re

import numpy as np
import pytest
from test_simulated_bench import connect

from optinc_hw.clock import SimulatedClock
from optinc_hw.errors import ConfigurationError
from simulated_instruments import (
    BenchWiring,
    HiddenChip,
    HiddenEffects,
    InstrumentSpec,
    SimulatedBench,
    SwitchPath,
    default_bench,
)

BARE = {"inputs": "ports", "receivers": "power"}
POWER_W = 1e-2


def bare_chip(ports=3, effects=None):
    chip = HiddenChip.from_seed(0, ports, effects=HiddenEffects() if effects is None else effects, **BARE)
    chip.set_laser(POWER_W, 1550e-9)
    return chip


def powers_by_port(chip):
    rows = []
    for port in range(chip.layout.ports):
        chip.set_lit_port(port)
        rows.append(chip.detector_powers())
    return rows


def test_the_default_bench_of_a_bare_mesh_wires_everything_once():
    specs, wiring = default_bench(9, **BARE)
    assert [spec.name for spec in specs] == ["heaters_0", "heaters_1", "laser", "meter_0", "meter_1",
                                             "switch"]  # fmt: skip
    assert set(wiring.detectors) == {f"rx_{j}" for j in range(9)}
    assert wiring.detectors["rx_8"] == ("meter_1", 0)
    assert wiring.inputs == {i: SwitchPath("switch", 0, i) for i in range(9)}


def test_light_enters_where_the_cross_connect_sends_it():
    chip = bare_chip()
    expected = powers_by_port(chip)
    bench = SimulatedBench(chip, *default_bench(3, **BARE), SimulatedClock())
    chip.set_laser(POWER_W, 1550e-9)
    assert not chip.detector_powers().any()
    with bench, connect(bench.addresses["switch"]) as switch:
        for port in (2, 0):
            switch.sendall(f":OXC:SWIT:CONN:ONLY (@1),(@{4 + port})\n".encode())
            assert ask(switch, b":SYST:ERR?\n") == b'0,"No error"\n'
            assert not chip.detector_powers().any(), "the mirror still moves"
            chip.clock.sleep(0.03)
            np.testing.assert_array_equal(chip.detector_powers(), expected[port])
        switch.sendall(b":OXC:SWIT:CONN:ONLY (@2),(@4)\n")  # an input without a laser
        ask(switch, b":SYST:ERR?\n")
        chip.clock.sleep(0.03)
        assert not chip.detector_powers().any()


def test_light_enters_where_a_switch_from_a_common_port_sends_it():
    chip = bare_chip()
    expected = powers_by_port(chip)
    specs, wiring = default_bench(3, **BARE)
    specs = (*(spec for spec in specs if spec.name != "switch"), InstrumentSpec("dicon", "dicon_1xn", 4))
    wiring = dataclasses.replace(wiring, inputs={i: SwitchPath("dicon", 3 - i, 0) for i in range(3)})
    bench = SimulatedBench(chip, specs, wiring, SimulatedClock())
    chip.set_laser(POWER_W, 1550e-9)
    with bench, connect(bench.addresses["dicon"]) as switch:
        for channel, port in ((3, 1), (4, 0), (2, 2)):
            switch.sendall(f"I1 {channel}\r".encode())
            assert ask(switch, b"I1?\r") == f"\n{channel}\r\n".encode()
            chip.clock.sleep(0.03)
            np.testing.assert_array_equal(chip.detector_powers(), expected[port])
        switch.sendall(b"PK\r")
        ask(switch, b"I1?\r")
        assert not chip.detector_powers().any()


def ask(client, data):
    client.sendall(data)
    reply = b""
    while not (reply.endswith(b"\n") and len(reply) > 1):
        part = client.recv(4096)
        assert part, "the server closed the connection"
        reply += part
    return reply


def test_a_fibre_without_a_switch_lights_one_port():
    chip = bare_chip()
    expected = powers_by_port(chip)
    specs, wiring = default_bench(3, **BARE)
    SimulatedBench(chip, specs, dataclasses.replace(wiring, inputs={1: None}), SimulatedClock())
    chip.set_laser(POWER_W, 1550e-9)
    np.testing.assert_array_equal(chip.detector_powers(), expected[1])
    SimulatedBench(chip, specs, dataclasses.replace(wiring, inputs={}), SimulatedClock())
    assert not chip.detector_powers().any()


def test_a_logging_meter_sees_the_light_move_when_the_mirror_has_settled():
    chip = bare_chip(2, HiddenEffects.none())
    bench = SimulatedBench(chip, *default_bench(2, **BARE), SimulatedClock())
    chip.set_laser(POWER_W, 1550e-9)
    with bench, connect(bench.addresses["switch"]) as switch, connect(bench.addresses["meter_0"]) as meter:
        # Both MZIs of the ideal chip are in cross: light from port 1 leaves at output 0.
        ask(switch, b":OXC:SWIT:CONN:ONLY (@1),(@4);:SYST:ERR?\n")
        chip.clock.sleep(0.05)
        ask(meter, b"sens1:pow:unit W;:sens1:pow:rang:auto 0;:sens1:pow:rang 10DBM;*OPC?\n")
        ask(meter, b"sens1:func:par:logg 10,10ms;:sens1:func:stat logg,star;*OPC?\n")
        chip.clock.sleep(0.0325)
        ask(switch, b":OXC:SWIT:CONN:ONLY (@1),(@4);:SYST:ERR?\n")
        chip.clock.sleep(0.2)
        meter.sendall(b"sens1:func:res?\n")
        head = meter.recv(4096)
        while len(head) < 4 + 40:
            head += meter.recv(4096)
        block = head[2 + int(head[1:2]) :]
        samples = np.frombuffer(block[:40], dtype="<f4")
    np.testing.assert_allclose(samples, POWER_W * np.array([1, 1, 1, 0, 0, 1, 1, 1, 1, 1]), atol=1e-6)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({3: SwitchPath("switch", 0, 0)}, "no input port 3"),
        ({0: SwitchPath("laser", 0, 0)}, "input port 0 is behind 'laser', which is no switch"),
        ({0: None, 1: None}, "one laser cannot reach input ports 0 and 1"),
        ({0: None, 1: SwitchPath("switch", 0, 1)}, "one laser cannot reach input ports 0 and 1"),
        ({0: SwitchPath("switch", 0, 0), 1: SwitchPath("switch", 0, 0)}, "input ports 0 and 1"),
        ({0: SwitchPath("switch", 0, 0), 1: SwitchPath("switch", 1, 1)}, "share its input or its output"),
    ],
)
def test_inputs_that_cannot_be(inputs, message):
    specs, wiring = default_bench(3, **BARE)
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        SimulatedBench(bare_chip(), specs, dataclasses.replace(wiring, inputs=inputs), SimulatedClock())


def test_modulators_have_no_input_ports():
    specs, wiring = default_bench(2)
    with pytest.raises(ConfigurationError, match="the laser lights all at once; wire no input ports"):
        SimulatedBench(
            HiddenChip.from_seed(0, 2),
            specs,
            BenchWiring(wiring.heaters, wiring.detectors, "laser", inputs={0: None}),
            SimulatedClock(),
        )
