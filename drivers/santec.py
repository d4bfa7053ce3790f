"""Santec TSL-550, TSL-570, TSL-710 and TSL-770 tunable lasers."""

from typing import ClassVar

import numpy as np
from qcodes.instrument import InstrumentBaseKWArgs
from typing_extensions import Unpack

from drivers._laser_sweep import LOG_BYTES_PER_S, PlannedSweep, SweepCommands
from drivers._santec_settings import SantecSettings
from drivers._santec_wire import LONGEST_LOG, parse_power_log, parse_sweep_state, parse_wavelength, parse_wavelength_log
from drivers._sweep_log import SweepLog
from drivers.protocols import SimulatedAs
from optinc_hw.errors import LimitError


class SantecTSL570(SantecSettings):
    """Santec TSL tunable laser (550, 570, 710 or 770); implements :class:`drivers.protocols.Laser`.

    The 570 and 770 have two command sets, one with nanometres and one with metres, and all have two power units; both
    can be switched at the front panel. The driver changes neither by itself: it asks before every set. Connecting only
    asks (``*IDN?``); closing shuts the shutter if this session changed the light.

    ``sweep`` runs one continuous wavelength sweep and returns what the laser logged. ``arm_sweep`` and
    ``finish_sweep`` do the same in two parts, with time in between to make a power meter ready for the laser's
    triggers. A sweep may go either way; the light must be on for the powers of its log to mean anything.

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

    _sweep_commands = SweepCommands(
        start=":WAV:SWE 1", stop=":WAV:SWE 0", trigger=":WAV:SWE:SOFT", ignore_trigger=":TRIG:INP:STAN 0"
    )
    _smallest_step_m = 1e-13
    _longest_log = LONGEST_LOG

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
        self._add_sweep_parameters()
        self._add_trigger_parameters()

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
            points = self._ask_log_points(":READ:POIN?")
            patience = 4.0 * points / LOG_BYTES_PER_S
            wavelength_m = link.query_block(
                ":READ:DAT?", lambda data: parse_wavelength_log(data, points), extra_time=patience
            )
            power_w = link.query_block(
                ":READ:DAT:POW?", lambda data: parse_power_log(data, points), extra_time=patience
            )
        return SweepLog(wavelength_m, power_w, np.isfinite(power_w))

    def _check_sweep_speed(self, planned: PlannedSweep) -> None:
        self._check_speed(planned.speed_m_s)

    def _set_up_sweep(self, planned: PlannedSweep) -> None:
        self._write_checked(f":WAV:SWE:SPE {self._speed_text(planned.speed_m_s)}")
        self._check_range(planned)
        metres = self._uses_metres()
        self._write_checked(
            ":WAV:SWE:MOD 1",
            f":WAV:SWE:STAR {self._length_in(metres, planned.start_m)}",
            f":WAV:SWE:STOP {self._length_in(metres, planned.stop_m)}",
            ":WAV:SWE:CYCL 1",
            ":TRIG:OUTP 3",
            ":TRIG:OUTP:SETT 0",
            f":TRIG:OUTP:STEP {self._length_in(metres, planned.step_m)}",
            ":TRIG:INP:STAN 1",
        )

    def _check_range(self, planned: PlannedSweep) -> None:
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

    def _ask_sweep_state(self) -> str:
        return self._live_link().query(":WAV:SWE?", parse_sweep_state)

    def _waits_for_trigger(self) -> bool:
        return self._ask_sweep_state() == "waiting for trigger"
