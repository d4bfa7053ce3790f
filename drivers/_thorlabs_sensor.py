"""Which sensor hangs on a Thorlabs meter: the answer to ``SYSTem:SENSor:IDN?``."""

import re
from dataclasses import dataclass

_POWER, _WAVELENGTH_SETTABLE = 1, 32
_NO_SENSOR, _PHOTODIODE = 0, 1
_TEXT = r'(?:"([^"]*)"|([^",]*))'
_IDENTITY = re.compile(rf"{_TEXT}, *{_TEXT}, *{_TEXT}, *(\d+), *(\d+), *(\d+)", re.ASCII)


@dataclass(frozen=True)
class ThorlabsSensor:
    """A sensor head.

    Attributes
    ----------
    name, serial, calibrated
        Model, serial number and date of calibration, as the meter tells them.
    kind
        0 none, 1 photodiode, 2 thermopile, 3 pyroelectric, 5 four-quadrant.
    subtype
        Thorlabs' own number of the variant.
    flags
        Sum of 1 (measures power), 2 (energy), 16 (responsivity settable), 32 (wavelength settable), 64 (time constant
        settable), 256 (has a thermometer).
    """

    name: str
    serial: str
    calibrated: str
    kind: int
    subtype: int
    flags: int

    @property
    def connected(self) -> bool:
        """Whether there is a sensor at all."""
        return self.kind != _NO_SENSOR

    @property
    def measures_power(self) -> bool:
        """Whether it measures power, rather than energy only."""
        return self.connected and bool(self.flags & _POWER)

    @property
    def wavelength_settable(self) -> bool:
        """Whether its responsivity follows a wavelength that can be set."""
        return bool(self.flags & _WAVELENGTH_SETTABLE)

    @property
    def signal_unit(self) -> str:
        """Unit of its electrical signal: A of photodiodes, V of the others."""
        return "A" if self.kind == _PHOTODIODE else "V"

    def __str__(self) -> str:
        return f"{self.name} {self.serial}, calibrated {self.calibrated}" if self.connected else "no sensor"


def parse_sensor(text: str) -> ThorlabsSensor:
    """Parse a reply such as ``"S120C","16060232","2-JUN-2021",1,18,33``; the quotes may be missing.

    Raises
    ------
    ValueError
        If these are not three texts and three numbers.
    """
    match = _IDENTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no sensor of the form name,serial,date,type,subtype,flags")
    groups = match.groups()
    name, serial, calibrated = ((groups[k] or groups[k + 1] or "").strip() for k in (0, 2, 4))
    return ThorlabsSensor(name, serial, calibrated, int(groups[6]), int(groups[7]), int(groups[8]))
