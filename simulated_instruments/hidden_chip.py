"""The physical chip behind the simulated instruments, with its truth hidden from calibration."""

import math
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from optinc_hw.clock import Clock
from optinc_hw.errors import ConfigurationError
from optinc_hw.photonics.layout import ChipLayout, Inputs, Receivers
from optinc_hw.photonics.mesh_layout import MeshLayout
from simulated_instruments._chip_content import ChipContent, drawn_chip
from simulated_instruments._chip_file import read_chip, write_chip
from simulated_instruments._chip_light import ChipLight, Light
from simulated_instruments._description import read_description
from simulated_instruments._drift import Drift
from simulated_instruments._effects import HiddenEffects
from simulated_instruments._heated_chip import HeatedChip
from simulated_instruments._lit_ports import LitPorts, PortCourse
from simulated_instruments._optics import ChipOptics, ComplexArray, Transmission
from simulated_instruments._parameters import FloatArray, HiddenParameters
from simulated_instruments._presets import preset
from simulated_instruments._readout import Readout

_DESCRIPTIONS = (".yaml", ".yml")
_INSTRUMENT_STREAM = 1  # 0 is that of the detectors


class HiddenChip(HeatedChip):
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
        super().__init__(layout, effects, parameters, clock)
        self._noise_entropy = noise_entropy
        self._optics = ChipOptics(layout, effects, parameters)
        self._light = ChipLight(effects.design_wavelength_m)
        self._lit = LitPorts(layout)
        self._known: Transmission | None = None
        self._known_for = (-1, 0.0)
        self._unit_powers: FloatArray | None = None
        self._unit_powers_for = -1
        self._readouts: dict[tuple[int, ...], Readout] = {}

    @classmethod
    def from_seed(
        cls, seed: int, ports: int = 8, *, mesh: MeshLayout | None = None,
        stuck_rad: Mapping[str, float] | None = None, effects: HiddenEffects | None = None, clock: Clock | None = None,
        inputs: Inputs = "modulators", receivers: Receivers = "homodyne",
    ) -> Self:  # fmt: skip
        """Draw a chip: the same seed, layout and effects give the same chip and the same noise.

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
        inputs, receivers
            What is before and behind the mesh, see ``ChipLayout``: ``"ports"`` and ``"power"`` make a bare mesh.

        Raises
        ------
        ConfigurationError
            If the seed is not a non-negative integer, or a stuck phase is not finite.
        MatrixError
            If ``ports`` is not an integer of at least 2, or the mesh or a stuck heater does not fit.
        """
        stuck = {} if stuck_rad is None else dict(stuck_rad)
        layout = ChipLayout(ports, mesh, stuck, inputs=inputs, receivers=receivers)
        content = drawn_chip(seed, layout, HiddenEffects() if effects is None else effects, stuck)
        return cls(content.layout, content.effects, content.parameters, content.noise_entropy, clock)

    @classmethod
    def from_preset(cls, name: str, seed: int, ports: int | None = None, *, clock: Clock | None = None) -> Self:
        """Draw a bare mesh with the effects of a preset.

        Parameters
        ----------
        name
            One of ``PRESETS``.
        seed
            Non-negative integer.
        ports
            Number of ports, that of the preset when left out.
        clock
            Time; a ``SimulatedClock`` of its own by default.

        Raises
        ------
        ConfigurationError
            If there is no such preset, or the seed is not a non-negative integer.
        MatrixError
            If ``ports`` is not an integer of at least 2.
        """
        known = preset(name)
        return cls.from_seed(
            seed, known.ports if ports is None else ports, effects=HiddenEffects.preset(name), clock=clock,
            inputs="ports", receivers="power",
        )  # fmt: skip

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], *, clock: Clock | None = None, seed: int = 0) -> Self:
        """Load a chip; heaters are at 0 V, the laser is dark, and the noise starts afresh.

        Parameters
        ----------
        path
            JSON file written by ``to_file``; or a description in YAML, ending in ``.yaml`` or ``.yml``.
        clock
            Time; a ``SimulatedClock`` of its own by default.
        seed
            Seed of a description that states none.

        Raises
        ------
        ConfigurationError
            If the file cannot be read, is not a hidden chip of this version, or its content does not fit together.
        """
        file = Path(path)
        content = read_description(file, seed) if file.suffix in _DESCRIPTIONS else read_chip(file)
        return cls(content.layout, content.effects, content.parameters, content.noise_entropy, clock)

    def to_file(self, path: str | os.PathLike[str]) -> None:
        """Write the chip (not its present voltages or light) to a JSON file, all or nothing.

        Raises
        ------
        ConfigurationError
            If the file cannot be written.
        """
        write_chip(Path(path), ChipContent(self.layout, self.effects, self.parameters, self._noise_entropy))

    def drift(
        self, *, resistance_change: float = 0.0, resistance_spread: float = 0.0, efficiency_change: float = 0.0,
        efficiency_spread: float = 0.0, offset_rms_rad: float = 0.0, gain_spread: float = 0.0,
        temperature_k: float = 0.0, seed: int = 0,
    ) -> None:  # fmt: skip
        """Let the chip age: at once, and for good.

        Parameters
        ----------
        resistance_change, resistance_spread
            Common relative change of all resistances, and its standard deviation from heater to heater.
        efficiency_change, efficiency_spread
            The same for the phase per heater power.
        offset_rms_rad
            Change of the phases of single arm sections in rad (rms), without any pattern.
        gain_spread
            Relative change of the detectors' gains (rms).
        temperature_k
            Temperature in K by which the whole chip gets warmer; what that does is among its ``HiddenEffects``.
        seed
            Seed of the changes of single elements.
        """
        change = Drift(
            resistance_change, resistance_spread, efficiency_change, efficiency_spread, offset_rms_rad, gain_spread
        )
        self.announce_change()
        with self._lock:
            effects = replace(self.effects, temperature_k=self.effects.temperature_k + temperature_k)
            self._become(effects, change.of(self.parameters, seed))
            self._optics = ChipOptics(self.layout, self.effects, self.parameters)
            self._known = None
            for readout in self._readouts.values():
                readout.calibrate(self.parameters)

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
        self.announce_change()
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
        self.announce_change()
        with self._lock:
            self._light.follow(light_at)

    def set_lit_port(self, port: int | None) -> None:
        """Let the laser's light enter one input port, or None, of a chip without modulators.

        Raises
        ------
        ConfigurationError
            If there is no such port, or the chip has modulators.
        """
        self.announce_change()
        with self._lock:
            self._lit.select(port)

    def light_ports(self, amplitudes: ArrayLike) -> None:
        """Let coherent light enter several input ports of a chip without modulators at once.

        Parameters
        ----------
        amplitudes
            (n,) complex fields in front of the ports per sqrt(W) of the laser; the squares of their moduli sum up to 1
            at most.

        Raises
        ------
        ConfigurationError
            If the shape or the power does not fit, an amplitude is not finite, or the chip has modulators.
        """
        self.announce_change()
        with self._lock:
            self._lit.light(amplitudes)

    def follow_ports(self, course: PortCourse) -> None:
        """Let light enter where an optical switch sends it, until the next call about ports.

        Raises
        ------
        ConfigurationError
            If the chip has modulators.
        """
        self.announce_change()
        with self._lock:
            self._lit.follow(course)

    def transfer_matrix(self) -> ComplexArray:
        """Return the truth about the light at the present time; for tests and benchmarks only.

        Returns
        -------
        NDArray
            (n, n) complex: field at receiver j, before its coupler, per field at input i, at row j and column i.
            Inputs are fibres in front of the ports, or modulators at the present heat, each fed with a field of 1
            instead of its share of the laser's. Losses on both sides count, gains of detectors do not.
        """
        with self._lock:
            now = self._clock.now()
            self._advance(now)
            return self._transmission(self._laser_at(now)[1]).matrix(self.parameters.input_amplitude)

    def detector_powers(self) -> FloatArray:
        """Return the (D,) optical powers in W on the photodiodes at the clock's present time."""
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
            if not self._heaters.settled or self._faults:
                return at_s
            return min(self._light.steady_until(at_s), self._lit.steady_until(at_s))

    def generator(self, name: str) -> np.random.Generator:
        """Return a new Generator for the noise of the instrument ``name``, the same for the same chip and name."""
        key = (_INSTRUMENT_STREAM, zlib.crc32(name.encode()))
        return np.random.default_rng(np.random.SeedSequence(self._noise_entropy, spawn_key=key))

    def _readout(self, detectors: Sequence[int]) -> Readout:
        group = tuple(detectors)
        readout = self._readouts.get(group)
        if readout is None:
            readout = self._readouts[group] = Readout(group, self.parameters, self.effects, self._noise_entropy)
        return readout

    def _powers(self, now: float) -> FloatArray:
        """Return the powers (D,) in W on the photodiodes."""
        self._advance(now)
        power_w, wavelength_m = self._laser_at(now)
        key, entering = self._lit.at(now)
        transmission = self._transmission(wavelength_m)
        if self._unit_powers is None or self._unit_powers_for != key:
            self._unit_powers, self._unit_powers_for = transmission.powers(entering), key
        powers: FloatArray = self._unit_powers * power_w
        return powers

    def _laser_at(self, now: float) -> Light:
        light = self._light.at(now)
        return self._faults.light(now, *light) if self._faults else light

    def _transmission(self, wavelength_m: float) -> Transmission:
        """Return what the chip does to light at the heat that was last asked for."""
        wanted = (self._heaters.revision, wavelength_m)
        if self._known is None or self._known_for != wanted:
            self._known, self._known_for = self._optics.transmission(self._heaters.heat_w, wavelength_m), wanted
            self._unit_powers = None
        return self._known
