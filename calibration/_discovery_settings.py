"""Settings in which the phases of a twin move at random, steps of single channels from them, and their readings."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibration._discovery_state import UNKNOWN
from calibration._discovery_steps import Steps, stepped_powers
from calibration._discovery_tests import POWER_SHARE, PhaseTests
from calibration._discovery_twin import RoughTwin
from calibration._mesh_linear import MeshData
from calibration._session import Array

NUMBERS = 64
"""Powers that at least are read for each channel's steps."""
EXTERNAL_SHARE = 0.2
"""Share of external phases that random settings heat: more would add more heat than a twin without it can bear."""


@dataclass
class Sweeps:
    """Takes readings of a mesh whose wiring a twin knows in part.

    Parameters
    ----------
    tests
        Tests of this chip, with the internal phases found by their gates.
    rng
        Source of random settings.
    """

    tests: PhaseTests
    rng: np.random.Generator

    def __post_init__(self) -> None:
        layout, probe = self.tests.probe.layout, self.tests.probe
        self._ports, self.depth = layout.ports, layout.mesh.depth
        self._column = np.repeat([column for column, _ in layout.mesh.mzis], 2)
        self._internal = np.isin(np.arange(len(layout.heaters)), layout.mesh_theta)
        self._top_w = np.minimum(2.0 * np.pi / self.tests.wiring.efficiency, probe.max_power_w)
        self.count = max(self._ports, -(-NUMBERS // self._ports))

    def random(self, twin: RoughTwin, column: int, count: int) -> tuple[Array, NDArray[np.intp]]:
        """Draw powers (count, H) in W and lit ports: believed phases up to ``column`` at random, others in bar."""
        probe = self.tests.probe
        power = np.zeros((count, len(self._column)))
        for phase in np.flatnonzero(twin.channel != UNKNOWN):
            channel = twin.channel[phase]
            if self._column[phase] <= column:
                moved = self._internal[phase] or self.rng.uniform(size=count) < EXTERNAL_SHARE
                power[:, channel] = moved * self.rng.uniform(size=count) * self._top_w[channel]
            elif self._internal[phase]:
                bar = (np.pi - twin.offset[phase]) % (2.0 * np.pi) / twin.efficiency[channel]
                power[:, channel] = min(bar, probe.max_power_w[channel])
        total = np.maximum(power.sum(axis=1, keepdims=True), 1e-300)
        power *= np.minimum(1.0, POWER_SHARE * probe.max_total_power_w / total)
        return power, (np.arange(count) + self.rng.integers(self._ports)) % self._ports

    def data(self, twin: RoughTwin, column: int, count: int) -> MeshData:
        """Measure random settings."""
        return self._measured("settings for a twin", *self.random(twin, column, count))

    def stepped(
        self, twin: RoughTwin, channels: NDArray[np.intp], settings: tuple[Array, NDArray[np.intp]], turns: ArrayLike
    ) -> Steps:  # fmt: skip
        """Let single channels step from each setting by ``turns`` periods, one number or one for each channel."""
        power, lit = settings
        size = np.asarray(turns) * 2.0 * np.pi / twin.efficiency[channels]
        probe = self.tests.probe
        power, ends, change = stepped_powers(
            power, channels, size, self._top_w, probe.max_power_w, probe.max_total_power_w
        )
        both = np.concatenate([power[None], ends]).reshape(-1, len(self._column))
        read = self._measured("steps of channels", both, np.tile(lit, 1 + len(channels))).readings_w
        count = len(lit)
        return Steps(
            power, lit, read[:count], np.tile(np.arange(count), len(channels)), np.repeat(channels, count),
            change.ravel(), read[count:],
        )  # fmt: skip

    def _measured(self, stage: str, power_w: Array, lit: NDArray[np.intp]) -> MeshData:
        """Measure; readings in the order of outputs, NaN where no detector sees one."""
        readings = self.tests.measure(stage, power_w, lit)
        detectors = [self.tests.detector(output) for output in range(self._ports)]
        ordered = [np.full(len(lit), np.nan) if d is None else readings[:, d] for d in detectors]
        return MeshData(power_w, lit, np.stack(ordered, axis=1))
