"""Check of a network on every input that unit P can give it."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from optinc_hw.onn._cells import CellChain
from optinc_hw.onn._checks import Rounding
from optinc_hw.onn._codec import encode_pam4
from optinc_hw.onn._network import Multiply, OpticalNetwork
from optinc_hw.onn._space import InputSpace

_CHUNK = 1 << 15


@dataclass(frozen=True)
class Enumeration:
    """What a network does on its whole input space (the statistics of OptINC, Table II).

    Parameters
    ----------
    inputs
        Number of inputs, `InputSpace.size`.
    wrong
        Number of inputs whose mean is wrong.
    wrong_symbols
        Number of wrong PAM4 symbols.
    errors
        How often each error of the mean, in LSB, occurred.
    worst
        Largest distance of an analogue output from its level; below 0.5 where nothing is wrong.
    """

    inputs: int
    wrong: int
    wrong_symbols: int
    errors: Mapping[int, int]
    worst: float

    @property
    def accuracy(self) -> float:
        """Share of right inputs, as in Table I."""
        return 1.0 - self.wrong / self.inputs

    @property
    def margin(self) -> float:
        """What is left of half a level at the worst output; negative where one is wrong."""
        return 0.5 - self.worst

    def __str__(self) -> str:
        """Summarise for people."""
        text = f"{self.inputs:,} inputs, {self.wrong:,} wrong ({self.accuracy:.5%} right), margin {self.margin:.3f}"
        if self.errors:
            shares = [f"{value:+d} ({count / self.wrong:.1%})" for value, count in self.errors.items()]
            text += "; errors in LSB: " + ", ".join(shares[:8]) + (", ..." if len(shares) > 8 else "")
        return text


def enumerate_inputs(
    network: OpticalNetwork | CellChain,
    multiply: Multiply | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Enumeration:
    """Run a network or a chain of cells on every input and compare with integer arithmetic.

    Parameters
    ----------
    network
        The network; its space should have at most some 10 million points (minutes). For longer chains see
        `prove_composition`.
    multiply
        Replaces the exact product of each layer, see `OpticalNetwork.forward` and `mesh_products`.
    progress
        Called with the numbers of inputs done and in all.

    Returns
    -------
    Enumeration
        Errors in the order of how often they occur.
    """
    space = InputSpace(network.servers, network.bits, network.inputs)
    wrong = wrong_symbols = 0
    worst = 0.0
    errors: Counter[int] = Counter()
    for start in range(0, space.size, _CHUNK):
        sums = space.sums(np.arange(start, min(start + _CHUNK, space.size)))
        outputs = network.forward(sums / space.servers, multiply)
        expected = exact_means(sums, space, network.rounding)
        symbols = encode_pam4(expected, network.bits)
        away = network.decode(outputs) - expected
        wrong += int(np.count_nonzero(away))
        wrong_symbols += int(np.count_nonzero(encode_pam4(away + expected, network.bits) != symbols))
        errors.update(away[away != 0].tolist())
        worst = max(worst, float(np.abs(outputs - symbols).max()))
        if progress is not None:
            progress(start + len(sums), space.size)
    return Enumeration(space.size, wrong, wrong_symbols, dict(errors.most_common()), worst)


def exact_means(sums: NDArray[np.int64], space: InputSpace, rounding: Rounding) -> NDArray[np.int64]:
    """Means (batch,) of the sums (batch, K) over the servers, by integer arithmetic."""
    weights = 4 ** (space.group * np.arange(space.inputs - 1, -1, -1, dtype=np.int64))
    doubled = 2 * (sums @ weights) + (space.servers if rounding == "half_up" else 0)
    return np.asarray(doubled // (2 * space.servers))
