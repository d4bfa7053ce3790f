"""Which channel moves which phase, and which detector sees which output: all channels of a bare mesh, one by one."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration._discovery_analysis import dead_outputs
from calibration._discovery_routes import Loop
from calibration._discovery_state import UNKNOWN
from calibration._discovery_tests import PhaseTests
from calibration._probe import Probe
from calibration._session import Array
from calibration._twin_fit import NoiseModel

DETECTOR_STATES = 4
"""Random settings in which every input is lit to see which detectors are alive."""
DIRECT_EFFECT = 0.12
"""Part of the light above which a channel moves a phase in the light's way; heat alone stays below."""
NEAR_SHARE = 0.1
"""Part of its effects that a channel which only warms others must have on the inputs of its own MZI."""
MOST_LEFT = 8
"""Most channels or phases that are left to `match`."""
SEEN_SIGMAS = 2.5
"""What is seen above the noise, relative to the effect of noise summed over all outputs (which scatters little)."""


@dataclass(frozen=True)
class ChannelMap:
    """What moves what, positions in the layout's order of heaters and detectors.

    Parameters
    ----------
    channel
        Channel (H,) that moves each phase, named by the heater that chip.yaml gives it to; -1 where none was found.
    tested
        Whether (H,) light could be led to each phase so that it was tested at all.
    acts
        Whether (H,) each channel moves anything at all.
    sees
        Output (n,) that each detector sees; -1 for dead ones and where light could not be led to an output.
    dead_detectors
        Whether (n,) each detector saw nothing in many random settings.
    bar_w
        Power (K,) in W at which each internal phase is in bar, the others in random settings; NaN where not found.
    efficiency
        Phase per power (H,) of each channel in rad/W: measured for internal phases, typical of them for the others.
    readings
        Readings used.
    """

    channel: NDArray[np.intp]
    tested: NDArray[np.bool_]
    acts: NDArray[np.bool_]
    sees: NDArray[np.intp]
    dead_detectors: NDArray[np.bool_]
    bar_w: Array
    efficiency: Array
    readings: int


def find_channels(
    probe: Probe, noise: NoiseModel, rng: np.random.Generator, unusable: NDArray[np.bool_] | None = None
) -> ChannelMap:
    """Find which channel moves which phase of a bare mesh, and which detector sees which output.

    chip.yaml's map is tried first, for every phase; what fails is then tried against every other channel that failed.

    Parameters
    ----------
    probe
        The chip.
    noise
        Noise of its readings.
    rng
        Source of random settings.
    unusable
        Channels (H,) that must not be driven, open and shorted ones say; none if left out.

    Raises
    ------
    CalibrationError
        If the chip is no bare mesh, or all detectors are dark.
    """
    started = probe.readings
    search = _Search(PhaseTests(probe, noise, rng), unusable)
    search.detectors()
    search.internal()
    search.external()
    search.unseen()
    search.sort_out()
    search.resolve()
    search.settle_unseen()
    search.match()
    search.assume()
    search.eliminate()
    return search.result(probe.readings - started)


