"""The report folder: made or reused, never mixed with somebody else's files."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from optinc_hw._files import replacing
from optinc_hw.errors import ConfigurationError

MARKER = ".optinc-demo"
SUMMARY = "summary.json"
_MARKER_TEXT = "This folder is written by `optinc demo`; a later demo replaces the files of this one.\n"


class ReportFolder:
    """A folder that the demo may write to; made by `claim`.

    Every file is written under a temporary name and then renamed, so a reader never sees a part of one.

    Parameters
    ----------
    path
        The folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def claim(cls, path: str | Path) -> Self:
        """Make the folder, or take over an empty one or one of an earlier demo.

        Of an earlier demo, the summary and the bench description are removed, so that a folder with a summary holds one
        finished run.

        Raises
        ------
        ConfigurationError
            If it is a file, holds anything else, or cannot be written.
        """
        folder = Path(path)
        try:
            if folder.exists() and not folder.is_dir():
                raise ConfigurationError(f"{folder} is a file; choose a folder for the report (--out)")
            folder.mkdir(parents=True, exist_ok=True)
            if any(folder.iterdir()) and not (folder / MARKER).is_file():
                raise ConfigurationError(
                    f"{folder} holds files that no demo wrote; nothing was touched. Choose a new or an empty folder "
                    "for the report (--out)"
                )
            report = cls(folder)
            report.write_text(MARKER, _MARKER_TEXT)
            report._clear()
        except OSError as error:
            raise ConfigurationError(f"{folder}: cannot be written ({error}); choose another folder (--out)") from error
        return report

    @property
    def bench(self) -> Path:
        """Folder of the demo's bench description."""
        return self.path / "bench"

    def _clear(self) -> None:
        (self.path / SUMMARY).unlink(missing_ok=True)
        for pattern in ("station.yaml", "chip.yaml", "calibration_simulated_*.json"):
            for old in self.bench.glob(pattern):
                old.unlink()

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """Give a temporary path with the suffix of ``name``; what is written there becomes ``name`` at the end.

        Raises
        ------
        ConfigurationError
            If the file cannot be written; an older file of that name is then still whole.
        """
        target = self.path / name
        try:
            with replacing(target) as part:
                yield part
        except OSError as error:
            raise ConfigurationError(f"{target}: cannot be written ({error}); make room or choose --out") from error

    def write_text(self, name: str, text: str) -> None:
        """Write a text file in UTF-8; raises as `writing`."""
        with self.writing(name) as part:
            part.write_text(text, encoding="utf-8", newline="\n")

    def write_json(self, name: str, content: Any) -> None:  # Any: JSON values
        """Write a JSON file; raises as `writing`, and ValueError for NaN or inf."""
        self.write_text(name, json.dumps(content, indent=2, allow_nan=False) + "\n")
