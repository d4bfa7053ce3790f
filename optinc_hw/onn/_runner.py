"""What runs a tile: a chip, or its twin."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class TileRunner(Protocol):
    """Multiplies amplitudes by one matrix at a time."""

    @property
    def ports(self) -> int:
        """Ports n of the chip: the largest matrix is n x n."""
        ...

    def program(self, matrix: NDArray[np.float64]) -> None:
        """Set the chip to a real ``matrix`` (rows, cols) of spectral norm at most 1."""
        ...

    def forward(self, amplitudes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return ``amplitudes @ matrix.T`` (batch, rows) for amplitudes (batch, cols) in [-1, 1]."""
        ...
