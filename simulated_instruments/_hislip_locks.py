"""Locks of a HiSLIP server: one client alone, or several that share a key."""

import threading
from collections.abc import Callable

REFUSED, EXCLUSIVE, SHARED, INVALID = 0, 1, 2, 3
"""Control codes of the answer to a lock request or release."""


class ClientLocks:
    """Who holds the instrument; clients are told apart by their session ids."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._closed = False
        self._owner: int | None = None
        self._sharing: dict[int, bytes] = {}

    def request(self, client: int, key: bytes, timeout_s: float, gone: Callable[[], bool]) -> int:
        """Wait for a lock, exclusive if ``key`` is empty, and return the control code of the answer.

        ``gone`` tells that the client has hung up, which ends the wait.
        """

        def grantable() -> bool:
            if self._owner is not None:
                return False
            if key:
                return all(other == key for other in self._sharing.values())
            return not self._sharing or client in self._sharing

        with self._changed:
            if client in self._sharing if key else client == self._owner:
                return INVALID
            self._changed.wait_for(lambda: self._closed or gone() or grantable(), timeout_s)
            if self._closed or gone() or not grantable():
                return REFUSED
            if key:
                self._sharing[client] = key
            else:
                self._owner = client
            return EXCLUSIVE

    def release(self, client: int) -> int:
        """Give up the exclusive lock, or else the shared one, and return the control code of the answer."""
        with self._changed:
            if self._owner == client:
                self._owner = None
                answer = EXCLUSIVE
            else:
                answer = INVALID if self._sharing.pop(client, None) is None else SHARED
            self._changed.notify_all()
            return answer

    def forget(self, client: int) -> None:
        """Give up all locks of a client that has hung up, and end its waits."""
        with self._changed:
            if self._owner == client:
                self._owner = None
            self._sharing.pop(client, None)
            self._changed.notify_all()

    def wait_for_access(self, client: int, gone: Callable[[], bool]) -> bool:
        """Wait until no lock of others keeps the client out; False if there is nothing to wait for any more."""

        def free() -> bool:
            return self._owner == client or (self._owner is None and (not self._sharing or client in self._sharing))

        with self._changed:
            self._changed.wait_for(lambda: self._closed or gone() or free())
            return not self._closed and not gone()

    def holders(self) -> tuple[bool, int]:
        """Tell whether there is an exclusive lock, and how many clients hold a lock."""
        with self._changed:
            return self._owner is not None, len(self._sharing.keys() | ({self._owner} - {None}))

    def close(self) -> None:
        """End all waits, now and in future."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
