"""Qontrol heater drivers: a daisy chain of 8-channel modules (Q8iv, Q8b, Q8bi, Q8a) on one serial line."""

from typing import ClassVar, NoReturn

from qcodes.instrument import InstrumentBaseKWArgs
from typing_extensions import Unpack

from drivers._heater_bank import HeaterBankInstrument
from drivers._link import Link
from drivers._parsing import Identity
from drivers._qontrol_protocol import (
    CHAIN_LINE,
    CHANNELS_PER_MODULE,
    FIRMWARE,
    MODULE_ID,
    MODULE_TYPES,
    FullScale,
    expect,
    parse_amperes,
    parse_ok,
    parse_volts,
    qontrol_dialect,
)
from drivers._qontrol_wire import QontrolWire
from drivers._serial_port import SerialPort
from drivers.protocols import SimulatedAs
from optinc_hw.errors import ConfigurationError, IdentityError, LinkTimeoutError, ReplyError

_BAUDRATE = 115200
_FULL_SCALE_TOLERANCE = 1e-3


class Qontrol(HeaterBankInstrument):
    """A chain of Qontrol modules of one type; implements :class:`drivers.protocols.HeaterBank`.

    Voltages are ramped, from the last set value if this session knows it, else from the measured one. Voltages that
    are read are measured values: the modules do not tell setpoints. A module may report an error at any time
    (``E01:03``: over-voltage; ``E90:00``: it has restarted, with its outputs at 0 V); it does not say which module it
    is, so after every error all set values count as unknown. Connecting only asks (``ID?``, ``FIRMWARE?``,
    ``NUPALL?``, ``VFULLALL?``, ``IFULLALL?``), and never sends a break or clears the device; closing ramps to 0 V if
    this session drove a heater.

    Parameters
    ----------
    name
        Name of the instrument.
    address
        Serial port or pyserial URL: ``/dev/ttyUSB0``, ``COM3``, ``socket://host:port``.
    modules
        Number of modules in the chain, 8 channels each; checked when connecting.
    module_type
        ``Q8iv``, ``Q8b``, ``Q8bi`` or ``Q8a``, checked when connecting; None takes any of these. Chains of several
        types are refused, since their channels have different limits.
    binary
        Set voltages with binary frames instead of text. Either is rounded to the converter's step by the module or
        here; frames never up.
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
    ConfigurationError
        If there is no such type, or no chain of so many modules.
    LinkError
        If the port cannot be opened or nothing answers.
    IdentityError
        If the chain is not ``modules`` modules of the one type.
    """

    simulated_as: ClassVar = SimulatedAs(
        kind="qontrol",
        size_key="modules",
        default_size=None,
        channels_per_unit=CHANNELS_PER_MODULE,
        option_keys=("module_type",),
    )

    def __init__(
        self,
        name: str,
        address: str,
        *,
        modules: int,
        module_type: str | None = None,
        binary: bool = False,
        timeout: float = 1.0,
        ramp_step: float = 1.0,
        ramp_interval: float = 1e-3,
        **kwargs: Unpack[InstrumentBaseKWArgs],
    ) -> None:
        if modules < 1:
            raise ConfigurationError(
                f"{name}: modules is {modules}; give the number of modules in the chain, 1 or more"
            )
        if module_type is not None and module_type not in MODULE_TYPES:
            raise ConfigurationError(
                f"{name}: there is no module_type {module_type!r}; it is one of {', '.join(MODULE_TYPES)}"
            )
        super().__init__(name, ramp_step=ramp_step, ramp_interval=ramp_interval, **kwargs)
        self.address = address
        self._modules = modules
        self._module_type = module_type
        self._module_ids: tuple[str, ...] = ()
        port = SerialPort(address, _BAUDRATE)
        self._attach(Link(port, qontrol_dialect(modules), owner=name, timeout=timeout, shared_line=True))
        full_scale = MODULE_TYPES[self.module_type]
        self._wire = QontrolWire(self._live_link(), modules, full_scale, binary=binary)
        self._add_outputs(self._wire, address)

    @property
    def module_ids(self) -> tuple[str, ...]:
        """Identities of the modules in the order of the chain, such as ``Q8iv-0001``."""
        self._live_link()
        return self._module_ids

    @property
    def module_type(self) -> str:
        """Type of the modules, such as ``Q8iv``."""
        return self.module_ids[0].partition("-")[0]

    def check_errors(self) -> None:
        """Raise DeviceError if a module has reported an error since the last exchange; sends nothing."""
        outputs = self._live_outputs()
        with outputs.link.lock, outputs.doubting_after_errors():
            self._wire.check_errors()

    def ask_raw(self, cmd: str) -> str:
        """Send a query and return its one reply line; raises DeviceError if a module reports an error meanwhile."""
        outputs = self._live_outputs()
        with outputs.link.lock, outputs.doubting_after_errors():
            return super().ask_raw(cmd)

    def get_idn(self) -> dict[str, str | None]:
        """Ask for vendor, type, serial number and firmware of the first module."""
        outputs = self._live_outputs()
        with outputs.link.lock, outputs.doubting_after_errors():
            return super().get_idn()

    def _send_raw(self, cmd: str) -> None:
        self._live_link().query(cmd, parse_ok)

    def _identify(self) -> None:
        """Check number, type and full scale of the modules.

        Every query is answered by a line from each module. A module too many is found in the first reply, or, if its
        line is late, by the following queries, which take no line of another form; the last of them is the first one
        again, and no line of its form is ever taken for a measurement.
        """
        link = self._live_link()
        link.synchronise()  # a port with nothing behind it is no chain of the wrong length
        try:
            ids = self._ask_modules(link)
            voltages = link.query_lines("VFULLALL?", self._modules, parse_volts, tolerate_events=True)
            currents = link.query_lines("IFULLALL?", self._modules, parse_amperes, tolerate_events=True)
            again = self._ask_modules(link)
        except (LinkTimeoutError, ReplyError) as error:
            raise IdentityError(
                f"{self.name} at {self.address}: the chain does not have exactly {self._modules} modules; correct the "
                f"number of modules or check the backplane ({error})"
            ) from error
        if again != ids:
            self._refuse(f"modules were {ids} and then {again}; check the backplane")
        self._check_type(ids, voltages, currents)
        if self._module_ids and ids != self._module_ids:
            self._refuse(f"modules are {ids} now, but were {self._module_ids}; another chain answers at this address")
        self._module_ids = ids

    def _ask_modules(self, link: Link) -> tuple[str, ...]:
        parse = expect(CHAIN_LINE, "line like 'Q8iv-0001: 0'")
        lines = link.query_lines("NUPALL?", self._modules, parse, tolerate_events=True)
        numbers = [int(line[2]) for line in lines]
        if numbers != list(range(self._modules)):
            self._refuse(f"modules have the numbers {numbers} in the chain, not 0, 1, ...; restart the backplane")
        return tuple(line[1] for line in lines)

    def _check_type(self, ids: tuple[str, ...], voltages: list[float], currents: list[float]) -> None:
        types = {module.partition("-")[0] for module in ids}
        wanted = self._module_type
        if len(types) > 1:
            self._refuse(f"modules are {ids}, but all must be of the same type; put each type on a chain of its own")
        [found] = types
        if found not in MODULE_TYPES or wanted not in (None, found):
            known = wanted or "one of " + ", ".join(MODULE_TYPES)
            self._refuse(f"modules are {ids}, but must be of type {known}; correct the address or the driver")
        for module, voltage, current in zip(ids, voltages, currents, strict=True):
            told = FullScale(voltage, current)
            if not _close(told, MODULE_TYPES[found]):
                self._refuse(
                    f"module {module} says that its full scale is {voltage:g} V and {current:g} A, but a {found} has "
                    f"{MODULE_TYPES[found].voltage:g} V and {MODULE_TYPES[found].current:g} A; this driver does not "
                    f"know such a module"
                )

    def _refuse(self, reason: str) -> NoReturn:
        raise IdentityError(f"{self.name} at {self.address}: {reason}")

    def _ask_identity(self) -> Identity:
        link = self._live_link()
        with link.lock:
            module = link.query("ID?", expect(MODULE_ID, "identity like 'Q8iv-0001'"))
            firmware = link.query("FIRMWARE?", expect(FIRMWARE, "firmware like 'v2.4.1'"))
        return Identity("Qontrol", module[1], module[2], firmware[0])


