"""Simulated Santec TSL-550, 570, 710 and 770 tunable lasers: commands, tuning that takes time, light on the chip.

The command set (``:SYSTem:COMMunicate:CODe`` 0 Legacy, 1 SCPI) decides what bare numbers mean: nm and THz without
suffixes, or m and Hz with suffixes allowed. Replies end with CR. While the laser tunes, ``*OPC?`` answers 0 and the
chip still sees the old light; while it sweeps, the chip sees the wavelength move.

The form of ``:SYST:ALER?`` is not documented in what this follows; it is given as an entry of an error queue is.
Fine tuning is a setting without effect on the light, since no unit of it is documented.
"""

import threading
from dataclasses import dataclass

from optinc_hw.clock import Clock
from optinc_hw.errors import ConfigurationError
from optinc_hw.units import WATT_PER_MILLIWATT, dbm_to_watt, hz_to_m, m_to_hz, watt_to_dbm
from simulated_instruments._kind import InstrumentKind, InstrumentSpec, Surroundings
from simulated_instruments._santec_sweep import STOPPED, TUNING_SPEED_M_S, TUNING_START_S, SweepRun
from simulated_instruments._santec_sweep_unit import SweepUnit
from simulated_instruments._santec_system import SystemUnit
from simulated_instruments._santec_values import (
    DEFAULT_M,
    EXECUTION_ERROR,
    HIGHEST_DBM,
    MODELS,
    SCPI,
    Kind,
    SantecInterpreter,
    answer_quantity,
    parse_fine_tuning,
    parse_power,
    parse_quantity,
)
from simulated_instruments._scpi import (
    QUERY_INTERRUPTED,
    SWITCH,
    ErrorQueue,
    Handler,
    Reply,
    ScpiError,
    ScpiSession,
    choice,
    exponential,
    plain,
    query,
)
from simulated_instruments.hidden_chip import HiddenChip

DBM, MILLIWATT = 0, 1

_MONITOR_FLOOR_DBM = -60.0  # what the monitor tells when there is no light
_DIODE_START_S, _POWER_CHANGE_S = 0.5, 0.02


@dataclass(frozen=True)
class _SweptLight:
    """Light on the chip during a sweep, by time; the power changes once, at ``from_s``."""

    run: SweepRun
    before_w: float
    power_w: float
    from_s: float

    def __call__(self, now: float) -> tuple[float, float]:
        return self.power_w if now >= self.from_s else self.before_w, self.run.wavelength_at(now)


