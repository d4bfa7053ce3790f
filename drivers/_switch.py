"""What drivers of optical switches share."""

import math
from numbers import Integral

from drivers._instrument import LinkedInstrument
from optinc_hw.errors import LimitError


class SwitchInstrument(LinkedInstrument):
    """An optical switch; it has no safe state and is left as it stands.

    Subclasses set ``settle_time`` in their constructor and implement the methods of
    :class:`drivers.protocols.Switch`.
    """

    @property
    def settle_time(self) -> float:
        """Time in s that is waited on the clock after the switch reports a new position, for the light to settle."""
        return self._settle_time

    @settle_time.setter
    def settle_time(self, seconds: float) -> None:
        if not 0.0 <= seconds < math.inf:
            raise LimitError(f"{self.name}: settle_time cannot be {seconds} s; give 0 s or more")
        self._settle_time = float(seconds)

    def make_safe(self) -> None:
        """Do nothing: every position of a switch is safe."""

    def _is_driven(self) -> bool:
        return False

    def _checked(self, what: str, port: int, count: int) -> int:
        if isinstance(port, bool) or not isinstance(port, Integral) or not 0 <= port < count:
            raise LimitError(
                f"{self.name}: there is no {what} {port!r}; the switch has {what}s 0 to {count - 1}. Nothing was "
                f"changed"
            )
        return int(port)
