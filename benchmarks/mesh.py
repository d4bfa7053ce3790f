"""Speed, accuracy and memory of the mesh engine beside other libraries, on one thread.

``python benchmarks/mesh.py`` prints tables, ``--json FILE`` writes every figure, ``--quick`` takes a minute or two.
Peers that are not installed are left out (``make bench`` installs them). Times are of the CPU, medians after a warm-up;
ratios compare contenders of the same run.
"""

import argparse
import os
from collections.abc import Iterator
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed and accuracy of the mesh engine beside other libraries.")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to FILE")
    parser.add_argument("--quick", action="store_true", help="fewer sizes and samples")
    arguments = parser.parse_args()
    # Before numpy and torch load their libraries: on small matrices a second thread waits more than it works.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ[name] = "1"
    import torch
    from _harness import threads, versions, write_rows

    torch.set_num_threads(1)
    rows = list(_sections(arguments.quick))
    print("versions: " + ", ".join(f"{name} {version}" for name, version in versions().items()))
    print(f"threads: {threads()}; load of the machine: " + " / ".join(f"{load:.1f}" for load in os.getloadavg()))
    missed = [row["case"] for row in rows if row["reached"] is False]
    print("every measured goal reached" if not missed else "goals missed: " + "; ".join(missed))
    if arguments.json is not None:
        write_rows(rows, arguments.json)


def _sections(quick: bool) -> Iterator[dict[str, object]]:
    """Print each section when it is done and yield its rows."""
    from _forward import FULL, QUICK, batched_decompositions, decompositions, forward_budgets, many_vectors, matrices
    from _gradients import setting_gradients, vector_gradients
    from _harness import comparison_tables, row_table
    from _memory import memory_rows
    from _peers import installed_peers
    from mesh_correction import correction_rows

    effort = QUICK if quick else FULL
    for comparisons in (
        decompositions((8, 64, 128) if quick else (8, 16, 32, 64, 128), installed_peers(), effort),
        batched_decompositions((8, 32) if quick else (8, 16, 32, 64), effort),
        matrices((8, 64, 128) if quick else (8, 16, 32, 64, 128), effort),
        many_vectors((64, 128) if quick else (16, 32, 64, 128), effort),
        vector_gradients((64, 128) if quick else (16, 32, 64, 128), effort),
        setting_gradients((12, 32) if quick else (12, 32, 64), effort),
    ):
        done = list(comparisons)
        print(comparison_tables(done), end="\n\n", flush=True)
        for comparison in done:
            yield from comparison.rows()
    sizes = ((32, 256), (128, 256)) if quick else ((32, 256), (64, 256), (128, 256), (64, 4096), (128, 4096))
    for rows in (forward_budgets(effort), list(memory_rows(sizes))):
        print(row_table(rows), end="\n\n", flush=True)
        yield from rows
    yield from correction_rows(quick)  # prints its own tables
    print()


if __name__ == "__main__":
    main()
