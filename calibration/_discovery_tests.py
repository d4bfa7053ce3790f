"""Experiments that ask the chip whether one channel moves one phase."""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from calibration._discovery_analysis import (
    CLEAR_EFFECT,
    Gate,
    agreeing,
    effect,
    find_darkest,
    find_gate,
)
from calibration._discovery_routes import Route, RouteMap
from calibration._discovery_state import UNKNOWN, Side, Wiring, require_bare
from calibration._mesh_checks import checked_answer
from calibration._probe import Probe
from calibration._session import Array
from calibration._start_power import room_for
from calibration._twin_fit import NoiseModel
from optinc_hw.errors import CalibrationError

ABOVE_FLOOR = 8.0
"""Light is what reads this many times more than the noise of a dark detector."""
GATE_POINTS = 4
"""Points of a gate's sweep over one expected period, in each of two states."""
EXPECTED_ANSWERS, OTHER_ANSWERS = 2, 3
"""Agreeing answers that say a channel is where chip.yaml has it, and that one is somewhere else."""
TRIES = 4
"""States from which a test that fails or tells nothing is repeated."""
POWER_SHARE = 0.8
"""Part of the chip's total power limit that random settings use."""
BRIGHT_SHARE = 0.6
"""A detector sees an output that light is led to if it gets this share of all that detectors get; half of it where two
outputs take turns."""
LED_SHARE = 0.4
"""Part of the light that enters a port, or more, must be seen where it is led: less strays past a dead detector."""


