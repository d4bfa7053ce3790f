"""Keysight N7744A/N7745A (and N7744C/N7745C) multiport optical power meters."""

import contextlib
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from qcodes.instrument import InstrumentBaseKWArgs
from typing_extensions import Unpack

from drivers._keysight_parsing import parse_function_state, parse_log_parameters, parse_powers
from drivers._keysight_settings import N7745APort, N7745ASettings
from drivers._parsing import OVER_RANGE, parse_integer, parse_reading
from drivers.protocols import PowerReading, PowerTrace, SimulatedAs
from optinc_hw.errors import LimitError, OptincError

__all__ = ["KeysightN7745A", "N7745APort"]

LogTrigger = Literal["none", "start", "sweep"]
"""What takes samples: time alone, time after one pulse, or a pulse each (a laser that sweeps)."""

_IMPOSSIBLE_W = 0.1
"""Ten times what these meters can take; a number beyond is a level in dBm or nonsense."""
_PLAUSIBLE_W = (-1e-6, 0.02)
"""What readings in W can hardly be below or above, but levels in dBm mostly are."""
_MOST_POINTS = 1_000_000
_LOG_AVERAGING_S = (1e-6, 10.0)
_LOG_TOLERANCE = 1e-6
_POLL_S = 0.05
_INPUT_MODES = {"none": "ign", "start": "cme", "sweep": "sme"}


