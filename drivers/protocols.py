"""What a bench needs of its instruments: drivers of other vendors need only these methods."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from optinc_hw.clock import Clock


@dataclass(frozen=True)
class SimulatedAs:
    """Which simulated instrument stands in for a driver's hardware; class attribute ``simulated_as`` of a driver.

    Attributes
    ----------
    kind
        Kind of the simulated instrument that speaks the driver's protocol.
    size_key
        Keyword argument of the driver that holds its number of modules or ports; None if it has no size.
    default_size
        Size when that argument is left out; None if it must be given.
    channels_per_unit
        Channels or ports per module or port.
    option_keys
        Other arguments of the driver (such as ``model``) that the simulated instrument must know.
    """

    kind: str
    size_key: str | None = None
    default_size: int | None = 1
    channels_per_unit: int = 1
    option_keys: tuple[str, ...] = ()


@dataclass(frozen=True)
class PowerReading:
    """One simultaneous reading of all ports of a power meter.

    Attributes
    ----------
    power_w
        (ports,) float64, optical power in W; NaN where the reading is not valid.
    valid
        (ports,) bool, False for over-range, under-range and other codes that are no measurement.
    """

    power_w: NDArray[np.float64]
    valid: NDArray[np.bool_]


@dataclass(frozen=True)
class PowerTrace:
    """Readings that a power meter logged one after the other.

    Attributes
    ----------
    power_w
        (ports, points) float64, optical power in W; NaN where a reading is not valid.
    valid
        (ports, points) bool, False for over-range, under-range and other codes that are no measurement.
    """

    power_w: NDArray[np.float64]
    valid: NDArray[np.bool_]


class HeaterBank(Protocol):
    """A multichannel voltage source that drives heaters; SI units, 0-based channels."""

    clock: Clock
    """Time base of ramps."""

    @property
    def channel_count(self) -> int:
        """Number of channels."""
        ...

    @property
    def ramp_step(self) -> float:
        """Largest step of a ramp in V."""
        ...

    @ramp_step.setter
    def ramp_step(self, volts: float) -> None: ...

    @property
    def ramp_interval(self) -> float:
        """Time between two steps of a ramp in s."""
        ...

    @ramp_interval.setter
    def ramp_interval(self, seconds: float) -> None: ...

    def set_voltages(self, values: Mapping[int, float]) -> None:
        """Ramp channels to targets in V; raises LimitError before anything moves."""
        ...

    def read_voltages(self) -> NDArray[np.float64]:
        """Measure all voltages, (channel_count,) in V."""
        ...

    def read_currents(self) -> NDArray[np.float64]:
        """Measure all currents, (channel_count,) in A."""
        ...

    def voltages_last_set(self) -> NDArray[np.float64]:
        """Return the voltages last set, (channel_count,) in V, NaN where they are not known for sure; asks nothing.

        A bench follows with it what moved a heater besides itself. A driver that keeps no account returns NaN only;
        then the bench reads the voltages before it moves a heater.
        """
        ...

    def set_channel_limits(
        self,
        channel: int,
        *,
        max_voltage: float | None = None,
        max_current: float | None = None,
        max_power: float | None = None,
    ) -> None:
        """Set limits of a channel in V, A and W; None leaves a limit as it is."""
        ...

    def nonzero_outputs(self, threshold: float = 0.02) -> dict[int, float]:
        """Measure which channels are above ``threshold`` V; measured V by channel."""
        ...

    def make_safe(self) -> None:
        """Ramp all channels to 0 V; idempotent."""
        ...

    def close(self) -> None:
        """Make safe if this session drove a heater, and release the link; idempotent, never fails on a dead link."""
        ...


class Laser(Protocol):
    """A tunable laser with a shutter; SI units."""

    clock: Clock
    """Time base of waiting."""

    def set_wavelength(self, wavelength_m: float) -> None:
        """Start tuning to a wavelength in m; see :meth:`wait_settled`."""
        ...

    def set_power(self, power_w: float) -> None:
        """Set the power in W; raises LimitError before anything changes."""
        ...

    def set_light(self, on: bool) -> None:
        """Let light out, or close the shutter."""
        ...

    def wait_settled(self, deadline_s: float) -> None:
        """Wait on the clock until wavelength and power have settled; raises DeviceError after ``deadline_s``."""
        ...

    def make_safe(self) -> None:
        """Close the shutter; idempotent."""
        ...

    def close(self) -> None:
        """Make safe if this session changed the light, and release the link; never fails on a dead link."""
        ...


class PowerMeter(Protocol):
    """A multiport optical power meter; SI units, 0-based ports."""

    clock: Clock
    """Time base of the bench; a meter itself does not wait on it."""

    @property
    def port_count(self) -> int:
        """Number of ports."""
        ...

    def initialise(self, wavelength_m: float, averaging_time_s: float) -> None:
        """Put all ports into a known state: readings in W, automatic range, wavelength in m, averaging time in s."""
        ...

    def read_powers(self) -> PowerReading:
        """Read all ports at once."""
        ...

    def close(self) -> None:
        """Release the link; idempotent, never fails on a dead link."""
        ...


class Switch(Protocol):
    """An optical switch: light from an input port leaves at the output port connected with it; 0-based ports."""

    clock: Clock
    """Time base of waiting."""

    @property
    def input_count(self) -> int:
        """Number of input ports."""
        ...

    @property
    def output_count(self) -> int:
        """Number of output ports."""
        ...

    def connect(self, input_port: int, output_port: int) -> None:
        """Connect two ports, dropping what either was connected with, and return when light passes.

        Raises LimitError if a port does not exist (nothing was changed), DeviceError if the switch did not do it.
        """
        ...

    def disconnect(self, input_port: int) -> None:
        """Let no light pass from an input port, and return when none does; needed of switches before chip inputs only.

        Raises LimitError if the port does not exist (nothing was changed), DeviceError if the switch did not do it.
        """
        ...

    def connections(self) -> dict[int, int]:
        """Ask for the output port of each connected input port."""
        ...

    def close(self) -> None:
        """Release the link and leave the connections as they are; idempotent, never fails on a dead link."""
        ...
