"""Benches of bare meshes with faults, and what their instruments do not tell: the currents through the heaters."""

from contextlib import contextmanager
from unittest import mock

import numpy as np

from optinc_hw.bench import Bench
from simulated_instruments import SimulatedBench


class Watch:
    """The hidden side of a bench: its faults, and the largest current (H,) in A that each heater ever took."""

    def __init__(self, simulated, chip):
        self.faults, self.chip = simulated.faults, chip
        self.most_a = np.zeros(len(chip.layout.heaters))
        chip.watch_heaters(self._note)

    def _note(self, time_s, values):
        self.most_a = np.maximum(self.most_a, self.chip.heater_currents())

    def volts(self):
        return np.array([self.chip.heater_voltage(k) for k in range(len(self.most_a))])


@contextmanager
def watched(opening):
    """Open a bench by a call without arguments; give it and its `Watch`."""
    made = []
    start = SimulatedBench.__init__

    def noted(self, chip, *arguments, **options):
        start(self, chip, *arguments, **options)
        made.append(Watch(self, chip))

    with mock.patch.object(SimulatedBench, "__init__", noted), opening() as bench:
        yield bench, made[0]


def mesh(ports=4, seed=1, **options):
    """A default bench of a bare mesh, see `watched`."""
    return watched(lambda: Bench.simulated(ports, seed, kind="mesh", **options))
