"""Exchanges with instruments on loopback: our drivers beside bare pyvisa or pyserial and a plain QCoDeS parameter.

``python benchmarks/instruments.py`` prints tables, ``--json FILE`` writes every figure, ``--quick`` takes a minute. The
simulated instruments run in a process of their own, with simulated time. Contenders send the same bytes in turn; times
are medians of the clock on the wall, because waiting for the other process is part of an exchange.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

OURS, QCODES, BARE = "optinc-hw", "plain QCoDeS", "bare"
LINK_RULES, BULK = 1.3, 1.3
_SERVER = Path(__file__).with_name("_instrument_server.py")


def main() -> None:
    parser = argparse.ArgumentParser(description="Exchanges with instruments on loopback, beside bare libraries.")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to FILE")
    parser.add_argument("--quick", action="store_true", help="fewer samples")
    arguments = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    from _harness import threads, versions, write_rows

    seconds = 0.3 if arguments.quick else 2.0
    with served() as addresses, ExitStack() as stack:
        single = list(single_rows(addresses, seconds, stack))
        bulk = list(bulk_rows(addresses, seconds, stack))
    print("versions: " + ", ".join(f"{name} {version}" for name, version in versions().items()))
    print(f"threads: {threads()}; load of the machine: " + " / ".join(f"{load:.1f}" for load in os.getloadavg()))
    missed = [row["case"] for row in single + bulk if row["reached"] is False]
    print("every measured goal reached" if not missed else "goals missed: " + "; ".join(missed))
    if arguments.json is not None:
        write_rows(single + bulk, arguments.json)


@contextmanager
def served() -> Iterator[Mapping[str, str]]:
    """Serve the simulated instruments of the benchmark; yields their addresses."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, str(_SERVER)], stdin=pipe, stdout=pipe, text=True) as server:
        yield json.loads(server.stdout.readline())
        server.stdin.close()


@dataclass(frozen=True)
class Question:
    """One query: the driver that asks it by a parameter, and its bytes for the others."""

    instrument: str
    open: Callable[[str], object]
    ask: Callable[[object], object]
    command: str
    terminator: str = "\n"


def questions() -> tuple[Question, ...]:
    import drivers

    return (
        Question(
            "qontrol",
            lambda address: drivers.QontrolQ8iv("qontrol", address, modules=4),
            lambda device: device.channels[3].voltage.get(),
            "V3?",
        ),
        Question(
            "qdac",
            lambda address: drivers.QDevilQDAC2("qdac", address),
            lambda device: device.IDN.get(),
            "*idn?",
        ),
        Question(
            "keithley",
            lambda address: drivers.Keithley2600("keithley", address),
            lambda device: device.IDN.get(),
            "*IDN?",
        ),
        Question(
            "laser",
            lambda address: drivers.SantecTSL570("laser", address),
            lambda device: device.shutter_open.get(),
            ":POW:SHUT?",
            "\r",
        ),
        Question(
            "keysight",
            lambda address: drivers.KeysightN7745A("keysight", address),
            lambda device: device.channels[0].wavelength.get(),
            "sens1:pow:wav?",
        ),
        Question(
            "thorlabs",
            lambda address: drivers.ThorlabsPM("thorlabs", address),
            lambda device: device.IDN.get(),
            "*IDN?",
        ),
        Question(
            "polatis",
            lambda address: drivers.PolatisOXC("polatis", address),
            lambda device: device.connected_outputs[0].get(),
            ":oxc:swit:conn:port? 1",
        ),
    )


def single_rows(addresses: Mapping[str, str], seconds: float, stack: ExitStack) -> Iterator[dict[str, object]]:
    """One query through a parameter of each driver, through a plain QCoDeS parameter, and through pyvisa."""
    from _harness import at_most, cpu_times, figure

    table = [["instrument", f"{OURS} (1/s)", f"{QCODES} (1/s)", f"{BARE} pyvisa (1/s)", "over QCoDeS", "reached"]]
    for question in questions():
        device = question.open(addresses[question.instrument])
        stack.callback(device.close)
        plain, bare = others(question, socket_of(addresses[question.instrument]), stack)
        times = cpu_times({OURS: lambda: question.ask(device), QCODES: plain, BARE: bare}, seconds, time.perf_counter)  # noqa: B023 - called before the loop goes on
        rates = {name: 1e3 / value for name, value in times.items()}
        case = f"one query, {question.instrument}"
        ratio = at_most(f"{case}: {OURS} over {QCODES}", times[OURS] / times[QCODES], "x", LINK_RULES)
        yield from (figure(f"{case}: {name}", rate, "exchanges/s") for name, rate in rates.items())
        yield ratio
        table.append([question.instrument, *(f"{rates[name]:,.0f}" for name in (OURS, QCODES, BARE)), *judged(ratio)])
    print_table("One query and its answer", table)


