"""Simulated Keysight N7744A/N7745A/N7744C/N7745C multiport power meters: SCPI, float32 blocks, real averaging time.

Where the programming guide is silent this simulator decides: a reading above the range is +3.4E38 and queues -231, a
power of zero or less has -3.4E38 dBm and queues -261, and in continuous mode a fetch repeats its value until another
averaging time has passed. Zeroing takes 3 s and fails where there is light. While a function runs, readings show its
latest sample. The trigger modes MME, PRE and THR start a function at the trigger like CME; what a port puts out at
its trigger connector is remembered and goes nowhere. Logging keeps the last result of each port.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np

from optinc_hw.clock import Clock
from optinc_hw.errors import ConfigurationError
from simulated_instruments._event_status import OPERATION_COMPLETE, EventStatusQueue
from simulated_instruments._keysight_function_commands import function_commands
from simulated_instruments._keysight_functions import MeterFunctions
from simulated_instruments._keysight_ports import (
    AVERAGING,
    DBM,
    OVER_RANGE,
    RANGE,
    RANGES_DBM,
    WATT,
    WAVELENGTH,
    MeterPort,
    MeterPorts,
)
from simulated_instruments._kind import InstrumentKind, InstrumentSpec, Surroundings
from simulated_instruments._parameters import FloatArray
from simulated_instruments._scpi import (
    SWITCH,
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

T = TypeVar("T")

MODELS = {
    "N7744A": ("Agilent Technologies,N7744A,DE00000001,V1.16", 4),
    "N7745A": ("Agilent Technologies,N7745A,DE00000001,V1.16", 8),
    "N7744C": ("Keysight Technologies,N7744C,DE00000001,V2.00", 4),
    "N7745C": ("Keysight Technologies,N7745C,DE00000001,V2.00", 8),
}
"""Identity and number of ports of each model."""

_UNITS = {"0": DBM, "DBM": DBM, "1": WATT, "W": WATT, "WATT": WATT}
_TRIGGER_INPUTS = ("IGN", "SME", "CME", "MME", "PRE", "THR")
_TRIGGER_OUTPUTS = ("DIS", "AVG", "MEAS")
_TRIGGER_ROUTES = ("DIS", "DEF", "PASS", "LOOP")
_INIT_IGNORED = (-213, "Init ignored")
_QUESTIONABLE = (-231, "Data questionable")
_NO_LEVEL = (-261, "Math error in expression")
_BAD_SUFFIX = (-114, "Header suffix out of range")
_DEVICE_ERROR = (-310, "System error")


class SimulatedKeysightN7745A:
    """A power meter of up to 8 ports on the hidden chip's photodiodes.

    Parameters
    ----------
    name
        Name on the bench; seeds the noise of ports with nothing before them.
    ports
        Number of ports, 1..8.
    chip
        The chip whose photodiodes are read.
    detectors
        Detector index per 0-based port; the other ports are dark.
    clock
        A triggered reading lets its averaging time pass on it.
    model
        One of ``MODELS``, whose number of ports it then has; without one, an N7744A up to 4 ports, or an N7745A.

    Raises
    ------
    ConfigurationError
        If the model is unknown, or the number of ports or a port is out of range.
    """

    def __init__(
        self,
        name: str,
        ports: int,
        chip: HiddenChip,
        detectors: Mapping[int, int],
        clock: Clock,
        model: str | None = None,
    ) -> None:
        self._identity = _identity(name, ports, model)
        for port in detectors:
            if not 0 <= port < ports:
                raise ConfigurationError(f"simulated {name}: port {port} is not in 0..{ports - 1}")
        self._ports = MeterPorts(name, ports, chip, detectors, clock)
        self._functions = MeterFunctions(self._ports, chip, clock)
        self._errors = EventStatusQueue('%+d,"%s"')
        self._route = "DEF"
        self._completion_wanted = False
        self._interpreter = ScpiInterpreter(self._commands(), self._errors, b"\n")

    def open_session(self) -> LineSession:
        """Return a session for a new client."""
        return self._interpreter.open_session()

    def restart(self) -> None:
        """Let the power fail for a moment."""
        self._reset()
        self._ports.power_up()
        self._errors.power_up()

    def flood_errors(self, count: int) -> bytes:
        """Let ``count`` errors happen inside the meter; they wait in its error queue."""
        for _ in range(count):
            self._errors.push(ScpiError(*_DEVICE_ERROR))
        return b""

    def trigger(self) -> None:
        """Let a trigger arrive at the input connector."""
        if self._route == "DIS":
            return
        for port in self._ports.all():
            if port.trigger_input == "IGN" or self._functions.trigger(port):
                continue
            if not port.continuous:
                self._ports.trigger(port)

    def _reset(self) -> None:
        self._functions.reset()
        self._ports.reset()
        self._route = "DEF"
        self._completion_wanted = False

    def _commands(self) -> Mapping[str, Handler]:
        return {
            **self._reading_commands(),
            **self._setting_commands(),
            **function_commands(self._functions, self._port, self._report),
            **self._trigger_commands(),
            **self._system_commands(),
        }

    def _reading_commands(self) -> Mapping[str, Handler]:
        def one(*, trigger: bool) -> Handler:
            def handler(suffixes: tuple[int, ...], arguments: list[str]) -> Reply:
                no_arguments(arguments)
                return exponential(self._values([self._port(suffixes)], trigger=trigger)[0])

            return handler

        def all_ports(*, trigger: bool) -> Handler:
            form = struct.Struct(f"<{len(self._ports)}f")
            return query(lambda: block(form.pack(*self._values(self._ports.all(), trigger=trigger))))

        slots = b"".join([struct.pack("<HH", port + 1, 1) for port in range(len(self._ports))])
        return {
            "READ#[:CHANnel#][:SCALar]:POWer[:DC]?": one(trigger=True),
            "FETCh#[:CHANnel#][:SCALar]:POWer[:DC]?": one(trigger=False),
            "READ#[:SCALar]:POWer[:DC]:ALL?": all_ports(trigger=True),
            "FETCh#[:SCALar]:POWer[:DC]:ALL?": all_ports(trigger=False),
            "READ#[:SCALar]:POWer[:DC]:ALL:CONFig?": query(lambda: block(slots)),
            "FETCh#[:SCALar]:POWer[:DC]:ALL:CONFig?": query(lambda: block(slots)),
        }

    def _setting_commands(self) -> Mapping[str, Handler]:
        sense = "SENSe#[:CHANnel#]:POWer"
        return {
            f"{sense}:WAVelength": self._change(WAVELENGTH.parse, _set_wavelength),
            f"{sense}:WAVelength?": self._show(WAVELENGTH, lambda port: port.wavelength_m),
            f"{sense}:WAVelength:ALL": plain(self._set_all_wavelengths),
            f"{sense}:UNIT": self._change(lambda arguments: choice(arguments, _UNITS), _set_unit),
            f"{sense}:UNIT?": self._show_number(lambda port: port.unit),
            "SENSe#:POWer:UNIT:ALL:CSV?": query(lambda: ",".join([str(port.unit) for port in self._ports.all()])),
            f"{sense}:RANGe[:UPPer]": self._change(RANGE.parse, MeterPort.set_range),
            f"{sense}:RANGe[:UPPer]?": self._show(RANGE, lambda port: RANGES_DBM[port.range_in_use]),
            f"{sense}:RANGe:AUTO": self._change(_switch, MeterPort.set_auto_range),
            f"{sense}:RANGe:AUTO?": self._show_number(lambda port: port.auto_range),
            f"{sense}:ATIMe": self._change(AVERAGING.parse, MeterPort.set_averaging),
            f"{sense}:ATIMe?": self._show(AVERAGING, lambda port: port.averaging_s),
            f"{sense}:GAIN:AUTO": self._change(_switch, _set_auto_gain),
            f"{sense}:GAIN:AUTO?": self._show_number(lambda port: port.auto_gain),
            "SENSe#[:CHANnel#]:CORRection:COLLect:ZERO": self._zero,
            "SENSe#[:CHANnel#]:CORRection:COLLect:ZERO?": self._show_number(
                lambda port: self._ports.zero_result([port])
            ),
            "SENSe#[:CHANnel#]:CORRection:COLLect:ZERO:ALL": query(self._zero_all),
            "SENSe#[:CHANnel#]:CORRection:COLLect:ZERO:ALL?": query(
                lambda: f"{self._ports.zero_result(self._ports.all()):+d}"
            ),
        }

    def _trigger_commands(self) -> Mapping[str, Handler]:
        return {
            "INITiate#[:CHANnel#][:IMMediate]": self._initiate,
            "INITiate#[:CHANnel#]:CONTinuous": self._change(_switch, self._ports.set_continuous),
            "INITiate#[:CHANnel#]:CONTinuous?": self._show_number(lambda port: port.continuous),
            "TRIGger#[:CHANnel#]:INPut": self._change(_word(_TRIGGER_INPUTS), _set_trigger_input),
            "TRIGger#[:CHANnel#]:INPut?": self._show_word(lambda port: port.trigger_input),
            "TRIGger#[:CHANnel#]:OUTPut": self._change(_word(_TRIGGER_OUTPUTS), _set_trigger_output),
            "TRIGger#[:CHANnel#]:OUTPut?": self._show_word(lambda port: port.trigger_output),
            "TRIGger:CONFiguration": plain(self._set_route),
            "TRIGger:CONFiguration?": query(lambda: self._route),
            "TRIGger": plain(self._hit),
        }

    def _system_commands(self) -> Mapping[str, Handler]:
        return {
            "SYSTem:ERRor[:NEXT]?": query(self._errors.pop),
            "SYSTem:PRESet": query(self._reset),
            "SYSTem:REBoot": query(self.restart),
            "STATus:OPERation:CONDition?": query(self._operation_status),
            "*IDN?": query(lambda: self._identity),
            "*CLS": query(self._errors.clear),
            "*RST": query(self._reset),
            "*OPC": query(self._announce_completion),
            "*OPC?": query(self._operation_complete),
            "*ESR?": query(self._event_status),
            "*TRG": query(self.trigger),
            "*TST?": query(lambda: "+0"),
        }

    def _port(self, suffixes: tuple[int, ...]) -> MeterPort:
        """Return the port of a header's suffixes: slot, and a channel that is always 1."""
        if not 1 <= suffixes[0] <= len(self._ports) or suffixes[1] != 1:
            raise ScpiError(*_BAD_SUFFIX)
        return self._ports[suffixes[0] - 1]

    def _values(self, ports: Sequence[MeterPort], *, trigger: bool) -> list[float]:
        """Return the ports' readings in their units; what is no reading leaves an error beside its code."""
        idle = [port for port in ports if not self._functions.in_progress(port)]
        if idle:
            self._ports.read(idle, trigger=trigger)
        values = [port.in_unit(port.value_w) for port in ports]
        if OVER_RANGE in values or -OVER_RANGE in values:
            self._report(np.array(values))
        return values

    def _report(self, values: FloatArray) -> None:
        """Queue the errors that go with codes among readings."""
        if np.any(values >= np.float32(OVER_RANGE)):
            self._errors.push(ScpiError(*_QUESTIONABLE))
        if np.any(values <= -np.float32(OVER_RANGE)):
            self._errors.push(ScpiError(*_NO_LEVEL))

    def _change(self, parse: Callable[[list[str]], T], apply: Callable[[MeterPort, T], None]) -> Handler:
        """Return the handler of a setting of one port, which ends the port's function."""

        def handler(suffixes: tuple[int, ...], arguments: list[str]) -> Reply:
            port, value = self._port(suffixes), parse(arguments)
            self._functions.stop(port)
            apply(port, value)
            return None

        return handler

    def _show(self, quantity: Quantity, value: Callable[[MeterPort], float]) -> Handler:
        return lambda suffixes, arguments: exponential(quantity.query(arguments, value(self._port(suffixes))))

    def _show_number(self, value: Callable[[MeterPort], int]) -> Handler:
        return self._show_word(lambda port: f"{int(value(port)):+d}")

    def _show_word(self, value: Callable[[MeterPort], str]) -> Handler:
        def handler(suffixes: tuple[int, ...], arguments: list[str]) -> Reply:
            no_arguments(arguments)
            return value(self._port(suffixes))

        return handler

    def _stop_all(self) -> None:
        for port in self._ports.all():
            self._functions.stop(port)

    def _set_all_wavelengths(self, arguments: list[str]) -> Reply:
        wavelength_m = WAVELENGTH.parse(arguments)
        self._stop_all()
        for port in self._ports.all():
            port.wavelength_m = wavelength_m
        return None

    def _zero(self, suffixes: tuple[int, ...], arguments: list[str]) -> Reply:
        no_arguments(arguments)
        port = self._port(suffixes)
        self._functions.stop(port)
        self._ports.zero([port])
        return None

    def _zero_all(self) -> Reply:
        self._stop_all()
        self._ports.zero(self._ports.all())
        return None

    def _initiate(self, suffixes: tuple[int, ...], arguments: list[str]) -> Reply:
        no_arguments(arguments)
        port = self._port(suffixes)
        if port.continuous or self._functions.in_progress(port):
            raise ScpiError(*_INIT_IGNORED)
        self._ports.trigger(port)
        return None

    def _set_route(self, arguments: list[str]) -> Reply:
        self._route = _word(_TRIGGER_ROUTES)(arguments)
        return None

    def _hit(self, arguments: list[str]) -> Reply:
        if choice(arguments, {"1": 1, "2": 2}) == 1:
            self.trigger()
        return None

    def _operation_status(self) -> Reply:
        busy = [port.index + 1 for port in self._ports.all() if self._is_busy(port)]
        return f"{sum(1 << slot for slot in busy):+d}"

    def _is_busy(self, port: MeterPort) -> bool:
        return self._ports.busy(port) or self._functions.in_progress(port)

    def _operation_complete(self) -> Reply:
        self._ports.complete()
        return "1"

    def _announce_completion(self) -> Reply:
        self._completion_wanted = True
        return None

    def _event_status(self) -> Reply:
        if self._completion_wanted and not any(self._ports.busy(port) for port in self._ports.all()):
            self._completion_wanted = False
            self._errors.note(OPERATION_COMPLETE)
        return f"{self._errors.take_events():+d}"


