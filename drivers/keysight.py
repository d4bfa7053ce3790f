"""Keysight N7744A/N7745A (and N7744C/N7745C) multiport optical power meters."""

import math
import re
import struct
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from qcodes.instrument import ChannelTuple, InstrumentBaseKWArgs, InstrumentChannel
from qcodes.validators import Numbers
from typing_extensions import Unpack

from drivers._parsing import OVER_RANGE, parse_flag, parse_number, parse_reading
from drivers._scpi import ScpiInstrument
from drivers.protocols import PowerReading, SimulatedAs
from optinc_hw.errors import ConfigurationError, IdentityError, LimitError

_MODEL = re.compile(r"N774[45][AC]")
_IMPLAUSIBLE_W = 0.1
"""Ten times what these meters can take; a number beyond is a level in dBm or nonsense."""
_SETTING_TOLERANCE = 1e-6


class N7745APort(InstrumentChannel["KeysightN7745A"]):
    """One port.

    Parameters
    ----------
    parent
        The meter that the port belongs to.
    name
        Name within the meter.
    index
        0-based index; the instrument itself counts from 1.
    """

    def __init__(self, parent: "KeysightN7745A", name: str, index: int) -> None:
        super().__init__(parent, name)
        self.index = index
        self.power = self.add_parameter(
            "power",
            label=f"Port {index} power",
            unit="W",
            vals=Numbers(),
            get_cmd=lambda: parent.read_power(index),
            snapshot_value=False,
            docstring="Measure the optical power; NaN if the reading is not valid.",
        )
        self.wavelength = self.add_parameter(
            "wavelength",
            label=f"Port {index} wavelength",
            unit="m",
            vals=Numbers(min_value=100e-9, max_value=10e-6),
            get_cmd=lambda: parent.ask_setting(index, "wav"),
            set_cmd=lambda value: parent.apply_setting(index, "wav", value),
            docstring="Control the wavelength that the power is calculated for.",
        )
        self.averaging_time = self.add_parameter(
            "averaging_time",
            label=f"Port {index} averaging time",
            unit="s",
            vals=Numbers(min_value=1e-6, max_value=1e3),
            get_cmd=lambda: parent.ask_setting(index, "atim"),
            set_cmd=lambda value: parent.apply_setting(index, "atim", value),
            docstring="Control the averaging time.",
        )


