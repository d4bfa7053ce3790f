"""Simulated Thorlabs PM100D, PM100USB, PM101 and PM400 power meters: SCPI, one sensor, real averaging time.

Where the command documents are silent this simulator decides: zeroing takes 1 s and keeps what the sensor saw when it
began, the array mode exists on the PM101 and the PM400, all values of an array show the light at its end, a fetch
before any measurement is error -230, and the responsivity does not depend on the wavelength.
"""

import math
import struct
from collections.abc import Mapping

from optinc_hw.clock import Clock
from optinc_hw.errors import ConfigurationError
from optinc_hw.units import watt_to_dbm
from simulated_instruments._kind import InstrumentKind, InstrumentSpec, Surroundings
from simulated_instruments._scpi import (
    ILLEGAL_VALUE,
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
    number,
    one_argument,
    plain,
    query,
)
from simulated_instruments._session import LineSession
from simulated_instruments._status_registers import StatusRegisters
from simulated_instruments._thorlabs_models import ENERGY, METERS, POWER, SENSORS, TEMPERATURE
from simulated_instruments._thorlabs_sensor import SensorHead
from simulated_instruments.hidden_chip import HiddenChip

_HEAD_TEMPERATURE_C = 24.1
_MOST_POINTS, _MOST_FETCHED = 10_000, 40
_SHORTEST_INTERVAL_US = 100
_POWER_QUESTIONABLE, _MEASUREMENT_READY = 8, 512
_NANOMETRE = {"": 1.0, "NM": 1.0}
_WATT = {"": 1.0, "W": 1.0, "MW": 1e-3}
_REGISTERS = {"MEAS": "MEASurement", "AUX": "AUXillary", "OPER": "OPERation", "QUES": "QUEStionable"}
_HARDWARE_MISSING = (-241, "Hardware missing")
_COUNT = Quantity(1, 10_000, 1, {"": 1.0})
_LOSS_DB = Quantity(-60.0, 60.0, 0.0, {"": 1.0, "DB": 1.0})
_BAUD_RATE = Quantity(9600, 921_600, 115_200, {"": 1.0})
_POINTS = Quantity(1, _MOST_POINTS, 1, {"": 1.0})
_INTERVAL_US = Quantity(_SHORTEST_INTERVAL_US, 1e6, _SHORTEST_INTERVAL_US, {"": 1.0})


