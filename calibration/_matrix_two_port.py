"""Transfer matrix from powers alone: single inputs, and pairs of inputs whose relative phase is stepped."""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibration._arrays import complexes, floats, integers
from calibration._matrix import MAX_CHI, ComplexArray, TransferMatrix, judge
from calibration._matrix_rows import element_sigmas, refine_rows, row_covariances
from calibration._session import Array
from calibration._twin_fit import NoiseModel
from optinc_hw.errors import CalibrationError

MIN_STEPS = 3
"""Fewest different phases of a pair: a fringe has a mean, an amplitude and a phase."""
CLEAR_FRINGE = 5.0
"""Ratio of a fringe's amplitude to its noise from which its phase is used."""
COHERENCE_TOLERANCE = 0.02
"""Deviation of a pair's visibility from 1 at which its light counts as incoherent (with 4 sigma on top)."""
_ONE_LINE = 1e-3


def matrix_from_two_port(
    single_w: ArrayLike,
    pairs: ArrayLike,
    phases: ArrayLike,
    fringes_w: ArrayLike,
    noise: NoiseModel,
    *,
    fields: ArrayLike | None = None,
    gauge: Literal["ports", "outputs"] = "ports",
) -> TransferMatrix:
    """Reconstruct a complex matrix from output powers of coherent light in one and in two inputs.

    Moduli come from single inputs, phases from fringes (Rahimi-Keshari et al. 2013): no unitarity is assumed, so
    losses do no harm. n - 1 pairs that connect all inputs are enough (2n - 1 configurations); choose them with
    `plan_pairs`, as a pair shows nothing at outputs where one of its inputs is dark. All readings are then fitted
    together, with the light that closed inputs leak if ``fields`` tells of it.

    The complex conjugate of the matrix would give the mirrored fringes. It is excluded by the direction of ``phases``:
    they must grow with the phase of the second input's field, ``exp(+i phase)``.

    Parameters
    ----------
    single_w
        Output powers (n, m) in W with one input lit at a time (first axis), dark readings subtracted.
    pairs
        Inputs (P, 2) that were lit together; the second one's phase was stepped.
    phases
        Phases (P, S) in rad of the second input's field against the first one's, up to a constant of each input.
    fringes_w
        Output powers (P, S, m) in W.
    noise
        Noise of a reading.
    fields
        Input fields (n + P S, n) complex in sqrt(W) of all readings, singles first; None means 1 sqrt(W) in lit inputs
        and nothing in the others, and the matrix then is in units of the lit fields.
    gauge
        ``"outputs"`` if the phases of the input fields are known, ``"ports"`` if they have unknown constants.

    Returns
    -------
    TransferMatrix
        With "partial" and the elements named where fringes are too dark, "poor" where readings do not fit.

    Raises
    ------
    CalibrationError
        If shapes do not fit, values are no finite numbers, or a pair has fewer than `MIN_STEPS` different phases or
        phases on one line (0 and pi), which cannot tell the matrix from its complex conjugate.
    """
    single, fringes = floats("single_w", single_w), floats("fringes_w", fringes_w)
    pair, phase = integers("pairs", pairs), floats("phases", phases)
    _check(single, pair, phase, fringes)
    n, m = single.shape
    readings = np.concatenate([single, fringes.reshape(-1, m)])
    actual = ideal_fields(n, pair, phase) if fields is None else complexes("fields", fields)
    if actual.shape != (len(readings), n) or not np.isfinite(actual).all():
        raise CalibrationError(f"fields must be finite and have shape {(len(readings), n)}, got {actual.shape}")
    lit = np.abs(np.diagonal(actual[:n]))
    if not (lit > 0.0).all():
        raise CalibrationError(
            f"row {int(np.argmin(lit))} of fields does not light the input of that number; give the singles first"
        )
    modulus = (np.sqrt(np.maximum(single, 0.0)) / lit[:, None]).T
    fringe, strength = _fringes(single, pair, phase, fringes, noise)
    fit = refine_rows(actual, readings, _start(modulus, pair, fringe, strength), noise)
    bright = single.T / noise.sigma(single.T) > CLEAR_FRINGE
    free = _free_parts(_parts(pair, strength, n), modulus, bright) if gauge == "ports" else None
    sigma = element_sigmas(fit.rows, row_covariances(actual, fit.rows, noise, free))
    freedom = readings.size - m * (2 * n - 1)
    chi = float(np.sqrt(fit.cost.sum() / freedom)) if freedom > 0 else float("nan")
    objection = _incoherence(single, pair, fringe, noise) if chi > MAX_CHI else ""
    method = f"powers of {n} single inputs and {len(pair)} pairs of inputs, {len(readings)} readings"
    return judge(fit.rows, sigma, gauge, method, chi, objection)


