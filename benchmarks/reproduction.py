"""Published figures of OptINC, WRHT and ODDL beside ours, as a page of the documentation.

``python benchmarks/reproduction.py`` prints the page; ``--write FILE`` writes it.  A test holds the page in
``docs/explanation/reproduction.md`` against what this script makes.  It takes a few seconds.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.append(sys.path.pop(0))  # this folder last, behind the packages that are measured

from _published import (
    ASSUMED,
    LATENCIES,
    NODE_SETS,
    NOT,
    REPRODUCED,
    STEP_WAVELENGTHS,
    VERSION_2,
    WITHIN_FACTOR,
    WITHIN_POINTS,
    WRHT_NODES,
    Claim,
    electrical_claims,
    latency,
    oddl_claims,
    oddl_rows,
    optinc_claims,
    payload_crossover,
    plain_savings,
    search,
    step_table,
    tokens_of_gain,
    wrht_claims,
)

from optinc_hw.interconnect.comparison import NetworkDesign
from optinc_hw.onn import SCENARIOS

HEAD = f"""# What can be reproduced

Published figures of three systems beside ours. `python benchmarks/reproduction.py --write FILE` makes this page from
the schedules and models of `optinc_hw.interconnect`; a test holds it against the script. Marks:

* **{REPRODUCED}**: from what is published, as it stands;
* **{ASSUMED}**: some number that is not published, or not the one that is published, was put in; it is named;
* **{NOT}**: no such number was found, or any would do.

What counts as the same: traffic exactly, area to 0.2 points, latency to 0.5 (over 25 %) and 1 point (about 17 %),
savings of WRHT to {WITHIN_POINTS} points, as areas of OptINC; speed-ups of switches to {WITHIN_FACTOR}.

