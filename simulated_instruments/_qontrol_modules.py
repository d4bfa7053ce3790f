"""What a simulated Qontrol module tells of itself: identity, log, memory, help."""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from optinc_hw.clock import Clock
from optinc_hw.units import a_to_ma

CHANNELS_PER_MODULE = 8

_FIRMWARE = "v2.4.1"
_LIFETIME_AT_START_S = 156607
_LOG_DEPTH = 64
_MEMORY_WORDS, _ERASED_WORD = 256, 0xFFFF
_HELP = """\
{type}, 8 channels, {firmware}
<command><channel>?          ask, <command>ALL? of all channels or modules
<command><channel>=<value>   set, in V and mA
<command>VEC<channel>=<a>,<b>,...   set neighbouring channels of one module
V I VMAX IMAX VCAL ICAL VIP : channels
VFULL IFULL NCHAN ID NUP FIRMWARE LIFETIME LOG NVM LED ADCT ADCN OK SAFE HELP : modules
Errors are E<code>:<channel>
 00 unknown, 01 voltage, 02 current, 03 power, 04 calibration, 05 output
 10 command, 11 parameter, 12 channel, 13 forbidden, 14 buffer, 15 serial, 16 timeout
 17 SPI, 18 ADC, 19 I2C, 20 interlock, 30 suppressed, 31 trap, 90 power"""


@dataclass(frozen=True)
class ModuleType:
    """A type of module: name, and full scale in V and A."""

    name: str
    full_voltage_v: float
    full_current_a: float


MODULE_TYPES: Mapping[str, ModuleType] = {
    kind.name: kind
    for kind in (
        ModuleType("Q8iv", 12.0, 0.024),
        ModuleType("Q8b", 12.0, 0.25 / 3.0),
        ModuleType("Q8bi", 12.0, 0.1),
        ModuleType("Q8a", 12.0, 0.1),
    )
}
"""Types of modules by name."""


class QontrolModules:
    """The modules of one chain, apart from their outputs.

    Parameters
    ----------
    kind
        Type of all of them.
    count
        Number of modules.
    clock
        Time for life time and error log.
    """

    def __init__(self, kind: ModuleType, count: int, clock: Clock) -> None:
        self.count = count
        self.kind = kind
        self._clock = clock
        self._logs: list[deque[tuple[str, float]]] = [deque(maxlen=_LOG_DEPTH) for _ in range(count)]
        self._memories = [[serial, *[_ERASED_WORD] * (_MEMORY_WORDS - 1)] for serial in range(1, count + 1)]
        self._texts: dict[str, Callable[[int], str]] = {
            "ID": self._identity,
            "NUP": lambda module: f"{self._identity(module)}: {module}",
            "FIRMWARE": lambda _module: _FIRMWARE,
            "LIFETIME": lambda _module: f"{_LIFETIME_AT_START_S + int(clock.now())} s",
            "NCHAN": lambda _module: str(CHANNELS_PER_MODULE),
            "VFULL": lambda _module: f"{kind.full_voltage_v:+.4f} V",
            "IFULL": lambda _module: f"{a_to_ma(kind.full_current_a):+.4f} mA",
            "LOG": self._log_lines,
            "NVM": self._memory_lines,
            "ADCT": lambda _module: "5",
            "ADCN": lambda _module: "2",
            "LED": lambda _module: "1",
            "OK": lambda _module: "1",
            "SAFE": lambda _module: "1",
            "HELP": lambda _module: _HELP.format(type=kind.name, firmware=_FIRMWARE),
        }

    def tell(self, name: str, module: int) -> str | None:
        """Return the lines that a module answers ``name`` with; None if modules have nothing of that name."""
        text = self._texts.get(name)
        return None if text is None else text(module)

    def log(self, module: int, text: str) -> None:
        """Note an error of a module."""
        self._logs[module].appendleft((text, self._clock.now()))

    def store(self, words: list[int]) -> None:
        """Write words into the memories of all modules, from address 0; they outlast a restart."""
        for memory in self._memories:
            memory[: len(words)] = words[:_MEMORY_WORDS]

    def restart(self) -> None:
        """Forget the errors."""
        for log in self._logs:
            log.clear()

    def _identity(self, module: int) -> str:
        return f"{self.kind.name}-{module + 1:04X}"

    def _log_lines(self, module: int) -> str:
        now = self._clock.now()
        return "\n".join(
            f"# {k:2d}, {text}, {_age(now - time)} ago" for k, (text, time) in enumerate(self._logs[module])
        )

    def _memory_lines(self, module: int) -> str:
        memory = self._memories[module]
        return "\n".join(
            f"{k:02X} : 0x{memory[k]:04X},  {k + 1:02X} : 0x{memory[k + 1]:04X}" for k in range(0, _MEMORY_WORDS, 2)
        )


def _age(seconds: float) -> str:
    if seconds < 60.0:
        return f"{int(seconds)} s"
    return f"{int(seconds / 60.0)} m" if seconds < 3600.0 else f"{int(seconds / 3600.0)} h"
