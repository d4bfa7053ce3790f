"""Train a small language model in several processes whose gradients are averaged as a chip would.

Usage: torchrun --nproc-per-node 4 06_train_language_model.py [--text FOLDER] [--averaging twin] ...

Its text is the documentation of Python's language, or the ``*.txt`` files of a folder. ``--averaging float`` is torch's
own all-reduce, the others go through the hook. ``--help`` shows the rest.
"""

import argparse
from pathlib import Path

from training import documentation, language_model, text_folder
from training.command import add_arguments, run


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a language model with averaging as a chip would do it.")
    parser.add_argument("--text", type=Path, metavar="FOLDER", help="train on the *.txt files of a folder instead")
    add_arguments(parser)
    arguments = parser.parse_args()
    if arguments.text is None:
        task = language_model("documentation, language model", documentation())
    else:
        task = language_model(f"{arguments.text.name}, language model", text_folder(arguments.text))
    run(task, arguments)


if __name__ == "__main__":
    main()
