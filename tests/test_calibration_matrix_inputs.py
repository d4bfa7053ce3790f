"""Input phases that powers of single inputs do not show: which they are, and how coherent light finds them."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twins import set_heater_powers

from calibration import NoiseModel
from calibration._matrix_compare import compare_matrices
from calibration._matrix_inputs import coherent_readings, find_input_phases, input_effect
from calibration._matrix_measure import coherent_settings, unit_fields
from calibration._matrix_null_space import invisible_combinations
from calibration._matrix_sources import twin_matrix
from optinc_hw.errors import CalibrationError
from optinc_hw.photonics import ChipLayout, ChipModel, MeshLayout, TriangularLayout, TwinParameters
from optinc_hw.photonics.arms import bare_arms
from simulated_instruments import HiddenChip, HiddenEffects

NOISE = NoiseModel(1e-3, 1e-5)
BARE = {"inputs": "ports", "receivers": "power"}


def bare_twin(ports, seed, mesh=None):
    """A bare mesh with offsets, couplers, losses of MZIs and arms, gains, and heat on heated and bare arms."""
    rng = np.random.default_rng(seed)
    twin = TwinParameters.nominal(ports, input_amplitude=1.0, lo_amplitude=1.0, mesh=mesh, **BARE)
    layout, heaters, mzis = twin.layout, len(twin.offset), len(twin.mzi_transmission)
    bare = bare_arms(layout)
    sites = np.concatenate([layout.heater_sites, bare.sites])
    distance = np.linalg.norm(sites[:, None] - layout.heater_sites[None], axis=-1)
    heat = 0.015 * np.exp(-(distance - 1.0) / 1.5) * rng.uniform(0.7, 1.3, distance.shape)
    heat[:heaters][np.eye(heaters, dtype=bool)] = 1.0
    crosstalk = np.concatenate([np.eye(heaters), bare.effect], axis=1) @ heat
    own = np.diagonal(crosstalk).copy()
    return replace(
        twin,
        offset=rng.uniform(-np.pi, np.pi, heaters),
        efficiency=twin.efficiency * rng.normal(1.0, 0.02, heaters) * own,
        crosstalk=crosstalk / own,
        mesh_eta=np.pi / 4 + 0.02 * rng.standard_normal((mzis, 2)),
        mzi_transmission=np.exp(-rng.uniform(0.01, 0.025, mzis)),
        gain=rng.normal(1.0, 0.05, ports),
        input_amplitude=rng.normal(0.9, 0.03, ports),
        arm_loss=0.005 * rng.standard_normal((mzis, 2)),
        curvature=0.001 * rng.standard_normal(heaters),
    )


def as_powers_left_it(truth, rng):
    """A twin with the same powers of single inputs: other input phases, other heat on them (of plausible size).

    A phi in front of everything is an input's phase, and so is its curvature.
    """
    effect, heaters = input_effect(truth.layout), len(truth.offset)
    turned = rng.uniform(-np.pi, np.pi, truth.ports)
    sites = truth.layout.heater_sites
    reach = np.hypot(sites[:, 0], sites[:, 1] - np.arange(truth.ports)[:, None])
    heat = 0.02 * np.exp(-reach / 1.5) * rng.standard_normal((truth.ports, heaters))
    crosstalk = truth.crosstalk + effect.T @ heat
    own = np.diagonal(crosstalk)
    curvature = truth.curvature / own**2
    curvature[[truth.layout.mesh_phi[cell] for cell in truth.layout.mesh.columns[0]]] = 0.0
    return replace(
        truth, offset=truth.offset + effect.T @ turned, efficiency=truth.efficiency * own, crosstalk=crosstalk / own,
        curvature=curvature,
    )  # fmt: skip


def take(truth, count, rng, fields=None, noise=NOISE):
    power, multi = coherent_settings(truth, count, rng)
    fields = multi if fields is None else fields
    readings = coherent_readings(truth, power, fields)
    return power, fields, readings + noise.sigma(readings) * rng.standard_normal(readings.shape)


def pair_fields(ports, count, rng):
    fields = np.zeros((count, ports), complex)
    for row in fields:
        row[rng.choice(ports, 2, replace=False)] = np.exp(2j * np.pi * rng.random(2)) / np.sqrt(2)
    return fields


def chi_of_new_readings(twin, truth, rng):
    power, fields, readings = take(truth, 200, rng)
    predicted = coherent_readings(twin, power, fields)
    return np.sqrt(np.mean(((predicted - readings) / NOISE.sigma(predicted)) ** 2))


LAYOUTS = {
    "rectangle": (5, None),
    "two ports": (2, None),
    "triangle": (4, TriangularLayout(4)),
    "gaps": (4, MeshLayout(4, ((0, 0), (1, 1), (2, 2), (3, 1)))),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_input_phases_in_the_twins_own_terms_are_phases_of_the_inputs(name):
    ports, mesh = LAYOUTS[name]
    twin, rng = bare_twin(ports, 0, mesh), np.random.default_rng(1)
    phases, power = rng.uniform(-3.0, 3.0, ports), rng.uniform(0.0, 0.04, len(twin.offset))
    moved = replace(twin, offset=twin.offset + input_effect(twin.layout).T @ phases)
    expected = twin_matrix(twin, power) * np.exp(1j * phases)
    assert compare_matrices(twin_matrix(moved, power), expected, "outputs", "none").residual < 1e-12
    assert input_effect(twin.layout).sum(axis=0) == pytest.approx(0.0)


@pytest.mark.parametrize("ports", [4, 8])
def test_coherent_readings_make_the_twin_predict_coherent_light_in_all_ports(ports):
    rng = np.random.default_rng(ports)
    truth = bare_twin(ports, ports)
    twin = as_powers_left_it(truth, rng)
    power = rng.uniform(0.0, 0.04, (ports, len(truth.offset)))
    single = coherent_readings(twin, power, np.eye(ports))
    assert single == pytest.approx(coherent_readings(truth, power, np.eye(ports)), rel=1e-10)
    found = find_input_phases(twin, *take(truth, 30 * ports, rng), NOISE)
    assert found.verdict == "good", found.reason
    assert found.before_chi > 100.0
    assert chi_of_new_readings(twin, truth, rng) > 100.0
    assert chi_of_new_readings(found.twin, truth, rng) < 1.5
    still = coherent_readings(found.twin, power, np.eye(ports))
    assert still == pytest.approx(single, rel=1e-10)
    assert found.offset[0] == found.mean_sigma[0] == 0.0
    assert found.mean_sigma[1:].max() < 0.01
    in_front = [int(truth.layout.mesh_phi[cell]) for cell in truth.layout.mesh.columns[0]]
    assert sorted(found.bent) == sorted(in_front)
    assert found.twin.curvature[in_front] == pytest.approx(truth.curvature[in_front], abs=3e-4)


def test_two_lit_ports_do_too_with_more_readings():
    rng = np.random.default_rng(0)
    truth = bare_twin(4, 1)
    found = find_input_phases(as_powers_left_it(truth, rng), *take(truth, 300, rng, pair_fields(4, 300, rng)), NOISE)
    assert found.verdict == "good", found.reason
    assert chi_of_new_readings(found.twin, truth, rng) < 1.5


def test_the_stated_covariance_is_that_of_the_input_phases():
    deviations = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        truth = bare_twin(3, seed)
        twin = as_powers_left_it(truth, rng)
        power, fields, readings = take(truth, 60, rng)
        found = find_input_phases(twin, power, fields, readings, NOISE)
        mean = power.mean(axis=0)
        matrices = [twin_matrix(each, mean) for each in (found.twin, truth)]
        left = compare_matrices(*matrices, "ports", "none").input_phases
        left = np.angle(np.exp(1j * (left - left[0])))
        deviations.append(left[1:] / found.mean_sigma[1:])
    assert np.sqrt(np.mean(np.square(deviations))) == pytest.approx(1.0, abs=0.5)


def test_too_few_readings_are_refused_by_those_held_out():
    rng = np.random.default_rng(2)
    truth = bare_twin(6, 2)
    found = find_input_phases(as_powers_left_it(truth, rng), *take(truth, 16, rng), NOISE)
    assert found.chi < 2.0
    assert found.verdict == "poor"
    assert "held-out coherent readings are missed" in found.reason


def test_a_port_that_is_never_lit_with_others_is_named():
    rng = np.random.default_rng(3)
    truth = bare_twin(4, 3)
    fields = unit_fields(4, 120, rng)
    fields[:, 2] = 0.0
    found = find_input_phases(as_powers_left_it(truth, rng), *take(truth, 120, rng, fields), NOISE)
    assert found.verdict == "partial"
    assert "phases of inputs 2 (3.1 rad) are known worse" in found.reason


def test_invalid_readings_are_left_out():
    rng = np.random.default_rng(4)
    truth = bare_twin(4, 4)
    power, fields, readings = take(truth, 100, rng)
    readings[rng.random(readings.shape) < 0.2] = np.nan
    found = find_input_phases(as_powers_left_it(truth, rng), power, fields, readings, NOISE)
    assert chi_of_new_readings(found.twin, truth, rng) < 1.6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"power_w": np.zeros((3, 5))}, "fit together"),
        ({"fields": np.full((40, 3), np.nan)}, "NaN"),
        ({"fields": np.eye(3)[np.zeros(40, int)]}, "determine 2 input phases"),
        ({"twin": TwinParameters.nominal(3, input_amplitude=1.0, lo_amplitude=1.0)}, "modulators"),
    ],
)
def test_data_that_cannot_tell_input_phases(change, message):
    rng = np.random.default_rng(5)
    truth = bare_twin(3, 5)
    power, fields, readings = take(truth, 40, rng)
    given_ = {"twin": truth, "power_w": power, "fields": fields, "readings_w": readings, "noise": NOISE} | change
    with pytest.raises(CalibrationError, match=message):
        find_input_phases(**given_)


def test_on_a_hidden_chip_that_shares_no_code_with_the_twin():
    """Readings of the hidden chip, lit in all ports; the twin has its truth but for the input phases."""
    effects = replace(HiddenEffects.none(), offset_range_rad=2 * np.pi, coupler_spread_rad=0.02)
    chip = HiddenChip.from_seed(6, 4, effects=effects, **BARE)
    chip.set_laser(1.0, effects.design_wavelength_m)
    rng, layout = np.random.default_rng(6), chip.layout
    efficiency = np.pi / chip.parameters.pi_power_w
    nominal = TwinParameters.nominal(4, input_amplitude=1.0, lo_amplitude=1.0, **BARE)
    offset = _true_offsets(chip) + input_effect(layout).T @ rng.uniform(-np.pi, np.pi, 4)
    eta = np.stack([chip.parameters.eta_in_rad, chip.parameters.eta_out_rad], axis=1)
    twin = replace(nominal, offset=offset, efficiency=efficiency, mesh_eta=eta)
    power, fields = coherent_settings(twin, 60, rng)
    readings = []
    for heat, light in zip(power, fields, strict=True):
        set_heater_powers(chip, heat)
        chip.light_ports(light)
        readings.append(chip.detector_powers())
    readings = np.array(readings)
    noise = NoiseModel(1e-4, 1e-6)
    found = find_input_phases(twin, power[:45], fields[:45], readings[:45], noise)
    assert found.verdict == "good", found.reason
    assert coherent_readings(found.twin, power[45:], fields[45:]) == pytest.approx(readings[45:], abs=2e-4)
    assert np.abs(coherent_readings(twin, power[45:], fields[45:]) - readings[45:]).max() > 0.1


def _true_offsets(chip):
    from twins import bare_sections

    from simulated_instruments._geometry import ArmSections

    sections = ArmSections(chip.layout)
    heated = np.array([np.flatnonzero(sections.heater == h)[0] for h in range(len(chip.layout.heaters))])
    offsets = chip.parameters.offset_rad
    return offsets[heated] + bare_arms(chip.layout).effect @ offsets[bare_sections(chip.layout)]


def single_readings(twin, count, seed=0):
    rng = np.random.default_rng(seed)
    return rng.uniform(0.0, 0.04, (count, len(twin.offset))), rng.integers(0, twin.ports, count)


@pytest.mark.parametrize(("ports", "losses"), [(2, 5), (3, 9), (4, 14)])
def test_single_inputs_leave_exactly_the_input_phases_and_movable_losses_open(ports, losses):
    twin = bare_twin(ports, ports)
    heaters = len(twin.offset)
    found = invisible_combinations(twin, *single_readings(twin, 40 + 5 * heaters), NOISE)
    kinds = Counter(combination.kind for combination in found.combinations)
    assert kinds == {
        "input phase": ports - 1,
        "heat on an input phase": (ports - 1) * heaters,
        "curvature of an input phase": ports // 2,  # of phis in front of everything
        "loss": losses,  # MZIs, inputs and gains: K + 2 n
    }
    values = found.singular_values / found.singular_values[0]
    assert values[-len(found.combinations) - 1] > 1e-6 > 1e-12 > values[-len(found.combinations)]


def test_the_combinations_change_no_power_of_a_single_input_but_those_of_coherent_light():
    twin = bare_twin(3, 7)
    power, lit = single_readings(twin, 12)
    found = invisible_combinations(twin, *single_readings(twin, 80), NOISE, ("offset",))
    assert found.names[1] == "offset of mzi_0_0_phi"
    for combination in found.combinations:
        moved = replace(twin, offset=twin.offset + combination.direction)
        before, after = (ChipModel.from_parameters(each).readings(each, power, lit) for each in (twin, moved))
        assert after == pytest.approx(before, rel=1e-12)
        light = unit_fields(3, 12, np.random.default_rng(0))
        assert np.abs(coherent_readings(moved, power, light) - coherent_readings(twin, power, light)).max() > 1e-2


def test_coherent_light_leaves_only_losses_open():
    twin, rng = bare_twin(3, 8), np.random.default_rng(0)
    power, light = rng.uniform(0.0, 0.04, (120, 6)), unit_fields(3, 120, rng)
    found = invisible_combinations(twin, power, light, NOISE)
    assert {combination.kind for combination in found.combinations} == {"loss"}


@pytest.mark.parametrize(("ports", "gains", "open_"), [(4, (), 5), (4, ("output_transmission",), 9), (8, (), 11)])
def test_losses_without_losses_of_arms(ports, gains, open_):
    """Eight ports: 11 of 44, as counted in a Fisher matrix of another program (facts of the method, section 4)."""
    twin = bare_twin(ports, 9)
    blocks = ("mzi_transmission", "input_amplitude", *gains, "gain")
    found = invisible_combinations(twin, *single_readings(twin, 150), NOISE, blocks)
    assert Counter(combination.kind for combination in found.combinations) == {"loss": open_}


def test_the_report_says_it_in_words():
    twin = bare_twin(3, 1)
    text = invisible_combinations(twin, *single_readings(twin, 80), NOISE).text()
    assert text.startswith("24 of 72 combinations of parameters change no power of a single lit input")
    assert "phase of input 1 against input 0" in text
    assert "+1 gain of detector 0, -0.5 transmission of output 0" in text
    assert "complex conjugate" in text
    assert "heat on an input phase: 12 combinations" in text
    full = invisible_combinations(twin, *single_readings(twin, 80), NOISE).text(full=True)
    assert len(full.splitlines()) == 26


def test_data_that_see_less_are_said_to():
    twin = bare_twin(3, 2)
    power, _ = single_readings(twin, 60)
    found = invisible_combinations(twin, power[:2], np.zeros(2, int), NOISE, ("offset", "mesh_eta"))
    assert found.count("unseen by these data") >= 12 - 6 - 2
    with pytest.raises(CalibrationError, match=r"unknown: \['phase'\]"):
        invisible_combinations(twin, power, np.zeros(60, int), NOISE, ("phase",))
    with pytest.raises(CalibrationError, match=r"heater powers .* \(60, 3\); .* needs \(60, 6\)"):
        invisible_combinations(twin, power[:, :3], np.zeros(60, int), NOISE)
    modulated = TwinParameters.nominal(3, input_amplitude=1.0, lo_amplitude=1.0)
    with pytest.raises(CalibrationError, match="without modulators"):
        invisible_combinations(modulated, power, np.zeros(60, int), NOISE)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"lit": np.full(8, 3)}, "lit ports must be 0 to 2, got 3"),
        ({"lit": np.full(8, -1)}, "lit ports must be 0 to 2, got -1"),
        ({"lit": np.zeros(8)}, "must be integers"),
        ({"lit": ["0"] * 8}, "lit must be an array of numbers, got text"),
        ({"lit": [[1, 0], [0]] * 4}, "lit must be an array of numbers"),
        ({"lit": np.zeros(3, int)}, "heater powers of 3 lit ports"),
        ({"lit": np.ones((8, 2))}, r"lit as input fields must be finite and \(8, 3\)"),
        ({"lit": np.full((8, 3), np.nan)}, "lit as input fields must be finite"),
        ({"power_w": np.full((8, 6), np.nan)}, "the power of mzi_0_0_theta in row 0 is nan W"),
        ({"power_w": np.full((8, 6), -0.01)}, "the power of mzi_0_0_theta in row 0 is -0.01 W"),
        ({"power_w": np.full((8, 6), -0.01), "lit": np.ones((8, 3))}, "the power of mzi_0_0_theta in row 0 is -0.01 W"),
        ({"power_w": np.zeros((0, 6)), "lit": np.zeros(0, int)}, "there are no readings"),
        ({"power_w": np.zeros((0, 6)), "lit": np.zeros((0, 3))}, "there are no readings"),
        ({"blocks": "offset"}, "'offset' is text"),
        ({"blocks": ()}, "it is empty"),
        ({"blocks": None}, "no collection of names"),
        ({"blocks": ("offset", "offset")}, "named twice"),
    ],
)
def test_data_that_no_readings_have_are_refused_by_name(changes, message):
    power, lit = np.full((8, 6), 0.01), np.arange(8) % 3
    given = {"power_w": power, "lit": lit, **changes}
    with pytest.raises(CalibrationError, match=message):
        invisible_combinations(bare_twin(3, 2), noise=NOISE, **given)


@given(st.integers(2, 9))
@settings(max_examples=8, deadline=None)
def test_there_are_n_minus_1_input_phases(ports):
    assert np.linalg.matrix_rank(input_effect(ChipLayout(ports, **BARE))) == ports - 1
