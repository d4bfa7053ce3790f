"""What a lab's own driver is built from: base classes by role, the link with its framing, ports, strict parsers.

A driver on these classes has their limits, ramps, safe state, locking and snapshots, and knows only its instrument's
commands. Any other QCoDeS instrument that has the methods of :mod:`drivers.protocols` works on a bench as well.
"""

from drivers._dialect import Dialect
from drivers._heater_bank import HeaterBankInstrument
from drivers._heater_outputs import HeaterWire
from drivers._instrument import LinkedInstrument
from drivers._laser import LaserInstrument
from drivers._link import Link
from drivers._parsing import (
    Identity,
    parse_flag,
    parse_identity,
    parse_integer,
    parse_level,
    parse_number,
    parse_reading,
)
from drivers._scpi import ScpiInstrument
from drivers._serial_port import SerialPort
from drivers._switch import SwitchInstrument
from drivers._visa_port import VisaPort

__all__ = [
    "Dialect",
    "HeaterBankInstrument",
    "HeaterWire",
    "Identity",
    "LaserInstrument",
    "Link",
    "LinkedInstrument",
    "ScpiInstrument",
    "SerialPort",
    "SwitchInstrument",
    "VisaPort",
    "parse_flag",
    "parse_identity",
    "parse_integer",
    "parse_level",
    "parse_number",
    "parse_reading",
]
