"""Thorlabs PM100D, PM100USB, PM101 and PM400 optical power meters.

The Ethernet models (PM103E, PM5020) frame their messages in a private binary way and are not supported.
"""

import math
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from qcodes.instrument import InstrumentBaseKWArgs
from qcodes.parameters import Parameter
from qcodes.validators import Numbers, Strings
from typing_extensions import Unpack

from drivers._parsing import is_reading, parse_flag, parse_integer, parse_number, parse_reading
from drivers._thorlabs_settings import SAMPLE_S, ThorlabsSettings
from drivers.protocols import PowerReading, PowerTrace, SimulatedAs
from optinc_hw.errors import ConfigurationError, DeviceError, LimitError
from optinc_hw.units import m_to_nm, nm_to_m, watt_to_dbm

_RANGE_CHANGE_S = 0.05
_POWER_QUESTIONABLE = 8
_POLL_S = 0.05
_MOST_POINTS, _POINTS_PER_REPLY = 10_000, 40
_SHORTEST_INTERVAL_S, _LONGEST_INTERVAL_S = 100e-6, 1.0
_ZERO = "SENS:CORR:COLL:ZERO"


class ThorlabsPM(ThorlabsSettings):
    """Power meter of one sensor; implements :class:`drivers.protocols.PowerMeter`.

    Connecting only asks. Call :meth:`initialise` before measuring: until then the meter keeps whatever unit and range
    it had, and a unit other than W is refused at every reading. A reading configures the meter for power, so that a
    meter that somebody left measuring current or voltage does not report these.

    Parameters
    ----------
    name
        Name of the instrument.
    address
        VISA resource, such as ``USB0::0x1313::0x8078::P0012345::INSTR``, or the serial port of a PM101.
    model
        ``PM100D``, ``PM100USB``, ``PM101`` or ``PM400`` if no other model may answer.
    sensor
        Name of the sensor, such as ``S155C``, if no other may be there.
    timeout
        Time in s that a complete reply may take, beyond the averaging time.
    baudrate
        Symbol rate in Bd; only serial ports use it.
    visalib
        pyvisa library.
    **kwargs
        ``metadata`` and ``label`` of the QCoDeS instrument.

    Raises
    ------
    LinkError
        If the meter cannot be reached or does not answer.
    IdentityError
        If something else answers, or the sensor does not measure power or is another one.
    """

    simulated_as: ClassVar = SimulatedAs(kind="thorlabs_pm", option_keys=("model", "sensor"))

    def __init__(
        self,
        name: str,
        address: str,
        *,
        model: str | None = None,
        sensor: str | None = None,
        timeout: float = 2.0,
        baudrate: int = 115200,
        visalib: str = "@py",
        **kwargs: Unpack[InstrumentBaseKWArgs],
    ) -> None:
        if model is not None and model not in SAMPLE_S:
            raise ConfigurationError(f"{name}: model is {model!r}; choose from {', '.join(SAMPLE_S)}")
        super().__init__(name, **kwargs)
        self.address = address
        self._expected_model, self._expected_sensor = model, sensor
        self._zeroing = False
        self._attach(self._open_link(address, visalib, b"\n", timeout, baudrate=baudrate))
        self._add_readings()
        self._add_settings()

    def _add_readings(self) -> None:
        self.power = self.add_parameter(
            "power",
            label="Power",
            unit="W",
            vals=Numbers(),
            get_cmd=lambda: float(self.read_powers().power_w[0]),
            snapshot_value=False,
            docstring="Measure the optical power; NaN if the reading is not valid.",
        )
        self.power_dbm = self.add_parameter(
            "power_dbm",
            label="Power",
            unit="dBm",
            vals=Numbers(),
            get_cmd=self._measure_level,
            snapshot_value=False,
            docstring="Measure the optical power as a level; NaN if the reading is not valid or not above 0 W.",
        )
        self.sensor_identity = self.add_parameter(
            "sensor_identity",
            label="Sensor",
            vals=Strings(),
            get_cmd=lambda: str(self._ask_sensor()),
            docstring="Get the sensor's model, serial number and date of calibration.",
        )
        self.zero_magnitude = self.add_parameter(
            "zero_magnitude",
            label="Zero",
            unit=self.sensor.signal_unit,
            vals=Numbers(),
            get_cmd=lambda: self._live_link().query(f"{_ZERO}:MAGN?", parse_number),
            docstring="Get the sensor's signal that counts as darkness.",
        )

    @property
    def port_count(self) -> int:
        """Number of ports, which is one."""
        return 1

    def initialise(self, wavelength_m: float, averaging_time_s: float) -> None:
        """Make the meter measure in W with automatic range, and verify the settings.

        Parameters
        ----------
        wavelength_m
            Wavelength of the light in m; rounded to whole nanometres, as the meter takes no others.
        averaging_time_s
            Averaging time in s; rounded to whole samples, at least one.

        Raises
        ------
        LimitError
            If an argument is not positive and finite, or the wavelength is out of the sensor's range; nothing was set.
        DeviceError
            If the meter refuses a setting or silently did not take it.
        """
        if not 0.0 < averaging_time_s < math.inf:
            raise LimitError(f"{self.name}: the averaging time cannot be {averaging_time_s} s; give a positive time")
        if not 0.0 < wavelength_m < math.inf:
            raise LimitError(f"{self.name}: the wavelength cannot be {wavelength_m} m; give a positive length in m")
        with self._live_link().lock:
            wavelength_nm = self._check_wavelength(round(m_to_nm(wavelength_m)))
            count = max(1, round(averaging_time_s / self.sample_time))
            self._write_checked("SENS:POW:UNIT W")
            self._check_unit()
            self.auto_range.set(True)
            self.wavelength.set(nm_to_m(wavelength_nm))
            self.averaging_count.set(count)
            # Once more all together: a meter that restarted on the way has forgotten the first ones.
            self._check_unit()
            self._verify_auto_range(True)
            self._verify_wavelength(wavelength_nm)
            self._verify_count(count)

    def read_powers(self) -> PowerReading:
        """Measure; takes the averaging time.

        Raises
        ------
        DeviceError
            If the meter does not measure in W, for example because somebody switched the unit at its panel, or zeroes.
        LinkError, ReplyError
            If the link misbehaved.
        """
        link = self._live_link()
        with link.lock:
            self._check_measuring()
            extra_time = self.averaging_count.cache.get() * self.sample_time + _RANGE_CHANGE_S
            value = link.query("MEAS:POW?", parse_reading, extra_time=extra_time)
            questionable = link.query("STAT:QUES:COND?", parse_integer) & _POWER_QUESTIONABLE
            valid = math.isfinite(value) and not questionable
            return PowerReading(np.array([value if valid else math.nan]), np.array([valid]))

    def record(self, points: int, interval_s: float) -> PowerTrace:
        """Record ``points`` readings ``interval_s`` s apart in the meter's memory and read them, as (1, points).

        Only meters with an array mode (PM101, PM400) can do this; others refuse with a DeviceError.

        Raises
        ------
        LimitError
            If this is not 1..10000 points at intervals of whole microseconds from 100 us to 1 s; nothing was sent.
        DeviceError
            If the meter refuses, does not measure in W, or is not ready in time.
        """
        interval_us = _whole_microseconds(interval_s)
        if interval_us is None or not 1 <= points <= _MOST_POINTS:
            raise LimitError(
                f"{self.name}: cannot record {points} points {interval_s} s apart; the limits are 1..{_MOST_POINTS} "
                f"points, and whole microseconds from {_SHORTEST_INTERVAL_S:g} s to {_LONGEST_INTERVAL_S:g} s"
            )
        link = self._live_link()
        with link.lock:
            self._check_measuring()
            self._write_checked(f"CONF:ARR {points},{interval_us}", "INIT")
            self._wait("FETC:STAT?", True, "recording", points * interval_s + link.timeout)
            raw = np.concatenate([self._fetch(start, points) for start in range(0, points, _POINTS_PER_REPLY)])
            valid = np.array([is_reading(value) for value in raw.tolist()])
            return PowerTrace(np.where(valid, raw, np.nan)[np.newaxis], valid[np.newaxis])

    def start_zeroing(self) -> None:
        """Make what the sensor sees now count as darkness; the meter goes on in the background, see wait_zeroed.

        Raises
        ------
        DeviceError
            If the meter refuses or did not begin.
        """
        link = self._live_link()
        with link.lock:
            self._write_checked(f"{_ZERO}:INIT")
            self._zeroing = link.query(f"{_ZERO}:STAT?", parse_flag)
            if not self._zeroing:
                raise link.device_error("zeroing did not begin; start it again")

    def wait_zeroed(self, deadline_s: float) -> None:
        """Wait on the clock for the end of zeroing.

        Raises
        ------
        DeviceError
            If it has not ended after ``deadline_s`` s (it was aborted), or failed.
        """
        try:
            self._wait(f"{_ZERO}:STAT?", False, "zeroing", deadline_s)
        except DeviceError:
            self._write_checked(f"{_ZERO}:ABOR")
            self._zeroing = False
            raise
        self._zeroing = False
        self._write_checked()

    def zero(self, deadline_s: float = 60.0) -> None:
        """Darken the sensor, call this, and wait; raises like :meth:`wait_zeroed`."""
        self.start_zeroing()
        self.wait_zeroed(deadline_s)

    def make_safe(self) -> None:
        """Do nothing: a meter has no outputs."""

    def _wait(self, question: str, wanted: bool, what: str, deadline_s: float) -> None:
        link = self._live_link()
        end = self.clock.now() + deadline_s
        while link.query(question, parse_flag) != wanted:
            if self.clock.now() >= end:
                raise link.device_error(f"{what} has not ended within {deadline_s:g} s")
            self.clock.sleep(_POLL_S)

    def _fetch(self, start: int, points: int) -> NDArray[np.float64]:
        count = min(_POINTS_PER_REPLY, points - start)

        def parse(reply: bytes) -> NDArray[np.float64]:
            values = np.frombuffer(reply.partition(b",")[2], dtype="<f4")
            if len(values) != count:
                raise ValueError(f"{len(values)} values came instead of {count}")
            return values.astype(np.float64)

        return self._live_link().query_sized(f"FETC:ARR? {start},{count}", _array_size, parse)

    def _measure_level(self) -> float:
        power = float(self.read_powers().power_w[0])
        return watt_to_dbm(power) if power > 0.0 else math.nan

    def _check_measuring(self) -> None:
        link = self._live_link()
        if self._zeroing:
            self._zeroing = link.query(f"{_ZERO}:STAT?", parse_flag)
            if self._zeroing:
                raise link.device_error("the meter is zeroing; wait_zeroed() waits for its end")
        self._check_unit()

    def _is_driven(self) -> bool:
        return False

    def _shown(self) -> tuple[Parameter, ...]:
        return (
            self.IDN,
            self.sensor_identity,
            self.wavelength,
            self.averaging_count,
            self.averaging_time,
            self.auto_range,
            self.input_loss,
            self.zero_magnitude,
        )

    def _snapshot_complete(self) -> bool:
        return all(parameter.cache.valid for parameter in self._shown())

    def _refresh(self) -> None:
        for parameter in self._shown():
            parameter.get()


def _whole_microseconds(interval_s: float) -> int | None:
    """Return an interval of the array mode in us, None if it is none that the meter can keep."""
    if not _SHORTEST_INTERVAL_S * (1.0 - 1e-9) <= interval_s <= _LONGEST_INTERVAL_S * (1.0 + 1e-9):
        return None
    microseconds = round(1e6 * interval_s)
    return microseconds if abs(1e6 * interval_s - microseconds) < 1e-3 else None


def _array_size(head: bytes) -> int | None:
    """Tell the size in bytes of a reply of a count, a comma and so many 4-byte numbers from its beginning."""
    count, comma, _ = head.partition(b",")
    if len(count) > len(str(_MOST_POINTS)) or (count and not count.isdigit()):
        raise ValueError("it does not begin with a number of values and a comma")
    return len(count) + 1 + 4 * int(count) if comma and count else None
