"""What differs between Thorlabs meters and between their sensors."""

from collections.abc import Mapping
from dataclasses import dataclass, field

POWER, ENERGY, WAVELENGTH_SETTABLE, TAU_SETTABLE, TEMPERATURE = 1, 2, 32, 64, 256
"""Flags of a sensor."""


@dataclass(frozen=True)
class MeterModel:
    """A console or interface.

    Attributes
    ----------
    identity
        Answer to ``*IDN?``.
    sample_s
        Time that one sample takes, in s.
    error_form
        Printf form of an entry of the error queue.
    over_range, under_range
        Texts instead of a reading.
    coerces
        Whether a wavelength outside of the sensor's range is moved into it without a word.
    has_array
        Whether there is an array mode.
    """

    identity: str
    sample_s: float
    error_form: str
    over_range: str
    under_range: str
    coerces: bool
    has_array: bool


@dataclass(frozen=True)
class Sensor:
    """A sensor head.

    Attributes
    ----------
    identity
        Answer to ``SYST:SENS:IDN?`` but for its last field, the flags.
    flags
        What it can do.
    wavelength_nm
        Shortest, longest and default wavelength in nm.
    ranges_w
        Upper limits of its power ranges in W, ascending.
    response
        Signal per W by the quantity's keyword: ``CURR`` in A/W, ``VOLT`` in V/W.
    """

    identity: str
    flags: int
    wavelength_nm: tuple[int, int, int]
    ranges_w: tuple[float, ...]
    response: Mapping[str, float] = field(default_factory=dict)


_OLD, _NEW = ("+9.90000000E+37", "-9.90000000E+37"), ("inf", "-inf")

METERS = {
    "PM100D": MeterModel("THORLABS,PM100D,P0012345,2.8.0", 3e-3, '%+d,"%s"', *_OLD, coerces=True, has_array=False),
    "PM100USB": MeterModel("THORLABS,PM100USB,P2001234,1.7.0", 3e-3, '%+d,"%s"', *_OLD, coerces=True, has_array=False),
    "PM101": MeterModel("Thorlabs,PM101,M00512345,1.4.0", 1e-3, '%d,"%s"', *_NEW, coerces=False, has_array=True),
    "PM400": MeterModel("THORLABS,PM400,P5001234,1.5.4", 1e-3, '%d,"%s"', *_NEW, coerces=False, has_array=True),
}

SENSORS = {
    "S155C": Sensor(
        '"S155C","21011550","5-MAR-2026",1,18',
        POWER | WAVELENGTH_SETTABLE,
        (800, 1700, 1550),
        (5e-8, 5e-7, 5e-6, 5e-5, 5e-4, 5e-3, 2e-2),
        {"CURR": 1.0},
    ),
    "S120C": Sensor(
        '"S120C","16060232","2-JUN-2021",1,18',
        POWER | WAVELENGTH_SETTABLE,
        (400, 1100, 635),
        (5e-8, 5e-7, 5e-6, 5e-5, 5e-4, 5e-3, 5e-2),
        {"CURR": 0.4},
    ),
    "S302C": Sensor(
        '"S302C","19051104","14-MAR-2022",2,18',
        POWER | WAVELENGTH_SETTABLE | TAU_SETTABLE | TEMPERATURE,
        (190, 25000, 1064),
        (2e-3, 2e-2, 2e-1, 2.0),
        {"VOLT": 0.25},
    ),
    "ES111C": Sensor('"ES111C","18091110","9-SEP-2018",3,18', ENERGY, (185, 25000, 1064), (1e-3,)),
    "none": Sensor('"no sensor","","",0,0', 0, (185, 25000, 1064), (1e-3,)),
}
"""Sensors by name; the pyroelectric one measures energy only."""
