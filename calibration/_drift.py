"""Drift of a calibrated bare mesh: a small correction of the old record from few readings.

Crosstalk, couplers and losses stay as they were; phases, their growth with power and port transmissions are fitted with
the record as prior.  Readings kept out of the fit judge it: too few readings fit themselves well and nothing else.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from calibration._drift_fit import DriftEnd, arm_effects, fit_drift, refit_drift
from calibration._mesh_fit import MeshFit
from calibration._mesh_linear import MeshData
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
    verdict
        "accepted"; "record holds" if the old twin predicts as well as the corrected one, which is the old one then;
        "too few readings", or "not drift" if there were enough of them.
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
    verdict: Literal["accepted", "record holds", "too few readings", "not drift"]

    @property
    def accepted(self) -> bool:
        """Whether the readings kept out bear the corrected twin out."""
        return self.verdict in ("accepted", "record holds")

    def __str__(self) -> str:
        """Summarise for people."""
        alone = f"; by themselves: {', '.join(self.single_heaters)}" if self.single_heaters else ""
        return (
            f"drift: efficiencies {self.common_efficiency:+.2%}, phases {self.common_temperature:.2f} rad rms{alone}; "
            f"held-out TVD {self.before.tvd:.1%} before, {self.after.tvd:.2%} after ({MAX_TVD:.1%} allowed): "
            f"{_IN_WORDS[self.verdict]}"
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
        If the chip is no bare mesh or there are too few readings to keep any out.
    """
    if not record.layout.bare:
        raise CalibrationError("this correction is for bare meshes (inputs = 'ports', receivers = 'power')")
    if len(data) < LEAST_READINGS:
        raise CalibrationError(
            f"{len(data)} readings are too few to correct a record; measure {LEAST_READINGS} or more"
        )
    kept = max(_LEAST_KEPT_OUT, round(_KEPT_OUT * len(data)))
    used, judges = data.take(slice(0, len(data) - kept)), data.take(slice(len(data) - kept, None))
    with _one_thread():
        end = fit_drift(record, used, noise, on_step)
        before, after = held_out(record, judges, noise), held_out(end.twin, judges, noise)
        verdict = _verdict(before.tvd, after.tvd, len(data) / record.ports)
        if verdict == "accepted":
            used, end = data, refit_drift(end, data, noise, on_step)
    return _described(record, end, used, (before, after), verdict)


def _verdict(
    before: float, after: float, per_port: float
) -> Literal["accepted", "record holds", "too few readings", "not drift"]:
    """Judge by the distances of held-out readings before and after the correction."""
    if min(before, after) > MAX_TVD:
        return "not drift" if per_port >= _ENOUGH_PER_PORT else "too few readings"
    return "accepted" if after < before else "record holds"


def _described(
    record: TwinParameters,
    end: DriftEnd,
    used: MeshData,
    judged: tuple[HeldOut, HeldOut],
    verdict: Literal["accepted", "record holds", "too few readings", "not drift"],
) -> DriftFit:
    """Say what has drifted."""
    space = end.space
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
        verdict=verdict,
    )


def _within_pi(angle: Array) -> Array:
    return np.asarray(np.mod(angle + np.pi, 2.0 * np.pi) - np.pi)


def _outlying(change: Array, least: float) -> NDArray[np.bool_]:
    """Whether each change (H,) is far from what the others do, by their median absolute deviation."""
    middle = np.median(change)
    spread = _NORMAL_MAD * np.median(np.abs(change - middle))
    return np.asarray(np.abs(change - middle) > _OUTLYING * max(float(spread), least))
