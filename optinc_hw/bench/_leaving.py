"""The life of an open bench: one lock while it is used, and one way out that leaves everything safe."""

import atexit
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from optinc_hw.bench._heater_drive import HeaterDrive
from optinc_hw.bench._light_path import LightPath
from optinc_hw.bench._safe_state import Step, TerminationHandler, deferred_signals, run_all, unsafe_error
from optinc_hw.errors import InstrumentError


class OpenSession:
    """What an open bench must leave safe, and the lock under which it is used.

    Parameters
    ----------
    folder
        Bench folder, for messages.
    heaters, light
        What the session drives.
    stack
        Closes the instruments.
    """

    def __init__(self, folder: Path, heaters: HeaterDrive, light: LightPath, stack: ExitStack) -> None:
        self.lock = threading.RLock()
        """Held during every use of the instruments."""
        self._folder = folder
        self._heaters = heaters
        self._light = light
        self._process = os.getpid()
        self._closed = False
        self._termination = TerminationHandler()
        self._termination.install()
        atexit.register(self.close)
        self._stack = stack.pop_all()

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Hold the lock of an open bench; raises InstrumentError if it is closed."""
        with self.lock:
            self._require_open()
            yield

    def close(self) -> None:
        """Leave; raises InstrumentError if an instrument could not be made safe."""
        failures = self.leave()
        if failures:
            raise unsafe_error(failures)

    def leave(self) -> list[str]:
        """Make safe what was driven and close the instruments, once; return one line for each failure."""
        failures: list[str] = []
        if os.getpid() != self._process:  # a forked child must not move the parent's heaters
            return failures
        try:
            # Signals wait from before the lock on, for which another thread may let us wait.
            with deferred_signals(), self.lock:
                if not self._closed:
                    self._closed = True  # not before: a signal in between would leave the bench closed and unsafe
                    steps = self._safe_steps(self._heaters.driven, self._light.driven)
                    run_all([*steps, ("closing the instruments", self._stack.close)], failures)
        except BaseException as error:
            if failures:
                error.add_note(str(unsafe_error(failures)))
            raise
        finally:
            if self._closed:
                self._termination.restore()
                atexit.unregister(self.close)
        return failures

    def make_safe(self) -> None:
        """Make everything safe, also what this session did not drive; raises InstrumentError as `close`."""
        failures: list[str] = []
        with deferred_signals(), self.lock:
            self._require_open()
            self._heaters.driven = self._light.driven = True
            self._heaters.note_safe(reached=False)
            run_all(self._safe_steps(True, True), failures)
            self._heaters.note_safe(reached=not failures)
        if failures:
            raise unsafe_error(failures)

    def _safe_steps(self, heaters: bool, laser: bool) -> list[Step]:
        from qcodes.instrument import Instrument

        steps = [*(self._heaters.safe_steps() if heaters else ()), *(self._light.safe_steps() if laser else ())]
        # A driver that QCoDeS has closed already (Instrument.close_all) made itself safe then.
        return [step for step in steps if Instrument.exist(step[0])]

    def _require_open(self) -> None:
        if self._closed:
            raise InstrumentError(
                f"the bench in {self._folder} is closed; open it again with Bench.open, and use it inside its `with`"
            )
