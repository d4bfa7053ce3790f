"""Simulated Keysight N7744A/N7745A multiport power meter: SCPI over a socket, float32 blocks, real averaging time.

Where the programming guide is silent this simulator decides: a reading above the range is +3.4E38, a power of zero
or less has -3.4E38 dBm, and in continuous mode a fetch repeats its value until another averaging time has passed.
"""

import math
import struct
from bisect import bisect_left
from collections.abc import Mapping, Sequence

import numpy as np

from optinc_hw.clock import Clock
from optinc_hw.errors import ConfigurationError
from optinc_hw.units import dbm_to_watt, watt_to_dbm
from simulated_instruments._kind import InstrumentKind, InstrumentSpec, Surroundings
from simulated_instruments._scpi import (
    LENGTH_UNITS,
    SWITCH,
    TIME_UNITS,
    ErrorQueue,
    Handler,
    Quantity,
    Reply,
    ScpiError,
    ScpiInterpreter,
    block,
    choice,
    exponential,
    no_arguments,
    plain,
    query,
)
from simulated_instruments._session import LineSession
from simulated_instruments.hidden_chip import HiddenChip

DBM, WATT = 0, 1

_RANGES_DBM = [-30.0, -20.0, -10.0, 0.0, 10.0]
_FULL_SCALES_W = [dbm_to_watt(level) for level in _RANGES_DBM]
_TOP_RANGE = len(_RANGES_DBM) - 1
_ADC_STEPS = 2.0**18
_OVER_RANGE = float(np.finfo(np.float32).max)
_DARK_NOISE_W = 1e-9  # rms of a port with nothing before it
_WAVELENGTH = Quantity(1250e-9, 1650e-9, 1550e-9, LENGTH_UNITS)
_AVERAGING = Quantity(1e-6, 10.0, 0.2, TIME_UNITS)
_RANGE = Quantity(_RANGES_DBM[0], _RANGES_DBM[-1], 0.0, {"": 1.0, "DBM": 1.0})
_UNITS = {"0": DBM, "DBM": DBM, "1": WATT, "W": WATT, "WATT": WATT}


