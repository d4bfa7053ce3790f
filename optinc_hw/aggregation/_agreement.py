"""Agreement of the ranks before the first step, and who does not answer after a failure."""

import sys
from collections.abc import Mapping
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from optinc_hw import __version__
from optinc_hw.aggregation._exchange import Groups
from optinc_hw.aggregation._executor import Executor
from optinc_hw.aggregation._feeds import Feeds
from optinc_hw.aggregation._options import OptincOptions
from optinc_hw.errors import AggregationError, NetworkError

_ANSWER_S = 5.0  # how long others may take to say that they are alive

Setup = Mapping[str, Any]  # plain values by name


def setup_of(options: OptincOptions, executor: Executor | None, step: int) -> Setup:
    """Return what must be equal on all ranks, and which network this rank has."""
    network = None if executor is None else (executor.servers, executor.bits)
    shared = {"version of optinc-hw": __version__, "byte order": sys.byteorder, "steps done": step, **asdict(options)}
    return {"network": network, "shared": shared}


def agree(group: dist.ProcessGroup, setup: Setup, chip_host: int | None) -> Feeds:
    """Compare the ranks' setups; every rank gets the same answer or the same error.

    Raises
    ------
    AggregationError
        If setups differ or an executor is missing; the message names ranks and values.
    NetworkError
        If the executors' network does not fit the codes or the ranks.
    """
    setups: list[Setup] = [{}] * dist.get_world_size(group)
    dist.all_gather_object(setups, setup, group=group)
    for name in setups[0]["shared"]:
        _check_equal(name, [one["shared"].get(name) for one in setups])
    ranks = len(setups)
    if chip_host is not None and chip_host >= ranks:
        raise AggregationError(f"chip_host is rank {chip_host}, but there are only {ranks} ranks")
    holders = range(ranks) if chip_host is None else [chip_host]
    without = [rank for rank in holders if setups[rank]["network"] is None]
    if without:
        raise AggregationError(
            f"{_named(without)} no executor; give one to OptincState on "
            + ("every rank, or name a chip_host" if chip_host is None else f"the chip host, rank {chip_host}")
        )
    _check_equal("network of (servers, bits)", [setups[rank]["network"] for rank in holders])
    servers, bits = setups[holders[0]]["network"]
    if bits != setup["shared"]["bits"]:
        raise NetworkError(
            f"the executor takes codes of {bits} bits, the options say {setup['shared']['bits']}; make them equal"
        )
    return Feeds(ranks, servers, bits)


def _check_equal(name: str, values: list[Any]) -> None:
    kinds = {repr(value): value for value in values}
    if len(kinds) > 1:
        held = "; ".join(
            f"{_named([rank for rank, value in enumerate(values) if repr(value) == kind])} {kind}" for kind in kinds
        )
        raise AggregationError(f"the ranks differ in {name}: {held}; set up all ranks alike")


def _named(ranks: list[int]) -> str:
    return f"rank {ranks[0]} has" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))} have"


def failure(groups: Groups, step: int, cause: BaseException) -> AggregationError:
    """Return the error of an exchange that broke in a step, with the ranks that do not answer."""
    rank = dist.get_rank(groups.health)
    try:
        dist.monitored_barrier(groups.health, timedelta(seconds=_ANSWER_S), wait_all_ranks=True)
        silent = "all ranks still answer; one of them may have failed before it sent its gradients"
    except RuntimeError as error:
        silent = str(error).strip().splitlines()[0]
    return AggregationError(
        f"rank {rank}: averaging failed in step {step}: {str(cause).strip().splitlines()[0]}; who is still there: "
        f"{silent}; start the job again from its last checkpoint"
    )
