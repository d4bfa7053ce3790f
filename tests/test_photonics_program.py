"""Heaters, crosstalk and the programming of real matrices onto imperfect twins."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twins import imperfect_twin

from optinc_hw.errors import LimitError, MatrixError
from optinc_hw.photonics import (
    ChipModel,
    TwinParameters,
    power_from_voltage,
    program_matrix,
    solve_powers,
    voltage_from_power,
)
from optinc_hw.photonics.program import modulator_phases

SEEDS = st.integers(0, 2**32 - 1)
TWO_PI = 2.0 * np.pi


@given(st.floats(0.0, 0.2), st.floats(10.0, 1e4), st.floats(0.0, 5.0))
def test_power_and_voltage_are_inverse(power, resistance, beta):
    voltage = voltage_from_power(power, resistance, beta)
    np.testing.assert_allclose(power_from_voltage(voltage, resistance, beta), power, rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(voltage**2, power * resistance * (1 + beta * power), rtol=1e-12, atol=1e-300)


def test_heater_law_broadcasts():
    assert power_from_voltage(np.ones((3, 1)), np.full(4, 1000.0), 0.8).shape == (3, 4)
    np.testing.assert_allclose(power_from_voltage(6.0, 1200.0, 0.0), 0.03)


@settings(max_examples=30)
@given(st.integers(2, 6), SEEDS)
def test_solved_powers_give_the_phases_modulo_two_pi(ports, seed):
    rng = np.random.default_rng(seed)
    twin = imperfect_twin(ports, seed % 7)
    wanted = rng.uniform(-20.0, 20.0, (3, len(twin.offset)))
    power = solve_powers(twin, wanted)
    assert (power >= 0.0).all()
    # One turn less on any heater would need heat that some heater would have to take away.
    turn = TWO_PI * np.linalg.inv(twin.crosstalk) / twin.efficiency[:, None]
    less = power[:, :, None] - turn
    assert (less.min(axis=1) < 0.0).all()
    error = np.angle(np.exp(1j * (twin.phases(power) - wanted)))
    np.testing.assert_allclose(error, 0.0, atol=1e-10)


@settings(max_examples=30)
@given(SEEDS)
def test_powers_of_some_heaters_count_the_heat_of_the_others(seed):
    rng = np.random.default_rng(seed)
    twin = imperfect_twin(4, 1)
    chosen = np.sort(rng.choice(len(twin.offset), 10, replace=False))
    power = rng.uniform(0.0, 0.04, len(twin.offset))
    power[chosen] = 0.0
    background = twin.crosstalk[chosen] @ (twin.efficiency * power)
    wanted = rng.uniform(0.0, TWO_PI, 10)
    power[chosen] = solve_powers(twin, wanted, chosen=chosen, background=background)
    np.testing.assert_allclose(np.angle(np.exp(1j * (twin.phases(power)[chosen] - wanted))), 0.0, atol=1e-10)


def test_a_heater_that_cannot_reach_the_phase_is_named():
    twin = TwinParameters.nominal(2, input_amplitude=0.1, lo_amplitude=0.1)
    phases = np.zeros(len(twin.offset))
    phases[twin.layout.heater_index["mzi_0_0_phi"]] = 3.0
    with pytest.raises(LimitError, match=r"heater mzi_0_0_phi would need 19\.10 mW .* limit is 0 to 15\.00 mW.*Raise"):
        solve_powers(twin, phases, max_power_w=0.015)
    chosen = twin.layout.mesh_phi
    with pytest.raises(LimitError, match="heater mzi_0_0_phi would need"):
        solve_powers(twin, phases[chosen], chosen=chosen, max_power_w=np.array([0.015]))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_phases_that_are_not_finite_are_refused(value):
    twin = imperfect_twin(2, 0)
    with pytest.raises(MatrixError, match="phases hold NaN or Inf"):
        solve_powers(twin, np.full(len(twin.offset), value))


def run(twin, programmed, amplitudes):
    return programmed.decode(ChipModel.from_parameters(twin).readings(twin, programmed.drive(amplitudes)))


def inputs_off_zero(batch, columns, rng):
    return rng.choice([-1.0, 1.0], (batch, columns)) * rng.uniform(0.15, 1.0, (batch, columns))


@settings(max_examples=25)
@given(st.sampled_from([2, 3, 4, 5, 8]), SEEDS, st.floats(0.05, 1.0))
def test_random_matrices_are_multiplied_exactly(ports, seed, norm):
    rng = np.random.default_rng(seed)
    twin = imperfect_twin(ports, seed % 5)
    matrix = rng.standard_normal(rng.integers(1, ports + 1, 2))
    matrix *= norm / np.linalg.norm(matrix, 2)
    programmed = program_matrix(twin, matrix)
    assert programmed.residual < 2e-3
    amplitudes = inputs_off_zero(20, matrix.shape[1], rng)
    # Each entry of the matrix may be off by the residual, and the errors may add up over a row.
    allowed = programmed.residual * np.abs(amplitudes).sum(axis=1, keepdims=True) + 1e-9
    assert (np.abs(run(twin, programmed, amplitudes) - amplitudes @ matrix.T) <= allowed).all()
    assert (programmed.drive(amplitudes) >= 0.0).all()


def test_most_random_matrices_are_reached_to_a_thousandth():
    errors = []
    for seed in range(12):
        rng, twin = np.random.default_rng(seed), imperfect_twin(8, seed)
        matrix = rng.standard_normal((8, 8))
        matrix /= np.linalg.norm(matrix, 2)
        amplitudes = inputs_off_zero(20, 8, rng)
        errors.append(np.abs(run(twin, program_matrix(twin, matrix), amplitudes) - amplitudes @ matrix.T).max())
    assert np.median(errors) < 1e-5
    assert max(errors) < 1e-3


@pytest.mark.parametrize(
    ("ports", "name"),
    [
        *[(4, name) for name in ("identity", "minus identity", "permutation", "diagonal", "one entry", "zero")],
        *[(8, name) for name in ("identity", "permutation")],
    ],
)
def test_sparse_matrices_are_not_left_in_a_local_minimum(ports, name):
    """Full-size bar and cross states are at the edge of what couplers with errors reach; 1 % of full scale at worst."""
    twin, rng = imperfect_twin(ports, 0), np.random.default_rng(0)
    matrix = {
        "identity": np.eye(ports),
        "minus identity": -np.eye(ports),
        "permutation": np.eye(ports)[rng.permutation(ports)],
        "diagonal": np.diag(np.linspace(0.0, 1.0, ports)),
        "one entry": np.eye(1, ports**2).reshape(ports, ports),
        "zero": np.zeros((ports, ports)),
    }[name]
    programmed = program_matrix(twin, matrix)
    assert programmed.residual < 0.01
    amplitudes = inputs_off_zero(20, ports, rng)
    np.testing.assert_allclose(run(twin, programmed, amplitudes), amplitudes @ matrix.T, atol=0.015)


@pytest.mark.parametrize("name", ["reversal", "shift"])
def test_a_matrix_beyond_the_couplers_reach_is_refused(name):
    """Couplers at pi/4 + 0.4 leave cos(0.8) = 0.70 of the amplitude for the cross state that permutations need."""
    nominal = TwinParameters.nominal(4, input_amplitude=0.03, lo_amplitude=0.02)
    twin = replace(nominal, mesh_eta=nominal.mesh_eta + 0.4)
    target = {"reversal": np.eye(4)[::-1], "shift": np.roll(np.eye(4), 1, axis=0)}[name]
    with pytest.raises(MatrixError, match=r"only to 0\.\d+ of full scale.*smaller tiles"):
        program_matrix(twin, target)
    half = 0.3 * target[:2]  # fewer rows leave the light ways around the couplers
    assert program_matrix(twin, half).residual < 1e-3


def test_programming_is_reproducible_and_leaves_the_matrix_alone():
    twin, matrix = imperfect_twin(4, 0), np.eye(4)
    first, second = program_matrix(twin, matrix), program_matrix(twin, matrix)
    np.testing.assert_array_equal(first.static_power_w, second.static_power_w)
    np.testing.assert_array_equal(matrix, np.eye(4))


def test_an_empty_batch_gives_no_products():
    twin = imperfect_twin(3, 0)
    programmed = program_matrix(twin, 0.5 * np.eye(2, 3))
    assert programmed.drive(np.zeros((0, 3))).shape == (0, len(twin.offset))
    assert programmed.decode(np.zeros((0, 6))).shape == (0, 2)


def test_small_inputs_keep_their_real_part():
    """Below a modulator's extinction the read quadrature is wrong by at most what cannot be extinguished."""
    twin = imperfect_twin(4, 0)
    matrix = np.linalg.qr(np.random.default_rng(0).standard_normal((4, 4)))[0]
    programmed = program_matrix(twin, matrix)
    amplitudes = np.random.default_rng(1).uniform(-0.02, 0.02, (30, 4))
    np.testing.assert_allclose(run(twin, programmed, amplitudes), amplitudes @ matrix.T, atol=0.12)


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.eye(5), r"shape \(5, 5\) does not fit a chip of 4 ports; cut it into tiles"),
        (np.ones((1, 5)), r"shape \(1, 5\) does not fit"),
        (1.001 * np.eye(4), r"spectral norm 1\.001; .* at most 1"),
        (np.full((2, 2), 0.6), r"spectral norm 1\.2"),
        (np.full((2, 2), np.nan), "NaN or Inf"),
        (1j * np.eye(2), "real matrix"),
        (np.ones(4) / 2, r"got shape \(4,\)"),
        (np.zeros((0, 2)), r"got shape \(0, 2\)"),
        ([[0.1], [0.2, 0.3]], "numbers"),
    ],
)
def test_a_matrix_that_does_not_fit_is_refused(matrix, message):
    with pytest.raises(MatrixError, match=message):
        program_matrix(imperfect_twin(4, 0), matrix)