def judged(ratio: Mapping[str, object]) -> tuple[str, str]:
    from _harness import verdict

    return f"{ratio['value']:.2f} ({ratio['goal']})", verdict(ratio)


def print_table(title: str, table: list[list[str]]) -> None:
    head, *body = ["| " + " | ".join(line) + " |" for line in table]
    print("\n".join([title, "", head, "|" + " --- |" * len(table[0]), *body, ""]), flush=True)


def socket_of(address: str) -> str:
    """VISA socket of an address; a serial port on a socket is one as well."""
    if not address.startswith("socket://"):
        return address
    host, port = address.removeprefix("socket://").split(":")
    return f"TCPIP0::{host}::{port}::SOCKET"


def others(question: Question, address: str, stack: ExitStack) -> tuple[Callable[[], object], Callable[[], object]]:
    """The query of a plain QCoDeS parameter, and of a bare pyvisa resource."""
    import pyvisa
    from qcodes.instrument import VisaInstrument

    plain = VisaInstrument(f"plain_{question.instrument}", address, terminator=question.terminator, visalib="@py")
    stack.callback(plain.close)
    parameter = plain.add_parameter("value", label="Value", unit="", get_cmd=question.command)
    resource = pyvisa.ResourceManager("@py").open_resource(
        address, read_termination=question.terminator, write_termination=question.terminator
    )
    stack.callback(resource.close)
    return parameter.get, lambda: resource.query(question.command)


def bulk_rows(addresses: Mapping[str, str], seconds: float, stack: ExitStack) -> Iterator[dict[str, object]]:
    """What calibration does all day: set all heaters, read them, read all detectors."""
    from _harness import at_most, cpu_times, figure

    table = [["task", f"{OURS} (1/s)", f"{BARE} (1/s)", f"over {BARE}", "reached"]]
    for case, ours, bare in (*heater_tasks(addresses["qontrol"], stack), *meter_tasks(addresses["keysight"], stack)):
        times = cpu_times({OURS: ours, BARE: bare}, seconds, time.perf_counter)
        ratio = at_most(f"{case}: {OURS} over {BARE}", times[OURS] / times[BARE], "x", BULK)
        yield from (figure(f"{case}: {name}", 1e3 / value, "calls/s") for name, value in times.items())
        yield ratio
        table.append([case, *(f"{1e3 / times[name]:,.0f}" for name in (OURS, BARE)), *judged(ratio)])
    print_table("Bulk calls, the same bytes", table)


Task = tuple[str, Callable[[], object], Callable[[], object]]


def heater_tasks(address: str, stack: ExitStack) -> Iterator[Task]:
    import serial

    import drivers

    bank = drivers.QontrolQ8iv("bank", address, modules=4, ramp_step=1.0, ramp_interval=0.0)
    stack.callback(bank.close)
    port = serial.serial_for_url(address, timeout=2.0)
    stack.callback(port.close)
    channels = range(bank.channel_count)
    levels = [1.0, 1.5]

    def ours() -> None:
        levels.reverse()
        bank.set_voltages(dict.fromkeys(channels, levels[0]))

    def bare() -> None:
        levels.reverse()
        voltages = dict.fromkeys(channels, levels[0])
        for first in range(0, len(channels), 8):
            values = ",".join([f"{voltages[channel]:.5f}" for channel in range(first, first + 8)])
            port.write(f"VVEC{first}={values}\n".encode())
            if port.read_until(b"\n") != b"OK\n":
                raise RuntimeError("not acknowledged")

    def read_bare() -> list[float]:
        port.write(b"VALL?\n")
        return [float(port.read_until(b"\n")[:-3]) for _ in channels]

    bank.set_voltages(dict.fromkeys(channels, 1.0))
    yield "set all of 32 heaters", ours, bare
    yield "read all of 32 heater voltages", bank.read_voltages, read_bare


def meter_tasks(address: str, stack: ExitStack) -> Iterator[Task]:
    import pyvisa

    import drivers

    meter = drivers.KeysightN7745A("meter", address)
    stack.callback(meter.close)
    meter.initialise(1550e-9, 1e-3)
    resource = pyvisa.ResourceManager("@py").open_resource(address, read_termination="\n", write_termination="\n")
    stack.callback(resource.close)
    yield (
        "read all of 8 detectors",
        meter.read_powers,
        lambda: resource.query_binary_values("read:pow:all?", datatype="f", is_big_endian=False),
    )


if __name__ == "__main__":
    main()
