"""Which run a journal is of, and its sweeps, as objects and as frames."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

import numpy as np

import optinc_hw
from calibration._journal_format import AnyArray, Frame, FrameKind, Scan
from optinc_hw.bench.chip_file import MAX_PORTS
from optinc_hw.errors import CalibrationError, OptincError
from optinc_hw.onn._checks import whole_number
from optinc_hw.photonics import ChipLayout, MeshLayout

READINGS = "readings_w"
"""Name of the array of detector readings in what a sweep answered."""
RESERVED = ("reading", "stage", "step", "time")
"""Names that the tables of run files use themselves."""
FORMAT = 2
Argument = str | int | float | bool | None
Arrays = Mapping[str, Any]  # Any: what numpy makes an array of
Results = dict[str, dict[str, AnyArray]]


@dataclass(frozen=True)
class RunHeader:
    """Which run a journal is of.

    Parameters
    ----------
    chip
        Name of the chip.
    layout
        Its heaters and detectors.
    seed
        Seed of the run.
    arguments
        What else decides which settings are asked for.
    max_power_w, nominal_efficiency
        Limit in W and nominal efficiency in rad/W of each heater (H,).
    max_total_power_w
        Limit of all heaters together in W.
    software
        Version that began the run.
    created_utc
        Its start, ISO 8601.
    conditions
        Light, times, wiring and kind of the bench's instruments: what readings depend on besides the settings.
    """

    chip: str
    layout: ChipLayout
    seed: int
    arguments: dict[str, Argument]
    max_power_w: tuple[float, ...]
    nominal_efficiency: tuple[float, ...]
    max_total_power_w: float
    software: str
    created_utc: str
    conditions: dict[str, Argument] = field(default_factory=dict)

    def to_json(self) -> str:
        """Text from which `from_json` makes an equal header."""
        plain = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name != "layout"}
        layout = {
            "ports": self.layout.ports, "mzis": self.layout.mesh.mzis, "stuck": self.layout.stuck,
            "inputs": self.layout.inputs, "receivers": self.layout.receivers,
        }  # fmt: skip
        return json.dumps({"format": FORMAT, "layout": layout, **plain}, sort_keys=True, allow_nan=False)

    @classmethod
    def from_json(cls, text: str, origin: str) -> Self:
        """Read what `to_json` wrote.

        Raises
        ------
        CalibrationError
            If it is of another format.
        """
        try:
            content = json.loads(text)
            if content.pop("format") != FORMAT:
                raise ValueError(f"format is not {FORMAT}")
            header = cls(layout=_layout(content.pop("layout")), **{**content, **_tuples(content)})
            header._check()
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, OptincError) as error:
            raise CalibrationError(
                f"{origin} has a header of another form ({error}); read it with the version that wrote it"
            ) from error
        return header

    def _check(self) -> None:
        """Raise ValueError for what no run has."""
        heaters = len(self.layout.heaters)
        if not all(isinstance(text, str) for text in (self.chip, self.software, self.created_utc)):
            raise ValueError("chip, software or created_utc is no text")
        if not whole_number(self.seed, 0):
            raise ValueError(f"seed is {self.seed!r}")
        for name in ("max_power_w", "nominal_efficiency"):
            values = np.asarray(getattr(self, name))
            if values.shape != (heaters,) or values.dtype.kind not in "fi" or not np.isfinite(values).all():
                raise ValueError(f"{name} is not a number for each of {heaters} heaters")
        if not 0.0 < float(self.max_total_power_w) < np.inf:
            raise ValueError(f"max_total_power_w is {self.max_total_power_w!r}")
        for name in ("arguments", "conditions"):
            known = getattr(self, name)
            if not isinstance(known, dict) or not all(
                isinstance(v, (str, int, float, type(None))) for v in known.values()
            ):
                raise ValueError(f"{name} is no mapping of names to numbers and texts")

    def require_same_run(self, now: "RunHeader", origin: str) -> None:
        """Raise CalibrationError, naming every difference, unless ``now`` asks for the same run."""
        differences = []
        for name in ("chip", "layout", "seed", "max_power_w", "nominal_efficiency", "max_total_power_w"):
            then, asked = getattr(self, name), getattr(now, name)
            if then != asked:
                differences.append(f"{name} was {_short(then)} and is {_short(asked)}")
        for then, asked in ((self.arguments, now.arguments), (self.conditions, now.conditions)):
            differences += [
                f"{key} was {then.get(key)!r} and is {asked.get(key)!r}"
                for key in sorted({*then, *asked})
                if then.get(key) != asked.get(key)
            ]
        if differences:
            raise CalibrationError(
                f"{origin} is of another run: {'; '.join(differences)}. Resume it with what it was started with, or "
                "start a new run"
            )


def _layout(content: dict[str, Any]) -> ChipLayout:  # Any: JSON content
    ports = content["ports"]
    if not whole_number(ports, 1) or ports > MAX_PORTS:
        raise ValueError(f"ports is {ports!r}")
    mesh = MeshLayout(ports, tuple((column, mode) for column, mode in content["mzis"]))
    return ChipLayout(ports, mesh, content["stuck"], inputs=content["inputs"], receivers=content["receivers"])


def _tuples(content: dict[str, Any]) -> dict[str, Any]:  # Any: JSON content
    return {name: tuple(content[name]) for name in ("max_power_w", "nominal_efficiency")}


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


@dataclass(frozen=True)
class Step:
    """One sweep: what was asked for and what came back, a row a reading.

    Parameters
    ----------
    stage
        Part of the run that it belongs to.
    time_s
        When it was over, in s since 1970-01-01 UTC.
    asked, answered
        Arrays by name; the first axis of all of them is the reading.
    """

    stage: str
    time_s: float
    asked: dict[str, AnyArray]
    answered: dict[str, AnyArray]

    @property
    def rows(self) -> int:
        """Number of readings."""
        return len(next(iter(self.answered.values())))


def pack_step(step: Step) -> Frame:
    """Frame of a sweep."""
    text = {"stage": step.stage, "time_s": step.time_s, "asked": len(step.asked)}
    arrays = {f"{role}/{name}": a for role in ("asked", "answered") for name, a in getattr(step, role).items()}
    return Frame(FrameKind.STEP, text, arrays)


def unpack(scan: Scan, origin: str) -> tuple[RunHeader, list[Step], Results]:
    """Header, sweeps and results in what `read_file` found.

    Raises
    ------
    CalibrationError
        If another version wrote it.
    """
    first, *rest = scan.frames
    steps: list[Step] = []
    results: Results = {}
    try:
        header = RunHeader.from_json(first.text["header"], origin)
        for frame in rest:
            if frame.kind == FrameKind.RESULT:
                results[str(frame.text["key"])] = frame.arrays
                continue
            arrays: dict[str, dict[str, AnyArray]] = {"asked": {}, "answered": {}}
            for name, values in frame.arrays.items():
                role, _, plain = name.partition("/")
                arrays[role][plain] = values
            steps.append(Step(str(frame.text["stage"]), float(frame.text["time_s"]), **arrays))
    except (KeyError, ValueError, TypeError) as error:
        raise CalibrationError(
            f"{origin} holds an entry of an unknown form ({error!r}); read it with the version that wrote it"
        ) from error
    return header, steps, results


def software_version() -> str:
    """Name and version of this software, as records and run files state it."""
    return f"optinc-hw {optinc_hw.__version__}"
