"""Digits folded by sin^2 units: identities by hand, integer arithmetic, the proof, and what is not absorbed."""

import numpy as np
import pytest
from composition_bounds import assert_bounds_hold
from hypothesis import given, settings
from hypothesis import strategies as st

from optinc_hw.errors import NetworkError
from optinc_hw.onn import (
    CellChain,
    ChipErrors,
    InputSpace,
    Layer,
    build_cascade,
    build_cell,
    build_exact,
    encode_pam4,
    enumerate_inputs,
    load_network,
    mesh_products,
    prove_composition,
    quantised_mean,
    save_network,
    simulate_chips,
    tile,
    widen_to_sigma_u,
)
from optinc_hw.onn._cells import Cell, CellSpace
from optinc_hw.photonics import realise

FOLDING = ("sin2", "fold")


def folded_digit(cell, v):
    """Digit of a cell of divisor 4 whose average is 0 and whose carry signal is v, beyond its range too."""
    return cell.forward(np.column_stack([np.zeros_like(v), v]))[:, 1]


def test_a_sin2_unit_is_the_transmission_of_an_mzi():
    layer = Layer(
        weight=np.ones((2, 1)), bias=np.zeros(2), activation=("sin2", "linear"), low=np.zeros(1), high=np.ones(1),
        step=np.zeros(1), slack=np.full(2, np.inf),
    )  # fmt: skip
    values = np.array([[0.0, -7.0], [0.25, 0.25], [0.5, 9.0], [1 / 3, 0.0], [-1.5, 1.0], [100.0, 1.0]])
    assert layer.activate(values)[:, 0] == pytest.approx([0.0, 0.5, 1.0, 0.75, 1.0, 0.0], abs=1e-12)
    assert layer.activate(values)[:, 1].tolist() == values[:, 1].tolist()
    assert layer.folding.tolist() == [True, False]
    assert not layer.saturating.any()


def test_flat_folding_by_hand():
    # Between whole v too: 1 - cos^3 y - sin^3 y + sin^2 y with y = pi v / 2.
    v = np.linspace(0.0, 64.0, 1001)
    y = np.pi * v / 2.0
    expected = 1.0 - np.cos(y) ** 3 - np.sin(y) ** 3 + np.sin(y) ** 2
    assert folded_digit(build_cell(unit="sin2"), v) == pytest.approx(expected, abs=1e-12)
    whole = np.arange(65.0)
    assert folded_digit(build_cell(unit="sin2"), whole) == pytest.approx(whole % 4, abs=1e-11)


def test_the_shortest_formula_is_steep_where_the_built_one_is_flat():
    # 3/2 - cos y - sin y - cos(2 y) / 2 needs one unit less, and errs by pi / 2 times the error of v.
    whole = np.arange(16.0)
    for error in (0.0, 0.01, -0.01):
        y = np.pi * (whole + error) / 2.0
        steep = 1.5 - np.cos(y) - np.sin(y) - np.cos(2.0 * y) / 2.0
        assert np.abs(steep - whole % 4).max() == pytest.approx(np.pi / 2.0 * abs(error), rel=0.03, abs=1e-12)
        built = folded_digit(build_cell(unit="sin2"), whole + error)
        assert np.abs(built - whole % 4).max() <= 2.6 * (np.pi / 2.0 * error) ** 2 + 1e-12


def test_what_an_error_of_v_makes_of_a_digit():
    cell, whole = build_cell(unit="sin2"), np.arange(16.0)
    # To second order: (3/2 of each cube + 1 of the square) (pi e / 2)^2, where both have the same sign.
    for error in (1e-3, -1e-3):
        away = np.abs(folded_digit(cell, whole + error) - whole % 4)
        assert away.max() == pytest.approx(2.5 * (np.pi / 2.0 * error) ** 2, rel=2e-3)
    errors = np.linspace(0.0, 0.3, 3001)
    around = whole[:, None] + np.stack([-errors, errors]).reshape(-1)
    digits = folded_digit(cell, around.reshape(-1)).reshape(around.shape)
    away = np.abs(digits - whole[:, None] % 4).reshape(16, 2, -1).max(axis=(0, 1))
    assert cell.margin == pytest.approx(errors[np.argmax(away >= 0.5)], abs=1e-3)
    assert np.all(np.diff(away) >= 0.0)


