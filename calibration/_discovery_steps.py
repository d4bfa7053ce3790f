"""Which phase a channel moves, judged by likelihood: steps of single channels against what a rough twin predicts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from calibration._discovery_twin import RoughTwin
from calibration._mesh_linear import MeshData
from calibration._session import Array
from calibration._start_power import TOTAL_SHARE, room_for

SEEN = 0.02
"""Smallest effect of a phase relative to all light (rms); heat of its neighbours alone does less."""
FAINT = 0.005
"""Smallest effect of a phase that explains nearly all of it ..."""
CLEAR = 0.06
"""... and of one that explains less than half: heat of neighbours alone does less."""
EXPLAINED = 0.3
"""Largest part of a channel's squared effect that the phase it moves may leave unexplained."""
MARGIN = 1.5
"""Every other phase must leave this many times more unexplained ..."""
LOG_LIKELIHOOD = 10.0
"""... and be less likely by this difference of log likelihoods."""
_INDEPENDENT = 0.5
"""Share of the readings that count as independent: errors of the twin are common to some."""
_ALL, _HALF = 0.1, 0.5
_TINY = 1e-300


@dataclass(frozen=True)
class Steps:
    """Readings before and after steps of single channels.

    Parameters
    ----------
    power_w, lit, before
        Base settings (B, H) in W, lit ports (B,) and readings (B, n) in W.
    base, channel, change_w
        For each step (R,) its base setting, its channel and by how many W that was raised.
    after
        Readings (R, n) in W.
    """

    power_w: Array
    lit: NDArray[np.intp]
    before: Array
    base: NDArray[np.intp]
    channel: NDArray[np.intp]
    change_w: Array
    after: Array

    @classmethod
    def none(cls, heaters: int, ports: int) -> "Steps":
        """Return no steps."""
        nothing = np.zeros(0, dtype=np.intp)
        read = np.zeros((0, ports))
        return cls(np.zeros((0, heaters)), nothing, read, nothing, nothing, np.zeros(0), read)

    @property
    def effect(self) -> Array:
        """Changes (R, n) of readings in W; 0 where a reading is invalid."""
        return np.asarray(np.nan_to_num(self.after - self.before[self.base]))

    def joined(self, other: "Steps") -> "Steps":
        """Return these steps and then the others."""
        return Steps(
            np.concatenate([self.power_w, other.power_w]), np.concatenate([self.lit, other.lit]),
            np.concatenate([self.before, other.before]),
            np.concatenate([self.base, other.base + len(self.lit)]),
            np.concatenate([self.channel, other.channel]), np.concatenate([self.change_w, other.change_w]),
            np.concatenate([self.after, other.after]),
        )  # fmt: skip

    def only(self, chosen: NDArray[np.bool_]) -> "Steps":
        """Return the steps of ``chosen`` channels (H,)."""
        rows = chosen[self.channel]
        return Steps(
            self.power_w, self.lit, self.before, self.base[rows], self.channel[rows], self.change_w[rows],
            self.after[rows],
        )  # fmt: skip

    @property
    def bases(self) -> MeshData:
        """Readings of the base settings."""
        return MeshData(self.power_w, self.lit, self.before)

    @property
    def ends(self) -> MeshData:
        """Readings after the steps."""
        power = self.power_w[self.base]
        power[np.arange(len(power)), self.channel] += self.change_w
        return MeshData(power, self.lit[self.base], self.after)


@dataclass(frozen=True)
class Verdicts:
    """How well each phase explains what each channel did.

    Parameters
    ----------
    effect
        Rms effect (H,) of each channel relative to all light.
    unexplained
        Part (H channels, H phases) of each channel's squared effect that each phase leaves unexplained.
    mirrored
        Whether (H, H) it does so with the other sign of a still internal phase.
    numbers
        Numbers (H,) read that count as independent.
    """

    effect: Array
    unexplained: Array
    mirrored: NDArray[np.bool_]
    numbers: Array

    def without(self, doubted: NDArray[np.bool_]) -> "Verdicts":
        """Return the verdicts with ``doubted`` channels (H,) undecided."""
        return replace(self, numbers=np.where(doubted, 0.0, self.numbers))

    @property
    def best(self) -> NDArray[np.intp]:
        """Phase (H,) that explains most."""
        return np.asarray(self.unexplained.argmin(axis=1))

    @property
    def least(self) -> Array:
        """What the best phase leaves unexplained (H,)."""
        return np.asarray(self.unexplained.min(axis=1))

    @property
    def margin(self) -> Array:
        """How many times more the second best phase leaves unexplained (H,)."""
        first, second = np.partition(self.unexplained, 1, axis=1)[:, :2].T
        return np.asarray(second / np.maximum(first, _TINY))

    @property
    def acting(self) -> NDArray[np.bool_]:
        """Channels (H,) that move a phase which powers show."""
        least = np.select([self.least < _ALL, self.least < _HALF], [FAINT, SEEN], CLEAR)
        return np.asarray(self.effect > least)

    @property
    def decided(self) -> NDArray[np.bool_]:
        """Channels (H,) of which readings say beyond doubt which phase they move."""
        likelihood = 0.5 * self.numbers * np.log(self.margin)
        sure = (self.least < EXPLAINED) & (self.margin > MARGIN) & (likelihood > LOG_LIKELIHOOD)
        return np.asarray(self.acting & sure)


