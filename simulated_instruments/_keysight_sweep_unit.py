"""The sweep commands of a simulated Keysight laser: settings, triggers, the present run and the log of the last one."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from optinc_hw.clock import Clock
from simulated_instruments._keysight_sweep import (
    CONTINUOUS,
    MANUAL,
    PAUSED,
    RUNNING,
    SMALLEST_STEP_M,
    STEPPED,
    STOPPED,
    SweepRun,
    SweepSettings,
)
from simulated_instruments._parameters import FloatArray
from simulated_instruments._scpi import (
    ILLEGAL_VALUE,
    LENGTH_UNITS,
    SPEED_UNITS,
    SWITCH,
    TIME_UNITS,
    Quantity,
    Reply,
    ScpiError,
    block,
    choice,
    exponential,
    no_arguments,
    one_argument,
)

SETTINGS_CONFLICT = (-221, "Settings conflict")
TRIGGER_IGNORED = (-211, "Trigger ignored")

_MODES = {"STEP": STEPPED, "STEPPED": STEPPED, "MAN": MANUAL, "MANUAL": MANUAL, "CONT": CONTINUOUS}
_MODES["CONTINUOUS"] = CONTINUOUS
_MODE_WORDS = {STEPPED: "STEP", MANUAL: "MAN", CONTINUOUS: "CONT"}
_REPEATS = {"ONEW": 0, "ONEWAY": 0, "TWOW": 1, "TWOWAY": 1}
_STOP, _START, _PAUSE, _CONTINUE = range(4)
_ACTIONS = {"0": _STOP, "STOP": _STOP, "1": _START, "STAR": _START, "START": _START, "2": _PAUSE, "PAUS": _PAUSE}
_ACTIONS |= {"PAUSE": _PAUSE, "3": _CONTINUE, "CONT": _CONTINUE, "CONTINUE": _CONTINUE}
_LOGS = {"LLOG": 0, "LLOGGING": 0}
_INPUTS, _OUTPUTS = ("IGN", "NEXT", "SWS"), ("DIS", "STF", "SWF", "SWST")

Command = Callable[[list[str]], Reply]


class SweepUnit:
    """Sweeps of one laser.

    Parameters
    ----------
    clock
        Sweeps take time on it.
    shortest_m, longest_m
        Range of the laser.
    fastest_m_s
        Highest speed of a continuous sweep.
    moving
        Called with a run when it begins or changes its course.
    ended
        Called with the wavelength in m at which a run ended.
    """

    def __init__(
        self,
        clock: Clock,
        shortest_m: float,
        longest_m: float,
        fastest_m_s: float,
        *,
        moving: Callable[[SweepRun], None],
        ended: Callable[[float], None],
    ) -> None:
        self._clock = clock
        self._moving = moving
        self._ended = ended
        middle = (shortest_m + longest_m) / 2.0
        self._ends = {
            "start_m": Quantity(shortest_m, longest_m, middle - 5e-9, LENGTH_UNITS),
            "stop_m": Quantity(shortest_m, longest_m, middle + 5e-9, LENGTH_UNITS),
            "step_m": Quantity(SMALLEST_STEP_M, longest_m - shortest_m, 1e-9, LENGTH_UNITS),
            "speed_m_s": Quantity(0.5e-9, fastest_m_s, 40e-9, SPEED_UNITS),
            "dwell_s": Quantity(0.0, 1000.0, 0.5, TIME_UNITS),
        }
        self._cycles = Quantity(0.0, 999.0, 1.0, {"": 1.0})
        self.reset()

    def reset(self) -> None:
        """Set everything to its start value and drop a run and its log."""
        self._settings = SweepSettings(self._ends["start_m"].default, self._ends["stop_m"].default)
        self.trigger_input, self.trigger_output = "IGN", "DIS"
        self.run: SweepRun | None = None
        self._log: FloatArray = np.empty(0)

    def commands(self, wavelength: Callable[[], float]) -> Mapping[str, Command]:
        """Return the commands below ``WAVelength:SWEep`` and of the log; ``wavelength`` is where a sweep sets out."""
        quantities = {
            "STARt": "start_m",
            "STOP": "stop_m",
            "STEP[:WIDTh]": "step_m",
            "SPEed": "speed_m_s",
            "DWELl": "dwell_s",
        }
        sweep = "WAVelength:SWEep"
        table: dict[str, Command] = {}
        for header, name in quantities.items():
            table[f"{sweep}:{header}"] = self._setter(name)
            table[f"{sweep}:{header}?"] = self._getter(name)
        return table | {
            f"{sweep}[:STATe]": lambda arguments: self._act(choice(arguments, _ACTIONS), wavelength()),
            f"{sweep}[:STATe]?": ask(lambda: f"{self.state():+d}"),
            f"{sweep}:MODE": lambda arguments: self._change(mode=choice(arguments, _MODES)),
            f"{sweep}:MODE?": ask(lambda: _MODE_WORDS[self._settings.mode]),
            f"{sweep}:REPeat": lambda arguments: self._change(two_way=bool(choice(arguments, _REPEATS))),
            f"{sweep}:REPeat?": ask(lambda: "TWOW" if self._settings.two_way else "ONEW"),
            f"{sweep}:CYCLes": lambda arguments: self._change(cycles=round(self._cycles.parse(arguments))),
            f"{sweep}:CYCLes?": lambda arguments: f"{self._cycles.query(arguments, self._settings.cycles):+.0f}",
            f"{sweep}:LLOGging": lambda arguments: self._change(logging=bool(choice(arguments, SWITCH))),
            f"{sweep}:LLOGging?": ask(lambda: f"{int(self._logging()):+d}"),
            f"{sweep}:CHECkparams?": ask(self._check),
            f"{sweep}:EXPectedtriggernum?": ask(lambda: f"{self._settings.triggers:+d}"),
            f"{sweep}:FLAG?": ask(lambda: f"{self.run.flag(self._clock.now()) if self.run else 0:+d}"),
            f"{sweep}:SOFTtrigger": self._soft_trigger,
            f"{sweep}:STEP:NEXT": lambda arguments: self._step(arguments, 1),
            f"{sweep}:STEP:PREVious": lambda arguments: self._step(arguments, -1),
            "READout:POINts?": lambda arguments: f"{len(self._chosen_log(arguments)):+d}",
            "READout:DATA?": lambda arguments: block(self._chosen_log(arguments).astype("<f8").tobytes()),
        }

    def state(self) -> int:
        """Return the state of the present sweep; one that has come to its end leaves its log and goes."""
        if self.run is None:
            return STOPPED
        now = self._clock.now()
        run, state = self.run, self.run.state(now)
        if state == STOPPED:
            self.run = None
            self._log = run.log(now)
            self._settings = replace(self._settings, logging=False)
            self._ended(run.wavelength_at(now))
        return state

    @property
    def ready_at(self) -> float:
        """Time at which the present run is at its first wavelength; long ago if there is none."""
        return -math.inf if self.run is None else self.run.ready_s

    def require_no_sweep(self) -> None:
        """Refuse what is not possible during a sweep."""
        if self.state() != STOPPED:
            raise ScpiError(*SETTINGS_CONFLICT)

    def set_trigger_input(self, arguments: list[str]) -> Reply:
        """Set what a trigger does."""
        self.trigger_input = _word(arguments, _INPUTS)
        return None

    def set_trigger_output(self, arguments: list[str]) -> Reply:
        """Set what gives a trigger."""
        self.trigger_output = _word(arguments, _OUTPUTS)
        return None

    def trigger(self) -> None:
        """Take a trigger at the input connector; what it means depends on the settings."""
        self.state()
        run, now = self.run, self._clock.now()
        if run is not None and run.waiting(now):
            self._go_on(run.trigger(now))
        elif run is not None and self.trigger_input == "NEXT" and run.settings.mode == STEPPED:
            self._go_on(run.step(1))
        else:
            raise ScpiError(*TRIGGER_IGNORED)

    def _setter(self, name: str) -> Command:
        return lambda arguments: self._change(**{name: self._ends[name].parse(arguments)})

    def _getter(self, name: str) -> Command:
        return lambda arguments: exponential(self._ends[name].query(arguments, getattr(self._settings, name)))

    def _change(self, **values: Any) -> Reply:  # Any: the settings differ in type
        self.require_no_sweep()
        self._settings = replace(self._settings, **values)
        return None

    def _logging(self) -> bool:
        self.state()
        return self._settings.logging

    def _check(self) -> Reply:
        number, text = self._settings.problem(self.trigger_output == "STF")
        return f"{number},{text}"

    def _act(self, action: int, from_m: float) -> Reply:
        state, now = self.state(), self._clock.now()
        if action == _START and state == STOPPED:
            number, text = self._settings.problem(self.trigger_output == "STF")
            if number:
                raise ScpiError(number, text)
            by_hand = self._settings.mode == MANUAL or (self._settings.mode == STEPPED and self.trigger_input == "NEXT")
            self._log = np.empty(0)
            self._go_on(SweepRun.begin(self._settings, now, from_m, waits=self.trigger_input == "SWS", by_hand=by_hand))
        elif action == _STOP:
            if self.run is not None:
                self.run = self.run.stop(now)
                self.state()
        elif self.run is not None and action == _PAUSE and state == RUNNING and self.run.settings.mode != MANUAL:
            self._go_on(self.run.pause(now))
        elif self.run is not None and action == _CONTINUE and state == PAUSED:
            self._go_on(self.run.resume(now))
        else:
            raise ScpiError(*SETTINGS_CONFLICT)
        return None

    def _soft_trigger(self, arguments: list[str]) -> Reply:
        no_arguments(arguments)
        self.trigger()
        return None

    def _step(self, arguments: list[str], count: int) -> Reply:
        no_arguments(arguments)
        state = self.state()
        run = self.run
        by_hand = run is not None and (state == PAUSED or run.settings.mode == MANUAL)
        if run is None or not by_hand or run.settings.mode == CONTINUOUS or run.waiting(self._clock.now()):
            raise ScpiError(*SETTINGS_CONFLICT)
        self._go_on(run.step(count))
        return None

    def _go_on(self, run: SweepRun) -> None:
        self.run = run
        self._moving(run)

    def _chosen_log(self, arguments: list[str]) -> FloatArray:
        choice(arguments, _LOGS)
        self.state()
        return self.run.log(self._clock.now()) if self.run is not None else self._log


def ask(answer: Callable[[], Reply]) -> Command:
    """Return a query without arguments."""

    def handler(arguments: list[str]) -> Reply:
        no_arguments(arguments)
        return answer()

    return handler


def _word(arguments: list[str], words: tuple[str, ...]) -> str:
    word = one_argument(arguments)
    if word not in words:
        raise ScpiError(*ILLEGAL_VALUE)
    return word
