"""The time of a training step: computing, and the part of the all-reduce that is not hidden behind it."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from optinc_hw.errors import ComparisonError
from optinc_hw.interconnect.comparison._checks import check_positive
from optinc_hw.interconnect.comparison._workloads import Workload


@dataclass(frozen=True)
class Server:
    """What computes.  Defaults are the OptINC paper's: an H100 counted at 60 TFLOP/s, 60 % of which are reached.

    Parameters
    ----------
    peak_flops
        FLOP/s.
    utilisation
        Part of the peak that training reaches, up to 1.
    """

    peak_flops: float = 60e12
    utilisation: float = 0.6

    def __post_init__(self) -> None:
        check_positive("peak_flops of a server", self.peak_flops)
        if not 0.0 < self.utilisation <= 1.0:
            raise ComparisonError(f"utilisation must be above 0 and at most 1, got {self.utilisation!r}")


@dataclass(frozen=True)
class Training:
    """A data-parallel training job as one server sees it.

    Parameters
    ----------
    name
        Of the model.
    parameters
        Gradient elements.
    batch
        Samples a server and step.
    sample_s
        Seconds of computing a sample, forward and backward.
    bits
        Of a gradient element on the way.
    sample
        What a sample is.
    backward_share
        Part of the computing time in which gradients come about.
    bucket_bytes
        Of the buckets that are sent while the backward pass goes on; the default is that of PyTorch's DDP.
    """

    name: str
    parameters: int
    batch: float
    sample_s: float
    bits: int = 16
    sample: str = "sample"
    backward_share: float = 2.0 / 3.0
    bucket_bytes: float = 25.0 * 2**20

    def __post_init__(self) -> None:
        for name in ("parameters", "batch", "sample_s", "bits", "bucket_bytes"):
            check_positive(f"{name} of a training", getattr(self, name))
        if not 0.0 <= self.backward_share <= 1.0:
            raise ComparisonError(f"backward_share must be in 0 .. 1, got {self.backward_share!r}")

    @classmethod
    def of(cls, workload: Workload, batch: float, server: Server | None = None, bits: int = 16) -> "Training":
        """Build a job from a model, whose computing takes FLOPs / (utilisation x peak)."""
        server = Server() if server is None else server
        sample_s = workload.flops_per_sample / (server.utilisation * server.peak_flops)
        return cls(workload.name, workload.parameters, batch, sample_s, bits, workload.sample)

    @property
    def payload_bytes(self) -> float:
        """D: what one server contributes to an all-reduce."""
        return self.parameters * self.bits / 8.0

    @property
    def compute_s(self) -> float:
        """Seconds of computing a step."""
        return self.batch * self.sample_s


@dataclass(frozen=True)
class TrainingStep:
    """How long a step takes.

    Parameters
    ----------
    compute_s
        Of the forward and backward pass.
    communication_s
        For which the fabric is busy.
    exposed_s
        For which computing waits for it.
    """

    compute_s: float
    communication_s: float
    exposed_s: float

    @property
    def total_s(self) -> float:
        """Time of the step."""
        return self.compute_s + self.exposed_s

    @property
    def share(self) -> float:
        """Part of the step that computing waits: no other way of communicating can save more."""
        return self.exposed_s / self.total_s


def training_step(training: Training, time: Callable[[float], float], *, overlap: bool = False) -> TrainingStep:
    """Return the time of a training step.

    Without overlap it is computing plus one all-reduce of all gradients.  With it gradients go in B equal buckets of
    at most ``bucket_bytes``; bucket k of B is there after k / B of the backward pass of t_b, and all-reduces of c each
    follow one another.  The last one ends max over k of k / B t_b + (B - k + 1) c after the backward pass began, and
    that is largest for k = 1 or k = B: max(t_b / B + B c, t_b + c).

    Parameters
    ----------
    training
        The job.
    time
        Seconds of an all-reduce of so many bytes.
    overlap
        Whether buckets are sent while the backward pass goes on; it is not slowed down by that.
    """
    compute = training.compute_s
    if not overlap:
        busy = time(training.payload_bytes)
        return TrainingStep(compute, busy, busy)
    buckets = max(1, math.ceil(training.payload_bytes / training.bucket_bytes))
    each = time(training.payload_bytes / buckets)
    backward = training.backward_share * compute
    end = max(backward / buckets + buckets * each, backward + each)
    return TrainingStep(compute, buckets * each, end - backward)
