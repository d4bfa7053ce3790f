"""The names that scripts outside the repository rely on: kept for good, and nothing slips in unseen."""

import importlib
import inspect

import pytest

NAMES = {
    "optinc_hw": """
        Bench OptincError __version__
    """,
    "optinc_hw.photonics": """
        BlockRealisation ChipElements ChipLayout ChipModel CouplerDispersion Decomposition HeaterModel HeaterSolution
        LimitingMzi MeshImperfections MeshLayout MeshModel MeshPhases MeshProgram PhasePlacement ProgrammedMatrix
        ProgrammedUnitary RealPartRealisation Realisation RectangularLayout SvdRealisation TriangularLayout
        TwinParameters convert_phases coupler_matrix decompose fidelity haar_unitary mesh_matrix mzi_count mzi_matrix
        nearest_unitary power_from_voltage program_matrix program_mesh program_unitary realise solve_heaters
        solve_powers voltage_from_power
    """,
    "optinc_hw.onn": """
        Activation Cascade Cell CellChain CellTree ChipErrors Composition Enumeration Form Forward InputSpace
        Layer LayerPlan LevelCheck Multiply OpticalNetwork Rounding SCENARIOS Scenario SimulatedChips TRAINED
        Tile TilePlan TileRunner UnitKind build_cascade build_cell build_exact check_codes check_integers
        check_rounding count_mzis decode_pam4 encode_pam4 enumerate_inputs load_network load_trained
        mesh_products plot_tiles preprocess prove_composition quantised_mean save_network simulate_chips
        symbol_count symbol_error_rate tile widen_to_sigma_u
    """,
    "optinc_hw.onn.training": """
        CELL_SETTINGS Loss Method TrainedCell TrainedNetwork TrainingSettings provenance train_cell train_network
    """,
    "optinc_hw.interconnect": """
        Circuits Crossbar Cycle Fabric Job LinkParameters Phase PhaseFacts Schedule Simulation Step
        SwitchTree WdmRing binary_tree check_schedule halving_doubling hierarchical_ring in_switch
        job_setup_time oddl optinc recursive_doubling ring run_schedule simulate simulate_jobs step_time
        wrht
    """,
    "optinc_hw.interconnect.comparison": """
        Comparison Energy EnergyParameters LinkBudget MeshLoss Network NetworkDesign OpticalPower Range Row
        Server System Training TrainingStep Workload all_reduce_energy build_systems compare count_parameters
        crossover fastest_ranges find_workload load_module measure_workload optical_power plot_energy
        plot_shares plot_times plot_winners splitting_loss_db system_names training_step transformer workloads
    """,
    "optinc_hw.bench": """
        Bench BenchDescription BenchReport BenchTileRunner CalibrationRecord ChipFile DetectorReading HeaterReading
        InputRow InstrumentRow Interlock MeshRow PhaseDrive PhotonicChip RecordRow ServedBench StationFile TileRunner
        TwinTileRunner WiringRow check_bench instrument_names measure_transfer_matrix read_description record_history
        serve_bench write_bench_folder
    """,
    "optinc_hw.aggregation": """
        Aggregator AnalogExecutor BenchExecutor BlockQuantizer Checked ChipHost ChipHostError ChipUse Costs DriftAlarm
        ExactExecutor Executor HostHealth HostLimits OptincOptions OptincReduceScatter OptincState Progress
        RemoteExecutor ServedRequest SpotCheckSettings SpotCheckedExecutor TableExecutor TileRunner TwinExecutor
        optinc_hook register_optinc_hook
    """,
    "calibration": """
        BenchProbe CalibrationRecord ChannelMap CoherentInputs CommonGround Correction Design DetectorVerdict
        Discovery DriftFit Effect Extreme HeaterDac HeaterVerdict HeldOut InputPhases InvisibleCombination
        MatrixComparison MeshData MeshFit MeshPosterior ModulatedInputs NetworkJudgement NoiseModel NullSpace
        ParameterHistory PhaseCurveFit Probe ProgramVerification ProgrammedRunner ProgrammedTarget Proposal
        RecordChange ResistanceFit RetrainedNetwork RetrainedTile RetrainingSettings RunData RunReport Settings
        Start TransferMatrix TwinDoubt TwinFit Verification broadcast_record calibrate choose_settings
        coherent_readings coherent_settings compare_matrices compare_records correct_drift cross_validate
        discover effect_asked_for effects_found export_qcodes find_channels find_extreme find_input_phases
        find_start fit_common_ground fit_mesh fit_phase_curve fit_resistance fit_twin generic_fields held_out
        identifiability invisible_combinations judge matrix_figure matrix_from_fields matrix_from_generic_inputs
        matrix_from_repeats matrix_from_twin matrix_from_two_port measure_common_ground measure_generic_inputs
        measure_homodyne measure_two_port parameter_history plan_pairs plot_common_ground plot_discovery
        plot_phase_curve plot_programming plot_resistance predict propose_chip_file random_candidates
        random_targets read_report read_run recalibrate refit require_same_record residual_over_noise retrain
        total_variation twin_matrix verify verify_programming
    """,
    "drivers": """
        CobriteLaser DiConMemsSwitch HeaterBank Keithley2600 KeysightLaser KeysightN7745A Laser NicslabXPOW PolatisOXC
        PowerMeter PowerReading PowerTrace QDevilQDAC2 Qontrol QontrolQ8iv SantecMPM210H SantecTSL570 SimulatedAs
        SweepLog Switch ThorlabsPM
    """,
    "drivers.base": """
        Dialect HeaterBankInstrument HeaterWire Identity LaserInstrument Link LinkedInstrument ScpiInstrument SerialPort
        SwitchInstrument VisaPort parse_flag parse_identity parse_integer parse_level parse_number parse_reading
    """,
    "simulated_instruments": """
        BenchWiring HeaterEvent HeaterTrace HiddenChip HiddenEffects HiddenParameters InstrumentSpec PRESETS Preset
        SimulatedBench SimulatedCobrite SimulatedDiCon1xN SimulatedKeithley2600 SimulatedKeysightLaser
        SimulatedKeysightN7745A SimulatedNicslabXPOW SimulatedPolatisOXC SimulatedQDevilQDAC2 SimulatedQontrol
        SimulatedSantecMPM210H SimulatedSantecTSL570 SimulatedThorlabsPM SwitchPath coupler_mean default_bench
        read_heater_trace
    """,
    "simulated_instruments.faults": """
        BenchFaults ChipFault DeadDetector Doubled DriftingHeater Dropped ErrorFlood Fault FaultScript FaultStep
        FlippedBit Frozen Garbled Glued Hit Late LinkFault LostReply LostWrite ModeHop OffsetDetector OpenHeater
        PowerDrop Refused Restarted SaturatedDetector ShortedHeater Split Stuttered Truncated Unasked WrongIdentity
    """,
}

