"""The part of the demo that needs the chip: gradients and matrices through the instruments."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import hadamard

from optinc_hw.aggregation import BenchExecutor
from optinc_hw.bench import Bench
from optinc_hw.bench.tile_runner import BenchTileRunner
from optinc_hw.onn import OpticalNetwork, TilePlan, TileRunner, encode_pam4, quantised_mean, symbol_error_rate
from optinc_hw.photonics import TwinParameters
from optinc_hw.units import dbm_to_watt

DESIGN_LO_SHARE = 0.15
"""Part of the laser's power that the chip's design gives to the local oscillator."""
_REPEATS = 4

Codes = NDArray[np.integer[Any]]

CountProgress = Callable[[int, int], None]
"""Called with (done, total)."""


@dataclass(frozen=True, eq=False)
class SampleRun:
    """Gradient elements that went through the chip.

    Parameters
    ----------
    analogue
        Output symbols (elements, M) before the receivers' decision, in PAM4 levels.
    answers
        Codes (elements,) decided from them.
    wanted_symbols
        PAM4 symbols (elements, M) of the exact means.
    symbol_error_rate
        Share of wrong PAM4 symbols.
    """

    analogue: NDArray[np.float64]
    answers: NDArray[np.int64]
    wanted_symbols: NDArray[np.int64]
    symbol_error_rate: float


@dataclass(frozen=True, eq=False)
class MatrixMeasurement:
    """A target matrix and what the chip made of it.

    Parameters
    ----------
    name
        What the matrix is for.
    target
        Target (rows, cols), field amplitude out per amplitude in.
    calibrated, uncalibrated
        Measured matrices (rows, cols), programmed with the calibrated and with the nominal twin.
    """

    name: str
    target: NDArray[np.float64]
    calibrated: NDArray[np.float64]
    uncalibrated: NDArray[np.float64]

    @property
    def rms_error(self) -> float:
        """Rms deviation of the entries measured with calibration from the target."""
        return float(np.sqrt(np.mean((self.calibrated - self.target) ** 2)))


def nominal_twin(bench: Bench) -> TwinParameters:
    """Return the chip as designed: what one would program without a calibration.

    Offsets of all phases are taken as zero; laser power and heater efficiency are those of chip.yaml.
    """
    chip = bench.description.chip
    power = dbm_to_watt(chip.laser.power_dbm) / chip.ports
    return TwinParameters.nominal(
        chip.ports,
        input_amplitude=math.sqrt((1.0 - DESIGN_LO_SHARE) * power),
        lo_amplitude=math.sqrt(DESIGN_LO_SHARE * power),
        p_pi_w=chip.nominal.p_pi_w,
    )


def run_sample(
    bench: Bench,
    network: OpticalNetwork,
    codes: Codes,
    *,
    calibrated: bool,
    progress: CountProgress | None = None,
) -> SampleRun:
    """Send codes through the instruments, tile after tile.

    Parameters
    ----------
    bench
        An open bench with a calibration in force.
    network
        The optical network.
    codes
        Codes (elements, servers).
    calibrated
        False programs the chip as if it had no phase offsets, losses or crosstalk.
    progress
        Called with (vectors done, vectors in all).

    Raises
    ------
    CalibrationError
        If the bench has no calibration, or a reading is impossible for this chip.
    InstrumentError
        If an instrument fails.
    """
    if calibrated:
        executor = BenchExecutor(network, BenchTileRunner(bench), progress=progress)
    else:
        runner = BenchTileRunner(bench, nominal_twin(bench))
        executor = BenchExecutor(network, runner, excess=math.inf, progress=progress)
    analogue = executor.run_analog(codes)
    answers = network.decode(analogue)
    wanted = quantised_mean(codes, network.rounding)
    return SampleRun(
        analogue, answers, encode_pam4(wanted, network.bits), symbol_error_rate(answers, wanted, network.bits)
    )


def measure_matrices(
    bench: Bench, plan: TilePlan, rng: np.random.Generator, progress: CountProgress | None = None
) -> tuple[MatrixMeasurement, ...]:
    """Program matrices on the chip and measure what they are.

    Parameters
    ----------
    bench
        An open bench with a calibration in force.
    plan
        Its tiles are measured, after one random matrix that fills the chip.
    rng
        Draws the random matrix.
    progress
        Called with (matrices done, matrices in all).

    Raises
    ------
    CalibrationError
        If the bench has no calibration or a detector is out of range.
    InstrumentError
        If an instrument fails.
    """
    ports = bench.layout.ports
    full = rng.standard_normal((ports, ports))
    targets = [(f"random {ports} x {ports}", full / (np.linalg.norm(full, 2) * (1.0 + 1e-9)))]
    targets += [(f"tile {k}, layer {part.layer}", part.matrix) for k, part in enumerate(plan.tiles)]
    calibrated, nominal = BenchTileRunner(bench), BenchTileRunner(bench, nominal_twin(bench))
    done = []
    for name, target in targets:
        measured = [measure_matrix(runner, target) for runner in (calibrated, nominal)]
        done.append(MatrixMeasurement(name, target, measured[0], measured[1]))
        if progress is not None:
            progress(len(done), len(targets))
    return tuple(done)


def measure_matrix(runner: TileRunner, target: NDArray[np.float64]) -> NDArray[np.float64]:
    """Measure the matrix (rows, cols) of a programmed chip from its answers to vectors of full amplitudes.

    Columns of a Hadamard matrix light all inputs at once and keep clear of amplitudes near zero, which modulators of
    finite extinction cannot make.  Its first column is left out, so that an offset of the outputs cancels.
    """
    runner.program(target)
    columns = target.shape[1]
    signs = hadamard(1 << columns.bit_length())[:, 1 : columns + 1]
    inputs = np.tile(signs.astype(np.float64), (_REPEATS, 1))
    return np.asarray(runner.forward(inputs).T @ inputs / len(inputs))


def choose_sample(codes: Codes, count: int, zero_code: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Choose elements (count,) at random, first those that are not zero for all workers.

    Gradients of dead pixels are exact zeros; they are the easiest to average and would flatter the chip.

    Parameters
    ----------
    codes
        Codes (elements, workers).
    count
        How many; at most all are given.
    zero_code
        Code of the gradient 0.
    rng
        Source of the choice.
    """
    order = rng.permutation(len(codes))
    lit = (codes[order] != zero_code).any(axis=1)
    return np.concatenate([order[lit], order[~lit]])[:count]
