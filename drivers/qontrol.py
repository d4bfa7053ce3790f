"""Qontrol Q8iv heater drivers: a daisy chain of 8-channel modules on one serial line."""

from typing import ClassVar

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
    expect,
    parse_amperes,
    parse_ok,
    parse_volts,
    q8iv_dialect,
)
from drivers._qontrol_wire import QontrolWire
from drivers._serial_port import SerialPort
from drivers.protocols import SimulatedAs
from optinc_hw.errors import ConfigurationError, DeviceError, IdentityError, LinkTimeoutError, ReplyError

_BAUDRATE = 115200
_CHAIN_QUIET_S = 0.05


class QontrolQ8iv(HeaterBankInstrument):
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
        super().__init__(name, ramp_step=ramp_step, ramp_interval=ramp_interval, **kwargs)
        self.address = address
        self._modules = modules
        self._module_ids: tuple[str, ...] = ()
        port = SerialPort(address, _BAUDRATE)
        self._attach(Link(port, q8iv_dialect(modules), owner=name, timeout=timeout, shared_line=True))
        self._wire = QontrolWire(self._live_link(), modules, *self._full_scale)
        self._add_outputs(self._wire, address)

    @property
    def module_ids(self) -> tuple[str, ...]:
        """Identities of the modules in the order of the chain, such as ``Q8iv-0001``."""
        self._live_outputs()
        return self._module_ids

    def check_errors(self) -> None:
        """Raise DeviceError if a module has reported an error since the last exchange; sends nothing."""
        outputs = self._live_outputs()
        with outputs.link.lock:
            try:
                self._wire.check_errors()
            except DeviceError:
                outputs.forget()
                raise

    def _send_raw(self, cmd: str) -> None:
        self._live_link().query(cmd, parse_ok)

    def _identify(self) -> None:
        ids = self._ask_modules()
        if not self._module_ids:
            link = self._live_link()
            full_voltage = link.query_lines("VFULL?", 1, parse_volts, tolerate_events=True)[0]
            full_current = link.query_lines("IFULL?", 1, parse_amperes, tolerate_events=True)[0]
            self._full_scale = (full_voltage, full_current)
            self._module_ids = ids
        elif ids != self._module_ids:
            raise IdentityError(
                f"{self.name} at {self.address}: modules are {ids} now, but were {self._module_ids}; another chain "
                f"answers at this address"
            )

    def _ask_modules(self) -> tuple[str, ...]:
        link = self._live_link()
        link.synchronise()  # a port with nothing behind it is no chain of the wrong length
        parse = expect(CHAIN_LINE, "line like 'Q8iv-0001: 0'")
        owner = f"{self.name} at {self.address}"
        try:
            lines = link.query_lines("NUPALL?", self._modules, parse, quiet=_CHAIN_QUIET_S, tolerate_events=True)
        except (LinkTimeoutError, ReplyError) as error:
            raise IdentityError(
                f"{owner}: the chain does not have exactly {self._modules} modules; correct the number of "
                f"modules or check the backplane ({error})"
            ) from error
        ids = tuple(line[1] for line in lines)
        if not all(module.startswith("Q8iv-") for module in ids):
            raise IdentityError(f"{owner}: modules are {ids}, but all must be of type Q8iv")
        return ids

    def _ask_identity(self) -> Identity:
        link = self._live_link()
        with link.lock:
            module = link.query("ID?", expect(MODULE_ID, "identity like 'Q8iv-0001'"))
            firmware = link.query("FIRMWARE?", expect(FIRMWARE, "firmware like 'v2.4.1'"))
        return Identity("Qontrol", module[1], module[2], firmware[0])
