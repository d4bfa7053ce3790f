"""Phases of a mesh's inputs: what powers of single inputs never show, found from coherent light in several of them.

With one lit input a phase before the mesh changes no power.  A twin that was calibrated so predicts every single input
and no coherent combination: the n - 1 relative input phases, how every heater's heat moves them, and the curvature of
heaters in front of everything, are missing.  In the twin's own parameters they are combinations of external phases: a
phase on an input, pushed through the mesh until it sits on heated arms only (`input_effect`).
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from calibration._arrays import complexes, fits, floats, heater_powers
from calibration._checks import require_whole
from calibration._matrix import MAX_CHI, ComplexArray
from calibration._matrix_input_fit import (
    InputFit,
    fit_input_phases,
    fit_weight,
    heat_learned,
    predicted_powers,
    with_learned_widths,
)
from calibration._session import Array
from calibration._twin_fit import NoiseModel
from optinc_hw.errors import CalibrationError
from optinc_hw.photonics import ChipLayout, ChipModel, TwinParameters
from optinc_hw.photonics.arms import bare_arms

MAX_HELD_OUT_CHI = 1.5
"""Largest rms deviation of held-out coherent readings over their noise with which input phases are good."""
MAX_PHASE_SIGMA = 0.05
"""Largest standard deviation in rad of an input phase, at the mean powers of the data, with which it is good."""
MIN_HEAT_LEARNED = 0.1
"""Part of its prior standard deviation by which readings must narrow at least one coefficient of heat on the inputs."""
HELD_OUT_SHARE = 0.2
"""Share of the settings with coherent readings, the last ones, that a first fit does not see."""
_OWN_SIGMA, _CROSSTALK_SIGMA, _DECAY_PITCHES, _FAR_SIGMA = 0.05, 0.02, 1.5, 1e-5
"""Prior widths: a heater's own efficiency, heat at one pitch, distance over which it falls by e, and far away.

