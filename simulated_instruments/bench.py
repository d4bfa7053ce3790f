"""A whole simulated bench: one hidden chip, instruments wired to it, and servers in front of them."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from optinc_hw.clock import Clock
from optinc_hw.errors import ConfigurationError
from optinc_hw.photonics.layout import ChipLayout
from simulated_instruments._pty import PtyServer
from simulated_instruments._session import SimulatedInstrument
from simulated_instruments._tcp import TcpServer
from simulated_instruments.hidden_chip import HiddenChip
from simulated_instruments.keysight_n7745a import SimulatedKeysightN7745A
from simulated_instruments.qontrol_q8iv import SimulatedQontrolQ8iv
from simulated_instruments.santec_tsl570 import SimulatedSantecTSL570

QONTROL, SANTEC, KEYSIGHT = "qontrol_q8iv", "santec_tsl570", "keysight_n7745a"

_CHANNELS_PER_MODULE = 8
_MODULES_PER_CHAIN = 8
_PORTS_PER_METER = 8


@dataclass(frozen=True)
class InstrumentSpec:
    """One instrument of a simulated bench.

    Parameters
    ----------
    name
        Its name, unique on the bench.
    kind
        ``qontrol_q8iv``, ``santec_tsl570`` or ``keysight_n7745a``.
    size
        Modules of a Qontrol chain, ports of a meter, 1 for a laser.
    """

    name: str
    kind: str
    size: int = 1


@dataclass(frozen=True)
class BenchWiring:
    """What hangs on what; channels and ports are 0-based.

    Parameters
    ----------
    heaters
        (instrument, channel) of each heater name. A heater left out stays cold.
    detectors
        (instrument, port) of each detector name. A detector left out is not read.
    laser
        Name of the laser that lights the chip.
    """

    heaters: Mapping[str, tuple[str, int]]
    detectors: Mapping[str, tuple[str, int]]
    laser: str


def default_bench(ports: int) -> tuple[tuple[InstrumentSpec, ...], BenchWiring]:
    """Return instruments and wiring for a chip of ``ports`` ports.

    Heaters in the layout's order on chains ``heaters_0``, ``heaters_1``, ... of up to 8 modules, photodiodes on
    8-port meters ``meter_plus_0``, ... and ``meter_minus_0``, ..., and one ``laser``.

    Raises
    ------
    MatrixError
        If ``ports`` is not an integer of at least 2.
    """
    layout = ChipLayout(ports)
    heaters, chains = layout.heaters, list[InstrumentSpec]()
    per_chain = _CHANNELS_PER_MODULE * _MODULES_PER_CHAIN
    for start in range(0, len(heaters), per_chain):
        modules = -(-len(heaters[start : start + per_chain]) // _CHANNELS_PER_MODULE)
        chains.append(InstrumentSpec(f"heaters_{len(chains)}", QONTROL, modules))
    meters = [
        InstrumentSpec(f"meter_{side}_{k}", KEYSIGHT, _PORTS_PER_METER)
        for side in ("plus", "minus")
        for k in range(-(-ports // _PORTS_PER_METER))
    ]
    detectors = {
        f"rx_{j}_{side}": (f"meter_{side}_{j // _PORTS_PER_METER}", j % _PORTS_PER_METER)
        for side in ("plus", "minus")
        for j in range(ports)
    }
    wiring = BenchWiring(
        heaters={name: (f"heaters_{k // per_chain}", k % per_chain) for k, name in enumerate(heaters)},
        detectors=detectors,
        laser="laser",
    )
    return (*chains, InstrumentSpec("laser", SANTEC), *meters), wiring


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

    Raises
    ------
    ConfigurationError
        If names are used twice or unknown, a channel or port is used twice or does not exist, or kinds do not fit.
    """

    def __init__(
        self, chip: HiddenChip, instruments: Sequence[InstrumentSpec], wiring: BenchWiring, clock: Clock
    ) -> None:
        specs = {spec.name: spec for spec in instruments}
        if len(specs) != len(instruments):
            raise ConfigurationError("simulated bench: two instruments have the same name")
        heaters = _channels("heater", wiring.heaters, chip.layout.heaters, specs, QONTROL)
        detectors = _channels("detector", wiring.detectors, chip.layout.detectors, specs, KEYSIGHT)
        if wiring.laser not in specs or specs[wiring.laser].kind != SANTEC:
            raise ConfigurationError(f"simulated bench: laser {wiring.laser!r} is not an instrument of kind {SANTEC}")
        chip.clock = clock
        self._instruments: dict[str, SimulatedInstrument] = {}
        for spec in instruments:
            if spec.kind == QONTROL:
                instrument: SimulatedInstrument = SimulatedQontrolQ8iv(
                    spec.name, spec.size, chip, heaters.get(spec.name, {}), clock
                )
            elif spec.kind == KEYSIGHT:
                instrument = SimulatedKeysightN7745A(spec.name, spec.size, chip, detectors.get(spec.name, {}), clock)
            elif spec.kind == SANTEC and spec.name == wiring.laser and spec.size == 1:
                instrument = SimulatedSantecTSL570(chip, clock)
            else:
                raise ConfigurationError(
                    f"simulated bench: instrument {spec.name!r} of kind {spec.kind!r} and size {spec.size} is not "
                    f"possible; kinds are {QONTROL}, {KEYSIGHT} and one {SANTEC} of size 1 that the wiring names"
                )
            self._instruments[spec.name] = instrument
        self._specs = specs
        self._stack = ExitStack()
        self._addresses: dict[str, str] = {}

    @property
    def addresses(self) -> dict[str, str]:
        """Address of each instrument while the context is open.

        ``socket://127.0.0.1:PORT`` for Qontrol, ``TCPIP0::127.0.0.1::PORT::SOCKET`` for the others.
        """
        return dict(self._addresses)

    def open_pty(self, name: str) -> str:
        """Open a pseudo-terminal to a Qontrol chain and return its path; it closes with the context.

        Raises
        ------
        ConfigurationError
            If the context is not open, the instrument is no Qontrol chain, or the platform has no pseudo-terminals.
        """
        if name not in self._addresses or self._specs[name].kind != QONTROL:
            raise ConfigurationError(f"simulated bench: no {QONTROL} named {name!r} is being served")
        server = PtyServer(self._instruments[name], name)
        self._stack.callback(server.close)
        return server.path

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            for name, instrument in self._instruments.items():
                server = TcpServer(instrument, name)
                stack.callback(server.close)
                serial = self._specs[name].kind == QONTROL
                self._addresses[name] = (
                    f"socket://127.0.0.1:{server.port}" if serial else f"TCPIP0::127.0.0.1::{server.port}::SOCKET"
                )
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


def _channels(
    what: str,
    wiring: Mapping[str, tuple[str, int]],
    names: Sequence[str],
    specs: Mapping[str, InstrumentSpec],
    kind: str,
) -> dict[str, dict[int, int]]:
    """Turn wiring by name into, per instrument, the chip's index on each channel."""
    index = {name: k for k, name in enumerate(names)}
    result: dict[str, dict[int, int]] = {}
    for name, (instrument, channel) in wiring.items():
        if name not in index:
            raise ConfigurationError(f"simulated bench: the chip has no {what} {name!r}")
        if instrument not in specs or specs[instrument].kind != kind:
            raise ConfigurationError(f"simulated bench: {what} {name} hangs on {instrument!r}, which is no {kind}")
        used = result.setdefault(instrument, {})
        if channel in used:
            raise ConfigurationError(
                f"simulated bench: {what}s {names[used[channel]]} and {name} share channel {channel} of {instrument}"
            )
        used[channel] = index[name]
    return result
