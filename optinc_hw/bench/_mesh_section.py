"""The mesh in ``chip.yaml``: placements from data, MZIs that the chip lacks, phases that are stuck."""

import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from optinc_hw.bench._problems import Problems, suggest
from optinc_hw.photonics.mesh_layout import MeshLayout, RectangularLayout, TriangularLayout

LayoutName = Literal["rectangular", "triangular", "custom"]
MAX_COLUMNS = 512

_PLACE = "[column, upper mode], both counted from 0"
_Place = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=2, max_length=2)]
_Places = tuple[tuple[int, int], ...]
_Angle = Annotated[float, Field(allow_inf_nan=False)]
_HEATER = re.compile(r"mzi_(\d+)_(\d+)_(?:theta|phi)")


class StuckEntry(BaseModel):
    """Phases at which one MZI is stuck, whatever its heaters do; a phase that is left out follows its heater."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    theta_rad: _Angle | None = Field(default=None, description="the internal phase in rad, if it is stuck")
    phi_rad: _Angle | None = Field(default=None, description="the external phase in rad, if it is stuck")


class MeshSection(BaseModel):
    """Section ``mesh`` of ``chip.yaml``."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    mzis: list[_Place] | None = Field(default=None, description=f"a list of places {_PLACE}, for layout: custom")
    missing: list[_Place] = Field(default=[], description=f"a list of places {_PLACE}, that the chip lacks")
    stuck: dict[str, StuckEntry] = Field(
        default={}, description="a mapping from MZI, such as mzi_0_2, to theta_rad, phi_rad or both"
    )

    @property
    def missing_mzis(self) -> tuple[str, ...]:
        """Names of the MZIs that the chip lacks, in the order of the light."""
        return tuple(map(mzi_name, sorted(_places(self.missing))))

    @property
    def stuck_rad(self) -> dict[str, float]:
        """Phase in rad of each heater that does not move its phase, by the heater's name."""
        phases = {
            f"{mzi}_{kind}": value
            for mzi, entry in self.stuck.items()
            for kind, value in (("theta", entry.theta_rad), ("phi", entry.phi_rad))
        }
        return {name: float(value) for name, value in phases.items() if value is not None}

    def of_missing_mzi(self, heater: str) -> str | None:
        """Return the MZI's name if ``heater`` is the name of a heater of an MZI that the chip lacks, else None."""
        found = _HEATER.fullmatch(heater)
        name = mzi_name((int(found[1]), int(found[2]))) if found else None
        return name if name in self.missing_mzis else None

    def designed(self, layout: LayoutName, ports: int) -> MeshLayout:
        """Return the mesh as it was designed, nothing missing.

        Raises
        ------
        MatrixError
            If MZIs of a custom layout lie outside the ports or share a mode.
        """
        if layout == "custom":
            return MeshLayout(ports, _places(self.mzis or ()))
        return TriangularLayout(ports) if layout == "triangular" else RectangularLayout(ports)

    def built(self, layout: LayoutName, ports: int) -> MeshLayout:
        """Return the mesh as it was built, without the MZIs that the chip lacks; raises as `designed`."""
        mesh = self.designed(layout, ports)
        return mesh.without(_places(self.missing)) if self.missing else mesh


def mzi_name(mzi: tuple[int, int]) -> str:
    """Name of the MZI at (column, upper mode)."""
    return f"mzi_{mzi[0]}_{mzi[1]}"


def check_mesh(section: MeshSection, layout: LayoutName, ports: int, path: Path) -> None:
    """Check that the places of a mesh section exist and agree with one another.

    Raises
    ------
    ConfigurationError
        Listing every fault with its key path and remedy.
    """
    problems = Problems()
    _check_custom(section, layout, ports, path, problems)
    problems.raise_if_any()
    known = section.designed(layout, ports).mzis
    _check_missing(section, known, layout, path, problems)
    _check_stuck(section.stuck, section.missing_mzis, known, path, problems)
    problems.raise_if_any()


def _places(entries: Iterable[list[int]]) -> _Places:
    return tuple((entry[0], entry[1]) for entry in entries)


def _check_custom(section: MeshSection, layout: LayoutName, ports: int, path: Path, problems: Problems) -> None:
    if layout != "custom":
        if section.mzis is not None:
            problems.add(
                path,
                "mesh.mzis",
                f"layout: {layout} has places of its own",
                "remove mesh.mzis, or write layout: custom",
            )
        return
    if section.mzis is None:
        problems.add(path, "mesh.mzis", "layout: custom needs the places of the MZIs", f"add a list of {_PLACE}")
        return
    for k, (column, mode) in enumerate(section.mzis):
        key = f"mesh.mzis.{k}"
        if mode > ports - 2:
            problems.add(
                path, key, f"{[column, mode]} needs modes {mode} and {mode + 1}; a mesh of {ports} ports has 0 to "
                f"{ports - 1}", f"give an upper mode from 0 to {ports - 2}",
            )  # fmt: skip
        if column >= MAX_COLUMNS:
            problems.add(path, key, f"column {column} is too far", f"give a column from 0 to {MAX_COLUMNS - 1}")
    for first, second in pairwise(sorted(_places(section.mzis))):
        if first[0] == second[0] and second[1] - first[1] < 2:
            problems.add(
                path, "mesh.mzis", f"{list(first)} and {list(second)} share a mode", "move one to another column"
            )


def _check_missing(section: MeshSection, known: _Places, layout: LayoutName, path: Path, problems: Problems) -> None:
    places = _places(section.missing)
    for k, place in enumerate(places):
        key = f"mesh.missing.{k}"
        if place not in known:
            problems.add(path, key, f"the {layout} mesh has no MZI at {list(place)}", _nearby(place, known))
        elif place in places[:k]:
            problems.add(path, key, f"{list(place)} is listed twice", "remove one of them")


def _check_stuck(
    stuck: Mapping[str, StuckEntry], missing: tuple[str, ...], known: _Places, path: Path, problems: Problems
) -> None:
    names = [mzi_name(mzi) for mzi in known]
    for name, entry in stuck.items():
        key = f"mesh.stuck.{name}"
        if name not in names:
            problems.add(path, key, "the mesh has no MZI of this name", suggest(name, names))
        elif name in missing:
            problems.add(path, key, "this MZI is missing (mesh.missing), so it has no phases", "remove one of the two")
        elif entry.theta_rad is None and entry.phi_rad is None:
            problems.add(path, key, "no stuck phase is given", "add theta_rad or phi_rad, or remove this entry")


def _nearby(place: tuple[int, int], known: _Places) -> str:
    """Remedy for a place without an MZI: those of its column."""
    column = [list(mzi) for mzi in known if mzi[0] == place[0]]
    if column:
        return f"column {place[0]} has {', '.join(map(str, column))}"
    last = max((mzi[0] for mzi in known), default=0)
    return f"give a place from the mesh; its columns are 0 to {last}"