class KeysightN7745A(ScpiInstrument):
    """Multiport power meter; implements :class:`drivers.protocols.PowerMeter`.

    Connecting only asks (``*IDN?``, ``read:pow:all:conf?``). Call :meth:`initialise` before measuring: until then
    the meter keeps whatever unit, range and trigger mode it had, and a unit other than W is refused.

    Parameters
    ----------
    name
        Name of the instrument.
    address
        VISA resource, such as ``TCPIP0::192.168.1.101::5025::SOCKET``.
    ports
        Number of ports; checked when connecting.
    timeout
        Time in s that a complete reply may take, beyond the averaging time.
    visalib
        pyvisa library.
    **kwargs
        ``metadata`` and ``label`` of the QCoDeS instrument.

    Raises
    ------
    LinkError
        If the meter cannot be reached or does not answer.
    IdentityError
        If something else answers, or the number of ports is different.
    """

    simulated_as: ClassVar = SimulatedAs(kind="keysight_n7745a", size_key="ports", default_size=8)

    def __init__(
        self,
        name: str,
        address: str,
        *,
        ports: int = 8,
        timeout: float = 2.0,
        visalib: str = "@py",
        **kwargs: Unpack[InstrumentBaseKWArgs],
    ) -> None:
        if ports < 1:
            raise ConfigurationError(f"{name}: ports is {ports}; give the number of ports of the meter, 1 or more")
        super().__init__(name, **kwargs)
        self.address = address
        self._ports = ports
        self._in_watts = False
        self._attach(self._open_link(address, visalib, b"\n", timeout))
        ports_list = [N7745APort(self, f"ch{index}", index) for index in range(ports)]
        self.channels = ChannelTuple(self, "channels", N7745APort, ports_list)
        self.add_submodule("channels", self.channels)
        self.averaging_time = self.add_parameter(
            "averaging_time",
            label="Averaging time",
            unit="s",
            vals=Numbers(min_value=1e-6, max_value=1e3),
            get_cmd=lambda: max(port.averaging_time.get() for port in self.channels),
            set_cmd=self._set_averaging_time,
            docstring="Control the averaging time of all ports; getting tells the longest.",
        )

    @property
    def port_count(self) -> int:
        """Number of ports."""
        return self._ports

    def initialise(self, wavelength_m: float, averaging_time_s: float) -> None:
        """Make all ports measure anew at every reading, in W, with automatic range, and verify the settings.

        Parameters
        ----------
        wavelength_m
            Wavelength of the light in m.
        averaging_time_s
            Averaging time in s.

        Raises
        ------
        LimitError
            If an argument is not positive and finite; nothing was sent.
        DeviceError
            If the meter refuses a setting or silently did not take it.
        """
        self._check_positive("wav", wavelength_m)
        self._check_positive("atim", averaging_time_s)
        with self._live_link().lock:
            for port in self.channels:
                slot = port.index + 1
                self._write_checked(
                    f"sens{slot}:pow:unit 1",
                    f"sens{slot}:pow:rang:auto 1",
                    # In continuous mode a reading repeats an older one until its averaging time is over.
                    f"init{slot}:cont 0",
                )
                self.apply_setting(port.index, "wav", wavelength_m)
                self.apply_setting(port.index, "atim", averaging_time_s)
            self._check_units()

    def read_powers(self) -> PowerReading:
        """Read all ports at once, in one exchange that takes the averaging time.

        Raises
        ------
        DeviceError
            If a port does not measure in W, for example because somebody switched the unit at the front panel.
        LinkError, ReplyError
            If the link misbehaved.
        """
        link = self._live_link()
        with link.lock:
            if not self._in_watts:
                self._check_units()
            raw = link.query_block("read:pow:all?", self._parse_powers, extra_time=self._longest_averaging())
            return self._judge(raw)

    def read_power(self, index: int) -> float:
        """Read one port (0-based) in W; NaN if the reading is not valid."""
        link = self._live_link()
        command = f"read{self._slot(index)}:pow?"
        with link.lock:
            if not self._in_watts:
                self._check_units()
            value = link.query(command, parse_reading, extra_time=self._longest_averaging())
            return float(self._judge(np.array([value])).power_w[0])

    def ask_setting(self, index: int, setting: str) -> float:
        """Ask for ``wav`` (in m) or ``atim`` (in s) of a port (0-based)."""
        return self._live_link().query(f"sens{self._slot(index)}:pow:{setting}?", parse_number)

    def apply_setting(self, index: int, setting: str, value: float) -> None:
        """Set ``wav`` (in m) or ``atim`` (in s) of a port (0-based) and verify it.

        Raises
        ------
        LimitError
            If the value is not positive and finite; nothing was sent.
        DeviceError
            If the meter refuses the value or silently did not take it.
        """
        self._check_positive(setting, value)
        with self._live_link().lock:
            command = f"sens{self._slot(index)}:pow:{setting}"
            self._write_checked(f"{command} {value:.8E}")
            actual = self.ask_setting(index, setting)
            if abs(actual - value) > _SETTING_TOLERANCE * value:
                raise self._live_link().device_error(
                    f"'{command}' is {actual:g} although {value:g} was set; choose a value that the meter supports"
                )
            port = self.channels[index]
            (port.wavelength if setting == "wav" else port.averaging_time).cache.set(value)

    def make_safe(self) -> None:
        """Do nothing: a meter has no outputs."""

    def _judge(self, raw: NDArray[np.float64]) -> PowerReading:
        """Flag what is no measurement; a number that no meter can measure makes the units suspect."""
        is_number = np.isfinite(raw) & (np.abs(raw) < OVER_RANGE)
        valid = is_number & (np.abs(raw) < _IMPLAUSIBLE_W)
        if np.any(is_number & ~valid):
            self._check_units()
        return PowerReading(np.where(valid, raw, np.nan), valid)

    def _check_units(self) -> None:
        link = self._live_link()
        self._in_watts = False
        for index in range(self._ports):
            if not link.query(f"sens{self._slot(index)}:pow:unit?", parse_flag):
                raise link.device_error(
                    f"port {index} measures in dBm; call initialise(), or switch the unit to W at the front panel"
                )
        self._in_watts = True

    def _longest_averaging(self) -> float:
        times = [port.averaging_time.cache.get() for port in self.channels]
        return float(max(times))

    def _set_averaging_time(self, seconds: float) -> None:
        with self._live_link().lock:
            for port in self.channels:
                port.averaging_time.set(seconds)

    def _check_positive(self, setting: str, value: float) -> None:
        if not 0.0 < value < math.inf:
            raise LimitError(f"{self.name}: '{setting}' cannot be {value}; give a positive number in SI units")

    def _slot(self, index: int) -> int:
        if not 0 <= index < self._ports:
            raise LimitError(f"{self.name}: there is no port {index}; the meter has ports 0 to {self._ports - 1}")
        return index + 1

    def _parse_powers(self, payload: bytes) -> NDArray[np.float64]:
        if len(payload) != 4 * self._ports:
            raise ValueError(f"{len(payload)} bytes are not {self._ports} numbers of 4 bytes")
        return np.frombuffer(payload, dtype="<f4").astype(np.float64)

    def _is_driven(self) -> bool:
        return False

    def _identify(self) -> None:
        self._in_watts = False
        self._check_identity(self.address, ("Keysight", "Agilent"), _MODEL)
        slots = self._live_link().query_block("read:pow:all:conf?", _parse_slots)
        if slots != [(index + 1, 1) for index in range(self._ports)]:
            raise IdentityError(
                f"{self.name} at {self.address}: the meter has ports (slot, channel) {slots}, but {self._ports} ports "
                f"are expected; correct the number of ports"
            )

    def _snapshot_complete(self) -> bool:
        caches = [self.IDN.cache]
        caches += [cache for port in self.channels for cache in (port.wavelength.cache, port.averaging_time.cache)]
        return all(cache.valid for cache in caches)

    def _refresh(self) -> None:
        self.IDN.get()
        for port in self.channels:
            port.wavelength.get()
            port.averaging_time.get()
        self.averaging_time.cache.set(self._longest_averaging())


def _parse_slots(payload: bytes) -> list[tuple[int, int]]:
    if len(payload) % 4:
        raise ValueError(f"{len(payload)} bytes are not pairs of slot and channel")
    return list(struct.iter_unpack("<HH", payload))
