"""How a run begins, or is taken up: its arguments, what it is a run of, its file and its journal."""

import hashlib
import json
import logging
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from calibration._checks import require_file_name, require_whole
from calibration._journal import SUFFIX, Journal
from calibration._journal_run import Argument, RunHeader, software_version
from calibration._run_file import read_run
from optinc_hw.bench import Bench, BenchDescription
from optinc_hw.bench._lock import hold_file
from optinc_hw.errors import CalibrationError
from optinc_hw.units import dbm_to_watt, nm_to_m

_log = logging.getLogger(__name__)

_DIGEST = 16
"""Hexadecimal digits that stand for the wiring of a bench."""


def check_run_arguments(seed: int, data_file: str | Path | None, resume: str | Path | None) -> None:
    """Refuse what begins no run and takes none up.

    Raises
    ------
    CalibrationError
        If the seed is no whole number of at least 0, a path names no file that a run can be in, or both are given.
    """
    require_whole("seed", seed, 0)
    if resume is not None and data_file is not None:
        raise CalibrationError("a resumed run goes on in its own file; give data_file or resume, not both")
    for name, path in (("data_file", data_file), ("resume", resume)):
        if path is not None:
            require_file_name(name, path, "give the path of a run's netCDF file")
    if data_file is not None and Path(data_file).suffix == SUFFIX:
        raise CalibrationError(
            f"data_file = {str(data_file)!r} ends in {SUFFIX}, as journals do; name the netCDF file, such as run.nc"
        )


def begin_run(
    bench: Bench, kind: str, seed: int, arguments: Mapping[str, Argument], data_file: str | Path | None,
    resume: str | Path | None,
) -> tuple[Path, Journal]:  # fmt: skip
    """Begin a run of a bench, or take one up, with arguments that were checked.

    Parameters
    ----------
    bench
        An open bench.
    kind
        First word of the file's name where ``data_file`` gives none: the rest is the time.
    seed, arguments
        Seed of the run, and what else decides which settings are asked for, by the names of the function's arguments.
    data_file, resume
        As for `calibrate`.

    Returns
    -------
    tuple
        netCDF file of the run and its journal.

    Raises
    ------
    CalibrationError, LinkError
        See `open_journal`.
    """
    created = datetime.now(UTC)
    if data_file is None:
        data_file = _unused(bench.folder / f"{kind}_{created:%Y%m%dT%H%M%S}.nc")
    return open_journal(Path(data_file), run_header(bench, seed, arguments, created), resume)


def run_header(bench: Bench, seed: int, arguments: Mapping[str, Argument], created: datetime) -> RunHeader:
    """State which run of which bench is to begin.

    Parameters
    ----------
    bench
        An open bench.
    seed
        Seed of the run.
    arguments
        What else decides which settings are asked for, by the names of the function's arguments.
    created
        The start.
    """
    chip = bench.description.chip
    heaters = len(bench.layout.heaters)
    return RunHeader(
        chip=chip.name, layout=bench.layout, seed=int(seed), arguments=dict(arguments),
        max_power_w=tuple(bench.max_power.tolist()), max_total_power_w=float(bench.max_total_power),
        nominal_efficiency=(np.pi / chip.nominal.p_pi_w,) * heaters, software=software_version(),
        created_utc=created.isoformat(), conditions={
            "laser_power_w": dbm_to_watt(chip.laser.power_dbm),
            "laser_wavelength_m": nm_to_m(chip.laser.wavelength_nm), "averaging_time_s": chip.averaging_time_s,
            "settle_s": chip.settling.settle_s, "simulated_seed": bench.simulated_seed,
            **_wiring(bench.description),
        },
    )  # fmt: skip


def _wiring(description: BenchDescription) -> dict[str, Argument]:
    """Digests of what hangs where.  Addresses are left out: an instrument may get another one and is still the same."""
    chip = description.chip
    parts: dict[str, Any] = {  # Any: JSON content
        "heater_wiring": {name: (e.instrument, e.channel) for name, e in chip.heaters.entries.items()},
        "detector_wiring": {name: entry.model_dump() for name, entry in chip.detectors.items()},
        "input_wiring": {str(port): entry.model_dump() for port, entry in (chip.inputs or {}).items()},
        "instruments": {
            name: (description.station.instruments[name].type, chip.serial_numbers.get(name))
            for name in description.roles
        },
    }
    return {
        name: hashlib.sha256(json.dumps(part, sort_keys=True).encode()).hexdigest()[:_DIGEST]
        for name, part in parts.items()
    }


