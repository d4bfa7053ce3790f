"""What the demo found, turned into the files of its report folder."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from numpy.typing import NDArray

from optinc_hw.aggregation import TableExecutor
from optinc_hw.bench import BenchDescription
from optinc_hw.bench.record import CalibrationRecord
from optinc_hw.demo._chip import MatrixMeasurement, SampleRun
from optinc_hw.demo._chip_figures import PhaseCurve, full_matrix, heaters, held_out, phase_curves, tiles
from optinc_hw.demo._data import write_data
from optinc_hw.demo._folder import SUMMARY, ReportFolder
from optinc_hw.demo._gradient_figures import symbols, training
from optinc_hw.demo._page import PAGE, Picture, page
from optinc_hw.demo._summary import DemoSummary
from optinc_hw.demo._training import TrainingComparison
from optinc_hw.photonics import ChipLayout, ChipModel

CALIBRATION_DATA = "calibration.nc"
DEMO_DATA = "demo.nc"
_RESOLUTION = 150


@dataclass(frozen=True, eq=False)
class Findings:
    """All that the demo measured.

    Parameters
    ----------
    description
        The bench's description.
    record
        The calibration in force.
    table
        Answers of the calibrated twin to all inputs.
    training
        Training runs.
    codes
        Codes (elements, workers) that went through the chip.
    calibrated, uncalibrated
        The chip's answers with and without its calibration (the latter for the first elements).
    matrices
        Target and measured matrices.
    readings
        Detector readings of the whole demo.
    """

    description: BenchDescription
    record: CalibrationRecord
    table: TableExecutor
    training: TrainingComparison
    codes: NDArray[np.int64]
    calibrated: SampleRun
    uncalibrated: SampleRun
    matrices: tuple[MatrixMeasurement, ...]
    readings: int


def write_pictures_and_data(report: ReportFolder, findings: Findings) -> None:
    """Write the pictures and the demo's own data.

    Raises
    ------
    ConfigurationError
        If a file cannot be written.
    """
    with xr.open_dataset(report.path / CALIBRATION_DATA, engine="h5netcdf") as file:
        raw = file.load()
    figures: dict[str, Callable[[], Figure]] = {
        "symbols.png": lambda: symbols(findings.calibrated, findings.uncalibrated),
        "training.png": lambda: training(findings.training),
        "matrix.png": lambda: full_matrix(findings.matrices[0]),
        "tiles.png": lambda: tiles(findings.matrices[1:]),
        "twin.png": lambda: _twin(raw, findings.record),
        "phase_curves.png": lambda: phase_curves(chosen_curves(raw, findings.record.ports)),
        "heaters.png": lambda: _heaters(findings),
    }
    for name, draw in figures.items():
        with report.writing(name) as part:
            draw().savefig(part, dpi=_RESOLUTION, format="png")
    with report.writing(DEMO_DATA) as part:
        write_data(
            part,
            findings.codes,
            (findings.calibrated, findings.uncalibrated),
            findings.matrices,
            findings.training,
            {"software": findings.record.provenance.software, "calibration": findings.record.content_hash},
        )


def write_summary(report: ReportFolder, findings: Findings, summary: DemoSummary) -> None:
    """Write the page and, last of all, the summary.

    Raises
    ------
    ConfigurationError
        If a file cannot be written.
    """
    record = f"bench/calibration_simulated_{summary.seed}.json"
    files = {
        SUMMARY: "all figures, for programs",
        CALIBRATION_DATA: "raw data of every stage of the calibration, and the fitted twin (netCDF)",
        DEMO_DATA: "gradients sent through the chip and its answers, matrices, training curves (netCDF)",
        "bench/station.yaml": "instruments of the bench (a QCoDeS station file)",
        "bench/chip.yaml": "the chip: wiring and limits",
        record: "the calibration record in force",
    }
    report.write_text(PAGE, page(summary, _pictures(findings), files))
    report.write_json(SUMMARY, summary.to_json_dict())


def chosen_curves(raw: xr.Dataset, ports: int) -> list[PhaseCurve]:
    """Phase curves of one heater of each kind from a calibration's data."""
    layout = ChipLayout(ports)
    middle = len(layout.mesh.mzis) // 2
    chosen = [
        int(layout.input_theta[ports // 2]),
        int(layout.mesh_theta[middle]),
        int(layout.mesh_phi[middle]),
        int(layout.output_phase[ports // 2]),
        int(layout.attenuator[ports // 2]),
        layout.lo,
    ]
    curves = []
    for heater in chosen:
        readings = raw["fringe_readings"].to_numpy()[heater]
        detector = int(np.argmax(np.ptp(readings, axis=0)))
        power = raw["fringe_power"].to_numpy()[heater]
        curves.append(PhaseCurve(layout.heaters[heater], power, readings[:, detector], layout.detectors[detector]))
    return curves


def _heaters(findings: Findings) -> Figure:
    nominal = findings.description.chip.nominal
    return heaters(findings.record, nominal.resistance_ohm, nominal.p_pi_w)


def _twin(raw: xr.Dataset, record: CalibrationRecord) -> Figure:
    twin = record.twin()
    predicted = ChipModel.from_parameters(twin).readings(twin, raw["held_out_power"].to_numpy())
    sigma = np.hypot(record.quality.noise_relative * predicted, record.quality.noise_floor_w)
    return held_out(raw["held_out_readings"].to_numpy(), predicted, sigma)


def _pictures(findings: Findings) -> tuple[Picture, ...]:
    count = len(findings.record.heaters)
    return (
        Picture(
            "symbols.png",
            "Gradients through the chip",
            f"{len(findings.codes)} gradient elements of one training step went through the instruments, tile after "
            "tile. Left: with the calibration. Right: the same chip programmed as designed, its phase offsets ignored.",
        ),
        Picture(
            "training.png",
            "Training",
            "The same network, initial weights and batches; every step's gradients quantised to 8 bits and averaged by "
            "the calibrated twin's answers, against averaging in floating point.",
        ),
        Picture(
            "matrix.png",
            "A matrix that fills the chip",
            "A random real matrix, programmed through the twin and measured with known input fields: what was asked "
            "for, what the instruments read, the difference, and the same chip programmed without its calibration.",
        ),
        Picture(
            "tiles.png",
            "Tiles of the optical network",
            "The matrices that average the gradients, each measured in the same way.",
        ),
        Picture(
            "twin.png",
            "Twin against chip",
            "Detector powers at random heater settings that were kept out of the fit, against the twin's predictions. "
            "The residuals are wider than the noise by the effects that the model lacks.",
        ),
        Picture(
            "phase_curves.png",
            "Phase curves",
            "One heater of each kind swept alone, on the detector with the largest fringe. Heat that reaches "
            "neighbouring waveguides bends the fringes a little; the global fit that follows takes it into account.",
        ),
        Picture(
            "heaters.png",
            "Heaters",
            f"What the calibration found for the {count} heaters. "
            "Offsets are random, as on a fabricated chip; those "
            "of the inputs' external phases and of the local oscillator are a free choice of reference, near zero.",
        ),
    )
