"""Commands of a chain of Qontrol modules."""

from collections.abc import Callable, Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from drivers._heater_limits import plausible
from drivers._heater_outputs import HeaterWire, Quantity
from drivers._link import Link
from drivers._qontrol_protocol import CHANNELS_PER_MODULE, explain_errors, parse_amperes, parse_ok, parse_volts
from drivers._ramp import neighbours

_VOLT_DECIMALS = 5
"""10 uV: an eighteenth of the converter's step, and short enough for the module's instruction buffer."""


class QontrolWire(HeaterWire):
    """Text commands to the modules at the far end of ``link``; one VVEC sets channels of one module.

    Parameters
    ----------
    link
        Open link to the chain.
    modules
        Number of modules in the chain.
    full_voltage, full_current
        Full scale of the modules in V and A.
    """

    def __init__(self, link: Link, modules: int, full_voltage: float, full_current: float) -> None:
        self.channel_count = modules * CHANNELS_PER_MODULE
        self.full_voltage = full_voltage
        self.full_current = full_current
        self._link = link
        self._modules = modules
        self._parsers: Mapping[Quantity, Callable[[str], float]] = {
            "V": plausible(parse_volts, full_voltage, "V"),
            "I": plausible(parse_amperes, full_current, "A"),
        }

    def read(self, quantity: Quantity, channel: int) -> float:
        """Measure with ``V<n>?`` or ``I<n>?``."""
        return self._link.query(f"{quantity}{channel}?", self._parsers[quantity])

    def read_all(self, quantity: Quantity, *, tolerate_errors: bool = False) -> list[float]:
        """Measure with ``VALL?`` or ``IALL?``."""
        return self._link.query_lines(
            f"{quantity}ALL?", self.channel_count, self._parsers[quantity], tolerate_events=tolerate_errors
        )

    def groups(self, moves: Mapping[int, float], known: NDArray[np.float64]) -> Iterable[dict[int, float]]:
        """Cut moves into runs of neighbouring channels of one module."""
        return neighbours(moves, known, CHANNELS_PER_MODULE)

    def send(self, voltages: Mapping[int, float], *, tolerate_errors: bool = False) -> None:
        """Set a run of channels with one VVEC, which is acknowledged with OK."""
        values = ",".join([f"{value:.{_VOLT_DECIMALS}f}" for value in voltages.values()])
        command = f"VVEC{next(iter(voltages))}={values}"
        self._link.query_lines(command, 1, parse_ok, tolerate_events=tolerate_errors)

    def finish(self, voltages: Mapping[int, float]) -> None:  # noqa: ARG002 - errors do not name their channel
        """Raise DeviceError if a module has reported an error."""
        self.check_errors()

    def check_errors(self) -> None:
        """Raise DeviceError if a module has reported an error since the last exchange; sends nothing."""
        events = self._link.take_events()
        if events:
            raise self._link.device_error(f"the instrument reported {explain_errors(self._modules, events)}")
