"""Which channel moves which phase, and which detector sees which output: all channels of a bare mesh, one by one."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibration._arrays import flags
from calibration._discovery_analysis import dead_outputs
from calibration._discovery_channels import ChannelSearch
from calibration._discovery_state import UNKNOWN, require_bare
from calibration._discovery_steps import Verdicts
from calibration._discovery_tests import PhaseTests
from calibration._mesh_checks import require_probe
from calibration._probe import Probe
from calibration._session import Array
from calibration._twin_fit import NoiseModel, _one_thread
from optinc_hw.errors import CalibrationError

DETECTOR_STATES = 4
"""Random settings in which every input is lit to see which detectors are alive."""
SEARCHES = 5
"""Searches, begun anew in other settings where no twin predicts what it has not seen; every second one trusts chip.yaml
about detectors that are alive."""
TRUSTING = 0, 1, 4
"""Searches that at first trust chip.yaml about internal phases of which no gate could tell."""
STILL = 8.0
"""A detector that varies by less than this many times its noise in these settings follows neither light nor heaters,"""
STILL_SHARE = 0.3
"""if it also varies by less than this share of its largest reading."""
EXCHANGED_SETTINGS = 4
"""Per port: random settings that tell which output a detector sees if not that of chip.yaml."""
ALIKE = 0.95
"""Least correlation of a detector's readings with what the twin predicts of its output."""


@dataclass(frozen=True)
class ChannelMap:
    """What moves what, positions in the layout's order of heaters and detectors.

    Parameters
    ----------
    channel
        Channel (H,) that moves each phase, named by the heater that chip.yaml gives it to; -1 where none was found.
    undecided
        Whether (H,) readings do not tell what moves each phase: ``channel`` is then chip.yaml's, or -1 if that channel
        moves another phase.
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
    unexplained, margin
        Part (H,) of each channel's squared effect that the phase it moves leaves unexplained, and how many times more
        the second best one leaves; NaN for channels without effect.
    held_out_tvd
        Mean total variation distance between readings of random settings and what the twin predicted of them.
    readings
        Readings used.
    """

    channel: NDArray[np.intp]
    undecided: NDArray[np.bool_]
    acts: NDArray[np.bool_]
    sees: NDArray[np.intp]
    dead_detectors: NDArray[np.bool_]
    bar_w: Array
    efficiency: Array
    unexplained: Array
    margin: Array
    held_out_tvd: float
    readings: int


def find_channels(
    probe: Probe, noise: NoiseModel, rng: np.random.Generator, unusable: ArrayLike | None = None
) -> ChannelMap:
    """Find which channel moves which phase of a bare mesh, and which detector sees which output.

    Gates find internal phases that chip.yaml's channels move. A rough twin of the mesh that relies on these alone then
    predicts what steps of any channel would do if it moved this phase or that, and readings decide. The full model of
    what they decided must then predict settings in which all of it moves; if not, the search begins anew.

    Parameters
    ----------
    probe
        The chip.
    noise
        Noise of its readings.
    rng
        Source of random settings.
    unusable
        Booleans (H,): channels that must not be driven, open and shorted ones say; none if left out.

    Raises
    ------
    CalibrationError
        If the chip is no bare mesh, the probe's limits or ``unusable`` are none of its heaters, fewer than two
        detectors follow light and heaters, the light is lost on the way, or no channel has an effect.
    """
    require_bare(probe.layout)
    require_probe(probe.max_power_w, probe.max_total_power_w, probe.nominal_efficiency, probe.layout)
    started = probe.readings
    usable = _usable(unusable, len(probe.layout.heaters))
    best: tuple[ChannelSearch, Verdicts] | None = None
    for turn in range(SEARCHES):
        tests = PhaseTests(probe, noise, rng, trusting=turn % 2 == 1)
        _find_gates(tests, usable)
        trusted = _untold(tests) if turn in TRUSTING else np.zeros(0, dtype=np.intp)
        search = ChannelSearch(tests, usable, trusted, rng)
        with _one_thread():
            found = search, search.run()
        if best is None or _distance(search) < _distance(best[0]):
            best = found
        if search.sharp:
            break
    assert best is not None
    search, verdicts = best
    with _one_thread():
        placed = search.placed(verdicts)
        _confirm_detectors(search.tests, search)
    tests = search.tests
    _require_effects(tests, placed.silent)
    return ChannelMap(
        channel=placed.channel, undecided=placed.undecided, acts=~placed.silent, sees=tests.sees.copy(),
        dead_detectors=tests.dead_detectors.copy(), bar_w=tests.wiring.bar_w.copy(),
        efficiency=tests.wiring.efficiency.copy(),
        unexplained=np.where(verdicts.acting, verdicts.least, np.nan),
        margin=np.where(verdicts.acting, verdicts.margin, np.nan),
        held_out_tvd=_distance(search), readings=probe.readings - started,
    )  # fmt: skip


def _usable(unusable: ArrayLike | None, heaters: int) -> NDArray[np.bool_]:
    """Channels (H,) that may be driven; refuses what is no truth value for each heater, and to drive none."""
    if unusable is None:
        return np.ones(heaters, dtype=np.bool_)
    given = flags("unusable", unusable, heaters)
    if given.all():
        raise CalibrationError(f"all {heaters} channels are unusable; leave those that may be driven at False")
    return np.asarray(~given)


def _distance(search: ChannelSearch) -> float:
    return search.full.distance(search.held_out)