class QontrolQ8iv(Qontrol):
    """A chain of Q8iv modules (12 V, 24 mA); see :class:`Qontrol`.

    Parameters
    ----------
    name
        Name of the instrument.
    address
        Serial port or pyserial URL: ``/dev/ttyUSB0``, ``COM3``, ``socket://host:port``.
    modules
        Number of modules in the chain, 8 channels each; checked when connecting.
    binary
        Set voltages with binary frames instead of text.
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
    ConfigurationError, LinkError, IdentityError
        As :class:`Qontrol`.
    """

    simulated_as: ClassVar = SimulatedAs(
        kind="qontrol_q8iv", size_key="modules", default_size=None, channels_per_unit=CHANNELS_PER_MODULE
    )

    def __init__(
        self,
        name: str,
        address: str,
        *,
        modules: int,
        binary: bool = False,
        timeout: float = 1.0,
        ramp_step: float = 1.0,
        ramp_interval: float = 1e-3,
        **kwargs: Unpack[InstrumentBaseKWArgs],
    ) -> None:
        super().__init__(
            name,
            address,
            modules=modules,
            module_type="Q8iv",
            binary=binary,
            timeout=timeout,
            ramp_step=ramp_step,
            ramp_interval=ramp_interval,
            **kwargs,
        )


def _close(told: FullScale, expected: FullScale) -> bool:
    return all(
        abs(value - full) <= _FULL_SCALE_TOLERANCE * full
        for value, full in ((told.voltage, expected.voltage), (told.current, expected.current))
    )
