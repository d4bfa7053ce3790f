"""What the start of a bare mesh's calibration knows so far, and how it sets phases and keeps readings."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from calibration._mesh_checks import checked_answer
from calibration._mesh_linear import MeshData
from calibration._probe import Ports, Probe
from calibration._session import Array, Progress
from calibration._start_fringes import Couplers
from calibration._start_power import room_for
from calibration._twin_fit import NoiseModel
from optinc_hw.errors import CalibrationError

TWO_PI = 2.0 * np.pi
DARK_SHARE = 0.02
"""A detector that never shows this share of its neighbours' light is dead."""
LEAST_POWER_SHARE = 0.6
"""Least power limit, as a part of what all heaters take together at a whole circle; half of it is the mean."""
OUTPUT_COLUMNS = 12
"""Up to so many columns all thetas are found from the outputs; of more, half."""
DEAD = "its heater does nothing: readings that differ by it alone are the same"
DEAD_PHI = f"phi's {DEAD.removeprefix('its ')}"
SWAPPED = "theta and phi answer to each other's heaters: their channels are swapped"
KEPT = (DEAD, DEAD_PHI, SWAPPED)
"""Reasons that no fit takes back."""
_ALWAYS_ABOVE_FLOOR = 8.0


def finite_mean(values: Array) -> Array:
    """Mean over the first axis of what is finite, 0 where nothing is."""
    finite = np.isfinite(values)
    return np.asarray(np.sum(np.where(finite, values, 0.0), axis=0) / np.maximum(finite.sum(axis=0), 1))


@dataclass
class Sweep:
    """One block of readings.

    Parameters
    ----------
    phase
        Phases (R, H) in rad that the heaters were meant to add, with the efficiencies known then.
    power_w
        Heater powers (R, H) in W.
    lit
        Lit port (R,) of each reading.
    readings_w
        Readings (R, n) in W, NaN where invalid or where the detector is dead.
    first
        Columns before this one were in the bar state, the way of their light is a row each.
    alike
        So many readings share their heat but for that of one column: what is not modelled of it errs alike.
    """

    phase: Array
    power_w: Array
    lit: Ports
    readings_w: Array
    first: int = 0
    alike: int = 1

    def take(self, rows: NDArray[np.intp]) -> "Sweep":
        """Return some of the readings."""
        return Sweep(
            self.phase[rows], self.power_w[rows], self.lit[rows], self.readings_w[rows], self.first, self.alike
        )


