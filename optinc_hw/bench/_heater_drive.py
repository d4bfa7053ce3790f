"""All heater drivers of a bench as one vector of voltages in the layout's order."""

from collections.abc import Mapping
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


class HeaterDrive:
    """Sends vectors of voltages to the drivers that hold them, and remembers what was sent.

    Parameters
    ----------
    banks
        Heater drivers by instrument name.
    attachments
        Channels and heaters of each of them.
    voltages
        Voltages measured at the start, float64 (H,), in V.
    """

    def __init__(
        self, banks: "Mapping[str, HeaterBank]", attachments: Mapping[str, Attachment], voltages: NDArray[np.float64]
    ) -> None:
        self._banks = banks
        self._attachments = attachments
        self._voltages = voltages
        self._known = np.zeros(len(voltages), dtype=np.bool_)
        self.driven = False
        """True once this session has moved a heater."""

    @property
    def voltages(self) -> NDArray[np.float64]:
        """Voltages last set (H,) in V; those measured at the start before the first setting."""
        return self._voltages.copy()

    def move(self, target: NDArray[np.float64], interlock: Interlock) -> None:
        """Check ``target`` (H,) in V as a whole, then send the channels that change.

        Raises
        ------
        LimitError
            If a limit would be exceeded; nothing was moved.
        InstrumentError
            If a driver failed part way; the higher of old and new then counts as the voltage of its channels.
        """
        interlock.check(target)
        # Chains move one after the other.  If old and new values mixed could pass the limit of the total power,
        # everything that falls goes first.
        peak = interlock.power(np.maximum(self._voltages, target)).sum()
        if peak > interlock.max_total_power:
            self._send(np.minimum(self._voltages, target))
        self._send(target)

    def _send(self, target: NDArray[np.float64]) -> None:
        changed = ~self._known | (self._voltages != target)
        for name, bank in self._banks.items():
            attachment = self._attachments[name]
            moves = changed[attachment.elements]
            if not moves.any():
                continue
            elements = attachment.elements[moves]
            self.driven = True
            try:
                bank.set_voltages(
                    dict(zip(attachment.channels[moves].tolist(), target[elements].tolist(), strict=True))
                )
            except LimitError:  # the driver knows more about its heaters than we do, and moved nothing
                self._known[elements] = False
                raise
            except BaseException:
                self._voltages[elements] = np.maximum(self._voltages[elements], target[elements])
                self._known[elements] = False
                raise
            self._voltages[elements] = target[elements]
            self._known[elements] = True

    def read(self) -> HeaterReading:
        """Measure voltage and current of all heaters; 0 where none is wired (a stuck phase).

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
                self._known[attachment.elements] = False
                raise
        return HeaterReading(voltage, current)

    def safe_steps(self) -> list[Step]:
        """One step for each driver that ramps all its channels to 0 V."""
        return [(name, bank.make_safe) for name, bank in self._banks.items()]

    def note_safe(self, reached: bool) -> None:
        """Remember that all channels are at 0 V, or (``reached`` False) that their state is unknown."""
        self._known[:] = reached
        if reached:
            self._voltages[:] = 0.0
