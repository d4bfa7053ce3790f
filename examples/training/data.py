"""Data with a fixed split: digits, CIFAR-100, and text as bytes."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from optinc_hw.errors import ConfigurationError

CONTEXT = 64
"""Bytes of a window of text."""
_DIGITS_HELD_OUT = 450
_CIFAR_RECORD = 2 + 3 * 32 * 32  # coarse label, fine label, red, green and blue rows
_TEXT_HELD_OUT = 10  # a tenth


@dataclass(frozen=True)
class Samples:
    """Inputs and what a model should say to them.

    Parameters
    ----------
    inputs
        Images (samples, channels, rows, columns) float32, or bytes (samples, context) int64.
    targets
        Classes (samples,) int64, or the byte after each (samples, context) int64.
    """

    inputs: Tensor
    targets: Tensor

    def __len__(self) -> int:
        return len(self.targets)


@dataclass(frozen=True)
class Split:
    """Samples to train with, and others to judge by."""

    training: Samples
    validation: Samples


def digits() -> Split:
    """Load the 1797 digits (1 x 8 x 8, in 0..1) that come with scikit-learn, 450 of them for validation."""
    from sklearn.datasets import load_digits

    data = load_digits()
    # They are ordered by writer: mixed, always in the same way, both parts have all of them.
    order = np.random.default_rng(0).permutation(len(data.target))
    images = torch.as_tensor(data.images[order] / 16.0, dtype=torch.float32).unsqueeze(1)
    classes = torch.as_tensor(data.target[order], dtype=torch.int64)
    cut = len(classes) - _DIGITS_HELD_OUT
    return Split(Samples(images[:cut], classes[:cut]), Samples(images[cut:], classes[cut:]))


def cifar_100(folder: str | Path) -> Split:
    """Load CIFAR-100 from the unpacked folder ``cifar-100-binary`` of the public archive: fine labels, 3 x 32 x 32.

    Channels have mean 0 and standard deviation 1 over the training part.  The archive's Python version holds pickles,
    which may run code; this version holds bytes alone.

    Raises
    ------
    ConfigurationError
        If a file is missing, is no whole number of records, or holds a label that does not exist.
    """
    pixels, classes = _cifar_records(Path(folder, "train.bin"))
    held_out, held_out_classes = _cifar_records(Path(folder, "test.bin"))
    mean, spread = pixels.mean(axis=(0, 2, 3), keepdims=True), pixels.std(axis=(0, 2, 3), keepdims=True)
    return Split(
        *(
            Samples(torch.as_tensor((images - mean) / np.maximum(spread, 1e-6)), torch.as_tensor(labels))
            for images, labels in ((pixels, classes), (held_out, held_out_classes))
        )
    )


def _cifar_records(path: Path) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    content = _content(path)
    if not content or len(content) % _CIFAR_RECORD:
        raise ConfigurationError(
            f"{path} has {len(content)} bytes, not a whole number of records of {_CIFAR_RECORD}; download and unpack "
            "cifar-100-binary.tar.gz again"
        )
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, _CIFAR_RECORD)
    fine = records[:, 1].astype(np.int64)
    if fine.max() > 99:
        raise ConfigurationError(f"{path} holds the label {fine.max()}, CIFAR-100 has 0 to 99; is it CIFAR-10?")
    return records[:, 2:].reshape(-1, 3, 32, 32).astype(np.float32) / np.float32(255.0), fine


def documentation() -> Split:
    """Cut windows from the documentation of Python's language (``pydoc_data``), about 0.46 MB of English.

    The text differs a little from one version of Python to the next.
    """
    from pydoc_data.topics import topics

    return _windows(topics[name].encode() for name in sorted(topics))


def text_folder(folder: str | Path) -> Split:
    """Cut windows from all ``*.txt`` files of a folder and the folders in it, read as bytes, in order of their names.

    Raises
    ------
    ConfigurationError
        If there are none, or too little text for a window.
    """
    paths = sorted(Path(folder).rglob("*.txt"))
    if not paths:
        raise ConfigurationError(f"{folder} holds no *.txt file; give a folder with plain text")
    try:
        return _windows(map(_content, paths))
    except ConfigurationError as error:
        raise ConfigurationError(f"{folder}: {error}") from error


def _windows(documents: Iterable[bytes]) -> Split:
    """Training windows from the first nine tenths of each document, validation windows from its last tenth."""
    first, last = [], []
    for document in documents:
        cut = len(document) - len(document) // _TEXT_HELD_OUT
        first.append(document[:cut])
        last.append(document[cut:])
    return Split(_cut(b"\n\n".join(first)), _cut(b"\n\n".join(last)))


def _cut(text: bytes) -> Samples:
    values = torch.as_tensor(np.frombuffer(text, dtype=np.uint8).astype(np.int64))
    count = (len(values) - 1) // CONTEXT
    if count < 1:
        raise ConfigurationError(
            f"{len(text)} bytes of text are no window of {CONTEXT} bytes; give at least {20 * CONTEXT} bytes"
        )
    end = count * CONTEXT
    return Samples(values[:end].reshape(count, CONTEXT), values[1 : end + 1].reshape(count, CONTEXT))


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
