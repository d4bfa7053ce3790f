"""Simulated ID Photonics CoBrite DX, DX2 and MX laser sources: several lasers in one chassis, one of them on the chip.

Messages end with ``;`` in both directions, and every command answers. Where the vendor's driver does not tell, this
simulator decides: a bad port or value is error 100, and in standby every command to a laser is error 104.
"""

import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from weakref import WeakKeyDictionary, ref

from optinc_hw.clock import Clock
from optinc_hw.errors import ConfigurationError
from simulated_instruments._cobrite_lasers import (
    COMMAND_ERROR,
    COMMUNICATION_LOCK,
    HIGHEST_DBM,
    HIGHEST_THZ,
    LOWEST_DBM,
    LOWEST_THZ,
    OFFSET_GHZ,
    POWER_DOWN,
    UNAUTHORISED,
    WRONG_ARGUMENT_COUNT,
    CobriteError,
    Configuration,
    LaserModule,
    Light,
    nanometres,
    parse_state,
    parse_value,
)
from simulated_instruments._kind import InstrumentKind, InstrumentSpec, Surroundings
from simulated_instruments._session import LineSession
from simulated_instruments.hidden_chip import HiddenChip

MODELS = ("DX", "DX2", "MX")

_TUNING_S = 5.0
_HIGHEST_NUMBER = 8
_MX_MODULE_SIZES = (1, 2, 4)
_PASSWORDS = {"0": 0, "IDP": 1}
_INTEGER = re.compile(r"\d{1,6}", re.ASCII)
_LIMITS = f"{LOWEST_THZ:.4f},{HIGHEST_THZ:.4f},{OFFSET_GHZ:.3f},{LOWEST_DBM:.2f},{HIGHEST_DBM:.2f}"

Port = tuple[int, int, int]


class _Client:
    """Stands for a session; what it may do is forgotten with it."""


Answer = Callable[[_Client, list[str]], str]


