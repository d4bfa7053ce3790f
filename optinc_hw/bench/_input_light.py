"""The laser's light on its way to one input port of the chip after the other."""

from collections.abc import Mapping
from numbers import Integral
from pathlib import Path

from optinc_hw.bench._inputs_section import MODULATORS, SwitchEntry
from optinc_hw.bench._switching import SwitchDrive
from optinc_hw.bench.chip_file import CHIP_FILE
from optinc_hw.errors import ConfigurationError, LimitError


class InputLight:
    """Brings the light to one input port, or to none.

    Constructing asks the switch how it stands, and moves nothing.

    Parameters
    ----------
    ways
        Way to each port that can be lit, None for a port that the laser is fixed to; empty on a chip with modulators.
    ports
        Ports of the chip.
    switches
        The switches of the bench.
    folder
        Bench folder, for messages.
    """

    def __init__(self, ways: Mapping[int, SwitchEntry | None], ports: int, switches: SwitchDrive, folder: Path) -> None:
        self._ways = ways
        self._ports = ports
        self._switches = switches
        self._file = folder / CHIP_FILE
        self._switched = {port: way for port, way in ways.items() if way is not None}
        fixed = [port for port, way in ways.items() if way is None]
        standing = set(switches.standing(self._switched.values()))
        self.lit: int | None = next(iter(fixed + [p for p, way in self._switched.items() if way in standing]), None)
        """Port that the laser's light can reach at present, None if it reaches none or if that is not known."""
        self.changes = 0
        """How often another port, or none, was chosen."""

    def choose(self, port: int | None) -> None:
        """Let the light reach ``port`` and no other one, None for no port at all.

        What is chosen already is asked for, and only moved if it does not stand any more.

        Raises
        ------
        ConfigurationError
            If the chip has modulators, or chip.yaml knows no way to that port.
        LimitError
            If the chip has no such port.
        InstrumentError
            If the switch failed, or stands otherwise afterwards; which port is lit is not known then.
        """
        port = self._checked(port)
        former, self.lit = self.lit, None
        way = None if port is None else self._ways[port]
        if way is not None:
            self._switches.connect([way])
        elif port is None:
            self._switches.disconnect(self._switched.values())
        self.lit = port
        self.changes += port != former

    def confirm(self) -> None:
        """See that the chosen port is still the lit one, and make it so again if it is not; raises as `choose`."""
        if self.lit is not None and self.lit in self._switched:
            self.choose(self.lit)

    def _checked(self, port: int | None) -> int | None:
        if not self._ways:
            raise ConfigurationError(
                f"{self._file}: inputs: this chip has input {MODULATORS}, which all get light at once; no single port "
                f"can be lit. Drive the modulators (heaters in_<i>_theta), or describe the ways of the light in inputs"
            )
        if port is None:
            if not self._switched:
                raise ConfigurationError(
                    f"{self._file}: inputs: the laser is fixed to port {next(iter(self._ways))}, so no switch can part "
                    f"them; switch the light off with bench.light(False)"
                )
            return None
        if isinstance(port, bool) or not isinstance(port, Integral) or not 0 <= port < self._ports:
            raise LimitError(
                f"there is no input port {port!r}; nothing was switched; give a port from 0 to {self._ports - 1}, or "
                f"None for no port"
            )
        if port not in self._ways:
            raise ConfigurationError(
                f"{self._file}: inputs: there is no way of the light to port {port}; ports that can be lit are "
                f"{', '.join(map(str, sorted(self._ways)))}; nothing was switched; add the way to inputs.{port}"
            )
        return int(port)
