"""Keysight tunable lasers: 8164A/B mainframe with an 816xx module, and N7776C, N7778C, N7779C."""

import math
import re
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from qcodes.instrument import InstrumentBaseKWArgs
from typing_extensions import Unpack

from drivers._keysight_laser_settings import SMALLEST_STEP_M, KeysightLaserSettings, parse_sweep_state
from drivers._laser_sweep import LOG_BYTES_PER_S, PlannedSweep, SweepCommands
from drivers._parsing import parse_integer, parse_number
from drivers._sweep_log import SweepLog
from drivers.protocols import SimulatedAs
from optinc_hw.errors import LimitError
from optinc_hw.units import m_to_nm

_CHECK = re.compile(r"[+-]?(\d+)\s*,\s*(.*)", re.ASCII | re.DOTALL)
_PROBLEMS = {
    368: "it must end at a longer wavelength than it starts at",
    369: "it would take too little time; lower the speed",
    370: "it would take too much time; raise the speed",
    371: "triggers would come too fast; lower the speed or take a larger step",
    372: "the step is too small",
    373: "there would be too many triggers; take a larger step",
    374: "wavelengths are logged without any modulation but coherence control; switch modulation off",
    375: "wavelengths are logged only with a trigger at each step; set trigger_output to step",
    376: "wavelengths are logged only in continuous sweeps; set sweep_mode to continuous",
    377: "the step is no multiple of the smallest one",
    378: "there would be too many triggers; take a larger step",
    379: "continuous sweeps go without modulation; switch modulation off",
    380: "it starts at too short a wavelength",
    381: "it ends at too long a wavelength",
}


