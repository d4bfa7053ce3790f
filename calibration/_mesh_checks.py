"""Checks of what is given to fits of bare meshes: once a call, so that the kernels behind need none of their own.

Everything that numpy takes for an array of real numbers is taken; what hides invalid values (masks, NaN where a value
is needed) or is not the chip's is refused by name, row and value.
"""

from collections.abc import Collection
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibration._arrays import floats, integers, number
from calibration._session import Array
from optinc_hw.errors import CalibrationError
from optinc_hw.photonics import ChipLayout

_Ports = NDArray[np.intp]
_SHOWN = 5
_POWERS, _LIT = "power_w (heater powers)", "lit (lit ports)"


def real_array(values: ArrayLike, what: str) -> Array:
    """Return real numbers as an array of float64.

    Parameters
    ----------
    values
        An array, or what numpy makes one of.
    what
        Its name for messages.

    Raises
    ------
    CalibrationError
        If it is masked somewhere, or `floats` takes it for none.
    """
    _require_unmasked(values, what)
    return floats(what, values)


def port_array(lit: ArrayLike) -> _Ports:
    """Return lit ports (B,) as integers.

    Raises
    ------
    CalibrationError
        If they are no integers, or not one a row.
    """
    _require_unmasked(lit, _LIT)
    ports = integers(_LIT, lit)
    if ports.ndim != 1:
        raise CalibrationError(f"{_LIT} have shape {ports.shape}; give one port a reading: a shape (readings,)")
    return ports


def _require_unmasked(values: ArrayLike, what: str) -> None:
    if np.ma.is_masked(values):
        raise CalibrationError(
            f"{what} hold masked values; leave those rows out, or write NaN where a detector reading is invalid "
            "(array.filled(numpy.nan))"
        )


def rows_of_readings(power_w: ArrayLike, lit: ArrayLike, readings_w: ArrayLike) -> tuple[Array, _Ports, Array]:
    """Return heater powers (B, H), lit ports (B,) and readings (B, n) as arrays with a row a reading.

    Raises
    ------
    CalibrationError
        If one of them is none, or their shapes do not go together.
    """
    power, ports = real_array(power_w, _POWERS), port_array(lit)
    readings = real_array(readings_w, "readings_w (readings)")
    count = len(ports)
    if power.ndim != 2 or readings.ndim != 2 or not len(power) == len(readings) == count:
        raise CalibrationError(
            f"heater powers, lit ports and readings have shapes {power.shape}, {ports.shape} and {readings.shape}; "
            "they need a row a reading: (readings, heaters), (readings,) and (readings, ports)"
        )
    return power, ports, readings


def checked_settings(power_w: ArrayLike, lit: ArrayLike, layout: ChipLayout) -> tuple[Array, _Ports]:
    """Return heater powers (B, H) in W and lit ports (B,) of a chip as arrays.

    Raises
    ------
    CalibrationError
        If the chip is no bare mesh, they are of another chip or disagree, a power is negative, NaN or Inf, or a port is
        out of range; the first wrong one is named.
    """
    if not layout.bare:
        raise CalibrationError(
            f"this is for bare meshes (inputs = 'ports', receivers = 'power'), and the chip has inputs = "
            f"{layout.inputs!r}, receivers = {layout.receivers!r}; use fit_twin and residual_over_noise"
        )
    power, ports = real_array(power_w, _POWERS), port_array(lit)
    wanted = (len(ports), len(layout.heaters))
    if power.shape != wanted:
        raise CalibrationError(
            f"heater powers of {len(ports)} lit ports have shapes {power.shape}; the chip of {layout.ports} ports "
            f"needs {wanted}: give the data of this chip, a row a setting"
        )
    require_powers(power, layout)
    bad = np.flatnonzero((ports < 0) | (ports >= layout.ports))
    if len(bad):
        raise CalibrationError(
            f"lit ports must be 0 to {layout.ports - 1}, got {_listed(ports[bad])} in {_rows(bad)}; ports count from 0"
        )
    return power, ports


class Rows(Protocol):
    """Data of a bare mesh, such as `MeshData`."""

    @property
    def power_w(self) -> Array: ...
    @property
    def lit(self) -> _Ports: ...
    @property
    def readings_w(self) -> Array: ...


def require_data(data: Rows, layout: ChipLayout) -> None:
    """Refuse data that are not of this chip, or hold settings that none can have.

    Raises
    ------
    CalibrationError
        As `checked_settings`, or if it is no `MeshData`, or readings have not a column an output.
    """
    if not all(hasattr(data, name) for name in ("power_w", "lit", "readings_w")):
        raise CalibrationError(f"readings of a bare mesh come as MeshData, got {type(data).__name__}")
    checked_settings(data.power_w, data.lit, layout)
    require_readings(data.readings_w, len(data.lit), layout.ports)


