"""Models, error numbers and forms of numbers of the simulated Santec lasers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from optinc_hw.units import LIGHT_SPEED_M_S, METRE_PER_NANOMETRE, dbm_to_watt, m_to_nm, watt_to_dbm
from simulated_instruments._scpi import (
    DATA_TYPE_ERROR,
    FREQUENCY_UNITS,
    ILLEGAL_VALUE,
    INVALID_SUFFIX,
    LENGTH_UNITS,
    OUT_OF_RANGE,
    TIME_UNITS,
    Quantity,
    Reply,
    ScpiError,
    ScpiInterpreter,
    exponential,
    number,
    one_argument,
)

LEGACY, SCPI = 0, 1

SHORTEST_M, LONGEST_M, DEFAULT_M = 1480e-9, 1640e-9, 1550e-9
LOWEST_DBM, HIGHEST_DBM = -15.0, 13.0

SYNTAX_ERROR = (-102, "Syntax error")
INVALID_SEPARATOR = (-103, "Invalid separator")
CHARACTER_DATA = (-148, "Character data not allowed")
EXECUTION_ERROR = (-200, "Execution error")

_HEADER_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:*?")
_SANTEC_ERRORS = {DATA_TYPE_ERROR[0]: CHARACTER_DATA, INVALID_SUFFIX[0]: CHARACTER_DATA}
_POWER_UNITS = {"": 1.0, "DBM": 1.0, "W": 1.0, "MW": 1e-3, "UW": 1e-6}

Kind = Literal["length", "short length", "frequency", "short frequency", "time", "level"]


@dataclass(frozen=True)
class SantecModel:
    """What one model differs in.

    Parameters
    ----------
    name
        As in ``*IDN?``.
    serial
        Serial number.
    two_command_sets
        Whether it has the SCPI set beside the Legacy one.
    source_root
        Whether ``:SOURce`` may precede its commands.
    speeds_nm_s
        Speeds of a sweep in nm/s; None for any from 0.5 to 100 in steps of 0.1.
    """

    name: str
    serial: str
    two_command_sets: bool
    source_root: bool
    speeds_nm_s: tuple[float, ...] | None

    @property
    def identity(self) -> str:
        """Answer to ``*IDN?``."""
        return f"SANTEC,{self.name},{self.serial},0001.0000.0001"

    def speed(self, nm_s: float) -> float:
        """Return the speed in nm/s that a setting gives; raises ScpiError -222 if it has none."""
        if self.speeds_nm_s is None:
            if not 0.5 - 1e-9 <= nm_s <= 100.0 + 1e-9:
                raise ScpiError(*OUT_OF_RANGE)
            return round(nm_s, 1)
        if nm_s not in self.speeds_nm_s:
            raise ScpiError(*OUT_OF_RANGE)
        return nm_s


_TABLE = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0)
MODELS = {
    model.name: model
    for model in (
        SantecModel("TSL-550", "15020001", two_command_sets=False, source_root=True, speeds_nm_s=None),
        SantecModel("TSL-570", "21020001", two_command_sets=True, source_root=False, speeds_nm_s=_TABLE),
        SantecModel("TSL-710", "17020001", two_command_sets=False, source_root=False, speeds_nm_s=None),
        SantecModel("TSL-770", "23020001", two_command_sets=True, source_root=False, speeds_nm_s=_TABLE),
    )
}
"""Model by name."""


class SantecInterpreter(ScpiInterpreter):
    """The interpreter with the error numbers that these lasers have."""

    def run_command(self, header: str, text: str) -> Reply:
        """Run a command; errors get the numbers of these lasers."""
        strange = set(header.upper()) - _HEADER_CHARACTERS
        if strange:
            raise ScpiError(*(INVALID_SEPARATOR if "," in strange else SYNTAX_ERROR))
        parts = text.split()
        if len(parts) > 1 and parts[1][0].isdigit():
            raise ScpiError(*INVALID_SEPARATOR)  # two numbers without a comma
        try:
            return super().run_command(header, text)
        except ScpiError as error:
            if error.code == ILLEGAL_VALUE[0]:
                raise ScpiError(*(CHARACTER_DATA if text[:1].isalpha() else OUT_OF_RANGE)) from error
            raise ScpiError(*_SANTEC_ERRORS.get(error.code, (error.code, error.text))) from error


def _both_sets(
    minimum: float, maximum: float, default: float, bare: float, units: Mapping[str, float]
) -> list[Quantity]:
    """Return a quantity for either command set; ``bare`` is the unit of the Legacy set."""
    return [Quantity(minimum, maximum, default, {"": bare}), Quantity(minimum, maximum, default, units)]


_LONGEST_STEP_M, _LONGEST_STEP_HZ = 160e-9, 2e13
_QUANTITIES: dict[Kind, list[Quantity]] = {
    "length": _both_sets(SHORTEST_M, LONGEST_M, DEFAULT_M, METRE_PER_NANOMETRE, LENGTH_UNITS),
    "short length": _both_sets(1e-13, _LONGEST_STEP_M, 1e-9, METRE_PER_NANOMETRE, LENGTH_UNITS),
    "frequency": _both_sets(
        LIGHT_SPEED_M_S / LONGEST_M, LIGHT_SPEED_M_S / SHORTEST_M, LIGHT_SPEED_M_S / DEFAULT_M, 1e12, FREQUENCY_UNITS
    ),
    "short frequency": _both_sets(1e7, _LONGEST_STEP_HZ, 1e11, 1e12, FREQUENCY_UNITS),
    "time": _both_sets(0.0, 999.9, 0.0, 1.0, TIME_UNITS),
    "level": _both_sets(0.0, 30.0, 0.0, 1.0, {"": 1.0, "DB": 1.0}),
}
_LEGACY_FORMS: dict[Kind, str] = {
    "length": ".4f", "short length": ".4f", "frequency": ".5f", "short frequency": ".5f", "time": ".1f", "level": ".2f",
}  # fmt: skip
_LEGACY_UNITS: dict[Kind, float] = {"frequency": 1e12, "short frequency": 1e12}

WAVELENGTH_STEPS_PER_M = 1e13  # 0.1 pm
FREQUENCY_STEP_HZ = 1e7


def parse_quantity(kind: Kind, command_set: int, arguments: list[str]) -> float:
    """Return the argument in base units, in whole steps where the laser has such."""
    value = _QUANTITIES[kind][command_set].parse(arguments)
    if kind in ("length", "short length"):
        # In whole steps, so that 1550 nm is the same number of metres whichever way it was written.
        return round(value * WAVELENGTH_STEPS_PER_M) / WAVELENGTH_STEPS_PER_M
    if kind in ("frequency", "short frequency"):
        return round(value / FREQUENCY_STEP_HZ) * FREQUENCY_STEP_HZ
    return value


def answer_quantity(kind: Kind, command_set: int, arguments: list[str], present: float) -> str:
    """Write the present value, or the limit that a query such as ``WAV? MAX`` asks for."""
    return write_quantity(kind, command_set, _QUANTITIES[kind][command_set].query(arguments, present))


def write_quantity(kind: Kind, command_set: int, value: float) -> str:
    """Write a value in the unit and form of the command set."""
    if command_set == SCPI:
        return exponential(value)
    if kind in ("length", "short length"):
        return f"{m_to_nm(value):.4f}"
    return f"{value / _LEGACY_UNITS.get(kind, 1.0):{_LEGACY_FORMS[kind]}}"


def parse_power(arguments: list[str], command_set: int, bare_unit_w: float | None) -> float:
    """Return a power setpoint in W; a bare number is in ``bare_unit_w``, or in dBm if that is None."""
    text = one_argument(arguments)
    limits = {"MIN": LOWEST_DBM, "MAX": HIGHEST_DBM}
    if text in limits:
        return dbm_to_watt(limits[text])
    value, suffix = number(text, _POWER_UNITS)
    if suffix and command_set == LEGACY:
        raise ScpiError(*CHARACTER_DATA)
    if suffix == "DBM" or (not suffix and bare_unit_w is None):
        level = value
    elif value > 0.0:
        level = watt_to_dbm(value if suffix or bare_unit_w is None else value * bare_unit_w)
    else:
        raise ScpiError(*OUT_OF_RANGE)
    if not LOWEST_DBM - 1e-6 <= level <= HIGHEST_DBM + 1e-6:
        raise ScpiError(*OUT_OF_RANGE)
    return dbm_to_watt(level)


def parse_fine_tuning(arguments: list[str]) -> float:
    """Return a value of fine tuning, which has no unit."""
    value, _ = number(one_argument(arguments), {"": 1.0})
    if not -100.0 <= value <= 100.0:
        raise ScpiError(*OUT_OF_RANGE)
    return round(value, 2)