@dataclass
class PhaseTests:
    """Tests of single channels on the chip.

    Parameters
    ----------
    probe
        The chip.
    noise
        Noise of its readings.
    rng
        Source of random settings.
    trusting
        Whether every detector that is alive sees the output that chip.yaml says: a wrong channel in the last column
        may otherwise pass for exchanged detectors.
    """

    probe: Probe
    noise: NoiseModel
    rng: np.random.Generator
    trusting: bool = False
    wiring: Wiring = field(init=False)
    dead_detectors: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        layout = self.probe.layout
        require_bare(layout)
        heaters, mzis = len(layout.heaters), len(layout.mesh.mzis)
        self.mesh = layout.mesh
        self.routes = RouteMap(layout.mesh)
        self.period_w = np.minimum(2.0 * np.pi / self.probe.nominal_efficiency, self.probe.max_power_w)
        self.wiring = Wiring(np.full(heaters, UNKNOWN), np.full(mzis, np.nan), self.probe.nominal_efficiency.copy())
        self.dead_detectors = np.zeros(layout.ports, dtype=bool)
        self.relied: dict[int, set[int]] = {}
        self.untold: set[int] = set()
        self.sees = np.full(layout.ports, UNKNOWN)
        self.unused = np.zeros(heaters, dtype=bool)
        self.light_w = np.zeros(layout.ports)
        self.dark_w = ABOVE_FLOOR * self.noise.floor_w

    def measure(self, stage: str, power_w: Array, lit: int | NDArray[np.intp]) -> Array:
        """Take readings (B, n) in W at powers (B, H) in W; NaN for dead detectors and invalid readings.

        Raises
        ------
        CalibrationError
            If every input port is lit and no detector sees light: laser or meters have failed.
        """
        ports = np.broadcast_to(np.asarray(lit, dtype=np.intp), len(power_w)).copy()
        name = f"discovery: {stage}"
        readings = checked_answer(self.probe.measure(name, power_w, ports), len(ports), len(self.sees), name)
        readings = np.where(self.dead_detectors | ~np.isfinite(readings), np.nan, readings)
        if len(np.unique(ports)) == len(self.sees) and not (readings > self.dark_w).any():
            raise CalibrationError(
                f"no detector sees light in {name!r}, with each input port lit in turn (more than {self.dark_w:.3g} W "
                "needed); check laser, shutter, input switch and the meters' ranges"
            )
        return readings

    def random_power(self, column: int) -> Array:
        """Draw powers (H,) in W: known internal phases before ``column`` in bar, others random, unused ones at zero.

        External phases stay at the middle of their range: their heat would move the bar states.
        """
        power = self.rng.uniform(size=len(self.period_w)) * self.period_w
        middle = self._external()
        power[middle] = 0.5 * self.period_w[middle]
        power[self.unused] = 0.0
        power *= min(1.0, POWER_SHARE * self.probe.max_total_power_w / max(float(power.sum()), 1e-300))
        for mzi in np.flatnonzero(self.wiring.steerable):
            if self.mesh.mzis[mzi][0] < column:
                self.set_theta(power, int(mzi), 0.0)
        return np.asarray(power)

    def _external(self) -> NDArray[np.intp]:
        """List channels that move external phases, or should."""
        phi = self.probe.layout.mesh_phi
        known = self.wiring.channel[phi]
        thetas = self.wiring.channel[self.probe.layout.mesh_theta]
        return np.setdiff1d(np.where(known == UNKNOWN, phi, known), thetas)

    def set_theta(self, power: Array, mzi: int, from_bar: float) -> None:
        """Put a known internal phase ``from_bar`` rad from bar, on the side that needs less power."""
        channel = int(self.wiring.channel[self.probe.layout.mesh_theta[mzi]])
        efficiency = float(self.wiring.efficiency[channel])
        period = 2.0 * np.pi / efficiency
        wanted = min((self.wiring.bar_w[mzi] + sign * from_bar / efficiency) % period for sign in (1.0, -1.0))
        power[channel] = min(wanted, float(self.probe.max_power_w[channel]))

    def steer(self, power: Array, route: Route) -> None:
        """Lead light along ``route``; its other MZIs are in bar already."""
        for mzi in sorted(route.crossed):
            self.set_theta(power, mzi, np.pi)

    def _within(self, settings: Array, column: int, moved: list[int]) -> Array:
        """Lower powers (B, H) in W to what the chip's limit allows, but not of ``moved`` channels and known bars."""
        theta = self.probe.layout.mesh_theta
        known = [mzi for mzi in np.flatnonzero(self.wiring.steerable) if self.mesh.mzis[mzi][0] < column]
        kept = np.zeros(settings.shape[1], dtype=np.bool_)
        kept[[*self.wiring.channel[theta[known]], *moved]] = True
        room = room_for(settings, kept, self.probe.max_total_power_w, "discovery: gates")
        return np.where(kept, settings, settings * room)

    def sweep(self, power: Array, channels: NDArray[np.intp] | int, points: int, periods: float = 1.0) -> Array:
        """Make settings (points, H) in W with channels stepped from zero to just below ``periods`` of their own."""
        settings = np.tile(power, (points, 1))
        chosen = np.atleast_1d(channels)
        top = np.minimum(periods * 2.0 * np.pi / self.wiring.efficiency[chosen], self.probe.max_power_w[chosen])
        settings[:, chosen] = np.arange(points)[:, None] / points * top
        return settings

    def gate(self, mzi: int, channel: int, expected: bool) -> Gate | None:
        """Ask whether ``channel`` moves the internal phase of ``mzi``; None if nothing could be told.

        Light enters one arm; what only one output's light can reach is changed.  Only the MZI's own internal phase has
        a power at which that has no effect: bar where it is the other arm's output, cross where it is the same arm's.

        Parameters
        ----------
        mzi
            Index of the MZI.
        channel
            The channel.
        expected
            Whether chip.yaml has this channel there; one that is somewhere else needs more evidence.
        """
        column, upper = self.mesh.mzis[mzi]
        if not any(self.routes.reached(column + 1, mode) for mode in (upper, upper + 1)):
            return self._last(mzi, channel)
        sides: list[Side] = []
        for arm in (0, 1):
            route = self.routes.to_arm(column, upper + arm, self.wiring.steerable)
            for output in (0, 1):
                behind = self._behind(mzi, output, channel, expected)
                straight = (
                    not self.routes.reached(column + 1, upper + output) and self.detector(upper + output) is not None
                )
                if route is not None and (straight or behind):
                    sides.append(Side(arm == output, route.cost, route, behind, upper + output))
        # Stray light moves the bar states seen from two sides in different ways; a cross state leaks more.
        sides.sort(key=lambda side: (side.crossed, side.cost))
        bars = [side for side in sides if not side.crossed]
        return self._agreed(mzi, channel, bars if bars else sides, expected) if sides else None

    def _behind(self, mzi: int, output: int, channel: int, expected: bool) -> list[NDArray[np.intp]]:
        """List groups of channels that move internal phases which light reaches by one output only, nearest first.

        A channel that chip.yaml has elsewhere could be any internal phase that leads light there: with known phases
        only, and the nearest among them, it is the MZI's own.
        """
        column, upper = self.mesh.mzis[mzi]
        own, other = (self.routes.reached(column + 1, upper + side) for side in (1 - output, output))
        theta = self.probe.layout.mesh_theta
        groups = []
        for cell in sorted(other - own):
            known = int(self.wiring.channel[theta[cell]])
            wanted = int(theta[cell]) if known == UNKNOWN and expected else known
            if wanted not in (UNKNOWN, channel) and not self.unused[wanted]:
                groups.append(np.array([wanted], dtype=np.intp))
            if not expected and known == UNKNOWN:
                break
        if len(groups) > 1 and expected:
            groups.insert(1, np.concatenate(groups))
        return groups

    def detector(self, output: int) -> int | None:
        """Return the detector that sees an output: the one found, else chip.yaml's if it is alive and not another's."""
        found = np.flatnonzero(self.sees == output).tolist()
        if not found and self.sees[output] == UNKNOWN:
            found = [output]
        return found[0] if found and not self.dead_detectors[found[0]] else None

    def _agreed(self, mzi: int, channel: int, sides: list[Side], expected: bool) -> Gate | None:
        """Ask from all sides until enough answers agree on a bar state; other channels behind the gate at each turn.

        A wrong channel among those behind must not speak against this one, and chance not for it.
        """
        self.relied.pop(mzi, None)
        found: list[Gate] = []
        needed = EXPECTED_ANSWERS if expected else OTHER_ANSWERS
        for attempt in range(2 * TRIES * len(sides)):  # what is behind may be dead, and its answers say nothing
            side = sides[attempt % len(sides)]
            gate = self._gate(mzi, channel, side, attempt // len(sides))
            if gate.strength == 0.0:  # the channel itself has no effect
                return gate
            found.append(gate.shifted() if side.crossed else gate)
            if gate.good and side.behind:
                self.relied.setdefault(mzi, set()).update(
                    side.behind[(attempt // len(sides)) % len(side.behind)].tolist()
                )
            agreed = agreeing(found, needed)
            told = sum(gate.informative for gate in found)
            wrong = told - sum(gate.good for gate in found)
            if told >= TRIES * len(sides) and agreed is None:
                break
            if agreed is not None and len(found) >= len(sides) and wrong <= len(found) // 3:
                return agreed
            if wrong > (2 if expected else 1) and (not expected or wrong > len(found) // 2 + 1):
                break
        if not any(gate.informative for gate in found):
            return None
        return replace(min(found, key=lambda gate: gate.ratio), good=False)

    def _gate(self, mzi: int, channel: int, side: Side, turn: int) -> Gate:
        power = self.random_power(self.mesh.mzis[mzi][0])
        self.steer(power, side.route)
        settings = self.sweep(power, channel, GATE_POINTS)
        behind = side.behind[turn % len(side.behind)] if side.behind else np.zeros(0, dtype=np.intp)
        moved = settings.copy()
        half = 0.5 * self.period_w[behind]
        moved[:, behind] = np.where(power[behind] < half, power[behind] + half, power[behind] - half)
        both = self._within(np.concatenate([settings, moved]), self.mesh.mzis[mzi][0], [channel, *behind.tolist()])
        settings, moved = both[:GATE_POINTS], both[GATE_POINTS:]
        before = self.measure(f"gate of {self._name(mzi)}", settings, side.route.lit)
        efficiency = float(self.wiring.efficiency[channel])
        if effect(before) < CLEAR_EFFECT:
            return Gate.without_effect(efficiency)
        if not side.behind:
            detector = self.detector(side.output)
            assert detector is not None
            return find_darkest(settings[:, channel], before, detector, efficiency)
        after = self.measure(f"gate of {self._name(mzi)}", moved, side.route.lit)
        return find_gate(settings[:, channel], before, after, efficiency)

    def _last(self, mzi: int, channel: int) -> Gate | None:
        """As `gate`, for an MZI behind which nothing can be changed: detectors see its outputs."""
        column, upper = self.mesh.mzis[mzi]
        ways = [(arm, self.routes.to_arm(column, upper + arm, self.wiring.steerable)) for arm in (0, 1)]
        found = [(route.cost, arm, route) for arm, route in ways if route is not None]
        if not found or any(self.routes.reached(column + 1, mode) for mode in (upper, upper + 1)):
            return None
        _, arm, route = min(found, key=lambda way: way[:2])
        power = self.random_power(column)
        self.steer(power, route)
        settings = self._within(self.sweep(power, channel, GATE_POINTS), column, [channel])
        readings = self.measure(f"gate of {self._name(mzi)}", settings, route.lit)
        if effect(readings) < CLEAR_EFFECT:
            return Gate.without_effect(float(self.wiring.efficiency[channel]))
        before = self.sees.copy()
        self._assign(readings.max(axis=0), route.lit, (upper, upper + 1))
        for output, shifted in ((upper + 1 - arm, False), (upper + arm, True)):
            seen = np.flatnonzero(self.sees == output)
            if len(seen):
                gate = find_darkest(
                    settings[:, channel], readings, int(seen[0]), float(self.wiring.efficiency[channel])
                )
                if not gate.good:
                    self.sees[:] = before
                return gate.shifted() if shifted else gate
        self.sees[:] = before
        return None

    def acts(self, channel: int) -> bool:
        """Ask whether a channel moves light at all: in random settings, each input port lit in one of them."""
        ports = len(self.sees)
        off = np.stack([self.random_power(0) for _ in range(ports)])
        off[:, channel] = 0.0
        on = off.copy()
        on[:, channel] = 0.5 * self.period_w[channel]
        both = self._within(np.concatenate([off, on]), 0, [channel])
        readings = self.measure(f"effect of {self.probe.layout.heaters[channel]}", both, np.tile(np.arange(ports), 2))
        return any(effect(readings[port::ports]) > CLEAR_EFFECT for port in range(ports))

    def find_straight(self) -> None:
        """Find the detectors of outputs that light can be led to behind all MZIs."""
        depth = self.mesh.depth
        for mode in range(self.probe.layout.ports):
            route = self.routes.to_arm(depth, mode, self.wiring.steerable)
            if route is not None and mode not in self.sees:
                power = self.random_power(depth)
                self.steer(power, route)
                setting = self._within(power[None], depth, [])
                self._assign(self.measure(f"detector of output {mode}", setting, route.lit)[0], route.lit, (mode,))

    def _assign(self, brightness: Array, port: int, outputs: tuple[int, ...]) -> None:
        """Give ``outputs`` the detectors that light of a port lights up; as chip.yaml has them where it can be."""
        bright = np.nan_to_num(brightness, nan=0.0)
        least = max(BRIGHT_SHARE / len(outputs) * bright.sum(), LED_SHARE * self.light_w[port])
        lit = [d for d in np.flatnonzero(bright > least).tolist() if d in outputs or not self.trusting]
        free = [d for d in lit if self.sees[d] == UNKNOWN]
        left = [o for o in outputs if o not in self.sees]
        for output in [o for o in left if o in free]:
            self.sees[output] = output
        free = [d for d in free if self.sees[d] == UNKNOWN]
        # Of two outputs with one lit detector, the other's is dead: as chip.yaml has it where it can be.
        left = sorted((o for o in left if o not in self.sees), key=lambda output: bool(self.dead_detectors[output]))
        for detector, output in zip(free, left, strict=False):
            self.sees[detector] = output

    def _name(self, mzi: int) -> str:
        column, upper = self.mesh.mzis[mzi]
        return f"mzi_{column}_{upper}"
