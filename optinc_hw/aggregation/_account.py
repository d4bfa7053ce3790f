"""Account of what averaging cost one rank: bytes, symbols and time, beside a ring all-reduce."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from optinc_hw._files import write_text
from optinc_hw.onn import symbol_count

PHASES = ("maxima", "quantise", "exchange", "executor", "dequantise")
_FLOAT_BYTES = 4


@dataclass(frozen=True)
class Costs:
    """What averaging has cost one rank so far.

    Parameters
    ----------
    ranks
        Number of ranks.
    elements
        Gradient elements averaged.
    buckets
        Exchanges of codes.
    bytes_sent
        Bytes this rank handed to others: maxima, codes and answers.
    symbols
        PAM4 symbols that this rank's codes hold.
    way
        How codes travelled last: ``"shared memory"`` or ``"sockets"``; empty before anything was averaged.
    seconds
        Time in s by phase: waiting for the maxima of all ranks, making codes, waiting for codes and answers of other
        ranks, the executor, and decoding.  Lanes run beside one another, so that the sum may exceed the time passed.
    """

    ranks: int = 1
    elements: int = 0
    buckets: int = 0
    bytes_sent: int = 0
    symbols: int = 0
    way: str = ""
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))

    @property
    def ring_bytes(self) -> float:
        """Bytes that one rank sends in a ring all-reduce of float32: 2 (N - 1) / N values an element."""
        return 2.0 * (self.ranks - 1) / self.ranks * _FLOAT_BYTES * self.elements

    @property
    def traffic(self) -> float:
        """Bytes sent over those of a ring all-reduce of float32; NaN before anything was averaged."""
        return self.bytes_sent / self.ring_bytes if self.ring_bytes else float("nan")

    def __str__(self) -> str:
        lines = [
            f"{self.elements:,} gradient elements in {self.buckets:,} exchanges, {self.symbols:,} symbols",
            f"{self.bytes_sent:,} bytes sent, {self.traffic:.1%} of a ring all-reduce of float32; codes by {self.way}",
            *(f"{name:<10} {spent:10.3f} s" for name, spent in self.seconds.items()),
        ]
        return "\n".join(lines)

    def save(self, path: str | Path) -> None:
        """Write all figures to a JSON file.

        Raises
        ------
        OSError
            If the file cannot be written.
        """
        write_text(Path(path), json.dumps(asdict(self) | {"ring_bytes": self.ring_bytes}, indent=1) + "\n")


class Account:
    """Adds up the costs of lanes that run beside one another."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._costs = Costs()

    @property
    def costs(self) -> Costs:
        """What has been added so far."""
        with self._lock:
            return Costs(**asdict(self._costs))

    def add(self, ranks: int, elements: int, bits: int, bytes_sent: int, way: str) -> None:
        """Add one exchange of a rank's codes."""
        with self._lock:
            old = self._costs
            self._costs = Costs(
                ranks,
                old.elements + elements,
                old.buckets + 1,
                old.bytes_sent + bytes_sent,
                old.symbols + elements * symbol_count(bits),
                way,
                old.seconds,
            )

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time of a ``with`` block to a phase."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            with self._lock:
                self._costs.seconds[name] += time.perf_counter() - begun
