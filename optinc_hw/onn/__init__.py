"""Optical neural network of OptINC: PAM4 codec, unit P, the exact carry-chain network, area and tiling."""

from optinc_hw.onn._area import Form, count_mzis
from optinc_hw.onn._checks import Rounding, check_codes, check_integers, check_rounding, symbol_count
from optinc_hw.onn._codec import decode_pam4, encode_pam4, preprocess, quantised_mean, symbol_error_rate
from optinc_hw.onn._exact import build_exact
from optinc_hw.onn._network import Activation, Layer, Multiply, OpticalNetwork
from optinc_hw.onn._runner import TileRunner
from optinc_hw.onn._space import InputSpace
from optinc_hw.onn._tiling import Forward, LayerPlan, Tile, TilePlan, tile

__all__ = [
    "Activation",
    "Form",
    "Forward",
    "InputSpace",
    "Layer",
    "LayerPlan",
    "Multiply",
    "OpticalNetwork",
    "Rounding",
    "Tile",
    "TilePlan",
    "TileRunner",
    "build_exact",
    "check_codes",
    "check_integers",
    "check_rounding",
    "count_mzis",
    "decode_pam4",
    "encode_pam4",
    "preprocess",
    "quantised_mean",
    "symbol_count",
    "symbol_error_rate",
    "tile",
]
