"""Training of optical networks and of cells of them; needs torch, which `optinc_hw.onn` does not."""

from optinc_hw.onn.training._settings import CELL_SETTINGS, Loss, Method, TrainingSettings
from optinc_hw.onn.training._train import TrainedCell, TrainedNetwork, provenance, train_cell, train_network

__all__ = [
    "CELL_SETTINGS",
    "Loss",
    "Method",
    "TrainedCell",
    "TrainedNetwork",
    "TrainingSettings",
    "provenance",
    "train_cell",
    "train_network",
]
