"""The state of one calibration run: what is known so far, and how to set powers and read fields with it."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from calibration._journal import Keep, unstored
from calibration._journal_run import READINGS
from optinc_hw.bench import Bench
from optinc_hw.bench.interlock import Interlock
from optinc_hw.errors import CalibrationError
from optinc_hw.photonics.heaters import power_from_voltage, voltage_from_power

Array = NDArray[np.float64]
Progress = Callable[[str, int, int], None]
"""Called with (stage, done, total)."""

LO_STEPS = 4
"""Local oscillator phases of one complex reading, equally spaced over the circle."""

LIMIT_SHARE = 0.9
"""Part of the power that a heater may have which experiments use."""


def allowed_power(bench: Bench, resistance_ohm: Array, beta_per_w: Array) -> Array:
    """Return powers (H,) in W that experiments may use.

    They keep the limits of power, current and voltage by the laws that were measured, (H,) in ohm and 1/W, and by those
    that the bench judges with, nominal ones or a record's.
    """
    lock = bench.interlock
    voltage = np.minimum.reduce(
        [
            lock.max_voltage,
            _limit_voltage(lock, lock.resistance_ohm, lock.resistance_beta_per_w),
            _limit_voltage(lock, resistance_ohm, beta_per_w),
        ]
    )
    power = power_from_voltage(voltage, resistance_ohm, beta_per_w)
    return np.asarray(LIMIT_SHARE * np.minimum(power, lock.max_power))


def allowed_total(bench: Bench, resistance_ohm: Array, beta_per_w: Array) -> float:
    """Return the power in W that experiments may use in all: less than the limit where the bench judges it to be more.

    The arguments are those of `allowed_power`.
    """
    power = 0.5 * allowed_power(bench, resistance_ohm, beta_per_w)  # random settings take half of it on average
    judged = float(bench.interlock.power(voltage_from_power(power, resistance_ohm, beta_per_w)).sum())
    return float(bench.max_total_power) * min(1.0, float(power.sum()) / max(judged, np.finfo(float).tiny))


def _limit_voltage(lock: Interlock, resistance_ohm: Array, beta_per_w: Array) -> Array:
    """Voltages (H,) in V at which heaters of these laws reach their limits of power or current."""
    by_power = voltage_from_power(lock.max_power, resistance_ohm, beta_per_w)
    # V = I R0 (1 + beta V I); where R grows so fast that the current never gets there, none.
    rest = 1.0 - lock.max_current**2 * resistance_ohm * beta_per_w
    by_current = np.divide(lock.max_current * resistance_ohm, rest, out=np.full_like(rest, np.inf), where=rest > 0.0)
    return np.asarray(np.minimum(by_power, by_current))


class Session:
    """Working knowledge of a chip under calibration, and the moves that build on it.

    Every sweep sets all that it needs, so that one can be the first of a resumed run.

    Parameters
    ----------
    bench
        The bench.
    rng
        Source of the random settings.
    progress
        Told about every stage.
    keep
        Asked for every sweep, see `Journal.step`.
    """

    def __init__(self, bench: Bench, rng: np.random.Generator, progress: Progress, keep: Keep = unstored) -> None:
        self.bench = bench
        self.layout = bench.layout
        self.rng = rng
        self.progress = progress
        self.stage = "start"
        """Name of the present stage for the journal."""
        self._keep = keep
        self._lit: bool | None = None
        heaters = len(self.layout.heaters)
        self.resistance_ohm = np.full(heaters, np.nan)
        self.beta_per_w = np.zeros(heaters)
        self.efficiency = np.full(heaters, np.pi / bench.description.chip.nominal.p_pi_w)
        self.offset = np.full(heaters, np.nan)
        self.power = np.zeros(heaters)
        self.dark_w = np.zeros(len(self.layout.detectors))

    @property
    def period_w(self) -> Array:
        """Power (H,) in W for a phase of 2 pi."""
        return np.asarray(2.0 * np.pi / self.efficiency)

    def power_for_phase(self, heater: int, phase: float) -> float:
        """Power in W, within one period, that gives a known heater a phase in rad."""
        wanted = (phase - self.offset[heater]) % (2.0 * np.pi)
        return float(wanted / self.efficiency[heater])

    def measure(self, power: Array) -> Array:
        """Set heater powers (rows, H) in W one after the other, with light; return readings (rows, 2n) in W.

        Dark readings are subtracted.  A row that repeats the one before is read again without being set.

        Raises
        ------
        CalibrationError
            If a detector is out of range, or the journal holds another sweep.
        """
        return self._keep(self.stage, {"power_w": power}, lambda: {READINGS: self._readings(power)})[READINGS]

    def measure_dark(self, count: int) -> Array:
        """Switch the light off, leave the heaters, and read ``count`` times; (count, 2n) in W; raises as `measure`."""

        def read() -> dict[str, Array]:
            self._light(on=False)
            self.bench.settle()
            return {READINGS: np.stack([self._read() for _ in range(count)])}

        return self._keep(self.stage, {"light": np.zeros(count, dtype=np.bool_)}, read)[READINGS]

    def measure_heaters(self, voltage: Array) -> tuple[Array, Array]:
        """Set voltages (rows, H) in V one after the other; return measured voltages in V and currents in A."""

        def read() -> dict[str, Array]:
            rows = []
            for row in voltage:
                self.bench.set_voltages(row)
                self.bench.settle()
                rows.append(self.bench.read_heaters())
            return {
                "measured_voltage_v": np.stack([row.voltage_v for row in rows]),
                "measured_current_a": np.stack([row.current_a for row in rows]),
            }

        found = self._keep(self.stage, {"voltage_v": voltage}, read)
        return found["measured_voltage_v"], found["measured_current_a"]

    def _readings(self, power: Array) -> Array:
        self._light(on=True)
        rows: list[Array] = []
        for index, row in enumerate(power):
            if index == 0 or (row != power[index - 1]).any():
                self.bench.set_voltages(voltage_from_power(row, self.resistance_ohm, self.beta_per_w))
                self.bench.settle()
            rows.append(self._read())
        return np.stack(rows)

    def _light(self, *, on: bool) -> None:
        if self._lit is not on:
            self._lit = None  # an error on the way leaves it unknown
            self.bench.light(on=on)
            self._lit = on

    def _read(self) -> Array:
        reading = self.bench.read_detectors()
        if not reading.valid.all():
            bad = [self.layout.detectors[d] for d in np.flatnonzero(~reading.valid)]
            raise CalibrationError(f"detectors {', '.join(bad)} are out of range; check laser power and meter range")
        return np.asarray(reading.power_w - self.dark_w)

    def sweep(self, heaters: NDArray[np.intp], powers: Array) -> Array:
        """Step several heaters together through ``powers`` (points, h) in W; return readings (points, 2n) in W."""
        return self.measure(self._settings(heaters, powers))

    def sweep_fields(self, heaters: NDArray[np.intp], powers: Array) -> NDArray[np.complex128]:
        """As `sweep`, with complex fields (points, n) relative to the local oscillator, in units of its beat, W.

        The four phases of the local oscillator at each point cancel everything that does not beat with it.
        """
        return self.measure_fields(self._settings(heaters, powers))

    def measure_fields(self, power: Array) -> NDArray[np.complex128]:
        """Measure complex fields (rows, n) at heater powers (rows, H) in W, whatever they are for the LO's phase."""
        n, lo = self.layout.ports, self.layout.lo
        angles = 2.0 * np.pi * np.arange(LO_STEPS) / LO_STEPS
        settings = np.repeat(power, LO_STEPS, axis=0)
        settings[:, lo] = np.tile(angles / self.efficiency[lo], len(power))
        readings = self.measure(settings).reshape(len(power), LO_STEPS, 2 * n)
        beats = readings[..., :n] - readings[..., n:]
        return np.asarray(1j * np.einsum("s,psn->pn", np.exp(1j * angles), beats) / LO_STEPS)

    def _settings(self, heaters: NDArray[np.intp], powers: Array) -> Array:
        settings = np.tile(self.power, (len(powers), 1))
        settings[:, heaters] = powers
        return settings
