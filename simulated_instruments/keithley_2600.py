"""Simulated Keithley 2600B source meters of one or two channels, which speak TSP over TCP.

Where the manual is silent, this simulator decides. The power envelope of the hardware (full voltage at a part of the
full current only) is left out, and so are scripts, buffers and everything else that a heater does not need.
"""

import threading
from collections.abc import Callable, Mapping

from optinc_hw.errors import ConfigurationError
from simulated_instruments._keithley_smu import Smu, SmuModel
from simulated_instruments._kind import InstrumentKind, InstrumentSpec, Surroundings
from simulated_instruments._session import LineSession
from simulated_instruments._source_channels import ReadBack, Source, SourceChannels
from simulated_instruments._tsp import (
    Attribute,
    Function,
    TspError,
    TspErrorQueue,
    TspInterpreter,
    Value,
    constant,
    runtime_error,
)
from simulated_instruments.hidden_chip import HiddenChip

_SMALL_CURRENTS_A = (100e-9, 1e-6, 10e-6, 100e-6, 1e-3, 10e-3, 100e-3, 1.0)
_SMALLEST_CURRENTS_A = (1e-9, 10e-9, *_SMALL_CURRENTS_A)
_FAMILIES: Mapping[str, SmuModel] = {
    "260": SmuModel((0.1, 1.0, 6.0, 40.0), (*_SMALL_CURRENTS_A, 3.0), 10e-3, 10e-9, 40.0, 1.0),
    "261": SmuModel((0.2, 2.0, 20.0, 200.0), (*_SMALL_CURRENTS_A, 1.5), 20e-3, 10e-9, 20.0, 0.1),
    "263": SmuModel((0.2, 2.0, 20.0, 200.0), (*_SMALLEST_CURRENTS_A, 1.5), 20e-3, 100e-12, 20.0, 0.1),
}
MODELS: Mapping[str, int] = {
    "2601B": 1, "2602B": 2, "2604B": 2, "2611B": 1, "2612B": 2, "2614B": 2, "2634B": 2, "2635B": 1, "2636B": 2
}  # fmt: skip
"""Number of channels of each model."""

_SERIAL, _FIRMWARE = "1398687", "3.3.5"
_READ_BACK = ReadBack(voltage_noise_v=2e-5, current_noise_a=2e-8, current_offset_a=5e-8)
_SYSTEM_ERROR = (-310, "System error")
_STEP_AT_START_V = 5e-6
_DISPLAY_FUNCTIONS = ("display.clear", "display.settext", "display.setcursor", "display.sendkey", "beeper.beep")


