"""Simulated Keysight tunable lasers: 8164A/B mainframe with a laser module, and N7776C, N7778C, N7779C.

Where the guides are silent this simulator decides: the laser is not locked at power-up, locking switches it off, what
the lock forbids is error -203, a sweep leaves the wavelength where it ended, settings of the sweep and the wavelength
cannot be changed while it runs (-221), and ``*OPC?`` waits for tuning but not for the end of a sweep.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from optinc_hw.clock import Clock
from optinc_hw.errors import ConfigurationError
from optinc_hw.units import dbm_to_watt, watt_to_dbm
from simulated_instruments._keysight_sweep import SweepRun, moving_time
from simulated_instruments._keysight_sweep_unit import Command, SweepUnit, ask
from simulated_instruments._kind import InstrumentKind, InstrumentSpec, Surroundings
from simulated_instruments._scpi import (
    ILLEGAL_VALUE,
    LENGTH_UNITS,
    MISSING_PARAMETER,
    OUT_OF_RANGE,
    PARAMETER_NOT_ALLOWED,
    SWITCH,
    ErrorQueue,
    Handler,
    Quantity,
    Reply,
    ScpiError,
    ScpiInterpreter,
    choice,
    exponential,
    no_arguments,
    number,
    one_argument,
    plain,
    query,
)
from simulated_instruments._session import LineSession
from simulated_instruments.hidden_chip import HiddenChip

DBM, WATT = 0, 1

COMMAND_PROTECTED = (-203, "Command protected")
SUFFIX_OUT_OF_RANGE = (-114, "Header suffix out of range")

_WAVELENGTH_STEPS_PER_M = 1e13  # 0.1 pm
_LOWEST_W, _DEFAULT_W = 20e-6, 1e-3
_POWER_UNITS = {"": 1.0, "W": 1.0, "MW": 1e-3, "UW": 1e-6, "NW": 1e-9, "PW": 1e-12, "DBM": 1.0}
_POWER_NAMES = {"MIN": "MIN", "MINIMUM": "MIN", "MAX": "MAX", "MAXIMUM": "MAX", "DEF": "DEF", "DEFAULT": "DEF"}
_STARTING_S, _POWER_CHANGE_S = 0.3, 0.02
_PIN = "1234"
_TRIGGER_ROUTES = ("DIS", "DEF", "PASS", "LOOP")
_ROUTE_NAMES = {"DIS": 0, "DISABLED": 0, "DEF": 1, "DEFAULT": 1, "PASS": 2, "PASSTHROUGH": 2, "LOOP": 3, "LOOPBACK": 3}
_PATHS = {"HIGH": 0, "HIGHPOWER": 0, "LOWS": 1, "LOWSSE": 1, "BHR": 2, "BHREGULATED": 2, "BLR": 3, "BLREGULATED": 3}
_PATH_WORDS = ("HIGH", "LOWS", "BHR", "BLR")
_SLOTS = 5


@dataclass(frozen=True)
class _Model:
    vendor: str
    module: str | None
    shortest_m: float
    longest_m: float
    fastest_m_s: float
    strongest_w: float
    outputs: int


_MODELS = {
    "8164A": _Model("Agilent Technologies", "81640A", 1510e-9, 1640e-9, 40e-9, 5e-3, 2),
    "8164B": _Model("Agilent Technologies", "81600B", 1440e-9, 1640e-9, 80e-9, 10e-3, 2),
    "N7776C": _Model("Keysight Technologies", None, 1480e-9, 1620e-9, 200e-9, 20e-3, 1),
    "N7778C": _Model("Keysight Technologies", None, 1490e-9, 1630e-9, 200e-9, 20e-3, 1),
    "N7779C": _Model("Keysight Technologies", None, 1480e-9, 1650e-9, 200e-9, 20e-3, 1),
}
DEFAULT_MODEL = "N7776C"


class SimulatedKeysightLaser:
    """A tunable laser that lights the hidden chip.

    Parameters
    ----------
    chip
        The chip to light. It is dark until the laser is on.
    clock
        Tuning, starting and sweeping take time on it.
    model
        ``"8164A"``, ``"8164B"``, ``"N7776C"``, ``"N7778C"`` or ``"N7779C"``.
    slot
        Slot of the laser, 0..4; lasers that are no mainframe have only slot 0.

    Raises
    ------
    ConfigurationError
        If the model is unknown or has no such slot.
    """

    def __init__(self, chip: HiddenChip, clock: Clock, model: str = DEFAULT_MODEL, slot: int = 0) -> None:
        if model not in _MODELS:
            raise ConfigurationError(f"simulated Keysight laser: no model {model!r}; models are {', '.join(_MODELS)}")
        self._model, self._name = _MODELS[model], model
        if not 0 <= slot < (_SLOTS if self._model.module else 1):
            raise ConfigurationError(f"simulated Keysight laser: a {model} cannot have a laser in slot {slot}")
        self._chip = chip
        self._clock = clock
        self._slot = slot
        shortest, longest = self._model.shortest_m, self._model.longest_m
        self._wavelength = Quantity(shortest, longest, 1550e-9, LENGTH_UNITS)
        self._sweeps = SweepUnit(
            clock, shortest, longest, self._model.fastest_m_s, moving=self._follow, ended=self._sweep_ended
        )
        self._ready_at = clock.now()
        self._locked = False
        self._errors = ErrorQueue('%+d,"%s"')
        self._interpreter = ScpiInterpreter(self._commands(), self._errors, b"\n")
        self._set_defaults()

    def open_session(self) -> LineSession:
        """Return a session for a new client."""
        return self._interpreter.open_session()

    def restart(self) -> None:
        """Cut the power for a moment: the laser is off and unlocked, settings and error queue are at their defaults."""
        self._locked = False
        self._errors.clear()
        self._reset()

    def flood_errors(self, count: int) -> bytes:
        """Let ``count`` errors happen inside; they wait in the queue."""
        for _ in range(count):
            self._errors.push(ScpiError(-310, "System error"))
        return b""

    def _set_defaults(self) -> None:
        self._wavelength_m = self._wavelength.default
        self._power_w = _DEFAULT_W
        self._power_unit = DBM
        self._on = False
        self._path = 0
        self._route = 1
        self._sweeps.reset()

    def _reset(self) -> Reply:
        self._set_defaults()
        self._ready_at = self._clock.now()
        self._apply(0.0)
        return None

    def _commands(self) -> Mapping[str, Handler]:
        common: dict[str, Handler] = {
            "LOCK": plain(self._set_lock),
            "LOCK?": query(lambda: f"{int(self._locked):+d}"),
            "TRIGger:CONFiguration": plain(self._set_route),
            "TRIGger:CONFiguration?": query(lambda: _TRIGGER_ROUTES[self._route]),
            "TRIGger": plain(self._trigger),
            "SLOT#:IDN?": self._slot_identity,
            "SYSTem:ERRor[:NEXT]?": query(self._errors.pop),
            "SYSTem:PRESet": query(self._reset),
            "*IDN?": query(lambda: f"{self._model.vendor},{self._name},DE00000011,V5.25"),
            "*OPT?": query(self._options),
            "*OPC?": query(self._operation_complete),
            "*CLS": query(self._errors.clear),
            "*RST": query(self._reset),
            "*ESR?": query(lambda: "+0"),
            "*STB?": query(lambda: "+0"),
            "*TST?": query(lambda: "+0"),
        }
        source: dict[str, Command] = {
            "WAVelength[:CW]": self._set_wavelength,
            "WAVelength[:CW]?": self._get_wavelength,
            "WAVelength:SWEep:PMAX?": self._highest_power,
            "POWer[:LEVel][:IMMediate][:AMPLitude]": self._set_power,
            "POWer[:LEVel][:IMMediate][:AMPLitude]?": self._get_power,
            "POWer:UNIT": self._set_power_unit,
            "POWer:UNIT?": ask(lambda: f"{self._power_unit:+d}"),
            "POWer:STATe": self._set_state,
            "POWer:STATe?": ask(lambda: f"{int(self._on):+d}"),
            **self._sweeps.commands(self._wavelength_now),
        }
        trigger: dict[str, Command] = {
            "INPut": self._sweeps.set_trigger_input,
            "INPut?": ask(lambda: self._sweeps.trigger_input),
            "OUTPut": self._sweeps.set_trigger_output,
            "OUTPut?": ask(lambda: self._sweeps.trigger_output),
        }
        output: dict[str, Command] = {
            "PATH": self._set_path,
            "PATH?": ask(lambda: _PATH_WORDS[self._path]),
            "[:STATe]": self._set_state,
            "[:STATe]?": source["POWer:STATe?"],
        }
        for root, commands in (("SOURce", source), ("TRIGger", trigger), ("OUTPut", output)):
            for header, command in commands.items():
                path = header if header.startswith("[") else f":{header}"
                common[f"{root}#[:CHANnel#]{path}"] = self._at_slot(command)
        return common

    def _at_slot(self, command: Command) -> Handler:
        def handler(suffixes: tuple[int, ...], arguments: list[str]) -> Reply:
            if suffixes[0] != self._slot or suffixes[1] != 1:
                raise ScpiError(*SUFFIX_OUT_OF_RANGE)
            return command(arguments)

        return handler

    def _slot_identity(self, suffixes: tuple[int, ...], arguments: list[str]) -> Reply:
        no_arguments(arguments)
        if suffixes[0] != self._slot:
            raise ScpiError(*SUFFIX_OUT_OF_RANGE)
        return f"{self._model.vendor},{self._model.module or self._name},DE00000012,V4.02"

    def _options(self) -> Reply:
        if self._model.module is None:
            return self._name
        return ",".join(self._model.module if slot == self._slot else "" for slot in range(_SLOTS))

    def _operation_complete(self) -> Reply:
        self._sweeps.state()
        end = max(self._ready_at, self._sweeps.ready_at)
        self._clock.sleep(max(end - self._clock.now(), 0.0))
        return "1"

    def _apply(self, duration_s: float) -> None:
        """Bring the light to the present settings after ``duration_s``; light goes out at once."""
        self._ready_at = max(self._ready_at, self._clock.now() + duration_s)
        run = self._sweeps.run
        if not self._on:
            self._chip.set_laser(0.0, self._wavelength_m)
        elif run is not None:
            self._follow(run)
        else:
            self._chip.set_laser(self._power_w, self._wavelength_m, at_s=self._ready_at)

    def _follow(self, run: SweepRun) -> None:
        """Let the light go with a sweep."""
        power_w, ready_at = self._power_w, self._ready_at
        if self._on:
            self._chip.follow_laser(lambda now: (power_w if now >= ready_at else 0.0, run.wavelength_at(now)))

    def _sweep_ended(self, wavelength_m: float) -> None:
        self._wavelength_m = _rounded(wavelength_m)
        self._apply(0.0)

    def _wavelength_now(self) -> float:
        self._sweeps.state()
        run = self._sweeps.run
        return self._wavelength_m if run is None else run.wavelength_at(self._clock.now())

    def _set_wavelength(self, arguments: list[str]) -> Reply:
        wavelength_m = _rounded(self._wavelength.parse(arguments))
        self._sweeps.require_no_sweep()
        before, self._wavelength_m = self._wavelength_m, wavelength_m
        if wavelength_m != before:
            self._apply(moving_time(before, wavelength_m))
        return None

    def _get_wavelength(self, arguments: list[str]) -> Reply:
        return exponential(self._wavelength.query(arguments, self._wavelength_now()))

    def _highest_power(self, arguments: list[str]) -> Reply:
        if len(arguments) < 2:
            raise ScpiError(*MISSING_PARAMETER)
        if len(arguments) > 2:
            raise ScpiError(*PARAMETER_NOT_ALLOWED)
        for end in arguments:
            self._wavelength.parse([end])
        return exponential(self._model.strongest_w)

    def _set_power(self, arguments: list[str]) -> Reply:
        text = one_argument(arguments)
        if text in _POWER_NAMES:
            self._power_w = self._named_power(text)
        else:
            value, suffix = number(text, _POWER_UNITS)
            in_dbm = suffix == "DBM" or (not suffix and self._power_unit == DBM)
            power_w = dbm_to_watt(min(value, 100.0)) if in_dbm else value
            # A limit must also pass after it was written in dBm.
            if not _LOWEST_W * (1.0 - 1e-4) <= power_w <= self._model.strongest_w * (1.0 + 1e-4):
                raise ScpiError(*OUT_OF_RANGE)
            self._power_w = power_w
        self._apply(_POWER_CHANGE_S)
        return None

    def _named_power(self, name: str) -> float:
        values = {"MIN": _LOWEST_W, "MAX": self._model.strongest_w, "DEF": _DEFAULT_W}
        return values[_POWER_NAMES[name]]

    def _get_power(self, arguments: list[str]) -> Reply:
        power_w = self._power_w
        if arguments:
            name = one_argument(arguments)
            if name not in _POWER_NAMES:
                raise ScpiError(*ILLEGAL_VALUE)
            power_w = self._named_power(name)
        return exponential(power_w if self._power_unit == WATT else watt_to_dbm(power_w))

    def _set_power_unit(self, arguments: list[str]) -> Reply:
        self._power_unit = choice(arguments, {"0": DBM, "DBM": DBM, "1": WATT, "W": WATT, "WATT": WATT})
        return None

    def _set_state(self, arguments: list[str]) -> Reply:
        on = bool(choice(arguments, SWITCH))
        if on and self._locked:
            raise ScpiError(*COMMAND_PROTECTED)
        starting, self._on = on and not self._on, on
        self._apply(_STARTING_S if starting else 0.0)
        return None

    def _set_lock(self, arguments: list[str]) -> Reply:
        if len(arguments) < 2:
            raise ScpiError(*MISSING_PARAMETER)
        if len(arguments) > 2:
            raise ScpiError(*PARAMETER_NOT_ALLOWED)
        locked = bool(choice(arguments[:1], SWITCH))
        if arguments[1] != _PIN:
            raise ScpiError(*COMMAND_PROTECTED)
        self._locked = locked
        if locked:
            self._set_state(["0"])
        return None

    def _set_path(self, arguments: list[str]) -> Reply:
        path = choice(arguments, _PATHS)
        if path and self._model.outputs == 1:
            raise ScpiError(*ILLEGAL_VALUE)
        self._path = path
        return None

    def _set_route(self, arguments: list[str]) -> Reply:
        self._route = choice(arguments, _ROUTE_NAMES)
        return None

    def _trigger(self, arguments: list[str]) -> Reply:
        choice(arguments, {"1": 1, "2": 2, "NODEA": 1, "NODEB": 2})
        if self._route:
            self._sweeps.trigger()
        return None


def _rounded(wavelength_m: float) -> float:
    """Round to whole steps, so that 1550 nm is the same number of metres whichever way it was written."""
    return round(wavelength_m * _WAVELENGTH_STEPS_PER_M) / _WAVELENGTH_STEPS_PER_M


def _build(spec: InstrumentSpec, at: Surroundings) -> SimulatedKeysightLaser:
    if spec.size != 1:
        raise ConfigurationError(f"simulated {spec.name}: a laser has size 1, got {spec.size}")
    slot = spec.options.get("slot", "0")
    if not slot.isdecimal():
        raise ConfigurationError(f"simulated {spec.name}: slot {slot!r} is no number")
    return SimulatedKeysightLaser(at.chip, at.clock, spec.options.get("model", DEFAULT_MODEL), int(slot))


KIND = InstrumentKind("keysight_laser", "laser", _build, "socket")
