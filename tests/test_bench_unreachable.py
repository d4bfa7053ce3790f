"""An instrument that does not answer is named before anything is driven."""

import socket
from contextlib import ExitStack

import pytest

from optinc_hw import Bench
from optinc_hw.bench import write_bench_folder
from optinc_hw.errors import LinkError

PORTS = 3


def test_an_unreachable_instrument(tmp_path):
    with ExitStack() as stack:
        ports = {}
        for name in ("laser", "meter_plus_0", "meter_minus_0", "heaters_0"):
            taken = stack.enter_context(socket.socket())  # bound but not listening: connections are refused
            taken.bind(("127.0.0.1", 0))
            ports[name] = taken.getsockname()[1]
        addresses = {name: f"TCPIP0::127.0.0.1::{port}::SOCKET" for name, port in ports.items()}
        folder = tmp_path / "bench"
        write_bench_folder(folder, PORTS, {**addresses, "heaters_0": f"socket://127.0.0.1:{ports['heaters_0']}"})
        with pytest.raises(LinkError) as caught:
            Bench.open(folder)
    name = next(name for name in ports if f"{name!r}" in str(caught.value))
    assert str(ports[name]) in str(caught.value)
    assert "check" in str(caught.value)