@pytest.mark.parametrize("slope", [1.5, 2.0, 4.0, 8.0])
def test_limiters_make_digits_flat(slope):
    # The upper bit, 1/2 - sin(pi (v + 1/2) / 2) / sqrt(2), is within 1/(2 g) of its middle where its limiter moves.
    cell, whole = build_cell(unit="fold", slope=slope), np.arange(16.0)
    flat = 2.0 / np.pi * np.arccos(1.0 / (np.sqrt(2.0) * slope)) - 0.5
    assert cell.margin <= flat
    for error in (0.999 * flat, -0.999 * flat):
        assert np.abs(folded_digit(cell, whole + error) - whole % 4).max() < 1e-9
    moved = [np.abs(folded_digit(cell, whole + sign * 1.02 * flat) - whole % 4).max() for sign in (-1.0, 1.0)]
    assert max(moved) > 1e-3


@pytest.mark.parametrize("unit", FOLDING)
@pytest.mark.parametrize(("divisor", "digits"), [(4, 1), (4, 2), (16, 1), (16, 2), (64, 1), (256, 1)])
def test_folding_cells_are_right_on_all_of_their_inputs(divisor, digits, unit):
    cell, space = build_cell(divisor, digits, unit=unit), CellSpace(divisor, digits)
    index = np.arange(space.size)
    assert np.abs(cell.forward(space.signals(index)) - space.answers(index)).max() < 1e-9


def test_sizes_do_not_grow_with_the_range():
    # v and three sin^2; v and two sin^2, v and two limiters; a saturating cell of 16 counts 15 steps.
    for divisor in (4, 16, 64):
        assert build_cell(divisor, unit="sin2").sizes == (2, 4, 2)
        assert build_cell(divisor, unit="fold").sizes == (2, 3, 3, 2)
    assert build_cell(16).sizes == (2, 16, 2)
    # Sums wait: layer 1 has three units, v and three sums; then one sum less, and a digit more, a position.
    assert build_exact(16, 8, unit="sin2").sizes == (4, 7, 6, 5, 5, 6, 4)
    assert build_exact(16, 8, unit="sin2").mzis("re_u") == 21 + 21 + 15 + 10 + 15 + 15


@pytest.mark.parametrize("rounding", ["half_up", "floor"])
@pytest.mark.parametrize("unit", FOLDING)
@pytest.mark.parametrize(
    ("servers", "bits", "inputs"),
    [(4, 8, 4), (2, 8, 4), (8, 6, 3), (16, 4, 2), (4, 7, 4), (2, 1, 1), (32, 4, 2), (64, 2, 1), (4, 8, 2), (16, 6, 1),
     (3, 6, 3), (5, 6, 3), (12, 4, 2)],
)  # fmt: skip
def test_folding_networks_on_their_whole_input_space(servers, bits, inputs, rounding, unit):
    space = InputSpace(servers, bits, inputs)
    network = build_exact(servers, bits, rounding, inputs=inputs, unit=unit)
    codes = space.codes(np.arange(space.size))
    signals, expected = network.prepare(codes), quantised_mean(codes, rounding)
    assert np.abs(network.forward(signals) - encode_pam4(expected, bits)).max() < 1e-9
    for layer in network.layers:
        assert np.all((layer.low - 1e-9 <= signals) & (signals <= layer.high + 1e-9))
        signals = layer.activate(signals @ layer.weight.T + layer.bias)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([2, 3, 4, 6, 8, 16, 64]), st.integers(1, 32), st.sampled_from(["half_up", "floor"]),
    st.sampled_from(FOLDING), st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_folding_networks_and_chains_round_random_codes(servers, bits, rounding, unit, seed):
    codes = np.random.default_rng(seed).integers(0, 2**bits, (60, servers))
    codes[0], codes[1], codes[2] = 0, 2**bits - 1, 2 ** (bits - 1)
    expected = quantised_mean(codes, rounding)
    assert np.array_equal(build_exact(servers, bits, rounding, unit=unit).run(codes), expected)
    if servers in (4, 16, 64):
        assert np.array_equal(CellChain(build_cell(servers, unit=unit), servers, bits, rounding).run(codes), expected)


