"""Look of pictures; set only while a picture is made, so nobody else's figures change."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

BLUE, ORANGE, GREEN, RED, GREY = "#1f5fa8", "#d9660c", "#2e8b57", "#b8325a", "#8a8f98"

_SETTINGS: Any = {  # Any: newer matplotlib types every key as a literal, older ones as text
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e3e6ea",
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "figure.constrained_layout.use": True,
}


@contextmanager
def style(*, grid: bool = True) -> Iterator[None]:
    """Apply the look inside the block."""
    with mpl.rc_context(_SETTINGS | {"axes.grid": grid}):
        yield
