"""Simulated Santec TSL-570 tunable laser: both command sets, tuning that takes time, light on the hidden chip.

The command set (``:SYSTem:COMMunicate:CODe`` 0 Legacy, 1 SCPI) decides what bare numbers mean: nm and THz without
suffixes, or m and Hz with suffixes allowed. Replies end with CR. While the laser tunes, ``*OPC?`` answers 0 and the
chip still sees the old light.
"""

from collections.abc import Mapping

from optinc_hw.clock import Clock
from optinc_hw.errors import ConfigurationError
from optinc_hw.units import METRE_PER_NANOMETRE, WATT_PER_MILLIWATT, dbm_to_watt, m_to_nm, watt_to_dbm
from simulated_instruments._kind import InstrumentKind, InstrumentSpec, Surroundings
from simulated_instruments._scpi import (
    FREQUENCY_UNITS,
    INVALID_SUFFIX,
    LENGTH_UNITS,
    OUT_OF_RANGE,
    SWITCH,
    ErrorQueue,
    Handler,
    Quantity,
    Reply,
    ScpiError,
    ScpiInterpreter,
    choice,
    exponential,
    number,
    one_argument,
    plain,
    query,
)
from simulated_instruments._session import LineSession
from simulated_instruments.hidden_chip import HiddenChip

LEGACY, SCPI = 0, 1
DBM, MILLIWATT = 0, 1

_LIGHT_SPEED_M_S = 299_792_458.0
_SHORTEST_M, _LONGEST_M, _DEFAULT_M = 1480e-9, 1640e-9, 1550e-9
_WAVELENGTH_STEPS_PER_M = 1e13  # 0.1 pm
_FREQUENCY_STEP_HZ = 1e7
_LOWEST_DBM, _HIGHEST_DBM = -15.0, 13.0
_MONITOR_FLOOR_DBM = -60.0  # what the monitor tells when there is no light
_DIODE_START_S, _POWER_CHANGE_S, _TUNING_START_S = 0.5, 0.02, 0.05
_TUNING_SPEED_M_S = 200e-9

_METRE = Quantity(_SHORTEST_M, _LONGEST_M, _DEFAULT_M, LENGTH_UNITS)
_NANOMETRE = Quantity(_SHORTEST_M, _LONGEST_M, _DEFAULT_M, {"": METRE_PER_NANOMETRE})
_FREQUENCY_LIMITS = (_LIGHT_SPEED_M_S / _LONGEST_M, _LIGHT_SPEED_M_S / _SHORTEST_M, _LIGHT_SPEED_M_S / _DEFAULT_M)
_HERTZ = Quantity(*_FREQUENCY_LIMITS, FREQUENCY_UNITS)
_TERAHERTZ = Quantity(*_FREQUENCY_LIMITS, {"": 1e12})
_ATTENUATION = Quantity(0.0, 30.0, 0.0, {"": 1.0, "DB": 1.0})
_POWER_SUFFIXES = {"": 1.0, "DBM": 1.0, "W": 1.0, "MW": 1e-3, "UW": 1e-6}


