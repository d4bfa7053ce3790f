"""Is OptINC worth it for a model of your own?  Over batches: what a step takes, and where the gain vanishes.

Usage: python 07_is_it_worth_it.py [SERVERS [GBPS]]
"""

import sys
from dataclasses import replace

import torch
from torch import nn

from optinc_hw.interconnect.comparison import Network, Training, compare, measure_workload

SERVERS = int(sys.argv[1]) if len(sys.argv) > 1 else 8
GBPS = float(sys.argv[2]) if len(sys.argv) > 2 else 100.0


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(64, 128, 3, padding=1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(4), nn.Flatten(),
        )  # fmt: skip
        self.head = nn.Sequential(nn.Linear(128 * 16, 1024), nn.ReLU(), nn.Linear(1024, 10))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(images))


workload = measure_workload("classifier", Classifier(), torch.randn(2, 3, 32, 32))
print(f"{workload.parameters:,} parameters, {workload.flops_per_sample / 1e6:.1f} MFLOP an image, both passes")

network = Network(rate_bps=1e9 * GBPS)
names = ("ring", "halving", "switch", "optinc", "optinc-cascade")
job = Training.of(workload, batch=1)
for batch in (8, 64, 512, 4096, 32768):
    compared = compare(replace(job, batch=batch), SERVERS, network, names=names)
    waits, gains = 100 * compared.baseline.step.share, 100 * compared.gain
    print(f"batch {batch:6d}: ring waits {waits:5.1f} % of the step, {compared.best.name} gains {gains:4.1f} %")
print(compared.verdict)
