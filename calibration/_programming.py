"""Programming judged on the chip: targets through the calibrated twin, output powers of every lit port."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibration._calibrate import silent
from calibration._checks import require_record, require_text, require_whole
from calibration._leaving import dark_afterwards
from calibration._matrix import total_variation
from calibration._mesh_fit import predict
from calibration._probe import BenchProbe
from calibration._session import Array, Progress
from calibration._twin_fit import NoiseModel
from optinc_hw.bench import Bench, CalibrationRecord
from optinc_hw.bench._mesh_section import mzi_name
from optinc_hw.errors import CalibrationError, LimitError, MatrixError
from optinc_hw.photonics import (
    LimitingMzi,
    ProgrammedUnitary,
    TwinParameters,
    haar_unitary,
    program_unitary,
    voltage_from_power,
)

_MOST_NAMED = 5
_DEAD_GAIN = 0.01
"""Gain of a detector, over the median one's, below which it sees no light."""


@dataclass(frozen=True)
class ProgrammedTarget:
    """One target on the chip.

    Shares (n, n) are those of each lit port's light (column) at each output (row); those measured are readings over the
    gains that the twin gives to outputs and detectors, NaN where a detector was out of range or is dead.

    Parameters
    ----------
    name
        What the target is.
    target
        The unitary (n, n).
    power_w
        Heater powers (H,) in W.
    fidelity
        Predicted by the twin: ``|Tr(U^dagger A S B)|^2 / n^2`` with S's columns scaled to norm 1, maximised over phases
        of outputs (A) and inputs (B).
    predicted, measured
        Shares that the twin predicts, and those found.
    error_over_noise
        Measured less predicted power (n, n) over the noise of a reading.
    limiting
        MZIs that keep the mesh from the target, the worst first.
    """

    name: str
    target: NDArray[np.complex128]
    power_w: Array
    fidelity: float
    predicted: Array
    measured: Array
    error_over_noise: Array
    limiting: tuple[LimitingMzi, ...]

    @property
    def asked(self) -> Array:
        """Shares of the target (n, n)."""
        return np.asarray(np.abs(self.target) ** 2)

    @property
    def tvd(self) -> float:
        """Mean total variation distance of the measured shares from the target's."""
        return _distance(self.asked, self.measured)

    @property
    def predicted_tvd(self) -> float:
        """The same of the predicted shares: what couplers, losses and limits leave, if the twin is right."""
        return _distance(self.asked, self.predicted)

    @property
    def tvd_from_twin(self) -> float:
        """Mean total variation distance of the measured shares from the predicted ones."""
        return _distance(self.predicted, self.measured)

    @property
    def amplitude_fidelity(self) -> float:
        """``sum |U| sqrt(measured share) / n``: how alike the moduli are; powers do not show phases."""
        field = np.sqrt(np.nan_to_num(self.measured))
        return float(np.sum(np.abs(self.target) * field) / len(self.target))

    @property
    def rms_error_over_noise(self) -> float:
        """Rms of ``error_over_noise`` over all valid readings; 1 is perfect."""
        return float(np.sqrt(np.nanmean(self.error_over_noise**2)))


@dataclass(frozen=True)
class ProgramVerification:
    """How well targets come out of a chip.

    Parameters
    ----------
    targets
        Each of them, in the order given.
    """

    targets: tuple[ProgrammedTarget, ...]

    @property
    def limiting(self) -> dict[str, int]:
        """MZIs that limit most targets, with the number of these."""
        names = Counter(
            name
            for target in self.targets
            for name in dict.fromkeys(mzi_name((mzi.column, mzi.mode)) for mzi in target.limiting)
        )
        return dict(names.most_common(_MOST_NAMED))

    def to_json_dict(self) -> dict[str, Any]:  # Any: JSON content
        """Return the figures of every target as JSON content."""
        return {"targets": [_figures(one) for one in self.targets], "limiting": self.limiting}

    def __str__(self) -> str:
        """Summarise for people."""
        lines = [
            f"{one.name}: fidelity {one.fidelity:.5f} (twin); shares off from the target by {one.tvd:.2%}, the twin "
            f"expects {one.predicted_tvd:.2%}; off from the twin by {one.tvd_from_twin:.2%}, "
            f"{one.rms_error_over_noise:.1f} times the noise"
            for one in self.targets
        ]
        limits = ", ".join(f"{name} ({count} of {len(self.targets)})" for name, count in self.limiting.items())
        return "\n".join([*lines, f"MZIs that limit: {limits or 'none'}"])


def _figures(one: ProgrammedTarget) -> dict[str, Any]:  # Any: JSON content
    limiting = [
        {"mzi": mzi_name((mzi.column, mzi.mode)), "cause": mzi.cause, "share": mzi.share} for mzi in one.limiting
    ]
    names = ("fidelity", "predicted_tvd", "tvd", "tvd_from_twin", "amplitude_fidelity", "rms_error_over_noise")
    return {"name": one.name, **{name: getattr(one, name) for name in names}, "limiting": limiting}