class SimulatedCobrite:
    """A chassis of tunable lasers, one of which lights the hidden chip.

    Parameters
    ----------
    chip
        The chip to light.
    clock
        Tuning takes time on it.
    model
        ``"DX"``, ``"DX2"`` or ``"MX"``; it decides how the layout is told.
    port
        Chassis, slot and device of the laser on the chip, each from 1; the chassis is as large as it needs to be.
    tuning_time_s
        Time that a new frequency, or switching on, takes; a change of power or offset takes a tenth of it.

    Raises
    ------
    ConfigurationError
        If the model is unknown, a number of the port is not in 1..8, or the time is negative.
    """

    def __init__(
        self,
        chip: HiddenChip,
        clock: Clock,
        model: str = "DX",
        port: Port = (1, 1, 1),
        tuning_time_s: float = _TUNING_S,
    ) -> None:
        if model not in MODELS:
            raise ConfigurationError(f"simulated CoBrite: model {model!r} is not possible; models are {MODELS}")
        if not all(1 <= number <= _HIGHEST_NUMBER for number in port):
            raise ConfigurationError(
                f"simulated CoBrite: port {port} is not possible; chassis, slot and device are 1..{_HIGHEST_NUMBER}"
            )
        if tuning_time_s < 0.0:
            raise ConfigurationError(f"simulated CoBrite: a tuning time of {tuning_time_s} s is not possible")
        self._chip = chip
        self._clock = clock
        self._model = model
        self._port = port
        self._tuning_time_s = tuning_time_s
        self._slots = _slots(model, port)
        self._lock = threading.RLock()
        self._commands = self._command_table()
        self._power_up()

    def open_session(self) -> LineSession:
        """Return a session for a new client, without any rights."""
        client = _Client()
        return LineSession(lambda line: self._answer(client, line), rb";")

    def restart(self) -> None:
        """Cut the power for a moment: all lasers are off and at their start values, rights and locks are gone."""
        with self._lock:
            self._power_up()

    def flood_errors(self, count: int) -> bytes:
        """Let ``count`` errors happen inside; the instrument keeps only the last one and tells nobody unasked."""
        if count > 0:
            self._last_error = f"{COMMAND_ERROR},internal error {count}"
        return b""

    def set_standby(self, on: bool) -> None:
        """Press the standby key: lasers go off, and commands to them are refused until the unit is woken."""
        with self._lock:
            self._standby = on
            if on:
                self._darken()

    def set_interlock(self, is_open: bool) -> None:
        """Open or close the interlock loop: while it is open, lasers are off and stay off."""
        with self._lock:
            self._interlock_open = is_open
            if is_open:
                self._darken()

    def _power_up(self) -> None:
        self._lasers = {
            (chassis, slot, device): LaserModule(
                self._clock, self._tuning_time_s, self._light_of((chassis, slot, device))
            )
            for (chassis, slot), count in self._slots.items()
            for device in range(1, count + 1)
        }
        self._levels: WeakKeyDictionary[_Client, int] = WeakKeyDictionary()
        self._lock_holder: ref[_Client] | None = None
        self._standby = False
        self._interlock_open = False
        self._last_error = "0,no error"
        self._darken()

    def _light_of(self, port: Port) -> Light:
        """Return what takes the light of a laser: the chip, or nothing."""
        if port == self._port:
            return lambda power_w, wavelength_m, at_s: self._chip.set_laser(power_w, wavelength_m, at_s=at_s)
        return lambda _power_w, _wavelength_m, _at_s: None

    def _darken(self) -> None:
        for laser in self._lasers.values():
            laser.apply(replace(laser.settings, on=False))

    def _command_table(self) -> Mapping[str, Answer]:
        identity = f"ID Photonics,CoBrite-{self._model},21070001,2.2.0"
        return {
            "*IDN?": self._plain(lambda: identity),
            "INFO?": self._plain(lambda: identity),
            "*OPC?": self._plain(lambda: str(int(not any(laser.busy for laser in self._lasers.values())))),
            "*WAI": self._plain(lambda: self._wait(max(laser.busy_until for laser in self._lasers.values()))),
            "ABOR": self._plain(lambda: "OK"),
            "ALAR?": self._plain(lambda: "0"),
            "ERR?": self._plain(lambda: self._last_error),
            "INTL?": self._plain(lambda: str(int(self._interlock_open))),
            "INTI": self._reset_session,
            "LAY?": self._plain(self._layout),
            "IPADDR?": self._plain(lambda: "127.0.0.1"),
            "TEMP?": self._plain(lambda: "{},{},{},32.5".format(*self._port)),
            "PASS": self._log_in,
            "PASS?": self._level,
            "LOCK": self._set_lock,
            "LOCK?": lambda client, arguments: self._count(arguments, 0) or str(int(self._locked_for(client))),
            "TYP?": self._ask(lambda _: "GC"),
            "WAV": self._set(lambda now, text: replace(now, frequency_thz=_frequency_of(text))),
            "WAV?": self._ask(lambda laser: f"{nanometres(laser.settings.frequency_thz):.4f}"),
            "WAV:LIM?": self._ask(lambda _: f"{nanometres(HIGHEST_THZ):.4f},{nanometres(LOWEST_THZ):.4f}"),
            "FREQ": self._set(lambda now, text: replace(now, frequency_thz=parse_value(text, LOWEST_THZ, HIGHEST_THZ))),
            "FREQ?": self._ask(lambda laser: f"{laser.settings.frequency_thz:.6f}"),
            "FREQ:LIM?": self._ask(lambda _: f"{LOWEST_THZ:.4f},{HIGHEST_THZ:.4f}"),
            "OFF": self._set(lambda now, text: replace(now, offset_ghz=parse_value(text, -OFFSET_GHZ, OFFSET_GHZ))),
            "OFF?": self._ask(lambda laser: f"{laser.settings.offset_ghz:.3f}"),
            "OFF:LIM?": self._ask(lambda _: f"{OFFSET_GHZ:.3f}"),
            "POW": self._set(lambda now, text: replace(now, power_dbm=parse_value(text, LOWEST_DBM, HIGHEST_DBM))),
            "POW?": self._ask(lambda laser: f"{laser.settings.power_dbm:.2f}"),
            "POW:LIM?": self._ask(lambda _: f"{LOWEST_DBM:.2f},{HIGHEST_DBM:.2f}"),
            "APOW?": self._ask(lambda laser: f"{laser.actual_dbm:.2f}"),
            "LIM?": self._ask(lambda _: _LIMITS),
            "STAT": self._set(lambda now, text: replace(now, on=parse_state(text))),
            "STAT?": self._ask(lambda laser: str(int(laser.settings.on))),
            "DIT": self._set(lambda now, text: replace(now, dither=parse_state(text))),
            "DIT?": self._ask(lambda laser: str(int(laser.settings.dither))),
            "CONF": self._set(lambda _, *texts: _configuration(*texts), values=5),
            "CONF?": self._ask(_configuration_text),
            "MON?": self._ask(lambda laser: "25.00,31.50,182.3,240.1" if laser.lit else "25.00,28.20,0.0,110.4"),
            "BUSY?": self._ask(lambda laser: str(int(laser.busy))),
            "BWAI": self._ask(lambda laser: self._wait(laser.busy_until)),
            "LALAR?": self._ask(lambda _: "0"),
        }

    def _answer(self, client: _Client, line: str) -> bytes:
        header, *rest = line.split(maxsplit=1)
        arguments = [argument.strip() for argument in rest[0].split(",")] if rest else []
        with self._lock:
            try:
                command = self._commands.get(header.upper())
                if command is None:
                    raise CobriteError(COMMAND_ERROR, f"{header} unknown command")
                reply = command(client, arguments)
            except CobriteError as error:
                self._last_error = f"{error.code},{error}"
                reply = f"ERR {self._last_error}"
        return reply.encode("ascii", errors="replace") + b";"

    def _plain(self, answer: Callable[[], str]) -> Answer:
        return lambda _, arguments: self._count(arguments, 0) or answer()

    def _ask(self, answer: Callable[[LaserModule], str]) -> Answer:
        return lambda _, arguments: self._count(arguments, 3) or answer(self._laser(arguments))

    def _set(self, change: Callable[..., Configuration], values: int = 1) -> Answer:
        """Return the handler of a command with ``values`` values after the port, which a lock may forbid."""

        def handler(client: _Client, arguments: list[str]) -> str:
            self._count(arguments, 3 + values)
            laser = self._laser(arguments[:3])
            if self._locked_for(client):
                raise CobriteError(COMMUNICATION_LOCK, "locked by another session")
            wanted = change(laser.settings, *arguments[3:])
            laser.apply(replace(wanted, on=wanted.on and not self._interlock_open))
            return "OK"

        return handler

    def _count(self, arguments: list[str], wanted: int) -> str:
        """Refuse a wrong number of arguments; returns "" so that an answer can follow after ``or``."""
        if len(arguments) != wanted:
            raise CobriteError(WRONG_ARGUMENT_COUNT, f"{wanted} arguments expected")
        return ""

    def _laser(self, arguments: list[str]) -> LaserModule:
        if not all(_INTEGER.fullmatch(argument) for argument in arguments):
            raise CobriteError(COMMAND_ERROR, "a port is chassis,slot,device")
        laser = self._lasers.get((int(arguments[0]), int(arguments[1]), int(arguments[2])))
        if laser is None:
            raise CobriteError(COMMAND_ERROR, f"no laser at {','.join(arguments)}")
        if self._standby:
            raise CobriteError(POWER_DOWN, "power down")
        return laser

    def _level(self, client: _Client, arguments: list[str]) -> str:
        self._count(arguments, 0)
        return str(self._levels.get(client, 0))

    def _log_in(self, client: _Client, arguments: list[str]) -> str:
        self._count(arguments, 1)
        level = _PASSWORDS.get(arguments[0])
        if level is None:
            raise CobriteError(UNAUTHORISED, "wrong password")
        self._levels[client] = level
        return "OK"

    def _reset_session(self, client: _Client, arguments: list[str]) -> str:
        self._count(arguments, 0)
        self._levels.pop(client, None)
        return "OK"

    def _set_lock(self, client: _Client, arguments: list[str]) -> str:
        self._count(arguments, 1)
        if self._levels.get(client, 0) < 1:
            raise CobriteError(UNAUTHORISED, "level 1 required")
        if self._locked_for(client):
            raise CobriteError(COMMUNICATION_LOCK, "locked by another session")
        self._lock_holder = ref(client) if parse_state(arguments[0]) else None
        return "OK"

    def _locked_for(self, client: _Client) -> bool:
        holder = self._lock_holder() if self._lock_holder is not None else None
        return holder is not None and holder is not client

    def _layout(self) -> str:
        if self._model != "MX":
            return "\n".join(f"LAY,{chassis},{slot},DEV{count}" for (chassis, slot), count in self._slots.items())
        modules = {place: f"TLS{count}" if count else "EMP" for place, count in self._slots.items()}
        return "\n".join(["SYSTEM MX", *(f"{chassis},{slot},{kind}" for (chassis, slot), kind in modules.items())])

    def _wait(self, until: float) -> str:
        self._clock.sleep(max(until - self._clock.now(), 0.0))
        return "OK"


