"""Train a small network with 4 workers whose gradients are averaged by the calibrated twin of a chip.

Usage: python 03_aggregate_gradients.py [RECORD]

RECORD is a calibration record of a chip (example 01 writes one); without it a simulated chip is calibrated first.
"""

import sys

import numpy as np
import torch
from torch import Tensor, nn

from optinc_hw.aggregation import Aggregator, ExactExecutor, TableExecutor, TwinExecutor
from optinc_hw.bench import CalibrationRecord, TwinTileRunner
from optinc_hw.onn import build_exact

WORKERS, BITS, STEPS, BATCH = 4, 8, 60, 32


def calibrated_chip() -> CalibrationRecord:
    if len(sys.argv) > 1:
        return CalibrationRecord.load(sys.argv[1])
    from calibration import calibrate
    from optinc_hw import Bench

    with Bench.simulated(ports=4, seed=1) as bench:
        return calibrate(bench, settings=150, held_out=40)


def optical_table(record: CalibrationRecord) -> TableExecutor:
    """Ask the noisy twin once for each input that the network can get; after that an answer is a look-up."""
    network = build_exact(WORKERS, BITS)
    twin = TwinExecutor(network, TwinTileRunner(record, np.random.default_rng(0)))
    return TableExecutor.from_executor(twin)


def batch(rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Points of the plane and whether they lie inside a ring."""
    points = torch.as_tensor(rng.uniform(-1.0, 1.0, (BATCH, 2)), dtype=torch.float32)
    return points, (points.square().sum(dim=1) < 0.5).long()


def train(average: Aggregator | None) -> list[float]:
    """Return the loss of each step; None averages in floating point."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))
    parameters = list(model.parameters())
    optimizer = torch.optim.Adam(parameters, lr=0.03)
    criterion = nn.CrossEntropyLoss()
    rng = np.random.default_rng(0)
    losses = []
    for _ in range(STEPS):
        workers, total = [], 0.0
        for _worker in range(WORKERS):
            points, inside = batch(rng)
            loss = criterion(model(points), inside)
            workers.append(list(torch.autograd.grad(loss, parameters)))
            total += float(loss.detach())
        if average is None:
            means = [torch.stack(tensors).mean(dim=0) for tensors in zip(*workers, strict=True)]
        else:
            means = average.mean_lists(workers)
        for parameter, mean in zip(parameters, means, strict=True):
            parameter.grad = mean
        optimizer.step()
        losses.append(total / WORKERS)
    return losses


def main() -> None:
    torch.set_num_threads(1)
    table = optical_table(calibrated_chip())
    every = table.space.codes(np.arange(table.space.size))
    wrong = int((table.run(every) != ExactExecutor(WORKERS, BITS).run(every)).sum())
    print(f"twin: {wrong} of {len(every)} inputs answered wrongly")
    optical, floating = train(Aggregator(table)), train(None)
    for name, losses in (("optical averaging", optical), ("float averaging", floating)):
        print(f"{name}: loss {losses[0]:.3f} -> {np.mean(losses[-10:]):.3f} (mean of the last 10 of {STEPS} steps)")


if __name__ == "__main__":
    main()
