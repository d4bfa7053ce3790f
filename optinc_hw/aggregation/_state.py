"""State of the DDP hook of one rank."""

import warnings
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
import torch.distributed as dist

from optinc_hw.aggregation._account import Account, Costs
from optinc_hw.aggregation._averager import Averager
from optinc_hw.aggregation._executor import Executor
from optinc_hw.aggregation._feedback import Residuals
from optinc_hw.aggregation._options import OptincOptions
from optinc_hw.aggregation._parameters import ParameterNames
from optinc_hw.aggregation._transfers import LANES
from optinc_hw.errors import GradientError

Outcome = Future[BaseException | None]  # of a bucket: what broke it

_KEYS = {"steps", "rank", "ranks", "residuals"}


class OptincState:
    """State of `optinc_hook` on one rank.

    Parameters
    ----------
    executor
        Finds the codes' means.  With a ``chip_host`` only that rank needs one.
    options
        Settings, equal on all ranks.
    process_group
        Ranks that take part; None: all.  Codes travel over groups of the same ranks with the backend gloo.
    parameters
        Names and parameters, as from ``module.named_parameters()``.  They name residuals in checkpoints and parameters
        in messages; without them parameters are numbered as the hook meets them.  Give all or none.

    Attributes
    ----------
    steps : int
        Steps done.

    Raises
    ------
    GradientError
        If two parameters have one name.

    Notes
    -----
    Groups are made and setups compared in the first call of the hook.  A state can be pickled; the copy joins the
    default group.
    """

    def __init__(
        self,
        executor: Executor | None,
        options: OptincOptions | None = None,
        *,
        process_group: dist.ProcessGroup | None = None,
        parameters: Iterable[tuple[str, torch.Tensor]] = (),
    ) -> None:
        self.executor = executor
        self.options = OptincOptions() if options is None else options
        self.process_group = process_group
        self.steps = 0
        self.names = ParameterNames(parameters)
        self._residuals = Residuals()
        self._account = Account()
        self._averager: Averager | None = None
        self._workers: list[ThreadPoolExecutor] = []
        self._buckets: list[Outcome] = []

    @property
    def ranks(self) -> int:
        """Number of ranks that take part."""
        return dist.get_world_size(self.process_group)

    @property
    def costs(self) -> Costs:
        """What averaging has cost this rank since the state was made."""
        return self._account.costs

    @property
    def averager(self) -> Averager:
        """What averages, made in the first call, which all ranks must make."""
        if self._averager is None:
            self._averager = Averager(
                self.process_group, self.executor, self.options, self._residuals, self.steps, self._account
            )
        return self._averager

    @property
    def workers(self) -> list[ThreadPoolExecutor]:
        """The thread of each lane, which exchanges codes, bucket after bucket, while the backward pass goes on."""
        if not self._workers:
            self._workers = [ThreadPoolExecutor(1, thread_name_prefix="optinc-hook") for _ in range(LANES)]
        return self._workers

    def add_bucket(self, outcome: Outcome, *, last: bool) -> list[Outcome]:
        """Take a bucket of the step under way; return those of the step so far."""
        buckets = self._buckets
        buckets.append(outcome)
        if last:
            self._buckets = []
        return buckets

    def end_step(self, buckets: list[Outcome]) -> BaseException | None:
        """Wait for all buckets of a step and return what broke the first; then none of its residuals are kept."""
        broken = next((error for error in [bucket.result() for bucket in buckets] if error is not None), None)
        self._residuals.end_step(keep=broken is None)
        return broken

    def close(self) -> None:
        """End the threads and connections of the hook, on all ranks after their last step; a later step makes new ones.

        Without it they last as long as the process: a few threads and some ten connections for each other rank.
        """
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.shutdown()
        averager, self._averager = self._averager, None
        if averager is not None:
            averager.close()

    def state_dict(self) -> dict[str, Any]:
        """Return what this rank needs to go on bit for bit: steps, and residuals by parameter (copies).

        Every rank has its own residuals and must save its own.
        """
        return {
            "steps": self.steps,
            "rank": dist.get_rank(self.process_group),
            "ranks": self.ranks,
            "residuals": self._residuals.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` gave; before the first step.

        Raises
        ------
        GradientError
            If the state is another rank's, of another number of ranks, damaged, or holds residuals although error
            feedback is off, or of parameters with other names; nothing is changed then.
        """
        if set(state) != _KEYS:
            raise GradientError(f"the state of the hook has keys {sorted(state)}; expected {sorted(_KEYS)}")
        mine = (dist.get_rank(self.process_group), self.ranks)
        if (state["rank"], state["ranks"]) != mine:
            raise GradientError(
                f"the state is of rank {state['rank']} of {state['ranks']}, this is rank {mine[0]} of {mine[1]}; every "
                "rank must load its own"
            )
        if state["residuals"] and not self.options.error_feedback:
            raise GradientError("the state holds residuals but error_feedback is off; switch it on to load them")
        self.names.check(state["residuals"])
        self._residuals.load_state_dict(state["residuals"])
        self.steps = int(state["steps"])

    def __getstate__(self) -> dict[str, Any]:
        ended: dict[str, Any] = {"_account": None, "_averager": None, "_workers": [], "_buckets": []}
        kept = self.__dict__ | ended | {"process_group": None}
        return kept | {"had_group": self.process_group is not None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if state.pop("had_group"):
            warnings.warn("the copy of an OptincState joins the default process group", stacklevel=2)
        self.__dict__.update(state, _account=Account())
