"""Permutations on meshes with coupler errors: every MZI passes or crosses all light, and leaks."""

from dataclasses import replace

import numpy as np
import pytest

from optinc_hw.photonics import MeshImperfections, RectangularLayout, program_mesh


@pytest.mark.parametrize("seed", range(3))
def test_a_permutation_comes_out_alike_from_far_starts(seed):
    layout, rng = RectangularLayout(8), np.random.default_rng(seed)
    flaws = MeshImperfections(*(np.pi / 4 + 0.02 * rng.standard_normal((2, 28))), np.ones(28))
    target = np.eye(8)[rng.permutation(8)]
    first = program_mesh(target, layout, flaws, criterion="columns")
    lost = [1.0 - first.fidelity]
    for _ in range(3):
        away = replace(
            first.phases,
            theta=first.phases.theta + 0.5 * rng.standard_normal(28),
            phi=rng.uniform(0.0, 2.0 * np.pi, 28),
        )
        lost.append(1.0 - program_mesh(target, layout, flaws, criterion="columns", start=away).fidelity)
    assert max(lost) < 1.3 * min(lost) + 2e-6


def test_a_start_without_a_slope_ends():
    layout = RectangularLayout(4)
    flaws = replace(MeshImperfections.ideal(layout), eta_in=np.full(6, np.pi / 4 + 0.067))
    for order in ([3, 2, 1, 0], [0, 1, 2, 3], [1, 0, 3, 2]):
        program = program_mesh(np.eye(4)[order], layout, flaws, criterion="columns")
        assert program.fidelity >= program.corrected_fidelity > 0.9
