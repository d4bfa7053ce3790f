"""Optical networks: area, exactness on every input, trees, tolerance to imperfect chips, training.

``python benchmarks/onn.py`` runs every input of the four published scenarios (an hour), ``--quick`` the small ones
(three minutes); ``--json FILE`` writes the figures. Networks are held against integer arithmetic and the paper's tables
(OptINC, arXiv 2603.28290). Chips of the tolerance rows have errors that nobody corrects. One thread.
"""

import argparse
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _harness import Row

    from optinc_hw.onn import OpticalNetwork

QUICK_INPUTS = 400_000
CHIPS, INPUTS = 100, 2000
LIMIT = 1e-3


def main() -> None:
    parser = argparse.ArgumentParser(description="Area, exactness, tolerance and training of optical networks.")
    parser.add_argument("--quick", action="store_true", help="only spaces of some 100 000 inputs, less training")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to FILE")
    arguments = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    sys.path.append(sys.path.pop(0))  # this folder last, behind the packages that are measured
    import torch
    from _harness import conclude, row_table

    torch.set_num_threads(1)
    rows: list[Row] = []
    for part in (area(), cascade(), scenarios(arguments.quick), tolerance(), training(arguments.quick)):
        done = list(part)
        print(row_table(done), flush=True)
        rows += done
    conclude(rows, arguments.json)


def area() -> "Iterator[Row]":
    """Area of the published networks, and the sizes of their data sets."""
    from _harness import at_most, figure

    from optinc_hw.onn import SCENARIOS

    for number, scenario in enumerate(SCENARIOS, 1):
        yield figure(f"scenario {number}: data set", scenario.space.size, "inputs")
        for layers, published in zip(scenario.approximated, scenario.area_ratios, strict=True):
            ratio = scenario.area_ratio(layers)
            name = f"scenario {number}, layers {layers[0]} to {layers[-1]} approximated"
            yield figure(f"{name}: area", ratio, "")
            yield at_most(f"{name}: distance from the published {published:.1%}", abs(ratio - published), "", 0.002)
    yield figure("scenario 1: MZIs in full and approximated", SCENARIOS[0].mzis(), "MZIs")
    yield figure("scenario 1: MZIs approximated", SCENARIOS[0].mzis(range(1, 7)), "MZIs")


def cascade() -> "Iterator[Row]":
    """Sixteen servers on five networks, with and without remainders."""
    import numpy as np
    from _harness import at_most, figure

    from optinc_hw.onn import build_cascade, quantised_mean

    codes = np.random.default_rng(0).integers(0, 256, (200_000, 16))
    for rounding in ("floor", "half_up"):
        expected = quantised_mean(codes, rounding)
        without = build_cascade((4, 4), 8, rounding, residual=False)
        yield figure(
            f"4 x 4 servers, {rounding}: wrong without remainders", np.mean(without.run(codes) != expected), ""
        )
        tree = build_cascade((4, 4), 8, rounding)
        levels = tree.check()
        name = f"4 x 4 servers, {rounding}: wrong levels of {' and '.join(f'{one.inputs:,}' for one in levels)} inputs"
        yield at_most(name, sum(not one.exact for one in levels), "", 0)
        yield at_most(
            f"4 x 4 servers, {rounding}: wrong of 200,000 random", int(np.sum(tree.run(codes) != expected)), "", 0
        )


def scenarios(quick: bool) -> "Iterator[Row]":
    """Constructed networks, small and in the paper's sizes with every layer approximated, on every input."""
    from _harness import at_most, figure

    from optinc_hw.onn import SCENARIOS, build_exact, enumerate_inputs, widen_to_sigma_u

    for number, scenario in enumerate(SCENARIOS, 1):
        if quick and scenario.space.size > QUICK_INPUTS:
            continue
        servers, bits, inputs = scenario.servers, scenario.bits, scenario.inputs
        wide = widen_to_sigma_u(build_exact(servers, bits, inputs=inputs, unit="relu"), scenario.sizes)
        networks = {
            "constructed": (build_exact(servers, bits, inputs=inputs), "svd"),
            "every layer Sigma U": (wide, "sigma_u"),
        }
        for kind, (network, form) in networks.items():
            begun = time.process_time()
            found = enumerate_inputs(network)
            name = f"scenario {number}, {kind}, {'-'.join(map(str, network.sizes))}"
            yield at_most(f"{name}: wrong of {found.inputs:,}", found.wrong, "", 0)
            yield figure(f"{name}: MZIs", network.mzis(form), "MZIs")
            yield figure(f"{name}: CPU time", time.process_time() - begun, "s")
        yield figure(f"scenario {number}: area, every layer Sigma U", wide.mzis("sigma_u") / scenario.mzis(), "")
    smallest = build_exact(4, 8)
    yield at_most("scenario 1, smallest: MZIs as U Sigma V", smallest.mzis("svd"), "MZIs", 160)
    yield figure("scenario 1, smallest: MZIs as Re(U)", smallest.mzis("re_u"), "MZIs")
    yield figure("scenario 1, smallest: couplers as trees", smallest.tree_couplers, "couplers")
    twelve = widen_to_sigma_u(smallest, (4, 12, 12, 12, 12, 4))
    yield figure("scenario 1, smallest: MZIs as Sigma U", twelve.mzis("sigma_u"), "MZIs")


