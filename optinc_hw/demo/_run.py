"""The whole demo: chip, calibration, mapping, training, gradients through the instruments, report."""

import time
from pathlib import Path

import numpy as np

import optinc_hw
from calibration import calibrate
from optinc_hw.aggregation import Aggregator, TableExecutor, TwinExecutor
from optinc_hw.bench import Bench, instrument_names, write_bench_folder
from optinc_hw.bench.record import CalibrationRecord
from optinc_hw.bench.tile_runner import TwinTileRunner
from optinc_hw.demo._chip import Codes, CountProgress, choose_sample, measure_matrices, run_sample
from optinc_hw.demo._folder import ReportFolder
from optinc_hw.demo._report import CALIBRATION_DATA, Findings, write_pictures_and_data, write_summary
from optinc_hw.demo._summary import DemoSettings, DemoSummary
from optinc_hw.demo._training import WORKERS, Progress, compare_training, load_digits, one_thread
from optinc_hw.onn import OpticalNetwork, build_exact, quantised_mean, symbol_error_rate, tile

BITS = 8


def run_demo(settings: DemoSettings, out: str | Path, progress: Progress | None = None) -> DemoSummary:
    """Run the main job end to end on a simulated bench and write a report folder.

    Parameters
    ----------
    settings
        What to do.
    out
        Report folder: new, empty, or of an earlier demo.
    progress
        Called with (stage, done, total).

    Returns
    -------
    DemoSummary
        Also in ``summary.json``, which is written last: a folder that has it is complete.

    Raises
    ------
    ConfigurationError
        If scikit-learn is missing, the ports are out of range or the folder cannot be used; before any work.
    CalibrationError, InstrumentError
        If the chip cannot be calibrated or an instrument fails; the bench is made safe.
    """
    load_digits()  # a missing package must not be found after minutes of work
    addresses = {name: f"simulated:{name}" for name in instrument_names(settings.ports)}
    report = ReportFolder.claim(out)
    tell = progress or _silent
    laps = _Laps()
    write_bench_folder(report.bench, settings.ports, addresses)
    with one_thread(), Bench.open(report.bench, simulate=True, seed=settings.seed) as bench:
        laps.end("start")
        findings = _use(bench, report, settings, tell, laps)
    tell("report", 0, 1)
    write_pictures_and_data(report, findings)
    tell("report", 1, 1)
    laps.end("report")
    summary = _summary(settings, findings, laps.seconds())
    write_summary(report, findings, summary)
    return summary


def _use(bench: Bench, report: ReportFolder, settings: DemoSettings, tell: Progress, laps: "_Laps") -> Findings:
    """Do everything that needs the chip."""
    record = calibrate(
        bench,
        seed=settings.seed,
        data_file=report.path / CALIBRATION_DATA,
        progress=lambda stage, done, total: tell(f"calibration: {stage}", done, total),
    )
    bench.save_record(record)
    laps.end("calibration")
    network = build_exact(WORKERS, BITS)
    table = _table_of_twin(network, record, settings.seed, lambda done, total: tell("twin: all inputs", done, total))
    laps.end("mapping and twin")
    seeds = range(settings.seed, settings.seed + settings.train_seeds)
    training = compare_training(table, seeds, epochs=settings.epochs, progress=tell)
    laps.end("training")
    rng = np.random.default_rng(settings.seed)
    aggregator = Aggregator(table)
    step = aggregator.encode(list(training.sampled_gradients))
    codes = step[choose_sample(step, settings.elements, aggregator.quantizer.top + 1, rng)].astype(np.int64)
    calibrated = run_sample(bench, network, codes, calibrated=True, progress=_named(tell, "bench: gradients"))
    laps.end("bench")
    few = codes[: settings.uncalibrated_elements]
    uncalibrated = run_sample(bench, network, few, calibrated=False, progress=_named(tell, "bench: not calibrated"))
    laps.end("bench without calibration")
    plan = tile(network, settings.ports)
    matrices = measure_matrices(bench, plan, rng, _named(tell, "bench: matrices"))
    laps.end("matrices")
    return Findings(
        description=bench.description,
        record=record,
        table=table,
        training=training,
        codes=codes,
        calibrated=calibrated,
        uncalibrated=uncalibrated,
        matrices=matrices,
        readings=bench.readings,
    )


def _table_of_twin(
    network: OpticalNetwork, record: CalibrationRecord, seed: int, progress: CountProgress
) -> TableExecutor:
    """Answers of the calibrated twin, noise included, to every input that the network can get."""
    runner = TwinTileRunner(record, np.random.default_rng(seed))
    return TableExecutor.from_executor(TwinExecutor(network, runner, progress=progress))


def _summary(settings: DemoSettings, findings: Findings, seconds: dict[str, float]) -> DemoSummary:
    quality, training = findings.record.quality, findings.training
    optical = tuple(float(run.accuracy[-1]) for run in training.optical)
    reference = tuple(float(run.accuracy[-1]) for run in training.float_)
    space = findings.table.space
    everything = space.codes(np.arange(space.size))
    return DemoSummary(
        version=optinc_hw.__version__,
        ports=settings.ports,
        seed=settings.seed,
        readings=quality.readings,
        bench_readings=findings.readings,
        twin_residual_over_noise=quality.residual_over_noise,
        noise_relative=quality.noise_relative,
        noise_floor_w=quality.noise_floor_w,
        bench_elements=len(findings.calibrated.answers),
        bench_symbol_error_rate=findings.calibrated.symbol_error_rate,
        uncalibrated_elements=len(findings.uncalibrated.answers),
        uncalibrated_symbol_error_rate=findings.uncalibrated.symbol_error_rate,
        twin_symbol_error_rate=_error_rate(findings.table, everything),
        twin_inputs=space.size,
        twin_sample_symbol_error_rate=_error_rate(findings.table, findings.codes),
        accuracy_optical=float(np.mean(optical)),
        accuracy_float=float(np.mean(reference)),
        accuracy_optical_runs=optical,
        accuracy_float_runs=reference,
        seconds=seconds,
    )


def _error_rate(table: TableExecutor, codes: Codes) -> float:
    return symbol_error_rate(table.run(codes), quantised_mean(codes), table.bits)


def _named(tell: Progress, stage: str) -> CountProgress:
    return lambda done, total: tell(stage, done, total)


def _silent(stage: str, done: int, total: int) -> None:
    del stage, done, total


class _Laps:
    """Wall time of consecutive stages."""

    def __init__(self) -> None:
        self._start = self._last = time.perf_counter()
        self._laps: dict[str, float] = {}

    def end(self, stage: str) -> None:
        """Note that ``stage`` ended now."""
        now = time.perf_counter()
        self._laps[stage] = now - self._last
        self._last = now

    def seconds(self) -> dict[str, float]:
        """Return the stages' times and their total in s."""
        return {**self._laps, "total": self._last - self._start}
