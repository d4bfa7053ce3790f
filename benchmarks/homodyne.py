"""Calibration of OptINC's own chips, with modulators and homodyne receivers: prediction, readings, time.

``python benchmarks/homodyne.py`` calibrates hidden chips of 4 to 16 ports through simulated benches and drivers;
``--ports N...`` others, ``--chips N`` so many of each size, ``--first SEED`` others, ``--quick`` two of 4 and 8 ports;
``--json FILE`` writes every figure.  Fresh settings judge the records.  Times are CPU seconds on one thread.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PORTS, QUICK = (4, 8, 12, 16), (4, 8)
CHIPS = 3
SETTINGS = 20
"""Fresh random settings that judge a record."""

Row = dict[str, Any]


def rows_of(ports: int, seeds: range) -> list[Row]:
    """Calibrate chips of one size; one that is refused counts as a residual of infinity."""
    from _harness import at_most, figure

    residuals, readings, times = [], [], []
    for seed in seeds:
        began = time.process_time()
        residual, count = calibrated(ports, seed)
        times.append(time.process_time() - began)
        residuals.append(residual)
        readings.append(count)
        print(f"{ports} ports, chip {seed}: {residual:.2f} times the noise, {count} readings", flush=True)
    case = f"homodyne chips of {ports} ports, {len(seeds)} chips"
    return [
        at_most(f"{case}: fresh settings predicted, worst", max(residuals), "noise", 3.0),
        figure(f"{case}: the same, median", statistics.median(residuals), "noise"),
        figure(f"{case}: readings, median", statistics.median(readings), "1"),
        figure(f"{case}: CPU time, median", statistics.median(times), "s"),
    ]


def calibrated(ports: int, seed: int) -> tuple[float, int]:
    """Calibrate one chip and predict fresh settings: residual over noise and readings of the calibration."""
    from calibration import calibrate, verify
    from optinc_hw import Bench
    from optinc_hw.errors import CalibrationError

    with tempfile.TemporaryDirectory() as folder, Bench.simulated(ports, seed) as bench:
        try:
            record = calibrate(bench, data_file=Path(folder) / "run.nc")
            return verify(bench, record, settings=SETTINGS).residual_over_noise, record.quality.readings
        except CalibrationError as error:
            print(f"{ports} ports, chip {seed}: {error}")
            return float("inf"), bench.readings


def main() -> None:
    parser = argparse.ArgumentParser(description="Calibrations of hidden chips with homodyne receivers.")
    parser.add_argument("--ports", type=int, nargs="+", default=PORTS, help="sizes of the chips")
    parser.add_argument("--chips", type=int, default=CHIPS, help=f"chips of each size (default {CHIPS})")
    parser.add_argument("--first", type=int, default=0, help="seed of the first chip (default 0)")
    parser.add_argument("--quick", action="store_true", help="two chips of 4 and 8 ports")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to FILE")
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    sys.path.append(sys.path.pop(0))  # this folder last, or its calibration.py would be the package of that name
    from _harness import conclude

    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + (2 if arguments.quick else arguments.chips))
    conclude(
        [row for ports in (QUICK if arguments.quick else arguments.ports) for row in rows_of(ports, seeds)],
        arguments.json,
    )


if __name__ == "__main__":
    main()
