"""Trees of networks against integer arithmetic, and the paper's two-level figures."""

import numpy as np
import pytest

from optinc_hw.errors import NetworkError
from optinc_hw.onn import build_cascade, quantised_mean

CODES = np.random.default_rng(0).integers(0, 256, (40_000, 16))


@pytest.mark.parametrize(("rounding", "share", "bias"), [("floor", 0.281, -0.28), ("half_up", 0.222, 0.22)])
def test_rounding_at_both_levels_is_wrong_as_often_as_derived_from_the_paper(rounding, share, bias):
    away = build_cascade((4, 4), 8, rounding, residual=False).run(CODES) - quantised_mean(CODES, rounding)
    assert np.mean(away != 0) == pytest.approx(share, abs=0.008)  # three standard deviations of 40 000 draws
    assert np.mean(away) == pytest.approx(bias, abs=0.012)


@pytest.mark.parametrize("rounding", ["floor", "half_up"])
def test_remainders_make_both_levels_exact_on_all_their_inputs(rounding):
    cascade = build_cascade((4, 4), 8, rounding)
    assert np.array_equal(cascade.run(CODES), quantised_mean(CODES, rounding))
    first, second = cascade.check()
    # 13**4 and 13**3 * 61, less the 12 whose mean would exceed 255.
    assert (first.inputs, second.inputs) == (28_561, 134_017 - 12)
    assert (first.spacing, second.spacing) == (0.25, 1.0)
    assert first.worst < 1e-9
    assert second.worst < 1e-9


@pytest.mark.parametrize("unit", ["clip01", "relu"])
@pytest.mark.parametrize("servers", [(2, 2), (3, 3), (4, 3), (3, 4), (5, 2), (8, 2), (4, 4, 2), (2, 3, 2), (6,)])
@pytest.mark.parametrize(("bits", "rounding"), [(4, "half_up"), (3, "floor")])
def test_other_trees(servers, bits, rounding, unit):
    cascade = build_cascade(servers, bits, rounding, unit=unit)
    codes = np.random.default_rng(1).integers(0, 2**bits, (500, cascade.total))
    codes[0], codes[1] = 0, 2**bits - 1
    assert np.array_equal(cascade.run(codes), quantised_mean(codes, rounding))
    assert all(level.exact and level.worst < 1e-9 for level in cascade.check())


def test_networks_and_area_of_sixteen_servers():
    cascade = build_cascade((4, 4), 8)
    assert cascade.networks == (4, 1)
    assert cascade.total == 16
    first, second = cascade.levels
    assert cascade.mzis() == 4 * first.mzis() + second.mzis()


def test_a_wrong_level_is_seen():
    exact = build_cascade((4, 4), 8)
    swapped = type(exact)(exact.servers, 8, "floor", True, exact.levels)
    assert not swapped.check()[1].exact


def test_progress_of_a_check_ends_at_all_inputs():
    seen = []
    build_cascade((2, 2), 4).check(lambda *step: seen.append(step))
    assert [step[0] for step in seen] == [0, 1]
    assert all(done == total for _, done, total in seen)


@pytest.mark.parametrize("servers", [(), (1, 4), (4, 2.0), (True, 4)])
def test_trees_that_cannot_be_are_refused(servers):
    with pytest.raises(NetworkError, match="at least 2"):
        build_cascade(servers, 8)


def test_codes_of_other_servers_are_refused():
    with pytest.raises(NetworkError, match="16"):
        build_cascade((4, 4), 8).run(CODES[:, :8])
    with pytest.raises(NetworkError, match="rounds at every level"):
        build_cascade((4, 4), 8, residual=False).check()
