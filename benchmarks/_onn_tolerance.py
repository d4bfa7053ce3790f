"""Table of all networks: size, depth, margin, and the largest error of each kind that they bear."""

import math
from collections.abc import Iterator, Sequence

from _harness import Row, at_most, figure
from _onn_networks import NAMES, Entry, entries

from optinc_hw.onn import ChipErrors, SimulatedChips, simulate_chips

CHIPS, INPUTS, SEARCH_INPUTS = 100, 2000, 500
QUICK_CHIPS, QUICK_INPUTS = 20, 250
LIMIT, MOST_MZIS = 1e-3, 2500
LEAST, HALVINGS, ANY = 1e-6, 8, 0.9
"""Least error that is looked at; halvings of the range up to 1, to 6 %; errors above which none is too large."""
MOST_BITS = 24
KINDS = {"phase_rad": "rad", "coupler_rad": "rad", "crosstalk": "%", "amplitude": "%"}
TOGETHER = ChipErrors(phase_rad=0.01, amplitude=0.01, dac_bits=8)
HEAD = (
    "network", "servers", "layers", "form", "MZIs", "columns", "margin", "phases", "couplers", "crosstalk", "amplitude",
    "bits", "together", "worst chip",
)  # fmt: skip


def tolerance(quick: bool) -> Iterator[Row]:
    """Rows of all networks; prints them as one table."""
    chips = QUICK_CHIPS if quick else CHIPS
    print(
        f"Largest standard deviation of one kind of errors at which at most {LIMIT:g} of the symbols are wrong, fewest "
        f"bits of the phases,\nand symbol error rate at 0.01 rad, 1 % and 8 bits together: {chips} chips"
    )
    table: list[Sequence[str]] = [HEAD]
    for entry in entries(quick):
        found = Measured(entry, quick)
        table.append(found.line())
        yield from found.rows()
    print(aligned(table), flush=True)


class Measured:
    """What one network bears."""

    def __init__(self, entry: Entry, quick: bool) -> None:
        self._entry = entry
        self._chips, self._inputs = (QUICK_CHIPS, QUICK_INPUTS) if quick else (CHIPS, SEARCH_INPUTS)
        self._together = self._simulated(TOGETHER, self._chips, QUICK_INPUTS if quick else INPUTS)
        self._largest = {kind: self._largest_error(kind) for kind in KINDS}
        self._bits = self._fewest_bits()

    def _simulated(self, errors: ChipErrors, chips: int, inputs: int) -> SimulatedChips:
        entry = self._entry
        return simulate_chips(entry.network, errors, entry.form, chips=chips, inputs=inputs, copies=entry.copies)

    def _largest_error(self, kind: str) -> float:
        low, high = math.log(LEAST), 0.0
        for _ in range(HALVINGS):
            middle = (low + high) / 2.0
            errors: ChipErrors = ChipErrors(**{kind: math.exp(middle)})
            within = self._simulated(errors, self._chips, self._inputs).rate <= LIMIT
            low, high = (middle, high) if within else (low, middle)
        return math.exp(low)

    def _fewest_bits(self) -> float:
        """Fewest bits; all chips are alike then, so one is enough."""
        bits = MOST_BITS + 1
        while bits > 1 and self._simulated(ChipErrors(dac_bits=bits - 1), 1, self._inputs).rate <= LIMIT:
            bits -= 1
        return bits if bits <= MOST_BITS else math.nan

    def line(self) -> list[str]:
        """Return the cells of the table's row."""
        entry, together = self._entry, self._together
        errors = [shown(self._largest[kind], unit) for kind, unit in KINDS.items()]
        return [
            entry.kind, str(entry.network.servers), entry.layers, NAMES[entry.form], f"{together.mzis:,}",
            str(together.columns), f"{entry.network.margin:.3f}", *errors, f"{self._bits:g}", f"{together.rate:.1e}",
            f"{together.rates.max():.1e}",
        ]  # fmt: skip

    def rows(self) -> Iterator[Row]:
        """Return the same as figures, with goals."""
        entry, together = self._entry, self._together
        wanted = f"{entry.name}: symbol error rate at 0.01 rad, 1 % and 8 bits"
        if entry.goal:
            yield at_most(wanted, together.rate, "", LIMIT)
            yield at_most(f"{entry.name}: MZIs", together.mzis, "MZIs", MOST_MZIS)
        else:
            yield figure(wanted, together.rate, "")
            yield figure(f"{entry.name}: MZIs", together.mzis, "MZIs")
        yield figure(f"{entry.name}: columns", together.columns, "columns")
        yield figure(f"{entry.name}: margin", entry.network.margin, "")
        for kind, largest in self._largest.items():
            yield figure(f"{entry.name}: {kind} at {LIMIT:g}", largest, "")
        yield figure(f"{entry.name}: bits at {LIMIT:g}", self._bits, "bits")


def shown(size: float, unit: str) -> str:
    """Error in its unit, to two digits."""
    if size > ANY:
        return "any"
    return f"{size:.2g} rad" if unit == "rad" else f"{100.0 * size:.2g} %"


def aligned(table: Sequence[Sequence[str]]) -> str:
    """Markdown table whose columns are aligned in plain text too."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = [
        "| " + " | ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)) + " |" for line in table
    ]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])
