"""The interlock: refuses a whole set of heater voltages before any of them moves."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optinc_hw.errors import ConfigurationError, LimitError
from optinc_hw.photonics.heaters import power_from_voltage, voltage_from_power

if TYPE_CHECKING:
    from optinc_hw.bench.record import CalibrationRecord

Vector = NDArray[np.float64]

log = logging.getLogger(__name__)

_ROUNDING = 1e-9
"""Relative excess that is rounding of the caller's arithmetic, not a request beyond the limit."""

_MEASURED = 1.1
"""Measured values may exceed a limit by this factor: the tolerance of read-back and of resistances."""


def real_vector(voltages: ArrayLike) -> Vector:
    """Copy voltages into a float64 array; what is masked becomes NaN, which no limit accepts.

    Raises
    ------
    LimitError
        If they are no real numbers.
    """
    given = np.asarray(voltages, dtype=None if isinstance(voltages, np.ndarray) else np.float64)
    if given.dtype.kind not in "fiu":
        raise LimitError(
            f"voltages of type {given.dtype} are no real numbers; nothing was moved; give one in V for each heater"
        )
    copy = np.array(given, dtype=np.float64)
    if isinstance(voltages, np.ma.MaskedArray):
        copy[np.ma.getmaskarray(voltages)] = np.nan
    return copy


