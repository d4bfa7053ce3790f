"""The simulated bench: wiring, addresses, servers."""

import dataclasses
import re
import socket
import threading

import pytest

from optinc_hw.clock import SimulatedClock
from optinc_hw.errors import ConfigurationError
from optinc_hw.photonics.layout import ChipLayout
from simulated_instruments import BenchWiring, HiddenChip, HiddenEffects, InstrumentSpec, SimulatedBench, default_bench


def small_bench(ports=2, effects=None):
    clock = SimulatedClock()
    chip = HiddenChip.from_seed(0, ports, effects=effects, clock=clock)
    return chip, SimulatedBench(chip, *default_bench(ports), clock)


def connect(address):
    port = int(re.search(r"127\.0\.0\.1:+(\d+)", address).group(1))
    return socket.create_connection(("127.0.0.1", port), timeout=10.0)


def ask(client, data, end=b"\n"):
    client.sendall(data)
    reply = b""
    while not reply.endswith(end):
        part = client.recv(4096)
        assert part, "the server closed the connection"
        reply += part
    return reply


@pytest.mark.parametrize(
    ("ports", "chains", "meters"), [(2, [2], 1), (4, [4], 1), (8, [8, 4], 1), (16, [8] * 4 + [7], 2)]
)
def test_default_bench_wires_everything_once(ports, chains, meters):
    specs, wiring = default_bench(ports)
    layout = ChipLayout(ports)
    assert tuple(wiring.heaters) == layout.heaters
    assert set(wiring.detectors) == set(layout.detectors)
    assert [s.size for s in specs if s.kind == "qontrol_q8iv"] == chains
    assert [s.name for s in specs if s.kind == "keysight_n7745a"] == [
        f"meter_{side}_{k}" for side in ("plus", "minus") for k in range(meters)
    ]
    assert wiring.laser == "laser"
    for places in (wiring.heaters, wiring.detectors):
        assert len(set(places.values())) == len(places)
    assert wiring.heaters[layout.heaters[-1]] == (f"heaters_{len(chains) - 1}", (len(layout.heaters) - 1) % 64)


def test_one_chip_behind_all_instruments():
    chip, bench = small_bench(effects=HiddenEffects.none())
    with bench, connect(bench.addresses["heaters_0"]) as heaters, connect(bench.addresses["laser"]) as laser:
        laser.sendall(b":POW:UNIT 1\r:POW 10\r:POW:STAT 1\r:POW:SHUT 0\r")
        assert ask(laser, b":SYST:ERR?\r", b"\r") == b'0,"No error"\r'
        chip.clock.sleep(1.0)
        theta = chip.layout.heater_index["in_1_theta"]
        full = (0.020 * 1200) ** 0.5
        assert ask(heaters, f"V{theta}={full}\n".encode()) == b"OK\n"
        assert ask(heaters, f"V{chip.layout.heater_index['att_0']}={full}\n".encode()) == b"OK\n"
        with connect(bench.addresses["meter_plus_0"]) as plus, connect(bench.addresses["meter_minus_0"]) as minus:
            readings = [float(ask(meter, b"sens1:pow:unit W;:read1:pow?\n")) for meter in (plus, minus)]
        # The mesh MZI is in cross state: input 1 goes to receiver 0.
        assert sum(readings) == pytest.approx(10e-3 * (0.15 + 0.85) / 2, rel=1e-4)


def test_addresses_exist_while_open():
    _, bench = small_bench()
    assert bench.addresses == {}
    for _ in range(2):
        with bench:
            assert set(bench.addresses) == {"heaters_0", "laser", "meter_plus_0", "meter_minus_0"}
            assert re.fullmatch(r"socket://127\.0\.0\.1:\d+", bench.addresses["heaters_0"])
            assert re.fullmatch(r"TCPIP0::127\.0\.0\.1::\d+::SOCKET", bench.addresses["laser"])
        assert bench.addresses == {}


def test_connections_share_an_instrument_and_reset_nothing():
    _, bench = small_bench()
    with bench:
        address = bench.addresses["meter_plus_0"]
        with connect(address) as one, connect(address) as two:
            one.sendall(b"sens1:pow:atim ")
            assert ask(two, b"sens1:pow:atim 1s;atim?\n") == b"+1.00000000E+000\n"
            assert ask(one, b"3;atim?\n") == b"+3.00000000E+000\n"
        with connect(address) as three:
            assert ask(three, b"sens1:pow:atim?\r\n") == b"+3.00000000E+000\n"


