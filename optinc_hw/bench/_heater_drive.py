"""All heater drivers of a bench as one vector of voltages in the layout's order."""

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from optinc_hw.bench._safe_state import Step
from optinc_hw.bench.description import Attachment
from optinc_hw.bench.interlock import Interlock
from optinc_hw.bench.readings import HeaterReading
from optinc_hw.errors import InstrumentError, LimitError

if TYPE_CHECKING:
    from drivers.protocols import HeaterBank

_NOISE_V = 0.02
"""Readings below this are 0 V."""
_PROOF_V = 0.5
"""Voltage at which a heater's driver can measure its resistance."""
_GENTLE_STEP_V = 2.5
"""A first step of a ramp up to this shows a heater's resistance gently enough."""


class HeaterDrive:
    """Sends vectors of voltages to the drivers that hold them, and keeps account of what they hold.

    Drivers tell what they last set, whoever asked them to. Where they do not know, voltages are read before the next
    move, so that the limit of the total power holds for what is there.

    Parameters
    ----------
    banks
        Heater drivers by instrument name.
    attachments
        Channels and heaters of each of them.
    voltages
        Voltages measured at the start, float64 (H,), in V.
    ramp_step_v
        Largest step of a heater's voltage in V. Drivers measure resistances on the first step; where that could be the
        whole way, heaters stop at a low voltage for it the first time.
    """

    def __init__(
        self,
        banks: "Mapping[str, HeaterBank]",
        attachments: Mapping[str, Attachment],
        voltages: NDArray[np.float64],
        ramp_step_v: float,
    ) -> None:
        self._banks = banks
        self._attachments = attachments
        self._voltages = voltages
        self._trusted = np.ones(len(voltages), dtype=np.bool_)
        self._proven = np.full(len(voltages), ramp_step_v <= _GENTLE_STEP_V)
        self.driven = False
        """True once this session has moved a heater."""

    @property
    def voltages(self) -> NDArray[np.float64]:
        """Voltages last set (H,) in V; those measured at the start before the first setting."""
        with suppress(InstrumentError):  # those of a closed bench
            self._ask_drivers()
        return self._voltages.copy()

    def move(self, target: NDArray[np.float64], interlock: Interlock) -> None:
        """Check ``target`` (H,) in V as a whole, then send the channels that change.

        Raises
        ------
        LimitError
            If a limit would be exceeded. Nothing was moved, unless a note says what was: a driver that finds out only
            on the way that a heater is not as described lets the others stay where they are by then.
        InstrumentError
            If a driver failed part way; the higher of old and new then counts as the voltage of its channels.
        """
        interlock.check(target)
        known = self._look()
        # Chains move one after the other.  If old and new values mixed could pass the limit of the total power,
        # everything that falls goes first.
        present = np.where(np.isnan(self._voltages), interlock.max_voltage, np.abs(self._voltages))
        peak = interlock.power(np.maximum(present, target)).sum()
        if peak > interlock.max_total_power:
            self._change(np.minimum(present, target), known)
            known = self._ask_drivers()
        self._prove(target)
        self._change(target, known)
        fallen = known & ~self._ask_drivers()
        if fallen.any():  # a driver has found on the way that its instrument had restarted
            self._change(target, ~fallen)

    def _prove(self, target: NDArray[np.float64]) -> None:
        """Let drivers measure the resistances of heaters that have never been driven, before they get ``target``."""
        unproven = ~self._proven & (target > _PROOF_V)
        if unproven.any():
            cold = unproven & (self._voltages < _PROOF_V)
            self._send(np.full(len(target), _PROOF_V), cold)
            self._proven |= unproven

    def _ask_drivers(self) -> NDArray[np.bool_]:
        """Take over what drivers know without asking their instruments; tell where they do (H,)."""
        known = np.zeros(len(self._voltages), dtype=np.bool_)
        for name, bank in self._banks.items():
            attachment = self._attachments[name]
            last = bank.voltages_last_set()[attachment.channels]
            found = np.isfinite(last) & self._trusted[attachment.elements]
            known[attachment.elements] = found
            self._voltages[attachment.elements[found]] = last[found]
        return known

    def _look(self) -> NDArray[np.bool_]:
        """Bring the account up to date, with readings where drivers do not know; tell where they do (H,)."""
        known = self._ask_drivers()
        for name, bank in self._banks.items():
            attachment = self._attachments[name]
            unknown = ~known[attachment.elements]
            if unknown.any():
                found = bank.read_voltages()[attachment.channels][unknown]
                self._voltages[attachment.elements[unknown]] = np.where(np.abs(found) <= _NOISE_V, 0.0, found)
        return known

    def _change(self, target: NDArray[np.float64], known: NDArray[np.bool_]) -> None:
        """Send ``target`` (H,) in V where it is something else than what is ``known`` to be there."""
        self._send(target, ~known | (self._voltages != target))

    def _send(self, target: NDArray[np.float64], changed: NDArray[np.bool_]) -> None:
        """Send those of ``target`` (H,) in V that are ``changed``."""
        moved: list[str] = []
        for name, bank in self._banks.items():
            attachment = self._attachments[name]
            moves = changed[attachment.elements]
            if not moves.any():
                continue
            elements = attachment.elements[moves]
            self.driven = True
            self._trusted[elements] = False
            try:
                bank.set_voltages(
                    dict(zip(attachment.channels[moves].tolist(), target[elements].tolist(), strict=True))
                )
            except LimitError as error:  # the driver knows more about its heaters than we do, and moved nothing
                self._trusted[elements] = True
                if moved:
                    error.add_note(f"the heaters on {', '.join(moved)} had moved to their targets by then")
                raise
            except BaseException:
                self._voltages[elements] = np.fmax(np.abs(self._voltages[elements]), target[elements])
                raise
            self._voltages[elements] = target[elements]
            self._trusted[elements] = True
            moved.append(name)

    def read(self, interlock: Interlock) -> HeaterReading:
        """Measure voltage and current of all heaters; 0 where none is wired (a stuck phase).

        Heaters that turn out to be beyond their limits, as after a drift, are logged.

        Raises
        ------
        InstrumentError
            If a driver failed; as it may have switched outputs off, the next `move` sends all its channels again.
        """
        voltage, current = np.zeros(len(self._voltages)), np.zeros(len(self._voltages))
        for name, bank in self._banks.items():
            attachment = self._attachments[name]
            try:
                voltage[attachment.elements] = bank.read_voltages()[attachment.channels]
                current[attachment.elements] = bank.read_currents()[attachment.channels]
            except InstrumentError:
                self._trusted[attachment.elements] = False
                raise
        interlock.judge(voltage, current)
        return HeaterReading(voltage, current)

    def safe_steps(self) -> list[Step]:
        """One step for each driver that ramps all its channels to 0 V."""
        return [(name, bank.make_safe) for name, bank in self._banks.items()]

    def note_safe(self, reached: bool) -> None:
        """Remember that all channels are at 0 V, or (``reached`` False) that their state is unknown."""
        self._trusted[:] = reached
        if reached:
            self._voltages[:] = 0.0
