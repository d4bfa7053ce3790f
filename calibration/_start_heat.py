"""Heat of neighbours in the start of a bare mesh: what it does to phases on average, how it scatters, what it pushes.

Every waveguide section between couplers is an arm, most of them without a heater.  A phase on any arm can be pushed
towards the outputs until it sits on heated arms only; so heat on an arm is a change of several phases.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration._session import Array
from calibration._start_model import Single
from optinc_hw.photonics import ChipLayout
from optinc_hw.photonics.arms import bare_arms

LENGTHS: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0)
"""Decay lengths in pitches whose mixture is the mean crosstalk against distance."""
MEAN_SPREAD = 0.01
"""Prior of each one's share at one pitch."""
SCATTER, SCATTER_LENGTH, REACH = 0.015, 1.5, 6.0
"""Crosstalk of single pairs at one pitch around the mean, its decay length and its end in pitches."""
OWN_SCATTER = 0.02
"""Relative deviation of single heaters' efficiencies."""


@dataclass(frozen=True)
class StartHeat:
    """Where heat goes; phases are in the order all thetas, then all phis (2K), arms (A) begin with heaters' own (H).

    Parameters
    ----------
    mean
        Changes (L, 2K, H) of the phases per phase of each heater, for unit crosstalk at one pitch with each of
        `LENGTHS`.
    variance
        Scatter (A, H) of the arms' crosstalk from each heater, squared.
    pushed
        Changes (2K, A) of the phases that stand for a phase on each arm, those of the first two columns' phis
        brought to 0 by phases of inputs, which no power shows.
    upper, lower
        Arms (2K,) that carry each phase's heater, and those below.
    column
        Column (A,) in which each arm lies.
    """

    mean: Single
    variance: Array
    pushed: Array
    upper: NDArray[np.intp]
    lower: NDArray[np.intp]
    column: NDArray[np.intp]

    @classmethod
    def of(cls, layout: ChipLayout) -> "StartHeat":
        """Return where heat goes on a bare mesh."""
        bare, heaters = bare_arms(layout), len(layout.heaters)
        sites = np.concatenate([layout.heater_sites, bare.sites])
        order = np.concatenate([layout.mesh_theta, layout.mesh_phi])
        effect = np.concatenate([np.eye(heaters), bare.effect], axis=1)[order]
        distance = np.linalg.norm(sites[:, None] - layout.heater_sites[None], axis=-1)
        others = (distance > 0.5) & (distance <= REACH)
        falls = [np.where(others, np.exp((1.0 - distance) / length), 0.0) for length in (*LENGTHS, SCATTER_LENGTH)]
        variance = (SCATTER * falls[-1]) ** 2
        variance[:heaters] += np.diag(np.full(heaters, OWN_SCATTER**2))
        at = {(round(x), round(y)): arm for arm, (x, y) in enumerate(sites)}
        mzis = layout.mesh.mzis
        lower = [at[2 * column + section, mode + 1] for section in (1, 0) for column, mode in mzis]
        inputs = effect[:, [at[0, mode] for mode in range(layout.ports)]]
        early = len(mzis) + np.flatnonzero([column < 2 for column, _ in mzis])
        return cls(
            np.stack([effect @ fall for fall in falls[:-1]]).astype(np.float32), variance,
            effect - inputs @ (np.linalg.pinv(inputs[early]) @ effect[early]),
            order.astype(np.intp), np.array(lower, dtype=np.intp), (sites[:, 0] // 2).astype(np.intp),
        )  # fmt: skip
