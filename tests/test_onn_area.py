"""Area model against the paper's published counts and ratios."""

from itertools import pairwise

import pytest

from optinc_hw.errors import NetworkError
from optinc_hw.onn import SCENARIOS, build_exact, count_mzis


def test_counts_of_the_first_scenario():
    first = SCENARIOS[0]
    assert first.mzis() == 106_512
    assert first.mzis(range(1, 7)) == 41_664


def test_published_area_ratios():
    ratios = [
        (scenario.area_ratio(layers), published)
        for scenario in SCENARIOS
        for layers, published in zip(scenario.approximated, scenario.area_ratios, strict=True)
    ]
    assert [published for _, published in ratios] == [0.393, 0.409, 0.404, 0.493, 0.479, 0.474, 0.437, 0.422]
    for ours, published in ratios:
        assert ours == pytest.approx(published, abs=0.002)


@pytest.mark.parametrize(
    ("scenario", "first", "last", "full", "approximated", "preprocessing", "splitting"),
    [
        (1, 1, 6, 106_512, 41_664, 130, 142), (2, 2, 7, 434_192, 177_040, 506, 534),
        (3, 2, 9, 1_744_912, 702_352, 2026, 2086), (4, 4, 6, 434_218, 213_738, 506, 556),
        (4, 4, 7, 434_218, 207_690, 506, 556), (4, 4, 8, 434_218, 205_926, 506, 556),
        (4, 3, 6, 434_218, 189_226, 506, 556), (4, 3, 7, 434_218, 183_178, 506, 556),
    ],
)  # fmt: skip
def test_counts_behind_the_published_ratios(scenario, first, last, full, approximated, preprocessing, splitting):
    setting = SCENARIOS[scenario - 1]
    assert setting.mzis() == full
    assert setting.mzis(range(first, last + 1)) == approximated
    assert setting.surrounding_mzis == preprocessing + splitting


def test_sizes_of_the_data_sets_and_of_the_weights():
    assert [scenario.space.size for scenario in SCENARIOS] == [28_561, 390_625, 5_764_801, 13_845_841]
    weights = [sum(a * b for a, b in pairwise(scenario.sizes)) for scenario in SCENARIOS]
    assert weights == [82_432, 344_576, 1_393_152, 344_832]


def test_layers_that_do_not_exist_are_refused():
    with pytest.raises(NetworkError, match="no layer 7; layers of this network are 1 to 6"):
        SCENARIOS[0].mzis([1, 7])


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


def test_trees_by_counting():
    # First sum alone; then v = s + 3 carries (3), digit = v - 4 carries (3 more, and 3 splits), at last 3 + 2 + 3.
    assert build_exact(4, 8).tree_couplers == 0 + 3 + 9 + 9 + 8
    assert build_exact(4, 2).tree_couplers == 0 + 2


@pytest.mark.parametrize(("shape", "form"), [((0, 3), "svd"), ((3, 0), "re_u"), ((2, 2), "reck")])
def test_refuses_empty_matrices_and_unknown_forms(shape, form):
    with pytest.raises(NetworkError):
        count_mzis(shape, form)
