"""Standard event status of IEEE 488.2: which classes of errors have happened since somebody looked."""

from simulated_instruments._scpi import ErrorQueue, ScpiError

OPERATION_COMPLETE, QUERY_ERROR, DEVICE_ERROR, EXECUTION_ERROR, COMMAND_ERROR, POWER_ON = 1, 4, 8, 16, 32, 128

_CLASSES = {-1: COMMAND_ERROR, -2: EXECUTION_ERROR, -3: DEVICE_ERROR, -4: QUERY_ERROR}


class EventStatusQueue(ErrorQueue):
    """Error queue beside the event status register, in which every error leaves the bit of its class.

    Parameters
    ----------
    form
        Printf form of an entry, with the code and the text.
    depth
        Number of entries.
    """

    def __init__(self, form: str, depth: int = 30) -> None:
        super().__init__(form, depth)
        self._events = POWER_ON

    def push(self, error: ScpiError) -> None:
        """Add an error."""
        self._events |= _CLASSES.get(int(error.code / 100), DEVICE_ERROR)
        super().push(error)

    def note(self, event: int) -> None:
        """Set bits of the register."""
        self._events |= event

    def take_events(self) -> int:
        """Return the register and clear it."""
        events, self._events = self._events, 0
        return events

    def clear(self) -> None:
        """Forget all entries and events."""
        super().clear()
        self._events = 0

    def power_up(self) -> None:
        """Go back to the state after switching on."""
        super().clear()
        self._events = POWER_ON
