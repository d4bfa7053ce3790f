"""Limits of heater channels: voltage for sure, current and power by the measured resistance."""

import math
from collections.abc import Callable, Mapping, Sequence

from optinc_hw.errors import LimitError

_MARGIN = 1.1
"""Resistance grows with power, so a prediction from a cooler heater may read up to this factor too high."""
_LEARN_V = 0.5
_OPEN_A = 50e-6
_IMPLAUSIBLE = 2.0


def resistance_of(voltage: float, current: float) -> float:
    """Resistance in ohm from V and A; infinite when no more current than the read-back's offset flows.

    NaN, for a reading out of range, gives NaN.
    """
    if math.isnan(current):
        return math.nan
    return voltage / current if current > _OPEN_A else math.inf


def plausible(parse: Callable[[str], float], full: float, unit: str) -> Callable[[str], float]:
    """Make a parser out of ``parse`` that refuses values beyond twice full scale: no hardware measures them."""

    def parse_plausible(text: str) -> float:
        value = parse(text)
        if abs(value) > _IMPLAUSIBLE * full:
            raise ValueError(f"{text!r} is more than {_IMPLAUSIBLE:g} times full scale ({full:g} {unit})")
        return value

    return parse_plausible


class HeaterLimits:
    """Per-channel limits of one heater driver.

    Parameters
    ----------
    owner
        Name of the instrument, for messages.
    count
        Number of channels.
    full_voltage, full_current
        Full scale of the hardware in V and A, the initial limits.
    """

    def __init__(self, owner: str, count: int, full_voltage: float, full_current: float) -> None:
        self.full_voltage = full_voltage
        self.full_current = full_current
        self._owner = owner
        self._max_voltage = [full_voltage] * count
        self._max_current = [full_current] * count
        self._max_power = [full_voltage * full_current] * count
        self._resistance = [math.nan] * count
        self._load_limited = False
        """Whether a channel ever got a limit of current or power below full scale."""

    def set(self, channel: int, max_voltage: float | None, max_current: float | None, max_power: float | None) -> None:
        """Set limits of one channel in V, A and W; None leaves a limit as it is.

        Raises
        ------
        LimitError
            If a limit is not positive or beyond full scale; then no limit changes.
        """
        full_power = self.full_voltage * self.full_current
        checked = (
            (self._max_voltage, "max_voltage", max_voltage, self.full_voltage, "V"),
            (self._max_current, "max_current", max_current, self.full_current, "A"),
            (self._max_power, "max_power", max_power, full_power, "W"),
        )
        for _, name, value, full, unit in checked:
            if value is not None and not 0.0 < value <= full * (1.0 + 1e-9):
                raise LimitError(
                    f"{self._owner}: {name} of channel {channel} cannot be {value:g} {unit}; give a value above 0 and "
                    f"up to full scale, {full:g} {unit}"
                )
        for limits, _, value, _, _ in checked:
            if value is not None:
                limits[channel] = value
        self._load_limited |= max_current is not None or max_power is not None

    def max_voltage(self, channel: int) -> float:
        """Voltage limit of a channel in V."""
        return self._max_voltage[channel]

    def breached(self, voltages: Mapping[int, float]) -> list[int]:
        """Return the channels whose voltage in V may break a limit, as far as is known; quick, for many channels."""
        highest, resistance = self._max_voltage, self._resistance
        max_current, max_power = self._max_current, self._max_power
        found = []
        for channel, voltage in voltages.items():
            # A resistance that is not known (NaN) proves no limit to be exceeded.
            current = voltage / resistance[channel]
            if (
                not 0.0 <= voltage <= highest[channel]
                or current > _MARGIN * max_current[channel]
                or voltage * current > _MARGIN * max_power[channel]
            ):
                found.append(channel)
        return found

    def check_voltage(self, channel: int, voltage: float) -> None:
        """Raise LimitError if ``voltage`` in V is negative, not finite, or above the channel's limit."""
        if not 0.0 <= voltage <= self._max_voltage[channel]:
            raise LimitError(
                f"{self._owner}: voltage of channel {channel} cannot be {voltage:g} V; the limits are 0 V and "
                f"{self._max_voltage[channel]:g} V. Nothing was moved; lower the target or raise the channel's limit"
            )

    def learn(self, voltage: Sequence[float], current: Sequence[float]) -> None:
        """Note resistances from voltages (V; NaN where unknown) and currents (A) of all channels."""
        for channel, (volts, amperes) in enumerate(zip(voltage, current, strict=True)):
            if volts >= _LEARN_V:
                self._resistance[channel] = resistance_of(volts, amperes)

    def unproven(self, voltages: Mapping[int, float]) -> list[int]:
        """Return the channels whose voltage in V could exceed the current or power limit for all that is known."""
        if not self._load_limited:
            return []
        unknown = [channel for channel in voltages if math.isnan(self._resistance[channel])]
        return [channel for channel in unknown if self._could_exceed(channel, voltages[channel])]

    def _could_exceed(self, channel: int, voltage: float) -> bool:
        limited = (
            self._max_current[channel] < self.full_current or self._max_power[channel] < voltage * self.full_current
        )
        return limited and voltage > 0.0

    def ripe(self, voltage: float, target: float) -> bool:
        """Tell whether ``voltage``, on the way to ``target`` (V), is enough to measure a resistance at."""
        return voltage >= min(_LEARN_V, target)

    def check_load(self, channel: int, voltage: float, resistance: float | None = None) -> None:
        """Raise LimitError if ``voltage`` would exceed the channel's current or power limit.

        The learnt resistance is used unless one in ohm is given; without either nothing can be said.
        """
        ohms = self._resistance[channel] if resistance is None else resistance
        current = voltage / ohms
        power = voltage * current
        max_current, max_power = self._max_current[channel], self._max_power[channel]
        if current > _MARGIN * max_current:
            raise self._too_much(channel, voltage, ohms, f"current of {current:.4g} A", f"{max_current:g} A")
        if power > _MARGIN * max_power:
            raise self._too_much(channel, voltage, ohms, f"power of {power:.4g} W", f"{max_power:g} W")

    def _too_much(self, channel: int, voltage: float, ohms: float, load: str, limit: str) -> LimitError:
        return LimitError(
            f"{self._owner}: {voltage:g} V on channel {channel}, whose resistance is {ohms:.1f} ohm, would give a "
            f"{load}, above the limit of {limit}; lower the target or raise the channel's limit"
        )