@pytest.mark.parametrize(
    ("amplitudes", "message"),
    [
        (np.ones((2, 3)), r"shape \(2, 3\); the matrix needs \(batch, 2\)"),
        (np.ones(2), r"shape \(2,\)"),
        ([[0.5, 1.1]], r"within \[-1, 1\]"),
        ([[0.5, np.nan]], "finite"),
        ([[-np.inf, 0.0]], "finite"),
    ],
)
def test_amplitudes_that_do_not_fit_are_refused(amplitudes, message):
    programmed = program_matrix(imperfect_twin(4, 0), 0.5 * np.eye(2))
    with pytest.raises(MatrixError, match=message):
        programmed.drive(amplitudes)


def test_limits_hold_while_programming_and_while_driving():
    twin = imperfect_twin(4, 0)
    with pytest.raises(LimitError, match=r"heater (mzi|out|att)_\w+ would need"):
        program_matrix(twin, np.eye(4), max_power_w=0.004)
    limits = np.full(len(twin.offset), 1.0)
    limits[twin.layout.input_phi] = 0.001
    programmed = program_matrix(twin, np.eye(4), max_power_w=limits)
    with pytest.raises(LimitError, match=r"heater in_\d_phi would need"):
        programmed.drive(inputs_off_zero(20, 4, np.random.default_rng(0)))


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 6), SEEDS, st.sampled_from([1.35, 1.6, 40.0]))
def test_inputs_of_one_sign_never_make_a_modulator_jump_by_a_turn(ports, seed, turns):
    """Heat spreads into the mesh, so neighbouring inputs must not differ by a turn's heat of some modulator."""
    rng = np.random.default_rng(seed)
    twin = imperfect_twin(ports, seed % 50)
    turn_w = TWO_PI / twin.efficiency
    programmed = program_matrix(twin, 0.5 * np.eye(ports), turns * turn_w)
    moved = int(rng.integers(ports))
    for sign in (-1.0, 1.0):
        amplitudes = np.tile(rng.uniform(-1.0, 1.0, ports), (500, 1))
        amplitudes[:, moved] = sign * np.linspace(0.002, 1.0, 500)
        power = programmed.drive(amplitudes)[:, : 2 * ports]
        jumps = np.abs(np.diff(power, axis=0)).max(axis=0) / turn_w[: 2 * ports]
        others = np.delete(np.arange(2 * ports), [*twin.layout.input_theta[[moved]], *twin.layout.input_phi[[moved]]])
        assert jumps[others].max(initial=0.0) < 0.05  # their own inputs do not change
        if turns > 2.0:  # below, half a turn that begins just under zero does not fit
            assert jumps.max() < 0.35
        phases = twin.phases(programmed.drive(amplitudes))[:, : 2 * ports]
        wanted = np.empty_like(phases)
        fields = amplitudes * programmed.reference
        wanted[:, twin.layout.input_theta], wanted[:, twin.layout.input_phi] = modulator_phases(twin, fields)
        np.testing.assert_allclose(np.angle(np.exp(1j * (phases - wanted))), 0.0, atol=1e-9)
