"""Which input ports of the hidden chip the laser's light enters."""

import math
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from optinc_hw.errors import ConfigurationError
from optinc_hw.photonics.layout import ChipLayout

Entering = NDArray[np.complex128]


class PortCourse(Protocol):
    """A way of the light that changes by itself, such as an optical switch."""

    def lit_at(self, time_s: float) -> int | None:
        """Return the port that is lit at a time on the clock in s, None if all are dark."""
        ...

    def steady_until(self, time_s: float) -> float:
        """Return the time in s until which the port that is lit at ``time_s`` stays lit."""
        ...


class LitPorts:
    """Fields per sqrt(W) of the laser in front of the chip's inputs.

    On a chip with modulators the splitter feeds all of them, whatever happens. On other chips all ports are dark to
    begin with.
    """

    def __init__(self, layout: ChipLayout) -> None:
        self._ports = layout.ports
        self._modulators = layout.modulators
        one_by_one = np.eye(layout.ports, dtype=np.complex128)
        self._single = {port: (port, row) for port, row in enumerate(one_by_one)}
        self._dark = (-1, np.zeros(layout.ports, dtype=np.complex128))
        self._fixed = self._dark
        self._course: PortCourse | None = None
        self._settings = layout.ports
        if layout.modulators:
            self._fixed = (-1, np.ones(layout.ports, dtype=np.complex128))

    def at(self, time_s: float) -> tuple[int, Entering]:
        """Return a key that is another one for other fields, and the fields (n,) per sqrt(W)."""
        if self._course is None:
            return self._fixed
        port = self._course.lit_at(time_s)
        return self._dark if port is None else self._single[port]

    def light(self, amplitudes: ArrayLike) -> None:
        """Let fields (n,) per sqrt(W) of the laser enter."""
        self._refuse_modulators()
        fields = np.array(amplitudes, dtype=np.complex128)
        if fields.shape != (self._ports,) or not np.isfinite(fields).all():
            raise ConfigurationError(
                f"hidden chip: fields of shape {fields.shape} cannot enter; give {self._ports} finite amplitudes"
            )
        if float(np.sum(np.abs(fields) ** 2)) > 1.0 + 1e-9:
            raise ConfigurationError(
                "hidden chip: the fields that enter hold more power than the laser gives; give amplitudes whose "
                "squares sum up to 1 at most"
            )
        self._settings += 1
        self._fixed, self._course = (self._settings, fields), None

    def select(self, port: int | None) -> None:
        """Let all light enter one port, or none."""
        self._refuse_modulators()
        if port is not None and port not in self._single:
            raise ConfigurationError(
                f"hidden chip: there is no input port {port!r}; the chip has 0..{self._ports - 1}, or None for dark"
            )
        self._fixed, self._course = self._dark if port is None else self._single[int(port)], None

    def follow(self, course: PortCourse) -> None:
        """Let light enter where ``course`` says, from now on."""
        self._refuse_modulators()
        self._course = course

    def steady_until(self, time_s: float) -> float:
        """Return the time in s until which the fields stay as they are at ``time_s``."""
        return math.inf if self._course is None else self._course.steady_until(time_s)

    def _refuse_modulators(self) -> None:
        if self._modulators:
            raise ConfigurationError(
                'hidden chip: light enters all modulators at once; only a chip with inputs="ports" has ports to light'
            )
