"""Progress of long work on a console: bars for people, plain lines for logs."""

import time
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn


class ProgressDisplay:
    """Shows ``(stage, done, total)`` calls; a new stage ends the one before.  A context manager.

    Parameters
    ----------
    console
        Where to show it: bars on a terminal, else one line when a stage begins.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._stack = ExitStack()
        self._bars: Progress | None = None
        self._task: TaskID | None = None
        self._stage: str | None = None
        self._start = time.monotonic()

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            columns = (TextColumn("{task.description:<34}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._bars = self._stack.enter_context(Progress(*columns, console=self._console))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._finish_task()
        self._stack.close()

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Show that ``done`` of ``total`` pieces of ``stage`` are done."""
        if self._bars is None:
            if stage != self._stage:
                self._console.print(f"{time.monotonic() - self._start:7.1f} s  {stage}", highlight=False, markup=False)
            self._stage = stage
            return
        if stage != self._stage or self._task is None:
            self._finish_task()
            self._task = self._bars.add_task(stage, total=total)
            self._stage = stage
        self._bars.update(self._task, completed=done, total=total)

    def _finish_task(self) -> None:
        """Fill the bar of a stage that took fewer pieces than it announced, and stop its clock."""
        if self._bars is not None and self._task is not None:
            count = self._bars.tasks[self._bars.task_ids.index(self._task)].completed
            self._bars.update(self._task, total=count)
            self._bars.stop_task(self._task)
