"""The four published settings of OptINC and their area (arXiv 2603.28290, Table I and section on area)."""

from collections.abc import Collection
from dataclasses import dataclass
from itertools import pairwise

from optinc_hw.errors import NetworkError
from optinc_hw.onn._area import count_mzis
from optinc_hw.onn._checks import symbol_count
from optinc_hw.onn._space import InputSpace


@dataclass(frozen=True)
class Scenario:
    """One row of Table I.

    Parameters
    ----------
    servers, bits, inputs
        N servers, B bits of a code, K inputs of the network.
    sizes
        Signals before the first and after each layer.
    approximated
        Published choices of layers, counted from 1, that are approximated by blocks ``Sigma U``, the one of Table I
        first; the others are of Table II.
    area_ratios
        Published area for each choice, over that without approximation.
    """

    servers: int
    bits: int
    inputs: int
    sizes: tuple[int, ...]
    approximated: tuple[range, ...]
    area_ratios: tuple[float, ...]

    @property
    def space(self) -> InputSpace:
        """Every input: the paper's data set."""
        return InputSpace(self.servers, self.bits, self.inputs)

    def mzis(self, approximated: Collection[int] = ()) -> int:
        """Count the MZIs of the network with the given layers, from 1, in blocks ``Sigma U`` and the others in full.

        Raises
        ------
        NetworkError
            If there is no such layer.
        """
        layers = range(1, len(self.sizes))
        unknown = sorted(set(approximated) - set(layers))
        if unknown:
            raise NetworkError(f"there is no layer {unknown[0]}; layers of this network are 1 to {layers[-1]}")
        return sum(
            count_mzis((rows, columns), "sigma_u" if layer in approximated else "svd")
            for layer, (columns, rows) in zip(layers, pairwise(self.sizes), strict=True)
        )

    @property
    def surrounding_mzis(self) -> int:
        """MZIs of unit P, a K x (M N) matrix, and of the splitting unit T, (M N) x M.

        That the paper counts them so is our reconstruction: with them its ratios come out to 0.16 points.
        """
        symbols = symbol_count(self.bits)
        lanes = symbols * self.servers
        return count_mzis((self.inputs, lanes)) + count_mzis((lanes, symbols))

    def area_ratio(self, approximated: Collection[int]) -> float:
        """Area, units P and T included, with the given layers approximated over that with none."""
        around = self.surrounding_mzis
        return (self.mzis(approximated) + around) / (self.mzis() + around)


_TO_512 = (4, 64, 128, 256, 512)
SCENARIOS: tuple[Scenario, ...] = (
    Scenario(4, 8, 4, (4, 64, 128, 256, 128, 64, 4), (range(1, 7),), (0.393,)),
    Scenario(8, 8, 4, (*_TO_512, 256, 128, 64, 4), (range(2, 8),), (0.409,)),
    Scenario(16, 8, 4, (*_TO_512, 1024, 512, 256, 128, 64, 4), (range(2, 10),), (0.404,)),
    Scenario(
        4,
        16,
        4,
        (*_TO_512, 256, 128, 64, 8),
        (range(4, 7), range(4, 8), range(4, 9), range(3, 7), range(3, 8)),
        (0.493, 0.479, 0.474, 0.437, 0.422),
    ),
)
"""Scenarios 1 to 4 of the paper, in this order."""