def _find_gates(tests: PhaseTests, usable: NDArray[np.bool_]) -> None:
    """Find dead detectors, and internal phases that chip.yaml's own channels move."""
    tests.unused |= ~usable
    _find_dead_detectors(tests)
    _Gates(tests, usable).find()


def _untold(tests: PhaseTests) -> NDArray[np.intp]:
    """List internal phases of which no gate could tell and whose own channels move something."""
    theta = tests.probe.layout.mesh_theta
    return np.array([theta[mzi] for mzi in sorted(tests.untold) if tests.acts(int(theta[mzi]))], dtype=np.intp)


def _find_dead_detectors(tests: PhaseTests) -> None:
    n = tests.probe.layout.ports
    settings = np.repeat(np.stack([tests.random_power(0) for _ in range(DETECTOR_STATES)]), n, axis=0)
    readings = tests.measure("detectors", settings, np.tile(np.arange(n), DETECTOR_STATES))
    tests.dead_detectors = dead_outputs(readings) | _still(readings, tests)
    alive = int(np.sum(~tests.dead_detectors))
    if alive < 2:
        raise CalibrationError(
            f"only {alive} of {n} detectors follow light and heaters in {len(settings)} random settings, and 2 are "
            "needed; check laser, input switch, and the meters' ranges and averaging"
        )
    seen = np.where(tests.dead_detectors, 0.0, np.nan_to_num(readings)).sum(axis=1)
    tests.light_w = seen.reshape(DETECTOR_STATES, n).max(axis=0)


def _still(readings: Array, tests: PhaseTests) -> NDArray[np.bool_]:
    """Detectors (n,) that are dark, or read the same in all settings (B, n)."""
    largest = np.where(np.isfinite(readings), readings, -np.inf).max(axis=0)
    least = np.where(np.isfinite(readings), readings, np.inf).min(axis=0)
    noise = STILL * np.maximum(tests.noise.relative * largest, tests.noise.floor_w)
    return np.asarray((largest <= tests.dark_w) | (largest - least < np.minimum(noise, STILL_SHARE * largest)))


def _require_effects(tests: PhaseTests, silent: NDArray[np.bool_]) -> None:
    """Refuse to call all channels dead, or to judge by readings during which the light was lost."""
    n = tests.probe.layout.ports
    tests.measure("light at the end", np.zeros((n, len(silent))), np.arange(n))
    if silent.all():
        raise CalibrationError(
            f"no reading follows any of the {len(silent)} channels that chip.yaml has; check that the heater drivers "
            "are those of this chip, their common ground, and that the meters' readings are live"
        )


def _confirm_detectors(tests: PhaseTests, search: ChannelSearch) -> None:
    """Give detectors that no gate told of the outputs whose light they read, as the twin predicts it.

    The readings are those of settings that were not fitted. chip.yaml's detectors come first, then exchanged ones.
    """
    if not search.sharp:  # wrong channels in the last column may pass for exchanged detectors
        tests.sees[:] = UNKNOWN
        return
    told = search.full.predict(search.held_out.power_w, search.held_out.lit)
    for output in np.flatnonzero(~tests.dead_detectors & (tests.sees == UNKNOWN)):
        if output not in tests.sees and _alike(search.held_out.readings_w[:, output], told[:, output]):
            tests.sees[output] = output
    free = np.flatnonzero(~tests.dead_detectors & (tests.sees == UNKNOWN))
    left = np.setdiff1d(np.arange(len(tests.sees)), tests.sees)
    if not len(free) or not len(left):
        return
    power, lit = search.random_settings(EXCHANGED_SETTINGS * len(tests.sees))
    readings, told = tests.measure("exchanged detectors", power, lit), search.full.predict(power, lit)
    for detector in free:
        fit = [output for output in left if _alike(readings[:, detector], told[:, output])]
        if len(fit) == 1 and fit[0] not in tests.sees:
            tests.sees[detector] = fit[0]


def _alike(read: Array, told: Array) -> bool:
    return bool(np.isfinite(read).all() and np.corrcoef(read, told)[0, 1] > ALIKE)


class _Gates:
    """Finds internal phases that chip.yaml's own channels move, column by column."""

    def __init__(self, tests: PhaseTests, usable: NDArray[np.bool_]) -> None:
        self.tests, self.wiring, self.usable = tests, tests.wiring, usable
        self.theta, self.mesh = tests.probe.layout.mesh_theta, tests.probe.layout.mesh

    def find(self) -> None:
        """Try every internal phase, and lead light to the outputs behind them."""
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
        if gate is None:
            self.tests.untold.add(mzi)
            return False
        self.tests.untold.discard(mzi)
        if not gate.good:
            return False
        self.wiring.channel[position] = channel
        self.tests.unused[channel] = False
        self.wiring.efficiency[channel] = gate.efficiency
        self.wiring.bar_w[mzi] = gate.bar_w
        return True

    def _learn_efficiency(self) -> None:
        """Expect of channels not yet measured what those measured have in common."""
        known = self.wiring.channel[self.theta]
        known = known[known != UNKNOWN]
        if len(known):
            nominal = self.tests.probe.nominal_efficiency
            rest = np.setdiff1d(np.arange(len(nominal)), known)
            common = float(np.median(self.wiring.efficiency[known] / nominal[known]))
            self.wiring.efficiency[rest] = common * nominal[rest]
