"""Files that change at once: a reader or a crash sees the old content or the new one, never a part."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path beside ``path``, with its suffix; what is written there becomes ``path`` at the end.

    After an exception ``path`` is as it was, and nothing is left beside it.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    handle, name = tempfile.mkstemp(prefix=f".{path.stem}.", suffix=path.suffix, dir=path.parent)
    os.close(handle)
    part = Path(name)
    try:
        yield part
        with part.open("rb+") as written:
            os.fsync(written.fileno())
        # mkstemp makes files private; the new one is as readable as the one it replaces, or by default 0644.
        part.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o644)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Replace ``path`` by ``text``, in UTF-8 with plain line feeds; raises as `replacing`."""
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8", newline="\n")