def ideal_fields(inputs: int, pairs: NDArray[np.intp], phases: Array) -> ComplexArray:
    """Input fields (n + P S, n) of the readings of `matrix_from_two_port` if closed inputs are dark and lit ones 1."""
    fringes = np.zeros((*phases.shape, inputs), complex)
    for index, (first, second) in enumerate(pairs):
        fringes[index, :, first] = 1.0
        fringes[index, :, second] = np.exp(1j * phases[index])
    return np.concatenate([np.eye(inputs, dtype=complex), fringes.reshape(-1, inputs)])


def _check(single: Array, pairs: NDArray[np.intp], phases: Array, fringes: Array) -> None:
    if single.ndim != 2 or single.size == 0:
        raise CalibrationError(f"powers of single inputs must be (inputs, outputs), got shape {single.shape}")
    n, m = single.shape
    count = pairs.shape[0] if pairs.ndim == 2 else -1
    if phases.ndim != 2 or pairs.shape != (count, 2) or len(phases) != count or fringes.shape != (*phases.shape, m):
        raise CalibrationError(
            f"pairs (P, 2), phases (P, S) and fringes (P, S, {m}) do not fit together: {pairs.shape}, {phases.shape} "
            f"and {fringes.shape}"
        )
    if not (np.isfinite(single).all() and np.isfinite(phases).all() and np.isfinite(fringes).all()):
        raise CalibrationError("powers or phases hold NaN or Inf, or are masked; leave invalid readings out")
    for index, (first, second) in enumerate(pairs):
        if first == second or not (0 <= first < n and 0 <= second < n):
            raise CalibrationError(
                f"pair {index} lights inputs {first} and {second}; give two different ones of 0..{n - 1}"
            )
        design = _design(phases[index])
        if len(design) < MIN_STEPS or np.linalg.svd(design, compute_uv=False)[-1] < _ONE_LINE:
            raise CalibrationError(
                f"pair {index} has no {MIN_STEPS} different phases, or all on one line (0 and pi), where the matrix "
                "and its complex conjugate give the same fringe; step the phase through a whole turn"
            )


def _design(phases: Array) -> Array:
    return np.stack([np.ones_like(phases), np.cos(phases), np.sin(phases)], axis=1)


def _fringes(
    single: Array, pairs: NDArray[np.intp], phases: Array, fringes: Array, noise: NoiseModel
) -> tuple[ComplexArray, Array]:
    """Fit complex amplitudes (P, m) in W, of the phase of the second element against the first, and over noise."""
    amplitude = np.zeros((len(pairs), single.shape[1]), complex)
    strength = np.zeros(amplitude.shape)
    for index, (first, second) in enumerate(pairs):
        inverse = np.linalg.pinv(_design(phases[index]))
        _, cosine, sine = inverse @ fringes[index]
        amplitude[index] = cosine - 1j * sine
        sigma = (
            noise.sigma(np.maximum(single[first] + single[second], 0.0)) * np.linalg.norm(inverse[1:]) / np.sqrt(2.0)
        )
        strength[index] = np.abs(amplitude[index]) / sigma
    return amplitude, strength