def require_powers(power_w: Array, layout: ChipLayout) -> None:
    """Refuse heater powers (B, H) that are negative, NaN or Inf, naming the first."""
    bad = np.argwhere(~(np.isfinite(power_w) & (power_w >= 0.0)))
    if len(bad):
        row, heater = bad[0].tolist()
        raise CalibrationError(
            f"the power of {layout.heaters[heater]} in row {row} is {float(power_w[row, heater])!r} W "
            f"({len(bad)} of {power_w.size} are negative, NaN or Inf); heaters take 0 W or more: leave out settings "
            "that were not made"
        )


def require_readings(readings_w: Array, rows: int, ports: int) -> None:
    """Refuse readings of another shape than a row a setting and a column an output."""
    if readings_w.shape != (rows, ports):
        raise CalibrationError(
            f"readings have shapes {readings_w.shape}; {rows} settings of a chip of {ports} ports need "
            f"{(rows, ports)}: give the data of this chip"
        )


def require_valid(readings_w: Array, least: int, purpose: str) -> None:
    """Refuse readings of which fewer than ``least`` are finite."""
    valid = int(np.isfinite(readings_w).sum())
    if valid < least:
        raise CalibrationError(
            f"{valid} valid readings cannot {purpose}; at least {least} are needed: take more settings"
        )


def require_one_of(names: Collection[str], known: Collection[str], what: str) -> frozenset[str]:
    """Return names as a set; refuse text, none at all, unknown and repeated ones."""
    if isinstance(names, str):
        raise CalibrationError(f"{what} = {names!r} is text; give a collection of names: ({names!r},)")
    try:
        given = list(names)
        unknown = [name for name in given if name not in known]
        repeated = sorted({name for name in given if given.count(name) > 1})
    except TypeError as error:
        raise CalibrationError(f"{what} = {names!r} is no collection of names ({error})") from error
    if not given or unknown or repeated:
        wrong = f"unknown: {unknown}" if unknown else f"named twice: {repeated}" if repeated else "it is empty"
        raise CalibrationError(f"{what} must name one or more of {', '.join(known)}, each once; {wrong}")
    return frozenset(given)


def require_limits(max_power_w: ArrayLike, max_total_power_w: float, heaters: int) -> Array:
    """Return the largest powers (H,) in W of heaters; refuse other shapes, negative ones and NaN."""
    largest = real_array(max_power_w, "max_power_w (largest heater powers)")
    if largest.shape != (heaters,) or not heaters:
        raise CalibrationError(f"max_power_w has shape {largest.shape}, and {heaters} heaters need ({heaters},)")
    _require_each("the largest power (max_power_w)", largest, largest >= 0.0, "W", "0 or more")
    if not number("max_total_power_w (the largest total power)", max_total_power_w) > 0.0:
        raise CalibrationError(f"max_total_power_w must be above 0 W, got {max_total_power_w!r}")
    return largest


def require_probe(max_power_w: Array, max_total_power_w: float, nominal_efficiency: Array, layout: ChipLayout) -> None:
    """Refuse limits and nominal efficiencies (H,) that no chip of this layout has."""
    heaters = len(layout.heaters)
    require_limits(max_power_w, max_total_power_w, heaters)
    nominal = real_array(nominal_efficiency, "nominal efficiencies")
    if nominal.shape != (heaters,):
        raise CalibrationError(
            f"nominal efficiencies have shape {nominal.shape}, and {heaters} heaters need ({heaters},)"
        )
    _require_each("the nominal efficiency", nominal, np.isfinite(nominal) & (nominal > 0.0), "rad/W", "finite, above 0")


def checked_answer(readings_w: ArrayLike, rows: int, ports: int, stage: str) -> Array:
    """Return what a probe answered to a sweep as an array (rows, ports), or refuse it."""
    readings = real_array(readings_w, f"readings of {stage!r}")
    if readings.shape != (rows, ports):
        raise CalibrationError(
            f"the probe answered {stage!r} with readings of shape {readings.shape}; {rows} settings of a chip of "
            f"{ports} ports need {(rows, ports)}"
        )
    return readings


def _require_each(what: str, values: Array, good: NDArray[np.bool_], unit: str, limit: str) -> None:
    bad = np.flatnonzero(~good)
    if len(bad):
        raise CalibrationError(
            f"{what} of heater {bad[0]} is {float(values[bad[0]])!r} {unit} ({len(bad)} of {len(values)} heaters are "
            f"wrong); it must be {limit}"
        )


def _listed(values: NDArray[Any]) -> str:  # Any: numbers of any type
    shown = ", ".join(str(value) for value in values[:_SHOWN].tolist())
    return shown if len(values) <= _SHOWN else f"{shown}, ..."


def _rows(rows: NDArray[np.intp]) -> str:
    return f"row{'s' if len(rows) > 1 else ''} {_listed(rows)}"
