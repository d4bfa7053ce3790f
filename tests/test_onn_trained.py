"""The networks that come with the package: every input, through simulated meshes, against integer arithmetic."""

from dataclasses import replace

import numpy as np
import pytest

from optinc_hw.errors import NetworkError
from optinc_hw.onn import (
    TRAINED,
    CellChain,
    CellTree,
    InputSpace,
    enumerate_inputs,
    load_trained,
    mesh_products,
    prove_composition,
    quantised_mean,
)
from optinc_hw.photonics import realise

# name: most MZIs, least margin, and (servers, bits) whose inputs are few enough for a test
EXPECTED = {
    "cell-4": (2500, 0.4, [(4, 8), (2, 8)]),
    "cell-4-small": (800, 0.4, [(4, 8)]),
    "cell-4-tiny": (160, 0.34, [(4, 8)]),
    "network-4": (2500, 0.4, [(4, 8)]),
}


def test_every_shipped_network_is_checked():
    assert set(EXPECTED) == set(TRAINED)


@pytest.mark.parametrize("name", TRAINED)
def test_shipped_networks_are_right_on_every_input_through_meshes(name):
    network, about = load_trained(name)
    mzis, margin, sizes = EXPECTED[name]
    assert network.mzis("sigma_u") <= mzis
    assert network.margin >= margin
    assert about["made by"].startswith("optinc_hw.onn.training.train_")
    assert about["settings"]["sizes"] == list(network.sizes)
    for layer in network.layers:
        assert realise(layer.weight, "sigma_u").residual < 1e-9
    products = mesh_products(network)
    for servers, bits in sizes:
        found = enumerate_inputs(replace(network, servers=servers, bits=bits), products)
        assert found.wrong == 0
        assert found.margin >= margin


@pytest.mark.parametrize("name", [name for name in TRAINED if name.startswith("cell")])
def test_shipped_cells_are_proved_for_any_number_of_bits(name):
    network, _ = load_trained(name)
    assert isinstance(network, CellChain)
    found = prove_composition(network.cell)
    assert found.proved
    assert found.margin == pytest.approx(network.margin, abs=1e-6)


@pytest.mark.parametrize("name", ["cell-4", "cell-4-small", "cell-4-tiny"])
@pytest.mark.parametrize(("servers", "bits"), [((4, 2), 8), ((4, 4), 8), ((4,), 16)])
def test_one_shipped_cell_serves_scenarios_2_to_4(name, servers, bits):
    network, _ = load_trained(name)
    tree = CellTree(network.cell, servers, bits)
    space = InputSpace(tree.total, bits, 4)
    index = np.random.default_rng(0).integers(0, space.size, 20_000)
    codes = np.concatenate([space.codes(index), np.random.default_rng(1).integers(0, 2**bits, (20_000, tree.total))])
    assert np.array_equal(tree.run(codes, mesh_products(network)), quantised_mean(codes))


def test_other_names_are_refused():
    with pytest.raises(NetworkError, match="there are cell-4,"):
        load_trained("../cell-4")