def _start(modulus: Array, pairs: NDArray[np.intp], fringe: ComplexArray, strength: Array) -> ComplexArray:
    """Rows (m, n) with the phases that the strongest fringes give one after the other."""
    rows = modulus.astype(complex)
    m, n = modulus.shape
    for j in range(m):
        known = np.zeros(n, bool)
        while not known.all():
            reach = np.where(known[pairs[:, 0]] ^ known[pairs[:, 1]], strength[:, j], -1.0)
            if not (reach > 0.0).any():
                known[int(np.argmax(np.where(known, -1.0, modulus[j])))] = True
                continue
            index = int(np.argmax(reach))
            first, second = pairs[index]
            turn = np.exp(1j * np.angle(fringe[index, j]))
            if known[first]:
                rows[j, second] *= turn * np.exp(1j * np.angle(rows[j, first]))
            else:
                rows[j, first] *= np.conj(turn) * np.exp(1j * np.angle(rows[j, second]))
            known[[first, second]] = True
    return rows


def _parts(pairs: NDArray[np.intp], strength: Array, inputs: int) -> NDArray[np.intp]:
    """Find the parts (m, n) of each row whose phases clear fringes tie together, by their first input."""
    parts = np.tile(np.arange(inputs), (strength.shape[1], 1))
    for j, row in enumerate(parts):
        for index in np.flatnonzero(strength[:, j] > CLEAR_FRINGE):
            low, high = sorted(row[pairs[index]])
            row[row == high] = low
    return parts


def _free_parts(parts: NDArray[np.intp], modulus: Array, bright: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Find the parts (m, n) of each row between which a phase is free.

    A row in two parts leaves a phase open. That phase is free after all if no other rows tie the inputs of one part
    to those of the other: then the ports' phases absorb it (a permutation is the extreme case). Otherwise it is
    unknown, and the part gets the number of the row's brightest one.
    """
    m, n = parts.shape
    group = np.arange(n)  # inputs that are tied together
    joins: list[tuple[int, list[NDArray[np.intp]]]] = []
    for j in range(m):
        labels = np.unique(parts[j][bright[j]])
        members = [np.flatnonzero((parts[j] == label) & bright[j]) for label in labels]
        members.sort(key=lambda inputs: -float(np.sum(modulus[j, inputs] ** 2)))
        for inputs in members:
            _tie(group, inputs)
        joins.append((j, members))
    free = np.zeros((m, n), dtype=np.intp)
    for j, members in joins:
        for number, inputs in enumerate(members[1:], start=1):
            if group[inputs[0]] not in group[np.concatenate(members[:number])]:
                free[j, inputs] = number
            _tie(group, np.concatenate(members[: number + 1]))
    return free


def _tie(group: NDArray[np.intp], inputs: NDArray[np.intp]) -> None:
    joined = np.isin(group, group[inputs])
    group[joined] = group[joined].min()


def _incoherence(single: Array, pairs: NDArray[np.intp], fringe: ComplexArray, noise: NoiseModel) -> str:
    """Name the pairs whose fringes are weaker or stronger than two coherent fields give."""
    power = np.maximum(single, 0.0)
    odd = []
    for index, (first, second) in enumerate(pairs):
        full = 2.0 * np.sqrt(power[first] * power[second])
        weight = 1.0 / noise.sigma(power[first] + power[second]) ** 2
        information = float(np.sum(weight * full**2))
        visibility = float(np.sum(weight * full * np.abs(fringe[index]))) / max(information, 1e-300)
        if abs(visibility - 1.0) > COHERENCE_TOLERANCE + 4.0 / np.sqrt(max(information, 1e-300)):
            odd.append(f"{first} and {second} ({visibility:.3g})")
    if not odd:
        return ""
    return (
        f"the visibility of the fringes of inputs {', '.join(odd[:4])} is not 1: light that is not fully coherent or "
        "polarised alike, powers that drifted, or closed inputs that leak (give the actual fields)"
    )
