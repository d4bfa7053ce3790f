"""Command line that the training examples share."""

import argparse
from pathlib import Path
from typing import get_args

import torch
import torch.distributed as dist

from optinc_hw.aggregation import OptincOptions
from training.averaging import TABLE_II, Averaging, Source, twin_answers
from training.loop import Outcome, process_group, train
from training.tasks import Task


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what says how to average and how long to train."""
    parser.add_argument("--averaging", choices=get_args(Source), default="table", help="where means come from")
    parser.add_argument("--bits", type=int, default=8, help="width of a code")
    parser.add_argument("--block-size", type=int, default=1024, help="elements that share a scale")
    parser.add_argument("--error-feedback", action="store_true", help="add what quantisation dropped to the next step")
    parser.add_argument("--errors", choices=list(TABLE_II), help="add a row of the paper's errors; for --bits 16")
    parser.add_argument("--record", type=Path, help="calibration of the twin; default: calibrate a simulated chip")
    parser.add_argument("--steps", type=int, help="steps of training; default: those of the task")
    parser.add_argument("--seed", type=int, default=0, help="of weights, order of samples, and errors")
    parser.add_argument("--costs", type=Path, metavar="FILE", help="write what averaging cost the first rank as JSON")


def run(task: Task, arguments: argparse.Namespace) -> None:
    """Train on this rank; the first rank prints what came of it."""
    torch.set_num_threads(1)
    with process_group():
        outcome = train(task, _averaging(arguments), arguments.seed, arguments.steps)
        if dist.get_rank() == 0:
            _report(task, outcome, arguments.costs)


def _averaging(arguments: argparse.Namespace) -> Averaging:
    options = OptincOptions(arguments.bits, arguments.block_size, error_feedback=arguments.error_feedback)
    if dist.get_world_size() == 1:
        print("one process: nothing to average; start several with torchrun --nproc-per-node 4")
        return Averaging("float")
    answers = None
    if arguments.averaging == "twin":
        shared = [twin_answers(dist.get_world_size(), options.bits, arguments.record) if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(shared)
        answers = shared[0]
    return Averaging(
        arguments.averaging, options, None if arguments.errors is None else TABLE_II[arguments.errors], answers
    )


def _report(task: Task, outcome: Outcome, costs: Path | None) -> None:
    print(f"{task.name}: validation loss {outcome.loss:.4f}, accuracy {outcome.accuracy:.1%}, {outcome.seconds:.1f} s")
    print(f"equal parameters on all ranks: {'yes' if outcome.equal else 'NO'}")
    if outcome.injected:
        print(f"answers made wrong: {outcome.injected}")
    if outcome.costs is not None:
        print(outcome.costs)
        if costs is not None:
            outcome.costs.save(costs)
