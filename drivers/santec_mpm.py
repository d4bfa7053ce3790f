"""Santec MPM-210H power meter mainframe with MPM-211, MPM-212, MPM-213 or MPM-215 modules."""

import math
from typing import ClassVar

import numpy as np
from qcodes.instrument import ChannelTuple, InstrumentBaseKWArgs, InstrumentChannel
from qcodes.validators import Numbers
from typing_extensions import Unpack

from drivers._mpm_parsing import LogState, judge_powers, parse_block, parse_log_state, parse_ports
from drivers._mpm_settings import MPMSettings
from drivers._parsing import parse_flag, parse_system_error
from drivers.protocols import PowerReading, PowerTrace, SimulatedAs
from optinc_hw.errors import ConfigurationError, LimitError
from optinc_hw.units import m_to_nm

_SLOTS = 5
_MOST_POINTS = 1_000_000
_ZEROING_S = 3.0
_ZEROING_MARGIN_S = 0.5
_POLL_S = 0.05


class MPMPort(InstrumentChannel["SantecMPM210H"]):
    """One port.

    Parameters
    ----------
    parent
        The mainframe that the port belongs to.
    name
        Name within the mainframe.
    index
        0-based index over all modules.
    """

    def __init__(self, parent: "SantecMPM210H", name: str, index: int) -> None:
        super().__init__(parent, name)
        self.index = index
        self.power = self.add_parameter(
            "power",
            label=f"Port {index} power",
            unit="W",
            vals=Numbers(),
            get_cmd=lambda: parent.read_power(index),
            snapshot_value=False,
            docstring="Measure the optical power; NaN if the reading is not valid.",
        )


