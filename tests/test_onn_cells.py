"""Chains of cells against integer arithmetic; the proof that cells compose against hand calculation and sampling."""

from dataclasses import replace

import numpy as np
import pytest
from composition_bounds import assert_bounds_hold
from hypothesis import given, settings
from hypothesis import strategies as st

from optinc_hw.errors import NetworkError
from optinc_hw.onn import (
    CellChain,
    CellTree,
    ChipErrors,
    Layer,
    build_cell,
    build_exact,
    enumerate_inputs,
    mesh_products,
    prove_composition,
    quantised_mean,
    simulate_chips,
    tile,
    widen_to_sigma_u,
)
from optinc_hw.onn._cells import Cell, CellSpace
from optinc_hw.photonics import realise


def test_one_cell_by_hand():
    space = CellSpace(4, 2)
    point = np.ravel_multi_index((7, 10, 3), (13, 13, 4))
    # 4 * 7 + 10 + 3 = 41 = 2 * 16 + 2 * 4 + 1
    assert space.signals([point]).tolist() == [[1.75, 2.5, 3.0]]
    assert space.answers([point]).tolist() == [[2.0, 2.0, 1.0]]
    assert CellSpace(16, 1).answers([47 * 16 + 12]).tolist() == [[14 / 4, 3.0]]  # 59 = 14 * 4 + 3


@pytest.mark.parametrize("unit", ["clip01", "relu"])
@pytest.mark.parametrize(("divisor", "digits"), [(4, 1), (4, 2), (16, 1), (64, 1)])
def test_constructed_cells_are_right_on_all_of_their_inputs(divisor, digits, unit):
    cell, space = build_cell(divisor, digits, unit=unit), CellSpace(divisor, digits)
    index = np.arange(space.size)
    assert np.abs(cell.forward(space.signals(index)) - space.answers(index)).max() < 1e-9


CELLS = {(divisor, digits): build_cell(divisor, digits) for divisor, digits in [(4, 1), (4, 2), (16, 1), (16, 2)]}


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([(4, 1, 2), (4, 1, 4), (4, 2, 4), (16, 1, 2), (16, 1, 8), (16, 1, 16), (16, 2, 8)]),
    st.integers(1, 32),
    st.sampled_from(["half_up", "floor"]),
    st.integers(0, 2**32 - 1),
)
def test_chains_of_any_length_round_means(case, bits, rounding, seed):
    divisor, digits, servers = case
    codes = np.random.default_rng(seed).integers(0, 2**bits, (60, servers))
    codes[0], codes[1], codes[2] = 0, 2**bits - 1, 2 ** (bits - 1)
    chain = CellChain(CELLS[divisor, digits], servers, bits, rounding)
    assert np.array_equal(chain.run(codes), quantised_mean(codes, rounding))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from([2, 4]), min_size=1, max_size=3),
    st.sampled_from([(4, 1), (4, 2)]),
    st.integers(1, 24),
    st.sampled_from(["half_up", "floor"]),
    st.integers(0, 2**32 - 1),
)
def test_trees_of_chains_round_once(servers, cell, bits, rounding, seed):
    tree = CellTree(CELLS[cell], tuple(servers), bits, rounding)
    codes = np.random.default_rng(seed).integers(0, 2**bits, (40, tree.total))
    codes[0], codes[1], codes[2] = 0, 2**bits - 1, 2 ** (bits - 1)
    assert np.array_equal(tree.run(codes), quantised_mean(codes, rounding))


def test_sixteen_servers_by_counting():
    tree = CellTree(widen_to_sigma_u(build_cell(), (2, 8, 2)), (4, 4), 8)
    assert (tree.total, tree.chains, tree.cells) == (16, (4, 1), (4, 5))
    assert tree.mzis("sigma_u") == (4 * 4 + 5) * 24


def test_scenario_1_in_96_mzis():
    cell = widen_to_sigma_u(build_cell(), (2, 8, 2))  # four blocks of 3 MZIs, twice
    chain = CellChain(cell, 4, 8)
    assert (chain.count, chain.mzis("sigma_u"), chain.sizes) == (4, 96, (2, 8, 2))
    found = enumerate_inputs(chain, mesh_products(chain))
    assert (found.inputs, found.wrong) == (28_561, 0)
    assert found.margin > 0.5 - 1e-9
    for layer in chain.layers:
        assert realise(layer.weight, "sigma_u").residual < 1e-12


@pytest.mark.parametrize("slope", [2.0, 4.0])
@pytest.mark.parametrize("unit", ["clip01", "relu"])
def test_the_largest_carry_error_of_a_constructed_cell_by_hand(slope, unit):
    # Beyond m = 1/2 - 1/(2 g) of a level a step begins to move by g, the digit by 4 g, less the error e that it
    # passes on: 4 g (e - m) - e = 1/2.
    flat = 0.5 - 0.5 / slope
    expected = (0.5 + 4.0 * slope * flat) / (4.0 * slope - 1.0)
    found = prove_composition(build_cell(slope=slope, unit=unit))
    assert found.proved
    assert expected - 1 / 128 < found.largest <= expected
    inside = [bound for edge, bound in zip(found.edges, found.digit_bounds, strict=True) if edge <= flat]
    assert np.allclose(inside, found.edges[: len(inside)], atol=1e-5)  # digits pass the error on, carries do not
    assert max(found.carry_bounds[: len(inside)]) < 1e-8
    assert "a digit may be off" in found.limit
    assert "exact in chains of any length" in str(found)


