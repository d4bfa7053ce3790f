"""Transfer matrix from powers alone: generic coherent inputs and phase retrieval of each row."""

import numpy as np
from numpy.typing import ArrayLike

from calibration._arrays import complexes, floats
from calibration._checks import require_whole
from calibration._matrix import ComplexArray, TransferMatrix, judge
from calibration._matrix_rows import element_sigmas, power_sigmas, refine_rows, row_covariances, row_powers
from calibration._session import Array
from calibration._twin_fit import NoiseModel
from optinc_hw.errors import CalibrationError

HELD_OUT_SPREADS = 6.0
"""Number of standard deviations by which the rms of k held-out readings over noise, 1 +- 1/sqrt(2 k), may exceed 1."""
_STARTS, _ROUNDS = 6, 5
_REFLECTIONS, _RELAXATION = 200, 0.9
_GOOD_CHI = 1.6
_SAME = 0.99
"""Overlap of two normalised rows from which they are one solution."""
_REAL = 1e-4
_RANK = 1e-6


def fewest_inputs(ports: int) -> int:
    """Return how many generic input vectors determine a row of ``ports`` elements by their output powers, 4n - 4."""
    return max(4 * ports - 4, 1)


def generic_fields(ports: int, count: int, rng: np.random.Generator) -> ComplexArray:
    """Draw input fields (count, n): moduli uniform in 0.2 to 1, phases over the circle.

    Raises
    ------
    CalibrationError
        If ``ports`` is no whole number of at least 1, or ``count`` none of at least 0.
    """
    require_whole("ports", ports, 1)
    require_whole("count", count, 0)
    size = rng.uniform(0.2, 1.0, (count, ports))
    return np.asarray(size * np.exp(2j * np.pi * rng.random((count, ports))))