@dataclass(frozen=True)
class Interlock:
    """Limits of all heaters and of the chip, and the resistance model that turns voltages into currents.

    The arrays are copied and read-only: limits in force cannot be changed by writing into them.

    Parameters
    ----------
    names
        Names of the H heaters, in the order of every array.
    max_voltage, max_current, max_power
        Limits, float64 (H,), in V, A and W; 0 for heaters of stuck phases.
    max_total_power
        Limit of the summed power of all heaters in W.
    resistance_ohm, resistance_beta_per_w
        Resistance model ``R(P) = R0 (1 + beta P)``, float64 (H,): nominal, or from the calibration record.
    """

    names: Sequence[str]
    max_voltage: Vector
    max_current: Vector
    max_power: Vector
    max_total_power: float
    resistance_ohm: Vector
    resistance_beta_per_w: Vector

    def __post_init__(self) -> None:
        for name in ("max_voltage", "max_current", "max_power", "resistance_ohm", "resistance_beta_per_w"):
            array = np.array(getattr(self, name), dtype=np.float64)
            array.setflags(write=False)
            object.__setattr__(self, name, array)
            if array.shape != (len(self.names),):
                raise ConfigurationError(
                    f"interlock: {name} has shape {array.shape}, but the chip has {len(self.names)} heaters; "
                    f"give one value for each heater"
                )

    def with_resistance(self, resistance_ohm: Vector, resistance_beta_per_w: Vector) -> "Interlock":
        """Return the same limits with another resistance model (R0 in ohm, beta in 1/W, both (H,))."""
        return replace(self, resistance_ohm=resistance_ohm, resistance_beta_per_w=resistance_beta_per_w)

    def with_record(self, record: "CalibrationRecord | None") -> "Interlock":
        """Return the same limits with the resistances of a calibration record, the same interlock if there is none."""
        return self if record is None else self.with_resistance(record.resistance_ohm, record.resistance_beta_per_w)

    def position(self, heater: object) -> int:
        """Return the position of a heater that is given as an integer; raises LimitError if there is none.

        Counting from the end, as Python's lists allow, would turn a mistake of one into the move of another heater.
        """
        count = len(self.names)
        if not isinstance(heater, int | np.integer) or isinstance(heater, bool) or not 0 <= heater < count:
            raise LimitError(f"there is no heater {heater!r}; nothing was moved; give a position from 0 to {count - 1}")
        return int(heater)

    def power(self, voltages: Vector) -> Vector:
        """Return the expected power (H,) in W at ``voltages`` (H,) in V; inf where no power balances the voltage."""
        with np.errstate(invalid="ignore"):  # a resistance that falls with power has no solution above some voltage
            power = power_from_voltage(voltages, self.resistance_ohm, self.resistance_beta_per_w)
        return np.where(np.isnan(power), np.inf, power)

    def voltage(self, powers: Vector) -> Vector:
        """Return the voltages (..., H) in V that give ``powers`` (..., H) in W."""
        return voltage_from_power(powers, self.resistance_ohm, self.resistance_beta_per_w)

    def check(self, voltages: Vector) -> None:
        """Accept ``voltages`` (H,) in V or refuse all of them.

        Raises
        ------
        LimitError
            If a value is not finite, negative, or above a limit of its heater in V, A or W, or if the summed
            power is above the chip's limit.  The message names heater, value, limit, unit and remedy.
        """
        if voltages.shape != (len(self.names),):
            raise LimitError(
                f"got voltages of shape {voltages.shape} for {len(self.names)} heaters; nothing was moved; "
                f"give one voltage in V for each heater of the layout"
            )
        bad = ~(voltages >= 0.0) | ~np.isfinite(voltages)
        if bad.any():
            k = int(np.argmax(bad))
            raise LimitError(
                f"heater {self.names[k]}: voltage {voltages[k]:g} V is not in the range from 0 V to "
                f"{self.max_voltage[k]:g} V; nothing was moved; give finite voltages of at least 0 V"
            )
        stuck = (self.max_voltage == 0.0) & (voltages > 0.0)
        if stuck.any():
            k = int(np.argmax(stuck))
            raise LimitError(
                f"heater {self.names[k]}: its phase is stuck (mesh.stuck in chip.yaml), so it is never driven, but "
                f"{voltages[k]:g} V were asked for; nothing was moved; leave it at 0 V"
            )
        self._check_each("voltage", voltages, self.max_voltage, "V", "max_voltage_v")
        power = self.power(voltages)
        current = np.divide(power, voltages, out=np.zeros_like(power), where=voltages > 0.0)
        self._check_each("current", current, self.max_current, "A", "max_current_a", voltages)
        self._check_each("power", power, self.max_power, "W", "max_power_w", voltages)
        total = float(power.sum())
        if total > self.max_total_power * (1.0 + _ROUNDING):
            k = int(np.argmax(power))
            raise LimitError(
                f"all heaters together: power {total:.4g} W exceeds limits.total_power_w = "
                f"{self.max_total_power:.4g} W (largest: heater {self.names[k]}, {power[k]:.4g} W); nothing was moved; "
                f"lower the voltages, or raise the limit in chip.yaml if chip and cooling allow it"
            )

    def judge(self, voltages: Vector, currents: Vector) -> None:
        """Log what is measured beyond the limits, (H,) in V and A: resistances may be others than calibrated."""
        powers = np.abs(voltages * currents)
        over = (currents > _MEASURED * self.max_current) | (powers > _MEASURED * self.max_power)
        for k in np.flatnonzero(over & (self.max_voltage > 0.0)).tolist():
            log.warning(
                "heater %s: measured %.4g V and %.4g A, beyond its limits of %.4g A and %.4g W; lower its voltage and "
                "calibrate again",
                self.names[k],
                voltages[k],
                currents[k],
                self.max_current[k],
                self.max_power[k],
            )
        total = float(np.nansum(powers))
        if total > _MEASURED * self.max_total_power:
            log.warning(
                "all heaters together: measured %.4g W, beyond limits.total_power_w = %.4g W; lower the voltages and "
                "calibrate again",
                total,
                self.max_total_power,
            )

    def _check_each(
        self, quantity: str, values: Vector, limits: Vector, unit: str, key: str, voltages: Vector | None = None
    ) -> None:
        over = values > limits * (1.0 + _ROUNDING)
        if not over.any():
            return
        k = int(np.argmax(over))
        cause = "" if voltages is None else f" at {voltages[k]:.4g} V and {self.resistance_ohm[k]:.4g} ohm"
        others = int(over.sum()) - 1
        more = f" (and {others} more heaters)" if others else ""
        raise LimitError(
            f"heater {self.names[k]}: {quantity} {values[k]:.6g} {unit}{cause} exceeds {key} = {limits[k]:.6g} {unit}"
            f"{more}; nothing was moved; lower the voltage, or raise {key} in chip.yaml if the chip allows it"
        )
