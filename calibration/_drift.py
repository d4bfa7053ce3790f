"""Drift of a calibrated bare mesh: a small correction of the old record from few readings.

Crosstalk, couplers and losses stay as they were; phases, their growth with power and port transmissions are fitted with
the record as prior.  Readings kept out of the fit judge it: too few readings fit themselves well and nothing else.
Where the light goes (total variation distance) is not all that counts: shares do not see a common scale, so the powers
must also be predicted to a few times their noise, and no drift changes the light at all ports by a factor of several.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from calibration._drift_fit import ROUGH_BELOW, DriftEnd, arm_effects, fit_drift, refit_drift
from calibration._mesh_checks import require_data
from calibration._mesh_fit import MeshFit
from calibration._mesh_linear import MeshData
from calibration._mesh_space import MeshSpace
from calibration._posterior import HeldOut, held_out
from calibration._session import Array
from calibration._twin_fit import NoiseModel, _one_thread
from optinc_hw.errors import CalibrationError
from optinc_hw.photonics import TwinParameters

READINGS_PER_PORT = 6
"""Readings with which a drift that this fit is made for is corrected, dark ones included."""
_ENOUGH_PER_PORT = 4.5
"""With as many settings a failure is not put down to their number."""
_KEPT_OUT = 0.12
_LEAST_KEPT_OUT = 4
LEAST_READINGS = 3 * _LEAST_KEPT_OUT
MAX_TVD = 0.003
"""Largest held-out total variation distance of a correction that is accepted; it costs 1 - F some 5e-5."""
MAX_CHI = ROUGH_BELOW
"""Largest residual over noise of a correction, or of a record that holds: below it a fit has found the phases."""
MAX_LIGHT_CHANGE = 2.5
"""Largest factor by which the light at all ports together may rise or fall; lasers and fibres that drift change it by
some per cent, and more than this is a wrong unit, range, attenuator or laser setting."""
_OUTLYING = 4.0
"""A heater whose phase or efficiency moved by this many robust standard deviations more drifted by itself."""
_LEAST_PHASE, _LEAST_GROWTH = 0.02, 0.003
"""Least standard deviations of phases (rad, per arm) and of logarithms of efficiencies."""
_NORMAL_MAD = 1.4826
_IN_WORDS = {
    "accepted": "accepted",
    "record holds": "the old record still holds",
    "too few readings": "REFUSED, too few readings",
    "not drift": "REFUSED, more than drifts has changed: a full calibration is needed",
}
Verdict = Literal["accepted", "record holds", "too few readings", "not drift"]


@dataclass(frozen=True)
class DriftFit:
    """Correction of a record after drift.

    Parameters
    ----------
    parameters
        The corrected twin.
    common_efficiency
        Relative change of all efficiencies (median).
    offset_change
        Changes (H,) of the phases in rad at the data's mean power, turned to within pi; less what efficiencies do.
    common_temperature
        Rms of ``offset_change`` over the heaters that belong together, in rad.
    single_heaters
        Names of heaters whose phase or efficiency drifted by itself, far more than those of the others.
    fit
        The fit that made the corrected twin; its ``chi`` is the rms residual over noise on the readings used.
    used
        Those readings: all of them once the correction is accepted.
    before, after
        How well the old twin, and one corrected without them, predict the readings kept out.
    light_change
        Factor by which the light at all ports together has changed (medians over ports).
    verdict
        "accepted" if the corrected twin predicts the readings kept out to a total variation distance of `MAX_TVD` and a
        residual over noise of `MAX_CHI`, its residual over noise on those of the fit is at most `MAX_CHI` too, and
        ``light_change`` is within a factor of `MAX_LIGHT_CHANGE`; "record holds" if the old twin predicts the readings
        kept out within the same limits and to no larger distance, the corrected one is the old one then; otherwise
        "too few readings", or "not drift" if there were enough of them or the light has changed too much.
    reasons
        Which limits the corrected twin exceeds, if it is refused.
    """

    parameters: TwinParameters
    common_efficiency: float
    offset_change: Array
    common_temperature: float
    single_heaters: tuple[str, ...]
    fit: MeshFit
    used: MeshData
    before: HeldOut
    after: HeldOut
    light_change: float
    verdict: Verdict
    reasons: tuple[str, ...]

    @property
    def accepted(self) -> bool:
        """Whether the readings kept out bear the corrected twin out."""
        return self.verdict in ("accepted", "record holds")

    def __str__(self) -> str:
        """Summarise for people."""
        alone = f"; by themselves: {', '.join(self.single_heaters)}" if self.single_heaters else ""
        why = f" ({'; '.join(self.reasons)})" if self.reasons else ""
        return (
            f"drift: efficiencies {self.common_efficiency:+.2%}, phases {self.common_temperature:.2f} rad rms{alone}, "
            f"light at all ports times {self.light_change:.3g}; "
            f"held-out TVD {self.before.tvd:.1%} before, {self.after.tvd:.2%} after ({MAX_TVD:.1%} allowed), residual "
            f"over noise {self.before.chi:.3g} before, {self.after.chi:.3g} after ({MAX_CHI:g} allowed): "
            f"{_IN_WORDS[self.verdict]}{why}"
        )


def correct_drift(
    data: MeshData, record: TwinParameters, noise: NoiseModel, on_step: Callable[[int, float], None]
) -> DriftFit:
    """Fit the drift since a record was made.

    Parameters
    ----------
    data
        Readings at random settings over the full range; the last ones are kept out of the fit and judge it.
    record
        The old twin.
    noise
        Noise of a reading.
    on_step
        Told the number of the step and the present residual over noise.

    Returns
    -------
    DriftFit
        The corrected twin; use it only if ``accepted``.

    Raises
    ------
    CalibrationError
        If the chip is no bare mesh, the readings are none of its, too few to keep any out, or without light.
    """
    require_data(data, record.layout)
    if len(data) < LEAST_READINGS:
        raise CalibrationError(
            f"{len(data)} readings are too few to correct a record; measure {LEAST_READINGS} or more"
        )
    kept = max(_LEAST_KEPT_OUT, round(_KEPT_OUT * len(data)))
    used, judges = data.take(slice(0, len(data) - kept)), data.take(slice(len(data) - kept, None))
    used = used.take(np.flatnonzero(np.isfinite(used.readings_w).any(axis=1)))
    if len(used) < LEAST_READINGS - _LEAST_KEPT_OUT:
        raise CalibrationError(
            f"{len(used)} of the {len(data) - kept} readings of the fit are valid at any output, and "
            f"{LEAST_READINGS - _LEAST_KEPT_OUT} are needed; check the detectors' ranges and measure more"
        )
    before = held_out(record, judges, noise)
    with _one_thread():
        end = fit_drift(record, used, noise, on_step)
        after = held_out(end.twin, judges, noise)
        judgement = _judge(end, before, after, len(data) / record.ports)
        if judgement.verdict == "accepted":
            used, end = data, refit_drift(end, data, noise, on_step)
    return _described(record, end, used, (before, after), judgement)


@dataclass(frozen=True)
class _Judgement:
    """Verdict on a correction, and which limits it exceeds."""

    verdict: Verdict
    reasons: tuple[str, ...] = ()


def _judge(end: DriftEnd, before: HeldOut, after: HeldOut, per_port: float) -> _Judgement:
    """Judge a correction by its fit and by what the twins before and after it predict of readings kept out."""
    light = _light_change(end.space, end.vector)
    within = 1.0 / MAX_LIGHT_CHANGE <= light <= MAX_LIGHT_CHANGE
    reasons = [*_excess(after), *_over("residual over noise of the fit", end.chi, MAX_CHI)]
    if not within:
        reasons.append(
            f"the light at all ports is {light:.3g} times the record's, {1.0 / MAX_LIGHT_CHANGE:g} to "
            f"{MAX_LIGHT_CHANGE:g} allowed: check the laser's power and the meters' range and unit"
        )
    if not reasons and (after.tvd < before.tvd or _excess(before)):
        return _Judgement("accepted")
    if not _excess(before):
        return _Judgement("record holds")
    few = within and per_port < _ENOUGH_PER_PORT
    return _Judgement("too few readings" if few else "not drift", tuple(reasons))


def _excess(judged: HeldOut) -> list[str]:
    """Say which limits a twin's predictions of readings kept out exceed."""
    return [
        *_over("total variation distance of the readings kept out", judged.tvd, MAX_TVD),
        *_over("residual over noise of the readings kept out", judged.chi, MAX_CHI),
    ]


