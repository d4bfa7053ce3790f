"""The vendor's client, unmodified, on the simulated Qontrol chain over a pseudo-terminal, in text and binary mode."""

import contextlib
import gc
import sys
import warnings

import pytest

from optinc_hw.clock import SimulatedClock
from simulated_instruments import BenchWiring, HiddenChip, InstrumentSpec, SimulatedBench

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the vendor's source has invalid escape sequences
    import qontrol

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the client opens serial ports only")

LOADS = 11
HASTY_S = 1.0
FULL_MA = {"Q8iv": 24.0, "Q8b": 83.3333, "Q8bi": 100.0, "Q8a": 100.0}
TYPES = pytest.mark.parametrize(
    ("kind", "binary"), [("Q8iv", False), ("Q8iv", True), ("Q8b", True), ("Q8bi", False), ("Q8a", True)]
)
MODES = pytest.mark.parametrize("binary", [False, True], ids=["text", "binary"])


@contextlib.contextmanager
def client_of(kind, binary, timeout=5.0):
    """Serve a 2-module chain with the heaters of a 2-port chip, the last 5 channels open; yields client and chip.

    The client waits until its timeout is over for the list of modules, and for OK wherever an error comes instead.
    """
    clock = SimulatedClock()
    chip = HiddenChip.from_seed(0, 2, clock=clock)
    specs = (
        InstrumentSpec("heaters", "qontrol", 2, {"module_type": kind}),
        InstrumentSpec("laser", "santec_tsl570"),
    )
    heaters = {name: ("heaters", k) for k, name in enumerate(chip.layout.heaters)}
    assert len(heaters) == LOADS
    with SimulatedBench(chip, specs, BenchWiring(heaters, {}, "laser"), clock) as bench:
        # Its own 0.1 s is short for a busy machine.
        client = qontrol.QXOutput(
            serial_port_name=bench.open_pty("heaters"), response_timeout=HASTY_S, binary_mode=binary
        )
        client.response_timeout = timeout
        try:
            yield client, chip
        finally:
            client.close()
            del client
            gc.collect()


def errors_of(client):
    return [(entry["id"], entry["ch"], entry["raw"]) for entry in client.log if entry["type"] == "err"]


@TYPES
def test_sixteen_channels_of_every_type(kind, binary):
    with client_of(kind, binary) as (client, chip):
        assert client.device_id == f"{kind}-0001"
        assert [(d["device_id"], d["device_type"], d["n_chs"], d["index"]) for d in client.chain] == [
            (f"{kind}-0001", kind, 8, 0),
            (f"{kind}-0002", kind, 8, 1),
        ]
        assert (client.n_chs, client.v_full, client.i_full) == (16, 12.0, pytest.approx(FULL_MA[kind], abs=1e-4))
        targets = [0.25 * (k + 1) for k in range(16)]
        client.set_all_values("V", list(targets))
        assert client.get_all_values("V") == pytest.approx(targets, abs=2e-3)
        assert [chip.heater_voltage(k) for k in range(LOADS)] == pytest.approx(targets[:LOADS], abs=3e-4)
        assert errors_of(client) == []


@MODES
def test_single_channels_currents_and_limits(binary):
    with client_of("Q8iv", binary) as (client, chip):
        targets = [4.0 - 0.125 * k for k in range(16)]
        for k in range(16):
            client.v[k] = targets[k]
        assert [client.v[k] for k in range(16)] == pytest.approx(targets, abs=2e-3)
        currents = [1e-3 * client.i[k] for k in range(LOADS)]
        assert currents == pytest.approx([chip.heater_current(k) for k in range(LOADS)], abs=2e-5)
        client.i[2] = 3.0
        assert client.i[2] == pytest.approx(3.0, abs=0.02)
        assert chip.heater_current(2) == pytest.approx(3e-3, rel=1e-3)
        client.vmax[9] = 5.0
        assert client.vmax[9] == pytest.approx(5.0, abs=1e-3)
        client.imax[4] = 10.0
        assert client.imax[4] == pytest.approx(10.0, abs=1e-3)
        assert errors_of(client) == []


@MODES
def test_errors_are_logged_with_channels_local_to_their_module(binary):
    with client_of("Q8iv", binary, timeout=HASTY_S) as (client, _):
        client.vmax[9] = 5.0
        client.v[9] = 6.0
        assert errors_of(client) == [(1, 1, "E01:01")]
        assert [e["desc"] for e in client.log if e["type"] == "err"] == ["Over-voltage error on channel 1."]
        assert client.v[9] < 5.0
        client.i[15] = 1.0  # an open load, which is reported during a later command
        assert errors_of(client)[1:] == []
        assert client.v[15] == pytest.approx(12.0, abs=2e-3)
        assert errors_of(client)[1:] == [(1, 7, "E01:07")]


def test_module_information_too_long_lines_and_raised_errors():
    with client_of("Q8iv", False, timeout=HASTY_S) as (client, _):
        assert client.firmware.strip() == "v2.4.1"
        assert client.lifetime.strip().endswith(" s")
        memory = client.issue_command("nvmall", operator="?", n_lines_requested=256)
        assert len(memory) == 256
        # Its own retry after E15 would go on for ever; the raw line shows what the chain says.
        client.transmit("v0=" + ",".join(["1"] * 16) + "\n")
        client.issue_command("nchan", operator="?", n_lines_requested=1)
        assert errors_of(client) == [(14, 0, "E14:00"), (15, 0, "E15:00")]
        client.log_handler = qontrol.generic_log_handler([1, 2, 3])
        with pytest.raises(RuntimeError, match=r"Caught Qontrol error E01:00"):
            client.v[0] = 13.0
