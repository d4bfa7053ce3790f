"""What a mesh fit knows and what it does not: posterior samples, predictive errors, covariances, comparisons.

All of it belongs to the problem linearised at the best vector, with the fit's own priors.  Samples are drawn by
perturbing data and priors and solving again (exact for a linear problem), so no covariance matrix is ever formed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration._checks import require_whole
from calibration._mesh_checks import checked_settings, real_array, require_data
from calibration._mesh_fit import MeshFit, fit_mesh, predict, readings_of, refit
from calibration._mesh_linear import MeshData, MeshPoint
from calibration._mesh_shares import share_distances
from calibration._mesh_solve import NormalEquations, conjugate_gradients
from calibration._session import Array
from calibration._twin_fit import NoiseModel
from optinc_hw.errors import CalibrationError
from optinc_hw.photonics import TwinParameters

_SAMPLE = (0.04, 150)
"""Tolerance and most steps of the solver: what is left out is far less than a sample's own chance."""
_PRIOR_SAMPLES = 2
"""Samples that the estimate of a heater's spread from all others' counts for."""
_COLUMN = (1e-4, 600)
_MEDIAN_SQUARE = 0.4549
"""Median of the square of a normal number."""


def _spread(samples: Array, variance: Array) -> Array:
    """Estimate standard deviations (H,) from few samples (S, H) and variances (H,) that are right but for a factor."""
    expected = variance * np.median(samples**2 / variance) / _MEDIAN_SQUARE
    together = _PRIOR_SAMPLES * expected + np.sum(samples**2, axis=0)
    return np.asarray(np.sqrt(together / (_PRIOR_SAMPLES + len(samples))))


@dataclass(frozen=True)
class HeldOut:
    """How well a twin predicts readings that it was not fitted to.

    Parameters
    ----------
    chi
        Rms residual over noise; 1 is perfect.
    tvd
        Mean total variation distance between predicted and measured output distributions, over readings with light.
    worst_tvd
        Largest such distance of a reading.
    count
        Number of readings, those without light included.
    """

    chi: float
    tvd: float
    worst_tvd: float
    count: int


def held_out(parameters: TwinParameters, data: MeshData, noise: NoiseModel) -> HeldOut:
    """Judge a twin by readings that were kept out of its fit; those with invalid outputs are left out.

    Readings without light, of a lit port whose fibre is dark, have no shares and count for the residual alone.

    Raises
    ------
    CalibrationError
        If the readings are none of the twin's chip, no reading is complete, or fewer than half have light.
    """
    require_data(data, parameters.layout)
    complete = np.all(np.isfinite(data.readings_w), axis=1)
    if not complete.any():
        raise CalibrationError("no reading is valid at all outputs; there is nothing to judge the twin by")
    kept = data.take(complete)
    predicted, sigma = predict(parameters, kept.power_w, kept.lit), noise.sigma(kept.readings_w)
    chi = float(np.sqrt(np.mean(((predicted - kept.readings_w) / sigma) ** 2)))
    distance = share_distances(predicted, kept.readings_w, noise)
    return HeldOut(chi, float(distance.mean()), float(distance.max()), len(kept))


