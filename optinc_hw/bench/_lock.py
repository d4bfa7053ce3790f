"""Locks: two sessions never drive one bench, neither out of one folder nor out of two with the same addresses."""

import hashlib
import os
import stat
import tempfile
from contextlib import ExitStack
from pathlib import Path

from filelock import FileLock, Timeout

from optinc_hw.bench.description import BenchDescription
from optinc_hw.errors import ConfigurationError, LinkError


def take_locks(description: BenchDescription, stack: ExitStack) -> None:
    """Hold the lock files of the folder and of all addresses in use; the operating system frees them after a crash.

    Addresses are locked for the sessions of one user on one machine, in the folder for temporary files.

    Raises
    ------
    LinkError
        If another session, of this process or another one, holds one of them.
    ConfigurationError
        If a lock file cannot be written.
    """
    folder = description.folder
    _hold(folder / ".bench.lock", f"the bench in {folder}", "make the bench folder writable", stack)
    place = _own_folder()
    for name in description.roles:
        address = description.station.instruments[name].where
        if address is not None:
            path = place / f"{hashlib.sha256(_normal(address).encode()).hexdigest()[:24]}.lock"
            _hold(path, f"the address {address!r} of instrument {name!r} in {folder}", f"make {place} yours", stack)


def hold_file(path: Path, stack: ExitStack) -> None:
    """Hold a data file of which only one process may be the writer; nothing is written beside it.

    Raises
    ------
    LinkError
        If another process or session of this user on this machine holds it.
    ConfigurationError
        If the lock file cannot be written.
    """
    place = _own_folder()
    lock = place / f"{hashlib.sha256(os.path.realpath(path).encode()).hexdigest()[:24]}.lock"
    _hold(lock, f"the file {path}", f"make {place} yours", stack)


def _own_folder() -> Path:
    """Folder for this user's lock files, which nobody else can have prepared."""
    user = os.getuid() if hasattr(os, "getuid") else None
    place = Path(tempfile.gettempdir()) / f"optinc-hw-{'locks' if user is None else user}"
    try:
        place.mkdir(mode=0o700, exist_ok=True)
        found = place.lstat()
    except OSError as error:
        raise ConfigurationError(f"{place}: the folder for lock files cannot be made ({error}); set TMPDIR") from error
    if not stat.S_ISDIR(found.st_mode) or (user is not None and found.st_uid != user):
        raise ConfigurationError(f"{place}: is no folder of yours, so it is no place for lock files; remove it")
    return place


def _normal(address: str) -> str:
    """One spelling for an address; links to the device of a serial port, such as those by its id, are followed."""
    text = address.strip()
    return os.path.realpath(text) if text.startswith("/") else text.casefold()


def _hold(path: Path, what: str, remedy: str, stack: ExitStack) -> None:
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise LinkError(
            f"{what} is in use by another process or session (lock {path}); close it there first"
        ) from error
    except OSError as error:
        raise ConfigurationError(
            f"{path}: the lock file cannot be written ({error}); {remedy}, so that two processes never drive one bench"
        ) from error
    stack.callback(lock.release)
