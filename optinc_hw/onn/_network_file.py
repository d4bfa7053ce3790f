"""Networks in files: safetensors, which hold arrays and text and no code."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from optinc_hw._files import replacing
from optinc_hw.errors import NetworkError
from optinc_hw.onn._network import Layer, OpticalNetwork

_FORMAT = "optinc-network/1"
_ARRAYS = ("weight", "bias", "low", "high", "step", "slack")


def save_network(network: OpticalNetwork, path: Path, provenance: Mapping[str, Any]) -> None:
    """Write a network to a file, at once or not at all.

    Parameters
    ----------
    network
        The network.
    path
        The file, ``*.safetensors``.
    provenance
        How the network came about, as JSON values.

    Raises
    ------
    OSError
        If the file cannot be written.
    """
    arrays = {
        f"layer{number}.{name}": np.ascontiguousarray(getattr(layer, name))
        for number, layer in enumerate(network.layers)
        for name in _ARRAYS
    }
    about = {
        "servers": network.servers,
        "bits": network.bits,
        "rounding": network.rounding,
        "margin": network.margin,
        "activations": [list(layer.activation) for layer in network.layers],
        "provenance": dict(provenance),
    }
    with replacing(path) as part:
        save_file(arrays, part, {"format": _FORMAT, "network": json.dumps(about, allow_nan=False)})


def load_network(path: Path) -> tuple[OpticalNetwork, dict[str, Any]]:
    """Read a network and its provenance.

    Raises
    ------
    NetworkError
        If the file cannot be read, is of another kind, or does not hold a network.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            about = file.metadata() or {}
            if about.get("format") != _FORMAT:
                raise NetworkError(f"{path} has format {about.get('format')!r}, expected {_FORMAT!r}")
            network = json.loads(about["network"])
            layers = tuple(
                Layer(
                    activation=tuple(kinds),
                    **{name: file.get_tensor(f"layer{number}.{name}") for name in _ARRAYS},
                )
                for number, kinds in enumerate(network["activations"])
            )
        made = OpticalNetwork(
            network["servers"], network["bits"], network["rounding"], layers, margin=float(network["margin"])
        )
        return made, dict(network["provenance"])
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, NetworkError):
            raise
        raise NetworkError(f"{path} is no readable network file: {error}") from error
