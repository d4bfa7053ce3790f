"""What powers at the outputs cannot see of a bare mesh, whatever the priors say."""

from dataclasses import dataclass

import numpy as np

from calibration._mesh_checks import require_data
from calibration._mesh_fit import MeshFit
from calibration._mesh_linear import MeshData, MeshPoint
from calibration._session import Array
from calibration._twin_fit import NoiseModel
from optinc_hw.errors import CalibrationError

_GROUPS = {
    "phases": ("offset",),
    "couplers": ("eta",),
    "losses and gains": ("loss", "output", "input"),
    "curvatures of heaters": ("curvature",),
}
_UNSEEN = 1e-10
"""Share of the largest eigenvalue of the Fisher matrix below which a direction is not seen."""
_TAKES_PART = 0.05
_MOST_READINGS = 400


@dataclass(frozen=True)
class UnseenDirections:
    """Combinations of parameters that change no reading.

    Parameters
    ----------
    group
        Kind of parameters.
    parameters
        Their number.
    directions
        Orthonormal combinations (count, parameters) that the readings do not depend on.
    names
        Parameters that take part in them.
    """

    group: str
    parameters: int
    directions: Array
    names: tuple[str, ...]

    def __str__(self) -> str:
        """Summarise for people."""
        count = len(self.directions)
        if not count:
            return f"{self.group}: all {self.parameters} are seen"
        return f"{self.group}: {count} of {self.parameters} combinations are not seen; in them {', '.join(self.names)}"


@dataclass(frozen=True)
class Identifiability:
    """Null space of the readings, kind by kind; priors hold what lies in it."""

    unseen: tuple[UnseenDirections, ...]

    def __str__(self) -> str:
        """Summarise for people."""
        return "\n".join(
            [
                "powers with one lit port at a time (priors hold what they do not see):",
                *(f"  {directions}" for directions in self.unseen),
                "  heat of any heater on phases of inputs: not seen",
                "  output phases and their crosstalk: not seen",
            ]
        )


def identifiability(fit: MeshFit, data: MeshData, noise: NoiseModel) -> Identifiability:
    """Find the null space of the Fisher matrix of phases, couplers, losses with gains, and curvatures, the rest held.

    Kinds of parameters that the fit does not have are left out.

    Parameters
    ----------
    fit
        The fit; only its best vector matters.
    data, noise
        Its readings and their noise.

    Raises
    ------
    CalibrationError
        If the data are of another chip, or there are none.
    """
    require_data(data, fit.space.start.layout)
    if not len(data):
        raise CalibrationError("there are no readings, and what readings cannot see depends on them; give the fit's")
    rng = np.random.default_rng(0)
    part = rng.permutation(len(data))[:_MOST_READINGS]
    point = MeshPoint(fit.space, fit.vector, data.power_w[part], data.lit[part])
    _, rows = point.dense_rows()
    rows = rows / noise.sigma(point.predicted)[..., None]
    found = []
    for group, blocks in _GROUPS.items():
        if not fit.space.free.issuperset(blocks):
            continue
        places = [fit.space.slices[block] for block in blocks]
        columns = np.concatenate([rows[..., place] for place in places], axis=-1)
        columns = columns.reshape(-1, columns.shape[-1])
        values, vectors = np.linalg.eigh(columns.T @ columns)
        directions = vectors[:, values < _UNSEEN * values[-1]].T
        weight = np.sqrt(np.sum(directions**2, axis=0))
        labels = [label for block in blocks for label in _labels(fit, block)]
        names = tuple(label for label, share in zip(labels, weight, strict=True) if share > _TAKES_PART)
        found.append(UnseenDirections(group, len(labels), directions, names))
    return Identifiability(tuple(found))


def _labels(fit: MeshFit, block: str) -> list[str]:
    layout = fit.space.start.layout
    mzis = [f"mzi_{column}_{mode}" for column, mode in layout.mesh.mzis]
    if block in ("offset", "curvature"):
        return list(layout.heaters)
    if block == "eta":
        return [f"{name} {which} coupler" for name in mzis for which in ("first", "second")]
    if block == "loss":
        return [f"{name} loss" for name in mzis]
    return [f"{block} {port}" for port in range(layout.ports)]