def random_targets(ports: int, count: int, rng: np.random.Generator) -> dict[str, NDArray[np.complex128]]:
    """Draw Haar-random unitaries and permutations, as many of each, by name.

    Raises
    ------
    CalibrationError
        If ``ports`` is no whole number of at least 2, or ``count`` none of at least 0.
    """
    require_whole("ports", ports, 2)
    require_whole("count", count, 0)
    found: dict[str, NDArray[np.complex128]] = {f"Haar {k}": haar_unitary(ports, rng) for k in range(count)}
    for k in range(count):
        found[f"permutation {k}"] = np.eye(ports, dtype=np.complex128)[rng.permutation(ports)]
    return found


def verify_programming(
    bench: Bench, record: CalibrationRecord, targets: Mapping[str, ArrayLike], *, progress: Progress | None = None
) -> ProgramVerification:
    """Program targets through a record's twin, and measure what the chip makes of them; leaves it dark.

    Parameters
    ----------
    bench
        An open bench of a bare mesh.
    record
        The calibration to use.
    targets
        Unitaries (n, n) by name, such as `random_targets` draws.
    progress
        Called with (stage, done, total).

    Returns
    -------
    ProgramVerification
        Each target takes n readings, one a lit port.

    Raises
    ------
    CalibrationError
        If there is no target, the chip is no bare mesh, or the record is none or of another layout.
    MatrixError
        If a target is not unitary or does not fit the chip; nothing was set then.
    LimitError
        If a target needs more power than the heaters or the chip may have; nothing was set then.
    InstrumentError
        If an instrument fails.
    """
    _require_targets(targets)
    require_record("record", record)
    if not bench.layout.bare or not bench.layout.admits(record.layout):
        raise CalibrationError(
            "programming is verified on the bare mesh that the record describes (inputs: ports, receivers: power)"
        )
    twin, told = record.twin(), progress or silent
    law = record.resistance_ohm, record.resistance_beta_per_w
    probe = BenchProbe(bench, *law, twin.dark_w, _quiet)
    noise = NoiseModel(record.quality.noise_relative, record.quality.noise_floor_w)
    # All are solved before the first is set: a target that cannot be programmed costs no reading.
    programmed = []
    for done, (name, target) in enumerate(targets.items(), start=1):
        try:
            program = program_unitary(twin, target, probe.max_power_w)
            bench.interlock.check(voltage_from_power(program.power_w, *law))
        except (MatrixError, LimitError) as error:
            raise type(error)(f"target {name!r}: {error}") from error
        programmed.append((name, program))
        told("programming", done, len(targets))
    found = []
    with dark_afterwards(bench):
        for name, program in programmed:
            found.append(_measured(name, program, twin, probe, noise))
            told("programmed targets", len(found), len(targets))
    return ProgramVerification(tuple(found))


def _require_targets(targets: object) -> None:
    if not isinstance(targets, Mapping):
        raise CalibrationError(f"targets are a {type(targets).__name__}; give a dict: unitaries by name")
    if not targets:
        raise CalibrationError("there is no target to program; give one or more")
    for name in targets:
        require_text("the name of a target", name, "name each one in the dict of targets")


def _quiet(stage: str, done: int, total: int) -> None:
    """Show nothing: targets are counted, not the ports of each."""
    del stage, done, total


def _measured(
    name: str, program: ProgrammedUnitary, twin: TwinParameters, probe: BenchProbe, noise: NoiseModel
) -> ProgrammedTarget:
    lit = np.arange(twin.ports)
    power = np.tile(program.power_w, (twin.ports, 1))
    expected = predict(twin, power, lit)
    readings = probe.measure("programmed target", power, lit)
    gain = twin.gain * twin.output_transmission**2
    seen = np.maximum(readings, 0.0) / gain
    seen[:, twin.gain < _DEAD_GAIN * np.median(twin.gain)] = np.nan
    # Where an output is not seen the twin says how much light there should be in all.
    light = np.where(np.isnan(seen).any(axis=1), np.sum(expected / gain, axis=1), np.nansum(seen, axis=1))
    shares = seen / light[:, None]
    error = (readings - expected) / noise.sigma(expected)
    return ProgrammedTarget(
        name, program.target, program.power_w, program.fidelity, program.distribution, shares.T, error.T,
        program.limiting,
    )  # fmt: skip


def _distance(one: Array, other: Array) -> float:
    """Mean total variation distance of the columns; outputs that not both know count as one, with what is left."""
    known = (np.isfinite(one) & np.isfinite(other)).T
    whole = known.all(axis=1, keepdims=True)
    shares = (np.where(known, values.T, 0.0) for values in (one, other))
    first, second = (
        np.append(values, np.where(whole, 0.0, np.maximum(0.0, 1.0 - values.sum(axis=1, keepdims=True))), axis=1)
        for values in shares
    )
    return float(total_variation(first, second).mean())