class SimulatedSantecTSL570:
    """A tunable laser that lights the hidden chip.

    Parameters
    ----------
    chip
        The chip to light. It is dark until the diode is on and the shutter open.
    clock
        Tuning and starting take time on it.
    """

    def __init__(self, chip: HiddenChip, clock: Clock) -> None:
        self._chip = chip
        self._clock = clock
        self._errors = ErrorQueue('%d,"%s"')
        self._interpreter = ScpiInterpreter(self._commands(), self._errors, b"\r")
        self._command_set = LEGACY
        self._ready_at = clock.now()
        self._set_defaults()

    def open_session(self) -> LineSession:
        """Return a session for a new client; CR, LF and CRLF end a command."""
        return self._interpreter.open_session()

    def _set_defaults(self) -> None:
        self._wavelength_m = _DEFAULT_M
        self._power_w = dbm_to_watt(0.0)
        self._power_unit = DBM
        self._wavelength_unit = 0
        self._diode_on = False
        self._shutter_closed = True
        self._coherence_control = 0
        self._automatic_power = True
        self._attenuation_db = 0.0

    def _commands(self) -> Mapping[str, Handler]:
        return {
            "WAVelength": plain(self._set_wavelength),
            "WAVelength?": plain(self._get_wavelength),
            "WAVelength:UNIT": plain(self._set_wavelength_unit),
            "WAVelength:UNIT?": query(lambda: str(self._wavelength_unit)),
            "WAVelength:SWEep:RANGe:MINimum?": query(lambda: self._wavelength_text(_SHORTEST_M)),
            "WAVelength:SWEep:RANGe:MAXimum?": query(lambda: self._wavelength_text(_LONGEST_M)),
            "FREQuency": plain(self._set_frequency),
            "FREQuency?": plain(self._get_frequency),
            "POWer[:LEVel]": plain(self._set_power),
            "POWer[:LEVel]?": query(self._get_power),
            "POWer:ACTual[:LEVel]?": query(self._get_actual_power),
            "POWer:UNIT": plain(self._set_power_unit),
            "POWer:UNIT?": query(lambda: str(self._power_unit)),
            "POWer:STATe": plain(self._set_diode),
            "POWer:STATe?": query(lambda: str(int(self._diode_on))),
            "POWer:SHUTter": plain(self._set_shutter),
            "POWer:SHUTter?": query(lambda: str(int(self._shutter_closed))),
            "POWer:ATTenuation": plain(self._set_attenuation),
            "POWer:ATTenuation?": plain(self._get_attenuation),
            "POWer:ATTenuation:AUTo": plain(self._set_automatic_power),
            "POWer:ATTenuation:AUTo?": query(lambda: str(int(self._automatic_power))),
            "COHCtrl": plain(self._set_coherence_control),
            "COHCtrl?": query(lambda: str(self._coherence_control)),
            "SYSTem:COMMunicate:CODe": plain(self._set_command_set),
            "SYSTem:COMMunicate:CODe?": query(lambda: str(self._command_set)),
            "SYSTem:CODe?": query(lambda: str(self._command_set)),
            "SYSTem:ERRor[:NEXT]?": query(lambda: self._errors.pop()),
            "SYSTem:LOCK?": query(lambda: str(0)),
            "*IDN?": query(lambda: "SANTEC,TSL-570,21020001,0001.0000.0001"),
            "*OPC?": query(lambda: str(int(self._clock.now() >= self._ready_at))),
            "*CLS": query(lambda: self._errors.clear()),
            "*RST": query(self._reset),
        }

    def _apply(self, duration_s: float) -> None:
        """Bring the light to the present settings after ``duration_s``; light goes out at once."""
        now = self._clock.now()
        self._ready_at = max(self._ready_at, now + duration_s)
        lit = self._diode_on and not self._shutter_closed
        if lit:
            self._chip.set_laser(self._emitted_w(), self._wavelength_m, at_s=self._ready_at)
        else:
            self._chip.set_laser(0.0, self._wavelength_m)

    def _emitted_w(self) -> float:
        """Power behind the attenuator: the setpoint, or the diode's full power less the attenuation."""
        return self._power_w if self._automatic_power else dbm_to_watt(_HIGHEST_DBM - self._attenuation_db)

    def _wavelength_text(self, wavelength_m: float) -> str:
        return exponential(wavelength_m) if self._command_set == SCPI else f"{m_to_nm(wavelength_m):.4f}"

    def _tune(self, wavelength_m: float) -> None:
        distance = abs(wavelength_m - self._wavelength_m)
        self._wavelength_m = wavelength_m
        if distance > 0.0:
            self._apply(_TUNING_START_S + distance / _TUNING_SPEED_M_S)

    def _set_wavelength(self, arguments: list[str]) -> Reply:
        wavelength_m = (_METRE if self._command_set == SCPI else _NANOMETRE).parse(arguments)
        # In whole steps, so that 1550 nm is the same number of metres whichever way it was written.
        self._tune(round(wavelength_m * _WAVELENGTH_STEPS_PER_M) / _WAVELENGTH_STEPS_PER_M)
        return None

    def _get_wavelength(self, arguments: list[str]) -> Reply:
        return self._wavelength_text(_METRE.query(arguments, self._wavelength_m))

    def _set_frequency(self, arguments: list[str]) -> Reply:
        frequency_hz = (_HERTZ if self._command_set == SCPI else _TERAHERTZ).parse(arguments)
        self._tune(_LIGHT_SPEED_M_S / (round(frequency_hz / _FREQUENCY_STEP_HZ) * _FREQUENCY_STEP_HZ))
        return None

    def _get_frequency(self, arguments: list[str]) -> Reply:
        frequency = _HERTZ.query(arguments, _LIGHT_SPEED_M_S / self._wavelength_m)
        return exponential(frequency) if self._command_set == SCPI else f"{frequency * 1e-12:.5f}"

    def _set_power(self, arguments: list[str]) -> Reply:
        text = one_argument(arguments)
        limits = {"MIN": _LOWEST_DBM, "MAX": _HIGHEST_DBM}
        if text in limits:
            level = limits[text]
        else:
            value, suffix = number(text, _POWER_SUFFIXES)
            if suffix and self._command_set == LEGACY:
                raise ScpiError(*INVALID_SUFFIX)
            if suffix == "DBM" or (not suffix and self._power_unit == DBM):
                level = value
            elif value > 0.0:
                level = watt_to_dbm(value if suffix else value * WATT_PER_MILLIWATT)
            else:
                raise ScpiError(*OUT_OF_RANGE)
        if not _LOWEST_DBM - 1e-6 <= level <= _HIGHEST_DBM + 1e-6:
            raise ScpiError(*OUT_OF_RANGE)
        self._power_w = dbm_to_watt(level)
        self._apply(_POWER_CHANGE_S)
        return None

    def _power_text(self, power_w: float) -> str:
        if self._power_unit == MILLIWATT:
            value = power_w / WATT_PER_MILLIWATT
        else:
            value = watt_to_dbm(power_w) if power_w > 0.0 else _MONITOR_FLOOR_DBM
        if self._command_set == SCPI:
            return exponential(value)
        return f"{value:.4f}" if self._power_unit == MILLIWATT else f"{value:.2f}"

    def _get_power(self) -> Reply:
        return self._power_text(self._power_w)

    def _get_actual_power(self) -> Reply:
        return self._power_text(self._emitted_w() if self._diode_on else 0.0)

    def _set_power_unit(self, arguments: list[str]) -> Reply:
        self._power_unit = choice(arguments, {"0": DBM, "DBM": DBM, "1": MILLIWATT, "MW": MILLIWATT})
        return None

    def _set_wavelength_unit(self, arguments: list[str]) -> Reply:
        self._wavelength_unit = choice(arguments, {"0": 0, "1": 1})
        return None

    def _set_diode(self, arguments: list[str]) -> Reply:
        on = bool(choice(arguments, SWITCH))
        starting = on and not self._diode_on
        self._diode_on = on
        self._apply(_DIODE_START_S if starting else 0.0)
        return None

    def _set_shutter(self, arguments: list[str]) -> Reply:
        self._shutter_closed = bool(choice(arguments, SWITCH))
        self._apply(0.0)
        return None

    def _set_attenuation(self, arguments: list[str]) -> Reply:
        self._attenuation_db = _ATTENUATION.parse(arguments)
        self._automatic_power = False
        self._apply(_POWER_CHANGE_S)
        return None

    def _get_attenuation(self, arguments: list[str]) -> Reply:
        attenuation = _ATTENUATION.query(arguments, self._attenuation_db)
        return exponential(attenuation) if self._command_set == SCPI else f"{attenuation:.2f}"

    def _set_automatic_power(self, arguments: list[str]) -> Reply:
        self._automatic_power = bool(choice(arguments, SWITCH))
        self._apply(_POWER_CHANGE_S)
        return None

    def _set_coherence_control(self, arguments: list[str]) -> Reply:
        self._coherence_control = choice(arguments, SWITCH)
        return None

    def _set_command_set(self, arguments: list[str]) -> Reply:
        self._command_set = choice(arguments, {"0": LEGACY, "1": SCPI})
        return None

    def _reset(self) -> Reply:
        self._set_defaults()
        self._apply(0.0)
        return None


def _build(spec: InstrumentSpec, at: Surroundings) -> SimulatedSantecTSL570:
    if spec.size != 1:
        raise ConfigurationError(f"simulated {spec.name}: a laser has size 1, got {spec.size}")
    return SimulatedSantecTSL570(at.chip, at.clock)


KIND = InstrumentKind("santec_tsl570", "laser", _build, "socket")
