"""Opens what a bench folder describes: its real instruments, or simulated ones in their place."""

from contextlib import ExitStack

from optinc_hw.bench._connect import Connected, connect
from optinc_hw.bench._lock import take_locks
from optinc_hw.bench._simulate import start_simulation
from optinc_hw.bench.description import BenchDescription
from optinc_hw.clock import Clock, SimulatedClock, WallClock


def open_instruments(
    description: BenchDescription, simulated_seed: int | None, stack: ExitStack
) -> tuple[Clock, Connected]:
    """Connect the instruments and return them with their clock.

    Parameters
    ----------
    description
        Checked bench folder.
    simulated_seed
        Seed of a simulated chip, whose instruments are started first; None for the real ones, which are locked first.
    stack
        Closes everything.

    Raises
    ------
    ConfigurationError, LinkError, IdentityError
        As `Bench.open`.
    """
    if simulated_seed is None:
        take_locks(description, stack)
        clock: Clock = WallClock()
        return clock, connect(description, clock, None, stack)
    clock = SimulatedClock()
    simulated = start_simulation(description, simulated_seed, stack, clock, in_process=True)
    return clock, connect(description, clock, simulated.addresses, stack)
