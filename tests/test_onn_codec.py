"""PAM4 codec, mean, unit P and the input space, against hand calculations and the paper's counts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optinc_hw.errors import NetworkError
from optinc_hw.onn import (
    InputSpace,
    decode_pam4,
    encode_pam4,
    preprocess,
    quantised_mean,
    symbol_error_rate,
)


def test_encode_puts_the_most_significant_symbol_first():
    assert encode_pam4(228, 8).tolist() == [3, 2, 1, 0]
    assert encode_pam4([27, 1], 8).tolist() == [[0, 1, 2, 3], [0, 0, 0, 1]]
    assert encode_pam4([5], 3).tolist() == [[1, 1]]


@settings(deadline=None)
@given(st.data(), st.integers(1, 32))
def test_decode_inverts_encode_for_any_width(data, bits):
    codes = np.array(data.draw(st.lists(st.integers(0, 2**bits - 1), max_size=20)), dtype=np.int64)
    assert np.array_equal(decode_pam4(encode_pam4(codes, bits)), codes)


def test_all_codes_of_16_bits_survive_the_round_trip():
    codes = np.arange(1 << 16, dtype=np.uint16)
    assert np.array_equal(decode_pam4(encode_pam4(codes, 16)), codes)


@pytest.mark.parametrize(
    ("codes", "bits", "message"),
    [
        ([256], 8, r"code at index \(0,\) is 256; allowed are 0 to 255"),
        ([[0, 1], [2, -1]], 8, r"index \(1, 1\) is -1"),
        ([1.0], 8, "integers, got dtype float64"),
        ([True], 8, "integers, got dtype bool"),
        ([1], 0, "bits must be an integer from 1 to 32"),
        ([1], 33, "bits must be"),
        ([1], True, "bits must be"),
        ([1], 8.0, "bits must be"),
    ],
)
def test_encode_refuses_what_does_not_fit(codes, bits, message):
    with pytest.raises(NetworkError, match=message):
        encode_pam4(codes, bits)


@pytest.mark.parametrize("symbols", [[4, 0], [-1], [0.5], 3, [0] * 17, np.zeros((2, 0), dtype=int)])
def test_decode_refuses_what_is_no_code(symbols):
    with pytest.raises(NetworkError):
        decode_pam4(symbols)


def test_mean_by_hand():
    codes = [[1, 2, 2, 2], [1, 1, 2, 2], [1, 1, 1, 2], [255, 255, 255, 255], [0, 0, 0, 0]]
    assert quantised_mean(codes).tolist() == [2, 2, 1, 255, 0]
    assert quantised_mean(codes, "floor").tolist() == [1, 1, 1, 255, 0]
    assert quantised_mean([1, 2, 2]).tolist() == 2  # 5/3
    assert quantised_mean(np.array([[255, 255]], dtype=np.uint8)).tolist() == [255]  # no 8-bit overflow


def test_documented_biases_for_four_servers():
    totals = np.arange(400)
    codes = np.stack([totals, *([np.zeros(400, dtype=int)] * 3)], axis=1)
    assert np.mean(quantised_mean(codes) - totals / 4) == 0.125
    assert np.mean(quantised_mean(codes, "floor") - totals / 4) == -0.375


@pytest.mark.parametrize(
    ("codes", "rounding"), [([[0.5]], "floor"), (3, "floor"), (np.zeros((2, 0), int), "floor"), ([[1]], "up")]
)
def test_mean_refuses_bad_input(codes, rounding):
    with pytest.raises(NetworkError):
        quantised_mean(codes, rounding)


def test_unit_p_by_hand():
    symbols = encode_pam4([[27, 228]], 8)  # 0123 and 3210 in base 4
    assert preprocess(symbols, 4).tolist() == [[1.5, 1.5, 1.5, 1.5]]
    assert preprocess(symbols, 2).tolist() == [[7.5, 7.5]]  # (1 + 14) / 2 and (11 + 4) / 2
    assert preprocess(symbols, 1).tolist() == [[127.5]]
    assert preprocess(encode_pam4([[27, 27]], 6), 2).tolist() == [[1.0, 11.0]]  # 1|23: the first group is the short one


@settings(deadline=None)
@given(st.integers(1, 16), st.integers(1, 9), st.data())
def test_unit_p_keeps_the_mean_exactly(bits, servers, data):
    count = (bits + 1) // 2
    length = data.draw(st.integers(1, count))
    inputs = -(-count // length)
    length = -(-count // inputs)
    row = st.lists(st.integers(0, 2**bits - 1), min_size=servers, max_size=servers)
    codes = np.array(data.draw(st.lists(row, min_size=1, max_size=5)))
    if length * (inputs - 1) >= count:
        return
    averages = preprocess(encode_pam4(codes, bits), inputs)
    weights = 4.0 ** (length * np.arange(inputs - 1, -1, -1))
    assert np.allclose(averages @ weights, codes.mean(axis=1), rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize(("inputs", "message"), [(0, "choose 1 to 5"), (6, "choose 1 to 5"), (4, "choose 3 inputs")])
def test_unit_p_refuses_inputs_that_symbols_do_not_fill(inputs, message):
    with pytest.raises(NetworkError, match=message):
        preprocess(np.zeros((2, 3, 5), dtype=int), inputs)


@pytest.mark.parametrize("symbols", [np.zeros(4, int), np.zeros((2, 0, 4), int), np.full((1, 2, 4), 4)])
def test_unit_p_refuses_bad_symbols(symbols):
    with pytest.raises(NetworkError):
        preprocess(symbols, 4)


@pytest.mark.parametrize(
    ("servers", "bits", "size"), [(4, 8, 28_561), (8, 8, 390_625), (16, 8, 5_764_801), (4, 16, 13_845_841)]
)
def test_data_set_sizes_of_the_paper(servers, bits, size):
    assert InputSpace(servers, bits, 4).size == size


@pytest.mark.parametrize(("servers", "bits", "inputs"), [(4, 8, 4), (3, 6, 2), (2, 5, 3), (1, 4, 1), (5, 7, 2)])
def test_every_point_of_the_space_has_codes_that_unit_p_maps_to_it(servers, bits, inputs):
    space = InputSpace(servers, bits, inputs)
    index = np.arange(space.size)
    codes = space.codes(index)
    assert np.array_equal(preprocess(encode_pam4(codes, bits), inputs), space.averages(index))
    assert np.array_equal(space.keys[codes].sum(axis=1), index)


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, 255), min_size=4, max_size=4), min_size=1, max_size=20))
def test_points_of_any_codes_agree_with_unit_p(codes):
    space = InputSpace(4, 8, 4)
    index = space.keys[np.array(codes)].sum(axis=1)
    assert np.array_equal(space.averages(index), preprocess(encode_pam4(codes, 8), 4))


@pytest.mark.parametrize("arguments", [(0, 8, 4), (4, 0, 4), (4, 8, 5), (4, 10, 4), (True, 8, 4)])
def test_space_refuses_bad_parameters(arguments):
    with pytest.raises(NetworkError):
        InputSpace(*arguments)


def test_space_refuses_foreign_indices_and_huge_key_tables():
    with pytest.raises(NetworkError, match="28561"):
        InputSpace(4, 8, 4).codes([28_561])
    with pytest.raises(NetworkError, match="key table"):
        _ = InputSpace(4, 32, 4).keys


def test_symbol_error_rate_counts_symbols():
    assert symbol_error_rate([0b11100100, 0], [0b11100100, 0], 8) == 0.0
    assert symbol_error_rate([0b11100100, 0], [0b11100111, 64], 8) == 2 / 8
    with pytest.raises(NetworkError, match="one shape"):
        symbol_error_rate([1, 2], [1], 8)
    with pytest.raises(NetworkError, match="not empty"):
        symbol_error_rate(np.zeros(0, int), np.zeros(0, int), 8)