class KeysightN7745A(N7745ASettings):
    """Multiport power meter; implements :class:`drivers.protocols.PowerMeter`.

    Connecting only asks (``*IDN?``, ``read:pow:all:conf?``). Call :meth:`initialise` before measuring: until then
    the meter keeps whatever unit, range and trigger mode it had, and a unit other than W is refused.

    Parameters
    ----------
    name
        Name of the instrument.
    address
        VISA resource, such as ``TCPIP0::192.168.1.101::5025::SOCKET`` or ``TCPIP0::192.168.1.101::hislip0::INSTR``.
    ports
        Number of ports; checked when connecting.
    model
        ``N7744A``, ``N7745A``, ``N7744C`` or ``N7745C``, checked when connecting; any of them when left out.
    timeout
        Time in s that a complete reply may take, beyond the averaging time.
    visalib
        pyvisa library.
    **kwargs
        ``metadata`` and ``label`` of the QCoDeS instrument.

    Raises
    ------
    ConfigurationError
        If the model is unknown or has another number of ports.
    LinkError
        If the meter cannot be reached or does not answer.
    IdentityError
        If something else answers, or the number of ports is different.
    """

    simulated_as: ClassVar = SimulatedAs(
        kind="keysight_n7745a", size_key="ports", default_size=8, option_keys=("model",)
    )

    def __init__(
        self,
        name: str,
        address: str,
        *,
        ports: int = 8,
        model: str | None = None,
        timeout: float = 2.0,
        visalib: str = "@py",
        **kwargs: Unpack[InstrumentBaseKWArgs],
    ) -> None:
        super().__init__(name, address, ports=ports, model=model, timeout=timeout, visalib=visalib, **kwargs)

    def initialise(self, wavelength_m: float, averaging_time_s: float) -> None:
        """Make all ports measure anew at every reading, in W, with automatic range, and verify the settings.

        Parameters
        ----------
        wavelength_m
            Wavelength of the light in m.
        averaging_time_s
            Averaging time in s.

        Raises
        ------
        LimitError
            If an argument is not positive and finite; nothing was sent.
        DeviceError
            If a log is in hand, or the meter refuses a setting or silently did not take it.
        """
        self._check_positive("wav", wavelength_m)
        self._check_positive("atim", averaging_time_s)
        with self._live_link().lock:
            self._check_no_log()
            for port in self.channels:
                slot = port.index + 1
                self._write_checked(
                    f"sens{slot}:pow:unit 1",
                    f"sens{slot}:pow:rang:auto 1",
                    # In continuous mode a reading repeats an older one until its averaging time is over.
                    f"init{slot}:cont 0",
                )
                self.apply_setting(port.index, "wav", wavelength_m)
                self.apply_setting(port.index, "atim", averaging_time_s)
            self._check_units()

    def read_powers(self) -> PowerReading:
        """Read all ports at once, in one exchange that takes the averaging time.

        Raises
        ------
        DeviceError
            If a log is in hand, or a port does not measure in W, for example because somebody switched the unit at
            the front panel.
        LinkError, ReplyError
            If the link misbehaved.
        """
        link = self._live_link()
        with link.lock:
            self._prepare_reading()
            raw = link.query_block("read:pow:all?", self._parse_powers, extra_time=self._longest_averaging())
            return PowerReading(*self._judge(raw))

    def read_power(self, index: int) -> float:
        """Read one port (0-based) in W; NaN if the reading is not valid."""
        link = self._live_link()
        command = f"read{self._slot(index)}:pow?"
        with link.lock:
            self._prepare_reading()
            value = link.query(command, parse_reading, extra_time=self._longest_averaging())
            return float(self._judge(np.array([value]))[0][0])

    def zero(self, deadline_s: float = 60.0) -> None:
        """Make what the ports see now count as darkness; darken them first.

        Parameters
        ----------
        deadline_s
            Time in s within which the meter must have finished.

        Raises
        ------
        LinkTimeoutError
            If it takes longer.
        DeviceError
            If a log is in hand, or zeroing failed on a port, mostly because there was light.
        """
        link = self._live_link()
        with link.lock:
            self._check_no_log()
            self._write_checked()
            link.write("sens1:corr:coll:zero:all")
            link.query("*opc?", parse_integer, extra_time=deadline_s)
            self._write_checked()
            failed = [
                index
                for index in range(self._ports)
                if link.query(f"sens{self._slot(index)}:corr:coll:zero?", parse_integer) != 0
            ]
            if failed:
                raise link.device_error(f"zeroing failed on ports {failed}; darken them and try again")

    def record(self, points: int, averaging_time_s: float, *, deadline_s: float | None = None) -> PowerTrace:
        """Log ``points`` samples of all ports, one after the other, and read them.

        The range stays as it is when logging begins, also where it is automatic.

        Parameters
        ----------
        points
            Number of samples of each port.
        averaging_time_s
            Averaging time in s of each sample; the whole log takes ``points`` times as long.
        deadline_s
            Time in s within which it must have ended; a tenth and the reply timeout more than it takes if left out.

        Raises
        ------
        LimitError
            If this is not 1..1 000 000 points of 1 us..10 s; nothing was sent.
        DeviceError
            If the meter refuses, does not measure in W, is not ready in time, or somebody stopped the log.
        """
        self.arm_log(points, averaging_time_s)
        try:
            if deadline_s is None:
                deadline_s = 1.1 * points * averaging_time_s + self._live_link().timeout
            self.wait_logged(deadline_s)
            return self.read_log()
        except BaseException:
            with contextlib.suppress(OptincError):
                self.stop_log()
            raise

    def arm_log(self, points: int, averaging_time_s: float, *, trigger: LogTrigger = "none") -> None:
        """Let all ports log; until :meth:`read_log` or :meth:`stop_log`, readings and settings are refused.

        Parameters
        ----------
        points
            Number of samples of each port.
        averaging_time_s
            Averaging time in s of each sample.
        trigger
            ``"none"`` begins at once, ``"start"`` begins at a pulse at the trigger input, ``"sweep"`` takes one
            sample at each pulse, such as a laser gives at each step of its sweep.

        Raises
        ------
        LimitError
            If this is not 1..1 000 000 points of 1 us..10 s, or there is no such trigger; nothing was sent.
        DeviceError
            If a log is in hand, a port does not measure in W, or the meter refuses or silently did not take it.
        """
        self._check_log(points, averaging_time_s, trigger)
        link = self._live_link()
        slots = range(1, self._ports + 1)
        with link.lock:
            self._check_no_log()
            self._check_units()
            routing = [] if trigger == "none" else ["trig:conf def"]
            inputs = [f"trig{slot}:inp {_INPUT_MODES[trigger]}" for slot in slots]
            parameters = f"sens1:func:par:logg {points},{averaging_time_s:.8E}"
            # What still runs from somebody else's session would keep its parameters.
            self._write_checked(*[f"sens{slot}:func:stat logg,stop" for slot in slots], *routing, *inputs, parameters)
            actual = link.query("sens1:func:par:logg?", parse_log_parameters)
            if actual[0] != points or abs(actual[1] - averaging_time_s) > _LOG_TOLERANCE * averaging_time_s:
                raise self._not_taken("sens1:func:par:logg", str(actual), str((points, averaging_time_s)))
            self._log_in_hand = True
            self._log_expected_s = points * averaging_time_s if trigger == "none" else 0.0
            self._write_checked(*[f"sens{slot}:func:stat logg,star" for slot in slots])

    def wait_logged(self, deadline_s: float) -> None:
        """Wait on the clock until all ports have logged all their samples.

        Raises
        ------
        DeviceError
            If they have not after ``deadline_s`` s (logging goes on), or somebody stopped the log.
        """
        end = self.clock.now() + deadline_s
        self.clock.sleep(max(min(self._log_expected_s, deadline_s), 0.0))
        while not self._is_logged():
            if self.clock.now() >= end:
                raise self._live_link().device_error(
                    f"not all samples were logged within {deadline_s:g} s; check the trigger, or stop_log()"
                )
            self.clock.sleep(_POLL_S)

    def read_log(self) -> PowerTrace:
        """Read what all ports have logged, as (ports, points), and let the meter go back to single readings.

        Raises
        ------
        DeviceError
            If logging goes on or was stopped, or a port does not measure in W.
        LinkError, ReplyError
            If the link misbehaved, or a port has another number of samples than was asked for.
        """
        link = self._live_link()
        with link.lock:
            if not self._is_logged():
                raise link.device_error("logging goes on; call wait_logged() first, or stop_log()")
            points, _ = link.query("sens1:func:par:logg?", parse_log_parameters)
            self._check_units()
            rows = [
                link.query_block(f"sens{slot}:func:res?", lambda payload: parse_powers(payload, points))
                for slot in range(1, self._ports + 1)
            ]
            trace = PowerTrace(*self._judge(np.array(rows)))
            self.stop_log()
            return trace

    def stop_log(self) -> None:
        """End logging, losing samples that were not read, and the trigger; does no harm if nothing is logged.

        Raises
        ------
        DeviceError
            If the meter refuses.
        """
        slots = range(1, self._ports + 1)
        with self._live_link().lock:
            stops = [f"sens{slot}:func:stat logg,stop" for slot in slots]
            self._write_checked(*stops, *[f"trig{slot}:inp ign" for slot in slots])
            self._log_in_hand = False

    def _is_logged(self) -> bool:
        """Ask whether all ports have finished; raises DeviceError if one does not log (any more)."""
        link = self._live_link()
        complete = True
        with link.lock:
            for slot in range(1, self._ports + 1):
                function, done = link.query(f"sens{slot}:func:stat?", parse_function_state)
                if function != "LOGGING_STABILITY":
                    raise link.device_error(
                        f"port {slot - 1} does not log: nobody armed it, or somebody changed a setting, which ends a "
                        f"log; call stop_log() and arm_log()"
                    )
                complete = complete and done
        return complete

    def _check_log(self, points: int, averaging_time_s: float, trigger: str) -> None:
        shortest, longest = _LOG_AVERAGING_S
        if not 1 <= points <= _MOST_POINTS or not shortest <= averaging_time_s <= longest:
            raise LimitError(
                f"{self.name}: cannot log {points} points of {averaging_time_s} s; the limits are 1 to {_MOST_POINTS} "
                f"points of {shortest:g} s to {longest:g} s. Nothing was changed"
            )
        if trigger not in _INPUT_MODES:
            raise LimitError(f"{self.name}: trigger {trigger!r} is unknown; give one of {', '.join(_INPUT_MODES)}")

    def _prepare_reading(self) -> None:
        self._check_no_log()
        if not self._in_watts:
            self._check_units()

    def _judge(self, raw: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Flag what is no measurement; numbers that a meter hardly measures in W make the units suspect."""
        plausible = (raw >= _PLAUSIBLE_W[0]) & (raw <= _PLAUSIBLE_W[1])
        if plausible.all():
            return raw, plausible
        is_number = np.isfinite(raw) & (np.abs(raw) < OVER_RANGE)
        if not is_number.all():
            self._queue_is_ours_since = None  # such readings leave errors in the queue, after which no set is at fault
        if np.any(is_number & ~plausible):
            self._check_units()
        valid = is_number & (np.abs(raw) < _IMPOSSIBLE_W)
        return np.where(valid, raw, np.nan), valid

    def _parse_powers(self, payload: bytes) -> NDArray[np.float64]:
        return parse_powers(payload, self._ports)
