"""Training of optical networks whose layers are blocks ``Sigma U``; needs torch, which `optinc_hw.onn` does not."""

from optinc_hw.onn.training._train import TrainedNetwork, TrainingSettings, provenance, train_network

__all__ = ["TrainedNetwork", "TrainingSettings", "provenance", "train_network"]
