"""A whole simulated bench: one hidden chip, instruments wired to it, and servers in front of them."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self, cast

from optinc_hw._wiring import LASER, default_wiring
from optinc_hw.clock import Clock
from optinc_hw.errors import ConfigurationError
from optinc_hw.photonics.layout import ChipLayout, Inputs, Receivers
from simulated_instruments._fault_link import FaultyInstrument
from simulated_instruments._hislip import HislipServer
from simulated_instruments._in_process import InProcessPort
from simulated_instruments._kind import InstrumentSpec, ServedLink, Surroundings
from simulated_instruments._kinds import KINDS
from simulated_instruments._light_paths import ConnectsPorts, SwitchPath
from simulated_instruments._pty import PtyServer
from simulated_instruments._tcp import TcpServer
from simulated_instruments._wiring import (
    BenchWiring,
    by_name,
    check_inputs,
    check_laser,
    input_course,
    seen_detectors,
    wired_channels,
)
from simulated_instruments.faults import BenchFaults
from simulated_instruments.hidden_chip import HiddenChip

QONTROL, SANTEC, KEYSIGHT = "qontrol_q8iv", "santec_tsl570", "keysight_n7745a"
POLATIS = "polatis_oxc"


def default_bench(
    ports: int, *, inputs: Inputs = "modulators", receivers: Receivers = "homodyne"
) -> tuple[tuple[InstrumentSpec, ...], BenchWiring]:
    """Return instruments and wiring for a chip of ``ports`` ports with a rectangular mesh.

    Heaters in the layout's order on chains ``heaters_0``, ``heaters_1``, ... of up to 8 modules, and one ``laser``.
    The photodiodes of homodyne receivers hang on 8-port meters ``meter_plus_0``, ... and ``meter_minus_0``, ..., power
    detectors on ``meter_0``, ... . Before input ports stands a cross-connect ``switch``, port i at its output i.

    Raises
    ------
    MatrixError
        If ``ports`` is not an integer of at least 2, or ``inputs`` or ``receivers`` is unknown.
    """
    layout = ChipLayout(ports, inputs=inputs, receivers=receivers)
    usual = default_wiring(layout)
    chains = [InstrumentSpec(name, QONTROL, modules) for name, modules in usual.heater_modules.items()]
    meters = [InstrumentSpec(name, KEYSIGHT, size) for name, size in usual.meter_ports.items()]
    switches = () if layout.modulators else (InstrumentSpec("switch", POLATIS, ports),)
    wiring = BenchWiring(
        heaters=usual.heaters,
        detectors=usual.detectors,
        laser=LASER,
        inputs={} if layout.modulators else {i: SwitchPath("switch", 0, i) for i in range(ports)},
    )
    return (*chains, InstrumentSpec(LASER, SANTEC), *meters, *switches), wiring


class SimulatedBench:
    """Simulated instruments on one chip, served on 127.0.0.1 while the context is open.

    Parameters
    ----------
    chip
        The hidden chip; it goes over to ``clock``.
    instruments
        What stands on the bench.
    wiring
        What hangs on what.
    clock
        Time for the chip and all instruments.
    hislip
        Names of instruments that are served over HiSLIP where their kind would be served on a plain socket.
    in_process
        Whether instruments with a serial port are reached without a socket, by clients of this process only and much
        faster: at ``simulated://NUMBER``, a URL that pyserial resolves.

    Raises
    ------
    ConfigurationError
        If names are used twice or unknown, a channel or port is used twice or does not exist, or kinds do not fit.
    """

    def __init__(
        self,
        chip: HiddenChip,
        instruments: Sequence[InstrumentSpec],
        wiring: BenchWiring,
        clock: Clock,
        *,
        hislip: Collection[str] = (),
        in_process: bool = False,
    ) -> None:
        specs = by_name(instruments)
        heaters = wired_channels("heater", wiring.heaters, chip.layout.heaters, specs, "heaters", {})
        detectors = wired_channels("detector", wiring.detectors, chip.layout.detectors, specs, "meter", wiring.switched)
        check_laser(wiring.laser, specs)
        check_inputs(wiring.inputs, chip.layout, specs)
        chip.clock = clock
        self._links: dict[str, FaultyInstrument] = {}
        switches: dict[str, ConnectsPorts] = {}
        for spec in sorted(instruments, key=lambda spec: KINDS[spec.kind].role != "switch"):
            kind = KINDS[spec.kind]
            channels: Mapping[int, int] = {}
            if kind.role == "heaters":
                channels = {channel: heater for channel, [(heater, _)] in heaters.get(spec.name, {}).items()}
            elif kind.role == "meter":
                channels = seen_detectors(detectors.get(spec.name, {}), switches)
            instrument = kind.build(spec, Surroundings(chip, clock, channels))
            if kind.role == "switch":
                switches[spec.name] = cast("ConnectsPorts", instrument)
            self._links[spec.name] = FaultyInstrument(instrument, clock, kind.command_ends)
        _light(chip, wiring, switches)
        self.faults = BenchFaults(self._links, chip, clock)
        """What goes wrong, on demand."""
        self._specs = specs
        self._in_process = in_process
        self._served_as: dict[str, ServedLink] = {
            name: "hislip" if name in hislip else KINDS[spec.kind].link for name, spec in specs.items()
        }
        for name in hislip:
            self._check_network(name)
        self._stack = ExitStack()
        self._addresses: dict[str, str] = {}

    @property
    def addresses(self) -> dict[str, str]:
        """Address of each instrument while the context is open.

        ``socket://127.0.0.1:PORT`` (or ``simulated://NUMBER``) for serial ports, ``TCPIP0::127.0.0.1::PORT::SOCKET`` or
        ``TCPIP0::127.0.0.1::hislip0,PORT::INSTR`` for the others.
        """
        return dict(self._addresses)

    def open_pty(self, name: str) -> str:
        """Open a pseudo-terminal to an instrument with a serial port and return its path; it closes with the context.

        Raises
        ------
        ConfigurationError
            If the context is not open, the instrument has no serial port, or the platform has no pseudo-terminals.
        """
        if name not in self._addresses or self._served_as[name] != "serial":
            raise ConfigurationError(f"simulated bench: no instrument with a serial port {name!r} is being served")
        server = PtyServer(self._links[name], name)
        self._stack.callback(server.close)
        return server.path

    def open_hislip(self, name: str) -> str:
        """Serve an instrument over HiSLIP too and return its VISA address; the server closes with the context.

        Raises
        ------
        ConfigurationError
            If the context is not open, or the instrument is not known or has a serial port.
        """
        if name not in self._addresses:
            raise ConfigurationError(f"simulated bench: no instrument {name!r} is being served")
        self._check_network(name)
        return self._serve(name, "hislip", self._stack)

    def _check_network(self, name: str) -> None:
        if name not in self._links or KINDS[self._specs[name].kind].link == "serial":
            raise ConfigurationError(f"simulated bench: there is no instrument with a network port {name!r}")

    def _serve(self, name: str, link: ServedLink, stack: ExitStack) -> str:
        if link == "serial" and self._in_process:
            port = InProcessPort(self._links[name])
            stack.callback(port.close)
            return port.url
        server = (HislipServer if link == "hislip" else TcpServer)(self._links[name], name)
        stack.callback(server.close)
        if link == "hislip":
            return f"TCPIP0::127.0.0.1::hislip0,{server.port}::INSTR"
        return f"socket://127.0.0.1:{server.port}" if link == "serial" else f"TCPIP0::127.0.0.1::{server.port}::SOCKET"

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for name, link in self._links.items():
                link.open()
                self._addresses[name] = self._serve(name, self._served_as[name], stack)
                stack.callback(link.close)  # before its server, so that no late reply keeps that from closing
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._addresses.clear()
        self._stack.close()


def _light(chip: HiddenChip, wiring: BenchWiring, switches: Mapping[str, ConnectsPorts]) -> None:
    """Lead the laser's light to the chip's input ports."""
    course = input_course(wiring.inputs, switches)
    if course is not None:
        chip.follow_ports(course)
    elif not chip.layout.modulators:
        chip.set_lit_port(next(iter(wiring.inputs), None))