@pytest.mark.parametrize("unit", FOLDING)
def test_trees_of_folding_networks_are_exact(unit):
    codes = np.random.default_rng(0).integers(0, 256, (3000, 16))
    tree = build_cascade((4, 4), 8, unit=unit)
    assert np.array_equal(tree.run(codes), quantised_mean(codes))


@pytest.mark.parametrize("unit", FOLDING)
@pytest.mark.parametrize("ports", [8, 3])
def test_folding_networks_are_exact_through_tiles(unit, ports):
    network = build_exact(16, 8, unit=unit)
    plan = tile(network, ports)
    inputs = network.prepare(np.random.default_rng(3).integers(0, 256, (2000, 16)))

    def forward(index, amplitudes):
        assert np.abs(amplitudes).max(initial=0.0) <= 1.0
        return amplitudes @ plan.tiles[index].matrix.T

    assert np.abs(plan.run(inputs, forward) - network.forward(inputs)).max() < 1e-9


@pytest.mark.parametrize("unit", FOLDING)
def test_no_symbol_changes_within_the_tolerance(unit):
    network = build_exact(4, 8, unit=unit)
    plan = tile(network, 8)
    space, rng = InputSpace(4, 8, 4), np.random.default_rng(0)
    codes = space.codes(np.arange(0, space.size, 7))
    inputs, expected = network.prepare(codes), quantised_mean(codes)
    outputs = sum(part.shape[0] for part in plan.tiles)
    starts = np.cumsum([0, *(part.shape[0] for part in plan.tiles)])
    for _ in range(20):
        shift = 0.999 * plan.tolerance * rng.choice([-1.0, 1.0], outputs)

        def forward(index, amplitudes, shift=shift):
            product = amplitudes @ plan.tiles[index].matrix.T
            return product + shift[starts[index] : starts[index + 1]]

        assert np.array_equal(network.decode(plan.run(inputs, forward)), expected)


@pytest.mark.parametrize("unit", FOLDING)
def test_bounds_behind_sin2_units_are_never_passed(unit):
    # Random errors of tile outputs move no output further than sensitivity allows, whatever the input.
    plan, rng = tile(build_exact(4, 8, unit=unit), 8), np.random.default_rng(1)
    inputs = plan.network.prepare(rng.integers(0, 256, (500, 4)))
    clean = plan.network.forward(inputs)
    for _ in range(20):
        shifts = [1e-4 * rng.standard_normal(part.shape[0]) for part in plan.tiles]
        moved = plan.run(inputs, lambda k, a, shifts=shifts: a @ plan.tiles[k].matrix.T + shifts[k])
        bound = np.abs(plan.sensitivity[-1]) @ np.abs(np.concatenate(shifts))
        assert np.all(np.abs(moved - clean) <= bound + 1e-12)


@pytest.mark.parametrize("divisor", [4, 16])
def test_errors_of_folded_carries_fade_and_are_proved_to(divisor):
    # A carry is a quarter of v less the digit: it passes on a quarter of an error, and a quarter of the digit's.
    plain, limited = (prove_composition(build_cell(divisor, unit=unit)) for unit in FOLDING)
    assert limited.proved
    assert plain.proved
    assert plain.margin > 0.49
    for edge, bound in zip(limited.edges, limited.carry_bounds, strict=True):
        if edge <= build_cell(divisor, unit="fold").margin:
            assert bound == pytest.approx(edge / 4.0, abs=1e-5)
    assert 0.275 - 1 / 64 < plain.largest <= 0.276  # where the digit is off by half a level
    assert limited.largest > 0.42


@pytest.mark.parametrize("unit", FOLDING)
def test_bounds_of_folding_cells_hold_and_are_close_to_what_sampling_finds(unit):
    rng, cell = np.random.default_rng(2), build_cell(unit=unit, slope=3.0)
    layers = []
    for layer in cell.layers:
        fields = {name: getattr(layer, name) for name in ("activation", "low", "high", "step", "slack")}
        weight = layer.weight * rng.normal(1.0, 2e-3, layer.weight.shape)
        layers.append(Layer(weight=weight, bias=layer.bias + rng.normal(0.0, 5e-3, len(layer.bias)), **fields))
    cell = Cell(4, 1, tuple(layers))
    assert_bounds_hold(cell, prove_composition(cell, pieces=8))


