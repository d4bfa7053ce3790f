"""Qontrol Q8iv heater drivers: a daisy chain of 8-channel modules on one serial line."""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from qcodes.instrument import ChannelTuple, InstrumentBaseKWArgs, InstrumentChannel
from qcodes.validators import Numbers
from typing_extensions import Unpack

from drivers._heater_limits import resistance_of
from drivers._instrument import LinkedInstrument
from drivers._link import Link
from drivers._parsing import Identity
from drivers._qontrol_chain import Pace, Q8ivChain
from drivers._qontrol_protocol import FIRMWARE, MODULE_ID, expect, explain_errors, parse_ok, q8iv_dialect
from drivers._ramp import CHANNELS_PER_MODULE
from drivers._serial_port import SerialPort
from drivers.protocols import SimulatedAs
from optinc_hw.errors import ConfigurationError, InstrumentError, LimitError, LinkError

_BAUDRATE = 115200
_SAFE_ATTEMPTS = 3


class Q8ivChannel(InstrumentChannel["QontrolQ8iv"]):
    """One heater channel.

    Parameters
    ----------
    parent
        The chain that the channel belongs to.
    name
        Name within the chain.
    index
        0-based index through the whole chain.
    """

    def __init__(self, parent: "QontrolQ8iv", name: str, index: int) -> None:
        super().__init__(parent, name)
        self.index = index
        self.voltage = self.add_parameter(
            "voltage",
            label=f"Heater {index} voltage",
            unit="V",
            vals=Numbers(),
            get_cmd=lambda: parent.read_voltage(index),
            set_cmd=lambda value: parent.set_voltages({index: value}),
            docstring="Control the voltage; setting ramps, getting measures (the modules do not tell setpoints).",
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


class QontrolQ8iv(LinkedInstrument):
    """A chain of Q8iv modules; implements :class:`drivers.protocols.HeaterBank`.

    Voltages are ramped, from the last set value if this session knows it, else from the measured one. Voltages that
    are read are measured values. Connecting only asks (``ID?``, ``NUPALL?``, ``VFULL?``, ``IFULL?``); closing ramps
    to 0 V if this session drove a heater.

    Parameters
    ----------
    name
        Name of the instrument.
    address
        Serial port or pyserial URL: ``/dev/ttyUSB0``, ``COM3``, ``socket://host:port``.
    modules
        Number of modules in the chain, 8 channels each; checked when connecting.
    timeout
        Time in s that a complete reply may take.
    ramp_step
        Largest step of a ramp in V.
    ramp_interval
        Time between two steps of a ramp in s.
    **kwargs
        ``metadata`` and ``label`` of the QCoDeS instrument.

    Raises
    ------
    LinkError
        If the port cannot be opened or nothing answers.
    IdentityError
        If the chain is not ``modules`` Q8iv modules.
    """

    simulated_as: ClassVar = SimulatedAs(
        kind="qontrol_q8iv", size_key="modules", default_size=None, channels_per_unit=CHANNELS_PER_MODULE
    )

    _chain: Q8ivChain | None = None

    def __init__(
        self,
        name: str,
        address: str,
        *,
        modules: int,
        timeout: float = 1.0,
        ramp_step: float = 1.0,
        ramp_interval: float = 1e-3,
        **kwargs: Unpack[InstrumentBaseKWArgs],
    ) -> None:
        if modules < 1:
            raise ConfigurationError(
                f"{name}: modules is {modules}; give the number of modules in the chain, 1 or more"
            )
        super().__init__(name, **kwargs)
        self.address = address
        self.ramp_step = ramp_step
        self.ramp_interval = ramp_interval
        self._modules = modules
        port = SerialPort(address, _BAUDRATE)
        self._attach(Link(port, q8iv_dialect(modules), owner=name, timeout=timeout, shared_line=True))
        channels = [Q8ivChannel(self, f"ch{index}", index) for index in range(self.channel_count)]
        self.channels = ChannelTuple(self, "channels", Q8ivChannel, channels)
        self.add_submodule("channels", self.channels)

    @property
    def channel_count(self) -> int:
        """Number of channels of the chain."""
        return self._modules * CHANNELS_PER_MODULE

    @property
    def module_ids(self) -> tuple[str, ...]:
        """Identities of the modules in the order of the chain, such as ``Q8iv-0001``."""
        return self._live_chain().module_ids

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
        self._live_chain().limits.set(self._checked_channel(channel), max_voltage, max_current, max_power)

    def set_voltages(self, values: Mapping[int, float]) -> None:
        """Ramp channels to target voltages, all together, and return when the targets are set.

        One VVEC goes out per module and step; channels whose last set value equals the target are left alone.
        The limits of all channels are checked first.

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
            If a module reported an error, perhaps one of an earlier command; a note says how far the ramp got.
        LinkError, ReplyError
            If the link misbehaved; a note says how far the ramp got.
        """
        chain = self._live_chain()
        with chain.link.lock:
            targets = chain.check_targets({self._checked_channel(channel): volts for channel, volts in values.items()})
            chain.ramp(targets, self._pace())
            self.check_errors()

    def read_voltages(self) -> NDArray[np.float64]:
        """Measure the voltages of all channels in one exchange.

        Returns
        -------
        (channel_count,) float64, V
        """
        chain = self._live_chain()
        with chain.link.lock:
            return np.array(chain.read_all("V"))

    def read_currents(self) -> NDArray[np.float64]:
        """Measure the currents of all channels in one exchange.

        Returns
        -------
        (channel_count,) float64, A
        """
        chain = self._live_chain()
        with chain.link.lock:
            return np.array(chain.read_all("I"))

    def read_voltage(self, channel: int) -> float:
        """Measure the voltage of one channel in V."""
        chain = self._live_chain()
        with chain.link.lock:
            return chain.read(self._checked_channel(channel), "V")

    def read_current(self, channel: int) -> float:
        """Measure the current of one channel in A."""
        chain = self._live_chain()
        with chain.link.lock:
            return chain.read(self._checked_channel(channel), "I")

    def nonzero_outputs(self, threshold: float = 0.02) -> dict[int, float]:
        """Measure which channels are above ``threshold`` V.

        Returns
        -------
        dict
            Measured V by channel; empty if everything is off.
        """
        return {channel: volts for channel, volts in enumerate(self.read_voltages().tolist()) if volts > threshold}

    def check_errors(self) -> None:
        """Raise DeviceError if a module has reported an error since the last exchange; sends nothing."""
        chain = self._live_chain()
        with chain.link.lock:
            events = chain.link.take_events()
            if events:
                chain.forget()
                raise chain.link.device_error(f"the instrument reported {explain_errors(self._modules, events)}")

    def make_safe(self) -> None:
        """Ramp all channels to 0 V and verify it; sends nothing if all are known to be at 0 V already.

        Errors that modules report meanwhile are logged and do not stop the ramp; a broken link is opened anew once.

        Raises
        ------
        InstrumentError
            If a channel could not be brought to 0 V (a LinkError if the link is dead).
        """
        chain = self._live_chain()
        link = chain.link
        with link.lock:
            if link.broken:
                self.reconnect()
            if not link.dirty and not chain.known.any():  # NaN, an unknown voltage, counts as true
                return
            attempt = 1
            while True:
                try:
                    chain.ramp_to_zero(self._pace())
                    return
                except InstrumentError as error:
                    chain.forget()
                    if link.broken or attempt == _SAFE_ATTEMPTS:
                        raise
                    self.log.warning("attempt %d to reach the safe state failed: %s", attempt, error)
                    attempt += 1

    def write_raw(self, cmd: str) -> None:
        """Send a command that is acknowledged with OK; it bypasses limits, so all set values become unknown."""
        chain = self._live_chain()
        with chain.link.lock:
            chain.driven = True
            chain.forget()
            chain.link.query(cmd, parse_ok)

    def _live_chain(self) -> Q8ivChain:
        if self._chain is None:
            raise LinkError("the instrument is closed; construct it again")
        return self._chain

    def _pace(self) -> Pace:
        return Pace(self._ramp_step, self._ramp_interval, self.clock)

    def _is_driven(self) -> bool:
        return self._chain is not None and self._chain.driven

    def _checked_channel(self, channel: int) -> int:
        if isinstance(channel, bool) or not isinstance(channel, int | np.integer):
            raise LimitError(f"{self.name}: channel {channel!r} is no integer; nothing was moved")
        if not 0 <= channel < self.channel_count:
            raise LimitError(
                f"{self.name}: there is no channel {channel}; the {self._modules} modules have channels 0 to "
                f"{self.channel_count - 1}. Nothing was moved"
            )
        return int(channel)

    def _identify(self) -> None:
        if self._chain is None:
            self._chain = Q8ivChain(self._live_link(), f"{self.name} at {self.address}", self._modules)
        else:
            self._chain.identify_again()

    def _ask_identity(self) -> Identity:
        link = self._live_link()
        with link.lock:
            module = link.query("ID?", expect(MODULE_ID, "identity like 'Q8iv-0001'"))
            firmware = link.query("FIRMWARE?", expect(FIRMWARE, "firmware like 'v2.4.1'"))
        return Identity("Qontrol", module[1], module[2], firmware[0])

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