Their common size is learned from the data.
"""
_LEAST_CURVATURE = 1e-4
"""Least prior width in 1/rad of the curvature of heaters in front of everything; else it is that of the others."""
_WIDTH_ROUNDS = 3
_RELEVANT = 1e-4
"""Heat of heaters whose prior width on every input phase is below this is left out of the fit."""


@dataclass(frozen=True)
class InputPhases:
    """Phases of a mesh's inputs relative to input 0, linear in heat but for what ``curvature`` adds.

    Parameters
    ----------
    offset
        Phases (n,) in rad at zero heater power, to be added to what the given twin holds; 0 for input 0.
    crosstalk
        Rows (n, H) to be added likewise, relative to each heater's own phase in the given twin.
    curvature
        Curvatures (H,) in 1/rad to be added to the given twin's; 0 but for heaters in front of everything.
    mean_sigma
        Standard deviations (n,) in rad of the phases at the data's mean powers.
    covariance
        Posterior covariance of the phases at mean powers (n - 1 entries, of inputs 1 to n - 1) and then of coefficients
        of heat, entry ``(i - 1) * (len(heaters) + len(bent)) + k`` for input i: of the heat of ``heaters``, then of the
        squares of that of ``bent``.
    heaters
        Heaters whose heat on the inputs was fitted; of all others it is less than `_RELEVANT` beforehand.
    bent
        Heaters whose curvature was fitted.
    twin
        The given twin with all this in its own terms.
    chi
        Rms residual over noise of all coherent readings: those in which light of several inputs beats by more than the
        noise. All others are the same whatever the input phases, and take no part in any verdict.
    held_out_chi
        Rms deviation over noise of the coherent readings that a first fit did not see.
    before_chi
        Rms deviation over noise of all coherent readings from the given twin.
    verdict
        "poor" if coherent readings are missed: held-out ones by more than `MAX_HELD_OUT_CHI` times their noise, or all
        of them after the fit by more than `MAX_CHI` (2.0) times; "partial" if some input phases are known less well
        than `MAX_PHASE_SIGMA`, or no heater's heat on the inputs better than beforehand (`MIN_HEAT_LEARNED`), so that
        the phases hold at powers like the data's only; else "good".
    reason
        Why it is not good, or an empty string.
    """

    offset: Array
    crosstalk: Array
    curvature: Array
    mean_sigma: Array
    covariance: Array
    heaters: NDArray[np.intp]
    bent: NDArray[np.intp]
    twin: TwinParameters
    chi: float
    held_out_chi: float
    before_chi: float
    verdict: Literal["good", "partial", "poor"]
    reason: str


def input_effect(layout: ChipLayout) -> Array:
    """Return changes (n, H) of the heated phases that stand for one unit of phase on each input of the mesh.

    Phases behind the mesh are left out: power detectors do not see them. The rows add up to nothing, as a common phase
    of all inputs is none.
    """
    unit = np.eye(len(layout.heaters))
    behind = np.zeros((layout.ports, len(unit)))
    for column in reversed(range(layout.mesh.depth)):
        before = behind.copy()
        for cell in layout.mesh.columns[column]:
            upper, phi = layout.mesh.mzis[cell][1], unit[layout.mesh_phi[cell]]
            # A common phase of both arms passes the MZI.
            before[upper], before[upper + 1] = phi, behind[upper] + behind[upper + 1] - phi
        behind = before
    return behind


def heaters_before_all(effect: Array) -> NDArray[np.intp]:
    """Return the heaters whose phases are nothing but phases of inputs, given `input_effect`."""
    of_inputs = np.linalg.pinv(effect) @ effect
    return np.flatnonzero(np.abs(of_inputs - np.eye(len(of_inputs))).max(axis=0) < 1e-9)


def find_input_phases(
    twin: TwinParameters,
    power_w: ArrayLike,
    fields: ArrayLike,
    readings_w: ArrayLike,
    noise: NoiseModel,
    *,
    seed: int = 0,
) -> InputPhases:
    """Find the input phases that a calibration with single lit inputs left open, from coherent readings.

    Maximum a posteriori; the prior of the inputs' crosstalk is what heat that spreads over neighbouring arms leaves
    open when all that single inputs show is known, in a size that is learned from the data. A first fit without the
    last `HELD_OUT_SHARE` of the settings with coherent readings is judged by them; the final one has all.

    Parameters
    ----------
    twin
        Twin of a chip without modulators and with power detectors that predicts single lit inputs.
    power_w
        Heater powers (B, H) in W; vary all heaters, or their heat on the inputs stays unknown. In random order: the
        last ones are held out.
    fields
        Fields (B, n) complex that enter the ports, in units of the twin's ``input_amplitude``; two lit ports or more.
        Their phases may hold a constant of each port, which then counts as the input's phase.
    readings_w
        Detector readings (B, n) in W, dark readings subtracted; NaN, Inf and masked ones are left out.
    noise
        Noise of a reading.
    seed
        Seed of the random starts, a whole number of at least 0.

    Returns
    -------
    InputPhases
        With the corrected twin.

    Raises
    ------
    CalibrationError
        If the chip has modulators or homodyne receivers, arguments are no numbers, shapes do not fit, powers or fields
        are not finite, a power is negative, or there are fewer coherent readings than twice the input phases.
    """
    require_whole("seed", seed, 0)
    powers, lit = _checked(twin, power_w, fields)
    readings = floats("readings_w", readings_w)
    if readings.shape != lit.shape:
        raise CalibrationError(
            f"powers (B, H), fields (B, n) and readings (B, n) do not fit together: {powers.shape}, {lit.shape} and "
            f"{readings.shape}"
        )
    readings = np.where(np.isfinite(readings), readings, np.nan)
    effect = input_effect(twin.layout)
    heaters, prior = _crosstalk_prior(twin.layout, effect)
    bent, bent_prior = _curvature_prior(twin, effect)
    drive = twin.efficiency * twin.layout.movable * powers
    heats = np.concatenate([drive[:, heaters], drive[:, bent] ** 2], axis=1)
    mean = heats.mean(axis=0)
    fit_data = InputFit(
        _matrices(twin, powers), lit * twin.input_amplitude, readings, np.insert(heats - mean, 0, 1.0, axis=1),
        np.concatenate([prior, bent_prior]), len(heaters), noise,
    )  # fmt: skip
    train, kept_out = _split(fit_data)
    before = _chi(fit_data, np.zeros((twin.ports, heats.shape[1] + 1)))
    first, _ = _learned(fit_data.part(train), seed, None)
    held_out = _chi(fit_data.part(kept_out), first)
    solution, weighted = _learned(fit_data, seed, first)
    chi = _chi(fit_data, solution)
    covariance = np.asarray(np.linalg.inv(fit_weight(weighted, solution)), dtype=np.float64)
    crosstalk, curvature = np.zeros((twin.ports, len(twin.offset))), np.zeros(len(twin.offset))
    crosstalk[:, heaters] = solution[:, 1 : len(heaters) + 1]
    curvature[bent] = np.diagonal(effect.T[bent] @ solution[:, len(heaters) + 1 :])
    offset = solution[:, 0] - solution[:, 1:] @ mean
    sigma = np.concatenate([[0.0], np.sqrt(np.diagonal(covariance)[: twin.ports - 1])])
    verdict, reason = _judge(held_out, chi, sigma, max(heat_learned(data, covariance) for data in (fit_data, weighted)))
    corrected = _corrected(twin, effect, offset, crosstalk, curvature)
    return InputPhases(
        np.angle(np.exp(1j * offset)), crosstalk, curvature, sigma, covariance, heaters, bent, corrected,
        chi, held_out, before, verdict, reason,
    )  # fmt: skip


def coherent_readings(twin: TwinParameters, power_w: ArrayLike, fields: ArrayLike) -> Array:
    """Detector readings (B, n) in W, without dark readings, that a twin predicts for coherent light in several ports.

    Parameters
    ----------
    twin
        Twin of a chip without modulators and with power detectors.
    power_w
        Heater powers (B, H) in W.
    fields
        Fields (B, n) complex that enter the ports, in units of the twin's ``input_amplitude``.

    Raises
    ------
    CalibrationError
        If the chip has modulators or homodyne receivers, arguments are no numbers, shapes do not fit, powers or fields
        are not finite, or a power is negative.
    """
    powers, lit = _checked(twin, power_w, fields)
    outputs = (_matrices(twin, powers) @ (lit * twin.input_amplitude)[:, :, None])[:, :, 0]
    return np.asarray(np.abs(outputs) ** 2)


def _checked(twin: TwinParameters, power_w: ArrayLike, fields: ArrayLike) -> tuple[Array, ComplexArray]:
    """Return powers (B, H) and fields (B, n) of a chip without modulators and with power detectors."""
    if not twin.layout.bare:
        raise CalibrationError(
            "coherent readings are those of chips without modulators and with power detectors; on others the input "
            "modulators' phases are in the twin already"
        )
    powers, lit = heater_powers("power_w", power_w, ("B", "H")), complexes("fields", fields)
    if powers.shape[1] != len(twin.offset) or not fits(lit, (len(powers), twin.ports)):
        raise CalibrationError(
            f"powers (B, {len(twin.offset)}) and fields (B, {twin.ports}) do not fit together: {powers.shape} and "
            f"{lit.shape}"
        )
    if not np.isfinite(lit).all():
        raise CalibrationError("fields hold NaN or Inf, or are masked; leave such settings out")
    return powers, lit


def _split(data: InputFit) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the settings of a first fit, and those that judge it: the last ones with coherent readings."""
    coherent, phases = data.coherent(), data.fields.shape[1] - 1
    telling = np.flatnonzero(coherent.any(axis=1))
    if coherent.sum() < 2 * phases or not len(telling):
        raise CalibrationError(
            f"{int(coherent.sum())} valid readings in which light of two ports or more beats by more than the noise do "
            f"not determine {phases} input phases; take more"
        )
    if len(telling) < 2:
        raise CalibrationError("all coherent readings are of one setting, and none are left to judge by; take more")
    kept_out = telling[-max(1, round(HELD_OUT_SHARE * len(telling))) :]
    return np.setdiff1d(np.arange(len(coherent)), kept_out), kept_out


