"""Effects that a mesh fit learned without being told of them, named with units."""

from dataclasses import dataclass

import numpy as np

from calibration._mesh_fit import MeshFit, readings_of
from calibration._mesh_linear import MeshData
from calibration._mesh_solve import NormalEquations
from calibration._mesh_space import PROFILE_LENGTHS
from calibration._twin_fit import NoiseModel
from optinc_hw.units import amplitude_to_db

_SEEN = 3.0
"""Standard deviations from nothing at which an effect that all elements share is seen."""


@dataclass(frozen=True)
class Effect:
    """One effect of the model as the data have it.

    Parameters
    ----------
    name
        What it is.
    unit
        Of the numbers, "1" for pure ones.
    value
        What all elements share; None if single elements differ around the start only.
    sigma
        Standard deviation of ``value``, where it is known, with single heat paths held.
    scatter
        Standard deviation of single elements around it, as the fit learned it; None if they do not differ.
    """

    name: str
    unit: str
    value: float | None
    sigma: float | None = None
    scatter: float | None = None

    @property
    def seen(self) -> bool:
        """Whether the shared value is more than its standard deviation lets chance give."""
        return self.value is None or self.sigma is None or abs(self.value) > _SEEN * self.sigma


def effects_found(fit: MeshFit, data: MeshData, noise: NoiseModel) -> tuple[Effect, ...]:
    """Name what a fit learned of couplers, losses, heat and heaters.

    Parameters
    ----------
    fit
        The fit.
    data, noise
        Its readings and their noise, for the standard deviations.

    Raises
    ------
    CalibrationError
        If the data are not the fit's.
    """
    twin, widths, place = fit.parameters, fit.widths, fit.space.slices
    shared = [place["common_eta"].start, *range(place["second_order"].start, place["second_order"].stop)]
    eta_sigma, own_sigma, with_sigma = _sigmas(fit, data, noise, shared)
    eta = float(twin.mesh_eta.mean())
    slope = float(np.sin(2.0 * eta))
    heated, bare = np.split(fit.vector[place["profile"]], [len(PROFILE_LENGTHS)])
    own, neighbours = twin.second_order.tolist()
    p_pi = np.pi / twin.efficiency[twin.layout.movable]
    return (
        Effect(
            "reflectivity of couplers (share that crosses)",
            "1",
            float(np.sin(eta) ** 2),
            slope * eta_sigma,
            slope * widths.eta,
        ),
        Effect("loss of an MZI", "dB", _db(-np.log(twin.mzi_transmission).mean()), None, _db(widths.loss)),
        Effect("difference of loss between an MZI's arms", "dB", None, None, _db(widths.arm_loss)),
        Effect("power of a heater for pi", "W", float(p_pi.mean()), None, float(p_pi.mean()) * widths.efficiency),
        Effect("crosstalk to heated arms one pitch away", "1", float(heated.sum()), None, widths.crosstalk),
        Effect("crosstalk to bare arms one pitch away", "1", float(bare.sum()), None, widths.crosstalk),
        Effect("distance over which crosstalk's scatter falls by e", "pitch", widths.length),
        Effect("growth of efficiency with own phase", "1/rad", own, own_sigma, widths.curvature),
        Effect("growth of efficiency with neighbours' phases", "1/rad", neighbours, with_sigma),
    )


def _sigmas(fit: MeshFit, data: MeshData, noise: NoiseModel, which: list[int]) -> list[float]:
    """Return standard deviations of entries of the flat vector, single heat paths held.

    Freeing those takes minutes in large meshes and changes what all elements share by less than a third.
    """
    readings = readings_of(fit, data, noise)
    point = readings.point(fit.space, fit.vector)
    weight = readings.weight(readings.residual(point), 0.0)
    solve = NormalEquations(fit.space, point, weight).preconditioner()
    found = []
    for index in which:
        unit = np.zeros(fit.space.size)
        unit[index] = 1.0
        found.append(float(np.sqrt(solve(unit)[index])))
    return found


def _db(exponent: float) -> float:
    """Loss in dB of a field that falls by e to this power."""
    return amplitude_to_db(float(np.exp(-exponent)))
