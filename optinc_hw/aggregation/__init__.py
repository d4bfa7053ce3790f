"""Aggregation runtime: block quantiser, executors and the aggregator of gradient tensors."""

from optinc_hw.aggregation._account import Costs
from optinc_hw.aggregation._aggregator import Aggregator
from optinc_hw.aggregation._executor import ExactExecutor, Executor, Progress
from optinc_hw.aggregation._hook import optinc_hook, register_optinc_hook
from optinc_hw.aggregation._options import OptincOptions
from optinc_hw.aggregation._quantizer import BlockQuantizer
from optinc_hw.aggregation._state import OptincState
from optinc_hw.aggregation._table import TableExecutor
from optinc_hw.aggregation._tiled import BenchExecutor, TwinExecutor
from optinc_hw.onn import TileRunner

__all__ = [
    "Aggregator",
    "BenchExecutor",
    "BlockQuantizer",
    "Costs",
    "ExactExecutor",
    "Executor",
    "OptincOptions",
    "OptincState",
    "Progress",
    "TableExecutor",
    "TileRunner",
    "TwinExecutor",
    "optinc_hook",
    "register_optinc_hook",
]