class _Search:
    """One run of `find_channels`."""

    def __init__(self, tests: PhaseTests, unusable: NDArray[np.bool_] | None) -> None:
        self.tests, self.wiring = tests, tests.wiring
        layout = tests.probe.layout
        self.theta, self.phi, self.mesh = layout.mesh_theta, layout.mesh_phi, layout.mesh
        heaters = len(layout.heaters)
        self.tested = np.zeros(heaters, dtype=bool)
        self.acts = np.ones(heaters, dtype=bool)
        self.usable = np.ones(heaters, dtype=bool) if unusable is None else ~unusable
        self.acts &= self.usable
        self.warms = np.zeros(heaters, dtype=bool)
        tests.unused |= ~self.usable

    def detectors(self) -> None:
        """Find dead detectors."""
        tests, n = self.tests, self.tests.probe.layout.ports
        settings = np.repeat(np.stack([tests.random_power(0) for _ in range(DETECTOR_STATES)]), n, axis=0)
        readings = tests.measure("detectors", settings, np.tile(np.arange(n), DETECTOR_STATES))
        tests.dead_detectors = dead_outputs(readings)

    def internal(self) -> None:
        """Try chip.yaml's channel of every internal phase, column by column."""
        for cells in self.mesh.columns:
            for mzi in cells:
                position = int(self.theta[mzi])
                if self.usable[position] and not self._try_theta(mzi, position):
                    self.tests.unused[position] = True
            self._learn_efficiency()
        self._ask_again()
        self.tests.find_straight()

    def _ask_again(self) -> None:
        """Doubt internal phases that were found with the help of channels which then failed themselves."""
        known = set(self.wiring.channel[self.theta].tolist())
        doubted = [mzi for mzi, channels in sorted(self.tests.relied.items()) if not channels <= known]
        for mzi in doubted:
            position = int(self.theta[mzi])
            channel = int(self.wiring.channel[position])
            if channel == UNKNOWN:
                continue
            self.wiring.channel[position], self.wiring.bar_w[mzi] = UNKNOWN, np.nan
            self.tests.unused[channel] = not self._try_theta(mzi, channel)

    def _try_theta(self, mzi: int, channel: int) -> bool:
        position = int(self.theta[mzi])
        gate = self.tests.gate(mzi, channel, channel == position)
        self.tested[position] |= gate is not None
        if gate is None or not gate.good:
            return False
        self._take(position, channel)
        self.wiring.efficiency[channel] = gate.efficiency
        self.wiring.bar_w[mzi] = gate.bar_w
        return True

    def _take(self, position: int, channel: int) -> None:
        self.wiring.channel[position] = channel
        self.tests.unused[channel] = False

    def _learn_efficiency(self) -> None:
        """Expect of channels not yet measured what those measured have in common."""
        known = self.wiring.channel[self.theta]
        known = known[known != UNKNOWN]
        if len(known):
            nominal = self.tests.probe.nominal_efficiency
            rest = np.setdiff1d(np.arange(len(nominal)), known)
            common = float(np.median(self.wiring.efficiency[known] / nominal[known]))
            self.wiring.efficiency[rest] = common * nominal[rest]

    def external(self) -> None:
        """Try chip.yaml's channel of every external phase that a loop can show."""
        for mzi in range(len(self.mesh.mzis)):
            position = int(self.phi[mzi])
            if self.usable[position] and self._shown(mzi) and not self._try_phi(mzi, position):
                self.tests.unused[position] = True

    def _shown(self, mzi: int) -> bool:
        return self.mesh.mzis[mzi][0] > 0

    def _try_phi(self, mzi: int, channel: int) -> bool:
        position = int(self.phi[mzi])
        loop = self._loop(mzi, ())
        if loop is None:
            return False
        # Light that leaves the ways of a leaky loop passes other phases: there only a yes says something.
        strangers = any(self.wiring.channel[self.phi[k]] == UNKNOWN for k in loop.phis if k != mzi)
        if channel != position and (loop.leaky or strangers):
            return False
        self.tested[position] |= not loop.leaky
        if not self.tests.loop(loop, channel, channel == position):
            return False
        self.tested[position] = True
        if loop.closing == mzi and not self._told_apart(mzi, loop, channel):
            return False
        self._take(position, channel)
        return True

    def _loop(self, mzi: int, without: tuple[int, ...]) -> Loop | None:
        """Return the shortest loop that shows the external phase of ``mzi`` and not those of ``without``."""
        routes, steerable = self.tests.routes, self.wiring.steerable
        column, upper = self.mesh.mzis[mzi]
        closings = [k for k, (c, m) in enumerate(self.mesh.mzis) if 0 < c - column <= 2 and abs(m - upper) <= 2]
        for closing in [mzi, *closings]:
            loop = routes.loop(closing, steerable)
            if loop is not None and mzi in loop.phis and not loop.phis.intersection(without):
                return loop
        return None

    def _told_apart(self, mzi: int, loop: Loop, channel: int) -> bool:
        """Tell the external phase of ``mzi`` from those of the same loop that no loop of their own can show."""
        rivals = tuple(
            k for k in sorted(loop.phis) if k != mzi and self.tests.routes.loop(k, self.wiring.steerable) is None
        )
        if not rivals:
            return True
        other = self._loop(mzi, rivals)
        if other is not None:
            return self.tests.loop(other, channel, channel == self.phi[mzi])
        between = [k for k in rivals if self.wiring.steerable[k]]
        return all(self.tests.loop_sign(loop, k, channel) > -0.1 for k in between)

    def resolve(self) -> None:
        """Try the channels that failed on all phases that have none, until nothing more is found.

        Each phase found may open ways to others.  chip.yaml's own channels come first.
        """
        asked: set[tuple[int, int, bytes]] = set()
        while self._find_one(asked, own=True) or self._find_one(asked, own=False):
            self._learn_efficiency()
            self.tests.find_straight()

    def _find_one(self, asked: set[tuple[int, int, bytes]], own: bool) -> bool:
        """Find one more channel; the same question is asked again only when light can be led in other ways."""
        for mzi in range(len(self.mesh.mzis)):
            for attempt, position in ((self._try_theta, int(self.theta[mzi])), (self._try_phi, int(self.phi[mzi]))):
                if self.wiring.channel[position] != UNKNOWN or (position == self.phi[mzi] and not self._shown(mzi)):
                    continue
                for channel in self._homeless(position):
                    question = (position, channel, self.wiring.steerable.tobytes())
                    if (channel == position) == own and question not in asked:
                        asked.add(question)
                        if attempt(mzi, channel):
                            return True
        return False

    def _homeless(self, position: int) -> list[int]:
        """Channels that act on something, but have no phase yet; those of ``position`` first."""
        taken = set(self.wiring.channel.tolist())
        left = [c for c in range(len(self.acts)) if c not in taken and self.acts[c] and not self.warms[c]]
        return sorted(left, key=lambda channel: channel != position)

    def unseen(self) -> None:
        """Try chip.yaml's channels of phases that powers cannot show: they warm their neighbours, nothing else."""
        places = np.array([self.phi[k] for k in range(len(self.mesh.mzis)) if not self._shown(k)], dtype=np.intp)
        places = places[self.usable[places]]
        self.tested[places] = True
        for position, moved, sigmas in zip(places.tolist(), *self.tests.acts(places), strict=True):
            if sigmas.max() > SEEN_SIGMAS and moved.max() < DIRECT_EFFECT:
                self._take(position, position)
            else:
                self.tests.unused[position] = True

    def sort_out(self) -> None:
        """Find among the channels without a phase those that do nothing, and those that only warm others."""
        left = np.array(self._homeless(UNKNOWN), dtype=np.intp)
        self._moved: dict[int, Array] = {}
        if not len(left):
            return
        self._moved = dict(zip(left.tolist(), (acts := self.tests.acts(left))[0], strict=True))
        for channel, moved, sigmas in zip(left.tolist(), *acts, strict=True):
            self.acts[channel] = sigmas.max() > SEEN_SIGMAS
            self.warms[channel] = self.acts[channel] and moved.max() < DIRECT_EFFECT

    def settle_unseen(self) -> None:
        """Give what only warms others to the phases that powers cannot show, the warmest neighbours first."""
        taken = set(self.wiring.channel.tolist())
        places = [k for k in range(len(self.mesh.mzis)) if not self._shown(k)]
        places = [k for k in places if self.wiring.channel[self.phi[k]] == UNKNOWN]
        left = [c for c in np.flatnonzero(self.warms).tolist() if c not in taken]
        heat = {}
        for mzi in places:
            upper = self.mesh.mzis[mzi][1]
            heat.update({(mzi, c): float(self._moved[c][upper : upper + 2].sum() / self._moved[c].sum()) for c in left})
        for (mzi, channel), near in sorted(heat.items(), key=lambda pair: -pair[1]):
            if mzi in places and channel in left and near > NEAR_SHARE:
                self._take(int(self.phi[mzi]), channel)
                places.remove(mzi)
                left.remove(channel)

    def match(self) -> None:
        """Give the few channels and phases that are left to each other where only one choice passes milder tests."""
        places = [p for p in range(len(self.acts)) if self.wiring.channel[p] == UNKNOWN and self.tested[p]]
        places = [p for p in places if p in self.theta or self._shown(self._cell(p))]
        left = self._homeless(UNKNOWN)
        if min(len(places), len(left)) == 0 or max(len(places), len(left)) > MOST_LEFT:
            return
        passing = {place: [c for c in left if self._mild(place, c)] for place in places}
        while True:
            single = [p for p, channels in passing.items() if len(channels) == 1]
            single += [p for p, channels in passing.items() if p in channels]
            if not single:
                break
            place = single[0]
            channel = place if place in passing[place] else passing[place][0]
            self._take(place, channel)
            passing = {p: [c for c in cs if c != channel] for p, cs in passing.items() if p != place}

    def eliminate(self) -> None:
        """Give the last channel that acts on something to the last phase that has none, if there is one of each.

        Phases whose own channel does nothing are taken to be dead.
        """
        places = [p for p in range(len(self.acts)) if self.wiring.channel[p] == UNKNOWN and self.acts[p]]
        places = [p for p in places if p in self.theta or self._shown(self._cell(p))]
        left = self._homeless(UNKNOWN)
        if len(places) == 1 and len(left) == 1:
            self._take(places[0], left[0])

    def _cell(self, position: int) -> int:
        """Index of the MZI to which a phase belongs."""
        found = self.theta if position in self.theta else self.phi
        return int(np.flatnonzero(found == position)[0])

    def _mild(self, position: int, channel: int) -> bool:
        """Ask as if chip.yaml had ``channel`` there."""
        mzi = self._cell(position)
        if position in self.theta:
            gate = self.tests.gate(mzi, channel, True)
            return gate is not None and gate.good
        loop = self._loop(mzi, ())
        return loop is not None and self.tests.loop(loop, channel, True)

    def assume(self) -> None:
        """Believe chip.yaml where light could not be led to a phase, if its channel acts and has no other phase."""
        taken = set(self.wiring.channel.tolist())
        for position in np.flatnonzero(~self.tested & self.acts & self.usable).tolist():
            if self.wiring.channel[position] == UNKNOWN and position not in taken:
                self._take(position, position)

    def result(self, readings: int) -> ChannelMap:
        """Put together what was found."""
        tests, wiring = self.tests, self.wiring
        return ChannelMap(
            channel=wiring.channel.copy(), tested=self.tested.copy(), acts=self.acts.copy(), sees=tests.sees.copy(),
            dead_detectors=tests.dead_detectors.copy(), bar_w=wiring.bar_w.copy(),
            efficiency=wiring.efficiency.copy(), readings=readings,
        )  # fmt: skip
