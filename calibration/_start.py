"""Start of the calibration of a bare mesh from output powers: unknown offsets to a twin for a fit."""

from dataclasses import dataclass, replace

import numpy as np

from calibration._mesh_checks import require_probe
from calibration._mesh_linear import MeshData
from calibration._probe import Probe
from calibration._session import Array, Progress
from calibration._start_filter import StartFilter
from calibration._start_joint import JointFit
from calibration._start_phi import Parts, find_phis, joined
from calibration._start_repair import repair
from calibration._start_state import DEAD, StartState, Sweep
from calibration._start_theta import find_thetas
from calibration._twin_fit import NoiseModel, _one_thread
from optinc_hw.errors import CalibrationError
from optinc_hw.photonics import TwinParameters

CHECKS = 8
"""Random settings that the start has to predict."""
CHECK_COLUMNS = 12
"""Columns in random states at once in those settings; errors add up along the light's way through them."""
MAX_CHECK_TVD = 0.35
"""Mean total variation distance of those predictions; a twin that knows nothing of the phases has about 0.5."""

MAX_SIGMA_RAD = 0.25
"""Phases less well known are not called good: one off by three deviations would lead the next fit astray."""
EXPECTED_TVD = (0.07, 0.012)
"""What starts without faults stay below: a constant and a part per column in a random state."""


@dataclass(frozen=True)
class HeaterVerdict:
    """What the start knows of one heater.

    Parameters
    ----------
    heater
        Its name.
    good
        Whether its phase is known, and follows the heater.
    sigma_rad
        Standard deviation of its phase in rad at mid-range powers of all heaters, errors that add up along the light
        included; 0 for phis of the first two columns, whose offsets are phases of inputs that no power shows and are
        set to 0.
    reason
        Why not good, or an empty string.
    dead
        Whether it does nothing: readings that differ by its power alone are the same. Powers commanded to it are in
        the start's data all the same; it is among the twin's ``stuck`` ones, its offset is the phase it is stuck at.
    """

    heater: str
    good: bool
    sigma_rad: float
    reason: str
    dead: bool


@dataclass(frozen=True)
class Start:
    """Result of the start.

    Parameters
    ----------
    parameters
        Twin with offsets, common scale of efficiencies, mean coupler angle and port efficiencies; no crosstalk.
    warmed
        The same with mean crosstalk.
    verdicts
        One for each heater, in the layout's order.
    dead_detectors
        Names of detectors that show no light; their readings are NaN in ``data``.
    data
        All readings taken, for the global fit.
    column_residuals
        Rms residual over the expected one at each column, inputs first.
    check_tvd
        Mean total variation distance between predicted and measured outputs at `CHECKS` random settings of up to
        `CHECK_COLUMNS` neighbouring columns (the last readings in ``data``, not used before).
    doubt
        Why phases that look good should not be relied on, or an empty string: random settings are predicted worse
        than starts without faults predict them (`EXPECTED_TVD`), or in a large mesh known light does not fit somewhere.
    """

    parameters: TwinParameters
    warmed: TwinParameters
    verdicts: tuple[HeaterVerdict, ...]
    dead_detectors: tuple[str, ...]
    data: MeshData
    column_residuals: Array
    check_tvd: float
    doubt: str


def find_start(probe: Probe, rng: np.random.Generator, noise: NoiseModel, progress: Progress) -> Start:
    """Find the phases of a bare mesh of which nothing is known but its layout.

    Thetas come column by column from the outputs (`find_thetas`), phis column by column from the inputs (`find_phis`);
    all MZIs of a column share their readings. All readings together then tell what columns err in alike (`JointFit`),
    and random settings of all heaters judge the whole.

    Parameters
    ----------
    probe
        The chip; ``nominal_efficiency`` right to 20 %.
    rng
        Source of the random settings.
    noise
        Noise of a reading.
    progress
        Called with (stage, done, total).

    Returns
    -------
    Start
        The twin and a verdict on each heater; heaters without effect and what they hide are named, not guessed.

    Raises
    ------
    CalibrationError
        If the chip is no bare mesh, the probe's limits or answers are none of its, fewer than two detectors show
        light, the power limits leave no room, or the twin does not predict random settings (`MAX_CHECK_TVD`).
    LimitError, InstrumentError
        From the probe.
    """
    layout = probe.layout
    if layout.inputs != "ports" or layout.receivers != "power":
        raise CalibrationError(
            f"a start from output powers needs a bare mesh (inputs 'ports', receivers 'power'), got inputs "
            f"{layout.inputs!r}, receivers {layout.receivers!r}; use calibrate() for chips with modulators"
        )
    require_probe(probe.max_power_w, probe.max_total_power_w, probe.nominal_efficiency, layout)
    state = StartState(probe, noise, rng, progress)
    with _one_thread():
        filtered, residuals, parts = find_phis(state, find_thetas(state))
        joint = JointFit(state, repair(state, filtered, parts))
        joint.fit(_independent(state, parts))
        verdicts = _verdicts(state, joint)
        tvd = _distance(joint, _measure_check(state))
        joint.settle()
    if not tvd <= MAX_CHECK_TVD:
        poor = [verdict.heater for verdict in verdicts if not verdict.good]
        raise CalibrationError(
            f"the start does not predict random settings: mean total variation distance {tvd:.2f} "
            f"({MAX_CHECK_TVD:g} allowed); heaters not understood: {', '.join(poor) or 'none'}. Run discovery to check "
            "wiring and pad map, or lower the noise"
        )
    dead = tuple(name for name, blind in zip(layout.detectors, state.blind, strict=True) if blind)
    expected = EXPECTED_TVD[0] + EXPECTED_TVD[1] * min(layout.ports, CHECK_COLUMNS)
    doubt = ""
    if tvd > expected:
        doubt = f"random settings are predicted to a total variation distance of {tvd:.2f}; {expected:.2f} is expected"
    elif state.meeting and (unclear := [layout.heaters[layout.mesh_phi[k]] for k in _unclear(state)]):
        doubt = f"light known up to there does not fit {', '.join(unclear)}; phis behind may be wrong with them"
    twin = _twin(state, joint)
    return Start(twin, _warmed(twin, joint.crosstalk), verdicts, dead, state.data(), residuals, tvd, doubt)


