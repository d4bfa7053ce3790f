"""Drift of a calibrated bare mesh: a small correction of the old record from few readings.

Crosstalk, couplers and losses stay as they were; phases, their common growth with power and port transmissions are
fitted with the record as prior.  Readings kept out of the fit judge it: too few readings fit themselves well and
nothing else.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calibration._mesh_descent import Descent, Effort, Readings, descend
from calibration._mesh_fit import MeshFit
from calibration._mesh_linear import MeshData
from calibration._mesh_space import MeshSpace, PriorWidths
from calibration._posterior import HeldOut, held_out
from calibration._session import Array
from calibration._twin_fit import NoiseModel, _one_thread
from optinc_hw.errors import CalibrationError
from optinc_hw.photonics import TwinParameters

_FREE = ("offset", "efficiency", "common_efficiency", "output", "input")
_WIDTHS = PriorWidths(offset=0.5, efficiency=3e-3, common_efficiency=0.05, output=0.02, input=0.02)
_EFFICIENCY_STARTS = (0.0, -0.02, 0.02, -0.04, 0.04)
_EFFORT = Effort(25, True, 0.02)
_KEPT_OUT = 0.2
_LEAST_KEPT_OUT = 4
MAX_TVD = 0.005
"""Largest held-out total variation distance of a correction that is accepted."""
_OUTLYING = 4.0
"""A heater whose phase moved by this many robust standard deviations more than the others' drifted by itself."""
_NORMAL_MAD = 1.4826


@dataclass(frozen=True)
class DriftFit:
    """Correction of a record after drift.

    Parameters
    ----------
    parameters
        The corrected twin.
    common_efficiency
        Relative change of all efficiencies.
    offset_change
        Changes (H,) of the phases in rad at the data's mean power, turned to within pi; less what the common change of
        efficiency does.
    common_temperature
        Rms of ``offset_change`` over the heaters that belong together, in rad.
    single_heaters
        Names of heaters that drifted by themselves, far more than the others.
    fit
        The fit that made the corrected twin; its ``chi`` is the rms residual over noise on the readings used.
    used
        Those readings.
    before, after
        How well the old and the corrected twin predict the readings kept out.
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

    @property
    def accepted(self) -> bool:
        """Whether the readings kept out bear the correction out."""
        return self.after.tvd <= MAX_TVD and self.after.tvd < self.before.tvd

    def __str__(self) -> str:
        """Summarise for people."""
        verdict = "accepted" if self.accepted else "REFUSED: too few readings, or more than phases has drifted"
        alone = f"; by themselves: {', '.join(self.single_heaters)}" if self.single_heaters else ""
        return (
            f"drift: efficiencies {self.common_efficiency:+.2%}, phases {self.common_temperature:.2f} rad rms{alone}; "
            f"held-out TVD {self.before.tvd:.1%} before, {self.after.tvd:.2%} after: {verdict}"
        )


def correct_drift(
    data: MeshData, record: TwinParameters, noise: NoiseModel, on_step: Callable[[int, float], None]
) -> DriftFit:
    """Fit the drift since a record was made.

    Parameters
    ----------
    data
        Readings at random settings over the full range; the last fifth is kept out of the fit and judges it.
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
    kept = max(_LEAST_KEPT_OUT, round(_KEPT_OUT * len(data)))
    if len(data) < 3 * kept:
        raise CalibrationError(
            f"{len(data)} readings are too few to correct a record; measure {3 * _LEAST_KEPT_OUT} or more"
        )
    used, judges = data.take(slice(0, len(data) - kept)), data.take(slice(len(data) - kept, None))
    space = MeshSpace(record, used.power_w.mean(axis=0), _WIDTHS, _FREE, reach=0.0)
    with _one_thread():
        end = _best(space, Readings(used, noise), on_step)
    twin = space.twin(end.vector)
    change = end.vector[space.slices["offset"]] - space.centre[space.slices["offset"]]
    common = float(end.vector[space.slices["common_efficiency"]][0])
    heat = record.efficiency * record.layout.movable * space.reference_power_w
    change = _within_pi(change - np.expm1(common) * (record.crosstalk @ heat))
    alone = _outlying(change)
    return DriftFit(
        parameters=twin,
        common_efficiency=float(np.expm1(common)),
        offset_change=change,
        common_temperature=float(np.sqrt(np.mean(change[~alone] ** 2))),
        single_heaters=tuple(name for name, is_alone in zip(record.layout.heaters, alone, strict=True) if is_alone),
        fit=MeshFit(twin, end.chi, end.steps, np.empty(0, dtype=np.intp), space, end.vector),
        used=used,
        before=held_out(record, judges, noise),
        after=held_out(twin, judges, noise),
    )


def _best(space: MeshSpace, readings: Readings, on_step: Callable[[int, float], None]) -> Descent:
    """Descend from several common changes of the efficiencies."""
    steps = 0

    def report(chi: float) -> None:
        nonlocal steps
        on_step(steps, chi)
        steps += 1

    ends = []
    for common in _EFFICIENCY_STARTS:
        begin = space.centre.copy()
        begin[space.slices["common_efficiency"]] = common
        begin[space.slices["offset"]] += common * (
            space.start.crosstalk @ (space.start.efficiency * space.start.layout.movable * space.reference_power_w)
        )
        ends.append(descend(space, readings, begin, _EFFORT, report))
    return min(ends, key=lambda end: end.chi)


def _within_pi(angle: Array) -> Array:
    return np.asarray(np.mod(angle + np.pi, 2.0 * np.pi) - np.pi)


def _outlying(change: Array) -> NDArray[np.bool_]:
    """Whether each change (H,) is far from what the others do, by their median absolute deviation."""
    middle = np.median(change)
    spread = _NORMAL_MAD * np.median(np.abs(change - middle))
    return np.asarray(np.abs(change - middle) > _OUTLYING * max(float(spread), 0.02))
