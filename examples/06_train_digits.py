"""Train on digits (or CIFAR-100) in several processes whose gradients are averaged as a chip would.

Usage: torchrun --nproc-per-node 4 06_train_digits.py [--model resnet] [--averaging twin] ...

``--averaging float`` is torch's own all-reduce, the others go through the hook. ``--cifar-100 FOLDER`` takes the
unpacked folder cifar-100-binary of the public archive and trains the residual network on it. ``--help`` shows the rest.
"""

import argparse
from pathlib import Path

from training import cifar_100, digits_perceptron, digits_resnet, images_resnet
from training.command import add_arguments, run


def main() -> None:
    parser = argparse.ArgumentParser(description="Train on digits with averaging as a chip would do it.")
    parser.add_argument("--model", choices=("mlp", "resnet"), default="mlp", help="of the digits")
    parser.add_argument("--cifar-100", type=Path, metavar="FOLDER", help="train on CIFAR-100 instead")
    add_arguments(parser)
    arguments = parser.parse_args()
    if arguments.cifar_100 is not None:
        task = images_resnet("CIFAR-100, ResNet", cifar_100(arguments.cifar_100), classes=100, steps=5000, width=32)
    else:
        task = {"mlp": digits_perceptron, "resnet": digits_resnet}[arguments.model]()
    run(task, arguments)


if __name__ == "__main__":
    main()