def matrix_from_generic_inputs(
    fields: ArrayLike, power_w: ArrayLike, noise: NoiseModel, *, held_out: int | None = None, seed: int = 0
) -> TransferMatrix:
    """Reconstruct a complex matrix from the output powers of known generic input vectors.

    Every row is a phase retrieval: relaxed reflections between "fields of some row" and "fields of the measured
    moduli" from several starts, then weighted Gauss-Newton steps. 4n - 4 inputs determine a row in principle; from 5n
    on the solution is found from few starts. Whether it is the only one is tested with inputs that are held out, and
    by solutions of other starts that explain the readings as well. Held-out readings take part in the final fit.

    Parameters
    ----------
    fields
        Input fields (B, n) complex in sqrt(W), phases known; their light need not reach every port each time.
    power_w
        Output powers (B, m) in W, dark readings subtracted.
    noise
        Noise of a reading.
    held_out
        Number of inputs, the last ones, that are held out; None means an eighth of them if
        4n - 4 are left, and at least 2.
    seed
        Seed of the random starts, a whole number of at least 0.

    Returns
    -------
    TransferMatrix
        With gauge ``"outputs"`` (a phase of each row), "poor" where a row is not the only one or explains nothing.

    Raises
    ------
    CalibrationError
        If shapes do not fit, values are no finite numbers, there are fewer inputs than 4n - 4 and the held-out ones,
        they do not span all ports, or their phases lie on one line, so that the complex conjugate explains them too.
    """
    inputs, power = complexes("fields", fields), floats("power_w", power_w)
    require_whole("seed", seed, 0)
    _check_shapes(inputs, power)
    if held_out is None:
        spare = len(inputs) - fewest_inputs(inputs.shape[1])
        kept_out = max(2, min(len(inputs) // 8, spare))
    else:
        require_whole("held_out", held_out, 0)
        kept_out = held_out
    _check(inputs, kept_out)
    train = len(inputs) - kept_out
    rng = np.random.default_rng(seed)
    rows, rivals = _solve(inputs[:train], power[:train], noise, rng)
    covariances = row_covariances(inputs[:train], rows, noise)
    objection = _held_out(inputs[train:], power[train:], rows, covariances, noise)
    if rivals:
        objection = "; ".join(filter(None, [objection, f"other rows explain outputs {_names(rivals)} as well"]))
    fit = refine_rows(inputs, power, rows, noise)
    sigma = element_sigmas(fit.rows, row_covariances(inputs, fit.rows, noise))
    freedom = power.size - power.shape[1] * (2 * inputs.shape[1] - 1)
    chi = float(np.sqrt(fit.cost.sum() / freedom)) if freedom > 0 else float("nan")
    method = f"powers of {len(inputs)} generic inputs"
    return judge(fit.rows, sigma, "outputs", method, chi, objection)


def _check_shapes(fields: ComplexArray, power_w: Array) -> None:
    if fields.ndim != 2 or power_w.ndim != 2 or len(fields) != len(power_w) or 0 in (*fields.shape, *power_w.shape):
        raise CalibrationError(
            f"fields (B, n) and powers (B, m) need one row an input vector, got {fields.shape} and {power_w.shape}"
        )
    if not (np.isfinite(fields).all() and np.isfinite(power_w).all()):
        raise CalibrationError("fields or powers hold NaN or Inf, or are masked; leave invalid readings out")


def _check(fields: ComplexArray, held_out: int) -> None:
    n = fields.shape[1]
    if len(fields) - held_out < fewest_inputs(n):
        raise CalibrationError(
            f"{len(fields)} inputs, {held_out} of them held out, do not determine rows of {n} elements: "
            f"{fewest_inputs(n)} are needed besides the held-out ones"
        )
    values = np.linalg.svd(fields[: len(fields) - held_out], compute_uv=False)
    if values[-1] < _RANK * values[0]:
        raise CalibrationError("the input vectors do not span all ports: some combination of inputs is never lit")
    if n > 1 and _mirrored(fields):
        raise CalibrationError(
            "the phases of the input vectors lie on one line at every port (real fields), so that a row and its "
            "complex conjugate give the same powers; turn the phases through the whole circle"
        )


def _mirrored(fields: ComplexArray) -> bool:
    """Whether each port's phase against each other port's is one constant, modulo half a turn, in all vectors."""
    squares = fields**2
    pairs = squares.T @ squares.conj()
    sizes = np.abs(squares).T @ np.abs(squares)
    return bool((np.abs(pairs) >= (1.0 - _REAL) * sizes).all())


def _solve(
    fields: ComplexArray, power_w: Array, noise: NoiseModel, rng: np.random.Generator
) -> tuple[ComplexArray, list[int]]:
    """Rows (m, n) that explain the powers best, and the outputs that other rows explain as well."""
    n, m = fields.shape[1], power_w.shape[1]
    freedom = max(len(fields) - (2 * n - 1), 1)
    best, cost = np.zeros((m, n), complex), np.full(m, np.inf)
    rivals: dict[int, list[ComplexArray]] = {j: [] for j in range(m)}
    for round_ in range(_ROUNDS):
        open_ = np.flatnonzero(cost > _GOOD_CHI**2 * freedom)
        if not len(open_):
            break
        starts = _STARTS * 2**round_
        powers = np.repeat(power_w[:, open_], starts, axis=1)
        fit = refine_rows(fields, powers, _reflected(fields, powers, rng), noise)
        for index, j in enumerate(open_.tolist()):
            found = slice(index * starts, (index + 1) * starts)
            lowest = int(np.argmin(fit.cost[found]))
            if fit.cost[found][lowest] < cost[j]:
                best[j], cost[j] = fit.rows[found][lowest], fit.cost[found][lowest]
            rivals[j] += [row for row, c in zip(fit.rows[found], fit.cost[found], strict=True) if c < 4.0 * freedom]
    rivalled = [j for j in range(m) if any(_overlap(best[j], row) < _SAME for row in rivals[j])]
    return best, [j for j in rivalled if _bright(fields, best[j], noise)]


def _reflected(fields: ComplexArray, power_w: Array, rng: np.random.Generator) -> ComplexArray:
    """Rows (m, n) after relaxed averaged alternating reflections from random output phases."""
    basis, triangle = np.linalg.qr(fields)
    modulus = np.sqrt(np.maximum(power_w, 0.0))
    outputs = modulus * np.exp(2j * np.pi * rng.random(modulus.shape))
    for _ in range(_REFLECTIONS):
        measured = modulus * np.exp(1j * np.angle(outputs))
        reflected = 2.0 * measured - outputs
        average = outputs + basis @ (basis.conj().T @ (2.0 * reflected)) - reflected
        outputs = 0.5 * _RELAXATION * average + (1.0 - _RELAXATION) * measured
    measured = modulus * np.exp(1j * np.angle(outputs))
    return np.asarray(np.linalg.solve(triangle, basis.conj().T @ measured).T)


def _held_out(
    fields: ComplexArray, power_w: Array, rows: ComplexArray, covariances: Array, noise: NoiseModel
) -> str:  # fmt: skip
    if not len(fields):
        return ""
    predicted = row_powers(fields, rows)
    sigma = np.hypot(noise.sigma(predicted), power_sigmas(fields, rows, covariances))
    chi = np.sqrt(np.mean(((power_w - predicted) / sigma) ** 2, axis=0))
    limit = 1.0 + HELD_OUT_SPREADS / np.sqrt(2.0 * len(fields))
    wrong = np.flatnonzero(~(chi <= limit)).tolist()
    if not wrong:
        return ""
    return (
        f"held-out readings of outputs {_names(wrong)} are missed by {np.nanmax(chi):.3g} times their noise "
        f"({limit:.2g} allowed)"
    )


def _overlap(first: ComplexArray, second: ComplexArray) -> float:
    norm = float(np.linalg.norm(first) * np.linalg.norm(second))
    return float(abs(np.vdot(first, second))) / max(norm, 1e-300)


def _bright(fields: ComplexArray, row: ComplexArray, noise: NoiseModel) -> bool:
    """Whether an output's light stands out of noise; a dark row has no direction."""
    power = row_powers(fields, row[None])
    return bool((power > 10.0 * noise.sigma(power)).any())


def _names(outputs: list[int]) -> str:
    return ", ".join(str(j) for j in outputs[:8]) + (" and others" if len(outputs) > 8 else "")