class MeshPosterior:
    """Posterior of a fit, linearised at its best vector.

    Parameters
    ----------
    fit
        The fit.
    data
        The readings that it was fitted to.
    noise
        Noise of a reading.

    Raises
    ------
    CalibrationError
        If the data are not the fit's.
    """

    def __init__(self, fit: MeshFit, data: MeshData, noise: NoiseModel) -> None:
        self.fit, self._noise = fit, noise
        readings = readings_of(fit, data, noise)
        self._point = readings.point(fit.space, fit.vector)
        self._weight = readings.weight(readings.residual(self._point), 0.0)
        self._equations = NormalEquations(fit.space, self._point, self._weight)
        self._precondition = self._equations.preconditioner()

    def samples(self, count: int, rng: np.random.Generator, products: int = _SAMPLE[1]) -> Array:
        """Draw deviations (count, size) of the flat vector from its best value.

        With less than the usual number of products with the matrix, directions that the data hardly see come out
        narrower than they are.

        Raises
        ------
        CalibrationError
            If ``count`` or ``products`` is no whole number of at least 1.
        """
        require_whole("count", count, 1)
        require_whole("products", products, 1)
        equations = NormalEquations(self.fit.space, self._point, self._weight, single=True)
        return np.stack([equations.sample(self._precondition, rng, _SAMPLE[0], products) for _ in range(count)])

    def heater_sigmas(self, samples: Array) -> tuple[Array, Array]:
        """Return standard deviations (H,) of phases at mean power in rad and of efficiencies in rad/W.

        They come from a few samples, and from what the preconditioner knows of them times a factor that is the same
        for all heaters.
        """
        samples = self._checked(samples)
        place = self.fit.space.slices
        offset, own, common = place["offset"], place["efficiency"], place["common_efficiency"].start
        of_phases, of_efficiencies = self._precondition.variances()
        phase = _spread(samples[:, offset], of_phases)
        relative = _spread(samples[:, own] + samples[:, [common]], of_efficiencies)
        return phase, relative * self.fit.parameters.efficiency

    def covariance(self, which: Sequence[int]) -> Array:
        """Covariance matrix of some entries of the flat vector, one solution of the normal equations each.

        Parameters
        ----------
        which
            Indices, as from ``fit.space.slices``.

        Raises
        ------
        CalibrationError
            If one is no entry of the vector.
        """
        for index in which:
            require_whole("an index of the flat vector", index, 0)
            if index >= self.fit.space.size:
                raise CalibrationError(
                    f"index {index} is beyond the flat vector of {self.fit.space.size} entries; take those of "
                    "fit.space.slices"
                )
        columns = np.empty((len(which), len(which)))
        for column, index in enumerate(which):
            unit = np.zeros(self.fit.space.size)
            unit[index] = 1.0
            solved, _ = conjugate_gradients(self._equations.multiply, self._precondition, unit, *_COLUMN)
            columns[column] = solved[list(which)]
        return 0.5 * (columns + columns.T)

    def predictive_deviations(self, samples: Array, power_w: Array, lit: NDArray[np.intp]) -> Array:
        """Deviations (S, B, n) in W of the powers that the samples predict from those of the best vector.

        Raises
        ------
        CalibrationError
            If there are no samples or settings, or they are none of this fit's chip.
        """
        return self._predicted(samples, power_w, lit)[1]

    def _predicted(self, samples: Array, power_w: Array, lit: NDArray[np.intp]) -> tuple[Array, Array]:
        """Powers (B, n) in W of the best vector, and deviations (S, B, n) of those of the samples."""
        samples = self._checked(samples)
        power_w, lit = checked_settings(power_w, lit, self.fit.space.start.layout)
        if not len(lit):
            raise CalibrationError("there are no settings to predict; give one or more")
        point = MeshPoint(self.fit.space, self.fit.vector, power_w, lit)
        return point.predicted, np.stack([point.apply(sample) for sample in samples])

    def _checked(self, samples: Array) -> Array:
        found, size = real_array(samples, "posterior samples"), self.fit.space.size
        if found.ndim != 2 or not len(found) or found.shape[1] != size or not np.isfinite(found).all():
            raise CalibrationError(
                f"posterior samples have shape {found.shape}; one or more rows of {size} finite numbers are needed: "
                "take those of samples() of this fit"
            )
        return found

    def predictive_sigma(self, samples: Array, power_w: Array, lit: NDArray[np.intp]) -> Array:
        """Return standard deviations (B, n) in W of predicted powers, without the noise of a reading."""
        deviations = self.predictive_deviations(samples, power_w, lit)
        return np.asarray(np.sqrt(np.mean(deviations**2, axis=0)))

    def expected_residual(self, samples: Array, power_w: Array, lit: NDArray[np.intp]) -> float:
        """Rms residual over noise to be expected of readings that the fit has not seen: noise and what samples differ.

        A larger one says that the chip does what the model cannot.
        """
        predicted, deviations = self._predicted(samples, power_w, lit)
        unsure = deviations / self._noise.sigma(predicted)
        return float(np.sqrt(1.0 + np.mean(unsure**2)))

    def expected_tvd(self, samples: Array, power_w: Array, lit: NDArray[np.intp]) -> float:
        """Mean total variation distance to be expected between predictions and the chip, noise apart."""
        predicted, deviations = self._predicted(samples, power_w, lit)
        total = predicted.sum(axis=1, keepdims=True)
        # A common factor of a reading's outputs changes no distribution.
        moved = (deviations - predicted / total * deviations.sum(axis=2, keepdims=True)) / total
        return float(0.5 * np.abs(moved).sum(axis=2).mean())