@pytest.mark.parametrize("periods", [0.3, 0.7, 1.0, 1.6, 40.0])
def test_enclosures_hold_where_sin2_turns_round(periods):
    # A sin^2 that passes so many periods while the carry is off by up to 1, and one behind it: extremes are in pieces.
    rng, space, index = np.random.default_rng(3), CellSpace(4, 1), np.arange(52)

    def layer(first, bias, kind="sin2"):
        return Layer(
            weight=np.array([first, [0.0, 1.0]]), bias=np.array([bias, 0.0]), activation=(kind, "linear"),
            low=np.zeros(2), high=np.full(2, 3.0), step=np.zeros(2), slack=np.full(2, np.inf),
        )  # fmt: skip

    for _ in range(5):
        layers = (
            layer([rng.uniform(-3.0, 3.0), periods], rng.uniform()),
            layer([rng.uniform(-1.2, 1.2), 0.1], rng.uniform()),
            layer([3.0, 0.0], 0.0, "linear"),
        )
        cell = Cell(4, 1, layers)
        found = prove_composition(cell, pieces=2)
        for edge, bound in zip(found.edges[1:], found.carry_bounds[1:], strict=True):
            worst = 0.0
            for away in np.linspace(-edge, edge, 1001):
                signals = space.signals(index)
                signals[:, -1] += away
                worst = max(worst, np.abs(cell.forward(signals) - space.answers(index))[:, 0].max())
            assert worst <= bound <= worst + 0.01


@pytest.mark.parametrize(("unit", "sizes"), [("sin2", (2, 8, 2)), ("fold", (2, 6, 6, 2))])
def test_folding_cells_in_blocks_through_meshes(unit, sizes):
    cell = widen_to_sigma_u(build_cell(16, unit=unit), sizes)
    for layer in cell.layers:
        assert realise(layer.weight, "sigma_u").residual < 1e-9
    chain = CellChain(cell, 8, 8)
    space = InputSpace(8, 8, 4)
    codes = space.codes(np.arange(0, space.size, 29))
    outputs = chain.forward(chain.prepare(codes), mesh_products(chain))
    assert np.abs(outputs - encode_pam4(quantised_mean(codes), 8)).max() < 1e-9


def test_chips_of_folding_chains():
    chain = CellChain(build_cell(unit="fold", slope=8.0), 4, 8)
    found = enumerate_inputs(chain, mesh_products(chain, "re_u"))
    assert (found.inputs, found.wrong) == (28_561, 0)
    assert found.margin > 0.5 - 1e-9
    perfect = simulate_chips(chain, ChipErrors(), "re_u", chips=2, inputs=300)
    # One optical row of v; two rows of sin^2 and v, each by itself; two outputs of three signals.
    assert (perfect.rate, perfect.mzis, perfect.columns) == (0.0, 4 * (1 + 3 + 3), 4 * (2 + 3 + 3))
    errors = ChipErrors(phase_rad=0.03)
    steps, folded = (
        simulate_chips(CellChain(build_cell(unit=unit, slope=8.0), 4, 8), errors, "re_u", chips=20, inputs=300).rate
        for unit in ("clip01", "fold")
    )
    assert steps > 0.01
    assert folded < 1e-3


@pytest.mark.parametrize("unit", FOLDING)
def test_folding_networks_come_back_from_files(unit, tmp_path):
    for network in (build_exact(8, 8, unit=unit), CellChain(build_cell(16, unit=unit), 16, 8)):
        save_network(network, tmp_path / "one.safetensors", {"unit": unit})
        again, about = load_network(tmp_path / "one.safetensors")
        assert about == {"unit": unit}
        inputs = network.prepare(np.random.default_rng(0).integers(0, 256, (50, network.servers)))
        assert np.array_equal(again.forward(inputs), network.forward(inputs))


def test_unknown_units_are_refused_with_those_that_there_are():
    with pytest.raises(NetworkError, match="clip01, relu, sin2, fold, got 'cos'"):
        build_exact(4, 8, unit="cos")