class SimulatedThorlabsPM:
    """A power meter of one port on a photodiode of the hidden chip.

    Parameters
    ----------
    name
        Name on the bench; seeds the noise of a sensor with nothing before it.
    chip
        The chip whose photodiodes are read.
    detectors
        Detector index of port 0; without one the sensor is dark.
    clock
        A reading lets its averaging time pass on it.
    model
        ``PM100D``, ``PM100USB``, ``PM101`` or ``PM400``.
    sensor
        ``S155C`` (InGaAs, fibre), ``S120C`` (silicon), ``S302C`` (thermopile), ``ES111C`` (energy only) or ``none``.

    Raises
    ------
    ConfigurationError
        If there is no such model, sensor or port.
    """

    def __init__(
        self,
        name: str,
        chip: HiddenChip,
        detectors: Mapping[int, int],
        clock: Clock,
        *,
        model: str = "PM100D",
        sensor: str = "S155C",
    ) -> None:
        for what, value, known in (("model", model, list(METERS)), ("sensor", sensor, list(SENSORS))):
            if value not in known:
                raise ConfigurationError(f"simulated {name}: there is no {what} {value!r}; choose from {known}")
        if any(port != 0 for port in detectors):
            raise ConfigurationError(f"simulated {name}: a Thorlabs meter has port 0 only, got {sorted(detectors)}")
        self._clock = clock
        self._model, self._sensor = METERS[model], SENSORS[sensor]
        self._head = SensorHead(self._sensor, chip, detectors, clock, name)
        self._registers = StatusRegisters(_REGISTERS)
        least, most = self._sensor.ranges_w[0], self._sensor.ranges_w[-1]
        self._wavelength = Quantity(*self._sensor.wavelength_nm, _NANOMETRE)
        self._new_range = Quantity(0.0, most, most, _WATT)
        self._range_limits = Quantity(least, most, most, _WATT)
        self._errors = ErrorQueue(self._model.error_form)
        self._interpreter = ScpiInterpreter(self._commands(), self._errors, b"\n")
        self._reset()

    def open_session(self) -> LineSession:
        """Return a session for a new client."""
        return self._interpreter.open_session()

    def restart(self) -> None:
        """Switch off and on: all settings, registers, the zero and the error queue are as when new."""
        self._reset()
        self._errors.clear()

    def flood_errors(self, count: int) -> bytes:
        """Let ``count`` internal errors happen; they go to the queue and nothing is sent."""
        for _ in range(count):
            self._errors.push(ScpiError(-310, "System error"))
        return b""

    def _reset(self) -> None:
        self._wavelength_nm = self._wavelength.default
        self._unit = "W"
        self._count = 1
        self._loss_db = _LOSS_DB.default
        self._baud_rate = _BAUD_RATE.default
        self._function = "POW"
        self._continuous = False
        self._due: float | None = None  # measuring: when it ends
        self._value_w: float | None = None  # the last reading; infinite if it was out of range
        self._points, self._interval_s = 1, 1e-6 * _SHORTEST_INTERVAL_US
        self._array_w: list[float] = []
        self._head.reset()
        self._registers.reset()

    def _commands(self) -> Mapping[str, Handler]:
        sense = "[SENSe#:]"
        zero = f"{sense}CORRection:COLLect:ZERO"
        commands: dict[str, Handler] = {
            "*IDN?": query(lambda: self._model.identity),
            "*CLS": query(self._clear_status),
            "*RST": query(self._reset),
            "*OPC?": query(self._operation_complete),
            "*TST?": query(lambda: "0"),
            "SYSTem:ERRor[:NEXT]?": query(self._errors.pop),
            "SYSTem:VERSion?": query(lambda: "1999.0"),
            "SYSTem:SENSor#:IDN?": query(lambda: f"{self._sensor.identity},{self._sensor.flags}"),
            "ABORt": query(self._abort),
            "INITiate[:IMMediate]": query(self._initiate),
            "INITiate:CONTinuous": plain(self._set_continuous),
            "INITiate:CONTinuous?": query(lambda: str(int(self._continuous))),
            "FETCh?": query(self._fetch),
            "FETCh:STATe?": query(lambda: str(int(self._ready()))),
            "READ?": query(self._read),
            "CONFigure?": query(lambda: self._function),
            f"{sense}CORRection:WAVelength": plain(self._set_wavelength),
            f"{sense}CORRection:WAVelength?": plain(
                lambda arguments: _text(self._wavelength.query(arguments, self._wavelength_nm))
            ),
            f"{sense}CORRection[:LOSS[:INPut[:MAGNitude]]]": plain(self._set_loss),
            f"{sense}CORRection[:LOSS[:INPut[:MAGNitude]]]?": plain(
                lambda arguments: _text(_LOSS_DB.query(arguments, self._loss_db))
            ),
            f"{sense}POWer[:DC]:UNIT": plain(self._set_unit),
            f"{sense}POWer[:DC]:UNIT?": query(lambda: self._unit),
            f"{sense}POWer[:DC]:RANGe:AUTO": plain(self._set_automatic_range),
            f"{sense}POWer[:DC]:RANGe:AUTO?": query(lambda: str(int(self._head.automatic_range))),
            f"{sense}POWer[:DC]:RANGe[:UPPer]": plain(self._set_range),
            f"{sense}POWer[:DC]:RANGe[:UPPer]?": plain(self._get_range),
            f"{sense}AVERage[:COUNt]": plain(self._set_count),
            f"{sense}AVERage[:COUNt]?": plain(lambda arguments: f"{_COUNT.query(arguments, self._count):.0f}"),
            f"{zero}[:INITiate]": query(self._start_zeroing),
            f"{zero}:STATe?": query(lambda: str(int(self._head.zeroing))),
            f"{zero}:MAGNitude?": query(self._zero_magnitude),
            f"{zero}:ABORt": query(self._head.abort_zeroing),
        }
        return commands | self._measurements() | self._registers.commands() | self._model_commands()

    def _measurements(self) -> dict[str, Handler]:
        def of(function: str, node: str) -> dict[str, Handler]:
            return {
                f"CONFigure#[:SCALar]{node}": query(lambda: self._configure(function)),
                f"MEASure#[:SCALar]{node}": query(lambda: self._measure(function)),
                f"MEASure#[:SCALar]{node}?": query(lambda: self._measure(function) or self._fetch()),
            }

        temperature = {"MEASure#[:SCALar]:TEMPerature?": query(self._temperature)}
        return of("POW", "[:POWer]") | of("CURR", ":CURRent[:DC]") | of("VOLT", ":VOLTage[:DC]") | temperature

    def _model_commands(self) -> dict[str, Handler]:
        if not self._model.has_array:
            return {}
        return {
            "CONFigure#:ARRay": plain(self._configure_array),
            "FETCh:ARRay?": plain(self._fetch_array),
            "SYSTem:SERial:TRANsmit:BAUD": plain(
                lambda arguments: setattr(self, "_baud_rate", _BAUD_RATE.parse(arguments))
            ),
            "SYSTem:SERial:TRANsmit:BAUD?": query(lambda: f"{self._baud_rate:.0f}"),
        }

    def _clear_status(self) -> Reply:
        self._errors.clear()
        self._registers.clear_events()
        return None

    # Measuring

    def _configure(self, function: str) -> Reply:
        if function != "POW" and function not in self._sensor.response:
            raise ScpiError(*_HARDWARE_MISSING)
        self._abort()
        self._function = function
        return None

    def _measure(self, function: str) -> Reply:
        self._configure(function)
        return self._initiate()

    def _abort(self) -> Reply:
        self._due = None
        return None

    def _initiate(self) -> Reply:
        if self._function != "ARR" and not self._sensor.flags & POWER:
            raise ScpiError(*_HARDWARE_MISSING)
        array = self._function == "ARR"
        duration = self._points * self._interval_s if array else self._count * self._model.sample_s
        self._due = self._clock.now() + duration
        self._registers["OPER"].update(_MEASUREMENT_READY, on=False)
        return None

    def _ready(self) -> bool:
        if self._due is not None and self._clock.now() >= self._due:
            self._complete()
        return self._due is None and (bool(self._array_w) if self._function == "ARR" else self._value_w is not None)

    def _complete(self) -> None:
        """Wait for the end of the measurement that is under way, and keep what it found."""
        if self._due is None:
            return
        self._clock.sleep(max(self._due - self._clock.now(), 0.0))
        self._due = None
        if self._function == "ARR":
            self._array_w = [self._sample(self._interval_s) for _ in range(self._points)]
        else:
            self._value_w = self._sample(self._count * self._model.sample_s)
        self._registers["OPER"].update(_MEASUREMENT_READY, on=True)

    def _sample(self, averaging_s: float) -> float:
        """Return what the meter shows at this moment, in W; infinite if it is out of the range."""
        value = self._head.measure(averaging_s)
        self._registers["QUES"].update(_POWER_QUESTIONABLE, on=math.isinf(value))
        return value * float(10.0 ** (self._loss_db / 10.0))

    def _fetch(self) -> Reply:
        if self._function == "ARR":
            raise ScpiError(-221, "Settings conflict")
        if self._continuous and self._due is None:
            self._initiate()
        self._complete()
        if self._value_w is None:
            raise ScpiError(-230, "Data corrupt or stale")
        if self._function == "POW":
            return (self._level_text if self._unit == "DBM" else self._number_text)(self._value_w)
        return self._number_text(self._value_w * self._sensor.response[self._function])

    def _number_text(self, value: float) -> str:
        if math.isinf(value):
            return self._model.over_range if value > 0.0 else self._model.under_range
        return _text(value)

    def _level_text(self, value_w: float) -> str:
        if math.isinf(value_w):
            return self._number_text(value_w)
        return _text(watt_to_dbm(value_w)) if value_w > 0.0 else self._model.under_range

    def _read(self) -> Reply:
        self._abort()
        self._initiate()
        return self._fetch()

    def _set_continuous(self, arguments: list[str]) -> Reply:
        self._continuous = bool(choice(arguments, SWITCH))
        return None

    def _temperature(self) -> Reply:
        if not self._sensor.flags & TEMPERATURE:
            raise ScpiError(*_HARDWARE_MISSING)
        return _text(_HEAD_TEMPERATURE_C)

    def _operation_complete(self) -> Reply:
        self._complete()
        return "1"

    # The array mode

    def _configure_array(self, arguments: list[str]) -> Reply:
        if len(arguments) != 2:
            raise ScpiError(*(PARAMETER_NOT_ALLOWED if len(arguments) > 2 else MISSING_PARAMETER))
        points, interval_us = _POINTS.parse(arguments[:1]), _INTERVAL_US.parse(arguments[1:])
        self._configure("POW")
        self._function = "ARR"
        self._points, self._interval_s = round(points), 1e-6 * round(interval_us)
        self._array_w = []
        return None

    def _fetch_array(self, arguments: list[str]) -> Reply:
        if len(arguments) != 2:
            raise ScpiError(*(PARAMETER_NOT_ALLOWED if len(arguments) > 2 else MISSING_PARAMETER))
        first, count = (round(number(argument, {"": 1.0})[0]) for argument in arguments)
        self._complete()
        if self._function != "ARR" or not self._array_w:
            raise ScpiError(-230, "Data corrupt or stale")
        if not (0 <= first < len(self._array_w) and count > 0):
            raise ScpiError(*OUT_OF_RANGE)
        values = self._array_w[first : first + min(count, _MOST_FETCHED)]
        return f"{len(values)},".encode() + struct.pack(f"<{len(values)}f", *values)

    # Settings

    def _set_wavelength(self, arguments: list[str]) -> Reply:
        try:
            wanted = self._wavelength.parse(arguments)
        except ScpiError as error:
            if error.code != OUT_OF_RANGE[0] or not self._model.coerces:
                raise
            wanted = number(one_argument(arguments), _NANOMETRE)[0]
        self._wavelength_nm = float(round(min(max(wanted, self._wavelength.minimum), self._wavelength.maximum)))
        return None

    def _set_loss(self, arguments: list[str]) -> Reply:
        self._loss_db = _LOSS_DB.parse(arguments)
        return None

    def _set_unit(self, arguments: list[str]) -> Reply:
        unit = one_argument(arguments)
        if unit not in ("W", "DBM"):
            raise ScpiError(*ILLEGAL_VALUE)
        self._unit = unit
        return None

    def _set_range(self, arguments: list[str]) -> Reply:
        self._head.choose_range(self._new_range.parse(arguments))
        return None

    def _get_range(self, arguments: list[str]) -> Reply:
        present = self._head.range_w
        return _text(present if arguments == ["AUTO"] else self._range_limits.query(arguments, present))

    def _set_automatic_range(self, arguments: list[str]) -> Reply:
        self._head.automatic_range = bool(choice(arguments, SWITCH))
        return None

    def _set_count(self, arguments: list[str]) -> Reply:
        self._count = round(_COUNT.parse(arguments))
        return None

    def _start_zeroing(self) -> Reply:
        if not self._sensor.flags & (POWER | ENERGY):
            raise ScpiError(*_HARDWARE_MISSING)
        self._head.start_zeroing()
        return None

    def _zero_magnitude(self) -> Reply:
        return _text(self._head.zero_w * next(iter(self._sensor.response.values()), 0.0))


def _text(value: float) -> str:
    return f"{value:.8E}"


def _build(spec: InstrumentSpec, at: Surroundings) -> SimulatedThorlabsPM:
    unknown = set(spec.options) - {"model", "sensor"}
    if spec.size != 1 or unknown:
        raise ConfigurationError(
            f"simulated {spec.name}: a Thorlabs meter has size 1 and the options model and sensor, got size "
            f"{spec.size} and {sorted(spec.options)}"
        )
    return SimulatedThorlabsPM(spec.name, at.chip, at.channels, at.clock, **spec.options)


KIND = InstrumentKind("thorlabs_pm", "meter", _build, "socket")