def _identity(name: str, ports: int, model: str | None) -> str:
    if model is None:
        if not 1 <= ports <= 8:
            raise ConfigurationError(f"simulated {name}: an N7745A has 1..8 ports, got {ports}")
        return MODELS["N7744A" if ports <= 4 else "N7745A"][0]
    if model not in MODELS:
        raise ConfigurationError(f"simulated {name}: there is no model {model!r}; choose of {', '.join(MODELS)}")
    identity, has = MODELS[model]
    if ports != has:
        raise ConfigurationError(f"simulated {name}: an {model} has {has} ports, got {ports}")
    return identity


def _word(words: Sequence[str]) -> Callable[[list[str]], str]:
    """Return a parser of one of several words."""
    return lambda arguments: words[choice(arguments, {word: k for k, word in enumerate(words)})]


def _switch(arguments: list[str]) -> int:
    return choice(arguments, SWITCH)


def _set_wavelength(port: MeterPort, wavelength_m: float) -> None:
    port.wavelength_m = wavelength_m


def _set_unit(port: MeterPort, unit: int) -> None:
    port.unit = unit


def _set_auto_gain(port: MeterPort, automatic: int) -> None:
    port.auto_gain = bool(automatic)


def _set_trigger_input(port: MeterPort, mode: str) -> None:
    port.trigger_input = mode


def _set_trigger_output(port: MeterPort, mode: str) -> None:
    port.trigger_output = mode


def _build(spec: InstrumentSpec, at: Surroundings) -> SimulatedKeysightN7745A:
    return SimulatedKeysightN7745A(
        spec.name, spec.size, at.chip, at.channels, at.clock, model=spec.options.get("model")
    )


KIND = InstrumentKind("keysight_n7745a", "meter", _build, "socket")
