"""Aggregation runtime: block quantiser, executors and the aggregator of gradient tensors."""

from optinc_hw.aggregation._aggregator import Aggregator
from optinc_hw.aggregation._executors import (
    BenchExecutor,
    ExactExecutor,
    Executor,
    Progress,
    TableExecutor,
    TwinExecutor,
)
from optinc_hw.aggregation._quantizer import BlockQuantizer
from optinc_hw.onn import TileRunner

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