Full text was public to us of OptINC only; of WRHT abstracts and the first author's later code, of ODDL the abstract.
Figures of theirs that we know from memory say so. Nothing here was measured on hardware. How time is counted:
[all-reduce schedules](interconnect.md)."""


def page() -> str:
    """Return the page."""
    return "\n\n".join([HEAD, *optinc_part(), *wrht_part(), *oddl_part(), *electrical_part()]) + "\n"


def optinc_part() -> list[str]:
    rows = [latency(model, batch) for model, batch in LATENCIES]
    table = [
        [
            row.model,
            str(row.batch),
            micro(row.ring_s),
            micro(row.optinc_s),
            micro(row.compute_s),
            f"{100 * row.gain:.1f} %",
        ]
        for row in rows
    ]
    columns = []
    for number, scenario in enumerate(SCENARIOS, 1):
        pair = [
            NetworkDesign("", scenario.servers, scenario.bits, scenario.sizes, frozenset(layers), 0).columns
            for layers in ((), scenario.approximated[0])
        ]
        columns.append([str(number), *map(str, pair), f"{100 * pair[1] / pair[0]:.0f} %", f"{0.2 * pair[1]:.0f} dB"])
    tokens = tokens_of_gain(0.17, 100e9)
    return [
        "## OptINC (arXiv 2603.28290)",
        claim_table(optinc_claims()),
        "The batch size is not published. With the published hardware - four servers of 60 TFLOP/s, 60 % of it used, "
        "eight transceivers of 800 Gb/s each, nothing overlapped - it decides everything:",
        markdown(["model", "batch", "ring, us", "OptINC, us", "computing, us", "gain"], table),
        "Models: `resnet50-32` and `resnet50-cifar` have 100 classes and images of 32 pixels, with the stem of "
        "ImageNet or CIFAR; of `llama-8x384` the gain does not depend on the size, as 6 FLOPs a parameter and token "
        f"grow with it. On one link of 100 Gb/s a server 17 % are kept up to {tokens} tokens.",
        "The networks' optical depth is not published; it follows from the layer sizes, and is what loss counts by. "
        "Approximated layers are those of Table I:",
        markdown(
            ["scenario", "columns, all layers full", "columns, as published", "part", "at 0.2 dB a column"], columns
        ),
        "Accuracies, tables of errors and the cascade are on [the network's page](network.md).",
    ]


def wrht_part() -> list[str]:
    steps = step_table()
    agree = sum(expected == ours for _, _, expected, ours in steps)
    by_nodes = [
        [str(nodes), *(str(ours) for one, _, _, ours in steps if one == nodes)]
        for nodes in dict.fromkeys(s[0] for s in steps)
    ]
    plain = [
        [label, f"{mean:.1f} %", *(f"{value:.1f} %" for value in values)] for label, mean, values in plain_savings()
    ]
    found = search(VERSION_2)
    best = [
        [
            ", ".join(map(str, one.nodes)),
            "4, collect only" if one.top == "four" else f"as built, w = {one.wavelengths}",
            f"{one.rate_bps / 1e9:,.0f} Gb/s", one.middle, f"{one.found[0]:.2f} %", f"{one.found[1]:.2f} %",
        ]
        for one in found[:6]
    ]  # fmt: skip
    crossings = [(1024, 64, 255), (256, 16, 63)]
    crossing = " and ".join(
        f"{payload_crossover(nodes, w) / 1e6:.1f} MB for N = {nodes}, w = {w} (by the formula {expected})"
        for nodes, w, expected in crossings
    )
    return [
        "## WRHT (arXiv 2207.10982, PPoPP 2023, ICPP 2023)",
        claim_table(wrht_claims()),
        "* **A**: N = 1024, 2048, 3072 and 4096; four steps at each, so no exchange on top; 40 GB/s, not 40 Gb/s; "
        "that the baselines are these, in this order; 25 us, float32 and the models' sizes from memory.\n* **B**: "
        "electrical links of 10 GB/s, not 10 Gb/s, and 50 us a step: two round numbers fitted to two figures, "
        "which they still miss.",
        f"**Steps.** Of {len(steps)} entries of the formula 2 ceil(log_m N), or one less where an exchange of all "
        f"survivors fits, {agree} are the steps of our schedules, whose every transfer has a wavelength of its own:",
        markdown(["N", *(f"w = {w}" for w in STEP_WAVELENGTHS)], by_nodes),
        f"**Where a ring overtakes it.** At 40 Gb/s and 25 us: {crossing}. WRHT sends the whole vector in each of its "
        "few steps; it wins while delays count.",
        "**As the parameters stand** (from memory: 64 wavelengths of 40 Gb/s, 25 us, float32) the mean over AlexNet, "
        "VGG16, ResNet50 and GoogLeNet is nowhere near the published figures but for the tree's, which no rate "
        "changes:",
        markdown(["saved of", "mean", *(f"N = {nodes}" for nodes in WRHT_NODES)], plain),
        "**What closes the gap.** Rate, delay and number format enter as one number, D / (b a), so one search covers "
        f"them. For each of {len(NODE_SETS)} sets of servers, 4 to 128 wavelengths or four steps everywhere, and "
        f"recursive doubling or H-rings of seven sizes as the second baseline - {len(found)} choices - the rate was "
        f"set so that WRHT saves {VERSION_2[0]} % of a ring's time. The best of them, by what they give for the other "
        "two (published: 64.36 %, 82.12 %):",
        markdown(["N", "steps", "rate", "second baseline", "saved of it", "saved of the tree"], best),
        "Four steps at N = 1024, 2048, 3072 and 4096 give 82.12 % for the tree to all published digits, whatever the "
        "rate, and 317 Gb/s is 40 Gb/s times 8 to one part in a hundred: as if the payload in bytes had been divided "
        "by bits a second, or eight wavelengths had carried each transfer (a ring on eight wavelengths would be "
        f"eight times faster as well). But the next two of the {len(found)} choices miss by no more than "
        f"{found[1].worst:.2f} and {found[2].worst:.2f} points, each with a rate made for it. "
        "This is an explanation of the figures that we found by looking for one; it does not prove how they were made.",
    ]


def oddl_part() -> list[str]:
    rows = [
        [
            f"{1e3 * row.compute_s:.0f}", f"{1e3 * row.oddl_s:.1f}", f"{row.sip_ring:.2f}",
            f"{100 * row.fat_tree_part:.0f} %", f"{1e6 * row.sip_delay_s:.0f}",
        ]
        for row in oddl_rows()
    ]  # fmt: skip
    return [
        "## ODDL (JOCN 16, 342, 2024)",
        claim_table(oddl_claims()),
        "VGG19 is 575 MB in float32: 92 ms at 100 Gb/s, for a ring on a fat tree of full rate as for ODDL's "
        "circuits. So the claims say how far the rivals are from line rate. Batch and computing time are not public "
        "to us; for some, what 1.6 asks of the fat tree and 1.7 of the ring:",
        markdown(
            ["computing, ms", "ODDL, ms", "over a SiP ring of 25 us a step", "1.6: fat tree's part of its rate",
             "1.7: us a step of the SiP ring"], rows,
        ),
        "No single assumption gives both: the one is about the electrical network, the other about the optical ring.",
    ]  # fmt: skip


def electrical_part() -> list[str]:
    return [
        "## Switches that add",
        claim_table(electrical_claims()),
        "In our model a switch that adds and OptINC take the same time at the same rate. What speaks for one or the "
        "other is not traffic; `optinc compare` shows both.",
    ]


def claim_table(claims: Sequence[Claim]) -> str:
    """Return claims as a Markdown table."""
    head = ["figure", "published", "ours", "mark", "assumption or remark"]
    return markdown(head, [[one.what, one.published, one.ours, f"*{one.mark}*", one.remark] for one in claims])


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    return "\n".join(["| " + " | ".join(row) + " |" for row in [head]] + ["|" + "---|" * len(head)]
                     + ["| " + " | ".join(row) + " |" for row in rows])  # fmt: skip


def micro(seconds: float) -> str:
    """Write microseconds with three digits or all whole ones."""
    return f"{1e6 * seconds:.3g}" if seconds < 1e-3 else f"{1e6 * seconds:,.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Published figures beside ours.")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the page to FILE instead of printing it")
    arguments = parser.parse_args()
    if arguments.write is None:
        print(page(), end="")
    else:
        arguments.write.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
