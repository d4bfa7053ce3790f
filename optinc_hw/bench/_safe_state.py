"""Leaving a bench: every instrument made safe, once, whatever else fails or interrupts."""

import logging
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from optinc_hw.errors import InstrumentError

log = logging.getLogger(__name__)

Step = tuple[str, Callable[[], object]]
"""Name of an instrument and what to do with it."""


_TERMINATION = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Signals that end a process unless they are caught; SIGHUP, sent when a terminal closes, exists on POSIX only."""


class TerminationHandler:
    """Turns SIGTERM and SIGHUP into SystemExit while a bench is open, so that ``with`` blocks and ``atexit`` run.

    The handler does no I/O itself: the main thread may be in the middle of an exchange.  It is installed only
    from the main thread (Python allows it nowhere else), and the former handler is put back.  Several benches may be
    open and closed in any order: each has a handler of its own, and one that is no longer wanted passes the signal on.
    A signal that is ignored, as SIGHUP is under ``nohup``, stays ignored.
    """

    def __init__(self) -> None:
        self._former: dict[int, Any] = {}  # Any: a function, an enumeration member or None for a foreign C handler
        self._installed = False

    def install(self) -> None:
        """Install the handler if this is the main thread."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._installed = True
        for number in _TERMINATION:
            if signal.getsignal(number) != signal.SIG_IGN:
                self._former[number] = signal.signal(number, self._terminate)

    def restore(self) -> None:
        """Put the former handlers back, unless somebody else has replaced ours meanwhile."""
        if not self._installed or threading.current_thread() is not threading.main_thread():
            return
        self._installed = False
        for number in self._former:
            if signal.getsignal(number) == self._terminate:
                self._put_former_back(number)

    def _put_former_back(self, number: int) -> None:
        former = self._former[number]
        signal.signal(number, signal.SIG_DFL if former is None else former)

    def _terminate(self, number: int, _frame: FrameType | None) -> None:
        if self._installed:
            raise SystemExit(128 + number)
        self._put_former_back(number)
        signal.raise_signal(number)


@contextmanager
def deferred_signals() -> Iterator[None]:
    """Hold back SIGINT, SIGTERM and SIGHUP until the block ends: a second Ctrl-C must not stop the ramp to safety."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pending: list[int] = []
    numbers = (signal.SIGINT, *_TERMINATION)
    former = {number: signal.signal(number, lambda got, _frame: pending.append(got)) for number in numbers}
    try:
        yield
    finally:
        for held, handler in former.items():
            signal.signal(held, signal.SIG_DFL if handler is None else handler)
        for number in dict.fromkeys(pending):
            signal.raise_signal(number)


def run_all(steps: Iterable[Step], failures: list[str]) -> None:
    """Run each step, also after others failed; put one line for each failure into ``failures``.

    What is no error but an interruption is raised when all steps have run.
    """
    interruption: BaseException | None = None
    for name, action in steps:
        try:
            action()
        except BaseException as error:  # noqa: BLE001 - nothing must keep the other instruments from their safe state
            log.error("%s: could not be brought into the safe state: %s", name, error)
            failures.append(f"{name}: {error}")
            if not isinstance(error, Exception):
                interruption = error
    if interruption is not None:
        raise interruption


def unsafe_error(failures: list[str]) -> InstrumentError:
    """Error that lists the instruments which could not be made safe."""
    return InstrumentError(
        f"{len(failures)} instrument(s) may not be in the safe state; all others are. Check the outputs by hand, then "
        f"reconnect (the next start reports outputs that are not zero): " + " | ".join(failures)
    )