@dataclass(frozen=True)
class CrossValidation:
    """Held-out judgements of the folds of a cross-validation."""

    folds: tuple[HeldOut, ...]

    @property
    def chi(self) -> float:
        """Rms of the folds' residuals over noise."""
        return float(np.sqrt(np.mean([fold.chi**2 for fold in self.folds])))

    @property
    def tvd(self) -> float:
        """Mean of the folds' total variation distances."""
        return float(np.mean([fold.tvd for fold in self.folds]))


def cross_validate(
    data: MeshData, start: TwinParameters, noise: NoiseModel, folds: int, rng: np.random.Generator
) -> CrossValidation:
    """Fit without one part of the readings after the other and judge each fit by the part left out.

    Parameters
    ----------
    data
        Readings at random settings.
    start, noise
        As for `fit_mesh`.
    folds
        Number of parts, at least 2.
    rng
        Deals readings to parts.

    Raises
    ------
    CalibrationError
        If there are fewer than two parts, fewer readings than parts, or a fit fails.
    """
    require_data(data, start.layout)
    require_whole("folds, the number of parts,", folds, 2)
    if len(data) < folds:
        raise CalibrationError(f"{len(data)} readings cannot be dealt to {folds} parts; choose 2 parts or more")
    part = rng.permutation(len(data)) % folds
    judged = []
    for fold in range(folds):
        fit = fit_mesh(data.take(part != fold), start, noise, _quiet, rounds=1)
        judged.append(held_out(fit.parameters, data.take(part == fold), noise))
    return CrossValidation(tuple(judged))


@dataclass(frozen=True)
class EffectVerdict:
    """Whether the data ask for an effect of the model.

    Parameters
    ----------
    block
        Block of the flat vector.
    gain
        By how much twice the logarithm of the posterior density at its best rises when the effect is in the model.
    parameters
        Number of parameters of the effect.
    chi_with, chi_without
        Residuals over noise.
    """

    block: str
    gain: float
    parameters: int
    chi_with: float
    chi_without: float

    @property
    def asked_for(self) -> bool:
        """True if the gain is more than chance gives the effect's parameters (their number plus five sigma)."""
        return bool(self.gain > self.parameters + 5.0 * np.sqrt(2.0 * self.parameters))

    def __str__(self) -> str:
        """Summarise for people."""
        verdict = "asked for" if self.asked_for else "not asked for"
        return (
            f"{self.block}: {verdict} by the data: 2 log p rises by {self.gain:.1f} with {self.parameters} parameters, "
            f"chi {self.chi_without:.2f} without, {self.chi_with:.2f} with"
        )


def effect_asked_for(fit: MeshFit, data: MeshData, noise: NoiseModel, block: str) -> EffectVerdict:
    """Compare the fit with one that lacks an effect.

    Parameters
    ----------
    fit
        A fit in which the block is free.
    data, noise
        Of the fit.
    block
        ``"arm_loss"``, ``"second_order"``, ``"profile"`` or another block of the flat vector.

    Raises
    ------
    CalibrationError
        If the block is not free in the fit, or the fit without it fails.
    """
    if block not in tuple(fit.space.free):  # what cannot be hashed is compared all the same
        raise CalibrationError(f"{block!r} is not free in this fit; fit with it first")
    vector = fit.vector.copy()
    vector[fit.space.slices[block]] = 0.0
    space = fit.space.with_free(fit.space.free - {block})
    lacking = MeshFit(space.twin(vector), fit.chi, fit.steps, fit.spoilt, space, vector)
    without = refit(lacking, data, noise, _quiet, rounds=0)
    size = fit.space.slices[block].stop - fit.space.slices[block].start
    gain = _twice_log_density(without, data, noise) - _twice_log_density(fit, data, noise)
    return EffectVerdict(block, gain, size, fit.chi, without.chi)


def _twice_log_density(fit: MeshFit, data: MeshData, noise: NoiseModel) -> float:
    """Twice the negative log posterior density at the fit's vector, up to a constant."""
    readings = readings_of(fit, data, noise)
    residual = readings.residual(readings.point(fit.space, fit.vector))
    shift = fit.vector - fit.space.centre
    return float(np.sum((residual / readings.sigma) ** 2) + np.sum(fit.space.precision * shift**2))


def _quiet(_step: int, _chi: float) -> None:
    pass
