"""Bounds of a composition against what sampling finds."""

import numpy as np

from optinc_hw.onn._cells import CellSpace


def assert_bounds_hold(cell, found):
    """Bounds of a cell of divisor 4 and one digit hold, and are within 0.02 of the worst of 801 errors of the carry."""
    space = CellSpace(4, 1)
    index = np.arange(space.size)
    for edge, digits, carries in zip(found.edges[1:], found.digit_bounds[1:], found.carry_bounds[1:], strict=True):
        worst = np.zeros(2)
        for away in np.linspace(-edge, edge, 801):
            signals = space.signals(index)
            signals[:, -1] += away
            worst = np.maximum(worst, np.abs(cell.forward(signals) - space.answers(index)).max(axis=0))
        assert worst[1] <= digits <= worst[1] + 0.02
        assert worst[0] <= carries <= worst[0] + 0.02
