"""The carry-chain network against integer arithmetic."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optinc_hw.errors import NetworkError
from optinc_hw.onn import InputSpace, Layer, OpticalNetwork, build_exact, encode_pam4, quantised_mean


@pytest.mark.parametrize("rounding", ["half_up", "floor"])
@pytest.mark.parametrize("slope", [1.5, 2.0, 4.0])
def test_all_28561_inputs_of_four_servers_and_8_bits(rounding, slope):
    space = InputSpace(4, 8, 4)
    codes = space.codes(np.arange(space.size))
    network = build_exact(4, 8, rounding, slope=slope)
    outputs = network.forward(network.prepare(codes))
    expected = quantised_mean(codes, rounding)
    assert np.array_equal(network.run(codes), expected)
    digits = (expected[:, None] >> np.array([6, 4, 2, 0])) & 3
    assert np.abs(outputs - digits).max() < 1e-9


def test_shape_of_the_network_for_four_servers():
    network = build_exact(4, 8)
    assert network.sizes == (4, 6, 6, 6, 6, 4)
    assert [int(layer.saturating.sum()) for layer in network.layers] == [3, 3, 3, 3, 0]


def test_one_input_by_hand():
    network = build_exact(4, 8, "floor", slope=2.0)
    codes = [[3, 3, 3, 2]]  # lowest sum 11: two steps passed, mean 2.75
    first = network.layers[0]
    signals = first.activate(network.prepare(codes) @ first.weight.T + first.bias)
    assert signals.tolist() == [[1.0, 1.0, 0.0, 0.0, 0.0, 0.0]]
    assert network.run(codes).tolist() == [2]


@pytest.mark.parametrize("rounding", ["half_up", "floor"])
@pytest.mark.parametrize("unit", ["clip01", "relu"])
@pytest.mark.parametrize(
    ("servers", "bits", "inputs"),
    [
        (2, 8, 4), (8, 6, 3), (16, 4, 2), (4, 7, 4), (2, 1, 1), (8, 3, 2), (32, 4, 2), (64, 2, 1),
        (3, 6, 3), (5, 6, 3), (6, 5, 3), (7, 6, 3), (9, 4, 2), (12, 4, 2), (3, 8, 2), (5, 7, 2), (10, 6, 1),
        (4, 8, 2), (8, 6, 2), (16, 6, 1), (2, 7, 1), (16, 5, 2),
    ],
)  # fmt: skip
def test_other_sizes_on_their_whole_input_space(servers, bits, inputs, rounding, unit):
    space = InputSpace(servers, bits, inputs)
    network = build_exact(servers, bits, rounding, inputs=inputs, unit=unit)
    codes = space.codes(np.arange(space.size))
    signals, expected = network.prepare(codes), quantised_mean(codes, rounding)
    outputs = network.forward(signals)
    assert np.abs(outputs - encode_pam4(expected, bits)).max() < 1e-9
    for layer in network.layers:
        assert np.all((layer.low - 1e-9 <= signals) & (signals <= layer.high + 1e-9))
        signals = layer.activate(signals @ layer.weight.T + layer.bias)


def test_shapes_by_counting():
    # Three sums by 5: 3 steps, v and 2 sums; 4 steps of the remainder, 1 quotient, 2 sums; 6 steps, v, 1, 1; 4, 2, 1;
    # 6 steps and 2 quotients; a step, a sum, 2 quotients; a step, a sum, a digit and 1 quotient; three digits.
    assert build_exact(5, 6).sizes == (3, 6, 7, 9, 7, 8, 4, 4, 3)
    assert build_exact(4, 8, unit="relu").sizes == (4, 9, 9, 9, 9, 4)
    assert build_exact(4, 16, inputs=4).inputs == 4


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([2, 3, 4, 5, 6, 7, 8, 10, 16, 25, 64]),
    st.integers(1, 32),
    st.sampled_from(["half_up", "floor"]),
    st.integers(0, 2**32 - 1),
)
def test_random_and_extreme_codes_of_any_size(servers, bits, rounding, seed):
    codes = np.random.default_rng(seed).integers(0, 2**bits, (200, servers))
    codes[0], codes[1], codes[2] = 0, 2**bits - 1, 2 ** (bits - 1)
    codes[3:50] = (codes[3:50] & 1) + 2 ** (bits - 1) - 1  # around the zero of offset binary carries ripple furthest
    assert np.array_equal(build_exact(servers, bits, rounding).run(codes), quantised_mean(codes, rounding))


@pytest.mark.parametrize(("slope", "margin"), [(2.0, 0.25), (4.0, 0.375)])
def test_margin_is_what_the_steps_absorb(slope, margin):
    network = build_exact(4, 8, slope=slope)
    assert network.margin == margin
    space = InputSpace(4, 8, 4)
    inputs = space.averages(np.arange(0, space.size, 7))
    clean = network.forward(inputs)
    for layer in range(4):
        for sign in (-1.0, 1.0):
            shift = np.where(network.layers[layer].saturating, sign * slope * margin * 0.999, 0.0)

            def multiply(index, signals, layer=layer, shift=shift):
                return signals @ network.layers[index].weight.T + (shift if index == layer else 0.0)

            assert np.abs(network.forward(inputs, multiply) - clean).max() < 1e-9


def test_products_can_be_replaced_and_a_wrong_shape_is_refused():
    network = build_exact(4, 8)
    seen = []

    def multiply(index, signals):
        seen.append((index, signals.shape))
        return signals @ network.layers[index].weight.T

    network.forward([[0.0, 0.0, 0.0, 0.0]], multiply)
    assert seen == [(0, (1, 4)), (1, (1, 6)), (2, (1, 6)), (3, (1, 6)), (4, (1, 6))]
    with pytest.raises(NetworkError, match="product of layer 0"):
        network.forward([[0.0, 0.0, 0.0, 0.0]], lambda index, signals: signals[:, :1])


@pytest.mark.parametrize("servers", [0, 1, -4, True, 4.0])
def test_server_counts_without_a_mean_are_refused(servers):
    with pytest.raises(NetworkError, match="at least 2 servers"):
        build_exact(servers, 8)


@pytest.mark.parametrize("options", [{"unit": "tanh"}, {"inputs": 3}, {"inputs": 0}, {"inputs": 5}])
def test_unknown_units_and_inputs_that_do_not_fit_are_refused(options):
    with pytest.raises(NetworkError):
        build_exact(4, 8, **options)


@pytest.mark.parametrize(
    ("bits", "rounding", "slope"), [(0, "floor", 4.0), (8, "nearest", 4.0), (8, "floor", 1.0), (8, "floor", np.nan)]
)
def test_bad_parameters_are_refused(bits, rounding, slope):
    with pytest.raises(NetworkError):
        build_exact(4, bits, rounding, slope=slope)


@pytest.mark.parametrize("codes", [[[1, 2, 3]], [1, 2, 3, 4], [[1, 2, 3, 256]], [[1.0, 2.0, 3.0, 4.0]]])
def test_codes_that_do_not_fit_the_network_are_refused(codes):
    with pytest.raises(NetworkError):
        build_exact(4, 8).run(codes)


def test_decision_takes_the_nearest_level_and_refuses_nan():
    network = build_exact(4, 8)
    assert network.decode([[0.49, 1.51, 2.5, 7.0], [-3.0, 0.0, 0.0, 1.0]]).tolist() == [0 * 64 + 2 * 16 + 3 * 4 + 3, 1]
    assert build_exact(2, 3).decode([[3.0, 3.0]]).tolist() == [7]
    with pytest.raises(NetworkError, match="output 0 is not finite"):
        network.decode([[0.0, np.nan, 0.0, 0.0]])
    with pytest.raises(NetworkError, match="expected"):
        network.decode([[0.0, 0.0]])


def test_empty_batches_pass():
    assert build_exact(4, 8).run(np.zeros((0, 4), dtype=int)).shape == (0,)


def _layer(rows=2, cols=3, **changes):
    fields = {
        "weight": np.ones((rows, cols)),
        "bias": np.zeros(rows),
        "activation": ("linear",) * rows,
        "low": np.zeros(cols),
        "high": np.ones(cols),
        "step": np.zeros(cols),
        "slack": np.full(rows, 0.5),
    }
    return Layer(**(fields | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"weight": np.ones(3)},
        {"weight": np.full((2, 3), np.inf)},
        {"bias": np.zeros(3)},
        {"activation": ("linear", "tanh")},
        {"low": np.full(3, 2.0)},
        {"slack": np.full(2, np.nan)},
    ],
)
def test_malformed_layers_are_refused(changes):
    with pytest.raises(NetworkError):
        _layer(**changes)


def test_layers_that_do_not_fit_together_are_refused():
    with pytest.raises(NetworkError, match="layer 0 gives 2 signals, layer 1 takes 3"):
        OpticalNetwork(4, 6, "floor", (_layer(2, 3), _layer(3, 3)), 0.5)
    with pytest.raises(NetworkError, match="8 bits need 4"):
        OpticalNetwork(4, 8, "floor", (_layer(3, 4),), 0.5)


def test_arrays_of_a_layer_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        build_exact(4, 8).layers[0].weight[0, 0] = 1.0
