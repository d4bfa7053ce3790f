"""Area model against the paper's published counts and ratios."""

from itertools import pairwise

import pytest

from optinc_hw.errors import NetworkError
from optinc_hw.onn import build_exact, count_mzis

_NETS = {
    1: (4, 64, 128, 256, 128, 64, 4),
    2: (4, 64, 128, 256, 512, 256, 128, 64, 4),
    3: (4, 64, 128, 256, 512, 1024, 512, 256, 128, 64, 4),
    4: (4, 64, 128, 256, 512, 256, 128, 64, 8),
}


def _area(sizes, approximated):
    return sum(
        count_mzis((rows, cols), "sigma_u" if number in approximated else "svd")
        for number, (cols, rows) in enumerate(pairwise(sizes), start=1)
    )


def test_counts_of_the_first_scenario():
    assert _area(_NETS[1], ()) == 106_512
    assert _area(_NETS[1], range(1, 7)) == 41_664


@pytest.mark.parametrize(
    ("scenario", "servers", "first", "last", "published"),
    [
        (1, 4, 1, 6, 39.3), (2, 8, 2, 7, 40.9), (3, 16, 2, 9, 40.4), (4, 4, 4, 6, 49.3),
        (4, 4, 4, 7, 47.9), (4, 4, 4, 8, 47.4), (4, 4, 3, 6, 43.7), (4, 4, 3, 7, 42.2),
    ],
)  # fmt: skip
def test_published_area_ratios(scenario, servers, first, last, published):
    sizes = _NETS[scenario]
    symbols = sizes[-1]
    around = count_mzis((4, symbols * servers), "svd") + count_mzis((symbols * servers, symbols), "svd")
    ratio = (_area(sizes, range(first, last + 1)) + around) / (_area(sizes, ()) + around)
    assert 100 * ratio == pytest.approx(published, abs=0.2)


@pytest.mark.parametrize(
    ("scenario", "servers", "first", "last", "full", "approximated", "preprocessing", "splitting"),
    [
        (1, 4, 1, 6, 106_512, 41_664, 130, 142), (2, 8, 2, 7, 434_192, 177_040, 506, 534),
        (3, 16, 2, 9, 1_744_912, 702_352, 2026, 2086), (4, 4, 4, 6, 434_218, 213_738, 506, 556),
        (4, 4, 4, 7, 434_218, 207_690, 506, 556), (4, 4, 4, 8, 434_218, 205_926, 506, 556),
        (4, 4, 3, 6, 434_218, 189_226, 506, 556), (4, 4, 3, 7, 434_218, 183_178, 506, 556),
    ],
)  # fmt: skip
def test_counts_behind_the_published_ratios(
    scenario, servers, first, last, full, approximated, preprocessing, splitting
):
    sizes = _NETS[scenario]
    symbols = sizes[-1]
    assert _area(sizes, ()) == full
    assert _area(sizes, range(first, last + 1)) == approximated
    assert count_mzis((4, symbols * servers)) == preprocessing
    assert count_mzis((symbols * servers, symbols)) == splitting


def test_small_matrices_by_hand():
    assert count_mzis((1, 1), "svd") == 1
    assert count_mzis((3, 2), "svd") == 3 + 3 + 1  # U of 3, three attenuators, V of 2
    assert count_mzis((2, 3), "svd") == 1 + 2 + 3
    assert count_mzis((4, 8), "sigma_u") == 2 * 10
    assert count_mzis((5, 2), "sigma_u") == 3 * 3
    assert count_mzis((4, 6), "re_u") == 15


def test_exact_network_is_small():
    network = build_exact(4, 8)
    assert network.mzis("svd") == 27 + 3 * 36 + 25 == 160
    assert network.mzis("re_u") == 5 * 15
    assert network.mzis() == network.mzis("svd")


@pytest.mark.parametrize(("shape", "form"), [((0, 3), "svd"), ((3, 0), "re_u"), ((2, 2), "reck")])
def test_refuses_empty_matrices_and_unknown_forms(shape, form):
    with pytest.raises(NetworkError):
        count_mzis(shape, form)
