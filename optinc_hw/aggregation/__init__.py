"""Aggregation runtime: block quantiser, executors and the aggregator of gradient tensors."""

from optinc_hw.aggregation._account import Costs
from optinc_hw.aggregation._aggregator import Aggregator
from optinc_hw.aggregation._executor import ExactExecutor, Executor, Progress
from optinc_hw.aggregation._fsdp import OptincReduceScatter
from optinc_hw.aggregation._hook import optinc_hook, register_optinc_hook
from optinc_hw.aggregation._host import ChipHost
from optinc_hw.aggregation._host_errors import ChipHostError
from optinc_hw.aggregation._host_messages import HostHealth
from optinc_hw.aggregation._host_queue import HostLimits
from optinc_hw.aggregation._host_service import ServedRequest
from optinc_hw.aggregation._options import OptincOptions
from optinc_hw.aggregation._quantizer import BlockQuantizer
from optinc_hw.aggregation._remote import RemoteExecutor
from optinc_hw.aggregation._spot_check import (
    AnalogExecutor,
    Checked,
    DriftAlarm,
    SpotCheckedExecutor,
    SpotCheckSettings,
)
from optinc_hw.aggregation._state import OptincState
from optinc_hw.aggregation._table import TableExecutor
from optinc_hw.aggregation._tiled import BenchExecutor, ChipUse, TwinExecutor
from optinc_hw.onn import TileRunner

__all__ = [
    "Aggregator",
    "AnalogExecutor",
    "BenchExecutor",
    "BlockQuantizer",
    "Checked",
    "ChipHost",
    "ChipHostError",
    "ChipUse",
    "Costs",
    "DriftAlarm",
    "ExactExecutor",
    "Executor",
    "HostHealth",
    "HostLimits",
    "OptincOptions",
    "OptincReduceScatter",
    "OptincState",
    "Progress",
    "RemoteExecutor",
    "ServedRequest",
    "SpotCheckSettings",
    "SpotCheckedExecutor",
    "TableExecutor",
    "TileRunner",
    "TwinExecutor",
    "optinc_hook",
    "register_optinc_hook",
]