def _over(what: str, value: float, limit: float) -> list[str]:
    # A NaN is over any limit.
    return [] if value <= limit else [f"{what} is {value:.3g}, {limit:g} allowed"]


def _light_change(space: MeshSpace, vector: Array) -> float:
    """Return the factor of the light at all ports; only the product of all outputs' and all inputs' shows."""
    common = np.median(vector[space.slices["output"]]) + np.median(vector[space.slices["input"]])
    return float(np.exp(2.0 * common))


def _described(
    record: TwinParameters,
    end: DriftEnd,
    used: MeshData,
    judged: tuple[HeldOut, HeldOut],
    judgement: _Judgement,
) -> DriftFit:
    """Say what has drifted."""
    space, verdict = end.space, judgement.verdict
    vector = space.centre if verdict == "record holds" else end.vector
    growth = vector[space.slices["efficiency"]] + vector[space.slices["common_efficiency"]]
    common = float(np.median(growth))
    change = vector[space.slices["offset"]] - space.centre[space.slices["offset"]]
    heat = record.efficiency * record.layout.movable * space.reference_power_w
    change = _within_pi(change - record.crosstalk @ (np.expm1(growth) * heat))
    alone = _outlying(change / np.linalg.norm(arm_effects(record.layout), axis=1), _LEAST_PHASE)
    alone |= _outlying(growth, _LEAST_GROWTH)
    if verdict in ("too few readings", "not drift"):
        alone[:] = False  # what a wrong fit says of single heaters is nothing
    twin = record if verdict == "record holds" else end.twin
    return DriftFit(
        parameters=twin,
        common_efficiency=float(np.expm1(common)),
        offset_change=change,
        common_temperature=float(np.sqrt(np.mean(change[~alone] ** 2))),
        single_heaters=tuple(name for name, is_alone in zip(record.layout.heaters, alone, strict=True) if is_alone),
        fit=MeshFit(twin, end.chi, end.steps, np.empty(0, dtype=np.intp), space, vector),
        used=used,
        before=judged[0],
        after=judged[1],
        light_change=_light_change(space, vector),
        verdict=verdict,
        reasons=judgement.reasons,
    )


def _within_pi(angle: Array) -> Array:
    return np.asarray(np.mod(angle + np.pi, 2.0 * np.pi) - np.pi)


def _outlying(change: Array, least: float) -> NDArray[np.bool_]:
    """Whether each change (H,) is far from what the others do, by their median absolute deviation."""
    middle = np.median(change)
    spread = _NORMAL_MAD * np.median(np.abs(change - middle))
    return np.asarray(np.abs(change - middle) > _OUTLYING * max(float(spread), least))
