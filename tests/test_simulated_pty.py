"""Pseudo-terminals of the simulated Qontrol chain, and the vendor's client, unmodified, through one."""

import gc
import re
import sys
import threading
import warnings

import pytest
import serial

from optinc_hw.clock import SimulatedClock
from optinc_hw.errors import ConfigurationError
from simulated_instruments import HiddenChip, SimulatedBench, default_bench

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the vendor's source has invalid escape sequences
    import qontrol


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
        assert set(threading.enumerate()) == before

    @pytest.mark.parametrize("binary", [False, True])
    def test_vendor_client_sets_and_reads_sixteen_channels_and_sees_over_voltage(binary):
        chip, bench = small_bench()  # 11 heaters on 2 modules; the last 5 channels are open
        with bench:
            # The client takes what has come when its timeout is over; its own 0.1 s is short for a busy machine.
            client = qontrol.QXOutput(
                serial_port_name=bench.open_pty("heaters_0"), response_timeout=0.2, binary_mode=binary
            )
            try:
                assert client.device_id == "Q8iv-0001"
                assert [(d["device_id"], d["n_chs"], d["index"]) for d in client.chain] == [
                    ("Q8iv-0001", 8, 0),
                    ("Q8iv-0002", 8, 1),
                ]
                assert (client.n_chs, client.v_full, client.i_full) == (16, 12.0, 24.0)
                targets = [0.25 * (k + 1) for k in range(16)]
                client.set_all_values("V", list(targets))
                assert client.get_all_values("V") == pytest.approx(targets, abs=2e-3)
                assert [chip.heater_voltage(k) for k in range(11)] == pytest.approx(targets[:11], abs=3e-4)
                for k in range(16):
                    client.v[k] = 4.0 - targets[k] / 2
                assert [client.v[k] for k in range(16)] == pytest.approx([4.0 - v / 2 for v in targets], abs=2e-3)
                currents = [1e-3 * client.i[k] for k in range(11)]
                assert currents == pytest.approx([chip.heater_current(k) for k in range(11)], abs=2e-5)
                client.vmax[9] = 5.0
                assert client.vmax[9] == pytest.approx(5.0, abs=1e-3)
                assert [entry for entry in client.log if entry["type"] == "err"] == []
                client.v[9] = 6.0
                errors = [entry for entry in client.log if entry["type"] == "err"]
                assert [(e["id"], e["ch"], e["raw"]) for e in errors] == [(1, 1, "E01:01")]
                assert errors[0]["desc"] == "Over-voltage error on channel 1."
                assert client.v[9] < 5.0
            finally:
                client.close()
                del client
                gc.collect()
