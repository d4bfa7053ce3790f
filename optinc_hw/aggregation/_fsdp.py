"""Reduce-scatter of FSDP2 (``fully_shard``) through an executor."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from optinc_hw.aggregation._account import Account, Costs
from optinc_hw.aggregation._averager import Averager, Gradients
from optinc_hw.aggregation._executor import Executor
from optinc_hw.aggregation._feedback import Residuals
from optinc_hw.aggregation._options import OptincOptions
from optinc_hw.aggregation._vectors import vector_of
from optinc_hw.errors import GradientError


class OptincReduceScatter:
    """Averages the gradients of a module that ``fully_shard`` has sharded.

    ``module.set_custom_reduce_scatter(scatter)``, the same object for all sharded modules of a model, on all ranks.

    Parameters
    ----------
    executor
        Finds the codes' means.
    options
        Settings, equal on all ranks.

    Raises
    ------
    GradientError
        If the options ask for error feedback or warm-up: what FSDP hands over has neither names nor steps.

    Notes
    -----
    Blocks never reach over the border of a rank's share, but may hold several parameters, which FSDP has put together.
    All ranks get all answers and keep their share, so that as many bytes travel as for `optinc_hook`.  Connections are
    made in the first call for a process group and serve all modules that are sharded over it.
    """

    def __init__(self, executor: Executor | None, options: OptincOptions | None = None) -> None:
        self._executor = executor
        self._options = OptincOptions() if options is None else options
        if self._options.error_feedback or self._options.warmup_steps:
            raise GradientError(
                "error_feedback and warmup_steps are not possible with FSDP, whose gradients come without names and "
                "steps; switch them off"
            )
        self._account = Account()
        self._averagers: dict[dist.ProcessGroup, Averager] = {}
        self._calls = 0

    @property
    def costs(self) -> Costs:
        """What averaging has cost this rank."""
        return self._account.costs

    def close(self) -> None:
        """End the connections, on all ranks after their last step; a later step makes new ones.

        Without it they last as long as the process: some ten for each other rank of a group.
        """
        averagers, self._averagers = self._averagers, {}
        for averager in averagers.values():
            averager.close()

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """Return memory for gradients."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,  # torch's operations have no common public type
        async_op: bool = False,
    ) -> None:
        """Write this rank's share of the mean, or of the sum, of all ranks' ``input_tensor`` into ``output_tensor``.

        Raises
        ------
        GradientError
            If the operation is neither mean nor sum, or asynchronous.
        AggregationError
            If ranks are set up differently, one is lost, or an executor failed.
        """
        if op not in (dist.ReduceOp.AVG, dist.ReduceOp.SUM) or async_op:
            raise GradientError(
                f"FSDP asks for the operation {op} (asynchronous: {async_op}); the chip gives means and sums, at once: "
                "set_force_sum_reduction_for_comms(True) makes it ask for sums"
            )
        if group not in self._averagers:
            self._averagers[group] = Averager(
                group, self._executor, self._options, Residuals(), self._calls, self._account
            )
        averager = self._averagers[group]
        rank, ranks = dist.get_rank(group), dist.get_world_size(group)
        vector = vector_of(input_tensor)
        share = len(vector) // ranks
        names = [f"the share of rank {other}" for other in range(ranks)]
        pending = averager.begin(Gradients(vector, names, [share] * ranks, self._calls))
        self._calls += 1
        mean = np.empty_like(vector)
        averager.finish(pending, mean)
        mine = torch.from_numpy(mean[rank * share : (rank + 1) * share])
        output_tensor.copy_(mine if op == dist.ReduceOp.AVG else mine * ranks)
