"""Agreement of the ranks before the first step, and who does not answer after a failure."""

import contextlib
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from optinc_hw import __version__
from optinc_hw.aggregation._executor import ExactExecutor, Executor
from optinc_hw.aggregation._feeds import Feeds
from optinc_hw.aggregation._options import OptincOptions
from optinc_hw.aggregation._table import TableExecutor
from optinc_hw.aggregation._transfers import LANES, Group, Groups, told_by_all
from optinc_hw.errors import AggregationError, NetworkError

_ANSWER_S = 5.0  # how long others may take to say that they are alive, and of a short timeout a quarter

Setup = Mapping[str, Any]  # plain values by name


def setup_of(options: OptincOptions, executor: Executor | None, step: int) -> Setup:
    """Return what must be equal on all ranks, and which network this rank has."""
    network = None if executor is None else (int(executor.servers), int(executor.bits))
    shared = {"version of optinc-hw": __version__, "byte order": sys.byteorder, "steps done": step, **asdict(options)}
    # Others have one chip, one source of noise or one connection, and their answers depend on the order of calls.
    ordered = not isinstance(executor, ExactExecutor | TableExecutor)
    return {"network": network, "ordered": ordered, "shared": shared}


def agree(group: Group, setup: Setup, chip_host: int | None) -> tuple[Feeds, int]:
    """Compare the ranks' setups: which rank feeds which input, and how many lanes may call the executors at once.

    Every rank gets the same answer or the same error.

    Raises
    ------
    AggregationError
        If setups differ or an executor is missing; the message names ranks and values.
    NetworkError
        If the executors' network does not fit the codes or the ranks.
    """
    setups: list[Setup] = told_by_all(group, setup)
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
    _check_equal("network of (servers, bits)", [tuple(setups[rank]["network"]) for rank in holders])
    servers, bits = setups[holders[0]]["network"]
    if bits != setup["shared"]["bits"]:
        raise NetworkError(
            f"the executor takes codes of {bits} bits, the options say {setup['shared']['bits']}; make them equal"
        )
    return Feeds(ranks, servers, bits), 1 if any(setups[rank]["ordered"] for rank in holders) else LANES


def _check_equal(name: str, values: list[Any]) -> None:
    kinds = {repr(value): value for value in values}
    if len(kinds) > 1:
        held = "; ".join(
            f"{_named([rank for rank, value in enumerate(values) if repr(value) == kind])} {kind}" for kind in kinds
        )
        raise AggregationError(f"the ranks differ in {name}: {held}; set up all ranks alike")


def _named(ranks: list[int], one: str = "has", several: str = "have") -> str:
    return f"rank {ranks[0]} {one}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))} {several}"


def answer_time(timeout_s: float) -> float:
    """Return how much of a timeout is kept for finding out who does not answer, in s."""
    return min(_ANSWER_S, timeout_s / 4.0)


def failure(groups: Groups, step: int, cause: BaseException, timeout_s: float) -> AggregationError:
    """Return the error of an exchange that broke in a step, with the ranks that do not answer."""
    silent = _silent(groups.health, answer_time(timeout_s))
    who = f"{_named(silent, 'does', 'do')} not answer" if silent else "all ranks answer, one of them late"
    return AggregationError(
        f"rank {groups.health.rank()}: averaging failed in step {step}, and {who}; start the job again from "
        f"its last checkpoint, with a timeout_s above {timeout_s:.6g} s if an executor needs more than "
        f"{timeout_s - answer_time(timeout_s):.6g} s for an answer ({str(cause).strip().splitlines()[0]})"
    )


def _silent(group: Group, wait_s: float) -> list[int]:
    """Return the ranks that send no sign of life; all ranks whose exchange broke ask each other."""
    until, others = time.monotonic() + wait_s, [rank for rank in range(group.size()) if rank != group.rank()]
    asked = {}
    for rank in others:
        with contextlib.suppress(RuntimeError):
            asked[rank] = _greet(group, rank)
    return [rank for rank in others if not _answers(asked.get(rank), until)]


def _greet(group: Group, peer: int) -> list[dist.Work]:
    sign = torch.zeros(1, dtype=torch.uint8)
    return [group.recv([torch.empty_like(sign)], peer, 0), group.send([sign], peer, 0)]


def _answers(exchange: list[dist.Work] | None, until: float) -> bool:
    """Whether a greeting is returned before a time of the monotonic clock."""
    try:
        for work in exchange or ():
            work.wait(timedelta(seconds=max(0.1, until - time.monotonic())))
    except RuntimeError:
        return False
    return exchange is not None