SIGNATURES = {
    "optinc_hw.photonics": {
        "mzi_matrix": "theta phi eta_in eta_out",
        "RectangularLayout": "ports",
        "decompose": "unitary layout placement nearest_unitary",
        "mesh_matrix": "phases imperfections",
        "realise": "matrix form",
        "haar_unitary": "n rng",
        "fidelity": "a b gauge",
    },
    "optinc_hw.onn": {
        "encode_pam4": "codes bits",
        "decode_pam4": "symbols",
        "quantised_mean": "codes rounding",
        "preprocess": "symbols inputs",
        "build_exact": "servers bits rounding",
        "count_mzis": "shape form",
        "tile": "network ports",
    },
    "optinc_hw.interconnect": {
        "ring": "nodes fabric",
        "hierarchical_ring": "nodes group fabric",
        "binary_tree": "nodes fabric",
        "recursive_doubling": "nodes fabric",
        "halving_doubling": "nodes fabric",
        "wrht": "nodes wavelengths",
        "oddl": "nodes transceivers",
        "in_switch": "nodes ports",
        "optinc": "nodes fan_in",
        "check_schedule": "schedule",
        "run_schedule": "schedule tensor group",
        "simulate": "schedule payload_bytes links",
        "step_time": "schedule payload_bytes links",
    },
    "optinc_hw.interconnect.comparison": {
        "compare": "training nodes network",
        "Training.of": "workload batch server bits",
        "find_workload": "name",
    },
    "optinc_hw.bench": {"Bench.open": "folder simulate"},
    "optinc_hw.aggregation": {"Aggregator.mean": "self tensors"},
    "calibration": {
        "calibrate": "bench",
        "verify": "bench record",
        "fit_phase_curve": "power_w detected_w",
        "fit_resistance": "current_a voltage_v",
    },
    "simulated_instruments": {"HiddenChip.from_seed": "seed", "HiddenChip.from_file": "path"},
}
"""The leading parameters that positional callers use."""


@pytest.mark.parametrize("package", NAMES)
def test_public_names_are_frozen(package):
    module = importlib.import_module(package)
    assert sorted(module.__all__) == NAMES[package].split()
    assert len(set(module.__all__)) == len(module.__all__)


@pytest.mark.parametrize("package", NAMES)
def test_public_names_exist_and_are_documented(package):
    module = importlib.import_module(package)
    assert module.__doc__
    for name in module.__all__:
        thing = getattr(module, name)
        if inspect.isclass(thing) or inspect.isfunction(thing):
            assert inspect.getdoc(thing), name


@pytest.mark.parametrize("package", SIGNATURES)
def test_leading_parameters_keep_their_names(package):
    for path, expected in SIGNATURES[package].items():
        thing = importlib.import_module(package)
        for part in path.split("."):
            thing = getattr(thing, part)
        names = list(inspect.signature(thing).parameters)
        assert names[: len(expected.split())] == expected.split(), path


def test_unknown_names_are_attribute_errors():
    for package in ("optinc_hw", "optinc_hw.bench"):
        with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'Bnech'"):
            importlib.import_module(package).Bnech  # noqa: B018
