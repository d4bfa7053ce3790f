"""Which phase each channel moves: steps of single channels in a mesh whose light a rough twin predicts."""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from calibration._discovery_build import TwinSearch
from calibration._discovery_full import FullTwin, fit_full
from calibration._discovery_heat import (
    HEARD_CHI,
    SILENT_CHI,
    HeatModel,
    effect_over_noise,
    invisible_phases,
)
from calibration._discovery_placing import Placed, half_told, place_unseen
from calibration._discovery_settings import Sweeps
from calibration._discovery_state import UNKNOWN
from calibration._discovery_steps import EXPLAINED, FAINT, Steps, Verdicts, judge_steps, telling_settings
from calibration._discovery_tests import PhaseTests
from calibration._discovery_twin import RoughTwin, weigh
from calibration._mesh_linear import MeshData
from calibration._session import Array

POOR = 0.12
"""Mean total variation distance of held-out settings above which a twin says nothing, and a relied-on map is wrong."""
UNSHARP = 0.02
"""The same distance above which the full model says nothing: a wrong wiring leaves more, noise and bends less."""
ATTEMPTS, TRIES, SHARP_ROUNDS, CONFIRMATIONS, HOPELESS = 3, 3, 5, 3, 2
"""Twins that are built, each relying on what the one before showed; tries for each, relying on fewer channels; rounds
of the full model, with further readings of undecided channels; of readings that confirm accusations; and poor rounds of
the full model in a row that end a search."""
FEW = 0.12
"""Part of the channels that may be undecided if further readings are to settle them without a new twin."""
CANDIDATES = 12
"""Random settings from which each telling one is chosen."""
POSSIBLE = 10.0
"""An undecided channel may move any phase that leaves no more than this many times the least unexplained."""
WEAK = 0.8
"""A phase that leaves less than this unexplained of a small effect may be the one that makes it."""
MOST_FREE = 10
"""Phases without channels that an undecided channel is tried at."""
HEAT_ROUNDS = 3
"""Rounds of large steps of channels that only warm others, while no place explains some of them."""
TELLING_CHI = 6.0
"""Residual over noise of the full model up to which it tells where heat comes from: arm losses alone may make 2.5."""
LOUD_CHI = 20.0
"""Effect over noise of a channel's heat above which it steps less in the next round: it bends otherwise."""
CHECKS = 2
"""Per port: settings that judge the full model."""
LIKELY_MARGIN = 1.5
"""A channel is believed for the next fit if every other phase leaves this many times more unexplained."""
_LIKELY = 0.5
_QUARTER, _LARGE = 0.25, 0.75  # turns
_RIVALS = 3
_REFITS = 3


