"""What a run on a bench found, whatever kind of chip it was, and the record that is made of it."""

import json
from dataclasses import dataclass
from datetime import datetime

from calibration._journal import Journal
from calibration._mesh_calibrate import MeshCalibration
from calibration._posterior import HeldOut
from calibration._report import ATTRIBUTE, RunReport, drift_report, mesh_report, readings_by_stage
from calibration._run_file import RunFile
from calibration._session import Array
from calibration._twin_fit import NoiseModel
from optinc_hw.bench import Bench, CalibrationRecord
from optinc_hw.bench.record import Quality, make_provenance
from optinc_hw.photonics import TwinParameters
from optinc_hw.units import dbm_to_watt, nm_to_m


@dataclass(frozen=True)
class Outcome:
    """The twin of a run, and how good it is.

    Parameters
    ----------
    twin
        The fitted twin.
    law
        Resistances (H,) in ohm at zero power and their relative growth (H,) in 1/W.
    sigmas
        Standard deviations (H,) of phases at mid power in rad and of efficiencies in rad/W.
    noise
        Noise of a reading.
    residual_over_noise
        Rms prediction error of held-out settings over the noise.
    train_residual_over_noise
        The same of the fit's own settings.
    held_out
        Number of held-out settings.
    held_out_tvd
        Mean total variation distance of the outputs' predicted and measured shares there; None where not judged.
    fit_readings
        Readings that entered the fit; None where not counted.
    expected_residual
        ``residual_over_noise`` of a chip that does nothing but what the model knows; None where not known.
    corrected
        Record that this one corrects for drift; None for a calibration from scratch.
    before
        How well ``corrected`` itself predicts the held-out settings; None for a calibration from scratch.
    mesh
        All that the calibration of a bare mesh from scratch found; None for others.
    """

    twin: TwinParameters
    law: tuple[Array, Array]
    sigmas: tuple[Array, Array]
    noise: NoiseModel
    residual_over_noise: float
    train_residual_over_noise: float
    held_out: int
    held_out_tvd: float | None = None
    fit_readings: int | None = None
    expected_residual: float | None = None
    corrected: CalibrationRecord | None = None
    before: HeldOut | None = None
    mesh: MeshCalibration | None = None

    @property
    def doubt(self) -> str:
        """What the start of a mesh could not explain; empty if nothing."""
        return "" if self.mesh is None else self.mesh.start.doubt


def finish(bench: Bench, journal: Journal, run: RunFile, outcome: Outcome) -> CalibrationRecord:
    """Write the run's results and make the record."""
    header, laser, noise = journal.header, bench.description.chip.laser, outcome.noise
    results: dict[str, str | int | float] = {
        "residual_over_noise": outcome.residual_over_noise,
        "train_residual_over_noise": outcome.train_residual_over_noise, "readings": journal.readings,
        "noise_relative": noise.relative, "noise_floor_w": noise.floor_w,
    }  # fmt: skip
    results[ATTRIBUTE] = json.dumps(_report(journal, outcome).to_json_dict(), allow_nan=False)
    if outcome.held_out_tvd is not None:
        results["held_out_tvd"] = outcome.held_out_tvd
    digest = run.finish(outcome.twin, results)
    quality = Quality(
        residual_over_noise=outcome.residual_over_noise, held_out_settings=outcome.held_out, readings=journal.readings,
        noise_relative=noise.relative, noise_floor_w=noise.floor_w, held_out_tvd=outcome.held_out_tvd,
        fit_readings=outcome.fit_readings, expected_residual=outcome.expected_residual,
    )  # fmt: skip
    provenance = make_provenance(
        seed=header.seed, chip=header.chip, laser_power_w=dbm_to_watt(laser.power_dbm),
        laser_wavelength_m=nm_to_m(laser.wavelength_nm), created=datetime.fromisoformat(header.created_utc),
        data_file=run.path.name, data_sha256=digest, corrected=outcome.corrected,
    )  # fmt: skip
    return CalibrationRecord.from_twin(outcome.twin, *outcome.law, outcome.sigmas, quality, provenance)


def _report(journal: Journal, outcome: Outcome) -> RunReport:
    if outcome.mesh is not None:
        return mesh_report(journal.steps, outcome.mesh)
    if outcome.corrected is not None and outcome.before is not None and outcome.held_out_tvd is not None:
        after = outcome.residual_over_noise, outcome.held_out_tvd
        return drift_report(journal.steps, outcome.corrected, outcome.twin, outcome.law[0], outcome.before, after)
    return RunReport(readings_by_stage(journal.steps))
