"""The journal of one calibration run: every sweep is on disk before the next one begins.

A run that was killed is taken up by running the same code again: sweeps that the journal holds are given back
instead of measured, and what the code asks for must be, bit for bit, what was asked for then.
"""

import hashlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from calibration._journal_format import AnyArray, Frame, FrameKind, plain_array
from calibration._journal_run import (
    READINGS,
    RESERVED,
    Arrays,
    Results,
    RunHeader,
    Step,
    pack_step,
    software_version,
    unpack,
)
from calibration._journal_writer import JournalWriter
from optinc_hw.errors import CalibrationError

_log = logging.getLogger(__name__)

SUFFIX = ".journal"
"""What is added to the name of a run's netCDF file for its journal."""

Keep = Callable[[str, Arrays, Callable[[], Arrays]], dict[str, AnyArray]]
"""`Journal.step` of some journal, or `unstored`."""


def unstored(stage: str, asked: Arrays, measure: Callable[[], Arrays]) -> dict[str, AnyArray]:
    """Measure as `Journal.step` does, and keep nothing."""
    del stage, asked
    return {name: plain_array(name, values) for name, values in measure().items()}


class Journal:
    """Sweeps of one run, stored ones first; made by `create`, `resume` or `replay`, used as a context manager.

    Parameters
    ----------
    header
        Which run it is.
    steps, results
        What is stored.
    writer
        The file for what is not; None for a replay.
    now
        Time in s since 1970-01-01 UTC, for the sweeps' stamps.
    """

    def __init__(
        self, header: RunHeader, steps: Iterable[Step], results: Mapping[str, dict[str, AnyArray]],
        writer: JournalWriter | None, now: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self.header = header
        self._steps, self._results = list(steps), dict(results)
        self._writer, self._now = writer, now
        self._done = 0

    @classmethod
    def create(cls, path: Path, header: RunHeader, now: Callable[[], float] = time.time) -> Self:
        """Begin the journal of a new run.

        Raises
        ------
        CalibrationError
            If there is one already, or it cannot be written.
        LinkError
            If another process is writing it.
        """
        first = Frame(FrameKind.HEADER, {"header": header.to_json()}, {})
        return cls(header, [], {}, JournalWriter.create(path, first), now)

    @classmethod
    def resume(cls, path: Path, header: RunHeader, now: Callable[[], float] = time.time) -> Self:
        """Take up an unfinished run; the torn entry of a process that was killed is dropped.

        Parameters
        ----------
        path
            The journal.
        header
            What is asked for now; start, version and attributes stay those of the journal.
        now
            See the class.

        Raises
        ------
        CalibrationError
            If the file cannot be read or written, is damaged before its end, or is of another run.
        LinkError
            If another process is writing it.
        """
        writer, scan = JournalWriter.take_up(path)
        try:
            found, steps, results = unpack(scan, str(path))
            found.require_same_run(header, str(path))
        except BaseException:
            writer.close()
            raise
        if found.software != header.software:
            _log.warning("%s was begun with %s and goes on with %s", path, found.software, header.software)
        if steps:
            _log.info(
                "%s holds %d sweeps, the last of them %.0f s old; measuring goes on behind them",
                path, len(steps), now() - steps[-1].time_s,
            )  # fmt: skip
        return cls(found, steps, results, writer, now)

    @classmethod
    def replay(cls, header: RunHeader, steps: Iterable[Step], results: Results | None = None) -> Self:
        """Give stored sweeps and results back without a bench; asking for more sweeps raises CalibrationError."""
        return cls(header, steps, {} if results is None else results, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file, which stays for `resume` if it holds a sweep, and let others write it; a replay has none."""
        if self._writer is not None and not self._steps:
            self._writer.remove()
        elif self._writer is not None:
            self._writer.close()

    def remove(self) -> None:
        """Close and delete the file of a run whose data are safe elsewhere; a replay has none.

        Raises
        ------
        CalibrationError
            If it cannot be deleted.
        """
        if self._writer is not None:
            self._writer.remove()

    @property
    def steps(self) -> tuple[Step, ...]:
        """All sweeps, stored and measured."""
        return tuple(self._steps)

    @property
    def results(self) -> Results:
        """All results, stored and computed, by the hash of what they depend on."""
        return dict(self._results)

    @property
    def stored(self) -> bool:
        """Whether this is a replay: everything is stored, nothing can be measured."""
        return self._writer is None

    @property
    def replaying(self) -> bool:
        """Whether stored sweeps are left that were not given back yet."""
        return self._done < len(self._steps)

    @property
    def readings(self) -> int:
        """Detector readings given back or measured so far."""
        return sum(step.rows for step in self._steps[: self._done] if READINGS in step.answered)

    def step(self, stage: str, asked: Arrays, measure: Callable[[], Arrays]) -> dict[str, AnyArray]:
        """Return what the journal holds for this sweep, or measure it and store it.

        Parameters
        ----------
        stage
            Part of the run.
        asked
            What the bench is asked for, float64, int64 or bool arrays by name; names end in the unit, such as
            ``power_w``.  Of all arrays the first axis is the reading.
        measure
            Acts on the bench and returns what came back; called at most once.

        Returns
        -------
        dict
            What came back.

        Raises
        ------
        CalibrationError
            If something else was asked for when the stored sweep was measured, a replay has no more, the arrays have
            different numbers of rows, or none, or the file cannot be written.
        """
        wanted = {name: plain_array(name, values) for name, values in asked.items()}
        if self._done < len(self._steps):
            stored = self._steps[self._done]
            self._require_same(stored, stage, wanted)
        elif self._writer is None:
            raise CalibrationError(
                f"the stored data end after {self._done} sweeps, and {stage} asks for another one; a replay cannot "
                "measure: analyse what is there, or resume the run on its bench"
            )
        else:
            answered = {name: plain_array(name, values) for name, values in measure().items()}
            stored = Step(stage, self._now(), wanted, answered)
            _require_rows(stored)
            self._writer.append(pack_step(stored))
            self._steps.append(stored)
        self._done += 1
        return {name: values.copy() for name, values in stored.answered.items()}

    def result(self, stage: str, inputs: Arrays, compute: Callable[[], Arrays]) -> dict[str, AnyArray]:
        """Return the stored outcome of a long computation, or compute it and store it.

        Parameters
        ----------
        stage
            What is computed.
        inputs
            Everything that the outcome depends on, arrays by name.  Stored is only their hash, together with the
            stage's and the version of this software.
        compute
            Returns the outcome: float64, int64 or bool arrays by name.

        Raises
        ------
        CalibrationError
            If the file cannot be written.
        """
        key = self._key(stage, inputs)
        if key not in self._results:
            found = {name: plain_array(name, values) for name, values in compute().items()}
            if self._writer is not None:
                self._writer.append(Frame(FrameKind.RESULT, {"stage": stage, "key": key}, found))
            self._results[key] = found
        return {name: values.copy() for name, values in self._results[key].items()}

    def _key(self, stage: str, inputs: Arrays) -> str:
        digest = hashlib.sha256(f"{software_version()}\n{stage}\n".encode())
        for name in sorted(inputs):
            values = plain_array(name, inputs[name])
            digest.update(f"{name} {values.dtype.str} {values.shape}\n".encode())
            digest.update(values.tobytes())
        return digest.hexdigest()

    def _require_same(self, stored: Step, stage: str, wanted: dict[str, AnyArray]) -> None:
        reason = None
        if stored.stage != stage:
            reason = f"it was measured for {stored.stage!r}"
        elif stored.asked.keys() != wanted.keys():
            reason = f"it was asked for by {', '.join(stored.asked)}, now by {', '.join(wanted)}"
        else:
            reason = next((r for n in wanted if (r := _difference(n, stored.asked[n], wanted[n])) is not None), None)
        if reason is not None:
            raise CalibrationError(
                f"sweep {self._done} of the stored data does not fit what {stage!r} asks for: {reason}. The run was "
                "made with another version, seed, limit or argument: resume it with the same, or start a new run"
            )


def _difference(name: str, stored: AnyArray, wanted: AnyArray) -> str | None:
    if (stored.dtype, stored.shape) != (wanted.dtype, wanted.shape):
        return f"{name} was {stored.dtype} {stored.shape}, now {wanted.dtype} {wanted.shape}"
    if stored.tobytes() == wanted.tobytes():
        return None
    place = tuple(int(i) for i in np.argwhere(stored != wanted)[0]) if (stored != wanted).any() else ()
    return f"{name}{list(place)} was {stored[place]!s}, now {wanted[place]!s}"


def _require_rows(step: Step) -> None:
    shapes = {name: values.shape for name, values in {**step.asked, **step.answered}.items()}
    odd = [name for name in shapes if name in RESERVED or not name.isidentifier()]
    if odd or step.asked.keys() & step.answered.keys():
        raise CalibrationError(
            f"a sweep of {step.stage!r} has arrays named {', '.join(shapes)}; choose other names than "
            f"{', '.join(RESERVED)}, each once, of letters, digits and _"
        )
    if not step.answered or len({shape[:1] for shape in shapes.values()}) != 1 or () in shapes.values():
        raise CalibrationError(
            f"a sweep of {step.stage!r} has arrays of different numbers of readings: "
            f"{', '.join(f'{name} {shape}' for name, shape in shapes.items())}; give each of them a row a reading"
        )
    if step.rows == 0:
        raise CalibrationError(f"a sweep of {step.stage!r} has no readings; ask for one or more")
