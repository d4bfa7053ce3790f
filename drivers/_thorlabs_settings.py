"""What can be set on a Thorlabs power meter, verified, and which sensor it has."""

import re

from qcodes.validators import Bool, Ints, Numbers

from drivers._parsing import parse_flag, parse_number
from drivers._scpi import ScpiInstrument
from drivers._thorlabs_sensor import ThorlabsSensor, parse_sensor
from optinc_hw.errors import IdentityError, LimitError
from optinc_hw.units import m_to_nm, nm_to_m

SAMPLE_S = {"PM100D": 3e-3, "PM100USB": 3e-3, "PM101": 1e-3, "PM400": 1e-3}
"""Time that one sample takes, by model."""

_MODEL = re.compile(r"PM100D|PM100USB|PM101[A-Z]*|PM400")
_WHOLE_NM = 1e-6
_MOST_SAMPLES = 1_000_000
_LOSS_DB, _LOSS_TOLERANCE_DB = 60.0, 1e-3


class ThorlabsSettings(ScpiInstrument):
    """Sensor and settings of a Thorlabs meter; a subclass sets the attributes, attaches the link and adds readings."""

    _error_query = "SYST:ERR?"

    address: str
    _expected_model: str | None
    _expected_sensor: str | None
    _sensor: ThorlabsSensor | None = None

    def _add_settings(self) -> None:
        self.wavelength = self.add_parameter(
            "wavelength",
            label="Wavelength",
            unit="m",
            vals=Numbers(min_value=100e-9, max_value=30e-6),
            get_cmd=lambda: nm_to_m(self._live_link().query("SENS:CORR:WAV?", parse_number)),
            set_cmd=self._set_wavelength,
            docstring="Control the wavelength that the power is calculated for, in whole nanometres.",
        )
        self.averaging_count = self.add_parameter(
            "averaging_count",
            label="Averaged samples",
            unit="",
            vals=Ints(1, _MOST_SAMPLES),
            get_cmd=lambda: self._live_link().query("SENS:AVER:COUN?", _parse_count),
            set_cmd=self._set_count,
            docstring="Control the number of samples that a reading averages.",
        )
        self.averaging_time = self.add_parameter(
            "averaging_time",
            label="Averaging time",
            unit="s",
            vals=Numbers(min_value=0.0),
            get_cmd=lambda: self.averaging_count.get() * self.sample_time,
            docstring="Get the time that a reading takes: the number of samples times the time of one.",
        )
        self.power_range = self.add_parameter(
            "power_range",
            label="Power range",
            unit="W",
            vals=Numbers(min_value=0.0),
            get_cmd=lambda: self._live_link().query("SENS:POW:RANG?", parse_number),
            snapshot_value=False,
            docstring="Get the upper limit of the range in use; set_range() chooses one.",
        )
        self.auto_range = self.add_parameter(
            "auto_range",
            label="Automatic range",
            vals=Bool(),
            get_cmd=lambda: self._live_link().query("SENS:POW:RANG:AUTO?", parse_flag),
            set_cmd=self._set_auto_range,
            docstring="Control whether the meter chooses its range.",
        )
        self.input_loss = self.add_parameter(
            "input_loss",
            label="Input loss",
            unit="dB",
            vals=Numbers(min_value=-_LOSS_DB, max_value=_LOSS_DB),
            get_cmd=lambda: self._live_link().query("SENS:CORR?", parse_number),
            set_cmd=self._set_loss,
            docstring="Control the loss before the sensor that readings are corrected for.",
        )

    @property
    def sensor(self) -> ThorlabsSensor:
        """The sensor that was there when connecting."""
        return self._ask_sensor() if self._sensor is None else self._sensor

    @property
    def sample_time(self) -> float:
        """Time in s that one sample takes on this model."""
        return next(time for model, time in SAMPLE_S.items() if self._identity.model.startswith(model))

    def set_range(self, power_w: float) -> None:
        """Stay in the most sensitive range that holds a power in W, and end automatic ranging.

        Raises
        ------
        LimitError
            If the power is not positive or above the sensor's highest range; nothing was changed.
        DeviceError
            If the meter refuses or chose a range that is too small.
        """
        link = self._live_link()
        with link.lock:
            highest = link.query("SENS:POW:RANG? MAX", parse_number)
            if not 0.0 < power_w <= highest:
                raise LimitError(
                    f"{self.name}: the range cannot be {power_w} W; with this sensor the limits are above 0 W and up "
                    f"to {highest:g} W. Nothing was changed"
                )
            self._write_checked(f"SENS:POW:RANG {power_w:.6E}")
            if self.power_range.get() < power_w * (1.0 - 1e-5) or self.auto_range.get():
                raise self._not_applied("range", self.power_range.cache.get(), power_w, "W")

    def _check_unit(self) -> None:
        link = self._live_link()
        unit = link.query("SENS:POW:UNIT?", str).strip('"')
        if unit.upper() != "W":
            raise link.device_error(
                f"the meter measures in {unit!r} and not in W; call initialise(), or switch the unit to W at its panel"
            )

    def _check_wavelength(self, wavelength_nm: float) -> float:
        link = self._live_link()
        if not self.sensor.wavelength_settable:
            raise LimitError(f"{self.name}: the wavelength of the sensor {self.sensor} cannot be set")
        shortest = link.query("SENS:CORR:WAV? MIN", parse_number)
        longest = link.query("SENS:CORR:WAV? MAX", parse_number)
        if not shortest <= wavelength_nm <= longest:
            raise LimitError(
                f"{self.name}: the wavelength cannot be {wavelength_nm:g} nm; the sensor {self.sensor} takes "
                f"{shortest:g} to {longest:g} nm. Nothing was changed"
            )
        return wavelength_nm

    def _set_wavelength(self, wavelength_m: float) -> None:
        wanted = round(m_to_nm(wavelength_m))
        if abs(m_to_nm(wavelength_m) - wanted) > _WHOLE_NM:
            raise LimitError(
                f"{self.name}: the wavelength cannot be {m_to_nm(wavelength_m):.6f} nm; the meter takes whole "
                f"nanometres. Nothing was changed"
            )
        with self._live_link().lock:
            self._check_wavelength(wanted)
            self._write_checked(f"SENS:CORR:WAV {wanted}")
            self._verify_wavelength(wanted)

    def _verify_wavelength(self, wanted_nm: float) -> None:
        actual = m_to_nm(self.wavelength.get())
        if abs(actual - wanted_nm) > _WHOLE_NM:
            raise self._not_applied("wavelength", f"{actual:.9g}", f"{wanted_nm:g}", "nm")

    def _set_count(self, count: int) -> None:
        with self._live_link().lock:
            self._write_checked(f"SENS:AVER:COUN {count}")
            self._verify_count(count)

    def _verify_count(self, count: int) -> None:
        actual = self.averaging_count.get()
        if actual != count:
            raise self._not_applied("number of averaged samples", actual, count, "")
        self.averaging_time.cache.set(count * self.sample_time)

    def _set_auto_range(self, on: bool) -> None:
        with self._live_link().lock:
            self._write_checked(f"SENS:POW:RANG:AUTO {int(on)}")
            self._verify_auto_range(on)

    def _verify_auto_range(self, on: bool) -> None:
        actual = self.auto_range.get()
        if actual != on:
            raise self._not_applied("automatic range", actual, on, "")

    def _set_loss(self, loss_db: float) -> None:
        link = self._live_link()
        with link.lock:
            self._write_checked(f"SENS:CORR {loss_db:.4f}")
            actual = link.query("SENS:CORR?", parse_number)
            if abs(actual - loss_db) > _LOSS_TOLERANCE_DB:
                raise self._not_applied("input loss", actual, loss_db, "dB")

    def _ask_sensor(self) -> ThorlabsSensor:
        return self._live_link().query("SYST:SENS:IDN?", parse_sensor)

    def _identify(self) -> None:
        identity = self._check_identity(self.address, ("Thorlabs",), _MODEL)
        if self._expected_model is not None and not identity.model.startswith(self._expected_model):
            raise IdentityError(
                f"{self.name} at {self.address}: {identity} answers, but a {self._expected_model} is expected; correct "
                f"the address or the model"
            )
        sensor = self._ask_sensor()
        if not sensor.measures_power:
            raise IdentityError(
                f"{self.name} at {self.address}: the meter's sensor ({sensor}) does not measure power; plug one in "
                f"that does"
            )
        expected = self._expected_sensor
        if (expected is not None and sensor.name != expected) or (self._sensor is not None and sensor != self._sensor):
            raise IdentityError(
                f"{self.name} at {self.address}: the sensor is {sensor}, but {self._sensor or expected} is expected; "
                f"plug that in, or construct the instrument for this one"
            )
        self._sensor = sensor


def _parse_count(text: str) -> int:
    value = parse_number(text)
    if value < 1.0 or value != round(value):
        raise ValueError(f"{text!r} is no number of samples")
    return round(value)