def tolerance() -> "Iterator[Row]":
    """Symbol error rates on simulated chips, and the largest error of each kind at a rate of 1e-3."""
    from _harness import at_most, figure

    from optinc_hw.onn import ChipErrors, build_exact, simulate_chips, widen_to_sigma_u

    network = build_exact(4, 8, slope=8.0)
    wide = widen_to_sigma_u(network, (4, 12, 12, 12, 12, 4))
    together = ChipErrors(phase_rad=0.01, amplitude=0.01, dac_bits=8)
    for form, chosen, copies in (
        ("svd", network, 1), ("svd", network, 4), ("re_u", network, 1), ("re_u", network, 6), ("sigma_u", wide, 1),
        ("sigma_u", wide, 8),
    ):  # fmt: skip
        found = simulate_chips(chosen, together, form, chips=CHIPS, inputs=INPUTS, copies=copies)
        name = f"{form}, {copies} x {found.mzis // copies} MZIs, {found.columns} columns"
        wanted = f"{name}: symbol error rate at 0.01 rad, 1 % and 8 bits"
        if (form, copies) == ("svd", 4):
            yield at_most(wanted, found.rate, "", LIMIT)
            yield at_most(f"{name}: MZIs", found.mzis, "MZIs", 2500)
        else:
            yield figure(wanted, found.rate, "")
        yield figure(f"{name}: the same, worst chip", float(found.rates.max()), "")
        for kind in ("phase_rad", "coupler_rad", "crosstalk", "amplitude"):
            yield figure(f"{name}: {kind} at {LIMIT:g}", largest(chosen, kind, form, copies), "")
        yield figure(f"{name}: bits at {LIMIT:g}", fewest_bits(chosen, form, copies), "bits")


def largest(network: "OpticalNetwork", kind: str, form: str, copies: int) -> float:
    """Largest error of one kind with which the symbol error rate is at most 1e-3, to 5 %."""
    from optinc_hw.onn import ChipErrors, simulate_chips

    def rate(size: float) -> float:
        errors: ChipErrors = ChipErrors(**{kind: size})
        return simulate_chips(network, errors, form, chips=CHIPS, inputs=INPUTS // 4, copies=copies).rate

    low, high = 1e-4, 1.0
    while high / low > 1.05:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if rate(middle) <= LIMIT else (low, middle)
    return low


def fewest_bits(network: "OpticalNetwork", form: str, copies: int) -> int:
    """Fewest bits of the phases with which the symbol error rate is at most 1e-3; all chips are alike then."""
    from optinc_hw.onn import ChipErrors, simulate_chips

    bits = 16
    while (
        simulate_chips(network, ChipErrors(dac_bits=bits - 1), form, chips=1, inputs=INPUTS, copies=copies).rate
        <= LIMIT
    ):
        bits -= 1
    return bits


def training(quick: bool) -> "Iterator[Row]":
    """Training from random blocks, every layer approximated."""
    from _harness import at_least, at_most, figure

    from optinc_hw.onn import SCENARIOS, enumerate_inputs
    from optinc_hw.onn.training import TrainingSettings, train_network

    sizes = (4, 32, 32, 32, 32, 32, 4)
    settings = TrainingSettings(sizes, epochs=200 if quick else 1500)
    begun = time.process_time()
    trained = train_network(SCENARIOS[0].space, settings)
    found = enumerate_inputs(trained.network)
    name = f"scenario 1, trained {'-'.join(map(str, sizes))}, {trained.epochs} epochs"
    yield figure(f"{name}: CPU time", time.process_time() - begun, "s")
    yield at_most(f"{name}: MZIs", trained.network.mzis("sigma_u"), "MZIs", 2500)
    if quick:
        yield figure(f"{name}: wrong of {found.inputs:,}", found.wrong, "")
        yield figure(f"{name}: margin", found.margin, "")
    else:
        yield at_most(f"{name}: wrong of {found.inputs:,}", found.wrong, "", 0)
        yield at_least(f"{name}: margin", found.margin, "", 0.4)


if __name__ == "__main__":
    main()
