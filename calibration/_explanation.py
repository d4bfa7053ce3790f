"""Why a record of a bare mesh no longer predicts its chip: the fewest parameters that explain fresh readings."""

from dataclasses import dataclass

import numpy as np

from calibration._mesh_descent import Effort, Readings, descend
from calibration._mesh_fit import residual_over_noise_of
from calibration._mesh_linear import MeshData
from calibration._mesh_space import MeshSpace, PriorWidths
from calibration._session import Array
from calibration._twin_fit import NoiseModel, _one_thread
from optinc_hw.photonics import TwinParameters
from optinc_hw.units import amplitude_to_db, m_to_nm

_PORTS = ("output", "input")
_WIDTHS = PriorWidths(common_efficiency=0.1, common_eta=0.2)
_ETA_STARTS = (0.0, 0.06, -0.06)
_EFFICIENCY_STARTS = (0.0, 0.02, -0.02)
_EFFORT = Effort(12, True, 0.03)
_KEPT_OUT = 0.3
_EXPLAINED = 0.2
"""An explanation leaves at most this part of the residual of readings that it has not seen, or a good residual."""


@dataclass(frozen=True)
class _Cause:
    """What may have changed: blocks of parameters, and starts of the common coupler angle and efficiency."""

    free: tuple[str, ...]
    eta: tuple[float, ...] = (0.0,)
    efficiency: tuple[float, ...] = (0.0,)


_LIGHT = _Cause(_PORTS)
_GROWTH = _Cause(("common_efficiency", *_PORTS), efficiency=_EFFICIENCY_STARTS)
_COUPLERS = _Cause(
    ("common_eta", "common_efficiency", *_PORTS), eta=_ETA_STARTS, efficiency=_EFFICIENCY_STARTS[:1]
)  # fmt: skip


def explain(twin: TwinParameters, data: MeshData, noise: NoiseModel, wavelength_m: float, good: float) -> str:
    """Name what makes fresh readings differ from a twin's predictions.

    Parameters
    ----------
    twin
        The twin of the record.
    data
        Fresh readings at random settings; the last of them judge the explanations.
    noise
        Noise of a reading.
    wavelength_m
        Wavelength that the laser was asked for, in m.
    good
        Residual over noise up to which predictions are good.

    Returns
    -------
    str
        What has changed and what to do, in words.
    """
    kept = max(1, round(_KEPT_OUT * len(data)))
    seen, judges = data.take(slice(0, len(data) - kept)), data.take(slice(len(data) - kept, None))
    limit = max(good, _EXPLAINED * residual_over_noise_of(twin, judges, noise))
    space = MeshSpace(twin, np.zeros(len(twin.offset)), _WIDTHS, reach=0.0)
    # Powers at zero heat are the reference: what all heaters or couplers share moves no phase there.
    for cause, words in ((_LIGHT, _light), (_GROWTH, _growth), (_COUPLERS, _couplers)):
        fitted = space.with_free(cause.free)
        vector = _fit(fitted, cause, seen, noise)
        if residual_over_noise_of(fitted.twin(vector), judges, noise) <= limit:
            return words(space, vector, wavelength_m)
    return (
        "neither the light at the ports, nor the growth of all phases with power, nor all couplers together explain "
        "it; phases may have drifted: run optinc recalibrate, which refuses what is no drift, or optinc calibrate"
    )


def _fit(space: MeshSpace, cause: _Cause, data: MeshData, noise: NoiseModel) -> Array:
    ends = []
    with _one_thread():
        for eta in cause.eta:
            for efficiency in cause.efficiency:
                begin = space.centre.copy()
                begin[space.slices["common_eta"]] = eta
                begin[space.slices["common_efficiency"]] = efficiency
                ends.append(descend(space, Readings(data, noise), begin, _EFFORT, lambda _: None))
    return min(ends, key=lambda end: end.chi).vector


def _light(space: MeshSpace, vector: Array, wavelength_m: float) -> str:
    del wavelength_m
    outputs, inputs = (vector[space.slices[name]] for name in _PORTS)
    # A factor common to all outputs is one of all inputs as well: only their product shows.
    common = float(np.median(outputs) + np.median(inputs))
    changes = {
        f"{name} {port}": value
        for name, values in (("output", outputs), ("input", inputs))
        for port, value in enumerate((values - np.median(values)).tolist())
    }
    most = max(changes, key=lambda port: abs(changes[port]))
    return (
        f"the light has changed and nothing else, by {_gain_db(common):+.2f} dB at all ports and most at {most}, by "
        f"{_gain_db(changes[most]):+.2f} dB more: check the laser's power, fibres and switches; where the light goes "
        "is predicted as before"
    )


def _gain_db(exponent: float) -> float:
    return -amplitude_to_db(float(np.exp(exponent)))


def _growth(space: MeshSpace, vector: Array, wavelength_m: float) -> str:
    change = float(np.expm1(vector[space.slices["common_efficiency"]][0]))
    shift_nm = -change * m_to_nm(wavelength_m)
    return (
        f"all phases grow by {change:+.2%} with power against the record: resistances or sources have changed (optinc "
        f"recalibrate corrects it), or the laser is {shift_nm:+.1f} nm off its {m_to_nm(wavelength_m):g} nm"
    )


def _couplers(space: MeshSpace, vector: Array, wavelength_m: float) -> str:
    eta = float(vector[space.slices["common_eta"]][0])
    change = float(np.expm1(vector[space.slices["common_efficiency"]][0]))
    return (
        f"all couplers have turned by {eta:+.4f} rad together, and phases grow by {change:+.2%} with power against the "
        f"record: neither heat nor age does that, a wrong wavelength does. Check that the laser emits the "
        f"{m_to_nm(wavelength_m):g} nm that it was asked for, then verify again; else calibrate anew (optinc calibrate)"
    )