def judge_steps(twin: RoughTwin, steps: Steps) -> Verdicts:
    """Compare what channels did with what a twin predicts of each phase."""
    heaters = len(twin.offset)
    seen = np.isfinite(steps.before)
    beats = np.where(seen, twin.interferences(steps.power_w, steps.lit), 0.0)
    effect = steps.effect
    turn = (twin.efficiency[steps.channel] * steps.change_w)[:, None]
    left, mirrored = np.empty((heaters, heaters)), np.zeros((heaters, heaters), dtype=np.bool_)
    heat = np.einsum("hp,hbn->pbn", twin.mean_heat, -beats.imag) if twin.mean_heat.any() else np.zeros_like(beats.real)

    def unexplained(phase: int, beat: NDArray[np.complex128]) -> Array:
        beat = beat[steps.base]
        made = beat.real * (np.cos(turn) - 1.0) - beat.imag * np.sin(turn)
        own = heat[phase, steps.base] * turn if beat.any() else 0.0
        return _by_channel(steps, heaters, (effect - made - own) ** 2)

    for phase, beat in enumerate(beats):
        left[:, phase] = unexplained(phase, beat)
    for mzi, phase in enumerate(twin.layout.mesh_theta.tolist()):
        if twin.channel[phase] < 0:  # it stands still, with either sign
            beat = twin.mirrored(mzi).interferences(steps.power_w, steps.lit)[phase]
            other = unexplained(phase, np.where(seen, beat, 0.0))
            mirrored[:, phase] = other < left[:, phase]
            left[:, phase] = np.minimum(left[:, phase], other)
    size = _by_channel(steps, heaters, effect**2)
    light = _by_channel(steps, heaters, np.nan_to_num(steps.before[steps.base]) ** 2)
    ratio = np.where(size[:, None] > 0.0, left / np.maximum(size, _TINY)[:, None], 1.0)
    numbers = _INDEPENDENT * _by_channel(steps, heaters, seen[steps.base].astype(np.float64))
    return Verdicts(np.sqrt(size / np.maximum(light, _TINY)), ratio, mirrored, numbers)


def _by_channel(steps: Steps, heaters: int, values: Array) -> Array:
    return np.asarray(np.bincount(steps.channel, values.sum(axis=1), heaters), dtype=np.float64)


def stepped_powers(
    power_w: Array, channels: NDArray[np.intp], size_w: Array, top_w: Array, max_power_w: Array, max_total_w: float
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Let single channels step from each of some settings, up where they can be, within all limits.

    Parameters
    ----------
    power_w
        Settings (B, H) in W.
    channels, size_w
        Channels (h,) and their steps in W.
    top_w, max_power_w
        Powers (H,) in W up to which steps go up, and limits.
    max_total_w
        Limit of the total power in W: where steps would exceed it, all settings are lowered.

    Returns
    -------
    tuple
        Settings (B, H), powers (h, B, H) after the steps and their changes (h, B), in W.
    """

    def ends_of(power: Array) -> tuple[Array, Array]:
        now, size, top = power[:, channels].T, size_w[:, None], max_power_w[channels, None]
        change = np.where(now + size <= np.maximum(top_w[channels, None], size), size, -size)
        change = np.clip(now + change, 0.0, top) - now
        ends = np.repeat(power[None], len(channels), axis=0)
        ends[np.arange(len(channels)), :, channels] += change
        return ends, change

    ends, change = ends_of(power_w)
    if ends.sum(axis=-1).max(initial=0.0) <= TOTAL_SHARE * max_total_w:
        return power_w, ends, change
    raised = np.column_stack([power_w, np.full(len(power_w), size_w.max())])
    kept = np.arange(raised.shape[1]) == power_w.shape[1]
    lower = power_w * room_for(raised, kept, max_total_w, "discovery: steps of channels")
    return lower, *ends_of(lower)


def telling_settings(
    twin: RoughTwin, power_w: Array, lit: NDArray[np.intp], rivals: Sequence[tuple[int, NDArray[np.intp]]], count: int
) -> NDArray[np.intp]:
    """Choose settings in which the phases that a channel may move would do the most different things.

    Parameters
    ----------
    twin
        The twin.
    power_w, lit
        Settings (B, H) in W and lit ports (B,) to choose from.
    rivals
        Channels, and the phases that each may move.
    count
        How many to choose.
    """
    beats = twin.interferences(power_w, lit) * (np.exp(0.5j * np.pi) - 1.0)
    moves = beats.real / np.maximum(twin.predict(power_w, lit).sum(axis=1), _TINY)[None, :, None]
    chosen: list[int] = []
    told = np.full(len(rivals), 1e-6)
    worth = np.stack([_apart(moves[phases]) for _, phases in rivals])
    for _ in range(min(count, len(lit))):
        gain = np.log((told[:, None] + worth) / told[:, None]).sum(axis=0)
        gain[chosen] = -np.inf
        chosen.append(int(gain.argmax()))
        told = told + worth[:, chosen[-1]]
    return np.array(chosen, dtype=np.intp)


def _apart(moves: Array) -> Array:
    """Squared distance (B,) between the two closest of what phases (P, B, n) and none of them would do."""
    every = np.concatenate([moves, np.zeros_like(moves[:1])])
    pairs = [
        ((every[a] - every[b]) ** 2).sum(axis=-1) for a in range(len(every)) for b in range(a)
    ]  # fmt: skip
    return np.asarray(np.min(pairs, axis=0))
