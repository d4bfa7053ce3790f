"""Optical networks: area, exactness on every input, trees, chains, folding, tolerance, training and retraining.

``python benchmarks/onn.py`` runs every input of the four published scenarios and retrains 100 chips (an hour on two
cores), ``--quick`` the small ones, with fewer chips and less training (three minutes); ``--json FILE`` writes the
figures. Networks are held against integer arithmetic and the paper's tables (OptINC, arXiv 2603.28290). Chips of
the table of tolerances have errors that nobody corrects; those of ``retraining`` are hidden chips that networks are
retrained through (``benchmarks/retraining.py``). A process a core, one thread each.
"""

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _harness import Row

    from optinc_hw.onn import CellChain

QUICK_INPUTS = 400_000
CHIPS, INPUTS = 100, 500
RETRAINED_CHIPS, BENCHES = 100, 3
MOST_MZIS = {"constructed cells": 100, "cell-4": 2500, "cell-4-small": 800, "cell-4-tiny": 160, "network-4": 2500}
LEAST_MARGIN = {"constructed cells": 0.49, "cell-4": 0.4, "cell-4-small": 0.4, "cell-4-tiny": 0.3, "network-4": 0.4}
CHUNK = 1 << 15
PARTS = ("area", "cascade", "scenarios", "chains", "folding", "tolerance", "training", "methods", "retraining")


def main() -> None:
    parser = argparse.ArgumentParser(description="Area, exactness, tolerance and training of optical networks.")
    parser.add_argument("--quick", action="store_true", help="only spaces of some 100 000 inputs, less training")
    parser.add_argument("--part", action="append", choices=PARTS, help="only this part; may be given several times")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to FILE")
    arguments = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    sys.path.append(sys.path.pop(0))  # this folder last, behind the packages that are measured
    from _harness import conclude, row_table

    names = arguments.part or list(PARTS)
    rows: list[Row] = []
    context, workers = multiprocessing.get_context("spawn"), os.cpu_count() or 1
    with ProcessPoolExecutor(min(workers, len(names)), context) as pool:
        for name, (done, seconds) in zip(names, pool.map(partial(carry_out, arguments.quick), names), strict=True):
            print(row_table([row for row in done if name != "tolerance" or row["goal"]]))
            print(f"{name}: {seconds:.0f} s of CPU time\n", flush=True)
            rows += done
    conclude(rows, arguments.json)


def carry_out(quick: bool, name: str) -> "tuple[list[Row], float]":
    """Carry out a part, in a process of its own: rows and CPU time in s, that of further processes left out."""
    import torch
    from _onn_tolerance import tolerance

    torch.set_num_threads(1)
    parts = {
        "area": area, "cascade": cascade, "scenarios": lambda: scenarios(quick), "chains": lambda: chains(quick),
        "folding": lambda: folding(quick), "tolerance": lambda: tolerance(quick), "training": lambda: training(quick),
        "methods": lambda: methods(quick), "retraining": lambda: retraining(quick),
    }  # fmt: skip
    begun = time.process_time()
    return list(parts[name]()), time.process_time() - begun


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

    from optinc_hw.onn import SCENARIOS, build_exact, enumerate_inputs, mesh_products, widen_to_sigma_u

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
    twelve = widen_to_sigma_u(smallest, (4, 12, 12, 12, 12, 4))
    yield at_most("scenario 1, smallest: MZIs as U Sigma V", smallest.mzis("svd"), "MZIs", 160)
    for name, network, form in (
        ("U Sigma V", smallest, "svd"), ("Re(U)", smallest, "re_u"), ("Sigma U", twelve, "sigma_u")
    ):  # fmt: skip
        found = enumerate_inputs(network, mesh_products(network, form))
        yield figure(f"scenario 1, smallest: MZIs as {name}", network.mzis(form), "MZIs")
        yield at_most(f"scenario 1, smallest, {name} through meshes: wrong of {found.inputs:,}", found.wrong, "", 0)
    yield figure("scenario 1, smallest: couplers as trees", smallest.tree_couplers, "couplers")


def chains(quick: bool) -> "Iterator[Row]":
    """Chains of cells, constructed and as they come with the package, through simulated meshes, and the proofs."""
    from _harness import at_least, at_most, figure
    from _onn_networks import constructed_chain

    from optinc_hw.onn import TRAINED, CellChain, enumerate_inputs, load_trained, mesh_products, prove_composition

    networks = {"constructed cells": constructed_chain()} | {name: load_trained(name)[0] for name in TRAINED}
    for name, network in networks.items():
        yield at_most(f"{name}: MZIs in blocks Sigma U", network.mzis("sigma_u"), "MZIs", MOST_MZIS[name])
        found = enumerate_inputs(network, mesh_products(network))
        yield at_most(f"{name}, through meshes: wrong of {found.inputs:,}", found.wrong, "", 0)
        yield at_least(f"{name}, through meshes: margin", found.margin, "", LEAST_MARGIN[name])
        if isinstance(network, CellChain):
            proof = prove_composition(network.cell)
            yield at_least(f"{name}, any number of bits, proved: margin", proof.margin, "", LEAST_MARGIN[name])
            yield figure(f"{name}, any number of bits, proved: largest error of a carry", proof.largest, "carries")
    for name in ("cell-4-tiny",) if quick else ("cell-4-tiny", "cell-4-small", "cell-4"):
        yield from every_scenario(name, networks[name], quick)