class SimulatedKeysightN7745A:
    """A power meter of up to 8 ports on the hidden chip's photodiodes.

    Parameters
    ----------
    name
        Name on the bench; seeds the noise of ports with nothing before them.
    ports
        Number of ports, 1..8; up to 4 make it an N7744A.
    chip
        The chip whose photodiodes are read.
    detectors
        Detector index per 0-based port; the other ports are dark.
    clock
        A triggered reading lets its averaging time pass on it.

    Raises
    ------
    ConfigurationError
        If the number of ports or a port is out of range.
    """

    def __init__(self, name: str, ports: int, chip: HiddenChip, detectors: Mapping[int, int], clock: Clock) -> None:
        if not 1 <= ports <= 8:
            raise ConfigurationError(f"simulated {name}: an N7745A has 1..8 ports, got {ports}")
        for port in detectors:
            if not 0 <= port < ports:
                raise ConfigurationError(f"simulated {name}: port {port} is not in 0..{ports - 1}")
        self.ports = ports
        self._chip = chip
        self._clock = clock
        self._rng = chip.generator(name)
        self._detectors = detectors
        self._block = struct.Struct(f"<{ports}f")
        self._errors = ErrorQueue('%+d,"%s"')
        self._interpreter = ScpiInterpreter(self._commands(), self._errors, b"\n")
        self._value_w = [0.0] * ports
        self._range_in_use = [_TOP_RANGE] * ports
        self._reset()

    def open_session(self) -> LineSession:
        """Return a session for a new client."""
        return self._interpreter.open_session()

    def _reset(self) -> None:
        ports = self.ports
        self._unit = [DBM] * ports
        self._wavelength_m = [_WAVELENGTH.default] * ports
        self._averaging_s = [_AVERAGING.default] * ports
        self._auto_range = [True] * ports
        self._range = [_TOP_RANGE] * ports
        self._continuous = [True] * ports
        self._next_value_at = [-math.inf] * ports  # continuous: when the present value is outdated
        self._due: list[float | None] = [None] * ports  # triggered and not fetched yet: when the averaging ends

    def _commands(self) -> Mapping[str, Handler]:
        return {
            "READ#[:CHANnel#][:SCALar]:POWer[:DC]?": lambda suffixes, arguments: self._one(
                suffixes, arguments, trigger=True
            ),
            "FETCh#[:CHANnel#][:SCALar]:POWer[:DC]?": lambda suffixes, arguments: self._one(
                suffixes, arguments, trigger=False
            ),
            "READ#[:SCALar]:POWer[:DC]:ALL?": query(lambda: self._all_ports(trigger=True)),
            "FETCh#[:SCALar]:POWer[:DC]:ALL?": query(lambda: self._all_ports(trigger=False)),
            "READ#[:SCALar]:POWer[:DC]:ALL:CONFig?": query(self._configuration),
            "FETCh#[:SCALar]:POWer[:DC]:ALL:CONFig?": query(self._configuration),
            "SENSe#[:CHANnel#]:POWer:WAVelength": self._set_wavelength,
            "SENSe#[:CHANnel#]:POWer:WAVelength?": self._get_wavelength,
            "SENSe#[:CHANnel#]:POWer:WAVelength:ALL": plain(self._set_all_wavelengths),
            "SENSe#[:CHANnel#]:POWer:UNIT": self._set_unit,
            "SENSe#[:CHANnel#]:POWer:UNIT?": self._get_unit,
            "SENSe#:POWer:UNIT:ALL:CSV?": query(lambda: ",".join(map(str, self._unit))),
            "SENSe#[:CHANnel#]:POWer:RANGe[:UPPer]": self._set_range,
            "SENSe#[:CHANnel#]:POWer:RANGe[:UPPer]?": self._get_range,
            "SENSe#[:CHANnel#]:POWer:RANGe:AUTO": self._set_auto_range,
            "SENSe#[:CHANnel#]:POWer:RANGe:AUTO?": self._get_auto_range,
            "SENSe#[:CHANnel#]:POWer:ATIMe": self._set_averaging,
            "SENSe#[:CHANnel#]:POWer:ATIMe?": self._get_averaging,
            "INITiate#[:CHANnel#][:IMMediate]": self._initiate,
            "INITiate#[:CHANnel#]:CONTinuous": self._set_continuous,
            "INITiate#[:CHANnel#]:CONTinuous?": self._get_continuous,
            "SYSTem:ERRor[:NEXT]?": query(self._errors.pop),
            "SYSTem:PRESet": query(self._reset),
            "*IDN?": query(lambda: f"Agilent Technologies,{self._model},DE00000001,V1.16"),
            "*CLS": query(self._errors.clear),
            "*RST": query(self._reset),
            "*OPC?": query(self._operation_complete),
            "*ESR?": query(lambda: "+0"),
            "*TST?": query(lambda: "+0"),
        }

    @property
    def _model(self) -> str:
        return "N7744A" if self.ports <= 4 else "N7745A"

    def _port(self, suffixes: tuple[int, ...]) -> int:
        """0-based port of a header's suffixes: slot, and a channel that is always 1."""
        if not 1 <= suffixes[0] <= self.ports or suffixes[1] != 1:
            raise ScpiError(-114, "Header suffix out of range")
        return suffixes[0] - 1

    def _one(self, suffixes: tuple[int, ...], arguments: list[str], *, trigger: bool) -> Reply:
        no_arguments(arguments)
        port = self._port(suffixes)
        return exponential(self._values([port], trigger=trigger)[0])

    def _all_ports(self, *, trigger: bool) -> Reply:
        return block(self._block.pack(*self._values(range(self.ports), trigger=trigger)))

    def _values(self, ports: Sequence[int], *, trigger: bool) -> list[float]:
        """Return the ports' values in their units, after a new measurement if the trigger model asks for one."""
        now = self._clock.now()
        triggered, outdated = [], []
        for port in ports:
            if self._continuous[port]:
                if self._next_value_at[port] <= now:
                    self._next_value_at[port] = now + self._averaging_s[port]
                    outdated.append(port)
                continue
            if trigger:
                self._due[port] = now + self._averaging_s[port]
            if self._due[port] is not None:
                triggered.append(port)
        self._sample(outdated)
        self._complete(triggered)
        return [self._value_w[port] if self._unit[port] == WATT else _in_dbm(self._value_w[port]) for port in ports]

    def _complete(self, ports: Sequence[int]) -> None:
        """Wait for the end of triggered measurements and keep their values."""
        if ports:
            end = max(due for port in ports if (due := self._due[port]) is not None)
            self._clock.sleep(max(end - self._clock.now(), 0.0))
            for port in ports:
                self._due[port] = None
            self._sample(ports)

    def _sample(self, ports: Sequence[int]) -> None:
        """Keep what the ports see at this moment: noise of their averaging time, range, steps of the converter."""
        lit = [port for port in ports if port in self._detectors]
        if lit:
            times = [self._averaging_s[port] for port in lit]
            averaging = times[0] if times.count(times[0]) == len(times) else np.array(times)
            powers = self._chip.measure([self._detectors[port] for port in lit], averaging)
            for port, power in zip(lit, powers.tolist(), strict=True):
                self._keep(port, power)
        for port in ports:
            if port not in self._detectors:
                self._keep(port, _DARK_NOISE_W * self._rng.standard_normal())

    def _keep(self, port: int, power_w: float) -> None:
        fitting = bisect_left(_FULL_SCALES_W, power_w)
        chosen = min(fitting, _TOP_RANGE) if self._auto_range[port] else self._range[port]
        step = _FULL_SCALES_W[chosen] / _ADC_STEPS
        self._range_in_use[port] = chosen
        self._value_w[port] = _OVER_RANGE if fitting > chosen else round(power_w / step) * step

    def _configuration(self) -> Reply:
        return block(b"".join([struct.pack("<HH", port + 1, 1) for port in range(self.ports)]))

    def _set_wavelength(self, suffixes: tuple[int, ...], arguments: list[str]) -> Reply:
        self._wavelength_m[self._port(suffixes)] = _WAVELENGTH.parse(arguments)
        return None

    def _set_all_wavelengths(self, arguments: list[str]) -> Reply:
        self._wavelength_m = [_WAVELENGTH.parse(arguments)] * self.ports
        return None

    def _get_wavelength(self, suffixes: tuple[int, ...], arguments: list[str]) -> Reply:
        return exponential(_WAVELENGTH.query(arguments, self._wavelength_m[self._port(suffixes)]))

    def _set_unit(self, suffixes: tuple[int, ...], arguments: list[str]) -> Reply:
        self._unit[self._port(suffixes)] = choice(arguments, _UNITS)
        return None

    def _get_unit(self, suffixes: tuple[int, ...], arguments: list[str]) -> Reply:
        no_arguments(arguments)
        return f"{self._unit[self._port(suffixes)]:+d}"

    def _set_range(self, suffixes: tuple[int, ...], arguments: list[str]) -> Reply:
        port, level = self._port(suffixes), _RANGE.parse(arguments)
        self._range[port] = min(range(len(_RANGES_DBM)), key=lambda k: abs(_RANGES_DBM[k] - level))
        self._range_in_use[port] = self._range[port]
        self._auto_range[port] = False
        return None

    def _get_range(self, suffixes: tuple[int, ...], arguments: list[str]) -> Reply:
        present = _RANGES_DBM[self._range_in_use[self._port(suffixes)]]
        return exponential(_RANGE.query(arguments, present))

    def _set_auto_range(self, suffixes: tuple[int, ...], arguments: list[str]) -> Reply:
        port, automatic = self._port(suffixes), choice(arguments, SWITCH)
        if not automatic:
            self._range[port] = self._range_in_use[port]
        self._auto_range[port] = bool(automatic)
        return None

    def _get_auto_range(self, suffixes: tuple[int, ...], arguments: list[str]) -> Reply:
        no_arguments(arguments)
        return f"{int(self._auto_range[self._port(suffixes)]):+d}"

    def _set_averaging(self, suffixes: tuple[int, ...], arguments: list[str]) -> Reply:
        port = self._port(suffixes)
        self._averaging_s[port] = _AVERAGING.parse(arguments)
        self._next_value_at[port] = -math.inf
        return None

    def _get_averaging(self, suffixes: tuple[int, ...], arguments: list[str]) -> Reply:
        return exponential(_AVERAGING.query(arguments, self._averaging_s[self._port(suffixes)]))

    def _initiate(self, suffixes: tuple[int, ...], arguments: list[str]) -> Reply:
        no_arguments(arguments)
        port = self._port(suffixes)
        if self._continuous[port]:
            raise ScpiError(-213, "Init ignored")
        self._due[port] = self._clock.now() + self._averaging_s[port]
        return None

    def _set_continuous(self, suffixes: tuple[int, ...], arguments: list[str]) -> Reply:
        port, continuous = self._port(suffixes), bool(choice(arguments, SWITCH))
        if self._continuous[port] and not continuous:
            self._sample([port])
        self._continuous[port] = continuous
        self._due[port] = None
        self._next_value_at[port] = -math.inf
        return None

    def _get_continuous(self, suffixes: tuple[int, ...], arguments: list[str]) -> Reply:
        no_arguments(arguments)
        return f"{int(self._continuous[self._port(suffixes)]):+d}"

    def _operation_complete(self) -> Reply:
        self._complete([port for port in range(self.ports) if self._due[port] is not None])
        return "1"


def _in_dbm(value_w: float) -> float:
    """Level in dBm; a power of zero or less is under-range, an over-range code stays one."""
    if value_w <= 0.0:
        return -_OVER_RANGE
    return value_w if value_w == _OVER_RANGE else watt_to_dbm(value_w)


def _build(spec: InstrumentSpec, at: Surroundings) -> SimulatedKeysightN7745A:
    return SimulatedKeysightN7745A(spec.name, spec.size, at.chip, at.channels, at.clock)


KIND = InstrumentKind("keysight_n7745a", "meter", _build, "socket")
