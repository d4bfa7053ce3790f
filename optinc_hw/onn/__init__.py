"""Optical neural network of OptINC: codec, unit P, exact networks, trees and chains, scenarios, area, tiling."""

from optinc_hw.onn._area import Form, count_mzis
from optinc_hw.onn._cascade import Cascade, LevelCheck, build_cascade
from optinc_hw.onn._cell_tree import CellTree
from optinc_hw.onn._cells import Cell, CellChain, build_cell
from optinc_hw.onn._checks import Rounding, check_codes, check_integers, check_rounding, symbol_count
from optinc_hw.onn._chips import ChipErrors, SimulatedChips, mesh_products, simulate_chips
from optinc_hw.onn._circuit import UnitKind
from optinc_hw.onn._codec import decode_pam4, encode_pam4, preprocess, quantised_mean, symbol_error_rate
from optinc_hw.onn._composition import Composition, prove_composition
from optinc_hw.onn._enumeration import Enumeration, enumerate_inputs
from optinc_hw.onn._exact import build_exact
from optinc_hw.onn._network import Activation, Layer, Multiply, OpticalNetwork
from optinc_hw.onn._network_file import TRAINED, load_network, load_trained, save_network
from optinc_hw.onn._runner import TileRunner
from optinc_hw.onn._scenarios import SCENARIOS, Scenario
from optinc_hw.onn._sigma_u import widen_to_sigma_u
from optinc_hw.onn._space import InputSpace
from optinc_hw.onn._tile_figure import plot_tiles
from optinc_hw.onn._tiling import Forward, LayerPlan, Tile, TilePlan, tile

__all__ = [
    "SCENARIOS",
    "TRAINED",
    "Activation",
    "Cascade",
    "Cell",
    "CellChain",
    "CellTree",
    "ChipErrors",
    "Composition",
    "Enumeration",
    "Form",
    "Forward",
    "InputSpace",
    "Layer",
    "LayerPlan",
    "LevelCheck",
    "Multiply",
    "OpticalNetwork",
    "Rounding",
    "Scenario",
    "SimulatedChips",
    "Tile",
    "TilePlan",
    "TileRunner",
    "UnitKind",
    "build_cascade",
    "build_cell",
    "build_exact",
    "check_codes",
    "check_integers",
    "check_rounding",
    "count_mzis",
    "decode_pam4",
    "encode_pam4",
    "enumerate_inputs",
    "load_network",
    "load_trained",
    "mesh_products",
    "plot_tiles",
    "preprocess",
    "prove_composition",
    "quantised_mean",
    "save_network",
    "simulate_chips",
    "symbol_count",
    "symbol_error_rate",
    "tile",
    "widen_to_sigma_u",
]
