"""Transfer matrices from homodyne fields, from repeated measurements and from calibrated twins."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike

from calibration._arrays import complexes, heater_powers, number
from calibration._matrix import ComplexArray, Gauge, TransferMatrix, judge
from calibration._matrix_compare import match_phases
from calibration._session import Array
from optinc_hw.errors import CalibrationError
from optinc_hw.photonics import ChipModel, TwinParameters

_RANK = 1e-9


def matrix_from_fields(fields: ArrayLike, outputs: ArrayLike, sigma: float, *, gauge: Gauge = "none") -> TransferMatrix:
    """Reconstruct a complex matrix from measured output fields (homodyne receivers): linear least squares.

    Parameters
    ----------
    fields
        Input fields (B, n) complex in sqrt(W), B >= n.
    outputs
        Measured output fields (B, m) complex in sqrt(W).
    sigma
        Standard deviation of the real and of the imaginary part of a measured field, in sqrt(W).
    gauge
        Phases that input or output fields leave open.

    Returns
    -------
    TransferMatrix
        "poor" where the fields deviate from any matrix by more than noise.

    Raises
    ------
    CalibrationError
        If shapes do not fit, values are no finite numbers, sigma is not positive, or the input fields do not span all
        ports.
    """
    inputs, read, noise = complexes("fields", fields), complexes("outputs", outputs), number("sigma", sigma)
    if inputs.ndim != 2 or read.ndim != 2 or len(inputs) != len(read) or 0 in (*inputs.shape, *read.shape):
        raise CalibrationError(f"fields (B, n) and outputs (B, m) do not fit together: {inputs.shape} and {read.shape}")
    if not (np.isfinite(inputs).all() and np.isfinite(read).all() and 0.0 < noise < np.inf):
        raise CalibrationError(
            "fields or outputs hold NaN or Inf or are masked, or sigma is not positive; leave invalid readings out"
        )
    values = np.linalg.svd(inputs, compute_uv=False)
    if len(inputs) < inputs.shape[1] or values[-1] < _RANK * values[0]:
        raise CalibrationError("the input fields do not span all ports: some combination of inputs is never lit")
    inverse = np.linalg.pinv(inputs)
    matrix = (inverse @ read).T
    spread = noise * np.linalg.norm(inverse, axis=1)
    residual = read - inputs @ matrix.T
    freedom = 2 * (residual.size - matrix.size)
    chi = float(np.linalg.norm(residual) / noise / np.sqrt(freedom)) if freedom else float("nan")
    sigmas = np.broadcast_to(spread[None, :, None], (*matrix.shape, 2)).copy()
    return judge(matrix, sigmas, gauge, f"homodyne fields of {len(inputs)} inputs", chi)


def matrix_from_repeats(
    matrices: ArrayLike, method: str = "homodyne receivers, one input at a time", *, gauge: Gauge = "ports"
) -> TransferMatrix:
    """Average matrices that were measured one after the other; their scatter is the uncertainty.

    Parameters
    ----------
    matrices
        (R, m, n) complex, R >= 2; for instance R calls of ``measure_transfer_matrix(bench)``.
    method
        How they were measured.
    gauge
        Phases that differ from one to the next; they are matched to the first matrix.

    Returns
    -------
    TransferMatrix
        Mean, and standard deviation of the mean; chi is NaN, as nothing is left over to judge by.

    Raises
    ------
    CalibrationError
        If there are fewer than two, or a value is no finite number.
    """
    stack = complexes("matrices", matrices)
    if stack.ndim != 3 or len(stack) < 2 or stack.size == 0 or not np.isfinite(stack).all():
        raise CalibrationError(f"give at least two finite matrices (R, m, n) of one shape, got shape {stack.shape}")
    return _averaged(stack, gauge, f"{method}, {len(stack)} times", np.sqrt(1.0 / len(stack)))


def twin_matrix(parameters: TwinParameters, power_w: ArrayLike) -> ComplexArray:
    """Complex matrix (n, n) of a twin's mesh inputs to its receivers at heater powers (H,) in W.

    Field per field that enters the mesh: gains of detectors and what is before the mesh are not in it.

    Raises
    ------
    CalibrationError
        If powers are no numbers, not finite, negative, or not one for each heater.
    """
    phases = torch.as_tensor(parameters.phases(heater_powers("power_w", power_w, (len(parameters.offset),)))[None])
    with torch.no_grad():
        matrix = ChipModel.from_parameters(parameters).transfer_matrix(phases)[0].numpy()
    return np.asarray(matrix, dtype=np.complex128)


def matrix_from_twin(
    twins: TwinParameters | Sequence[TwinParameters], power_w: ArrayLike, *, gauge: Gauge = "ports"
) -> TransferMatrix:
    """Compute a chip's matrix from calibrated twins.

    Parameters
    ----------
    twins
        A twin, or samples of its posterior, whose scatter is the uncertainty.
    power_w
        Heater powers (H,) in W.
    gauge
        What the calibration left free: ``"ports"`` after powers of single inputs.

    Returns
    -------
    TransferMatrix
        Mean and standard deviation over the samples, "partial" with NaN sigmas if there is one twin only.

    Raises
    ------
    CalibrationError
        If there is no twin, or powers are no numbers, not finite, negative, or not one for each heater.
    """
    samples = [twins] if isinstance(twins, TwinParameters) else list(twins)
    if not samples:
        raise CalibrationError("give at least one twin")
    stack = np.stack([twin_matrix(sample, power_w) for sample in samples])
    if len(stack) == 1:
        unknown = np.full((*stack.shape[1:], 2), np.nan)
        reason = "one twin does not tell how sure it is; give samples of its posterior"
        return TransferMatrix(stack[0], unknown, gauge, "twin", float("nan"), "partial", reason)
    return _averaged(stack, gauge, f"{len(stack)} twins", 1.0)


def _averaged(stack: ComplexArray, gauge: Gauge, method: str, share: float) -> TransferMatrix:
    reference = stack[0]
    for _ in range(2):
        matched = []
        for matrix in stack:
            rows, columns, _ = match_phases(matrix, reference, gauge)
            matched.append(rows[:, None] * matrix * columns)
        reference = np.mean(matched, axis=0)
    turned = (np.array(matched) - reference) * np.exp(-1j * np.angle(reference))
    deviation: Array = np.stack([turned.real, turned.imag], axis=-1)
    sigma = share * np.sqrt(np.sum(deviation**2, axis=0) / (len(stack) - 1))
    return judge(np.asarray(reference), sigma, gauge, method, float("nan"))
