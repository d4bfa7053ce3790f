"""Pseudo-terminals of the simulated Qontrol chain."""

import re
import sys
import threading

import pytest
import serial

from optinc_hw.clock import SimulatedClock
from optinc_hw.errors import ConfigurationError
from simulated_instruments import HiddenChip, SimulatedBench, default_bench


def small_bench():
    """A 2-port chip: 11 heaters on 2 modules, so that the last 5 channels are open."""
    clock = SimulatedClock()
    chip = HiddenChip.from_seed(0, 2, clock=clock)
    return chip, SimulatedBench(chip, *default_bench(2), clock)


if sys.platform == "win32":

    def test_windows_has_no_pseudo_terminals():
        _, bench = small_bench()
        with bench, pytest.raises(ConfigurationError, match="socket://"):
            bench.open_pty("heaters_0")

else:

    def test_pty_speaks_like_the_socket_and_survives_clients():
        _, bench = small_bench()
        with bench:
            path = bench.open_pty("heaters_0")
            for value in (b"1.5", b"2.5"):
                with serial.Serial(path, 115200, timeout=10.0) as port:
                    port.write(b"V0=" + value + b"\n")
                    assert port.readline() == b"OK\n"
                    port.write(b"VALL?\n" * 100)  # more than a terminal's buffer holds
                    lines = [port.readline() for _ in range(100 * 16)]
                    assert all(re.fullmatch(rb"[+-]\d\.\d{4} V\n", line) for line in lines)
            with serial.serial_for_url(bench.addresses["heaters_0"], timeout=10.0) as port:
                port.write(b"V0?\n")
                assert float(port.readline().split()[0]) == pytest.approx(2.5, abs=1e-3)

    def test_pty_closes_with_the_bench_even_when_nobody_reads():
        before = set(threading.enumerate())
        _, bench = small_bench()
        with bench:
            path = bench.open_pty("heaters_0")
            with serial.Serial(path, 115200, timeout=0.0, write_timeout=0.0) as port:
                port.write(b"VALL?\n" * 600)
        assert set(threading.enumerate()) <= before
