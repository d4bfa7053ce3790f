"""Calibration of a chip: experiments on the bench, pure fits, and the twin that predicts the chip."""

from calibration._calibrate import Verification, calibrate, verify
from calibration._curves import PhaseCurveFit, fit_phase_curve
from calibration._resistance import ResistanceFit, fit_resistance
from calibration._run_file import RunData, read_run
from calibration._twin_fit import NoiseModel, Settings, TwinFit, fit_twin, residual_over_noise
from optinc_hw.bench import CalibrationRecord

__all__ = [
    "CalibrationRecord",
    "NoiseModel",
    "PhaseCurveFit",
    "ResistanceFit",
    "RunData",
    "Settings",
    "TwinFit",
    "Verification",
    "calibrate",
    "fit_phase_curve",
    "fit_resistance",
    "fit_twin",
    "read_run",
    "residual_over_noise",
    "verify",
]
