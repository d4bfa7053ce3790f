"""Calibration of a chip: experiments on the bench, pure fits, and the twin that predicts the chip."""

from calibration._active import Design, choose_settings, random_candidates
from calibration._broadcast import broadcast_record, require_same_record
from calibration._calibrate import calibrate
from calibration._curves import PhaseCurveFit, fit_phase_curve
from calibration._curves_extreme import Extreme, find_extreme
from calibration._curves_figures import plot_common_ground, plot_phase_curve, plot_resistance
from calibration._discovery import DetectorVerdict, Discovery, HeaterVerdict
from calibration._discovery_figures import plot_discovery
from calibration._discovery_file import Proposal, propose_chip_file
from calibration._discovery_map import ChannelMap, find_channels
from calibration._discovery_run import discover
from calibration._drift import DriftFit, correct_drift
from calibration._effects import Effect, effects_found
from calibration._electrical_ground import CommonGround, fit_common_ground, measure_common_ground
from calibration._export import export_qcodes
from calibration._history import ParameterHistory, parameter_history
from calibration._identifiability import identifiability
from calibration._matrix import TransferMatrix, total_variation
from calibration._matrix_compare import MatrixComparison, compare_matrices
from calibration._matrix_figures import matrix_figure
from calibration._matrix_inputs import InputPhases, coherent_readings, find_input_phases
from calibration._matrix_measure import (
    CoherentInputs,
    ModulatedInputs,
    coherent_settings,
    measure_generic_inputs,
    measure_homodyne,
    measure_two_port,
)
from calibration._matrix_null_space import InvisibleCombination, NullSpace, invisible_combinations
from calibration._matrix_pairs import plan_pairs
from calibration._matrix_retrieval import generic_fields, matrix_from_generic_inputs
from calibration._matrix_sources import matrix_from_fields, matrix_from_repeats, matrix_from_twin, twin_matrix
from calibration._matrix_two_port import matrix_from_two_port
from calibration._mesh_fit import MeshFit, fit_mesh, predict, refit
from calibration._mesh_linear import MeshData
from calibration._posterior import HeldOut, MeshPosterior, cross_validate, effect_asked_for, held_out
from calibration._probe import BenchProbe, Probe
from calibration._programming import ProgrammedTarget, ProgramVerification, random_targets, verify_programming
from calibration._programming_figures import plot_programming
from calibration._recalibrate import recalibrate
from calibration._record_change import RecordChange, compare_records
from calibration._report import Correction, RunReport, read_report
from calibration._resistance import ResistanceFit, fit_resistance
from calibration._retrain import RetrainedNetwork, RetrainingSettings, retrain
from calibration._retrain_file import RetrainedTile
from calibration._retrain_judge import NetworkJudgement, ProgrammedRunner, judge
from calibration._retrain_task import HeaterDac
from calibration._retrain_twin import TwinDoubt
from calibration._run_file import RunData, read_run
from calibration._start import Start, find_start
from calibration._twin_fit import NoiseModel, Settings, TwinFit, fit_twin, residual_over_noise
from calibration._verification import Verification, verify
from optinc_hw.bench import CalibrationRecord

__all__ = [
    "BenchProbe",
    "CalibrationRecord",
    "ChannelMap",
    "CoherentInputs",
    "CommonGround",
    "Correction",
    "Design",
    "DetectorVerdict",
    "Discovery",
    "DriftFit",
    "Effect",
    "Extreme",
    "HeaterDac",
    "HeaterVerdict",
    "HeldOut",
    "InputPhases",
    "InvisibleCombination",
    "MatrixComparison",
    "MeshData",
    "MeshFit",
    "MeshPosterior",
    "ModulatedInputs",
    "NetworkJudgement",
    "NoiseModel",
    "NullSpace",
    "ParameterHistory",
    "PhaseCurveFit",
    "Probe",
    "ProgramVerification",
    "ProgrammedRunner",
    "ProgrammedTarget",
    "Proposal",
    "RecordChange",
    "ResistanceFit",
    "RetrainedNetwork",
    "RetrainedTile",
    "RetrainingSettings",
    "RunData",
    "RunReport",
    "Settings",
    "Start",
    "TransferMatrix",
    "TwinDoubt",
    "TwinFit",
    "Verification",
    "broadcast_record",
    "calibrate",
    "choose_settings",
    "coherent_readings",
    "coherent_settings",
    "compare_matrices",
    "compare_records",
    "correct_drift",
    "cross_validate",
    "discover",
    "effect_asked_for",
    "effects_found",
    "export_qcodes",
    "find_channels",
    "find_extreme",
    "find_input_phases",
    "find_start",
    "fit_common_ground",
    "fit_mesh",
    "fit_phase_curve",
    "fit_resistance",
    "fit_twin",
    "generic_fields",
    "held_out",
    "identifiability",
    "invisible_combinations",
    "judge",
    "matrix_figure",
    "matrix_from_fields",
    "matrix_from_generic_inputs",
    "matrix_from_repeats",
    "matrix_from_twin",
    "matrix_from_two_port",
    "measure_common_ground",
    "measure_generic_inputs",
    "measure_homodyne",
    "measure_two_port",
    "parameter_history",
    "plan_pairs",
    "plot_common_ground",
    "plot_discovery",
    "plot_phase_curve",
    "plot_programming",
    "plot_resistance",
    "predict",
    "propose_chip_file",
    "random_candidates",
    "random_targets",
    "read_report",
    "read_run",
    "recalibrate",
    "refit",
    "require_same_record",
    "residual_over_noise",
    "retrain",
    "total_variation",
    "twin_matrix",
    "verify",
    "verify_programming",
]