def _matrices(twin: TwinParameters, powers: Array) -> ComplexArray:
    """Matrices (B, n, n) from mesh inputs to square roots of readings."""
    phases = torch.as_tensor(twin.phases(powers))
    with torch.no_grad():
        matrices = ChipModel.from_parameters(twin).transfer_matrix(phases).numpy()
    return np.asarray(np.sqrt(twin.gain)[:, None] * matrices)


def _crosstalk_prior(layout: ChipLayout, effect: Array) -> tuple[NDArray[np.intp], Array]:
    """Find the heaters whose heat on the inputs matters, and prior precisions (len, n - 1, n - 1) of it.

    Heat on any arm is a change ``d`` of the heated phases with a covariance S by geometry. Single inputs show all of it
    but combinations ``E^T r`` of input phases; given everything else, r has the precision ``E S^-1 E^T``.
    """
    bare = bare_arms(layout)
    every = np.concatenate([np.eye(len(layout.heaters)), bare.effect], axis=1)
    sites = np.concatenate([layout.heater_sites, bare.sites])
    chosen: list[int] = []
    precisions: list[Array] = []
    for heater, site in enumerate(layout.heater_sites):
        distance = np.linalg.norm(sites - site, axis=1)
        sigma = np.hypot(_CROSSTALK_SIGMA * np.exp(-np.maximum(distance - 1.0, 0.0) / _DECAY_PITCHES), _FAR_SIGMA)
        sigma[heater] = _OWN_SIGMA
        covariance = (every * sigma**2) @ every.T + _FAR_SIGMA**2 * np.eye(len(every))
        precision = effect[1:] @ np.linalg.solve(covariance, effect[1:].T)
        if np.sqrt(np.diagonal(np.linalg.inv(precision)).max(initial=0.0)) > _RELEVANT:
            chosen.append(heater)
            precisions.append(precision)
    n = layout.ports
    return np.array(chosen, dtype=np.intp), np.array(precisions).reshape(-1, n - 1, n - 1)


