"""Networks in the paper's approximated blocks, checked on inputs and by the realisation that photonics makes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optinc_hw.errors import NetworkError
from optinc_hw.onn import (
    SCENARIOS,
    Layer,
    OpticalNetwork,
    build_exact,
    enumerate_inputs,
    quantised_mean,
    widen_to_sigma_u,
)
from optinc_hw.photonics import realise


def residuals(network):
    return [realise(layer.weight, "sigma_u").residual for layer in network.layers]


def blocks(weight):
    """Square blocks along the longer side, cut here once more."""
    rows, columns = weight.shape
    side = min(rows, columns)
    tall = weight if rows >= columns else weight.T
    cut = [tall[start : start + side] for start in range(0, max(rows, columns), side)]
    return cut if rows >= columns else [block.T for block in cut]


@pytest.mark.parametrize("number", [1, 2, 4])
def test_the_published_sizes_hold_the_mean_with_every_layer_approximated(number):
    scenario = SCENARIOS[number - 1]
    network = build_exact(scenario.servers, scenario.bits, inputs=scenario.inputs, unit="relu")
    wide = widen_to_sigma_u(network, scenario.sizes)
    assert wide.sizes == scenario.sizes
    assert max(residuals(wide)) < 1e-12
    for layer in wide.layers:
        for block in blocks(layer.weight):
            gram = block @ block.T
            assert np.allclose(gram, np.diag(np.diag(gram)), atol=1e-9 * np.abs(gram).max())
    codes = np.random.default_rng(number).integers(0, 2**scenario.bits, (3000, scenario.servers))
    assert np.array_equal(wide.run(codes), quantised_mean(codes))


def test_all_inputs_of_the_first_scenario():
    scenario = SCENARIOS[0]
    wide = widen_to_sigma_u(build_exact(4, 8, unit="relu"), scenario.sizes)
    assert wide.mzis("sigma_u") == 41_664
    found = enumerate_inputs(wide)
    assert (found.inputs, found.wrong, found.wrong_symbols, dict(found.errors)) == (28_561, 0, 0, {})
    assert found.margin > 0.499


def test_the_smallest_uniform_width():
    wide = widen_to_sigma_u(build_exact(4, 8), (4, 12, 12, 12, 12, 4))
    assert max(residuals(wide)) < 1e-12
    assert wide.mzis("sigma_u") == 3 * 10 + 3 * 78 + 3 * 10
    assert enumerate_inputs(wide).wrong == 0
    with pytest.raises(NetworkError, match="too narrow"):
        widen_to_sigma_u(build_exact(4, 8), (4, 6, 6, 6, 6, 4))


@settings(max_examples=30, deadline=None)
@given(
    st.integers(2, 20), st.integers(1, 5), st.sampled_from(["half_up", "floor"]), st.sampled_from(["clip01", "relu"]),
    st.integers(0, 2**32 - 1),
)  # fmt: skip
def test_any_network_fits_if_wide_enough(servers, bits, rounding, unit, seed):
    rng = np.random.default_rng(seed)
    network = build_exact(servers, bits, rounding, unit=unit)
    widest = 3 * max(network.sizes) + 8
    inner = rng.integers(widest, 2 * widest, len(network.sizes) - 1 + rng.integers(0, 2)).tolist()
    wide = widen_to_sigma_u(network, (network.sizes[0], *inner, network.sizes[-1]))
    assert max(residuals(wide)) < 1e-10
    codes = rng.integers(0, 2**bits, (200, servers))
    assert np.array_equal(wide.run(codes), quantised_mean(codes, rounding))


def test_noise_on_dark_units_changes_nothing():
    network = build_exact(4, 8)
    wide = widen_to_sigma_u(network, (4, 20, 24, 24, 20, 4))
    codes = np.random.default_rng(0).integers(0, 256, (200, 4))
    rng = np.random.default_rng(1)

    def multiply(index, signals):
        layer = wide.layers[index]
        dark = ~layer.weight.any(axis=1)
        return signals @ layer.weight.T + np.where(dark, rng.uniform(-0.9, 0.9, dark.shape), 0.0)

    assert np.allclose(wide.forward(wide.prepare(codes), multiply), network.forward(network.prepare(codes)))


@pytest.mark.parametrize("sizes", [(4, 12, 4), (3, 12, 12, 12, 12, 4), (4, 12, 12, 12, 12, 5), (4, 12, 0, 12, 12, 4)])
def test_sizes_that_do_not_fit_are_refused(sizes):
    with pytest.raises(NetworkError, match="sizes"):
        widen_to_sigma_u(build_exact(4, 8), sizes)


def test_errors_are_counted_as_in_table_two():
    network = build_exact(2, 2)  # one symbol: sums 0..6, means 0, 1, 1, 2, 2, 3, 3
    last = network.layers[-1]
    shifted = {name: getattr(last, name) for name in ("weight", "activation", "low", "high", "step", "slack")}
    off = OpticalNetwork(2, 2, "half_up", (*network.layers[:-1], Layer(bias=last.bias - 0.75, **shifted)), 0.0)
    found = enumerate_inputs(off)
    assert found.inputs == 7
    assert found.wrong == found.wrong_symbols == 6  # a mean of 0 stays 0
    assert found.errors == {-1: 6}
    assert found.worst == pytest.approx(0.75)
    assert found.accuracy == pytest.approx(1 / 7)
    assert "-1 (100.0%)" in str(found)


def test_progress_of_an_enumeration_ends_at_all_inputs():
    seen = []
    enumerate_inputs(build_exact(4, 8), progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (28_561, 28_561)
