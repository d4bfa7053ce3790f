"""Calibration of bare meshes: fidelity, prediction and readings on hidden chips, through simulated benches and drivers.

``python benchmarks/calibration.py`` calibrates 20 chips of every case, ``--chips N`` fewer, ``--first SEED`` others,
``--only CASE`` one case, ``--quick`` two chips of the small cases; ``--json FILE`` writes every figure. Judges read the
hidden chip's truth, the calibration never does: it sees the bench alone. The floor is what the same programming reaches
with the truth itself. Records of 8 and 12 ports are also corrected for drift, those of 8 completed for coherent light
in all ports. Fidelities have every column normalised and are maximised over port phases. Times are CPU seconds on one
thread.
"""

import argparse
import os
import sys
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description="Calibrations of hidden bare meshes, judged by their truth.")
    parser.add_argument("--chips", type=int, default=20, help="chips of each case (default 20)")
    parser.add_argument("--first", type=int, default=0, help="seed of the first chip (default 0)")
    parser.add_argument("--only", metavar="CASE", help="one case alone, such as '6 ports'")
    parser.add_argument("--quick", action="store_true", help="two chips of the small cases")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to FILE")
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    sys.path.append(sys.path.pop(0))  # this folder last, or this file would be the package of its name
    from _chips import CASES, QUICK, case_rows
    from _harness import conclude

    arguments = parser.parse_args()
    if arguments.only is not None and arguments.only not in CASES:
        parser.error(f"there is no case {arguments.only!r}; cases are {', '.join(map(repr, CASES))}")
    names = [arguments.only] if arguments.only else (QUICK if arguments.quick else CASES)
    rows = []
    for name in names:
        count = 2 if arguments.quick else arguments.chips
        rows += case_rows(name, CASES[name], range(arguments.first, arguments.first + count))
    conclude(rows, arguments.json)


if __name__ == "__main__":
    main()