def test_many_clients_at_once():
    _, bench = small_bench()
    failures = []

    def work(channel):
        with connect(bench.addresses["heaters_0"]) as client:
            for k in range(100):
                value = 0.01 * (k + channel)
                ask(client, f"V{channel}={value}\n".encode())
                reply = float(ask(client, f"V{channel}?\n".encode()).split()[0])
                if abs(reply - value) > 2e-3:
                    failures.append((channel, value, reply))

    with bench:
        threads = [threading.Thread(target=work, args=(channel,)) for channel in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []


def test_closing_leaves_no_thread_and_cuts_clients_off():
    before = set(threading.enumerate())
    _, bench = small_bench()
    with bench:
        address = bench.addresses["laser"]
        client = connect(address)
        ask(client, b"*IDN?\r", b"\r")
        gone = connect(address)
        gone.close()
    assert set(threading.enumerate()) <= before
    with client:
        assert client.recv(100) == b""
    with pytest.raises(OSError, match="refused"):
        connect(address)


def test_client_that_never_reads_does_not_hold_up_closing():
    _, bench = small_bench()
    with bench:
        client = connect(bench.addresses["heaters_0"])
        client.setblocking(False)
        sent = 1
        while sent:  # until neither side takes any more
            try:
                sent = client.send(b"VALL?\n" * 10_000)
            except BlockingIOError:
                sent = 0
    client.close()


def test_error_inside_the_context_still_closes():
    before = set(threading.enumerate())
    _, bench = small_bench()
    with pytest.raises(RuntimeError, match="mine"), bench:
        raise RuntimeError("mine")
    assert set(threading.enumerate()) <= before


def changed(wiring, **changes):
    return dataclasses.replace(wiring, **changes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s, w: ((*s, s[0]), w), "same name"),
        (lambda s, w: (s, changed(w, laser="laser_2")), "laser 'laser_2'"),
        (lambda s, w: (s, changed(w, laser="heaters_0")), "laser 'heaters_0'"),
        (lambda s, w: (s, changed(w, heaters={**w.heaters, "nope": ("heaters_0", 15)})), "no heater 'nope'"),
        (lambda s, w: (s, changed(w, heaters={**w.heaters, "lo": ("heaters_0", 0)})), "share channel 0"),
        (lambda s, w: (s, changed(w, heaters={**w.heaters, "lo": ("heaters_0", 16)})), "channel 16 is not in 0..15"),
        (lambda s, w: (s, changed(w, heaters={**w.heaters, "lo": ("laser", 0)})), "is no instrument for heaters"),
        (lambda s, w: (s, changed(w, detectors={**w.detectors, "rx_0_plus": ("what", 0)})), "'what'"),
        (lambda s, w: (s, changed(w, detectors={**w.detectors, "rx_0_plus": ("meter_minus_0", 0)})), "share channel 0"),
        (lambda s, w: ((*s, InstrumentSpec("x", "toaster")), w), "'toaster'"),
        (lambda s, w: ((*s, InstrumentSpec("x", "santec_tsl570")), w), "'x'"),
        (lambda s, w: ((*s, InstrumentSpec("x", "keysight_n7745a", 9)), w), "1..8 ports"),
    ],
)
def test_bad_wiring_is_refused(change, message):
    clock = SimulatedClock()
    specs, wiring = change(*default_bench(2))
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        SimulatedBench(HiddenChip.from_seed(0, 2), specs, wiring, clock)


def test_partial_wiring_is_allowed():
    specs, _ = default_bench(2)
    chip = HiddenChip.from_seed(0, 2)
    bench = SimulatedBench(chip, specs, BenchWiring({}, {}, "laser"), SimulatedClock())
    with bench, connect(bench.addresses["heaters_0"]) as client:
        assert ask(client, b"VVEC0=1,1\n") == b"OK\n"
    assert chip.heater_voltage(0) == 0.0


def test_pty_only_for_chains_that_are_served():
    _, bench = small_bench()
    with pytest.raises(ConfigurationError, match="heaters_0"):
        bench.open_pty("heaters_0")
    with bench, pytest.raises(ConfigurationError, match="laser"):
        bench.open_pty("laser")