def random_cell(seed, size):
    """Constructed cell, a little off."""
    rng = np.random.default_rng(seed)
    layers = [
        replace(
            layer, weight=layer.weight * rng.normal(1.0, size, layer.weight.shape),
            bias=layer.bias + rng.normal(0.0, 5.0 * size, len(layer.bias)),
        )
        for layer in widen_to_sigma_u(build_cell(unit="relu", slope=2.0), (2, 16, 16, 2)).layers
    ]  # fmt: skip
    return Cell(4, 1, tuple(layers))


@pytest.mark.parametrize("seed", range(3))
def test_bounds_hold_and_are_close_to_what_sampling_finds(seed):
    cell = random_cell(seed, 4e-3)
    assert_bounds_hold(cell, prove_composition(cell, pieces=8))


def test_a_chain_is_never_further_off_than_is_proved():
    cell = random_cell(1, 4e-4)
    found = prove_composition(cell)
    assert found.proved
    chain = CellChain(cell, 4, 32)
    codes = np.random.default_rng(2).integers(0, 2**32, (4000, 4))
    means = quantised_mean(codes)
    away = np.abs(chain.forward(chain.prepare(codes)) - ((means[:, None] >> np.arange(30, -1, -2)) & 3))
    assert away.max() <= 0.5 - found.margin
    assert np.array_equal(chain.run(codes), means)


@pytest.mark.parametrize(("output", "named"), [(0, "the carry out"), (1, "a digit")])
def test_a_cell_that_does_not_compose_is_told_why(output, named):
    cell = build_cell()
    shift = np.zeros(2)
    shift[output] = 0.55
    last = replace(cell.layers[-1], bias=cell.layers[-1].bias + shift)
    found = prove_composition(replace(cell, layers=(*cell.layers[:-1], last)))
    assert not found.proved
    assert found.margin == 0.0
    assert named in found.limit
    assert str(found).startswith("not proved")


def test_chips_of_a_chain():
    chain = CellChain(widen_to_sigma_u(build_cell(unit="relu"), (2, 14, 2)), 4, 8)
    perfect = simulate_chips(chain, ChipErrors(), "sigma_u", chips=2, inputs=300)
    assert (perfect.rate, perfect.mzis, perfect.columns) == (0.0, 4 * 42, 4 * 2 * 3)
    assert simulate_chips(chain, ChipErrors(), "svd", chips=2, inputs=300).rate == 0.0
    bad = simulate_chips(chain, ChipErrors(phase_rad=0.05), "sigma_u", chips=10, inputs=300)
    assert 0.0 < bad.rate < 1.0
    assert len(set(bad.rates.tolist())) > 1


def test_a_cell_is_cut_into_tiles():
    cell, space = build_cell(16), CellSpace(16, 1)
    plan = tile(cell, 4)
    signals = space.signals(np.arange(space.size))
    outputs = plan.run(signals, lambda index, amplitudes: amplitudes @ plan.tiles[index].matrix.T)
    assert np.abs(outputs - space.answers(np.arange(space.size))).max() < 1e-9


def test_what_is_no_cell_or_chain_is_refused():
    cell = build_cell()
    for divisor in (2, 8, 5, 4.0, True, 0):
        with pytest.raises(NetworkError, match="power of 4"):
            build_cell(divisor)
    with pytest.raises(NetworkError, match="at least one digit"):
        build_cell(4, 0)
    with pytest.raises(NetworkError, match="2 digits has 3 inputs"):
        replace(cell, digits=2)
    with pytest.raises(NetworkError, match="layer 0 of the cell gives 4 signals, layer 1 takes 2"):
        replace(cell, layers=(cell.layers[0], cell.layers[0]))
    with pytest.raises(NetworkError, match="servers that divide it, not 8"):
        CellChain(cell, 8, 8)
    with pytest.raises(NetworkError, match="bits must be"):
        CellChain(cell, 4, 33)
    with pytest.raises(NetworkError, match="rounding"):
        CellChain(cell, 4, 8, "up")
    with pytest.raises(NetworkError, match="divisor 4, not 16"):
        CellTree(build_cell(16), (4, 4), 8)
    for servers in ((), (4, 3), (8,), (True,)):
        with pytest.raises(NetworkError, match="adds up 2 or 4"):
            CellTree(cell, servers, 8)
    with pytest.raises(NetworkError, match="pieces"):
        prove_composition(cell, 0)
    chain = CellChain(cell, 4, 8)
    with pytest.raises(NetworkError, match=r"expected \(batch, 4\)"):
        chain.forward([[0.0]])
    with pytest.raises(NetworkError, match="must be finite"):
        chain.decode([[0.0, 1.0, 2.0, np.nan]])
    with pytest.raises(NetworkError, match="product of layer 0"):
        chain.forward([[0.0] * 4], lambda index, signals: signals)
    with pytest.raises(NetworkError, match="cell inputs"):
        cell.forward([0.0, 0.0])
    with pytest.raises(NetworkError, match="off blocks"):
        mesh_products(build_exact(4, 8))


def test_every_cell_of_a_chain_can_be_a_chip_of_its_own():
    chain, seen = CellChain(build_cell(), 4, 8), []

    def multiply(index, signals):
        seen.append(index)
        return signals @ chain.layers[index].weight.T

    chain.forward(chain.prepare([[1, 2, 3, 250]]), multiply)
    assert seen == list(range(8))
    assert isinstance(chain.layers[7], Layer)
