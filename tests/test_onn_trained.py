"""The networks that come with the package: every input, through simulated meshes, against integer arithmetic."""

from dataclasses import replace

import pytest

from optinc_hw.errors import NetworkError
from optinc_hw.onn import (
    TRAINED,
    CellChain,
    enumerate_inputs,
    load_trained,
    mesh_products,
    prove_composition,
)
from optinc_hw.photonics import realise

# name: most MZIs, least margin, and (servers, bits) whose inputs are few enough for a test
EXPECTED = {
    "cell-4": (2500, 0.4, [(4, 8), (2, 8)]),
    "cell-4-small": (800, 0.4, [(4, 8)]),
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


def test_other_names_are_refused():
    with pytest.raises(NetworkError, match="there are cell-4,"):
        load_trained("../cell-4")