class SantecMPM210H(MPMSettings):
    """Power meter mainframe; implements :class:`drivers.protocols.PowerMeter`.

    Ports are numbered through all modules in the order of their slots. Connecting only asks. The unit, the range and
    its limits are asked before every reading: a mainframe that was switched to dBm is understood as well, but shows
    no power of zero or less, so call :meth:`initialise` before measuring.

    Parameters
    ----------
    name
        Name of the instrument.
    address
        VISA resource, such as ``TCPIP0::192.168.1.161::5000::SOCKET``.
    modules
        Number of modules; checked when connecting.
    timeout
        Time in s that a complete reply may take, beyond the averaging time.
    visalib
        pyvisa library.
    **kwargs
        ``metadata`` and ``label`` of the QCoDeS instrument.

    Raises
    ------
    LinkError
        If the mainframe cannot be reached or does not answer.
    IdentityError
        If something else answers, or the number of modules is different.
    """

    simulated_as: ClassVar = SimulatedAs(kind="santec_mpm210h", size_key="modules", channels_per_unit=4)

    def __init__(
        self,
        name: str,
        address: str,
        *,
        modules: int = 1,
        timeout: float = 2.0,
        visalib: str = "@py",
        **kwargs: Unpack[InstrumentBaseKWArgs],
    ) -> None:
        if not 1 <= modules <= _SLOTS:
            raise ConfigurationError(f"{name}: modules is {modules}; give the number of modules, 1 to {_SLOTS}")
        super().__init__(name, **kwargs)
        self.address = address
        self._expected_modules = modules
        self._modules, self._port_counts = {}, {}
        self._armed = False
        self._attach(self._open_link(address, visalib, b"\r", timeout))
        ports = [MPMPort(self, f"ch{index}", index) for index in range(self.port_count)]
        self.channels = ChannelTuple(self, "channels", MPMPort, ports)
        self.add_submodule("channels", self.channels)
        self._add_parameters()

    def initialise(self, wavelength_m: float, averaging_time_s: float) -> None:
        """Make all ports measure in mW with automatic range, and verify the settings.

        Parameters
        ----------
        wavelength_m
            Wavelength of the light in m.
        averaging_time_s
            Averaging time in s; rounded to whole steps of 10 us.

        Raises
        ------
        LimitError
            If the wavelength is not in 1250..1630 nm or the averaging time not in 10 us..10 s; nothing was sent.
        DeviceError
            If the mainframe refuses a setting or silently did not take it.
        """
        self._check_wavelength(wavelength_m)
        averaging_ms = self._check_averaging_time(averaging_time_s)
        with self._live_link().lock:
            self._set_integer("UNIT", 1)
            self.auto_range.set(True)
            self.wavelength.set(wavelength_m)
            self.averaging_time.set(1e-3 * averaging_ms)
            # Once more all together: a mainframe that restarted on the way has forgotten the first ones.
            self._verify_integer("UNIT", 1)
            self._verify_integer("AUTO", 1)
            self._verify_wavelength(wavelength_m)
            self._verify_averaging_time(averaging_ms)

    def read_powers(self) -> PowerReading:
        """Read all modules, one after the other; each reading takes the averaging time.

        Raises
        ------
        DeviceError
            If the mainframe is logging.
        LinkError, ReplyError
            If the link misbehaved.
        """
        return self._read(None)

    def read_power(self, index: int) -> float:
        """Read one port (0-based) in W; NaN if the reading is not valid."""
        slot, channel = self._place(index)
        return float(self._read(slot).power_w[channel])

    def zero(self) -> None:
        """Make what the ports see now count as darkness; darken them first. Takes 3.5 s on the clock.

        Raises
        ------
        DeviceError
            If the mainframe reports an error.
        """
        link = self._live_link()
        with link.lock:
            self._check_idle()
            self._write_checked()
            link.write("ZERO")
            # The mainframe answers at once, or only when it is done.
            code, text = link.query(self._error_query, parse_system_error, extra_time=_ZEROING_S)
            if code:
                raise link.device_error(f"zeroing failed: {self._explain_error(code, text)}")
            self.clock.sleep(_ZEROING_S + _ZEROING_MARGIN_S)
            self._write_checked()

    def arm_log(
        self, points: int, averaging_time_s: float, *, automatic_gain: bool = False, external_trigger: bool = False
    ) -> None:
        """Log ``points`` readings of all ports at one wavelength, one after the other or with each trigger pulse.

        Raises
        ------
        LimitError
            If this is not 1..1 000 000 points of 10 us..10 s; nothing was sent.
        DeviceError
            If the mainframe refuses a setting or silently did not take it.
        """
        self._check_points(points)
        averaging_ms = self._check_averaging_time(averaging_time_s)
        with self._live_link().lock:
            self._check_idle()
            self.averaging_time.set(1e-3 * averaging_ms)
            self._set_integer("LOGN", points)
            duration_s = 1e-3 * points * averaging_ms
            self._start_log("CONST2" if automatic_gain else "CONST1", external_trigger, duration_s)

    def arm_sweep(
        self,
        wavelengths_m: tuple[float, float, float],
        speed_m_s: float,
        *,
        automatic_gain: bool = False,
        external_trigger: bool = False,
    ) -> None:
        """Log a reading of all ports at each wavelength of a sweep that the laser makes.

        Parameters
        ----------
        wavelengths_m
            Start, stop and step in m.
        speed_m_s
            Speed of the sweep in m/s.
        automatic_gain
            Whether ranges may change on the way.
        external_trigger
            Whether each pulse of the laser takes a point, rather than the mainframe's own time.

        Raises
        ------
        LimitError
            If start and stop are not 1250 <= start < stop <= 1630 nm, the step or the speed is not positive, a
            wavelength is no whole picometre, or the points are more than 1 000 000; nothing was sent.
        DeviceError
            If the mainframe refuses a setting or silently did not take it.
        """
        start, stop, step = (m_to_nm(value) for value in wavelengths_m)
        for wavelength in wavelengths_m[:2]:
            self._check_wavelength(wavelength)
        if not (start < stop and 0.0 < step < math.inf and 0.0 < speed_m_s < math.inf):
            raise LimitError(
                f"{self.name}: cannot sweep from {start:g} to {stop:g} nm in steps of {step:g} nm at {speed_m_s:g} "
                f"m/s; stop must be above start, step and speed positive. Nothing was changed"
            )
        if any(abs(value - round(value, 3)) > 1e-6 for value in (start, stop, step)):
            raise LimitError(
                f"{self.name}: cannot sweep from {start} to {stop} nm in steps of {step} nm; all are whole picometres. "
                f"Nothing was changed"
            )
        self._check_points(math.floor((stop - start) / step + 1e-6) + 1)
        with self._live_link().lock:
            self._check_idle()
            self._set_numbers("WSET", start, stop, step)
            self._set_numbers("SPE", m_to_nm(speed_m_s))
            duration_s = (wavelengths_m[1] - wavelengths_m[0]) / speed_m_s
            self._start_log("SWEEP2" if automatic_gain else "SWEEP1", external_trigger, duration_s)

    def log_state(self) -> LogState:
        """Ask whether logging goes on, and for the number of points so far."""
        return self._live_link().query("STAT?", parse_log_state)

    def wait_logged(self, deadline_s: float) -> None:
        """Wait on the clock until all points are logged.

        Raises
        ------
        DeviceError
            If they are not after ``deadline_s`` s (logging goes on, see :meth:`stop_log`), or logging was stopped.
        """
        link = self._live_link()
        end = self.clock.now() + deadline_s
        while (state := self.log_state()).running:
            if self.clock.now() >= end:
                raise link.device_error(f"only {state.points} points were logged within {deadline_s:g} s")
            self.clock.sleep(_POLL_S)
        if not state.done:
            raise link.device_error(f"logging was stopped after {state.points} points")

    def stop_log(self) -> None:
        """End logging; the points so far can be read."""
        self._write_checked("STOP")

    def read_log(self) -> PowerTrace:
        """Read what was logged, as (ports, points).

        The mainframe is taken to reply in the unit that is in force when it is read, like for readings.

        Raises
        ------
        DeviceError
            If logging goes on, or nothing was logged.
        LinkError, ReplyError
            If the link misbehaved, or a port has another number of points than the mainframe says.
        """
        link = self._live_link()
        with link.lock:
            points = self._check_not_logging().points
            if points == 0:
                raise link.device_error("nothing was logged; arm_log() or arm_sweep() begins that")
            automatic = link.query("WMOD?", str).upper() in ("CONST2", "SWEEP2")
            limits = self._upper_limits_w(list(self._port_counts), automatic=automatic)
            milliwatts = link.query("UNIT?", parse_flag)
            rows = [
                link.query_block(f"LOGG? {slot},{channel + 1}", lambda data: parse_block(data, points))
                for slot, count in self._port_counts.items()
                for channel in range(count)
            ]
        reading = judge_powers(np.array(rows), milliwatts=milliwatts, limits_w=limits[:, np.newaxis])
        return PowerTrace(*reading)

    def make_safe(self) -> None:
        """Do nothing: a meter has no outputs."""

    def _read(self, slot: int | None) -> PowerReading:
        """Read one module, or all."""
        link = self._live_link()
        slots = list(self._port_counts) if slot is None else [slot]
        with link.lock:
            self._check_idle()
            milliwatts = link.query("UNIT?", parse_flag)
            limits = self._upper_limits_w(slots, automatic=link.query("AUTO?", parse_flag))
            averaging = float(self.averaging_time.cache.get())
            values = [self._read_module(slot, averaging) for slot in slots]
        return PowerReading(*judge_powers(np.concatenate(values), milliwatts=milliwatts, limits_w=limits))

    def _read_module(self, slot: int, averaging_s: float) -> list[float]:
        count = self._port_counts[slot]
        return self._live_link().query(f"READ? {slot}", lambda text: parse_ports(text, count), extra_time=averaging_s)

    def _place(self, index: int) -> tuple[int, int]:
        """Return slot and 0-based channel of a port."""
        left = index
        for slot, count in self._port_counts.items():
            if 0 <= left < count:
                return slot, left
            left -= count
        raise LimitError(f"{self.name}: there is no port {index}; the mainframe has ports 0 to {self.port_count - 1}")

    def _check_idle(self) -> None:
        """Check that this session's logging is over."""
        if self._armed:
            self._check_not_logging()
            self._armed = False

    def _check_not_logging(self) -> LogState:
        state = self.log_state()
        if state.running:
            raise self._live_link().device_error(
                f"the mainframe is logging, {state.points} points so far; wait_logged() or stop_log() ends that"
            )
        return state

    def _start_log(self, mode: str, external_trigger: bool, duration_s: float) -> None:
        link = self._live_link()
        self._set_integer("TRIG", int(external_trigger))
        self._write_checked(f"WMOD {mode}")
        actual = link.query("WMOD?", str)
        if actual != mode:
            raise self._not_applied("measuring mode", actual, mode, "")
        began = self.clock.now()
        self._armed = True
        self._write_checked("MEAS")
        # A log that is complete at once is the one of before.
        state = self.log_state()
        ended = state.done and not external_trigger and self.clock.now() - began >= 0.5 * duration_s
        if not (state.running or ended):
            raise link.device_error("logging did not begin; arm it again")

    def _check_points(self, points: int) -> None:
        if not 1 <= points <= _MOST_POINTS:
            raise LimitError(f"{self.name}: cannot log {points} points; the limits are 1 to {_MOST_POINTS}")