@dataclass
class StartState:
    """Working knowledge of the start; offsets hold for ``phase = offset + efficiency * power`` without crosstalk.

    Parameters
    ----------
    probe
        The chip.
    noise
        Noise of a reading.
    rng
        Source of the random settings.
    progress
        Told about every stage.
    """

    probe: Probe
    noise: NoiseModel
    rng: np.random.Generator
    progress: Progress
    theta: Array = field(init=False)
    theta_sigma: Array = field(init=False)
    theta_reason: list[str] = field(init=False)
    phi: Array = field(init=False)
    phi_sigma: Array = field(init=False)
    phi_reason: list[str] = field(init=False)
    misfit: list[str] = field(init=False)
    moves_theta: NDArray[np.bool_] = field(init=False)
    moves_phi: NDArray[np.bool_] = field(init=False)
    crossed: NDArray[np.bool_] = field(init=False)
    blind: NDArray[np.bool_] = field(init=False)
    couplers: Couplers = field(init=False)
    efficiency: Array = field(init=False)
    sweeps: list[Sweep] = field(init=False)
    scale_known: bool = field(init=False, default=False)
    asides: list[Sweep] = field(init=False, default_factory=list)
    responds: dict[int, bool] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        layout = self.probe.layout
        mesh, count = layout.mesh, len(layout.mesh.mzis)
        self.theta, self.phi = np.zeros(count), np.zeros(count)
        self.theta_sigma, self.phi_sigma = np.full(count, np.inf), np.full(count, np.inf)
        self.theta_reason, self.phi_reason, self.misfit = [""] * count, [""] * count, [""] * count
        self.moves_theta, self.moves_phi = layout.movable[layout.mesh_theta], layout.movable[layout.mesh_phi]
        self.crossed = np.zeros(count, dtype=np.bool_)
        self.blind = np.zeros(mesh.ports, dtype=np.bool_)
        self.couplers = Couplers()
        self.efficiency = np.array(self.probe.nominal_efficiency, dtype=np.float64)
        self.sweeps = []
        self.column = np.array([c for c, _ in mesh.mzis], dtype=np.intp)
        self.index = {mzi: k for k, mzi in enumerate(mesh.mzis)}
        heaters = len(layout.heaters)
        self.mzi_of, self.is_theta = np.zeros(heaters, dtype=np.intp), np.zeros(heaters, dtype=np.bool_)
        for which in (layout.mesh_theta, layout.mesh_phi):
            self.mzi_of[which] = np.arange(count)
        self.is_theta[layout.mesh_theta] = True
        for heater in np.flatnonzero(~layout.movable):
            self.responds[int(heater)] = False
            self.go_around(int(self.mzi_of[heater]))
        for k in range(count):
            if not (self.moves_theta[k] and self.moves_phi[k]):
                self.theta_reason[k] = DEAD_PHI if self.moves_theta[k] else DEAD
            self.phi_reason[k] = "" if self.moves_phi[k] else DEAD
        drawn = LEAST_POWER_SHARE * float(np.sum(np.minimum(TWO_PI / self.efficiency, self.probe.max_power_w)))
        if drawn > self.probe.max_total_power_w:
            raise CalibrationError(
                f"the chip's power limit of {self.probe.max_total_power_w:.4g} W (limits.total_power_w, less where the "
                f"bench overrates heaters) does not allow random phases over a circle on all {len(self.efficiency)} "
                f"heaters: {drawn:.4g} W are needed, {LEAST_POWER_SHARE:g} of "
                "what they take together at most; raise limits.total_power_w in chip.yaml if chip and cooling allow it"
            )

    @property
    def meeting(self) -> int:
        """Column to which thetas are found from the inputs; columns from it on are found from the outputs."""
        depth = self.probe.layout.mesh.depth
        return depth // 2 if depth > OUTPUT_COLUMNS else 0

    @property
    def damaged(self) -> bool:
        """Whether a heater or a detector is known to be dead, in a mesh that all readings together are a match for."""
        dead = self.blind.any() or not (self.moves_theta.all() and self.moves_phi.all())
        return bool(dead) and not self.meeting

    @property
    def ports(self) -> int:
        """Number of ports n."""
        return self.probe.layout.ports

    @property
    def good(self) -> NDArray[np.bool_]:
        """Whether each MZI can be put into a wanted state (K,)."""
        return np.isfinite(self.theta_sigma) & self.moves_theta

    def random_phase(self, rows: int, heaters: NDArray[np.intp]) -> Array:
        """Draw phases (rows, h) in rad, evenly spread over the circle for each heater."""
        size = (rows, len(heaters))
        order = np.argsort(self.rng.random(size), axis=0)
        reach = np.minimum(TWO_PI, (self.efficiency * self.probe.max_power_w)[heaters])
        return np.asarray((order + self.rng.random(size)) / rows * reach)

    def still(self, cells: NDArray[np.intp]) -> Array:
        """Phases (h,) in rad that put MZIs into the bar state, or the cross state on ways around a broken MZI.

        MZIs that are not understood get none.
        """
        wanted = np.where(self.crossed[cells], 0.0, np.pi) - self.theta[cells]
        return np.where(self.good[cells], wanted % TWO_PI, 0.0)

    def go_around(self, broken: int) -> None:
        """Cross the two MZIs before a broken one, so that what it mixes is never both outputs of one MZI."""
        column, mode = self.probe.layout.mesh.mzis[broken]
        for side in (-1, 1):
            before = self.index.get((column - 1, mode + side))
            if before is not None:
                self.crossed[before] = True

    def measure(self, stage: str, phase: Array, lit: Ports, kept: NDArray[np.intp] | NDArray[np.bool_]) -> Sweep:
        """Measure one sweep of phases (R, H) in rad within the limits of heaters and chip.

        Where the chip's total power does not suffice, all phases are lowered but those that are ``kept``: positions of
        heaters, or a mask (R, H).
        """
        reach = self.efficiency * self.probe.max_power_w
        # A phase out of reach becomes the nearer end of the range.
        phase = np.where(phase <= reach, phase, np.where(phase - reach < TWO_PI - phase, reach, 0.0))
        power = np.minimum(phase / self.efficiency, self.probe.max_power_w)
        stay = np.zeros(phase.shape, dtype=np.bool_)
        if kept.ndim == 2:
            stay[:] = kept
        else:
            stay[:, kept] = True
        factor = np.where(stay, 1.0, room_for(power, stay, self.probe.max_total_power_w, stage))
        phase, power = phase * factor, power * factor
        readings = checked_answer(self.probe.measure(stage, power, lit), len(lit), self.ports, stage)
        sweep = Sweep(phase, power, lit, np.where(self.blind | ~np.isfinite(readings), np.nan, readings))
        self.sweeps.append(sweep)
        return sweep

    def dark(self, sweeps: list[Sweep]) -> NDArray[np.bool_]:
        """Whether each detector (n,) shows no light."""
        readings = np.concatenate([sweep.readings_w for sweep in sweeps])
        seen = np.where(np.isfinite(readings), readings, -np.inf).max(axis=0)
        typical = float(np.median(finite_mean(readings)))
        floor = max(_ALWAYS_ABOVE_FLOOR * self.noise.floor_w, DARK_SHARE * typical)
        return np.asarray(seen < floor)

    def find_blind(self, sweeps: list[Sweep]) -> None:
        """Mark detectors that show no light in settings that send light everywhere."""
        self.blind = self.dark(sweeps)
        if np.sum(~self.blind) < 2:
            raise CalibrationError(
                f"only {int(np.sum(~self.blind))} of {self.ports} detectors show light; check the laser, the input "
                "switch and the meters' ranges"
            )
        for sweep in sweeps:
            sweep.readings_w = np.where(self.blind, np.nan, sweep.readings_w)

    def data(self) -> MeshData:
        """All readings so far."""
        return MeshData(
            np.concatenate([sweep.power_w for sweep in self.sweeps]),
            np.concatenate([sweep.lit for sweep in self.sweeps]),
            np.concatenate([sweep.readings_w for sweep in self.sweeps]),
        )
