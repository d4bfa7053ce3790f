"""A heater driver of one's own in one file: what a bench needs of it is `drivers.protocols.HeaterBank`.

The instrument is a voltage source that takes lines such as ``V3=1.25`` (answer ``OK``), ``V3?`` (answer ``1.2501 V``)
and ``I3?`` (answer ``1.0432 mA``), ended by a line feed.  Example 04 runs this driver on a simulated bench.
"""

import threading
from collections.abc import Mapping

import numpy as np
import serial
from numpy.typing import NDArray
from qcodes.instrument import Instrument

from optinc_hw.clock import Clock, WallClock
from optinc_hw.errors import DeviceError, LimitError, LinkError, LinkTimeoutError, OptincError, ReplyError


class LabHeaters(Instrument):
    """Voltage source for heaters; connecting only asks, closing ramps to 0 V what this session drove."""

    def __init__(self, name: str, address: str, *, channels: int, timeout: float = 1.0) -> None:
        super().__init__(name)
        self.clock: Clock = WallClock()  # the bench puts its own clock here
        self.ramp_step, self.ramp_interval = 1.0, 1e-3  # V and s; the bench sets those of chip.yaml
        self.channel_count = channels
        self._max_voltage = np.full(channels, 10.0)
        self._max_current = np.full(channels, 20e-3)
        self._max_power = np.full(channels, 0.1)
        self._set = np.full(channels, np.nan)  # V; NaN: not known to this session
        self._driven = False
        self._lock = threading.RLock()
        try:
            self._port = serial.serial_for_url(address, baudrate=115200, timeout=timeout, write_timeout=timeout)
        except (OSError, ValueError) as error:
            raise LinkError(f"{name}: {address} cannot be opened ({error}); check address, cable and power") from error

    def _ask(self, command: str) -> str:
        """One exchange; what arrived unasked is thrown away first, so a late answer is not taken for this one."""
        with self._lock:
            try:
                self._port.reset_input_buffer()
                self._port.write(command.encode("ascii") + b"\n")
                reply = self._port.readline()
            except OSError as error:
                raise LinkError(f"{self.name}: the link broke at {command!r} ({error}); reconnect") from error
        if not reply.endswith(b"\n"):
            raise LinkTimeoutError(f"{self.name}: no complete answer to {command!r}, only {reply!r}")
        return reply.decode("ascii", "replace").strip()

    def _measure(self, quantity: str, channel: int, unit: str) -> float:
        reply = self._ask(f"{quantity}{channel}?")
        try:
            number, found = reply.split()
            if found != unit:
                raise ValueError(found)
            return float(number)
        except ValueError as error:
            raise ReplyError(f"{self.name}: {reply!r} is no answer in {unit} to {quantity}{channel}?") from error

    def get_idn(self) -> dict[str, str | None]:
        """Who answers; the bench compares `serial` with chip.yaml if that states one."""
        model, _, serial_number = self._ask("ID?").partition("-")
        return {"vendor": "Lab", "model": model, "serial": serial_number, "firmware": None}

    def set_channel_limits(
        self,
        channel: int,
        *,
        max_voltage: float | None = None,
        max_current: float | None = None,
        max_power: float | None = None,
    ) -> None:
        """Take the limits of chip.yaml in V, A and W; None leaves a limit as it is."""
        for limits, value in (
            (self._max_voltage, max_voltage),
            (self._max_current, max_current),
            (self._max_power, max_power),
        ):
            if value is not None:
                limits[channel] = value

    def read_voltages(self) -> NDArray[np.float64]:
        """Measure all voltages in V."""
        return np.array([self._measure("V", channel, "V") for channel in range(self.channel_count)])

    def read_currents(self) -> NDArray[np.float64]:
        """Measure all currents in A."""
        return np.array([1e-3 * self._measure("I", channel, "mA") for channel in range(self.channel_count)])

    def nonzero_outputs(self, threshold: float = 0.02) -> dict[int, float]:
        """Channels that carry more than `threshold` V, with their measured voltage."""
        return {channel: volts for channel, volts in enumerate(self.read_voltages().tolist()) if volts > threshold}

    def set_voltages(self, values: Mapping[int, float]) -> None:
        """Check all targets (V), then ramp the channels together."""
        for channel, volts in values.items():
            if not 0.0 <= volts <= self._max_voltage[channel]:
                raise LimitError(
                    f"{self.name}: {volts:g} V on channel {channel} is not within 0 V and "
                    f"{self._max_voltage[channel]:g} V; nothing was moved"
                )
        with self._lock:
            start = {channel: self._present(channel) for channel in values}
            span = max((abs(volts - start[c]) for c, volts in values.items()), default=0.0)
            steps = max(1, int(np.ceil(span / self.ramp_step)))
            for step in range(1, steps + 1):
                if step > 1:
                    self.clock.sleep(self.ramp_interval)
                for channel, volts in values.items():
                    self._send(channel, start[channel] + (volts - start[channel]) * step / steps)

    def _present(self, channel: int) -> float:
        """Voltage last set, or else the measured one; noise around 0 V must not become a negative setting."""
        known = float(self._set[channel])
        return known if np.isfinite(known) else max(0.0, self._measure("V", channel, "V"))

    def _send(self, channel: int, volts: float) -> None:
        before = self._present(channel)
        self._order(channel, volts)
        current = 1e-3 * self._measure("I", channel, "mA")
        if current > self._max_current[channel] or volts * current > self._max_power[channel]:
            self._order(channel, min(before, volts))
            raise DeviceError(
                f"{self.name}: {volts:g} V on channel {channel} draws {1e3 * current:g} mA, beyond its limit of "
                f"current or power; taken back to {before:g} V"
            )

    def _order(self, channel: int, volts: float) -> None:
        self._driven = True
        self._set[channel] = np.nan  # until the instrument has acknowledged it
        reply = self._ask(f"V{channel}={volts:.5f}")
        if reply != "OK":
            raise ReplyError(f"{self.name}: V{channel}={volts:.5f} was answered with {reply!r}, not OK")
        self._set[channel] = volts

    def make_safe(self) -> None:
        """Ramp everything to 0 V."""
        self.set_voltages(dict.fromkeys(range(self.channel_count), 0.0))

    def close(self) -> None:
        """Make safe what this session drove, and let go; never fails on a dead link."""
        if hasattr(self, "_port") and self._port.is_open:
            try:
                if self._driven:
                    self.make_safe()
            except OptincError as error:
                self.log.error("%s may not be at 0 V after closing: %s", self.name, error)
            finally:
                self._port.close()
        super().close()