class KeysightLaser(KeysightLaserSettings):
    """Keysight tunable laser; implements :class:`drivers.protocols.Laser`.

    There is no shutter: darkness is the laser switched off. The unit of its powers can be switched at the front panel;
    the driver asks for it before it reads a power, sets powers with their unit, and changes nothing. Connecting only
    asks (``*IDN?``, the module in the slot, the wavelength range); closing switches the laser off if this session
    changed the light. A locked laser is unlocked by :meth:`unlock` alone.

    ``sweep`` runs one continuous wavelength sweep and returns what the laser logged. ``arm_sweep`` and
    ``finish_sweep`` do the same in two parts, with time in between to make a power meter ready for the laser's
    triggers; they leave the sweep and trigger settings as they need them. Such a sweep goes to longer wavelengths, and
    its log has no powers. ``start_sweep`` runs whatever the ``sweep_...`` and ``trigger_...`` parameters say.

    Parameters
    ----------
    name
        Name of the instrument.
    address
        VISA resource, such as ``TCPIP0::192.168.1.102::hislip0::INSTR`` or ``TCPIP0::192.168.1.102::5025::SOCKET``.
    model
        Model that must answer, such as ``"8164B"``; None takes 8164A, 8164B, N7776C, N7778C or N7779C.
    slot
        Slot of the laser module in a mainframe; 0 otherwise.
    timeout
        Time in s that a complete reply may take.
    max_power
        Highest power in W that may be set, and with which light may be let out; 20 mW by default.
    visalib
        pyvisa library.
    **kwargs
        ``metadata`` and ``label`` of the QCoDeS instrument.

    Raises
    ------
    ConfigurationError
        If there is no such model or slot.
    LinkError
        If the laser cannot be reached or does not answer.
    IdentityError
        If something else answers, or the slot holds no laser.
    """

    simulated_as: ClassVar = SimulatedAs(kind="keysight_laser", option_keys=("model", "slot"))

    _smallest_step_m = SMALLEST_STEP_M
    _longest_log = 100_001

    def __init__(
        self,
        name: str,
        address: str,
        *,
        model: str | None = None,
        slot: int = 0,
        timeout: float = 2.0,
        max_power: float = 20e-3,
        visalib: str = "@py",
        **kwargs: Unpack[InstrumentBaseKWArgs],
    ) -> None:
        super().__init__(
            name, address, model=model, slot=slot, timeout=timeout, max_power=max_power, visalib=visalib, **kwargs
        )
        sweep = f"{self._source}:wav:swe"
        self._sweep_commands = SweepCommands(
            start=f"{sweep} 1", stop=f"{sweep} 0", trigger=f"{sweep}:soft", ignore_trigger=f"{self._trigger}:inp ign"
        )

    def start_sweep(self) -> None:
        """Start a sweep with the settings of the ``sweep_...`` and ``trigger_...`` parameters.

        Raises
        ------
        LimitError
            If the laser is set to emit more than ``max_power``; nothing was changed.
        DeviceError
            If the settings do not fit together, a sweep runs already, or the laser refuses.
        """
        with self._live_link().lock:
            self._require_no_sweep()
            self._require_consistent()
            self._check_emission()
            self._driven = True
            self._target_wavelength = None
            self._write_checked(self._sweep_commands.start)

    def pause_sweep(self) -> None:
        """Hold the sweep that runs; raises DeviceError if none does."""
        self._write_checked(f"{self._source}:wav:swe paus")

    def resume_sweep(self) -> None:
        """Go on with the sweep that is held; raises DeviceError if none is."""
        self._write_checked(f"{self._source}:wav:swe cont")

    def step_sweep(self, *, back: bool = False) -> None:
        """Go to the next or previous step of a manual sweep or of a stepped one that is held.

        Raises
        ------
        DeviceError
            If there is no such sweep.
        """
        self._write_checked(f"{self._source}:wav:swe:step:{'prev' if back else 'next'}")

    def sweep_problem(self) -> str | None:
        """Ask what in the present settings keeps a sweep from starting; None if nothing does."""
        number, text = self._live_link().query(f"{self._source}:wav:swe:chec?", _parse_check)
        return (
            None if number == 0 else f"{_PROBLEMS.get(number, 'its settings do not fit together')} ({number}, {text})"
        )

    def highest_sweep_power(self, start_m: float, stop_m: float) -> float:
        """Ask for the highest power in W that the laser can hold between two wavelengths in m."""
        self._check_wavelength(start_m)
        self._check_wavelength(stop_m)
        ends = f"{m_to_nm(start_m):.4f}nm,{m_to_nm(stop_m):.4f}nm"
        return self._live_link().query(f"{self._source}:wav:swe:pmax? {ends}", parse_number)

    def read_sweep_log(self) -> SweepLog:
        """Read the log of the latest sweep.

        Raises
        ------
        DeviceError
            If there is no log.
        ReplyError
            If its block has not the announced size, or holds what is no wavelength.
        """
        link = self._live_link()
        with link.lock:
            points = self._ask_log_points(f"{self._source}:read:poin? llog")
            wavelength_m = link.query_block(
                f"{self._source}:read:data? llog",
                lambda data: _parse_log(data, points, self.plausible_wavelengths),
                extra_time=8.0 * points / LOG_BYTES_PER_S,
            )
        return SweepLog(wavelength_m, np.full(points, math.nan), np.zeros(points, dtype=np.bool_))

    def _check_sweep_speed(self, planned: PlannedSweep) -> None:
        if not (planned.stop_m > planned.start_m and 0.0 < planned.speed_m_s < math.inf):
            raise LimitError(
                f"{self.name}: a sweep cannot go from {planned.start_m:g} m to {planned.stop_m:g} m with "
                f"{planned.speed_m_s:g} m/s; the second wavelength must be the longer one and the speed positive. "
                f"Nothing was changed"
            )

    def _set_up_sweep(self, planned: PlannedSweep) -> None:
        sweep = f"{self._source}:wav:swe"
        self._write_checked(
            f"{sweep}:mode cont",
            f"{sweep}:star {m_to_nm(planned.start_m):.4f}nm",
            f"{sweep}:stop {m_to_nm(planned.stop_m):.4f}nm",
            f"{sweep}:step {m_to_nm(planned.step_m) * 1e3:.1f}pm",
            f"{sweep}:spe {m_to_nm(planned.speed_m_s):.6f}nm/s",
            f"{sweep}:cycl 1",
            f"{sweep}:rep onew",
            f"{self._trigger}:outp stf",
            f"{self._trigger}:inp sws",
            f"{sweep}:llog 1",
        )
        self._require_consistent()
        self._check_power_over(planned)

    def _require_consistent(self) -> None:
        problem = self.sweep_problem()
        if problem is not None:
            raise self._live_link().device_error(f"the sweep was not started: {problem}")

    def _check_power_over(self, planned: PlannedSweep) -> None:
        highest_w = self.highest_sweep_power(planned.start_m, planned.stop_m)
        power_w = self._ask_power()
        if power_w > highest_w * 10.0 ** (self.power_tolerance_db / 10.0):
            raise LimitError(
                f"{self.name}: the power is {power_w:g} W, but the laser can hold only {highest_w:g} W from "
                f"{planned.start_m:g} m to {planned.stop_m:g} m. No sweep was started; set a lower power"
            )

    def _waits_for_trigger(self) -> bool:
        return self._live_link().query(f"{self._source}:wav:swe:flag?", parse_integer) % 2 == 1

    def _ask_sweep_state(self) -> str:
        return self._live_link().query(f"{self._source}:wav:swe?", parse_sweep_state)


def _parse_check(text: str) -> tuple[int, str]:
    match = _CHECK.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} does not tell whether the sweep is possible")
    return int(match.group(1)), match.group(2).strip().strip('"')


def _parse_log(data: bytes, points: int, plausible: tuple[float, float]) -> NDArray[np.float64]:
    """Parse little-endian float64 wavelengths in m."""
    if len(data) != 8 * points:
        raise ValueError(f"its block has {len(data)} bytes, but {points} points are {8 * points}")
    wavelength_m = np.frombuffer(data, dtype="<f8").astype(np.float64)
    if not np.all((wavelength_m >= plausible[0]) & (wavelength_m <= plausible[1])):
        raise ValueError("its block holds what is no wavelength in m")
    return wavelength_m
