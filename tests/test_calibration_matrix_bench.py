"""Transfer matrices measured on a simulated bench through its drivers, with modulators that do not close."""

import zlib
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from test_calibration_record import record_of
from twins import bare_sections, matched_twin

from calibration import NoiseModel
from calibration._matrix_compare import compare_matrices
from calibration._matrix_measure import (
    ModulatedInputs,
    coherent_settings,
    measure_generic_inputs,
    measure_homodyne,
    measure_two_port,
)
from calibration._matrix_sources import twin_matrix
from optinc_hw.bench import Bench
from optinc_hw.errors import CalibrationError, LinkError
from optinc_hw.photonics import ChipLayout, TwinParameters
from optinc_hw.photonics.arms import bare_arms
from optinc_hw.photonics.program import modulator_range
from optinc_hw.units import dbm_to_watt
from simulated_instruments import HiddenChip, HiddenEffects
from simulated_instruments._geometry import ArmSections

NOISE = NoiseModel(1e-3, 1e-9)


@pytest.fixture(scope="module")
def bench():
    """A bench whose record is the truth, but for what a twin cannot hold (each arm's own loss)."""
    with Bench.simulated(ports=4, seed=1) as bench:
        hidden = HiddenChip.from_seed(1, 4)
        truth = hidden.parameters
        twin = matched_twin(hidden, dbm_to_watt(bench.description.chip.laser.power_dbm))
        own = np.diagonal(twin.crosstalk)
        twin = replace(twin, crosstalk=twin.crosstalk / own, efficiency=twin.efficiency * own)
        electrical = {"resistance_ohm": truth.resistance_ohm, "beta_per_w": truth.resistance_growth_per_w}
        bench.save_record(record_of(twin, **electrical))
        power = np.random.default_rng(3).uniform(0.0, 0.03, len(twin.offset))
        opened = twin.layout.attenuator
        power[opened] = ((np.pi - twin.offset) % (2 * np.pi) / twin.efficiency)[opened]
        bench.set_voltages(bench.interlock.voltage(power))
        bench.settle()
        bench.light(on=True)
        yield bench


@pytest.fixture(scope="module")
def homodyne(bench):
    return measure_homodyne(bench, repeats=3)


@pytest.fixture
def inputs(bench):
    return ModulatedInputs(bench, NOISE, lambda *_: None)


def test_homodyne_receivers_measure_what_the_twin_says(bench, homodyne):
    twin = bench.require_record().twin()
    expected = twin_matrix(twin, bench.interlock.power(bench.voltages))
    assert (homodyne.verdict, homodyne.gauge) == ("good", "none")
    assert compare_matrices(homodyne.matrix, expected, "global", "none").residual < 0.02


@pytest.mark.parametrize(
    ("measure", "readings"),
    [
        (lambda inputs: measure_two_port(inputs, steps=8), 4 + 3 * 8),
        (lambda inputs: measure_generic_inputs(inputs, np.random.default_rng(0)), 24),
    ],
)
def test_powers_alone_measure_the_same_matrix(bench, inputs, homodyne, measure, readings):
    before, count = bench.voltages, bench.readings
    found = measure(inputs)
    assert bench.readings - count == readings
    np.testing.assert_array_equal(bench.voltages, before)
    assert found.verdict == "good", found.reason
    seen = compare_matrices(found.matrix, homodyne.matrix, "outputs", "none")
    assert seen.fidelity > 0.9999
    assert seen.residual < 0.01


def test_closed_modulators_leak_and_the_source_says_so(bench, inputs):
    full, floor = modulator_range(bench.require_record().twin())
    entered, powers = inputs.measure("one input", np.eye(4, dtype=complex)[:1])
    assert np.abs(entered[0, 0]) == pytest.approx(full.min(), rel=1e-6)
    assert np.abs(entered[0, 1:]) == pytest.approx(floor[1:], rel=1e-3)
    assert floor[1:].min() > 0.01 * full.min()
    assert powers.shape == (1, 4)


