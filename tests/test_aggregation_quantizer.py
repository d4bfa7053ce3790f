"""Block quantiser: hand calculations, error bounds over each type's whole range, bad input."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from optinc_hw.aggregation import BlockQuantizer
from optinc_hw.errors import GradientError


def _vectors(dtype):
    width = np.dtype(dtype).itemsize * 8
    numbers = st.floats(width=width, allow_nan=False, allow_infinity=False, allow_subnormal=True)
    return arrays(dtype, st.integers(0, 40), elements=numbers)


def test_codes_by_hand():
    quantizer = BlockQuantizer(bits=8, block_size=4)
    values = np.array([127.0, -127.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, -2.0], dtype=np.float32)
    maxima = quantizer.block_maxima(values)
    assert maxima.tolist() == [127.0, 0.0, 2.0]
    assert maxima.dtype == np.float32
    codes = quantizer.quantise(values, maxima)
    assert codes.dtype == np.uint8
    assert codes.tolist() == [255, 1, 128, 129, 128, 128, 128, 128, 1]
    assert quantizer.dequantise(codes, maxima).tolist() == values.tolist()
    assert quantizer.step(maxima) == pytest.approx([1.0, 0.0, 2.0 / 127.0])


def test_halves_go_to_the_even_step():
    quantizer = BlockQuantizer(bits=4, block_size=8)
    codes = quantizer.quantise(np.array([7.0, 0.5, 1.5, -0.5, -2.5]), np.array([7.0]))
    assert codes.tolist() == [15, 8, 10, 8, 6]


def test_blocks_of_zeros_decode_to_zero_whatever_the_chip_answers():
    quantizer = BlockQuantizer(block_size=2)
    assert quantizer.dequantise(np.array([0, 255, 3], dtype=np.int64), np.zeros(2, np.float32)).tolist() == [0.0] * 3


def test_no_answer_exceeds_the_maximum_even_the_largest_number():
    for dtype in (np.float32, np.float64):
        largest = np.finfo(dtype).max
        quantizer = BlockQuantizer(block_size=256)
        decoded = quantizer.dequantise(np.arange(256), np.array([largest]))
        assert np.isfinite(decoded).all()
        assert np.abs(decoded).max() <= largest


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@settings(deadline=None)
@given(st.data(), st.integers(2, 16), st.integers(1, 9))
def test_error_is_at_most_half_a_step_over_the_whole_range(dtype, data, bits, block):
    values = data.draw(_vectors(dtype))
    quantizer = BlockQuantizer(bits, block)
    maxima = quantizer.block_maxima(values)
    decoded = quantizer.dequantise(quantizer.quantise(values, maxima), maxima)
    for start in range(0, len(values), block):
        exact = values[start : start + block].astype(np.longdouble)
        largest = np.abs(exact).max()
        rounding = largest * np.longdouble(np.finfo(decoded.dtype).eps) * 2 + np.finfo(decoded.dtype).smallest_subnormal
        bound = largest / (2 * quantizer.top) * (1 + 1e-3) + rounding
        assert np.abs(decoded[start : start + block] - exact).max() <= bound


@settings(deadline=None)
@given(st.data())
def test_a_block_depends_on_nothing_outside_it(data):
    """A block near the end of the exponent range must not change its neighbours' bits."""
    quantizer = BlockQuantizer(8, 4)
    ordinary = st.floats(-1e3, 1e3, width=32)
    values = data.draw(arrays(np.float32, 4, elements=ordinary))
    extreme = data.draw(st.sampled_from([1e-45, 1e-38, 3e38]))
    both = np.concatenate([values, np.full(4, extreme, np.float32)])
    alone, together = quantizer.block_maxima(values), quantizer.block_maxima(both)
    codes = quantizer.quantise(both, together)
    assert np.array_equal(codes[:4], quantizer.quantise(values, alone))
    assert np.array_equal(quantizer.dequantise(codes, together)[:4], quantizer.dequantise(codes[:4], alone))


@settings(deadline=None)
@given(_vectors(np.float32), st.integers(1, 9))
def test_codes_stay_within_the_offset_binary_range(values, block):
    quantizer = BlockQuantizer(8, block)
    codes = quantizer.quantise(values, quantizer.block_maxima(values))
    assert codes.min(initial=1) >= 1


def test_workers_in_rows_equal_workers_one_by_one():
    quantizer = BlockQuantizer(8, 7)
    values = np.random.default_rng(0).normal(size=(3, 200_001)).astype(np.float32)
    maxima = quantizer.block_maxima(values)
    assert maxima.shape == (3, 28_572)
    shared = maxima.max(axis=0)
    codes = quantizer.quantise(values, shared)
    for row in range(3):
        assert np.array_equal(maxima[row], quantizer.block_maxima(values[row]))
        assert np.array_equal(codes[row], quantizer.quantise(values[row], shared))


def test_values_beyond_a_wrong_maximum_saturate():
    codes = BlockQuantizer().quantise(np.array([5.0, -5.0, 0.5]), np.array([1.0]))
    assert codes.tolist() == [255, 1, 192]


def test_sixteen_bits_and_half_precision():
    quantizer = BlockQuantizer(16, 4)
    values = np.array([1.0, -1.0, 0.25, 0.0], dtype=np.float16)
    codes = quantizer.quantise(values, quantizer.block_maxima(values))
    assert codes.dtype == np.uint16
    assert codes.tolist() == [65_535, 1, 32_768 + 8192, 32_768]


def test_maxima_show_nan_and_inf():
    maxima = BlockQuantizer(8, 2).block_maxima(np.array([1.0, np.nan, np.inf, 0.0, 3.0]))
    assert np.isfinite(maxima).tolist() == [False, False, True]


@pytest.mark.parametrize(
    ("values", "maxima", "message"),
    [
        (np.zeros(3), np.zeros(2), r"shape \(2,\) given for 1 blocks"),
        (np.zeros(3), np.array([np.nan]), "finite"),
        (np.zeros(3), np.array([-1.0]), "not negative"),
        (np.zeros(3), np.zeros(1, np.float32), "do not fit values of float64"),
        (np.zeros(3, dtype=int), np.zeros(1), "dtype int64"),
        (np.float64(1.0), np.zeros(1), r"shape \(\)"),
        (np.array([1.0, np.nan]), np.ones(1), "NaN"),
    ],
)
def test_quantise_refuses_bad_input(values, maxima, message):
    with pytest.raises(GradientError, match=message):
        BlockQuantizer().quantise(values, maxima)


@pytest.mark.parametrize("codes", [np.zeros(3), np.int64(3)])
def test_dequantise_refuses_what_are_no_codes(codes):
    with pytest.raises(GradientError, match="array of integers"):
        BlockQuantizer().dequantise(codes, np.zeros(1))


@pytest.mark.parametrize(
    "arguments", [{"bits": 1}, {"bits": 17}, {"bits": 8.0}, {"block_size": 0}, {"block_size": True}]
)
def test_bad_parameters_are_refused(arguments):
    with pytest.raises(GradientError):
        BlockQuantizer(**arguments)
