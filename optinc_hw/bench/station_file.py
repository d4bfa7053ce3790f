"""Models of ``station.yaml``, which stays a plain QCoDeS station file."""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from optinc_hw.bench._problems import Name, Problems, parse, read_yaml
from optinc_hw.errors import ConfigurationError

if TYPE_CHECKING:
    from drivers.protocols import SimulatedAs

STATION_FILE = "station.yaml"

Role = Literal["meter", "switch", "laser", "heaters"]
Need = Literal["meter", "switch", "input switch", "laser", "heaters"]
"""What an instrument is needed for; a switch before the chip's inputs must be able to let no light pass."""

_METHODS: Mapping[Need, tuple[str, ...]] = {
    "laser": ("set_wavelength", "set_power", "set_light", "wait_settled", "make_safe", "close"),
    "meter": ("initialise", "read_powers", "close"),
    "switch": ("connect", "connections", "close"),
    "input switch": ("connect", "disconnect", "connections", "close"),
    "heaters": (
        "set_voltages",
        "read_voltages",
        "read_currents",
        "voltages_last_set",
        "set_channel_limits",
        "nonzero_outputs",
        "make_safe",
        "close",
    ),
}


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ParameterEntry(_Strict):
    """Attributes of one parameter that QCoDeS sets after construction.

    ``initial_value`` is refused: it would write to the instrument while connecting.
    """

    alias: str | None = None
    label: str | None = None
    unit: str | None = None
    scale: float | None = None
    offset: float | None = None
    step: float | None = None
    inter_delay: float | None = None
    post_delay: float | None = None
    limits: Annotated[list[float], Field(min_length=2, max_length=2)] | None = Field(
        default=None, description="a list [lowest, highest]"
    )
    monitor: bool | None = None


class AddedParameterEntry(ParameterEntry):
    """A delegate parameter that QCoDeS adds."""

    source: str | None = None


class InstrumentEntry(_Strict):
    """One instrument of the station."""

    type: Annotated[str, StringConstraints(pattern=r"^\w+(\.\w+)+$")] = Field(
        description="the dotted path of the driver class, such as drivers.QontrolQ8iv"
    )
    address: str | None = Field(default=None, description="the address of the instrument, as text")
    port: int | None = Field(default=None, description="a port number")
    enable_forced_reconnect: bool = Field(default=False, description="true or false")
    init: dict[str, Any] | None = Field(default=None, description="keyword arguments of the driver")
    parameters: dict[str, ParameterEntry] = Field(default={}, description="attributes by parameter name")
    add_parameters: dict[str, AddedParameterEntry] = Field(default={}, description="parameters to add")

    @property
    def where(self) -> str | None:
        """Address, whether given as ``address`` or inside ``init``."""
        inner = (self.init or {}).get("address")
        return self.address if self.address is not None else None if inner is None else str(inner)


class StationFile(_Strict):
    """Content of ``station.yaml``."""

    instruments: dict[Name, InstrumentEntry] = Field(description="a mapping from instrument name to its entry")


def read_station_file(folder: Path) -> StationFile:
    """Read ``folder/station.yaml``.

    Raises
    ------
    ConfigurationError
        If the file is missing or malformed; the message lists every fault with its key path and remedy.
    """
    path = folder / STATION_FILE
    return parse(StationFile, read_yaml(path), path)


def resolve_driver(dotted: str) -> type:
    """Import the class at ``dotted``.

    Raises
    ------
    ConfigurationError
        If the module cannot be imported, for whatever reason, or holds no such class.
    """
    module_name, _, class_name = dotted.rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # a lab's own driver may fail in any way while it is imported
        raise ConfigurationError(
            f"driver {dotted!r}: module {module_name!r} cannot be imported ({type(error).__name__}: {error})"
        ) from error
    found = getattr(module, class_name, None)
    if not isinstance(found, type):
        raise ConfigurationError(f"driver {dotted!r}: module {module_name!r} has no class {class_name!r}")
    return found


def simulated_as(driver: type) -> "SimulatedAs | None":
    """Return which simulated instrument stands in for ``driver``, None if it names none."""
    from drivers.protocols import SimulatedAs

    found = getattr(driver, "simulated_as", None)
    return found if isinstance(found, SimulatedAs) else None


def driver_size(entry: InstrumentEntry, known: "SimulatedAs") -> int | None:
    """Return the number of modules or ports that ``entry`` states, or the driver's default."""
    if known.size_key is None:
        return known.default_size
    size = (entry.init or {}).get(known.size_key, known.default_size)
    return size if isinstance(size, int) and not isinstance(size, bool) and size > 0 else None


def driver_options(entry: InstrumentEntry, known: "SimulatedAs") -> dict[str, str]:
    """Return the arguments in ``entry`` that the simulated instrument must know, as text."""
    init = entry.init or {}
    return {key: str(init[key]) for key in known.option_keys if init.get(key) is not None}


def is_qcodes_instrument(driver: type) -> bool:
    """Tell whether ``driver`` is a QCoDeS instrument, whose life sessions can follow by its name."""
    from qcodes.instrument import Instrument

    return issubclass(driver, Instrument)


def missing_methods(driver: type, need: Need) -> tuple[str, ...]:
    """Return the methods for the ``need`` (see ``drivers.protocols``) that ``driver`` lacks."""
    return tuple(name for name in _METHODS[need] if not callable(getattr(driver, name, None)))


def check_addresses(station: StationFile, path: Path, problems: Problems) -> None:
    """Note every address that two instruments share."""
    seen: dict[str, str] = {}
    for name, entry in station.instruments.items():
        if entry.where is None:
            continue
        key = entry.where.strip().casefold()
        if key in seen:
            problems.add(
                path,
                f"instruments.{name}.address",
                f"{entry.where!r} is also the address of {seen[key]!r}",
                "give each instrument its own address",
            )
        seen.setdefault(key, name)