def _curvature_prior(twin: TwinParameters, effect: Array) -> tuple[NDArray[np.intp], Array]:
    """Find the heaters in front of everything, and prior precisions (len, n - 1, n - 1) of what their squares do.

    Powers show the curvatures of the others, and so how large these may be.
    """
    bent = heaters_before_all(effect)
    bent = bent[twin.layout.movable[bent]]
    others = np.delete(twin.curvature, bent)
    sigma = max(_LEAST_CURVATURE, float(np.sqrt(np.mean(others**2))) if len(others) else 0.0)
    inputs = np.linalg.pinv(effect)[bent]
    by_input = (inputs - inputs[:, :1])[:, 1:]
    covariance = sigma**2 * (by_input[:, :, None] * by_input[:, None, :] + 1e-4 * np.eye(twin.ports - 1))
    return bent, np.asarray(np.linalg.inv(covariance), dtype=np.float64)


def _chi(data: InputFit, solution: Array) -> float:
    """Rms deviation of coherent readings over their noise."""
    predicted = predicted_powers(data, solution)
    deviation = ((predicted - data.readings) / data.noise.sigma(predicted))[data.coherent()]
    return float(np.sqrt(np.mean(deviation**2)))


def _learned(data: InputFit, seed: int, start: Array | None) -> tuple[Array, InputFit]:
    """Fit, and learn how large heat on the inputs is; returns the data with prior widths of that size."""
    solution = fit_input_phases(data, np.random.default_rng(seed), start)
    for _ in range(_WIDTH_ROUNDS):
        data = with_learned_widths(data, solution)
        solution = fit_input_phases(data, np.random.default_rng(seed), solution)
    return solution, data


def _judge(
    held_out: float, chi: float, sigma: Array, heat: float
) -> tuple[Literal["good", "partial", "poor"], str]:  # fmt: skip
    missed, vague = [], []
    for value, limit, name in ((held_out, MAX_HELD_OUT_CHI, "held-out"), (chi, MAX_CHI, "fitted")):
        if not value <= limit:
            missed.append(f"{name} coherent readings are missed by {value:.3g} times their noise ({limit:g} allowed)")
    if missed:
        missed[-1] += ": take more readings, or calibrate single inputs better"
    unsure = np.flatnonzero(~(sigma <= MAX_PHASE_SIGMA)).tolist()
    if unsure:
        names = ", ".join(f"{i} ({min(sigma[i], np.pi):.2g} rad)" for i in unsure)
        vague.append(f"phases of inputs {names} are known worse than {MAX_PHASE_SIGMA:g} rad: light them with others")
    if not heat >= MIN_HEAT_LEARNED:
        vague.append(
            "readings tell nothing of the heat on the inputs, so that the phases hold at powers like these only: vary "
            "the powers of all heaters"
        )
    return "poor" if missed else "partial" if vague else "good", "; ".join(missed + vague)


def _corrected(
    twin: TwinParameters, effect: Array, offset: Array, crosstalk: Array, curvature: Array
) -> TwinParameters:
    """Put input phases into a twin; heat on a heater's own phase goes into its efficiency."""
    every = twin.crosstalk + effect.T @ crosstalk
    own = np.diagonal(every).copy()
    bend = twin.second_order[0] + twin.curvature + curvature
    return replace(
        twin, offset=twin.offset + effect.T @ offset, efficiency=twin.efficiency * own, crosstalk=every / own,
        curvature=bend / own**2 - twin.second_order[0],
    )  # fmt: skip