def _frequency_of(wavelength_nm: str) -> float:
    return nanometres(parse_value(wavelength_nm, nanometres(HIGHEST_THZ), nanometres(LOWEST_THZ)))


def _configuration(frequency: str, offset: str, power: str, state: str, dither: str) -> Configuration:
    return Configuration(
        parse_value(frequency, LOWEST_THZ, HIGHEST_THZ),
        parse_value(offset, -OFFSET_GHZ, OFFSET_GHZ),
        parse_value(power, LOWEST_DBM, HIGHEST_DBM),
        parse_state(state),
        parse_state(dither),
    )


def _configuration_text(laser: LaserModule) -> str:
    now = laser.settings
    return (
        f"{now.frequency_thz:.6f},{now.offset_ghz:.3f},{now.power_dbm:.2f},{int(now.on)},{int(laser.busy)},"
        f"{int(now.dither)}"
    )


def _slots(model: str, port: Port) -> dict[tuple[int, int], int]:
    """Devices by chassis and slot of a chassis that has ``port``; slots are numbered without gaps."""
    usual = {(1, 1): 4, (1, 2): 0} if model == "MX" else {(1, 1): 2}
    slots = {(chassis, slot): 0 for chassis in range(1, port[0] + 1) for slot in range(1, port[1] + 1)} | usual
    wanted = max(port[2], slots[port[:2]])
    if model == "MX":
        wanted = next((size for size in _MX_MODULE_SIZES if size >= wanted), wanted)
    slots[port[:2]] = wanted
    return dict(sorted(slots.items()))


def _build(spec: InstrumentSpec, at: Surroundings) -> SimulatedCobrite:
    if spec.size != 1:
        raise ConfigurationError(f"simulated {spec.name}: a laser has size 1, got {spec.size}")
    port = spec.options.get("port", "1, 1, 1")
    numbers = [int(number) for number in re.findall(r"\d+", port)]
    if len(numbers) != 3:
        raise ConfigurationError(f"simulated {spec.name}: port {port!r} is not chassis, slot, device")
    return SimulatedCobrite(at.chip, at.clock, spec.options.get("model", "DX"), (numbers[0], numbers[1], numbers[2]))


KIND = InstrumentKind("cobrite", "laser", _build, "socket", command_ends=b";")
