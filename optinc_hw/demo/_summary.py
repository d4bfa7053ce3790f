"""What the demo found, and whether that is good enough."""

import math
from dataclasses import asdict, dataclass
from typing import Any

MIN_ELEMENTS = 2000
MAX_RESIDUAL_OVER_NOISE = 3.0
MAX_BENCH_SYMBOL_ERROR_RATE = 1e-3
MIN_UNCALIBRATED_SYMBOL_ERROR_RATE = 0.5
"""Random symbols are wrong in 0.75 of all cases."""
MAX_ACCURACY_LOSS = 0.01
MIN_ACCURACY = 0.9

TWIN_LIMITS = (
    "What limits the twin: the simulated chip and bench have effects that the fitted model lacks - offsets of the "
    "measured heater currents, unequal losses in the two arms of an MZI, thermal crosstalk beyond the fitted "
    "neighbourhood - so its residual stays above the noise (1 would be perfect)."
)


@dataclass(frozen=True)
class DemoSettings:
    """What `run_demo` is asked to do.

    Parameters
    ----------
    ports
        Ports of the chip.
    seed
        Seed of the hidden chip, the random settings, the samples and the first training run.
    elements
        Gradient elements that go through the instruments.
    train_seeds
        Pairs of training runs.
    uncalibrated_elements
        Elements of the same sample (at most all) that go through the chip programmed without calibration.
    epochs
        Passes through the training part.
    """

    ports: int = 8
    seed: int = 0
    elements: int = MIN_ELEMENTS
    train_seeds: int = 3
    uncalibrated_elements: int = 400
    epochs: int = 25


@dataclass(frozen=True)
class Criterion:
    """One thing that the demo must show.

    Parameters
    ----------
    name
        Key of the value in the summary, or a difference of two.
    requirement
        The requirement as text.
    value
        What was found.
    passed
        Whether it is met.
    """

    name: str
    requirement: str
    value: float
    passed: bool


@dataclass(frozen=True)
class DemoSummary:
    """Figures of one demo; `to_json_dict` gives the content of ``summary.json``.

    Parameters
    ----------
    version
        Version of optinc-hw.
    ports, seed
        As asked for.
    readings
        Detector readings that the calibration took (each of all detectors).
    bench_readings
        Detector readings of the whole demo.
    twin_residual_over_noise
        Rms prediction error of the twin on settings that the fit has not seen, over the noise; 1 is perfect.
    noise_relative, noise_floor_w
        Noise of a reading: relative part, and part without light in W.
    bench_elements
        Gradient elements that went through the instruments.
    bench_symbol_error_rate
        Share of wrong PAM4 symbols among their answers.
    uncalibrated_elements, uncalibrated_symbol_error_rate
        The same on the same chip programmed without its calibration.
    twin_symbol_error_rate
        Share of wrong PAM4 symbols of the twin, noise included, over all inputs that the network can get.
    twin_inputs
        Number of those inputs.
    twin_sample_symbol_error_rate
        The same of the twin for the elements that went through the bench.
    accuracy_optical, accuracy_float
        Test accuracy after training with optical and with float averaging, mean of the seeds.
    accuracy_optical_runs, accuracy_float_runs
        The same of each seed.
    seconds
        Wall time of each stage in s, and ``total``.
    """

    version: str
    ports: int
    seed: int
    readings: int
    bench_readings: int
    twin_residual_over_noise: float
    noise_relative: float
    noise_floor_w: float
    bench_elements: int
    bench_symbol_error_rate: float
    uncalibrated_elements: int
    uncalibrated_symbol_error_rate: float
    twin_symbol_error_rate: float
    twin_inputs: int
    twin_sample_symbol_error_rate: float
    accuracy_optical: float
    accuracy_float: float
    accuracy_optical_runs: tuple[float, ...]
    accuracy_float_runs: tuple[float, ...]
    seconds: dict[str, float]

    @property
    def criteria(self) -> tuple[Criterion, ...]:
        """All that the demo must show, met or not."""
        loss = self.accuracy_float - self.accuracy_optical
        return (
            _at_most("twin_residual_over_noise", self.twin_residual_over_noise, MAX_RESIDUAL_OVER_NOISE),
            _at_least("bench_elements", self.bench_elements, MIN_ELEMENTS),
            Criterion(
                "bench_symbol_error_rate",
                f"below {MAX_BENCH_SYMBOL_ERROR_RATE:g}",
                self.bench_symbol_error_rate,
                self.bench_symbol_error_rate < MAX_BENCH_SYMBOL_ERROR_RATE,
            ),
            _at_least(
                "uncalibrated_symbol_error_rate",
                self.uncalibrated_symbol_error_rate,
                MIN_UNCALIBRATED_SYMBOL_ERROR_RATE,
            ),
            _at_least("accuracy_float", self.accuracy_float, MIN_ACCURACY),
            # Accuracies are multiples of one over the number of test samples; the slack only absorbs rounding.
            _at_most("accuracy_float - accuracy_optical", loss, MAX_ACCURACY_LOSS, slack=1e-12),
        )

    @property
    def passed(self) -> bool:
        """Whether every criterion is met."""
        return all(criterion.passed for criterion in self.criteria)

    def to_json_dict(self) -> dict[str, Any]:  # Any: JSON values
        """Return the summary with its criteria as JSON types; not-finite numbers become null."""
        content = {
            **asdict(self),
            "criteria": [asdict(criterion) for criterion in self.criteria],
            "passed": self.passed,
            "limits": TWIN_LIMITS,
        }
        return {key: _json_value(value) for key, value in content.items()}


def _at_most(name: str, value: float, limit: float, slack: float = 0.0) -> Criterion:
    return Criterion(name, f"at most {limit:g}", value, value <= limit + slack)


def _at_least(name: str, value: float, limit: float) -> Criterion:
    return Criterion(name, f"at least {limit:g}", value, value >= limit)


def _json_value(value: Any) -> Any:  # Any: JSON values
    if isinstance(value, dict):
        return {key: _json_value(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