class SimulatedKeithley2600:
    """A 2600B source meter with the chip's heaters on its channels.

    Parameters
    ----------
    name
        Name on the bench; seeds the read-back noise.
    model
        Such as ``"2614B"``.
    chip
        The chip with the heaters.
    heaters
        Heater index per 0-based channel (``smua`` is 0); the other channels are open.

    Raises
    ------
    ConfigurationError
        If the model or a channel is not possible.
    """

    def __init__(self, name: str, model: str, chip: HiddenChip, heaters: Mapping[int, int]) -> None:
        if model not in MODELS:
            raise ConfigurationError(
                f"simulated {name}: model {model!r} is not possible; models are {', '.join(MODELS)}"
            )
        self._model = model
        smu = _FAMILIES[model[:3]]
        start = Source(
            on=False,
            max_voltage_v=smu.default_limit_v,
            max_current_a=smu.default_limit_a,
            step_v=_STEP_AT_START_V,
        )
        self._channels = SourceChannels(name, MODELS[model], start, _READ_BACK, chip, heaters)
        self._smus = [Smu(f"smu{letter}", k, smu, self._channels) for k, letter in enumerate("ab"[: MODELS[model]])]
        self._errors = TspErrorQueue()
        self._lock = threading.RLock()
        self._set_defaults()
        self._interpreter = TspInterpreter(
            self._attributes(), self._functions(), self._errors, lambda: int(self._settings["format.asciiprecision"])
        )
        self._common: Mapping[str, Callable[[], str | None]] = {
            "*IDN?": lambda: f"Keithley Instruments Inc., Model {model}, {_SERIAL}, {_FIRMWARE}",
            "*OPC?": lambda: "1",
            "*STB?": lambda: "4" if len(self._errors) else "0",
            "*ESR?": lambda: "0",
            "*TST?": lambda: "0",
            "*CLS": self._errors.clear,
            "*RST": self._reset,
            "*WAI": lambda: None,
            "*OPC": lambda: None,
        }

    def open_session(self) -> LineSession:
        """Return a session for a new client; CR, LF and CRLF end a chunk."""
        return LineSession(self._answer)

    def restart(self) -> None:
        """Switch power off and on again: outputs off, settings at their defaults, no errors, no variables."""
        with self._lock:
            self._reset()
            self._interpreter.forget()
            self._errors.clear()

    def flood_errors(self, count: int) -> bytes:
        """Let ``count`` errors happen inside; they wait in the error queue."""
        with self._lock:
            for _ in range(count):
                self._errors.push(TspError(*_SYSTEM_ERROR))
        return b""

    def _answer(self, line: str) -> bytes:
        with self._lock:
            if line.startswith("*"):
                command = self._common.get(line.upper())
                if command is None:
                    self._errors.push(TspError(-113, "Undefined header"))
                    return b""
                reply = command()
                lines = [] if reply is None else [reply]
            else:
                lines = self._interpreter.execute(line)
            return "".join([f"{text}\n" for text in lines]).encode("ascii", errors="replace")

    def _set_defaults(self) -> None:
        self._settings: dict[str, float] = {
            "format.asciiprecision": 6.0,
            "display.screen": 2.0,
            "beeper.enable": 1.0,
            "localnode.prompts": 0.0,
            "localnode.showerrors": 0.0,
        }

    def _reset(self) -> None:
        for smu in self._smus:
            smu.reset()
        self._set_defaults()

    def _attributes(self) -> Mapping[str, Attribute]:
        constants: dict[str, Value] = {
            "localnode.model": self._model,
            "localnode.serialno": _SERIAL,
            "localnode.version": _FIRMWARE,
            "localnode.revision": _FIRMWARE,
            "localnode.linefreq": 50.0,
            "display.SMUA": 0.0,
            "display.SMUB": 1.0,
            "display.SMUA_SMUB": 2.0,
            "display.USER": 3.0,
        }
        found = {key: constant(value) for key, value in constants.items()}
        found |= {key: self._setting(key) for key in self._settings}
        found["errorqueue.count"] = Attribute(lambda: float(len(self._errors)))
        for smu in self._smus:
            found |= smu.attributes()
        return found

    def _setting(self, key: str) -> Attribute:
        def put(value: Value) -> None:
            if isinstance(value, bool) or not isinstance(value, float):
                raise runtime_error("number expected")
            if key == "format.asciiprecision" and not 1.0 <= value <= 16.0:
                raise TspError(1102, "Parameter out of range")
            self._settings[key] = value

        return Attribute(lambda: self._settings[key], put)

    def _functions(self) -> Mapping[str, Function]:
        found: dict[str, Function] = {
            "errorqueue.next": lambda _: self._errors.next(),
            "errorqueue.clear": lambda _: _done(self._errors.clear),
            "reset": lambda _: _done(self._reset),
            "status.reset": lambda _: (),
            "waitcomplete": lambda _: (),
        }
        found |= {key: lambda _: () for key in _DISPLAY_FUNCTIONS}
        for smu in self._smus:
            found |= smu.functions()
        return found


def _done(action: Callable[[], None]) -> tuple[()]:
    action()
    return ()


def _build(spec: InstrumentSpec, at: Surroundings) -> SimulatedKeithley2600:
    model = spec.options.get("model", "2614B" if spec.size == 2 else "2611B")
    instrument = SimulatedKeithley2600(spec.name, model, at.chip, at.channels)
    if spec.size > MODELS[model]:
        raise ConfigurationError(f"simulated {spec.name}: a {model} has {MODELS[model]} channels, got {spec.size}")
    return instrument


KIND = InstrumentKind("keithley_2600", "heaters", _build, "socket")
