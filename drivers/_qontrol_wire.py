"""Commands of a chain of Qontrol modules."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from drivers._heater_limits import plausible
from drivers._heater_outputs import HeaterWire, Quantity
from drivers._link import Link
from drivers._qontrol_protocol import (
    CHANNELS_PER_MODULE,
    FullScale,
    explain_errors,
    parse_amperes,
    parse_ok,
    parse_volts,
    voltage_code,
    voltage_frame,
)
from drivers._ramp import neighbours

_VOLT_DECIMALS = 5
"""10 uV: an eighteenth of the converter's step, and short enough for the module's instruction buffer."""


class QontrolWire(HeaterWire):
    """Commands to the modules at the far end of ``link``; one sets channels of one module.

    Replies are text in both modes, and so are queries: binary ones are answered more slowly by chains of modules.

    Parameters
    ----------
    link
        Open link to the chain.
    modules
        Number of modules in the chain.
    full_scale
        Full scale of every module.
    binary
        Whether voltages are set with binary frames instead of text.
    """

    def __init__(self, link: Link, modules: int, full_scale: FullScale, *, binary: bool) -> None:
        self.channel_count = modules * CHANNELS_PER_MODULE
        self.full_voltage = full_scale.voltage
        self.full_current = full_scale.current
        self._make_command = self._frame if binary else self._line
        self._link = link
        self._modules = modules
        self._parsers: Mapping[Quantity, Callable[[str], float]] = {
            "V": plausible(parse_volts, full_scale.voltage, "V"),
            "I": plausible(parse_amperes, full_scale.current, "A"),
        }

    def read(self, quantity: Quantity, channel: int) -> float:
        """Measure with ``V<n>?`` or ``I<n>?``."""
        return self._link.query(f"{quantity}{channel}?", self._parsers[quantity])

    def read_all(self, quantity: Quantity, *, tolerate_errors: bool = False) -> list[float]:
        """Measure with ``VALL?`` or ``IALL?``."""
        return self._link.query_lines(
            f"{quantity}ALL?", self.channel_count, self._parsers[quantity], tolerate_events=tolerate_errors
        )

    def groups(self, moves: Mapping[int, float], known: Sequence[float]) -> Iterable[dict[int, float]]:
        """Cut moves into runs of neighbouring channels of one module."""
        return neighbours(moves, known, CHANNELS_PER_MODULE)

    def send(self, voltages: Mapping[int, float], *, tolerate_errors: bool = False) -> None:
        """Set a run of channels of one module, which acknowledges it with OK."""
        self._link.query_lines(self._make_command(voltages), 1, parse_ok, tolerate_events=tolerate_errors)

    def _line(self, voltages: Mapping[int, float]) -> str:
        values = ",".join([f"{value:.{_VOLT_DECIMALS}f}" for value in voltages.values()])
        return f"VVEC{next(iter(voltages))}={values}"

    def _frame(self, voltages: Mapping[int, float]) -> bytes:
        codes = [voltage_code(value, self.full_voltage) for value in voltages.values()]
        return voltage_frame(next(iter(voltages)), codes)

    def finish(self, voltages: Mapping[int, float]) -> None:  # noqa: ARG002 - errors do not name their channel
        """Raise DeviceError if a module has reported an error."""
        self.check_errors()

    def check_errors(self) -> None:
        """Raise DeviceError if a module has reported an error since the last exchange; sends nothing."""
        events = self._link.take_events()
        if events:
            raise self._link.device_error(f"the instrument reported {explain_errors(self._modules, events)}")