@pytest.fixture
def shutter(bench):
    """Whether the laser itself says that light goes out; on again afterwards, for the other tests."""
    yield lambda: bool(bench.station.components["laser"].shutter_open.get())
    bench.light(on=True)


def failing(monkeypatch, bench, method, call, error):
    """Let one call of a method of the bench fail."""
    known, calls = getattr(bench, method), []

    def changed(*arguments, **named):
        calls.append(arguments)
        if len(calls) == call:
            raise error
        return known(*arguments, **named)

    monkeypatch.setattr(bench, method, changed)


ENDS = [
    None, CalibrationError("range"), LinkError("gone"), ValueError("not of this package"), KeyboardInterrupt("stop"),
]  # fmt: skip
"""How an experiment ends: as it should, by an error, by Ctrl-C."""


@pytest.mark.parametrize("lit", [True, False])
@pytest.mark.parametrize("end", ENDS)
def test_homodyne_measurements_leave_heaters_and_light_as_they_were(bench, shutter, monkeypatch, lit, end):
    bench.light(on=lit)
    before = bench.voltages
    if end is None:
        measure_homodyne(bench, 2)
    else:
        failing(monkeypatch, bench, "read_detectors", 19, end)
        with pytest.raises(type(end), match=str(end)):
            measure_homodyne(bench, 2)
    assert shutter() == lit
    assert bench.light_on == lit
    np.testing.assert_array_equal(bench.voltages, before)


def test_a_laser_that_does_not_close_is_a_note_of_what_ended_the_measurement(bench, shutter, monkeypatch):
    bench.light(on=False)
    light = bench.light

    def stuck(on):
        if not on:
            raise LinkError("the laser does not answer")
        light(on=True)

    monkeypatch.setattr(bench, "light", stuck)
    failing(monkeypatch, bench, "read_detectors", 3, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt) as caught:
        measure_homodyne(bench, 2)
    assert caught.value.__notes__ == ["and the light could not be left off, as it was: the laser does not answer"]
    monkeypatch.undo()
    bench.light(on=False)
    failing(monkeypatch, bench, "light", 3, LinkError("the laser does not answer"))
    with pytest.raises(LinkError, match="does not answer"):
        measure_homodyne(bench, 2)


@pytest.mark.parametrize("end", ENDS[1:])
@pytest.mark.parametrize(
    "measure", [measure_two_port, lambda inputs: measure_generic_inputs(inputs, np.random.default_rng(0))]
)
def test_measurements_by_powers_leave_heaters_and_light_as_they_were(bench, shutter, monkeypatch, measure, end):
    told = []

    def progress(stage, done, total):
        told.append(stage)
        if len(told) == 6:
            raise end

    before = bench.voltages
    with pytest.raises(type(end), match=str(end)):
        measure(ModulatedInputs(bench, NOISE, progress))
    assert shutter()
    np.testing.assert_array_equal(bench.voltages, before)


@pytest.mark.parametrize("wrong", [0, -1, 2.5, True, "4", 1e9, None])
def test_counts_that_are_none_are_refused_before_anything_is_measured(bench, inputs, wrong):
    before, count = bench.voltages, bench.readings
    refused = pytest.raises(CalibrationError, match="must be a whole number of at least")
    with refused:
        measure_homodyne(bench, wrong)
    with refused:
        measure_two_port(inputs, steps=wrong)
    if wrong is not None:
        with refused:
            measure_two_port(inputs, most=wrong)
        with refused:
            measure_generic_inputs(inputs, np.random.default_rng(0), count=wrong)
    with refused:
        coherent_settings(bench.require_record().twin(), -1 if wrong == 0 else wrong, np.random.default_rng(0))
    assert bench.readings == count
    np.testing.assert_array_equal(bench.voltages, before)


