"""What links cost, in SI units, and the time of an all-reduce in closed form."""

import math
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from optinc_hw.errors import ScheduleError
from optinc_hw.interconnect._fabrics import Crossbar, SwitchTree
from optinc_hw.interconnect._schedule import Phase, Schedule

Floats = NDArray[np.floating[Any]]
Setup = Literal["every_step", "on_change"]


@dataclass(frozen=True)
class LinkParameters:
    """Rates and delays.  Defaults are those of the WRHT author's later public study (LHAS: reference parameters).

    Parameters
    ----------
    rate_bps
        Bits a second of one wavelength, circuit or link.
    reconfiguration_s
        From one setting of the circuits to the next.
    control_s
        Of a round of control messages before circuits are set.
    setup
        ``"every_step"``: both delays are paid before every step on a ring or crossbar, as the published formulas do.
        ``"on_change"``: only before steps whose circuits differ from those of the step before.
    carving_s
        Of the slow plane, once a job (`job_setup_time`); no part of the time of an all-reduce.
    conversion_s
        O/E and E/O together, in the receiver or in a node that regenerates.
    segment_s
        Light's time over a segment of a ring, or over a link.
    switch_s
        From a switch's input to its output.
    message_s
        Of software and network card, in a server that receives.
    reduce_Bps
        Bytes a second that a node adds to what it holds, after it received them; ``inf`` if that costs no time.
        Switches add at the rate of their links.

    Raises
    ------
    ScheduleError
        If a rate is not positive, that of links or a delay not finite, or a delay negative.
    """

    rate_bps: float = 25e9
    reconfiguration_s: float = 25e-6
    control_s: float = 0.0
    setup: Setup = "every_step"
    carving_s: float = 0.0
    conversion_s: float = 20e-9
    segment_s: float = 5e-9
    switch_s: float = 0.0
    message_s: float = 0.0
    reduce_Bps: float = 366e9  # noqa: N815 - bytes a second

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "setup":
                good, limit = value in ("every_step", "on_change"), "'every_step' or 'on_change'"
            elif field.name == "rate_bps":
                good, limit = 0 < value < math.inf, "positive and finite"
            elif field.name == "reduce_Bps":
                good, limit = value > 0, "positive"
            else:
                good, limit = 0 <= value < math.inf, "0 or more and finite"
            if not good:
                raise ScheduleError(f"{field.name} of the links must be {limit}, got {value!r}")

    @classmethod
    def wrht(cls, rate_bps: float = 40e9) -> "LinkParameters":
        """Return what the WRHT formulas count: a rate and 25 us before every step (40 Gb/s: from memory)."""
        return cls(rate_bps=rate_bps, conversion_s=0.0, segment_s=0.0, reduce_Bps=math.inf)

    @classmethod
    def oddl(cls, rate_bps: float = 100e9) -> "LinkParameters":
        """Return a reconstruction of ODDL: lasers tune in 1 us, control takes 1.5 us, the slow plane 50 ms."""
        return cls(
            rate_bps=rate_bps, reconfiguration_s=1e-6, control_s=1.5e-6, setup="on_change", carving_s=50e-3,
            reduce_Bps=math.inf,
        )  # fmt: skip

    @classmethod
    def optinc(cls, rate_bps: float = 8 * 800e9) -> "LinkParameters":
        """Return what OptINC's latency model counts: eight transceivers of 800 Gb/s a server, and no delay."""
        return cls(
            rate_bps=rate_bps, reconfiguration_s=0.0, conversion_s=0.0, segment_s=0.0, reduce_Bps=math.inf
        )  # fmt: skip


def step_time(
    schedule: Schedule, payload_bytes: float, links: LinkParameters | None = None, *, overlap: bool = False
) -> float:
    """Return the seconds that one all-reduce takes if nothing is late and no one else uses the fabric.

    Each step costs its set-up, its longest transfer, light's way, and the addition; the next begins when all nodes
    have done it.  Streamed steps add only light's way.  Without latencies and additions that is theta (D / b + a) for
    WRHT, 2 (N - 1) (D / (N b) + a) for a ring, and D / b for OptINC.

    Parameters
    ----------
    schedule
        What is done.
    payload_bytes
        D, of one server's vector.
    links
        Rates and delays; the defaults of `LinkParameters` if ``None``.
    overlap
        Whether circuits of channels that the steps before left free are set beforehand.  A channel counts as in
        use at all nodes, so that `simulate` may find less.
    """
    links = LinkParameters() if links is None else links
    check_payload(payload_bytes)
    now = 0.0
    streaming = 0.0
    free: dict[int, float] = {}  # when each channel was last in use
    for phase in schedule.phases:
        sending, latency, adding = phase_times(schedule, phase, payload_bytes, links)
        if phase.streamed:
            now += float(latency.max()) + max(0.0, float(sending.max()) - streaming)
            streaming = max(streaming, float(sending.max()))
            continue
        streaming = float(sending.max())
        sent = float((sending + latency).max())
        busy = _busy(phase, sending + latency, adding)
        channels = np.unique(phase.circuits.channel).tolist()
        pause = setup_time(schedule, links, changes=phase.reconfigures)
        pause_again = setup_time(schedule, links, changes=False)
        start = max([now, *(free.get(channel, 0.0) + pause for channel in channels)]) if overlap else now + pause
        start += (phase.steps - 1) * (max(busy, sent + pause_again) if overlap else busy + pause_again)
        now = start + busy
        free |= dict.fromkeys(channels, start + sent)
    return now


def job_setup_time(schedule: Schedule, links: LinkParameters) -> float:
    """Return the seconds before a job's first all-reduce in which the slow plane carves out its network."""
    return links.carving_s if isinstance(schedule.fabric, Crossbar) and schedule.fabric.carved else 0.0


def setup_time(schedule: Schedule, links: LinkParameters, *, changes: bool) -> float:
    """Return the seconds before a step whose circuits change or stay."""
    if isinstance(schedule.fabric, SwitchTree) or not (changes or links.setup == "every_step"):
        return 0.0
    return links.reconfiguration_s + links.control_s


def phase_times(
    schedule: Schedule, phase: Phase, payload_bytes: float, links: LinkParameters
) -> tuple[Floats, Floats, Floats]:
    """Return, for each transfer of a step, the seconds of sending, of light's way, and of adding at the target."""
    circuits = phase.circuits
    bytes_sent = phase.count * (payload_bytes / schedule.chunks)
    latency: Floats = circuits.segments * links.segment_s + (circuits.relays + 1) * links.conversion_s
    latency = latency + links.message_s * (circuits.target < schedule.nodes)
    adding: Floats = np.zeros(bytes_sent.size)
    if isinstance(schedule.fabric, SwitchTree):
        latency = latency + links.switch_s * (circuits.target >= schedule.nodes)
    elif phase.add:
        adding = bytes_sent / links.reduce_Bps
    return bytes_sent * (8.0 / links.rate_bps), latency, adding


def check_payload(payload_bytes: float) -> None:
    """Raise ScheduleError unless the payload is positive and finite."""
    if not 0.0 < payload_bytes < math.inf:
        raise ScheduleError(f"the payload must be positive and finite, got {payload_bytes!r} bytes")


def _busy(phase: Phase, arriving: Floats, adding: Floats) -> float:
    """From the start of a step until the last target has added what it received."""
    target = phase.circuits.target
    last = np.zeros(int(target.max()) + 1)
    np.maximum.at(last, target, arriving)
    return float((last + np.bincount(target, weights=adding)).max())