def _independent(state: StartState, parts: Parts) -> Parts:
    """Leave out readings that differ by one heater alone: their heat is that of one of them."""
    asides = {id(sweep) for sweep in state.asides}
    kept = [(sweep, column) for sweep, column in parts if id(sweep) not in asides]
    if state.asides:
        first = joined([sweep.take(np.zeros(1, dtype=np.intp)) for sweep in state.asides])
        kept.append((first, state.probe.layout.mesh.depth - 1))
    return kept


def _unclear(state: StartState) -> list[int]:
    """MZIs whose phis have working heaters, but no value that explains known light."""
    return [
        k for k in range(len(state.column))
        if state.moves_theta[k] and state.moves_phi[k] and (state.phi_reason[k] or state.misfit[k])
    ]  # fmt: skip


def _measure_check(state: StartState) -> Sweep:
    """Measure random settings of up to `CHECK_COLUMNS` neighbouring columns, from the inputs to the outputs."""
    layout = state.probe.layout
    phase = state.random_phase(CHECKS, np.arange(len(layout.heaters)))
    first = np.linspace(0.0, max(layout.mesh.depth - CHECK_COLUMNS, 0), CHECKS).astype(np.intp)
    kept = np.zeros(phase.shape, dtype=np.bool_)
    for row, start in enumerate(first):
        still = np.flatnonzero((state.column < start) | (state.column >= start + CHECK_COLUMNS))
        phase[row, layout.mesh_theta[still]] = state.still(still)
        kept[row, layout.mesh_theta[still]] = True
    lit = (np.arange(CHECKS) * layout.ports // CHECKS + layout.ports // 3) % layout.ports
    return state.measure("start_check", phase, lit.astype(np.intp), kept)


def _verdicts(state: StartState, filtered: StartFilter) -> tuple[HeaterVerdict, ...]:
    layout, verdicts = state.probe.layout, {}
    theta_sigma, phi_sigma = filtered.deviations()
    phi_sigma = np.where(state.column < 2, 0.0, phi_sigma)
    for heaters, sigma, reasons, moves in (
        (layout.mesh_theta, theta_sigma, state.theta_reason, state.moves_theta),
        (layout.mesh_phi, phi_sigma, state.phi_reason, state.moves_phi),
    ):
        for k, heater in enumerate(heaters):
            # Known light that does not fit speaks against both phases.
            reason = ("" if moves[k] else DEAD) or reasons[k] or state.misfit[k] or _uncertain(float(sigma[k]))
            name, dead = layout.heaters[heater], not bool(moves[k])
            verdicts[int(heater)] = HeaterVerdict(name, not reason, float(sigma[k]), reason, dead)
    return tuple(verdicts[h] for h in range(len(layout.heaters)))


def _uncertain(sigma_rad: float) -> str:
    if sigma_rad <= MAX_SIGMA_RAD:
        return ""
    return f"offset uncertain by {sigma_rad:.2g} rad ({MAX_SIGMA_RAD:g} allowed): errors add up along the light"


def _distance(filtered: StartFilter, sweep: Sweep) -> float:
    predicted, seen = filtered.predict(sweep), np.isfinite(sweep.readings_w)
    left = np.where(seen, np.abs(predicted - sweep.readings_w), 0.0).sum(axis=1)
    total = np.where(seen, predicted + sweep.readings_w, 0.0).sum(axis=1)
    return float(np.mean(left / total))


def _twin(state: StartState, filtered: StartFilter) -> TwinParameters:
    layout, ports = state.probe.layout, state.ports
    offset = np.zeros(len(layout.heaters))
    offset[layout.mesh_theta], offset[layout.mesh_phi] = state.theta, state.phi
    dead = [*layout.mesh_theta[~state.moves_theta], *layout.mesh_phi[~state.moves_phi]]
    nominal = TwinParameters.nominal(
        ports, input_amplitude=1.0, lo_amplitude=0.0, mesh=layout.mesh, inputs="ports", receivers="power",
        stuck_rad=dict.fromkeys((*layout.stuck, *(layout.heaters[h] for h in dead)), 0.0),
    )  # fmt: skip
    return replace(
        nominal,
        offset=np.mod(offset, 2.0 * np.pi),
        efficiency=state.efficiency,
        mesh_eta=nominal.mesh_eta + 0.5 * state.couplers.excess,
        gain=np.exp(filtered.light[:ports]),
        input_amplitude=np.sqrt(filtered.norm_w) * np.exp(0.5 * filtered.light[ports:]),
    )


def _warmed(twin: TwinParameters, crosstalk: Array) -> TwinParameters:
    """Add mean crosstalk (H, H) to a twin whose phases hold without it at mid-range powers of all heaters."""
    # What reaches a heater's own phase through bare arms is part of its efficiency.
    own = 1.0 + np.diagonal(crosstalk)
    return replace(
        twin,
        offset=twin.offset - crosstalk @ (np.pi * twin.layout.movable),
        efficiency=twin.efficiency * own,
        crosstalk=(crosstalk + np.eye(len(own))) / own,
    )