class SimulatedSantecTSL570:
    """A tunable laser that lights the hidden chip.

    Parameters
    ----------
    chip
        The chip to light. It is dark until the diode is on and the shutter open.
    clock
        Tuning, sweeping and starting take time on it.
    model
        ``TSL-550``, ``TSL-570``, ``TSL-710`` or ``TSL-770``.

    Raises
    ------
    ConfigurationError
        If there is no such model.
    """

    def __init__(self, chip: HiddenChip, clock: Clock, model: str = "TSL-570") -> None:
        if model not in MODELS:
            raise ConfigurationError(
                f"simulated laser: there is no model {model!r}; the models are {', '.join(MODELS)}"
            )
        self._model = MODELS[model]
        self._chip = chip
        self._clock = clock
        self._lock = threading.RLock()
        self._errors = ErrorQueue('%d,"%s"')
        self._sweep = SweepUnit(self, self._model, clock)
        self._system = SystemUnit(self._model, self._errors, self.restart)
        commands = {**self._commands(), **self._sweep.commands()}
        if self._model.source_root:
            commands = {f"[SOURce:]{header}": handler for header, handler in commands.items()}
        commands |= self._system.commands() | self._common_commands()
        self._interpreter = SantecInterpreter(commands, self._errors, b"\r")
        self._ready_at = clock.now()
        self._light_w = 0.0
        self._set_defaults()

    @property
    def command_set(self) -> int:
        """0 Legacy, 1 SCPI."""
        return self._system.command_set

    def open_session(self) -> ScpiSession:
        """Return a session for a new client; CR, LF and CRLF end a command."""
        return ScpiSession(self._answer, self._errors)

    def restart(self) -> None:
        """Power up: diode off, shutter closed, no sweep, no log, Legacy command set, every setting at its default."""
        with self._lock:
            self._errors.clear()
            self._system.reset()
            self._ready_at = self._clock.now()
            self._set_defaults()
            self.relight()

    def flood_errors(self, count: int) -> bytes:
        """Put ``count`` interrupted queries into the error queue."""
        with self._lock:
            for _ in range(count):
                self._errors.push(ScpiError(*QUERY_INTERRUPTED))
        return b""

    def set_interlock(self, locked: bool) -> None:
        """Break or mend the external interlock; broken, it puts the diode out and raises alert 7."""
        with self._lock:
            self._system.locked = locked
            if locked:
                self._diode_on = False
                self.relight()

    def trigger(self) -> None:
        """Give an edge to the trigger input, which starts a sweep that waits for one."""
        with self._lock:
            if self._sweep.waits_for_edge():
                self._sweep.trigger()

    def wavelength_now(self) -> float:
        """Return the wavelength in m that the laser is at, or tunes to."""
        steered = self._sweep.steered_m()
        return self._wavelength_m if steered is None else steered

    def monitored_dbm(self) -> float:
        """Return the reading of the power monitor in dBm."""
        return watt_to_dbm(self._emitted_w()) if self._diode_on else _MONITOR_FLOOR_DBM

    def relight(self) -> None:
        """Bring the light on the chip into agreement with the state."""
        self._apply(0.0)

    def _answer(self, message: str) -> bytes:
        with self._lock:
            return b"" if self._system.shut_down else self._interpreter.execute(message)

    def _set_defaults(self) -> None:
        self._wavelength_m = DEFAULT_M
        self._wavelength_unit = 0
        self._fine_tuning = 0.0
        self._power_w = dbm_to_watt(0.0)
        self._power_unit = DBM
        self._diode_on = False
        self._shutter_closed = True
        self._coherence_control = 0
        self._automatic_power = True
        self._attenuation_db = 0.0
        self._sweep.reset()

    def _commands(self) -> dict[str, Handler]:
        return {
            "WAVelength": plain(self._set_wavelength),
            "WAVelength?": plain(lambda arguments: self._answer_quantity("length", arguments, self.wavelength_now())),
            "WAVelength:UNIT": plain(self._set_wavelength_unit),
            "WAVelength:UNIT?": query(lambda: str(self._wavelength_unit)),
            "WAVelength:FINe": plain(self._set_fine_tuning),
            "WAVelength:FINe?": query(lambda: self._real_text(self._fine_tuning)),
            "WAVelength:FINe:DISable": query(self._stop_fine_tuning),
            "WAVelength:FINetuning:DISable": query(self._stop_fine_tuning),
            "FREQuency": plain(self._set_frequency),
            "FREQuency?": plain(
                lambda arguments: self._answer_quantity("frequency", arguments, m_to_hz(self.wavelength_now()))
            ),
            "POWer[:LEVel]": plain(self._set_power),
            "POWer[:LEVel]?": query(lambda: self._power_text(watt_to_dbm(self._power_w))),
            "POWer:ACTual[:LEVel]?": query(lambda: self._power_text(self.monitored_dbm())),
            "POWer:UNIT": plain(self._set_power_unit),
            "POWer:UNIT?": query(lambda: str(self._power_unit)),
            "POWer:STATe": plain(self._set_diode),
            "POWer:STATe?": query(lambda: str(int(self._diode_on))),
            "POWer:SHUTter": plain(self._set_shutter),
            "POWer:SHUTter?": query(lambda: str(int(self._shutter_closed))),
            "POWer:ATTenuation": plain(self._set_attenuation),
            "POWer:ATTenuation?": plain(
                lambda arguments: self._answer_quantity("level", arguments, self._attenuation_db)
            ),
            "POWer:ATTenuation:AUTo": plain(self._set_automatic_power),
            "POWer:ATTenuation:AUTo?": query(lambda: str(int(self._automatic_power))),
            "COHCtrl": plain(self._set_coherence_control),
            "COHCtrl?": query(lambda: str(self._coherence_control)),
        }

    def _common_commands(self) -> dict[str, Handler]:
        return {
            "*OPC?": query(lambda: str(int(self._clock.now() >= self._ready_at and self._sweep.state() == STOPPED))),
            "*RST": query(self._reset),
        }

    def _apply(self, duration_s: float) -> None:
        """Bring the light to the present settings after ``duration_s``; light goes out at once."""
        now = self._clock.now()
        before_w = self._light_w
        self._ready_at = max(self._ready_at, now + duration_s)
        self._light_w = self._emitted_w() if self._diode_on and not self._shutter_closed else 0.0
        if self._light_w == 0.0:
            self._chip.set_laser(0.0, self.wavelength_now())
        elif self._sweep.run is not None and self._sweep.state() != STOPPED:
            self._chip.follow_laser(_SweptLight(self._sweep.run, before_w, self._light_w, self._ready_at))
        else:
            self._chip.set_laser(self._light_w, self.wavelength_now(), at_s=self._ready_at)

    def _emitted_w(self) -> float:
        """Power behind the attenuator: the setpoint, or the diode's full power less the attenuation."""
        return self._power_w if self._automatic_power else dbm_to_watt(HIGHEST_DBM - self._attenuation_db)

    def _answer_quantity(self, kind: Kind, arguments: list[str], present: float) -> str:
        return answer_quantity(kind, self.command_set, arguments, present)

    def _real_text(self, value: float) -> str:
        return exponential(value) if self.command_set == SCPI else f"{value:.2f}"

    def _tune(self, wavelength_m: float) -> None:
        distance = abs(wavelength_m - self.wavelength_now())
        self._sweep.release()
        self._wavelength_m = wavelength_m
        if distance > 0.0:
            self._apply(TUNING_START_S + distance / TUNING_SPEED_M_S)

    def _set_wavelength(self, arguments: list[str]) -> Reply:
        self._tune(parse_quantity("length", self.command_set, arguments))
        return None

    def _set_frequency(self, arguments: list[str]) -> Reply:
        self._tune(hz_to_m(parse_quantity("frequency", self.command_set, arguments)))
        return None

    def _set_fine_tuning(self, arguments: list[str]) -> Reply:
        self._fine_tuning = parse_fine_tuning(arguments)
        return None

    def _stop_fine_tuning(self) -> Reply:
        self._fine_tuning = 0.0
        return None

    def _set_power(self, arguments: list[str]) -> Reply:
        in_milliwatts = self._power_unit == MILLIWATT
        self._power_w = parse_power(arguments, self.command_set, WATT_PER_MILLIWATT if in_milliwatts else None)
        self._apply(_POWER_CHANGE_S)
        return None

    def _power_text(self, level_dbm: float) -> str:
        milliwatts = self._power_unit == MILLIWATT
        value = dbm_to_watt(level_dbm) / WATT_PER_MILLIWATT if milliwatts else level_dbm
        if self.command_set == SCPI:
            return exponential(value)
        return f"{value:.4f}" if milliwatts else f"{value:.2f}"

    def _set_power_unit(self, arguments: list[str]) -> Reply:
        self._power_unit = choice(arguments, {"0": DBM, "DBM": DBM, "1": MILLIWATT, "MW": MILLIWATT})
        return None

    def _set_wavelength_unit(self, arguments: list[str]) -> Reply:
        self._wavelength_unit = choice(arguments, {"0": 0, "1": 1})
        return None

    def _set_diode(self, arguments: list[str]) -> Reply:
        on = bool(choice(arguments, SWITCH))
        if on and self._system.locked:
            raise ScpiError(*EXECUTION_ERROR)
        starting = on and not self._diode_on
        self._diode_on = on
        self._apply(_DIODE_START_S if starting else 0.0)
        return None

    def _set_shutter(self, arguments: list[str]) -> Reply:
        self._shutter_closed = bool(choice(arguments, SWITCH))
        self.relight()
        return None

    def _set_attenuation(self, arguments: list[str]) -> Reply:
        self._attenuation_db = parse_quantity("level", self.command_set, arguments)
        self._automatic_power = False
        self._apply(_POWER_CHANGE_S)
        return None

    def _set_automatic_power(self, arguments: list[str]) -> Reply:
        self._automatic_power = bool(choice(arguments, SWITCH))
        self._apply(_POWER_CHANGE_S)
        return None

    def _set_coherence_control(self, arguments: list[str]) -> Reply:
        self._coherence_control = choice(arguments, SWITCH)
        return None

    def _reset(self) -> Reply:
        self._set_defaults()
        self.relight()
        return None


def _build(spec: InstrumentSpec, at: Surroundings) -> SimulatedSantecTSL570:
    if spec.size != 1:
        raise ConfigurationError(f"simulated {spec.name}: a laser has size 1, got {spec.size}")
    return SimulatedSantecTSL570(at.chip, at.clock, spec.options.get("model", "TSL-570"))


KIND = InstrumentKind("santec_tsl570", "laser", _build, "socket")
