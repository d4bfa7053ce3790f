"""Aggregation runtime: block quantiser, executors and the aggregator of gradient tensors."""

from optinc_hw.aggregation._aggregator import Aggregator
from optinc_hw.aggregation._executors import (
    BenchExecutor,
    ExactExecutor,
    Executor,
    Progress,
    TableExecutor,
    TileRunner,
    TwinExecutor,
)
from optinc_hw.aggregation._quantizer import BlockQuantizer

__all__ = [
    "Aggregator",
    "BenchExecutor",
    "BlockQuantizer",
    "ExactExecutor",
    "Executor",
    "Progress",
    "TableExecutor",
    "TileRunner",
    "TwinExecutor",
]
