"""Tiles: exactness of the cut network, conditioning, and tolerance to errors."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optinc_hw.errors import NetworkError
from optinc_hw.onn import (
    InputSpace,
    Layer,
    OpticalNetwork,
    build_exact,
    plot_tiles,
    quantised_mean,
    symbol_error_rate,
    tile,
)

_SPACE = InputSpace(4, 8, 4)
_CODES = _SPACE.codes(np.arange(_SPACE.size))


def _exact(plan):
    def forward(index, amplitudes):
        assert np.abs(amplitudes).max(initial=0.0) <= 1.0
        return amplitudes @ plan.tiles[index].matrix.T

    return forward


def _noisy(plan, rng, sigma):
    exact = _exact(plan)
    return lambda index, amplitudes: (
        exact(index, amplitudes) + rng.normal(0.0, sigma, (len(amplitudes), plan.tiles[index].shape[0]))
    )


@pytest.mark.parametrize("rounding", ["half_up", "floor"])
@pytest.mark.parametrize("ports", [8, 6, 4, 3, 2])
def test_cut_network_is_exact_on_all_28561_inputs(rounding, ports):
    network = build_exact(4, 8, rounding)
    plan = tile(network, ports)
    inputs = network.prepare(_CODES)
    outputs = plan.run(inputs, _exact(plan))
    assert np.abs(outputs - network.forward(inputs)).max() < 1e-9
    assert np.array_equal(network.decode(outputs), quantised_mean(_CODES, rounding))


@pytest.mark.parametrize(("servers", "bits", "ports"), [(2, 8, 4), (8, 8, 8), (16, 8, 5), (4, 16, 8), (4, 7, 8)])
def test_other_networks_are_exact_through_tiles(servers, bits, ports):
    network = build_exact(servers, bits)
    plan = tile(network, ports)
    codes = np.random.default_rng(3).integers(0, 2**bits, (2000, servers))
    outputs = plan.run(network.prepare(codes), _exact(plan))
    assert np.abs(outputs - network.forward(network.prepare(codes))).max() < 1e-9


@pytest.mark.parametrize("ports", [8, 6, 4, 3, 2])
def test_tiles_fit_the_chip_and_are_passive(ports):
    plan = tile(build_exact(4, 8), ports)
    for part in plan.tiles:
        assert max(part.shape) <= ports
        assert part.matrix.shape == (part.rows.stop - part.rows.start, part.cols.stop - part.cols.start)
        assert np.linalg.norm(part.matrix, 2) <= 1.0
        assert np.linalg.norm(part.matrix, 2) > 0.999  # no dynamic range given away


def test_layers_that_fit_use_one_tile_and_proportional_rows_one_optical_row():
    plan = tile(build_exact(4, 8), 8)
    assert [part.shape for part in plan.tiles] == [(4, 4), (3, 6), (3, 6), (3, 6), (4, 6)]
    assert [part.layer for part in plan.tiles] == [0, 1, 2, 3, 4]
    assert plan.layers[1].unit_row[:4].tolist() == [0, 0, 0, 0]  # three steps and the by-pass look at one v
    assert plan.layers[1].unit_gain[:4].tolist() == [1.0, 1.0, 1.0, 0.25]
    assert len(tile(build_exact(4, 8), 4).tiles) == 9


def test_centring_by_hand():
    network = build_exact(4, 8)
    plan = tile(network, 8)
    # Averages 0, 1/4, ... 3: the level 3/2 lies in the middle, so the centre moves by half a step, 1/8.
    assert plan.layers[0].centre.tolist() == [1.625] * 4
    assert plan.layers[0].half.tolist() == [1.625] * 4  # inputs are exact: no headroom
    # Carries 0 or 1, and sums 0..12 with half a level to spare and half a step of shift.
    assert plan.layers[1].half.tolist() == [0.5] * 3 + [7.0] * 3
    amplitudes = plan.layers[0].amplitudes(np.array([[0.0, 1.625, 3.0, 99.0]]))
    assert amplitudes.tolist() == [[-1.0, 0.0, pytest.approx(1.375 / 1.625), 1.0]]
    assert np.allclose(plan.tiles[0].matrix @ plan.tiles[0].matrix.T, np.eye(4))
    assert np.allclose(plan.tiles[0].row_scale, [4 * 6.5, 6.5, 6.5, 6.5])  # sums = 4 * 1.625 * a; steps times slope 4


def test_noise_gain_by_hand_for_the_first_two_layers():
    plan = tile(build_exact(4, 8, slope=4.0), 8)
    first, second = plan.noise_gain[:2]
    assert first == pytest.approx([26.0] * 3 + [6.5] * 3)
    part = plan.tiles[1]
    assert second[3] == pytest.approx(np.hypot(6.5, part.row_scale[0] / 4.0))  # v = s + carry: noise of s and its own
    assert second[0] == pytest.approx(4.0 * second[3])


def test_noise_gain_predicts_the_spread_of_the_outputs():
    network = build_exact(4, 8)
    plan = tile(network, 8)
    rng = np.random.default_rng(0)
    inputs = network.prepare(_CODES)
    errors = plan.run(inputs, _noisy(plan, rng, 1e-3)) - network.forward(inputs)
    assert errors.std(axis=0) / 1e-3 == pytest.approx(plan.noise_gain[-1], rel=0.03)


@pytest.mark.parametrize("slope", [2.0, 4.0])
@pytest.mark.parametrize("ports", [8, 4])
def test_no_symbol_changes_within_the_tolerance_and_some_do_beyond(ports, slope):
    network = build_exact(4, 8, slope=slope)
    plan = tile(network, ports)
    inputs, expected = network.prepare(_CODES), quantised_mean(_CODES)
    starts = np.cumsum([0, *(part.shape[0] for part in plan.tiles)])
    exact = _exact(plan)
    worst = 0
    for layer, sensitivity in zip(network.layers, plan.sensitivity, strict=True):
        for row in np.flatnonzero(np.isfinite(layer.slack)):
            signs = np.where(sensitivity[row] >= 0.0, 1.0, -1.0)
            for size in (0.999, -0.999, 1.6, -1.6):
                shift = size * plan.tolerance * signs

                def forward(index, amplitudes, shift=shift):
                    return exact(index, amplitudes) + shift[starts[index] : starts[index + 1]]

                wrong = int(np.sum(network.decode(plan.run(inputs[::5], forward)) != expected[::5]))
                assert wrong == 0 or abs(size) > 1.0
                worst = max(worst, wrong)
    assert worst > 0


def test_documented_tolerances():
    assert tile(build_exact(4, 8, slope=4.0), 8).tolerance == pytest.approx(0.0131, abs=1e-4)
    assert tile(build_exact(4, 8, slope=2.0), 8).tolerance == pytest.approx(0.0090, abs=1e-4)
    assert tile(build_exact(4, 8, slope=4.0), 4).tolerance == pytest.approx(0.0120, abs=1e-4)
    assert tile(build_exact(4, 8), 8).noise_gain[-1].max() == pytest.approx(17.3, abs=0.1)


@pytest.mark.parametrize(("sigma", "low", "high"), [(0.003, 0.0, 0.0), (0.01, 6e-4, 1.8e-3), (0.02, 5e-2, 9e-2)])
def test_documented_symbol_error_rates(sigma, low, high):
    network = build_exact(4, 8)
    plan = tile(network, 8)
    rng = np.random.default_rng(5)
    codes = rng.integers(0, 256, (40_000, 4))
    received = network.decode(plan.run(network.prepare(codes), _noisy(plan, rng, sigma)))
    assert low <= symbol_error_rate(received, quantised_mean(codes), 8) <= high


def test_an_unprogrammed_chip_is_close_to_random():
    network = build_exact(4, 8)
    plan = tile(network, 8)
    rng = np.random.default_rng(6)
    wrong = [np.linalg.qr(rng.normal(size=(8, 8)))[0] for _ in plan.tiles]
    codes = rng.integers(0, 256, (4000, 4))
    outputs = plan.run(
        network.prepare(codes),
        lambda index, a: a @ wrong[index][: plan.tiles[index].shape[0], : a.shape[1]].T,
    )
    assert symbol_error_rate(network.decode(outputs), quantised_mean(codes), 8) > 0.4


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(2, 5), st.integers(0, 2**32 - 1))
def test_any_matrix_is_cut_exactly(rows, cols, ports, seed):
    rng = np.random.default_rng(seed)
    weight = rng.normal(size=(rows, cols)) * (rng.random((rows, cols)) < 0.6)
    weight[rng.random(rows) < 0.2] = 0.0
    if rows > 2:
        weight[1] = -3.0 * weight[0]
    low = rng.normal(size=cols)
    high = low + rng.random(cols) * (rng.random(cols) < 0.8)  # some inputs are constant
    step = (high - low) / rng.integers(1, 9, cols) * (rng.random(cols) < 0.5)  # some are a continuum
    endless, any_value = np.full(rows, np.inf), np.full(rows, 1e3)
    layer = Layer(weight, rng.normal(size=rows), ("linear",) * rows, low, high, step, endless)
    last = Layer(np.ones((1, rows)), np.zeros(1), ("linear",), -any_value, any_value, np.zeros(rows), np.full(1, 0.5))
    first = Layer(
        np.ones((cols, 1)), np.zeros(cols), ("linear",) * cols, np.zeros(1), np.ones(1), np.zeros(1),
        np.full(cols, np.inf),
    )  # fmt: skip
    plan = tile(OpticalNetwork(2, 2, "floor", (first, layer, last), 0.5), ports, headroom=0.0)
    signals = low + rng.random((20, cols)) * (high - low)
    assert np.abs(plan.run_layer(1, signals, _exact(plan)) - signals @ weight.T).max() < 1e-9
    assert all(part.matrix.any() for part in plan.tiles)  # blocks of zeros cost no tile


@pytest.mark.parametrize(
    ("servers", "bits", "rounding"), [(4, 8, "half_up"), (4, 8, "floor"), (8, 6, "half_up"), (2, 4, "floor")]
)
def test_no_level_asks_for_a_dark_modulator(servers, bits, rounding):
    # A modulator of 26 dB extinction cannot send less than 5 % of full scale.
    network = build_exact(servers, bits, rounding)
    plan = tile(network, 8)
    codes = np.random.default_rng(7).integers(0, 2**bits, (300, servers))
    smallest = []

    def forward(index, amplitudes):
        smallest.append(np.abs(amplitudes).min())
        return _exact(plan)(index, amplitudes)

    plan.run(network.prepare(codes), forward)
    assert min(smallest) > 0.25 / (12 + servers)


@pytest.mark.parametrize(("ports", "headroom"), [(1, 0.5), (0, 0.5), (True, 0.5), (4.0, 0.5), (4, -0.1), (4, np.nan)])
def test_bad_parameters_are_refused(ports, headroom):
    with pytest.raises(NetworkError):
        tile(build_exact(4, 8), ports, headroom=headroom)


def test_a_forward_of_the_wrong_shape_is_refused():
    plan = tile(build_exact(4, 8), 8)
    with pytest.raises(NetworkError, match="tile 0 of layer 0 returned shape"):
        plan.run(np.zeros((3, 4)), lambda index, amplitudes: amplitudes[:, :2])


def test_the_plan_can_be_printed():
    lines = str(tile(build_exact(4, 8), 8)).splitlines()
    assert lines[0] == "5 tiles for a chip of 8 ports, layers 4-6-6-6-6-4; 29% of the chip's matrix used"
    assert lines[2].split() == ["0", "0", "0-3", "0-3", "25%"]
    assert lines[3].split() == ["1", "1", "0-2", "0-5", "28%"]
    assert tile(build_exact(4, 8), 8).fill == pytest.approx((16 + 3 * 18 + 24) / 5 / 64)


@pytest.mark.parametrize("ports", [4, 8])
def test_the_plan_can_be_drawn(ports, tmp_path):
    plan = tile(build_exact(4, 8), ports)
    figure = plot_tiles(plan)
    assert len(figure.axes) == 5
    for axes, layer in zip(figure.axes, plan.layers, strict=True):
        assert [text.get_text() for text in axes.texts] == [str(index) for index in layer.tiles]
        frames = sum(patch.get_width() * patch.get_height() for patch in axes.patches)
        assert frames == sum(plan.tiles[index].matrix.size for index in layer.tiles)
    figure.savefig(tmp_path / "plan.png")
