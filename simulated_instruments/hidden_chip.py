"""The physical chip behind the simulated instruments, with its truth hidden from calibration."""

import math
import os
import threading
import zlib
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import Self

import numpy as np

from optinc_hw.clock import Clock, SimulatedClock
from optinc_hw.errors import ConfigurationError
from optinc_hw.photonics.layout import ChipLayout
from optinc_hw.photonics.mesh_layout import MeshLayout
from simulated_instruments._chip_file import ChipContent, read_chip, write_chip
from simulated_instruments._chip_light import ChipLight
from simulated_instruments._effects import HiddenEffects
from simulated_instruments._fault_chip import ChipFaults
from simulated_instruments._fault_kinds import ChipFault
from simulated_instruments._heaters import ChipHeaters
from simulated_instruments._optics import ChipOptics
from simulated_instruments._parameters import FloatArray, HiddenParameters, draw_parameters, stick
from simulated_instruments._readout import Readout

_PARAMETER_STREAM, _NOISE_STREAM = 0, 1
_INSTRUMENT_STREAM = 1  # 0 is that of the detectors

HeaterListener = Callable[[float, Mapping[int, float]], None]
"""Gets the time in s and the voltages in V by heater index."""


class HiddenChip:
    """One imperfect OptINC chip: heaters warm it, a laser lights it, photodiodes see it.

    Instruments act on it through voltages, light and readings; calibration must never read ``parameters``. All
    methods may be called from several threads.

    Parameters
    ----------
    layout
        Names and order of heaters and detectors.
    effects
        Scalar effects: splitter, noise, thermal time constant, design wavelength.
    parameters
        The truth about this chip.
    noise_entropy
        Seed of the reading noise. Each group of detectors that is read together has a stream of its own, so
        readings do not depend on the order in which meters are asked.
    clock
        Time; a ``SimulatedClock`` of its own by default.
    """

    def __init__(
        self,
        layout: ChipLayout,
        effects: HiddenEffects,
        parameters: HiddenParameters,
        noise_entropy: int,
        clock: Clock | None = None,
    ) -> None:
        self.layout = layout
        self.effects = effects
        self.parameters = parameters
        self._noise_entropy = noise_entropy
        self._clock: Clock = SimulatedClock() if clock is None else clock
        self._lock = threading.RLock()
        self._heaters = ChipHeaters(parameters, effects.thermal_time_constant_s, self._clock.now())
        self._optics = ChipOptics(layout, effects, parameters)
        self._light = ChipLight(effects.design_wavelength_m)
        self._unit_powers: FloatArray | None = None
        self._unit_powers_for = (-1, 0.0)
        self._readouts: dict[tuple[int, ...], Readout] = {}
        self._faults = ChipFaults(layout, parameters)
        self._heater_listeners: list[HeaterListener] = []
        self._change_listeners: list[Callable[[], None]] = []

    @classmethod
    def from_seed(
        cls, seed: int, ports: int = 8, *, mesh: MeshLayout | None = None,
        stuck_rad: Mapping[str, float] | None = None, effects: HiddenEffects | None = None, clock: Clock | None = None,
    ) -> Self:  # fmt: skip
        """Draw a chip: the same seed, ports, mesh and effects give the same chip and the same noise.

        Parameters
        ----------
        seed
            Non-negative integer.
        ports
            Number of ports n, at least 2.
        mesh
            Layout of the mesh; rectangular when left out.
        stuck_rad
            Phase in rad of each heater of a mesh MZI that does not move its phase, by the heater's name: of the upper
            arm against the lower arm, but for heat from neighbours. Such a heater takes current to no effect.
        effects
            Sizes of the effects; the defaults of ``HiddenEffects`` when left out.
        clock
            Time; a ``SimulatedClock`` of its own by default.

        Raises
        ------
        ConfigurationError
            If the seed is not a non-negative integer, or a stuck phase is not finite.
        MatrixError
            If ``ports`` is not an integer of at least 2, or the mesh or a stuck heater does not fit.
        """
        if not isinstance(seed, Integral) or seed < 0:
            raise ConfigurationError(f"the seed of a hidden chip must be an integer >= 0, got {seed!r}")
        stuck = {} if stuck_rad is None else dict(stuck_rad)
        for name, phase in stuck.items():
            if not math.isfinite(phase):
                raise ConfigurationError(f"hidden chip: heater {name} cannot be stuck at {phase!r} rad; give a number")
        layout = ChipLayout(ports, mesh, stuck)
        effects = HiddenEffects() if effects is None else effects
        drawn = draw_parameters(layout, effects, np.random.default_rng([seed, _PARAMETER_STREAM]))
        parameters = stick(drawn, layout, stuck)
        words = np.random.SeedSequence([seed, _NOISE_STREAM]).generate_state(4)
        entropy = sum(int(word) << (32 * k) for k, word in enumerate(words))
        return cls(layout, effects, parameters, entropy, clock)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], *, clock: Clock | None = None) -> Self:
        """Load a chip from ``to_file``; heaters are at 0 V, the laser is dark, and the noise starts afresh.

        Raises
        ------
        ConfigurationError
            If the file cannot be read, is not a hidden chip of this version, or its content does not fit together.
        """
        content = read_chip(Path(path))
        return cls(content.layout, content.effects, content.parameters, content.noise_entropy, clock)

    def to_file(self, path: str | os.PathLike[str]) -> None:
        """Write the chip (not its present voltages or light) to a JSON file, all or nothing.

        Raises
        ------
        ConfigurationError
            If the file cannot be written.
        """
        write_chip(Path(path), ChipContent(self.layout, self.effects, self.parameters, self._noise_entropy))

    @property
    def clock(self) -> Clock:
        """Time of the chip; setting another clock leaves the heat settled."""
        return self._clock

    @clock.setter
    def clock(self, clock: Clock) -> None:
        with self._lock:
            if clock is not self._clock:
                self._light.change(math.inf, -math.inf, *self._light.at(math.inf))
                self._faults.shift(clock.now() - self._clock.now())
                self._clock = clock
                self._heaters.restart(clock.now())

    def set_heater_voltages(self, values: Mapping[int, float]) -> None:
        """Put voltages on heaters at the present time.

        Parameters
        ----------
        values
            Volt per heater index; other heaters keep theirs.

        Raises
        ------
        ConfigurationError
            If a heater does not exist, or a voltage is negative or not finite; nothing was changed.
        """
        for heater, voltage in values.items():
            self._check_heater(heater)
            if not 0.0 <= voltage < math.inf:
                name = self.layout.heaters[heater]
                raise ConfigurationError(f"hidden chip: heater {name} cannot take {voltage!r} V; give 0 V or more")
        self._announce_change()
        with self._lock:
            now = self._clock.now()
            self._advance(now)
            for heater, voltage in values.items():
                self._heaters.set_voltage(heater, voltage)
            for listener in self._heater_listeners:
                listener(now, values)

    def watch_heaters(self, listener: HeaterListener) -> None:
        """Let ``listener`` be called with the time in s and V by heater index whenever voltages are set."""
        with self._lock:
            self._heater_listeners.append(listener)

    def watch_changes(self, listener: Callable[[], None]) -> None:
        """Let ``listener`` be called just before voltages or light are changed: it may sample what was until now."""
        with self._lock:
            self._change_listeners.append(listener)

    def heater_voltage(self, heater: int) -> float:
        """Return the voltage on a heater in V."""
        self._check_heater(heater)
        with self._lock:
            return float(self._heaters.voltage_v[heater])

    def heater_current(self, heater: int) -> float:
        """Return the current through a heater in A; the resistance follows the power without lag."""
        self._check_heater(heater)
        with self._lock:
            self._follow_faults()
            return self._heaters.current_a(heater)

    def heater_currents(self) -> FloatArray:
        """Return the currents (H,) through all heaters in A."""
        with self._lock:
            self._follow_faults()
            return self._heaters.currents_a()

    def voltage_for_current(self, heater: int, current_a: float) -> float:
        """Return the voltage in V that drives ``current_a`` through a heater; infinite beyond thermal runaway."""
        self._check_heater(heater)
        with self._lock:
            self._follow_faults()
            return self._heaters.voltage_for_current(heater, current_a)

    @property
    def resistance_revision(self) -> int:
        """Number that grows whenever a fault has changed a heater's resistance: a source with a limit looks again."""
        with self._lock:
            self._follow_faults()
            return self._heaters.resistance_revision

    def inject(self, fault: ChipFault, *, after_s: float = 0.0, for_s: float = math.inf) -> None:
        """Let a fault begin ``after_s`` s from now on the chip's clock and last for ``for_s`` s.

        Raises
        ------
        ConfigurationError
            If the chip has no such heater or detector.
        """
        with self._lock:
            start = self._clock.now() + after_s
            self._faults.add(fault, start, start + for_s)

    def heal(self) -> None:
        """End all faults, and forget those to come."""
        self._announce_change()
        with self._lock:
            now = self._clock.now()
            self._advance(now)
            self._faults.clear()
            self._heaters.change_resistances(*self._faults.resistances(now, now))

    def set_laser(self, power_w: float, wavelength_m: float, *, at_s: float | None = None) -> None:
        """Change the light that enters the chip.

        Parameters
        ----------
        power_w
            Power in W; 0 is dark.
        wavelength_m
            Wavelength in m.
        at_s
            Time on the clock at which the change happens (a laser that tunes); at once when left out. A later call
            replaces a change that is still to come.

        Raises
        ------
        ConfigurationError
            If the power is negative, the wavelength not positive, or one of them not finite.
        """
        if not (0.0 <= power_w < math.inf and 0.0 < wavelength_m < math.inf):
            raise ConfigurationError(f"hidden chip: laser of {power_w!r} W at {wavelength_m!r} m is not possible")
        self._announce_change()
        with self._lock:
            now = self._clock.now()
            self._light.change(now, now if at_s is None else at_s, power_w, wavelength_m)

    def follow_laser(self, light_at: Callable[[float], tuple[float, float]]) -> None:
        """Let light in that changes by itself (a laser that sweeps), until the next call of ``set_laser``.

        Parameters
        ----------
        light_at
            Power in W and wavelength in m at a time on the clock in s. It is called at every reading and must depend
            on the time alone: asking an instrument there could wait for ever.
        """
        self._announce_change()
        with self._lock:
            self._light.follow(light_at)

    def detector_powers(self) -> FloatArray:
        """Return the (2n,) optical powers in W on the photodiodes at the clock's present time."""
        with self._lock:
            return self._powers(self._clock.now()) * 1.0

    def measure(self, detectors: Sequence[int], averaging_time_s: float | FloatArray) -> FloatArray:
        """Return what electronics behind photodiodes read at the present time: gain, dark offset, noise.

        Parameters
        ----------
        detectors
            Indices of the detectors.
        averaging_time_s
            Averaging time in s, one for all or (len,); it scales the noise and does not move the clock.

        Returns
        -------
        NDArray
            (len,) readings in W; may be negative in the dark.
        """
        with self._lock:
            now = self._clock.now()
            readout = self._readout(detectors)
            powers = self._powers(now)
            if not self._faults:
                return readout.read(powers[readout.index], averaging_time_s)
            seen = self._faults.seen(now, powers)
            reading = readout.read(seen[readout.index], averaging_time_s)
            return self._faults.readings(now, readout.index, seen, reading)

    def sample(self, detectors: Sequence[int], averaging_time_s: float, at_s: float, count: int) -> FloatArray:
        """Return (count, len) readings in W of light as it is at ``at_s``; see ``measure``.

        ``at_s`` is a time on the clock in s, neither before the last change of voltages or light nor in the future.
        """
        with self._lock:
            readout = self._readout(detectors)
            seen = self._faults.seen(at_s, self._powers(at_s))
            readings = readout.read_series(seen[readout.index], averaging_time_s, count)
            return self._faults.readings(at_s, readout.index, seen, readings)

    def steady_until(self, at_s: float) -> float:
        """Return the time in s until which light and heat stay as at ``at_s`` by themselves; ``at_s`` if they move."""
        with self._lock:
            self._powers(at_s)
            return self._light.steady_until(at_s) if self._heaters.settled and not self._faults else at_s

    def generator(self, name: str) -> np.random.Generator:
        """Return a new Generator for the noise of the instrument ``name``, the same for the same chip and name."""
        key = (_INSTRUMENT_STREAM, zlib.crc32(name.encode()))
        return np.random.default_rng(np.random.SeedSequence(self._noise_entropy, spawn_key=key))

    def _announce_change(self) -> None:
        # Not under the chip's lock: a listener takes a lock of its own, under which it asks the chip.
        for listener in self._change_listeners:
            listener()

    def _readout(self, detectors: Sequence[int]) -> Readout:
        group = tuple(detectors)
        readout = self._readouts.get(group)
        if readout is None:
            readout = self._readouts[group] = Readout(group, self.parameters, self.effects, self._noise_entropy)
        return readout

    def _powers(self, now: float) -> FloatArray:
        self._advance(now)
        power_w, wavelength_m = self._light.at(now)
        if self._faults:
            power_w, wavelength_m = self._faults.light(now, power_w, wavelength_m)
        wanted = (self._heaters.revision, self.effects.design_wavelength_m / wavelength_m)
        if self._unit_powers is None or self._unit_powers_for != wanted:
            self._unit_powers = self._optics.unit_powers(self._heaters.heat_w, wanted[1])
            self._unit_powers_for = wanted
        powers: FloatArray = self._unit_powers * power_w
        return powers

    def _advance(self, now: float) -> None:
        """Let the heat relax until ``now``, and resistances change on the way where heaters are faulty."""
        if self._faults.electrical:
            for turn in self._faults.turns(self._heaters.time, now):
                self._relax(turn)
                self._heaters.change_resistances(*self._faults.resistances(turn, turn))
            self._relax(now)
        else:
            self._heaters.advance(now)

    def _relax(self, now: float) -> None:
        """Let the heat relax until ``now``, before which no fault begins or ends."""
        self._heaters.change_resistances(*self._faults.resistances(self._heaters.time, now))
        self._heaters.advance(now)

    def _follow_faults(self) -> None:
        if self._faults.electrical:
            self._advance(self._clock.now())

    def _check_heater(self, heater: int) -> None:
        if not 0 <= heater < len(self.layout.heaters):
            raise ConfigurationError(
                f"hidden chip: there is no heater {heater!r}; the {self.layout.ports}-port chip has "
                f"0..{len(self.layout.heaters) - 1}"
            )