def every_scenario(name: str, chain: "CellChain", quick: bool) -> "Iterator[Row]":
    """One trained cell in chains and trees for the settings of the paper, through meshes, on every input."""
    import numpy as np
    from _harness import at_most, figure

    from optinc_hw.onn import SCENARIOS, CellTree, mesh_products, quantised_mean

    for number, (servers, scenario) in enumerate(zip(((4,), (4, 2), (4, 4), (4,)), SCENARIOS, strict=True), 1):
        tree, space, wrong = CellTree(chain.cell, servers, scenario.bits), scenario.space, 0
        products = mesh_products(chain)
        count = min(space.size, QUICK_INPUTS) if quick else space.size
        for start in range(0, count, CHUNK):
            index = np.arange(start, min(start + CHUNK, count))
            codes = space.codes(index if count == space.size else index * (space.size // count))
            wrong += int(np.sum(tree.run(codes, products) != quantised_mean(codes)))
        yield at_most(f"{name}, scenario {number}, through meshes: wrong of {count:,}", wrong, "", 0)
        yield figure(f"{name}, scenario {number}: MZIs", tree.mzis("sigma_u"), "MZIs")
        yield figure(f"{name}, scenario {number}: of the paper's", tree.mzis("sigma_u") / scenario.mzis(), "")


def folding(quick: bool) -> "Iterator[Row]":
    """Cells and networks with sin^2 units beside saturating ones, and what is proved about the cells."""
    from _harness import at_least, at_most, figure
    from _onn_networks import SLOPE, UNITS

    from optinc_hw.onn import CellChain, build_cell, build_exact, enumerate_inputs, mesh_products, prove_composition

    for unit in ("clip01", "sin2", "fold"):
        for divisor in (4, 16):
            cell = build_cell(divisor, slope=SLOPE, unit=unit)
            name = f"{UNITS[unit]}, cell of {divisor}, {'-'.join(map(str, cell.sizes))}"
            proof = prove_composition(cell)
            yield at_least(f"{name}, any number of bits, proved: margin", proof.margin, "", 0.49)
            yield figure(f"{name}, any number of bits, proved: largest error of a carry", proof.largest, "carries")
            yield figure(f"{name}: MZIs as U Sigma V", cell.mzis("svd"), "MZIs")
            yield figure(f"{name}: MZIs as Re(U)", cell.mzis("re_u"), "MZIs")
        chain = CellChain(build_cell(4, slope=SLOPE, unit=unit), 4, 8)
        found = enumerate_inputs(chain, mesh_products(chain, "re_u"))
        yield at_most(f"{UNITS[unit]}, 4 servers, chain, through meshes: wrong of {found.inputs:,}", found.wrong, "", 0)
        for servers in (4, 8) if quick else (4, 8, 16):
            network = build_exact(servers, 8, slope=SLOPE, unit=unit)
            name = f"{UNITS[unit]}, {servers} servers, {'-'.join(map(str, network.sizes))}"
            found = enumerate_inputs(network, mesh_products(network, "re_u"))
            yield at_most(f"{name}, through meshes: wrong of {found.inputs:,}", found.wrong, "", 0)
            yield figure(f"{name}: MZIs as U Sigma V", network.mzis("svd"), "MZIs")
            yield figure(f"{name}: MZIs as Re(U)", network.mzis("re_u"), "MZIs")


def training(quick: bool) -> "Iterator[Row]":
    """Training from random blocks, every layer approximated: cells, and a network of some seeds."""
    from dataclasses import replace

    from _harness import at_least, at_most, figure
    from _onn_networks import published_sizes

    from optinc_hw.onn import SCENARIOS, CellChain, enumerate_inputs, mesh_products
    from optinc_hw.onn.training import CELL_SETTINGS, TrainingSettings, train_cell, train_network

    small = replace(CELL_SETTINGS, sizes=(2, 16, 16, 2), epochs=1500, rate=2e-2, seed=1)
    for settings, most, least in ((small, 800, 0.2),) if quick else ((small, 800, 0.2), (CELL_SETTINGS, 2500, 0.4)):
        begun = time.process_time()
        chain = CellChain(train_cell(4, settings).cell, 4, 8)
        spent, found = time.process_time() - begun, enumerate_inputs(chain)
        name = f"scenario 1, trained cells {'-'.join(map(str, chain.sizes))}"
        yield figure(f"{name}: CPU time", spent, "s")
        yield at_most(f"{name}: MZIs", chain.mzis("sigma_u"), "MZIs", most)
        yield at_most(f"{name}: wrong of {found.inputs:,}", found.wrong, "", 0)
        yield at_least(f"{name}: margin", found.margin, "", least)
        yield at_least(f"{name}: proved margin, any number of bits", chain.margin, "", least)
    if not quick:
        network, spent = published_sizes()
        found = enumerate_inputs(network, mesh_products(network))
        name = "scenario 1, trained in the published sizes, every layer Sigma U"
        yield figure(f"{name}: CPU time", spent, "s")
        yield at_most(f"{name}: area", network.mzis("sigma_u") / SCENARIOS[0].mzis(), "", 0.393)
        yield at_most(f"{name}, through meshes: wrong of {found.inputs:,}", found.wrong, "", 0)
        yield at_least(f"{name}, through meshes: margin", found.margin, "", 0.4)
    sizes = (4, 32, 32, 32, 32, 32, 4)
    for seed in range(1 if quick else 3):
        begun = time.process_time()
        trained = train_network(SCENARIOS[0].space, TrainingSettings(sizes, epochs=50 if quick else 1000, seed=seed))
        found = enumerate_inputs(trained.network)
        name = f"scenario 1, trained {'-'.join(map(str, sizes))}, seed {seed}, {trained.epochs} epochs"
        yield figure(f"{name}: CPU time", time.process_time() - begun, "s")
        yield at_most(f"{name}: MZIs", trained.network.mzis("sigma_u"), "MZIs", 2500)
        if quick:
            yield figure(f"{name}: wrong of {found.inputs:,}", found.wrong, "")
            yield figure(f"{name}: margin", found.margin, "")
        else:
            yield at_most(f"{name}: wrong of {found.inputs:,}", found.wrong, "", 0)
            yield at_least(f"{name}: margin", found.margin, "", 0.4)


def methods(quick: bool) -> "Iterator[Row]":
    """The paper's way of training beside ours, and matrices for Re(U) with and without a penalty on their norms."""
    from dataclasses import replace

    from _harness import figure

    from optinc_hw.onn import SCENARIOS, CellChain, ChipErrors, enumerate_inputs, simulate_chips
    from optinc_hw.onn.training import CELL_SETTINGS, TrainingSettings, train_cell, train_network

    usual = TrainingSettings((4, 32, 32, 32, 32, 32, 4), epochs=15 if quick else 400, enough=None)
    for name, settings in {
        "manifold, margin loss": usual,
        "manifold, two-stage loss": replace(usual, loss="two_stage"),
        "projection, margin loss": replace(usual, method="projection"),
        "projection, two-stage loss (the paper's)": replace(usual, method="projection", loss="two_stage"),
    }.items():
        begun = time.process_time()
        found = enumerate_inputs(train_network(SCENARIOS[0].space, settings).network)
        yield figure(f"{name}, {usual.epochs} epochs: wrong of {found.inputs:,}", found.wrong, "")
        yield figure(f"{name}, {usual.epochs} epochs: CPU time", time.process_time() - begun, "s")
    for penalty in (0.0, 1e-4, 1e-3):
        settings = replace(CELL_SETTINGS, method="free", spectral=penalty, epochs=200 if quick else 1500)
        cell = train_cell(4, settings).cell
        chain = CellChain(cell, 4, 8)
        name = f"free cells as Re(U), spectral penalty {penalty:g}"
        yield figure(f"{name}: wrong of 28,561", enumerate_inputs(chain).wrong, "")
        for errors in (ChipErrors(phase_rad=0.002), ChipErrors(amplitude=0.005)):
            found = simulate_chips(chain, errors, "re_u", chips=CHIPS, inputs=INPUTS)
            kind = "0.002 rad" if errors.phase_rad else "0.5 % amplitude"
            yield figure(f"{name}: symbol error rate at {kind}", found.rate, "")


def retraining(quick: bool) -> "Iterator[Row]":
    """Networks retrained through hidden chips, and through the instruments of simulated benches."""
    from _retrained import on_bench, on_chip
    from retraining import PORTS, TWIN_ALONE, retrained_rows

    from optinc_hw.onn import build_exact, tile

    plan = tile(build_exact(4, 8, slope=8.0), PORTS)
    chips, benches = (1, 0) if quick else (RETRAINED_CHIPS, BENCHES)
    for name, count, retrained in (("chips", chips, on_chip), ("benches", benches, on_bench)):
        yield from retrained_rows(name, count, 0, plan, retrained, 0 if quick else TWIN_ALONE)


if __name__ == "__main__":
    main()