@pytest.mark.parametrize(
    "fields",
    [
        np.eye(3), np.ones(4), np.full((1, 4), np.nan), np.full((1, 4), np.inf), [[1, 0, 0, "a"]], [[1, 0], [1]], None,
        np.zeros((1, 4, 1)),
    ],
)  # fmt: skip
def test_fields_of_another_shape_or_kind_are_refused(bench, inputs, fields):
    count = bench.readings
    with pytest.raises(CalibrationError, match="fields must be"):
        inputs.measure("fields", fields)
    assert bench.readings == count


def test_no_fields_are_no_readings(bench, inputs):
    entered, powers = inputs.measure("nothing", np.zeros((0, 4), complex))
    assert (entered.shape, powers.shape) == ((0, 4), (0, 4))


def test_sources_of_other_chips_are_refused():
    bare = SimpleNamespace(layout=ChipLayout(2, inputs="ports", receivers="power"))
    with pytest.raises(CalibrationError, match="no input modulators"):
        ModulatedInputs(bare, NOISE, lambda *_: None)
    with pytest.raises(CalibrationError, match="no homodyne receivers"):
        measure_homodyne(bare)


class ModulatedChip:
    """What `ModulatedInputs` needs of a bench, around a hidden chip with modulators and power detectors."""

    def __init__(self, ports, seed):
        effects = replace(HiddenEffects.none(), offset_range_rad=2 * np.pi, coupler_spread_rad=0.03)
        self._chip = HiddenChip.from_seed(seed, ports, effects=effects, inputs="modulators", receivers="power")
        self._chip.set_laser(1.0, effects.design_wavelength_m)
        self.layout = self._chip.layout
        ohm = self._chip.parameters.resistance_ohm
        self.interlock = SimpleNamespace(power=lambda v: v**2 / ohm, voltage=lambda p: np.sqrt(p * ohm))
        self.set_voltages(np.zeros(len(self.layout.heaters)))

    def require_record(self):
        truth, n = self._chip.parameters, self.layout.ports
        sections = ArmSections(self.layout)
        heated = np.array([np.flatnonzero(sections.heater == h)[0] for h in range(len(self.layout.heaters))])
        pushed = bare_arms(self.layout).effect @ truth.offset_rad[bare_sections(self.layout)]
        eta = np.stack([truth.eta_in_rad, truth.eta_out_rad], axis=1)
        nominal = TwinParameters.nominal(
            n, input_amplitude=1.0 / np.sqrt(n), lo_amplitude=1.0, inputs="modulators", receivers="power"
        )
        twin = replace(
            nominal,
            offset=truth.offset_rad[heated] + pushed,
            efficiency=np.pi / truth.pi_power_w,
            input_eta=eta[:n],
            mesh_eta=eta[n:],
        )
        return SimpleNamespace(twin=lambda: twin)

    def set_voltages(self, voltages):
        self.voltages = voltages
        self._chip.set_heater_voltages(dict(enumerate(voltages.tolist())))
        self._chip.clock.sleep(1.0)

    def measure(self, voltages):
        self.set_voltages(voltages)
        rng = np.random.default_rng(zlib.crc32(voltages.tobytes()))
        power = self._chip.detector_powers()
        noisy = power + NOISE.sigma(power) * rng.standard_normal(len(power))
        return SimpleNamespace(power_w=noisy, valid=np.ones(len(power), bool))


@pytest.mark.parametrize("ports", [2, 5])
def test_modulators_and_power_detectors_measure_the_hidden_matrix(ports):
    chip = ModulatedChip(ports, ports)
    chip.set_voltages(np.random.default_rng(0).uniform(1.0, 6.0, len(chip.layout.heaters)))
    expected = twin_matrix(chip.require_record().twin(), chip.interlock.power(chip.voltages))
    source = ModulatedInputs(chip, NOISE, lambda *_: None)
    for found in (measure_two_port(source), measure_generic_inputs(source, np.random.default_rng(1))):
        assert found.verdict == "good", found.reason
        seen = compare_matrices(found.matrix, expected, "outputs", "none")
        assert seen.residual < 3e-3
        assert seen.conjugate_fidelity < 0.99 or ports == 2
