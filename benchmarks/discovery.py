"""Discovery of damaged bare meshes: what is found, accused wrongly or left open; and calibration of the rest.

``python benchmarks/discovery.py`` looks at 20 chips of 6, 8 and 12 ports with 5 % of their heaters swapped (two at
least), three dead and one dead detector, without a bench; and takes 10 chips of 6 and 8 ports through benches and
drivers from discovery by the proposed ``chip.yaml`` to a calibration of the rest. ``--chips N`` takes fewer, ``--first
SEED`` others, ``--only CASE`` one case, ``--quick`` two chips of 6 ports; ``--json FILE`` writes every figure. Dead
heaters of the first kind take current to no effect, which only light tells; on benches one of the three is open. A
heater counts as right if its verdict is that of the hidden chip, as open if discovery says that it does not know.
Times are CPU seconds on one thread.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

DIRECT = {
    "6 ports": ("method_a", 6),
    "6 ports, reflectivity 0.567": ("method_b", 6),
    "8 ports": ("method_a", 8),
    "12 ports": ("method_a", 12),
}
BENCHES = {"6 ports, to the end": 6, "8 ports, to the end": 8}
QUICK = ("6 ports", "6 ports, to the end")
OPEN = 1
"""Dead heaters of a bench that take no current."""


@dataclass(frozen=True)
class Found:
    """What discovery said of one chip."""

    right: int
    wrong: tuple[str, ...]
    undecided: tuple[str, ...]
    detectors_wrong: int
    readings: int
    seconds: float
    held_out_tvd: float = float("nan")
    summary: str = ""


def main() -> None:
    parser = argparse.ArgumentParser(description="Discovery of damaged bare meshes, judged by their truth.")
    parser.add_argument("--chips", type=int, help="chips of each case (default 20, and 10 on benches)")
    parser.add_argument("--first", type=int, default=100, help="seed of the first chip (default 100)")
    parser.add_argument("--only", metavar="CASE", help="one case alone, such as '6 ports'")
    parser.add_argument("--quick", action="store_true", help="two chips of 6 ports")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to FILE")
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    sys.path.append(sys.path.pop(0))  # this folder last: a file in it has the name of a package
    from _harness import conclude, row_table

    arguments = parser.parse_args()
    cases = [*DIRECT, *BENCHES]
    if arguments.only is not None and arguments.only not in cases:
        parser.error(f"there is no case {arguments.only!r}; cases are {', '.join(map(repr, cases))}")
    rows = []
    for name in [arguments.only] if arguments.only else QUICK if arguments.quick else cases:
        count = 2 if arguments.quick else arguments.chips or (20 if name in DIRECT else 10)
        found = []
        for seed in range(arguments.first, arguments.first + count):
            one = direct(*DIRECT[name], seed) if name in DIRECT else to_the_end(BENCHES[name], seed)
            found.append(one)
            print(line(name, seed, one), flush=True)
        rows += figures(name, found)
    print(row_table(rows))
    conclude(rows, arguments.json)


def direct(preset: str, ports: int, seed: int) -> Found:
    """Discover the wiring of a chip without a bench."""
    import numpy as np
    from _damaged import DamagedProbe

    from calibration._discovery import judge
    from calibration._discovery_map import find_channels
    from calibration._twin_fit import NoiseModel

    chip = DamagedProbe(preset, ports, seed)
    noise = NoiseModel(chip.effects.noise_relative, chip.effects.noise_floor_w)
    begun = time.process_time()
    discovery = judge(chip.layout, find_channels(chip, noise, np.random.default_rng(seed)))
    return judged(discovery, chip.damage, time.process_time() - begun)


def judged(discovery: object, damage: object, seconds: float, **more: object) -> Found:
    """Compare what discovery says with what is true."""
    true = damage.driven_by
    undecided = tuple(verdict.name for verdict in discovery.heaters if verdict.state == "undecided")
    told = [verdict for verdict in discovery.heaters if verdict.state != "undecided"]
    wrong = tuple(verdict.name for verdict in told if verdict.driven_by != true[verdict.name])
    seen = {verdict.name: verdict.state for verdict in discovery.detectors}
    missed = sum((state == "dead") != (name == damage.blind) or state == "permuted" for name, state in seen.items())
    return Found(
        len(true) - len(undecided) - len(wrong), wrong, undecided, missed, discovery.map.readings, seconds, **more
    )  # fmt: skip


def to_the_end(ports: int, seed: int) -> Found:
    """Discover through instruments, take over the proposed chip.yaml, and calibrate what is left."""
    from _damaged import Damage

    from calibration import calibrate, discover, propose_chip_file
    from optinc_hw.bench import Bench, instrument_names, write_bench_folder

    damage = Damage.drawn(ports, seed)
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root) / "bench"
        addresses = {name: f"simulated:{name}" for name in instrument_names(ports, "mesh")}
        write_bench_folder(folder, ports, addresses, kind="mesh")
        write_chip(folder, ports, seed, damage.truth(OPEN))
        begun = time.process_time()
        with Bench.open(folder, simulate=True) as bench:
            discovery = discover(bench, seed=seed)
        (folder / "chip.yaml").write_text(propose_chip_file(folder, discovery).text, encoding="utf-8")
        # Simulated wires begin where chip.yaml says: at the new channels they end where they should.
        write_chip(folder, ports, seed, damage.truth(OPEN, wired=True))
        with Bench.open(folder, simulate=True) as bench:
            record = calibrate(bench, seed=seed)
    tvd = record.quality.held_out_tvd
    return judged(
        discovery, damage, time.process_time() - begun, held_out_tvd=float("nan") if tvd is None else tvd,
        summary=discovery.summary,
    )  # fmt: skip


def write_chip(folder: Path, ports: int, seed: int, truth: dict) -> None:
    import json

    content = {"version": 1, "preset": "method_a", "ports": ports, "seed": seed, "truth": truth}
    (folder / "hidden_chip.yaml").write_text(json.dumps(content), encoding="utf-8")


def line(name: str, seed: int, one: Found) -> str:
    text = (
        f"{name}, chip {seed}: {one.right} right, {len(one.wrong)} wrong, {len(one.undecided)} undecided, "
        f"{one.readings} readings, {one.seconds:.1f} s"
    )
    if one.wrong or one.undecided:
        text += f"; wrong: {', '.join(one.wrong) or 'none'}; undecided: {', '.join(one.undecided) or 'none'}"
    if one.summary:
        text += f"; calibrated to a held-out TVD of {one.held_out_tvd:.2%}\n    " + one.summary.replace("\n", "\n    ")
    return text


def figures(name: str, found: list[Found]) -> list[dict]:
    from _harness import at_least, at_most, figure

    rows = [
        figure(f"{name}: chips", len(found), "chips"),
        at_most(f"{name}: heaters accused or acquitted wrongly", sum(len(one.wrong) for one in found), "heaters", 0),
        at_most(f"{name}: heaters undecided", sum(len(one.undecided) for one in found), "heaters", 0),
        at_least(
            f"{name}: chips on which all is found",
            sum(not (one.wrong or one.undecided or one.detectors_wrong) for one in found), "chips", len(found),
        ),
        at_most(f"{name}: detectors judged wrongly", sum(one.detectors_wrong for one in found), "detectors", 0),
        figure(f"{name}: median readings", statistics.median(one.readings for one in found), "readings"),
        figure(f"{name}: most readings", max(one.readings for one in found), "readings"),
        figure(f"{name}: median CPU time", statistics.median(one.seconds for one in found), "s"),
    ]  # fmt: skip
    if name in BENCHES:
        reached = [one.held_out_tvd for one in found]
        rows.append(at_most(f"{name}: worst held-out TVD of the calibration", max(reached), "", 0.005))
        rows.append(figure(f"{name}: median held-out TVD of the calibration", statistics.median(reached), ""))
    return rows


if __name__ == "__main__":
    main()
