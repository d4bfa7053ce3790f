"""Simulated Keysight N7744A/N7745A multiport power meter: SCPI over a socket, float32 blocks, real averaging time.

Where the programming guide is silent this simulator decides: a reading above the range is +3.4E38, a power of zero
or less has -3.4E38 dBm, and in continuous mode a fetch repeats its value until another averaging time has passed.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from optinc_hw.clock import Clock
from optinc_hw.errors import ConfigurationError
from simulated_instruments._parameters import FloatArray
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

_RANGES_DBM = np.array([-30.0, -20.0, -10.0, 0.0, 10.0])
_FULL_SCALES_W = 1e-3 * 10.0 ** (_RANGES_DBM / 10.0)
_TOP_RANGE = len(_RANGES_DBM) - 1
_ADC_STEPS = 2.0**18
_OVER_RANGE = float(np.finfo(np.float32).max)
_DARK_NOISE_W = 1e-9  # rms of a port with nothing before it
_WAVELENGTH = Quantity(1250e-9, 1650e-9, 1550e-9, LENGTH_UNITS)
_AVERAGING = Quantity(1e-6, 10.0, 0.2, TIME_UNITS)
_RANGE = Quantity(float(_RANGES_DBM[0]), float(_RANGES_DBM[-1]), 0.0, {"": 1.0, "DBM": 1.0})
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
        self._detector = np.array([detectors.get(port, -1) for port in range(ports)], dtype=np.intp)
        self._all = np.arange(ports)
        self._errors = ErrorQueue('%+d,"%s"')
        self._interpreter = ScpiInterpreter(self._commands(), self._errors, b"\n")
        self._value_w = np.zeros(ports)
        self._range_in_use = np.full(ports, _TOP_RANGE)
        self._reset()

    def open_session(self) -> LineSession:
        """Return a session for a new client."""
        return self._interpreter.open_session()

    def _reset(self) -> None:
        ports = self.ports
        self._unit = np.full(ports, DBM)
        self._wavelength_m = np.full(ports, _WAVELENGTH.default)
        self._averaging_s = np.full(ports, _AVERAGING.default)
        self._auto_range = np.ones(ports, dtype=bool)
        self._range = np.full(ports, _TOP_RANGE)
        self._continuous = np.ones(ports, dtype=bool)
        self._next_value_at = np.full(ports, -np.inf)  # continuous: when the present value is outdated
        self._due = np.full(ports, np.nan)  # triggered and not fetched yet: when the averaging ends

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
        return exponential(float(self._values(np.array([port]), trigger=trigger)[0]))

    def _all_ports(self, *, trigger: bool) -> Reply:
        return block(self._values(self._all, trigger=trigger).astype("<f4").tobytes())

    def _values(self, ports: NDArray[np.intp], *, trigger: bool) -> FloatArray:
        """Return the ports' values in their units, after a new measurement if the trigger model asks for one."""
        triggered = ports[~self._continuous[ports]]
        if triggered.size:
            if trigger:
                self._due[triggered] = self._clock.now() + self._averaging_s[triggered]
            self._complete(triggered[~np.isnan(self._due[triggered])])
        if triggered.size < ports.size:
            running = ports[self._continuous[ports]]
            now = self._clock.now()
            outdated = running[self._next_value_at[running] <= now]
            if outdated.size:
                self._sample(outdated)
                self._next_value_at[outdated] = now + self._averaging_s[outdated]
        values = self._value_w[ports]
        in_dbm = self._unit[ports] == DBM
        return np.where(in_dbm, _in_dbm(values), values) if in_dbm.any() else values

    def _complete(self, ports: NDArray[np.intp]) -> None:
        """Wait for the end of triggered measurements and keep their values."""
        if ports.size:
            self._clock.sleep(max(float(self._due[ports].max()) - self._clock.now(), 0.0))
            self._due[ports] = np.nan
            self._sample(ports)

    def _sample(self, ports: NDArray[np.intp]) -> None:
        """Keep what the ports see at this moment: noise of their averaging time, range, steps of the converter."""
        detectors = self._detector[ports]
        if detectors.min() >= 0:
            power = self._chip.measure(detectors, self._averaging_s[ports])
        else:
            power = _DARK_NOISE_W * self._rng.standard_normal(ports.size)
            wired = detectors >= 0
            power[wired] = self._chip.measure(detectors[wired], self._averaging_s[ports[wired]])
        fitting = np.searchsorted(_FULL_SCALES_W, power)
        chosen = np.where(self._auto_range[ports], np.minimum(fitting, _TOP_RANGE), self._range[ports])
        step = _FULL_SCALES_W[chosen] / _ADC_STEPS
        self._range_in_use[ports] = chosen
        self._value_w[ports] = np.where(fitting > chosen, _OVER_RANGE, np.rint(power / step) * step)

    def _configuration(self) -> Reply:
        pairs = np.stack([self._all + 1, np.ones_like(self._all)], axis=1)
        return block(pairs.astype("<u2").tobytes())

    def _set_wavelength(self, suffixes: tuple[int, ...], arguments: list[str]) -> Reply:
        self._wavelength_m[self._port(suffixes)] = _WAVELENGTH.parse(arguments)
        return None

    def _set_all_wavelengths(self, arguments: list[str]) -> Reply:
        self._wavelength_m[:] = _WAVELENGTH.parse(arguments)
        return None

    def _get_wavelength(self, suffixes: tuple[int, ...], arguments: list[str]) -> Reply:
        return exponential(_WAVELENGTH.query(arguments, float(self._wavelength_m[self._port(suffixes)])))

    def _set_unit(self, suffixes: tuple[int, ...], arguments: list[str]) -> Reply:
        self._unit[self._port(suffixes)] = choice(arguments, _UNITS)
        return None

    def _get_unit(self, suffixes: tuple[int, ...], arguments: list[str]) -> Reply:
        no_arguments(arguments)
        return f"{self._unit[self._port(suffixes)]:+d}"

    def _set_range(self, suffixes: tuple[int, ...], arguments: list[str]) -> Reply:
        port, level = self._port(suffixes), _RANGE.parse(arguments)
        self._range[port] = int(np.abs(_RANGES_DBM - level).argmin())
        self._range_in_use[port] = self._range[port]
        self._auto_range[port] = False
        return None

    def _get_range(self, suffixes: tuple[int, ...], arguments: list[str]) -> Reply:
        present = float(_RANGES_DBM[self._range_in_use[self._port(suffixes)]])
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
        self._next_value_at[port] = -np.inf
        return None

    def _get_averaging(self, suffixes: tuple[int, ...], arguments: list[str]) -> Reply:
        return exponential(_AVERAGING.query(arguments, float(self._averaging_s[self._port(suffixes)])))

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
            self._sample(np.array([port]))
        self._continuous[port] = continuous
        self._due[port] = np.nan
        self._next_value_at[port] = -np.inf
        return None

    def _get_continuous(self, suffixes: tuple[int, ...], arguments: list[str]) -> Reply:
        no_arguments(arguments)
        return f"{int(self._continuous[self._port(suffixes)]):+d}"

    def _operation_complete(self) -> Reply:
        self._complete(np.flatnonzero(~np.isnan(self._due)))
        return "1"


def _in_dbm(values_w: FloatArray) -> FloatArray:
    """Levels in dBm; a power of zero or less is under-range, an over-range code stays one."""
    with np.errstate(divide="ignore", invalid="ignore"):
        levels = 10.0 * np.log10(values_w / 1e-3)
    levels = np.where(values_w > 0.0, levels, -_OVER_RANGE)
    return np.where(values_w >= _OVER_RANGE, _OVER_RANGE, levels)
