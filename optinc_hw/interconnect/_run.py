"""Schedules carried out by real processes, with messages between pairs of ranks."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from optinc_hw.errors import ScheduleError
from optinc_hw.interconnect._schedule import Schedule, Step

if TYPE_CHECKING:
    import torch
    from torch import distributed


def run_schedule(schedule: Schedule, tensor: "torch.Tensor", group: "distributed.ProcessGroup | None" = None) -> None:
    """Sum a tensor over all ranks in place, by the transfers of a schedule.

    All ranks of the group call this with tensors of one shape and type.  Rank i of the group is server i; switch k
    (node N + k) is played by rank k mod N.  Wavelengths and circuits are not: each transfer is one message, sent with
    ``batch_isend_irecv``, all of a step at once.  Chunk c of n elements in C chunks is c n // C to (c + 1) n // C.

    Parameters
    ----------
    schedule
        Of as many servers as the group has ranks.
    tensor
        Dense, of any shape and a type that the group's backend sends.  Integers give what ``all_reduce`` gives, bit
        for bit; floating-point sums are those of the schedule's order, with equal bits on all ranks.
    group
        The default group if ``None``.

    Raises
    ------
    ScheduleError
        If the group's size is not that of the schedule, or the tensor is not dense.
    RuntimeError
        Of torch, if a rank does not answer.
    """
    import torch
    from torch import distributed

    ranks = distributed.get_world_size(group)
    if ranks != schedule.nodes:
        raise ScheduleError(
            f"{schedule.name} is of {schedule.nodes} servers, the process group has {ranks} ranks; build the schedule "
            f"for {ranks}"
        )
    if tensor.layout != torch.strided:
        raise ScheduleError(f"schedules sum dense tensors, got one of layout {tensor.layout}; use to_dense() first")
    with torch.no_grad():
        vector = tensor.detach().reshape(-1)
        _Rank(schedule, vector, group).run()
        if vector.data_ptr() != tensor.data_ptr():
            tensor.copy_(vector.view(tensor.shape))


class _Rank:
    """The nodes that this rank plays, and what they hold."""

    def __init__(self, schedule: Schedule, vector: "torch.Tensor", group: "distributed.ProcessGroup | None") -> None:
        from torch import distributed

        self._schedule = schedule
        self._group = group
        self._peers = distributed.get_process_group_ranks(distributed.group.WORLD if group is None else group)
        self._rank = distributed.get_rank(group)
        mine = range(self._rank, schedule.nodes + schedule.switches, schedule.nodes)
        self._held = {node: vector.new_zeros(vector.shape) for node in mine[1:]} | {self._rank: vector}
        self._borders = (np.arange(schedule.chunks + 1) * vector.numel() // schedule.chunks).tolist()

    def run(self) -> None:
        """Carry out all steps."""
        for step in self._schedule.steps:
            self._carry_out(step)

    def _carry_out(self, step: Step) -> None:
        """Send what is held as the step begins: what is received is applied when all sends are done."""
        from torch import distributed

        sources, targets = (column.tolist() for column in step.circuits.columns[:2])
        hosts = [node % self._schedule.nodes for node in step.circuits.columns[:2]]
        operations: list[distributed.P2POp] = []
        received: dict[tuple[int, int, int], list[tuple[int, torch.Tensor]]] = {}
        for transfer in np.flatnonzero((hosts[0] == self._rank) | (hosts[1] == self._rank)).tolist():
            first, stop = self._borders[step.first[transfer]], self._borders[step.stop[transfer]]
            if first == stop:
                continue
            source, target = sources[transfer], targets[transfer]
            from_rank, to_rank = (int(host[transfer]) for host in hosts)
            if to_rank != self._rank:
                operations.append(self._message(distributed.isend, self._held[source][first:stop], to_rank))
                continue
            if from_rank == self._rank:
                piece = self._held[source][first:stop].clone()
            else:
                piece = self._held[target].new_empty(stop - first)
                operations.append(self._message(distributed.irecv, piece, from_rank))
            received.setdefault((target, first, stop), []).append((source, piece))
        if operations:
            for work in distributed.batch_isend_irecv(operations):
                work.wait()
        for (target, first, stop), pieces in received.items():
            self._apply(step, target, self._held[target][first:stop], pieces)

    @staticmethod
    def _apply(step: Step, target: int, into: "torch.Tensor", pieces: "list[tuple[int, torch.Tensor]]") -> None:
        """Add in the order of the nodes, so that all nodes of an exchange round alike."""
        if not step.add:
            into.copy_(pieces[0][1])
            return
        ordered = sorted([*pieces, (target, into.clone())], key=lambda one: one[0])
        into.copy_(ordered[0][1])
        for _, piece in ordered[1:]:
            into.add_(piece)

    def _message(self, operation: "Callable[..., Any]", piece: "torch.Tensor", peer: int) -> "distributed.P2POp":
        from torch import distributed  # Any: torch's own type of isend and irecv

        return distributed.P2POp(operation, piece, self._peers[peer], self._group)
