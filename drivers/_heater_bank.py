"""What drivers of heater banks share: channels, limits, ramps, safe state.

A new heater driver needs two classes. A :class:`drivers._heater_outputs.HeaterWire` knows the commands: how to read
one channel or all of them, how to set a group of channels, which channels one command can set, and, where the
instrument needs it, how to switch outputs on and how to see at the end of a ramp that nothing went wrong. A subclass
of :class:`HeaterBankInstrument` opens the link and hands the wire over::

    class MyBank(HeaterBankInstrument):
        simulated_as: ClassVar = SimulatedAs(kind="my_bank", size_key="channels", default_size=None)

        def __init__(self, name, address, *, channels, timeout=1.0, ramp_step=1.0, ramp_interval=1e-3, **kwargs):
            super().__init__(name, ramp_step=ramp_step, ramp_interval=ramp_interval, **kwargs)
            self._attach(Link(...))  # calls _identify(): ask who is there, with queries only
            self._add_outputs(MyWire(self._live_link(), channels), address)

        def _identify(self): ...
        def _ask_identity(self): ...

Everything else (limits before anything moves, ramps from a known start, what is known after an error, the safe state)
is here and in :class:`drivers._heater_outputs.HeaterOutputs`. A SCPI instrument also inherits from
:class:`drivers._scpi.ScpiInstrument`, as the second base.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from qcodes.instrument import ChannelTuple, InstrumentBaseKWArgs, InstrumentChannel
from qcodes.validators import Numbers
from typing_extensions import Unpack

from drivers._heater_limits import resistance_of
from drivers._heater_outputs import HeaterOutputs, HeaterWire, Pace
from drivers._instrument import LinkedInstrument
from optinc_hw.errors import InstrumentError, LimitError, LinkError

_SAFE_ATTEMPTS = 3
_READ_BACK_MARGIN = 0.01
_INTEGERS = (int, np.integer)
_PLAIN = frozenset((int,))


class HeaterChannel(InstrumentChannel["HeaterBankInstrument"]):
    """One heater channel.

    Parameters
    ----------
    parent
        The bank that the channel belongs to.
    name
        Name within the bank.
    index
        0-based index within the bank.
    """

    def __init__(self, parent: "HeaterBankInstrument", name: str, index: int) -> None:
        super().__init__(parent, name)
        self.index = index
        self.voltage = self.add_parameter(
            "voltage",
            label=f"Heater {index} voltage",
            unit="V",
            vals=Numbers(*parent.settable_voltages()),
            get_cmd=lambda: parent.read_voltage(index),
            set_cmd=lambda value: parent.set_voltages({index: value}),
            docstring="Control the voltage; setting ramps, getting asks the instrument.",
        )
        self.current = self.add_parameter(
            "current",
            label=f"Heater {index} current",
            unit="A",
            vals=Numbers(),
            get_cmd=lambda: parent.read_current(index),
            docstring="Measure the current.",
        )
        self.power = self.add_parameter(
            "power",
            label=f"Heater {index} power",
            unit="W",
            vals=Numbers(),
            get_cmd=lambda: parent.read_voltage(index) * parent.read_current(index),
            snapshot_value=False,
            docstring="Measure the electrical power, the product of voltage and current.",
        )
        self.resistance = self.add_parameter(
            "resistance",
            label=f"Heater {index} resistance",
            unit="ohm",
            vals=Numbers(),
            get_cmd=lambda: resistance_of(parent.read_voltage(index), parent.read_current(index)),
            snapshot_value=False,
            docstring="Measure the resistance; infinite when no more current flows than the read-back's offset.",
        )


class HeaterBankInstrument(LinkedInstrument):
    """A multichannel voltage source for heaters; implements :class:`drivers.protocols.HeaterBank`.

    Voltages are ramped, from the last set value if this session knows it, else from the one that the instrument
    tells. Connecting only asks; closing ramps to 0 V if this session drove a heater.

    Parameters
    ----------
    name
        Name of the instrument.
    ramp_step
        Largest step of a ramp in V.
    ramp_interval
        Time between two steps of a ramp in s.
    **kwargs
        ``metadata`` and ``label`` of the QCoDeS instrument.

    Raises
    ------
    LimitError
        If a step or interval is not possible.
    """

    # A class-level default, because QCoDeS strips all attributes of an instance when it closes it.
    _outputs: HeaterOutputs | None = None

    def __init__(
        self, name: str, *, ramp_step: float, ramp_interval: float, **kwargs: Unpack[InstrumentBaseKWArgs]
    ) -> None:
        super().__init__(name, **kwargs)
        self.ramp_step = ramp_step
        self.ramp_interval = ramp_interval

    def _add_outputs(self, wire: HeaterWire, address: str) -> None:
        """Take over the wire protocol of the instrument at ``address`` and make the channels."""
        self._outputs = HeaterOutputs(wire, self._live_link(), f"{self.name} at {address}")
        self._channel_set = frozenset(range(wire.channel_count))
        channels = [HeaterChannel(self, f"ch{index}", index) for index in range(wire.channel_count)]
        self.channels = ChannelTuple(self, "channels", HeaterChannel, channels)
        self.add_submodule("channels", self.channels)

    def settable_voltages(self) -> tuple[float, float]:
        """Lowest and highest voltage in V that a channel's parameter takes: full scale, and what read-back may add.

        Limits are checked more closely, with a message of what to do, before anything moves.
        """
        wire = self._live_outputs().wire
        margin = _READ_BACK_MARGIN * wire.full_voltage
        return min(wire.min_voltage, 0.0) - margin, wire.full_voltage + margin

    @property
    def channel_count(self) -> int:
        """Number of channels."""
        return self._live_outputs().wire.channel_count

    @property
    def ramp_step(self) -> float:
        """Largest step of a ramp in V, above 0."""
        return self._ramp_step

    @ramp_step.setter
    def ramp_step(self, volts: float) -> None:
        if not 0.0 < volts < np.inf:
            raise LimitError(f"{self.name}: ramp_step cannot be {volts} V; give a value above 0 V")
        self._ramp_step = float(volts)

    @property
    def ramp_interval(self) -> float:
        """Time between two steps of a ramp in s, on the instrument's clock, 0 or more."""
        return self._ramp_interval

    @ramp_interval.setter
    def ramp_interval(self, seconds: float) -> None:
        if not 0.0 <= seconds < np.inf:
            raise LimitError(f"{self.name}: ramp_interval cannot be {seconds} s; give 0 s or more")
        self._ramp_interval = float(seconds)

    def set_channel_limits(
        self,
        channel: int,
        *,
        max_voltage: float | None = None,
        max_current: float | None = None,
        max_power: float | None = None,
    ) -> None:
        """Set the software limits of a channel in V, A and W; None leaves a limit as it is.

        The voltage limit holds exactly. Current and power follow from the heater's resistance, which is measured
        on the first step of the first move that could exceed them; if the target would, the step is taken back.
        As resistance grows with power, predictions get a margin of 10 %.

        Raises
        ------
        LimitError
            If the channel does not exist, or a limit is not positive or beyond full scale.
        """
        self._live_outputs().limits.set(self._checked_channel(channel), max_voltage, max_current, max_power)

    def set_voltages(self, values: Mapping[int, float]) -> None:
        """Ramp channels to target voltages, all together, and return when the targets are set.

        A step takes as few commands as the instrument allows; channels whose last set value equals the target are
        left alone. The limits of all channels are checked first.

        Parameters
        ----------
        values
            Target in V by channel.

        Raises
        ------
        LimitError
            If a channel does not exist or a target exceeds a limit. Nothing was moved, or, where a resistance had
            to be measured first, one step was made and taken back.
        DeviceError
            If the instrument reported an error, perhaps one of an earlier command; a note says how far the ramp got.
        LinkError, ReplyError
            If the link misbehaved; a note says how far the ramp got.
        """
        outputs = self._live_outputs()
        with outputs.link.lock:
            # Most channels are plain integers, which need no look at each; True and 1.0 are equal to one, but are none.
            if not (_PLAIN.issuperset(map(type, values)) and self._channel_set.issuperset(values)):
                values = {self._checked_channel(channel): volts for channel, volts in values.items()}
            outputs.ramp(outputs.check_targets(values), self._pace())

    def declare_voltages(self, values: Mapping[int, float]) -> None:
        """Say which voltages are on outputs whose instrument cannot tell them; nothing is sent.

        Ramps start from there. Where an instrument tells its voltages, ramps start from what it tells, and there is
        nothing to declare.

        Parameters
        ----------
        values
            Voltage in V by channel.

        Raises
        ------
        LimitError
            If a channel does not exist, or a voltage is not finite or beyond the hardware's range, or the instrument
            tells its voltages itself.
        """
        outputs = self._live_outputs()
        wire = outputs.wire
        if wire.tells_voltage:
            raise LimitError(f"{self.name}: voltages are read from the instrument and cannot be declared")
        with outputs.link.lock:
            declared = {self._checked_channel(channel): float(volts) for channel, volts in values.items()}
            for channel, volts in declared.items():
                if not wire.min_voltage <= volts <= wire.full_voltage:
                    raise LimitError(
                        f"{self.name}: channel {channel} cannot be at {volts:g} V; the hardware's range is "
                        f"{wire.min_voltage:g} V to {wire.full_voltage:g} V"
                    )
            for channel, volts in declared.items():
                outputs.known[channel] = volts

    def read_voltages(self) -> NDArray[np.float64]:
        """Read the voltages of all channels in as few exchanges as the instrument allows.

        Returns
        -------
        (channel_count,) float64, V
            Measured values, or setpoints where the instrument measures none; NaN where it tells neither and this
            session has set nothing.
        """
        outputs = self._live_outputs()
        with outputs.link.lock:
            return np.array(outputs.read_all("V"))

    def read_currents(self) -> NDArray[np.float64]:
        """Measure the currents of all channels in as few exchanges as the instrument allows.

        Returns
        -------
        (channel_count,) float64, A
        """
        outputs = self._live_outputs()
        with outputs.link.lock:
            return np.array(outputs.read_all("I"))

    def voltages_last_set(self) -> NDArray[np.float64]:
        """Return the voltages last set, (channel_count,) in V, NaN where they are not known for sure; asks nothing."""
        outputs = self._live_outputs()
        with outputs.link.lock:
            outputs.doubt_after_mishaps()
            return np.array(outputs.known)

    def read_voltage(self, channel: int) -> float:
        """Read the voltage of one channel in V; see :meth:`read_voltages`."""
        outputs = self._live_outputs()
        with outputs.link.lock:
            return outputs.read("V", self._checked_channel(channel))

    def read_current(self, channel: int) -> float:
        """Measure the current of one channel in A."""
        outputs = self._live_outputs()
        with outputs.link.lock:
            return outputs.read("I", self._checked_channel(channel))

    def nonzero_outputs(self, threshold: float = 0.02) -> dict[int, float]:
        """Find out which channels are more than ``threshold`` V away from 0 V.

        Returns
        -------
        dict
            Voltage in V by channel, NaN if it is not known; empty if everything is off.
        """
        voltages = enumerate(self.read_voltages().tolist())
        return {channel: volts for channel, volts in voltages if not abs(volts) <= threshold}

    def make_safe(self) -> None:
        """Ramp all channels to 0 V and verify it; sends no voltage if all are known to be at 0 V already.

        Errors that the instrument reports of single channels are logged and do not stop the ramp; a broken link is
        opened anew once.

        Raises
        ------
        InstrumentError
            If a channel could not be brought to 0 V (a LinkError if the link is dead).
        """
        outputs = self._live_outputs()
        link = outputs.link
        with link.lock:
            if link.broken:
                self.reconnect()
            outputs.doubt_after_mishaps()
            attempt = 1
            while True:
                try:
                    if link.dirty or any(outputs.known):  # NaN, an unknown voltage, counts as true
                        outputs.ramp_to_zero(self._pace())
                    outputs.wire.disable()
                    return
                except InstrumentError as error:
                    outputs.forget()
                    if link.broken or attempt == _SAFE_ATTEMPTS:
                        raise
                    self.log.warning("attempt %d to reach the safe state failed: %s", attempt, error)
                    attempt += 1

    def reconnect(self) -> None:
        """Open the link anew and check the identity again; set voltages are not taken for granted any more.

        Raises
        ------
        LinkError
            If the instrument cannot be reached.
        IdentityError
            If another instrument answers.
        """
        link = self._live_link()
        with link.lock:
            self._live_outputs().forget()
            super().reconnect()

    def write_raw(self, cmd: str) -> None:
        """Send a command; it bypasses limits, so all set values become unknown."""
        outputs = self._live_outputs()
        with outputs.link.lock:
            outputs.driven = True
            outputs.forget()
            self._send_raw(cmd)

    def _send_raw(self, cmd: str) -> None:
        """Send a command as the instrument acknowledges it; without an acknowledgement unless overridden."""
        self._live_link().write(cmd)

    def _live_outputs(self) -> HeaterOutputs:
        if self._outputs is None:
            raise LinkError("the instrument is closed; construct it again")
        return self._outputs

    def _pace(self) -> Pace:
        return Pace(self._ramp_step, self._ramp_interval, self.clock)

    def _is_driven(self) -> bool:
        return self._outputs is not None and self._outputs.driven

    def _checked_channel(self, channel: int) -> int:
        if isinstance(channel, bool) or not isinstance(channel, _INTEGERS):
            raise LimitError(f"{self.name}: channel {channel!r} is no integer; nothing was moved")
        if not 0 <= channel < self.channel_count:
            raise LimitError(
                f"{self.name}: there is no channel {channel}; the channels are 0 to {self.channel_count - 1}. "
                f"Nothing was moved"
            )
        return int(channel)

    def _snapshot_complete(self) -> bool:
        caches = [self.IDN.cache]
        caches += [cache for channel in self.channels for cache in (channel.voltage.cache, channel.current.cache)]
        return all(cache.valid for cache in caches)

    def _refresh(self) -> None:
        self.IDN.get()
        for channel, volts, amperes in zip(
            self.channels, self.read_voltages().tolist(), self.read_currents().tolist(), strict=True
        ):
            channel.voltage.cache.set(volts)
            channel.current.cache.set(amperes)
