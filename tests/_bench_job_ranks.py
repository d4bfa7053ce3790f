"""Ranks of a job that trains digits through a simulated bench; the first one is the chip host."""

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

import optinc_hw.bench._simulate as simulate
from calibration import calibrate
from optinc_hw import Bench
from optinc_hw.aggregation import (
    BenchExecutor,
    Checked,
    SpotCheckedExecutor,
    SpotCheckSettings,
    TwinExecutor,
    register_optinc_hook,
)
from optinc_hw.bench import BenchTileRunner, TwinTileRunner
from optinc_hw.onn import build_exact, quantised_mean

PORTS, SEED, BITS = 8, 3, 4
STEPS, DRIFT_AT = 20, 6
SETTINGS = {"bits": BITS, "block_size": 64, "error_feedback": True, "chip_host": 0, "timeout_s": 240.0}


class Noted:
    """The executor of the chip host, and for each step the share of its answers that are not the mean."""

    def __init__(self, executor):
        self.executor = executor
        self.servers, self.bits, self.inputs = executor.servers, executor.bits, executor.inputs
        self.batch_limit = executor.batch_limit
        self.wrong = []
        self.answered = 0

    def run(self, codes, out=None):
        answers = self.executor.run(codes, out)
        self.answered += len(codes)
        self.wrong.append(float(np.mean(answers != quantised_mean(codes))))
        return answers


class Host:
    """An open bench, calibrated, with its executor; its chip can be made to drift."""

    def __init__(self):
        make = simulate._hidden_chip

        def remembered(*arguments):
            self.chip = make(*arguments)
            return self.chip

        simulate._hidden_chip = remembered
        self.bench = Bench.simulated(PORTS, SEED)

    def __enter__(self):
        self.bench.__enter__()
        network = build_exact(4, BITS, slope=8.0)

        def calibrated():
            record = calibrate(self.bench, settings=150, held_out=40)
            self.bench.save_record(record)
            bench = BenchExecutor(network, BenchTileRunner(self.bench))
            return Checked(bench, TwinExecutor(network, TwinTileRunner(record)), bench)

        self.checked = SpotCheckedExecutor(
            calibrated(), np.random.default_rng(0), SpotCheckSettings(share=0.1, baseline=48, window=32),
            recalibrate=calibrated,
        )  # fmt: skip
        self.executor = Noted(self.checked)
        return self

    def __exit__(self, *error):
        self.checked.finish()
        self.bench.__exit__(*error)

    def drift(self):
        self.chip.drift(resistance_change=-0.02, resistance_spread=0.01, offset_rms_rad=0.05, seed=5)


def train(rank, ranks, folder):
    """Train 20 steps, with drift from the seventh on, and write what was seen."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=ranks)
    images, labels = load_digits(return_X_y=True)
    small = torch.tensor(images.reshape(-1, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(-1, 16) / 16.0, dtype=torch.float32)
    labels = torch.tensor(labels)
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(16, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9)
    found, rng = {"losses": []}, np.random.default_rng(rank)
    with Host() if rank == 0 else nullcontext() as host:
        state = register_optinc_hook(model, None if host is None else host.executor, SETTINGS)
        for step in range(STEPS):
            if host is not None and step == DRIFT_AT:
                host.drift()
            chosen = torch.tensor(rng.integers(0, len(labels), 64))
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(small[chosen]), labels[chosen])
            loss.backward()
            optimizer.step()
            found["losses"].append(float(loss.detach()))
        if host is not None:
            found |= {
                "wrong": host.executor.wrong,
                "answered": host.executor.answered,
                "alarms": [str(alarm) for alarm in host.checked.alarms],
                "recalibrations": host.checked.recalibrations,
                "costs": state.costs,
            }
    if host is not None:
        found["voltages"] = [host.chip.heater_voltage(k) for k in range(len(host.bench.layout.heaters))]
    found["parameters"] = torch.cat([part.detach().reshape(-1) for part in model.parameters()])
    torch.save(found, Path(folder, f"rank_{rank}"))
    distributed.destroy_process_group()
