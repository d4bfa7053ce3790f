"""How experiments leave a bench: dark, or as they found it, whatever ended them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from calibration._session import Array
from optinc_hw.bench import Bench
from optinc_hw.errors import InstrumentError


@contextmanager
def dark_afterwards(bench: Bench) -> Iterator[None]:
    """Leave the chip dark and its heaters at zero, also after an error; an error on the way out is added to it."""
    with _afterwards(lambda: _darken(bench), "the chip could not be left dark"):
        yield


@contextmanager
def light_as_found(bench: Bench) -> Iterator[None]:
    """Leave the light on if this session had switched it on before, else off; errors as in `dark_afterwards`."""
    found = bool(bench.light_on)

    def restore() -> None:
        if bool(bench.light_on) != found:
            bench.light(on=found)

    with _afterwards(restore, f"the light could not be left {'on' if found else 'off'}, as it was"):
        yield


@contextmanager
def voltages_as_found(bench: Bench) -> Iterator[None]:
    """Set the heaters back to the voltages that they had; errors as in `dark_afterwards`."""
    found: Array = bench.voltages
    with _afterwards(lambda: bench.set_voltages(found), "the heaters could not be set back"):
        yield


@contextmanager
def _afterwards(act: Callable[[], None], failed: str) -> Iterator[None]:
    """Act at the end; after an error, which stays the one that is raised, a failure to act becomes a note of it."""
    try:
        yield
    except BaseException as error:
        try:
            act()
        except InstrumentError as failure:
            error.add_note(f"and {failed}: {failure}")
        raise
    act()


def _darken(bench: Bench) -> None:
    try:
        bench.light(on=False)
    finally:  # a laser that does not answer must not keep the heaters on
        bench.set_voltages(np.zeros(len(bench.layout.heaters)))
