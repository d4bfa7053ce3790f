"""Physics of thermo-optic heaters and of couplers away from the design wavelength: every effect can be left out."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optinc_hw.errors import MatrixError
from optinc_hw.photonics.heaters import power_from_voltage, voltage_from_power

Vector = NDArray[np.float64]

SILICON_THERMO_OPTIC_PER_K = 1.8e-4
"""dn/dT of silicon at 300 K near 1550 nm in 1/K (Komma et al., Appl. Phys. Lett. 101, 041905, 2012)."""
_TWO_PI = 2.0 * np.pi
_POSITIVE = ("efficiency_rad_per_w", "resistance_ohm")
_NOT_NEGATIVE = ("beta_per_w",)
_LIMITS = ("max_power_w", "max_voltage_v", "max_current_a")


def _zero() -> Vector:
    return np.zeros(())


def _unlimited() -> Vector:
    return np.full((), np.inf)


@dataclass(frozen=True)
class HeaterModel:
    """Any number H of heaters: phases from voltages, powers, wavelength and chip temperature.

    Phases are ``offset + passive(wavelength, temperature) + X @ (efficiency(wavelength) * heat)``, the heat follows the
    power with a first-order lag. Every vector may be given as one number for all heaters; arrays are copied and
    read-only. With its default each effect is absent.

    Parameters
    ----------
    efficiency_rad_per_w
        Phase per power (H,) in rad/W at the design wavelength, > 0; ``pi / P_pi``.
    resistance_ohm
        Cold resistance R0 (H,) in ohm at the design temperature, > 0.
    offset_rad
        Phases (H,) in rad without power at the design wavelength and temperature.
    crosstalk
        Thermal crosstalk X (H, H) relative to the heater's own phase; row = heated phase, unit diagonal. None: none.
    beta_per_w
        Growth of the resistance with power (H,) in 1/W: ``R(P) = R0 (1 + beta P)``, >= 0.
    resistance_growth_per_k
        Relative growth of R0 per K of chip temperature (H,).
    time_constant_s
        First-order time constant of the heat in s; 0 is heat without lag.
    path_imbalance_m
        Length (H,) in m of each phase's waveguide beyond the arm it interferes with; its phase changes with wavelength
        and chip temperature.
    group_index
        Group index of the waveguides; about 4.2 for a silicon wire near 1550 nm.
    thermo_optic_per_k
        Change of the effective index per K, of silicon by default.
    thermo_optic_dispersion_per_m
        Relative change of ``thermo_optic_per_k`` per m of wavelength.
    design_wavelength_m, design_temperature_k
        Where ``efficiency_rad_per_w``, ``offset_rad`` and ``resistance_ohm`` hold.
    max_power_w, max_voltage_v, max_current_a
        Limits (H,) of each heater.
    max_total_power_w
        Limit of the summed power in W.
    names
        Names of the heaters for messages; None names them by their index.

    Raises
    ------
    MatrixError
        If a shape does not fit, a value is not finite (limits may be infinite) or has the wrong sign.
    """

    efficiency_rad_per_w: Vector
    resistance_ohm: Vector
    offset_rad: Vector = field(default_factory=_zero)
    crosstalk: Vector | None = None
    beta_per_w: Vector = field(default_factory=_zero)
    resistance_growth_per_k: Vector = field(default_factory=_zero)
    time_constant_s: float = 0.0
    path_imbalance_m: Vector = field(default_factory=_zero)
    group_index: float = 4.2
    thermo_optic_per_k: float = SILICON_THERMO_OPTIC_PER_K
    thermo_optic_dispersion_per_m: float = 0.0
    design_wavelength_m: float = 1550e-9
    design_temperature_k: float = 298.15
    max_power_w: Vector = field(default_factory=_unlimited)
    max_voltage_v: Vector = field(default_factory=_unlimited)
    max_current_a: Vector = field(default_factory=_unlimited)
    max_total_power_w: float = np.inf
    names: Sequence[str] | None = None

    def __post_init__(self) -> None:
        efficiency = np.atleast_1d(np.asarray(self.efficiency_rad_per_w, float))
        if efficiency.ndim != 1:
            raise MatrixError(f"efficiency_rad_per_w has shape {efficiency.shape}; give one value per heater, (H,)")
        size = len(efficiency)
        vectors = (*_POSITIVE, "offset_rad", *_NOT_NEGATIVE, "resistance_growth_per_k", "path_imbalance_m", *_LIMITS)
        for name in vectors:
            object.__setattr__(self, name, _vector(name, getattr(self, name), size))
        for name in ("time_constant_s", "max_total_power_w"):
            if not getattr(self, name) >= 0.0:
                raise MatrixError(f"{name} must be at least 0, got {getattr(self, name)!r}")
        for name in ("design_wavelength_m", "design_temperature_k", "group_index"):
            if not 0.0 < getattr(self, name) < np.inf:
                raise MatrixError(f"{name} must be positive and finite, got {getattr(self, name)!r}")
        if self.crosstalk is not None:
            object.__setattr__(self, "crosstalk", _crosstalk(self.crosstalk, size))
        if self.names is not None and len(self.names) != size:
            raise MatrixError(f"got {len(self.names)} names for {size} heaters; give one each")

    def __len__(self) -> int:
        return len(self.efficiency_rad_per_w)

    def name(self, heater: int) -> str:
        """Name of a heater in messages."""
        return str(heater) if self.names is None else self.names[heater]

    def efficiency(self, wavelength_m: float | None = None) -> Vector:
        """Phase per power (H,) in rad/W at a wavelength: ``2 pi / wavelength`` times the thermo-optic path."""
        wavelength = self._wavelength(wavelength_m)
        return self.efficiency_rad_per_w * (self.design_wavelength_m / wavelength) * self._thermo_optic(wavelength)

    def passive_phase(self, wavelength_m: float | None = None, temperature_k: float | None = None) -> Vector:
        """Phases (H,) in rad without power.

        An arm longer by ``dL`` adds ``2 pi dL (n_g (1 / wavelength - 1 / design) + dn/dT (T - T_design) / wavelength)``
        to the offset. The first term is exact where the effective index is linear in the wavelength; thermal expansion
        (2.6e-6 1/K of silicon, times an index near 2.4) is left out, 4 % of the second.
        """
        wavelength = self._wavelength(wavelength_m)
        warmer = self._warmer(temperature_k)
        per_metre = self.group_index * (1.0 / wavelength - 1.0 / self.design_wavelength_m)
        per_metre += self.thermo_optic_per_k * self._thermo_optic(wavelength) * warmer / wavelength
        return self.offset_rad + _TWO_PI * per_metre * self.path_imbalance_m

    def phases(
        self, power_w: ArrayLike, wavelength_m: float | None = None, temperature_k: float | None = None
    ) -> Vector:
        """Phases (..., H) in rad once the heat has settled at powers (..., H) in W, or for any heat in W.

        Parameters
        ----------
        power_w
            Heater powers, or the heat from `heat_after`.
        wavelength_m, temperature_k
            The laser's wavelength and the chip's temperature; None is the design's.
        """
        own = np.asarray(power_w, float) * self.efficiency(wavelength_m)
        heated = own if self.crosstalk is None else own @ self.crosstalk.T
        return np.asarray(self.passive_phase(wavelength_m, temperature_k) + heated)

    def resistance(self, temperature_k: float | None = None) -> Vector:
        """Cold resistance R0 (H,) in ohm at a chip temperature in K."""
        return self.resistance_ohm * (1.0 + self.resistance_growth_per_k * self._warmer(temperature_k))

    def power(self, voltage_v: ArrayLike, temperature_k: float | None = None) -> Vector:
        """Electrical powers (..., H) in W at voltages (..., H) in V."""
        return power_from_voltage(voltage_v, self.resistance(temperature_k), self.beta_per_w)

    def voltage(self, power_w: ArrayLike, temperature_k: float | None = None) -> Vector:
        """Voltages (..., H) in V that dissipate powers (..., H) in W."""
        return voltage_from_power(power_w, self.resistance(temperature_k), self.beta_per_w)

    def power_limits(self, temperature_k: float | None = None) -> dict[str, Vector]:
        """Powers (H,) in W that ``max_power_w``, ``max_voltage_v`` and ``max_current_a`` allow, each on its own."""
        cold, beta = self.resistance(temperature_k), self.beta_per_w
        volts, amperes = (np.where(np.isinf(limit), 0.0, limit) for limit in (self.max_voltage_v, self.max_current_a))
        by_voltage = np.where(np.isinf(self.max_voltage_v), np.inf, power_from_voltage(volts, cold, beta))
        loss = amperes**2 * cold
        # P = I^2 R0 (1 + beta P) has no solution from beta I^2 R0 = 1 on: the heater runs away before its current does.
        slowed = 1.0 - beta * loss
        unlimited = np.isinf(self.max_current_a) | (slowed <= 0.0)
        by_current = np.where(unlimited, np.inf, loss / np.where(unlimited, 1.0, slowed))
        return {"max_power_w": self.max_power_w, "max_voltage_v": by_voltage, "max_current_a": by_current}

    def heat_after(self, heat_w: ArrayLike, power_w: ArrayLike, dt_s: float) -> Vector:
        """Heat (..., H) in W that reaches the waveguides after ``dt_s`` seconds of constant powers.

        The exact solution of ``tau dh/dt = P - h``: no step is too long, and the energy ``tau h`` stored on the way
        accounts for every difference between electrical energy and heat.

        Raises
        ------
        MatrixError
            If ``dt_s`` is negative or not a number.
        """
        if not dt_s >= 0.0:
            raise MatrixError(f"time can only go forward: dt_s must be at least 0, got {dt_s!r}")
        heat, power = np.asarray(heat_w, float), np.asarray(power_w, float)
        if self.time_constant_s == 0.0:
            return np.asarray(power + 0.0 * heat)
        return np.asarray(power + (heat - power) * np.exp(-dt_s / self.time_constant_s))

    def settle_time(
        self, heat_w: ArrayLike, power_w: ArrayLike, phase_error_rad: float, wavelength_m: float | None = None
    ) -> float:
        """Time in s until all phases are within an error of their final values, from heat (H,) on at powers (H,).

        Raises
        ------
        MatrixError
            If the error is not positive.
        """
        if not phase_error_rad > 0.0:
            raise MatrixError(f"phase_error_rad must be positive, got {phase_error_rad!r}")
        missing = self.phases(power_w, wavelength_m) - self.phases(heat_w, wavelength_m)
        worst = float(np.abs(missing).max(initial=0.0))
        return self.time_constant_s * float(np.log(max(worst / phase_error_rad, 1.0)))

    def _wavelength(self, wavelength_m: float | None) -> float:
        if wavelength_m is None:
            return self.design_wavelength_m
        if not 0.0 < wavelength_m < np.inf:
            raise MatrixError(f"wavelength_m must be positive and finite, got {wavelength_m!r}; it is in metres")
        return wavelength_m

    def _warmer(self, temperature_k: float | None) -> float:
        if temperature_k is None:
            return 0.0
        if not 0.0 < temperature_k < np.inf:
            raise MatrixError(f"temperature_k must be positive and finite, got {temperature_k!r}; it is in kelvin")
        return temperature_k - self.design_temperature_k

    def _thermo_optic(self, wavelength_m: float) -> float:
        """Thermo-optic coefficient relative to the one at the design wavelength."""
        return 1.0 + self.thermo_optic_dispersion_per_m * (wavelength_m - self.design_wavelength_m)


@dataclass(frozen=True)
class CouplerDispersion:
    """Splitting angles of directional couplers away from their design wavelength, linear in the wavelength.

    Parameters
    ----------
    slope_rad_per_m
        Change of the splitting angle per wavelength in rad/m, one for all couplers or an array that broadcasts.
    design_wavelength_m
        Wavelength at which the splitting angles are as given.
    """

    slope_rad_per_m: ArrayLike
    design_wavelength_m: float = 1550e-9

    def eta(self, eta0: ArrayLike, wavelength_m: float) -> Vector:
        """Return the splitting angles in rad at a wavelength from those at the design wavelength."""
        slope = np.asarray(self.slope_rad_per_m, float)
        return np.asarray(np.asarray(eta0, float) + slope * (wavelength_m - self.design_wavelength_m))


def _vector(name: str, value: ArrayLike, size: int) -> Vector:
    given = np.asarray(value, float)
    if given.shape not in ((), (1,), (size,)):
        raise MatrixError(f"{name} has shape {given.shape}; {size} heaters need ({size},) or one number")
    vector = np.broadcast_to(given, (size,)).copy()
    if np.isnan(vector).any() or (name not in _LIMITS and np.isinf(vector).any()):
        raise MatrixError(f"{name} holds NaN or Inf; every value must be finite")
    least = 0.0 if name in (*_POSITIVE, *_NOT_NEGATIVE, *_LIMITS) else -np.inf
    if (vector < least).any() or (name in _POSITIVE and (vector == 0.0).any()):
        k = int(np.argmin(vector))
        bound = "positive" if name in _POSITIVE else "at least 0"
        raise MatrixError(f"{name} of heater {k} is {vector[k]:g}; it must be {bound}")
    vector.setflags(write=False)
    return vector


def _crosstalk(value: ArrayLike, size: int) -> Vector:
    matrix = np.array(value, dtype=np.float64)
    if matrix.shape != (size, size):
        raise MatrixError(f"crosstalk has shape {matrix.shape}; {size} heaters need ({size}, {size})")
    if not np.isfinite(matrix).all():
        raise MatrixError("crosstalk holds NaN or Inf; every value must be finite")
    if not (np.diagonal(matrix) == 1.0).all():
        raise MatrixError("crosstalk is relative to the heater's own phase: its diagonal must be 1; scale its columns")
    matrix.setflags(write=False)
    return matrix
