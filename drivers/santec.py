"""Santec TSL-550, TSL-570, TSL-710 and TSL-770 tunable lasers."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from qcodes.instrument import InstrumentBaseKWArgs
from typing_extensions import Unpack

from drivers._parsing import parse_integer
from drivers._santec_settings import SantecSettings
from drivers._santec_wire import LONGEST_LOG, parse_power_log, parse_sweep_state, parse_wavelength, parse_wavelength_log
from drivers._sweep_log import SweepLog, log_problem, points_of
from drivers.protocols import SimulatedAs
from optinc_hw.errors import LimitError, OptincError

_ARMING_S = 60.0
_SWEEP_MARGIN_S = 20.0
_LOG_BYTES_PER_S = 1e5


@dataclass(frozen=True)
class _Sweep:
    """A sweep that is armed; m and m/s."""

    start_m: float
    stop_m: float
    speed_m_s: float
    step_m: float

    @property
    def duration_s(self) -> float:
        return abs(self.stop_m - self.start_m) / self.speed_m_s


class SantecTSL570(SantecSettings):
    """Santec TSL tunable laser (550, 570, 710 or 770); implements :class:`drivers.protocols.Laser`.

    The 570 and 770 have two command sets, one with nanometres and one with metres, and all have two power units; both
    can be switched at the front panel. The driver changes neither by itself: it asks before every set. Connecting only
    asks (``*IDN?``); closing shuts the shutter if this session changed the light.

    ``sweep`` runs one continuous wavelength sweep and returns what the laser logged. ``arm_sweep`` and
    ``finish_sweep`` do the same in two parts, with time in between to make a power meter ready for the laser's
    triggers.

    Parameters
    ----------
    name
        Name of the instrument.
    address
        VISA resource, such as ``TCPIP0::192.168.1.100::5000::SOCKET``.
    model
        Model that must answer, such as ``"TSL-770"``; None takes any of the four.
    timeout
        Time in s that a complete reply may take.
    max_power
        Highest power in W that may be set, and with which light may be let out; 20 mW, the laser's own maximum, by
        default.
    visalib
        pyvisa library.
    **kwargs
        ``metadata`` and ``label`` of the QCoDeS instrument.

    Raises
    ------
    ConfigurationError
        If there is no such model.
    LinkError
        If the laser cannot be reached or does not answer.
    IdentityError
        If something else answers.
    """

    simulated_as: ClassVar = SimulatedAs(kind="santec_tsl570", option_keys=("model",))

    def __init__(
        self,
        name: str,
        address: str,
        *,
        model: str | None = None,
        timeout: float = 2.0,
        max_power: float = 20e-3,
        visalib: str = "@py",
        **kwargs: Unpack[InstrumentBaseKWArgs],
    ) -> None:
        super().__init__(name, address, model=model, timeout=timeout, max_power=max_power, visalib=visalib, **kwargs)
        self._armed: _Sweep | None = None
        self._add_sweep_parameters()
        self._add_trigger_parameters()

    def sweep(self, start_m: float, stop_m: float, speed_m_s: float, step_m: float) -> SweepLog:
        """Run one continuous wavelength sweep and return its log; the light must be on for powers to mean anything.

        Parameters
        ----------
        start_m, stop_m
            Wavelengths in m at which it begins and ends; either may be the longer one.
        speed_m_s
            Speed in m/s, such as 10e-9.
        step_m
            Distance in m of the points of the log, and of the triggers that go out.

        Raises
        ------
        LimitError
            If the laser cannot sweep like this, or is set to emit more than ``max_power``; no sweep was started.
        DeviceError
            If the laser refuses, does not start or end in time, or logged another sweep; the sweep is stopped.
        """
        self.arm_sweep(start_m, stop_m, speed_m_s, step_m)
        return self.finish_sweep()

    def arm_sweep(self, start_m: float, stop_m: float, speed_m_s: float, step_m: float) -> None:
        """Set a sweep up, tune to its start and wait there for a trigger; arguments and errors as for sweep()."""
        planned = _Sweep(start_m, stop_m, speed_m_s, step_m)
        self._check_sweep(planned)
        with self._live_link().lock:
            self._require_no_sweep()
            self._check_emission()
            self._driven = True
            self._write_checked(f":WAV:SWE:SPE {self._speed_text(speed_m_s)}")
            self._check_range(planned)
            metres = self._uses_metres()
            self._write_checked(
                ":WAV:SWE:MOD 1",
                f":WAV:SWE:STAR {self._length_in(metres, start_m)}",
                f":WAV:SWE:STOP {self._length_in(metres, stop_m)}",
                ":WAV:SWE:CYCL 1",
                ":TRIG:OUTP 3",
                ":TRIG:OUTP:SETT 0",
                f":TRIG:OUTP:STEP {self._length_in(metres, step_m)}",
                ":TRIG:INP:STAN 1",
            )
            self._target_wavelength = None
            self._armed = planned
        try:
            # Nobody waits at the lock while the laser tunes: make_safe() must get through.
            self._write_checked(":WAV:SWE 1")
            self._wait_for_sweep("waiting for trigger", _ARMING_S)
        except BaseException:
            self._abandon_sweep()
            raise

    def finish_sweep(self, *, trigger: bool = True) -> SweepLog:
        """Trigger the sweep that is armed, wait for its end, and return its log; errors as for sweep().

        Parameters
        ----------
        trigger
            False leaves the trigger to whoever is connected with the trigger input (``trigger_input``).
        """
        planned = self._armed
        if planned is None:
            raise LimitError(f"{self.name}: no sweep is armed; call arm_sweep() first. Nothing was changed")
        try:
            if trigger:
                self.trigger_sweep()
            self._wait_for_sweep("stopped", planned.duration_s + _SWEEP_MARGIN_S)
        except BaseException:
            self._abandon_sweep()
            raise
        self._armed = None
        self._write_checked(":TRIG:INP:STAN 0")
        log = self.read_sweep_log()
        problem = log_problem(log.wavelength_m, planned.start_m, planned.stop_m, planned.step_m)
        if problem is not None:
            raise self._live_link().device_error(f"the sweep is not the one that was asked for: {problem}; repeat it")
        return log

    def stop_sweep(self) -> None:
        """Stop whatever sweep runs or waits; the laser stays at the wavelength that it has.

        Raises
        ------
        DeviceError
            If the laser refuses or does not stop.
        """
        self._armed = None
        self._write_checked(":WAV:SWE 0", ":TRIG:INP:STAN 0")
        self._wait_for_sweep("stopped", _ARMING_S)

    def start_sweep(self, *, repeat: bool = False) -> None:
        """Start sweeps with the settings of the ``sweep_...`` parameters; ``repeat`` goes on until ``stop_sweep``.

        Raises
        ------
        LimitError
            If the laser is set to emit more than ``max_power``; nothing was changed.
        DeviceError
            If the laser refuses, or a sweep runs already.
        """
        with self._live_link().lock:
            self._require_no_sweep()
            self._check_emission()
            self._driven = True
            self._target_wavelength = None
            self._write_checked(":WAV:SWE:REP" if repeat else ":WAV:SWE 1")

    def trigger_sweep(self) -> None:
        """Give the software trigger to a sweep that waits for one; raises DeviceError if none does."""
        self._write_checked(":WAV:SWE:SOFT")

    def read_sweep_log(self) -> SweepLog:
        """Read the log of the latest sweep.

        Raises
        ------
        DeviceError
            If there is no log.
        ReplyError
            If its blocks have not the announced size, or hold what is no wavelength.
        """
        link = self._live_link()
        with link.lock:
            points = link.query(":READ:POIN?", parse_integer)
            if not 0 < points <= LONGEST_LOG:
                raise link.device_error(f"the log of the sweep has {points} points; nothing was logged")
            patience = 4.0 * points / _LOG_BYTES_PER_S
            wavelength_m = link.query_block(
                ":READ:DAT?", lambda data: parse_wavelength_log(data, points), extra_time=patience
            )
            power_w = link.query_block(
                ":READ:DAT:POW?", lambda data: parse_power_log(data, points), extra_time=patience
            )
        return SweepLog(wavelength_m, power_w, np.isfinite(power_w))

    def _check_sweep(self, planned: _Sweep) -> None:
        self._check_wavelength(planned.start_m)
        self._check_wavelength(planned.stop_m)
        self._check_speed(planned.speed_m_s)
        span_m = abs(planned.stop_m - planned.start_m)
        if not (1e-13 <= planned.step_m <= span_m and points_of(0.0, span_m, planned.step_m) <= LONGEST_LOG):
            raise LimitError(
                f"{self.name}: a sweep over {span_m:g} m cannot have steps of {planned.step_m} m; steps are 1e-13 m or "
                f"more, at most the sweep itself, and at most {LONGEST_LOG} in number. Nothing was changed"
            )

    def _check_range(self, planned: _Sweep) -> None:
        """Check the ends of the sweep against the laser's range at the speed that is set."""
        if not self._abilities.two_command_sets:
            return  # these cannot be asked; the laser itself refuses what it cannot do
        link = self._live_link()
        shortest, longest = (link.query(f":WAV:SWE:RANG:{end}?", parse_wavelength)[0] for end in ("MIN", "MAX"))
        slack = self.wavelength_tolerance
        if not all(shortest - slack <= end <= longest + slack for end in (planned.start_m, planned.stop_m)):
            raise LimitError(
                f"{self.name}: at {planned.speed_m_s:g} m/s a sweep cannot go from {planned.start_m:g} m to "
                f"{planned.stop_m:g} m; the limits are {shortest:g} m and {longest:g} m. No sweep was started; a lower "
                f"speed may have wider limits"
            )

    def _require_no_sweep(self) -> None:
        state = self._live_link().query(":WAV:SWE?", parse_sweep_state)
        if state != "stopped":
            raise self._live_link().device_error(f"a sweep is {state} already; wait for its end or call stop_sweep()")

    def _wait_for_sweep(self, state: str, deadline_s: float) -> None:
        link = self._live_link()
        self._wait_until(lambda: link.query(":WAV:SWE?", parse_sweep_state) == state, deadline_s, f"come to {state!r}")

    def _abandon_sweep(self) -> None:
        """Stop a sweep after an error, which a second error must not hide."""
        self._armed = None
        try:
            self._live_link().write(":WAV:SWE 0")
        except OptincError as error:
            self.log.error("%s may still be sweeping: %s", self.name, error)
