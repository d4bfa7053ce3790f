"""Networks in files: safetensors, which hold arrays and text and no code."""

import json
from collections.abc import Mapping
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from optinc_hw._files import replacing
from optinc_hw.errors import NetworkError
from optinc_hw.onn._cells import Cell, CellChain
from optinc_hw.onn._network import Layer, OpticalNetwork

_NETWORK = "optinc-network/1"
_CHAIN = "optinc-chain/1"
_ARRAYS = ("weight", "bias", "low", "high", "step", "slack")

TRAINED = ("cell-4", "cell-4-small", "cell-4-tiny", "network-4")
"""Names of the networks that come with the package, see `load_trained`."""


def save_network(network: OpticalNetwork | CellChain, path: Path, provenance: Mapping[str, Any]) -> None:
    """Write a network or a chain of cells to a file, at once or not at all.

    Parameters
    ----------
    network
        The network, or a chain, of which the cell is written once.
    path
        The file, ``*.safetensors``.
    provenance
        How the network came about, as JSON values.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    layers = network.cell.layers if isinstance(network, CellChain) else network.layers
    arrays = {
        f"layer{number}.{name}": np.ascontiguousarray(getattr(layer, name))
        for number, layer in enumerate(layers)
        for name in _ARRAYS
    }
    about: dict[str, Any] = {
        "servers": network.servers,
        "bits": network.bits,
        "rounding": network.rounding,
        "margin": network.margin,
        "activations": [list(layer.activation) for layer in layers],
        "provenance": dict(provenance),
    }
    if isinstance(network, CellChain):
        about |= {"divisor": network.cell.divisor, "digits": network.cell.digits}
    kind = _CHAIN if isinstance(network, CellChain) else _NETWORK
    with replacing(path) as part:
        save_file(arrays, part, {"format": kind, "network": json.dumps(about, allow_nan=False)})


def load_network(path: Path) -> tuple[OpticalNetwork | CellChain, dict[str, Any]]:
    """Read a network or a chain of cells, and its provenance.

    Raises
    ------
    NetworkError
        If the file cannot be read, is of another kind, or does not hold a network.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            about = file.metadata() or {}
            if about.get("format") not in (_NETWORK, _CHAIN):
                raise NetworkError(f"{path} has format {about.get('format')!r}, expected {_NETWORK!r} or {_CHAIN!r}")
            content = json.loads(about["network"])
            layers = tuple(
                Layer(
                    activation=tuple(kinds),
                    **{name: file.get_tensor(f"layer{number}.{name}") for name in _ARRAYS},
                )
                for number, kinds in enumerate(content["activations"])
            )
        servers, bits, rounding = content["servers"], content["bits"], content["rounding"]
        margin, found = float(content["margin"]), dict(content["provenance"])
        if about["format"] == _NETWORK:
            return OpticalNetwork(servers, bits, rounding, layers, margin), found
        cell = Cell(content["divisor"], content["digits"], layers, margin)
        return CellChain(cell, servers, bits, rounding), found
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, NetworkError):
            raise
        raise NetworkError(f"{path} is no readable network file: {error}") from error


def load_trained(name: str) -> tuple[OpticalNetwork | CellChain, dict[str, Any]]:
    """Return a network that comes with the package, and its provenance; every layer is in blocks ``Sigma U``.

    Parameters
    ----------
    name
        One of `TRAINED`:

        ``"cell-4"``, ``"cell-4-small"``, ``"cell-4-tiny"``
            Chains of cells of 624, 184 and 39 MZIs, four of them for 4 servers and 8 bits. They serve any number of
            bits, and 2 servers, too: ``dataclasses.replace(chain, bits=16)``; for more servers see `CellTree`.
        ``"network-4"``
            One network of 2 272 MZIs for 4 servers and 8 bits.

    Raises
    ------
    NetworkError
        If there is no such network.
    """
    if name not in TRAINED:
        raise NetworkError(f"there is no trained network {name!r}; there are {', '.join(TRAINED)}")
    with as_file(files("optinc_hw.onn") / "weights" / f"{name}.safetensors") as path:
        return load_network(path)