@dataclass
class ChannelSearch:
    """Finds which phase each channel moves.

    Parameters
    ----------
    tests
        Tests of this chip, with the internal phases found by their gates.
    usable
        Channels (H,) that may be driven.
    trusted
        Internal phases that no gate told of and that chip.yaml's own channels are taken to move at first.
    rng
        Source of random settings.
    """

    tests: PhaseTests
    usable: NDArray[np.bool_]
    trusted: NDArray[np.intp]
    rng: np.random.Generator
    twin: RoughTwin = field(init=False)
    full: RoughTwin = field(init=False)
    data: MeshData = field(init=False)
    held_out: MeshData = field(init=False)
    steps: Steps = field(init=False)

    def __post_init__(self) -> None:
        wiring, layout = self.tests.wiring, self.tests.probe.layout
        self._layout, self._heaters, self._ports = layout, len(layout.heaters), layout.ports
        self._internal = np.isin(np.arange(self._heaters), layout.mesh_theta)
        self._invisible = np.isin(np.arange(self._heaters), invisible_phases(layout))
        self._sweeps = Sweeps(self.tests, self.rng)
        channel = np.where(self._internal, wiring.channel, UNKNOWN)
        offset = self.rng.uniform(-np.pi, np.pi, self._heaters)
        found = np.flatnonzero(channel != UNKNOWN)
        bars = np.repeat(wiring.bar_w, 2)
        offset[found] = np.pi - wiring.efficiency[channel[found]] * bars[found]
        channel[self.trusted] = self.trusted
        ones = np.ones(self._ports)
        self.twin = self.full = RoughTwin(layout, channel, wiring.efficiency.copy(), offset, ones, ones)
        self.steps = Steps.none(self._heaters, self._ports)

    def run(self) -> Verdicts:
        """Build a twin, let every channel step, and measure more until all is decided or nothing helps."""
        asked = np.flatnonzero(self.usable)
        verdicts = self._begin(self.twin, asked, self.trusted)
        for _ in range(ATTEMPTS - 1):
            asked = np.flatnonzero(self.usable & ~verdicts.decided)
            if not self.good or (verdicts.acting & ~verdicts.decided).mean() <= FEW:
                break
            before = self.twin, self.data, self.held_out
            verdicts = self._begin(self._relying_on(verdicts), asked, self.trusted[:0])
            if not self.good:
                self.twin, self.data, self.held_out = before
                verdicts = self._settled()
                break
        verdicts = self._sharpened() if self.good else verdicts
        return self._confirmed(verdicts) if self.sharp else verdicts.without(verdicts.acting)

    def _sharpened(self) -> Verdicts:
        """Judge by the full model of what is believed; measure more until it predicts settings in which all that moves.

        These settings are new in each round, so that the whole wiring is judged at once.
        """
        verdicts = judge_steps(self.twin, self.steps)
        poor = 0
        for _ in range(SHARP_ROUNDS):
            before = self.twin.channel
            self.full = fit_full(self.twin, self._readings(before), self.tests.noise, self.rng, self.full)
            self.data = self.data.joined(self.held_out)
            self.held_out = self._random_data(self._sweeps.depth, CHECKS * self._ports)
            verdicts = judge_steps(self.full, self.steps)
            poor = poor + 1 if self.full.distance(self.held_out) > POOR else 0
            if poor == HOPELESS:
                break
            channel = self._believed(verdicts)
            self.twin = self._descended(replace(self.twin, channel=channel), self._readings(channel), 3)
            undecided = np.flatnonzero(self._visible(verdicts) & ~verdicts.decided)
            if len(undecided):
                self._measure_more(undecided, verdicts)
                self._refit_one()
            elif self.sharp and (channel == before).all():
                break
        return verdicts

    def _begin(self, begin: RoughTwin, asked: NDArray[np.intp], unsure: NDArray[np.intp]) -> Verdicts:
        """Build a twin from one that relies on some channels, ``unsure`` of some offsets, and let channels step."""
        for _ in range(TRIES):
            search = TwinSearch(begin, self._random_data, unsure, self.rng)
            self.twin = begin
            self.twin = search.run()
            self.data, self.held_out = search.data, search.held_out
            if self.good:
                break
            begin = search.without_astray()
        if self.good:
            self.steps = self.steps.joined(self._stepped(asked))
        return self._settled()

    def _confirmed(self, verdicts: Verdicts) -> Verdicts:
        """Accuse only channels that steps from settings which no fit has seen accuse too."""
        elsewhere = verdicts.decided & (verdicts.best != np.arange(self._heaters))
        open_, fresh = elsewhere.copy(), Steps.none(self._heaters, self._ports)
        for _ in range(CONFIRMATIONS):
            if not open_.any():
                break
            fresh = fresh.joined(self._stepped(np.flatnonzero(open_)))
            again = judge_steps(self.full, fresh)
            open_ = elsewhere & ~(again.decided & (again.best == verdicts.best))
        return verdicts.without(open_)

    @property
    def good(self) -> bool:
        """Whether the twin predicts settings that it has not seen."""
        return self.twin.distance(self.held_out) < POOR

    @property
    def sharp(self) -> bool:
        """Whether the full model predicts them so well that the wiring that it was fitted to must be right."""
        return self.full.distance(self.held_out) < UNSHARP

    def _visible(self, verdicts: Verdicts) -> NDArray[np.bool_]:
        """Channels that move a phase which powers show, or by their effect might."""
        return np.asarray(verdicts.acting | ((verdicts.effect > FAINT) & (verdicts.least < WEAK)))

    def _measure_more(self, undecided: NDArray[np.intp], verdicts: Verdicts) -> None:
        """Take readings in which the phases that undecided channels may move would do the most different things."""
        rivals = [(int(c), self._plausible(int(c), verdicts)) for c in undecided]
        power, lit = self.random_settings(CANDIDATES * self._sweeps.count)
        chosen = telling_settings(self.full, power, lit, rivals, self._sweeps.count)
        self.steps = self.steps.joined(
            self._sweeps.stepped(self.twin, undecided, (power[chosen], lit[chosen]), _QUARTER)
        )

    def random_settings(self, count: int) -> tuple[Array, NDArray[np.intp]]:
        """Draw powers (count, H) in W of all that is believed to move something, and lit ports (count,)."""
        return self._sweeps.random(self.twin, self._sweeps.depth, count)

    def _random_data(self, column: int, count: int) -> MeshData:
        return self._sweeps.data(self.twin, column, count)

    def _stepped(self, channels: NDArray[np.intp]) -> Steps:
        """Let channels step by a quarter of a period from new random settings."""
        return self._sweeps.stepped(self.twin, channels, self.random_settings(self._sweeps.count), _QUARTER)

    def _plausible(self, channel: int, verdicts: Verdicts) -> NDArray[np.intp]:
        """Phases that a channel may move: those that explain it best, its own, and some that nothing moves."""
        likely = np.argsort(verdicts.unexplained[channel])[:_RIVALS].tolist()
        free = np.flatnonzero((self.twin.channel == UNKNOWN) & ~self._invisible)
        own = [] if self._invisible[channel] else [channel]
        return np.array(sorted({*likely, *own, *free[:MOST_FREE].tolist()}), dtype=np.intp)

    # Fits

    def _settled(self) -> Verdicts:
        """Judge and fit in turns until channels keep their phases; then competing fits for those left over."""
        self._fit_in_turns()
        if self.good:
            for _ in range(_REFITS):
                if not self._refit_one():
                    break
            self._fit_in_turns()
        return judge_steps(self.twin, self.steps)

    def _fit_in_turns(self, rounds: int = 5) -> None:
        before: list[int] | None = None
        for _ in range(rounds):
            verdicts = judge_steps(self.twin, self.steps)
            channel = self._believed(verdicts)
            self.twin = self._descended(replace(self.twin, channel=channel), self._readings(channel), 3)
            if channel.tolist() == before:
                break
            before = channel.tolist()

    def _believed(self, verdicts: Verdicts) -> NDArray[np.intp]:
        """Channels (H,) of phases: those that steps show, and those relied on before that steps do not refute.

        Of two places that explain a channel alike chip.yaml's is believed: the other may be another channel's.
        """
        left = verdicts.unexplained
        sure = self._visible(verdicts) & (verdicts.least < _LIKELY) & (verdicts.margin > LIKELY_MARGIN)
        channel, placed = np.full(self._heaters, UNKNOWN), np.zeros(self._heaters, dtype=bool)

        def believe(one: int, phase: int) -> None:
            channel[phase], placed[one] = one, True
            if verdicts.mirrored[one, phase]:
                self.twin = self.twin.mirrored(phase // 2)

        for one in np.argsort(verdicts.least).tolist():
            phase = int(verdicts.best[one])
            if sure[one] and channel[phase] == UNKNOWN:
                believe(one, phase)
        for phase in np.flatnonzero(self._internal & (self.twin.channel != UNKNOWN) & (channel == UNKNOWN)).tolist():
            one = int(self.twin.channel[phase])
            if placed[one]:
                continue
            alike = channel[one] == UNKNOWN and left[one, one] < LIKELY_MARGIN * left[one, phase]
            believe(one, one if alike else phase)
        return channel

    def _readings(self, channel: NDArray[np.intp]) -> MeshData:
        """All readings in which nothing unknown moves."""
        placed = np.isin(np.arange(self._heaters), channel[channel != UNKNOWN])
        return self.data.joined(self.steps.bases).joined(self.steps.only(placed).ends)

    def _descended(self, twin: RoughTwin, data: MeshData, passes: int) -> RoughTwin:
        every = np.ones(self._heaters, dtype=bool)
        return twin.descended(data, every, twin.offset, np.full(self._heaters, np.inf), passes)

    def _refit_one(self) -> bool:
        """Fit the twin under every place that channels without one may have; believe the best fit of all.

        Returns
        -------
        bool
            Whether a channel got a place.
        """
        verdicts = judge_steps(self.twin, self.steps)
        placed = np.isin(np.arange(self._heaters), self.twin.channel)
        left = np.flatnonzero(verdicts.acting & ~placed)
        data = self.data.joined(self.steps.bases)
        base = self.twin.misfit(data)
        best: tuple[float, RoughTwin] | None = None
        for channel in left:
            steps = self.steps.only(np.arange(self._heaters) == channel)
            size, both = weigh(steps.effect, data), data.joined(steps.ends)
            places = self._plausible(int(channel), verdicts)
            for phase in places[self.twin.channel[places] == UNKNOWN]:
                for twin in self._starts(int(channel), int(phase)):
                    found = self._descended(twin, both, 2)
                    cost = (found.misfit(both, data) - base) / size
                    if cost < _LIKELY and (best is None or cost < best[0]):
                        best = cost, found
        if best is None:
            return False
        self.twin = best[1]
        return True

    def _starts(self, channel: int, phase: int) -> list[RoughTwin]:
        wires = self.twin.channel.copy()
        wires[phase] = channel
        twins = [self.twin, self.twin.mirrored(phase // 2)] if self._internal[phase] else [self.twin]
        return [replace(twin, channel=wires) for twin in twins]

    def _relying_on(self, verdicts: Verdicts) -> RoughTwin:
        """Return a twin to begin anew with: it relies on the internal phases that steps confirm."""
        channel = np.full(self._heaters, UNKNOWN)
        for phase in np.flatnonzero(self._internal & (self.twin.channel != UNKNOWN)):
            if verdicts.unexplained[self.twin.channel[phase], phase] < EXPLAINED:
                channel[phase] = self.twin.channel[phase]
        return replace(self.twin, channel=channel)

    def placed(self, verdicts: Verdicts) -> Placed:
        """Say which channel moves each phase, those included that powers do not show."""
        silent, likely = self._quiet(verdicts)
        verdicts = verdicts.without(half_told(verdicts, silent, likely))
        channel, doubted = np.full(self._heaters, UNKNOWN), np.zeros(self._heaters, dtype=bool)
        claims = np.bincount(verdicts.best[verdicts.decided], minlength=self._heaters)
        for one in np.flatnonzero(verdicts.decided):
            if claims[verdicts.best[one]] == 1:
                channel[verdicts.best[one]] = one
        place_unseen(channel, np.flatnonzero(self._invisible), likely)
        homeless = ~silent & ~np.isin(np.arange(self._heaters), channel)
        empty = channel == UNKNOWN
        doubted[empty & homeless] = True
        channel[empty & homeless] = np.flatnonzero(empty & homeless)
        for one in np.flatnonzero(homeless):  # it may move what nothing was found to move
            doubted |= empty & self._possible(int(one), verdicts)
        return Placed(channel, doubted, silent)

    def _possible(self, channel: int, verdicts: Verdicts) -> NDArray[np.bool_]:
        """Phases (H,) that an undecided channel may move."""
        if not verdicts.acting[channel]:
            return self._invisible
        if not self.good or verdicts.least[channel] > EXPLAINED:
            return ~self._invisible
        left = verdicts.unexplained[channel]
        return np.asarray(left < np.minimum(POSSIBLE * verdicts.least[channel], 1.0 - EXPLAINED))

    def _quiet(self, verdicts: Verdicts) -> tuple[NDArray[np.bool_], dict[int, Array]]:
        """Tell channels that do nothing, and how likely the others are at each of the phases that powers do not show.

        Returns
        -------
        tuple
            Whether (H,) each channel does nothing, and log likelihoods of those that only warm others.
        """
        silent, turns = ~self.usable, np.full(self._heaters, _LARGE)
        likely, every = dict[int, Array](), Steps.none(self._heaters, self._ports)
        left = np.flatnonzero(self.usable & ~verdicts.acting)
        for _ in range(HEAT_ROUNDS):
            if not len(left):
                break
            settings = self.random_settings(2 * self._sweeps.count)
            steps = self._sweeps.stepped(self.twin, left, settings, turns[left])
            every = every.joined(steps)
            over = effect_over_noise(every, self.tests.noise, self._heaters)
            silent[left[over[left] < SILENT_CHI]] = True
            if not self.sharp:
                break
            data = self._readings(self.twin.channel).joined(self.held_out).joined(every.bases)
            full = self.full = fit_full(self.twin, data, self.tests.noise, self.rng, self.full)
            if isinstance(full, FullTwin) and full.fit.chi < TELLING_CHI:
                warm = left[(over[left] > HEARD_CHI) & (judge_steps(full, steps).least[left] > _LIKELY)]
                likely |= self._warming(full, warm, steps)
            left = left[~silent[left] & ~np.isin(left, list(likely))]
            turns[over > LOUD_CHI] = _QUARTER
        return silent, likely

    def _warming(self, full: FullTwin, channels: NDArray[np.intp], steps: Steps) -> dict[int, Array]:
        """Log likelihoods of channels that only warm others at each of the phases that powers do not show."""
        places, one = np.flatnonzero(self._invisible), np.arange(self._heaters)
        heat = HeatModel(full, full.heat)
        likely = {c: heat.log_likelihoods(steps.only(one == c), self.tests.noise, places) for c in channels.tolist()}
        return {channel: values for channel, values in likely.items() if np.isfinite(values).all()}
