"""Sweep, trigger and log commands of the simulated Santec lasers."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Protocol

import numpy as np

from optinc_hw.clock import Clock
from optinc_hw.units import METRE_PER_NANOMETRE, hz_to_m, m_to_hz
from simulated_instruments._parameters import FloatArray
from simulated_instruments._santec_sweep import CONTINUOUS_ONE_WAY, STOPPED, WAITING, SweepRun, SweepSettings
from simulated_instruments._santec_values import (
    EXECUTION_ERROR,
    LONGEST_M,
    SHORTEST_M,
    Kind,
    SantecModel,
    answer_quantity,
    parse_quantity,
    write_quantity,
)
from simulated_instruments._scpi import (
    OUT_OF_RANGE,
    SWITCH,
    Handler,
    Reply,
    ScpiError,
    block,
    choice,
    number,
    one_argument,
    plain,
    query,
)

_NO_TRIGGER, _TRIGGER_AT_STEPS = 0, 3
_FULL_RANGE_SPEED_M_S = 10e-9
_ACCELERATION_S = 0.01  # what a faster sweep loses of the range at either end, as a time at its speed
_LOG_STEP_M = 1e-13


class _Laser(Protocol):
    """What a sweep needs of the laser around it."""

    @property
    def command_set(self) -> int:
        """0 Legacy, 1 SCPI."""
        ...

    def wavelength_now(self) -> float:
        """Return the wavelength in m."""
        ...

    def monitored_dbm(self) -> float:
        """Return the reading of the power monitor in dBm."""
        ...

    def relight(self) -> None:
        """Bring the light on the chip into agreement with the state."""
        ...


class SweepUnit:
    """Sweeps of a laser.

    Parameters
    ----------
    laser
        The laser that sweeps.
    model
        What it can do.
    clock
        Sweeps take time on it.
    """

    def __init__(self, laser: _Laser, model: SantecModel, clock: Clock) -> None:
        self._laser = laser
        self._model = model
        self._clock = clock
        self.reset()

    def reset(self) -> None:
        """Go back to the state after power-on: no sweep, no log, defaults."""
        self._settings = SweepSettings(SHORTEST_M, LONGEST_M)
        self._switches = dict.fromkeys(("external", "standby", "input level", "output level", "through", "period"), 0)
        self._trigger_output = _NO_TRIGGER
        self.run: SweepRun | None = None
        self._steers = False

    def commands(self) -> Mapping[str, Handler]:
        """Return the handlers."""
        sweep, trigger = "WAVelength:SWEep", "TRIGger"
        return {
            **self._wavelength_and_frequency("STARt", "start_m"),
            **self._wavelength_and_frequency("STOP", "stop_m"),
            **self._real(f"{sweep}:STEP", "short length", "step_m"),
            **self._real("FREQuency:SWEep:STEP", "short frequency", "frequency_step_hz"),
            **self._real(f"{sweep}:DWELl", "time", "dwell_s"),
            **self._real(f"{sweep}:DELay", "time", "delay_s"),
            **self._real(f"{trigger}:OUTPut:STEP[:WIDTh]", "short length", "trigger_step_m"),
            f"{sweep}:RANGe:MINimum?": query(lambda: self._length_text(self._range()[0])),
            f"{sweep}:RANGe:MAXimum?": query(lambda: self._length_text(self._range()[1])),
            "FREQuency:SWEep:RANGe:MINimum?": query(lambda: self._frequency_text(m_to_hz(self._range()[1]))),
            "FREQuency:SWEep:RANGe:MAXimum?": query(lambda: self._frequency_text(m_to_hz(self._range()[0]))),
            f"{sweep}:MODe": plain(self._set_mode),
            f"{sweep}:MODe?": query(lambda: str(self._settings.mode)),
            f"{sweep}:SPEed": plain(self._set_speed),
            f"{sweep}:SPEed?": query(lambda: f"{self._settings.speed_m_s / METRE_PER_NANOMETRE:g}"),
            f"{sweep}:CYCLes": plain(self._set_cycles),
            f"{sweep}:CYCLes?": query(lambda: str(self._settings.cycles)),
            f"{sweep}:COUNt?": query(lambda: str(self.run.completed(self._clock.now()) if self.run else 0)),
            f"{sweep}[:STATe]": plain(self._start_or_stop),
            f"{sweep}[:STATe]?": query(lambda: str(self.state())),
            f"{sweep}[:STATe]:REPeat": query(lambda: self._start(endless=True)),
            f"{sweep}:SOFTtrigger": query(self.trigger),
            f"{trigger}:INPut:SOFTtrigger": query(self.trigger),
            **self._switch(f"{trigger}:INPut:EXTernal", "external"),
            **self._switch(f"{trigger}:INPut[:EXTernal]:ACTive", "input level"),
            **self._switch(f"{trigger}:INPut:STANdby", "standby"),
            **self._switch(f"{trigger}:OUTPut:ACTive", "output level"),
            **self._switch(f"{trigger}:OUTPut:SETTing", "period"),
            **self._switch(f"{trigger}:THRough", "through"),
            f"{trigger}:OUTPut": plain(self._set_trigger_output),
            f"{trigger}:OUTPut?": query(lambda: str(self._trigger_output)),
            "READout:POINts?": query(lambda: str(len(self._log()))),
            "READout:DATa?": query(self._read_wavelengths),
            "READout:DATa:POWer?": query(self._read_powers),
        }

    def state(self) -> int:
        """Return the state as ``:WAV:SWE?`` tells it."""
        return STOPPED if self.run is None else self.run.state(self._clock.now())

    def steered_m(self) -> float | None:
        """Return the wavelength in m where a sweep determines it, now or since its end."""
        return self.run.wavelength_at(self._clock.now()) if self.run is not None and self._steers else None

    def release(self) -> None:
        """Give the wavelength back to the tuning commands, which are refused during a sweep."""
        if self.state() != STOPPED:
            raise ScpiError(*EXECUTION_ERROR)
        self._steers = False

    def waits_for_edge(self) -> bool:
        """Tell whether an edge at the trigger input would start a sweep."""
        return self.state() == WAITING and bool(self._switches["external"])

    def trigger(self) -> None:
        """Start a sweep that waits for a trigger; refused if none does."""
        if self.run is None or self.state() != WAITING:
            raise ScpiError(*EXECUTION_ERROR)
        self.run = dataclasses.replace(self.run, triggered_s=self._clock.now())
        self._laser.relight()

    def _start_or_stop(self, arguments: list[str]) -> Reply:
        if choice(arguments, SWITCH):
            self._start(endless=False)
        elif self.run is not None and self.state() != STOPPED:
            self.run = dataclasses.replace(self.run, stopped_s=self._clock.now())
            self._laser.relight()
        return None

    def _start(self, *, endless: bool) -> None:
        settings = self._settings
        low, high = self._range()
        inside = all(low - 1e-14 <= end <= high + 1e-14 for end in (settings.start_m, settings.stop_m))
        if self.state() != STOPPED or not inside or settings.start_m == settings.stop_m:
            raise ScpiError(*EXECUTION_ERROR)
        self.run = SweepRun.begin(
            self._clock.now(),
            self._laser.wavelength_now(),
            settings,
            endless=endless,
            waits=bool(self._switches["external"] or self._switches["standby"]),
            logs=self._trigger_output == _TRIGGER_AT_STEPS,
        )
        self._steers = True
        self._laser.relight()

    def _range(self) -> tuple[float, float]:
        """Return the shortest and longest wavelength in m at the present speed."""
        fast = max(0.0, self._settings.speed_m_s - _FULL_RANGE_SPEED_M_S)
        return SHORTEST_M + fast * _ACCELERATION_S, LONGEST_M - fast * _ACCELERATION_S

    def _log(self) -> FloatArray:
        return np.empty(0) if self.run is None else self.run.log(self._clock.now())

    def _read_wavelengths(self) -> bytes:
        return block(np.rint(self._log() / _LOG_STEP_M).astype("<i4").tobytes())

    def _read_powers(self) -> bytes:
        return block(np.full(len(self._log()), self._laser.monitored_dbm(), dtype="<f4").tobytes())

    def _length_text(self, value: float) -> str:
        return write_quantity("length", self._laser.command_set, value)

    def _frequency_text(self, value: float) -> str:
        return write_quantity("frequency", self._laser.command_set, value)

    def _real(self, header: str, kind: Kind, name: str) -> dict[str, Handler]:
        """Return the handlers of a numeric setting."""

        def change(arguments: list[str]) -> Reply:
            setattr(self._settings, name, parse_quantity(kind, self._laser.command_set, arguments))
            return None

        def answer(arguments: list[str]) -> Reply:
            return answer_quantity(kind, self._laser.command_set, arguments, getattr(self._settings, name))

        return {header: plain(change), f"{header}?": plain(answer)}

    def _wavelength_and_frequency(self, header: str, name: str) -> dict[str, Handler]:
        """Return the handlers of an end of the sweep, which is the same one in either unit."""

        def change(arguments: list[str]) -> Reply:
            setattr(self._settings, name, hz_to_m(parse_quantity("frequency", self._laser.command_set, arguments)))
            return None

        def answer(arguments: list[str]) -> Reply:
            present = m_to_hz(getattr(self._settings, name))
            return answer_quantity("frequency", self._laser.command_set, arguments, present)

        frequency = f"FREQuency:SWEep:{header}"
        return {
            **self._real(f"WAVelength:SWEep:{header}", "length", name),
            frequency: plain(change),
            f"{frequency}?": plain(answer),
        }

    def _switch(self, header: str, name: str) -> dict[str, Handler]:
        """Return the handlers of a setting that is 0 or 1."""

        def change(arguments: list[str]) -> Reply:
            self._switches[name] = choice(arguments, SWITCH)
            return None

        return {header: plain(change), f"{header}?": query(lambda: str(self._switches[name]))}

    def _set_mode(self, arguments: list[str]) -> Reply:
        self._settings.mode = choice(arguments, {"0": 0, "1": CONTINUOUS_ONE_WAY, "2": 2, "3": 3})
        return None

    def _set_trigger_output(self, arguments: list[str]) -> Reply:
        self._trigger_output = choice(arguments, {"0": _NO_TRIGGER, "1": 1, "2": 2, "3": _TRIGGER_AT_STEPS})
        return None

    def _set_speed(self, arguments: list[str]) -> Reply:
        nm_s, _ = number(one_argument(arguments), {"": 1.0})
        self._settings.speed_m_s = self._model.speed(nm_s) * METRE_PER_NANOMETRE
        return None

    def _set_cycles(self, arguments: list[str]) -> Reply:
        value, _ = number(one_argument(arguments), {"": 1.0})
        if not (0 <= value <= 999 and value == math.floor(value)):
            raise ScpiError(*OUT_OF_RANGE)
        self._settings.cycles = int(value)
        return None
