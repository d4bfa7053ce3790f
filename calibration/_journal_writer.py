"""The file of a journal as its one writer sees it."""

import os
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, Self

from calibration._journal_format import Frame, FrameKind, Scan, encode_content, encode_frame, read_frames, run_of
from optinc_hw._files import replacing
from optinc_hw.bench._lock import hold_file
from optinc_hw.errors import CalibrationError


def read_file(path: Path) -> Scan:
    """Read a journal, also while it is being written.

    Raises
    ------
    CalibrationError
        If it cannot be read, or is damaged before its end.
    """
    try:
        return read_frames(path.read_bytes(), str(path))
    except OSError as error:
        raise CalibrationError(f"cannot read the journal {path}: {error}") from error


class JournalWriter:
    """Appends frames to a journal, each of them on the disk before `append` returns.

    Parameters
    ----------
    path
        The file.
    run, index, end
        Run of the frames, index of the next one, and where it begins.
    stack
        What to leave on `close`.
    """

    def __init__(self, path: Path, run: bytes, index: int, end: int, stack: ExitStack) -> None:
        self._path, self._run, self._index, self._end = path, run, index, end
        with stack:
            try:
                self._stream: BinaryIO = stack.enter_context(path.open("rb+", buffering=0))
            except OSError as error:
                raise _cannot_write(path, error) from error
            self._stack = stack.pop_all()

    @classmethod
    def create(cls, path: Path, header: Frame) -> Self:
        """Begin a new file.

        Raises
        ------
        CalibrationError
            If there is one already, or it cannot be written.
        LinkError
            If another process is writing it.
        """
        content = encode_content(header)
        frame = encode_frame(run_of(content), 0, FrameKind.HEADER, content)
        with ExitStack() as stack:
            hold_file(path, stack)
            if path.exists():
                raise CalibrationError(f"{path} is the journal of an unfinished run: resume it, or move it away")
            try:
                with replacing(path) as part:
                    part.write_bytes(frame)
                flush_folder(path.parent)
            except OSError as error:
                raise _cannot_write(path, error) from error
            return cls(path, run_of(content), 1, len(frame), stack.pop_all())

    @classmethod
    def take_up(cls, path: Path) -> tuple[Self, Scan]:
        """Open a file again behind its last whole frame; nothing is changed before the next `append`.

        Raises
        ------
        CalibrationError
            If it cannot be read or written, or is damaged before its end.
        LinkError
            If another process is writing it.
        """
        with ExitStack() as stack:
            hold_file(path, stack)
            scan = read_file(path)
            return cls(path, scan.run, len(scan.frames), scan.end, stack.pop_all()), scan

    def append(self, frame: Frame) -> None:
        """Write a frame behind the last whole one and wait until it is on the disk.

        Raises
        ------
        CalibrationError
            If it cannot be written. What the file may hold of it is cut off by the next `append` to this writer; until
            then a reader takes a torn frame for the file's end, and a frame that is whole, but was perhaps not flushed,
            for its last one.
        """
        data = encode_frame(self._run, self._index, frame.kind, encode_content(frame))
        try:
            self._stream.truncate(self._end)  # a torn frame of the process before
            self._stream.seek(self._end)
            left = memoryview(data)
            while left:
                left = left[self._stream.write(left) :]
            os.fsync(self._stream.fileno())
        except OSError as error:
            raise _cannot_write(self._path, error) from error
        self._index += 1
        self._end += len(data)

    def remove(self) -> None:
        """Close the file and delete it.

        Raises
        ------
        CalibrationError
            If it cannot be deleted.
        """
        self._stream.close()  # Windows deletes no open file
        try:
            self._path.unlink()
        except OSError as error:
            raise CalibrationError(
                f"cannot remove the journal {self._path} of a finished run: {error}; remove it"
            ) from error
        finally:
            self.close()

    def close(self) -> None:
        """Close the file and let others write it."""
        self._stack.close()


def flush_folder(folder: Path) -> None:
    """Put the names of new files on the disk; they survive a power cut from then on."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _cannot_write(path: Path, error: OSError) -> CalibrationError:
    return CalibrationError(
        f"cannot write the run's data to {path}: {error}; make room or the folder writable, then resume the run"
    )
