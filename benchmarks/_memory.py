"""Memory of a forward and backward pass through a mesh, each measured in a process of its own."""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from _harness import PROJECT, Row, figure

_LOOP = "torch loop"


def memory_rows(cases: Sequence[tuple[int, int]]) -> Iterator[Row]:
    """Return by how much the peak of the process's memory grows for meshes of n ports and w vectors.

    The unit is the memory of the fields themselves (n w numbers of 16 bytes): what keeps every column's fields takes
    about n of them.
    """
    if not Path("/proc/self/status").exists():
        return
    for n, vectors in cases:
        for contender in (PROJECT, _LOOP):
            command = [sys.executable, __file__, contender, str(n), str(vectors)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            size = n * vectors * 16
            case = f"peak memory of forward + backward, n = {n}, {vectors} vectors: {contender}"
            yield figure(f"{case} (fields: {size / 2**20:.3g} MiB)", int(done.stdout) / size, "fields")


def _growth(contender: str, n: int, vectors: int) -> int:
    """Bytes by which one pass raises the peak of this process's resident memory."""
    import torch
    from _forward import complex_normal
    from _gradients import gradients
    from _loop import loop_apply

    from optinc_hw.photonics import MeshModel, RectangularLayout

    layout, small = RectangularLayout(n), RectangularLayout(4)
    torch.set_num_threads(1)
    apply_to = {PROJECT: lambda layout: MeshModel(layout).apply, _LOOP: loop_apply}[contender]
    for mesh, width in ((small, 8), (layout, vectors)):
        mzis = len(mesh.mzis)
        phases = tuple(torch.linspace(0.0, 3.0, size, dtype=torch.float64) for size in (mzis, mzis, mesh.ports))
        fields = complex_normal(mesh.ports, width)
        target = fields.flip(-2)
        before = _peak()
        gradients(apply_to(mesh), phases, fields, target)
    return _peak() - before


def _peak() -> int:
    """Bytes of the greatest resident memory so far; of this process alone, unlike getrusage's."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


if __name__ == "__main__":
    print(_growth(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