def open_journal(data_file: Path, header: RunHeader, resume: str | Path | None) -> tuple[Path, Journal]:
    """Begin a run, or take one up.

    Parameters
    ----------
    data_file
        netCDF file of a new run; there must be none yet.
    header
        What is asked for now.
    resume
        Journal or netCDF file of the run to take up; None begins one.  The sweeps of a finished run are given back.

    Returns
    -------
    tuple
        netCDF file of the run and its journal.

    Raises
    ------
    CalibrationError
        If the netCDF file of a new run is there already; see also `Journal.create`, `Journal.resume` and `read_run`.
    LinkError
        If another process is writing the journal.
    """
    if resume is None:
        journal = _journal_of(data_file)
        _require_unused(data_file, journal)
        _move_aside(journal)
        _mention_unfinished(data_file.parent, header)
        return data_file, Journal.create(journal, header)
    source = Path(resume)
    data_file = source.with_suffix("") if source.suffix == SUFFIX else source
    journal = _journal_of(data_file)
    if journal.exists() or not data_file.exists():
        return data_file, Journal.resume(journal, header)
    run = read_run(data_file)
    run.header.require_same_run(header, str(data_file))
    return data_file, run.replay()


def _journal_of(data_file: Path) -> Path:
    return data_file.with_name(f"{data_file.name}{SUFFIX}")


def _numbered(data_file: Path, number: int) -> Path:
    return data_file.with_name(f"{data_file.stem}.{number}{data_file.suffix}")


def _unused(data_file: Path) -> Path:
    """Return a path at which no run is or was begun: this one, or one with a number in it."""
    candidates = (_numbered(data_file, number) if number else data_file for number in count())
    return next(path for path in candidates if not path.exists() and not _journal_of(path).exists())


def _require_unused(data_file: Path, journal: Path) -> None:
    """Refuse to replace what another run has measured."""
    if not data_file.exists():
        return
    resumed = f"go on with that run by resume={str(journal)!r}, or " if journal.exists() else ""
    raise CalibrationError(
        f"{data_file} exists, and a run replaces no file: {resumed}give another data_file, or remove the file"
    )


def _move_aside(journal: Path) -> None:
    """Give an unfinished journal that is in a new one's place another name: nothing measured is ever lost."""
    if not journal.exists():
        return
    data_file = journal.with_suffix("")
    free = next(path for number in count(1) if not (path := _journal_of(_numbered(data_file, number))).exists())
    with ExitStack() as stack:
        hold_file(journal, stack)
        try:
            journal.rename(free)
        except OSError as error:
            raise CalibrationError(f"cannot move the unfinished journal {journal} to {free}: {error}") from error


def _mention_unfinished(folder: Path, header: RunHeader) -> None:
    """Tell in the log how to take up the latest unfinished run of this chip."""
    for journal in sorted(folder.glob(f"*{SUFFIX}"), key=_modified_s, reverse=True):
        try:
            run = read_run(journal)
        except CalibrationError as error:
            _log.debug("%s", error)
            continue
        if run.steps and (run.header.chip, run.header.layout) == (header.chip, header.layout):
            _log.warning(
                "%s holds %d sweeps of an unfinished run of this chip; go on with it by %s, or remove it",
                journal, len(run.steps), _call(run.header, journal),
            )  # fmt: skip
            return


def _modified_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # its run ended just now
        return 0.0


def _call(header: RunHeader, journal: Path) -> str:
    """Text of the call that takes a run up."""
    chosen = dict(header.arguments)
    record = chosen.pop("record", None)
    start = "calibrate(bench" if record is None else "recalibrate(bench, record"
    named = "".join(f", {name}={value!r}" for name, value in chosen.items())
    end = "" if record is None else f" with the record whose content_hash is {record!r}"
    return f"{start}, seed={header.seed}{named}, resume={str(journal)!r}){end}"
