"""The mesh of OptINC's own chip through its modulators and receivers: fields, and what they tell about its ports."""

from dataclasses import replace

import numpy as np
import pytest
from journaled_runs import BETA_PER_W, OHM, CountingBench, true_twin

from calibration import NoiseModel
from calibration._electrical import measure_dark, measure_fringes, measure_resistances, use_fringes, use_resistances
from calibration._field_mesh import FieldProbe, find_mesh
from calibration._homodyne_run import _first_twin
from calibration._optical import find_attenuators, find_generator
from calibration._session import Session
from optinc_hw.errors import CalibrationError
from optinc_hw.photonics import ChipModel

PORTS = 5
NOISE = NoiseModel(1e-3, 2e-9)


def started(folder, ports, seed=0):
    """A session that is ready for the mesh."""
    bench = CountingBench(folder, ports, seed)
    session = Session(bench, np.random.default_rng(seed), lambda *_: None)
    session.dark_w = measure_dark(session)["dark_readings"].mean(axis=0)
    use_resistances(session, measure_resistances(session))
    use_fringes(session, measure_fringes(session))
    find_attenuators(session)
    find_generator(session)
    return session


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    session = started(tmp_path_factory.mktemp("bench"), PORTS)
    return session, *find_mesh(session, NOISE)


def given(folder, ports, seed=0):
    """A session that knows all that the stages before find, as it is: what follows is the mesh alone."""
    bench, truth = CountingBench(folder, ports, seed), true_twin(ports, seed)
    session = Session(bench, np.random.default_rng(seed), lambda *_: None)
    session.resistance_ohm, session.beta_per_w = np.full(len(truth.offset), OHM), np.full(len(truth.offset), BETA_PER_W)
    session.efficiency, session.offset = truth.efficiency.copy(), truth.offset.copy()
    for heaters, phase in ((truth.layout.input_theta, 0.0), (truth.layout.attenuator, np.pi)):
        for heater in heaters.tolist():
            session.power[heater] = session.power_for_phase(heater, phase)
    return session


def beats_of(twin, powers):
    """Differences (B, n) in W of each receiver's photodiodes at heater powers (B, H) in W."""
    readings = ChipModel.from_parameters(twin).readings(twin, powers)
    return readings[:, : twin.ports] - readings[:, twin.ports :]


def test_fields_are_those_of_one_input_alone(found):
    """Half the quadratures of the true chip's beats, with every other input's light turned off."""
    session, mesh, raw = found
    truth, chip = true_twin(PORTS, 0), session.layout
    for port in range(PORTS):
        alone = replace(truth, input_amplitude=np.where(np.arange(PORTS) == port, truth.input_amplitude, 1e-12))
        rows = np.flatnonzero(raw["mesh_lit"] == port)[:4]
        powers = np.tile(session.power, (len(rows), 1))
        powers[:, mesh.heaters] = raw["mesh_power"][rows]
        powers[:, chip.input_theta[port]] = session.power_for_phase(int(chip.input_theta[port]), np.pi)
        powers[:, chip.input_phi[port]] = 0.0
        for quadrature, part in ((0.0, 1), (np.pi / 2, 0)):
            powers[:, chip.lo] = quadrature / session.efficiency[chip.lo]
            told = beats_of(alone, powers) * (0.5 if part else -0.5)
            seen = raw["mesh_fields"][rows, :, part]
            np.testing.assert_allclose(seen, told, atol=0.06 * np.abs(told).max())


def test_the_first_twin_predicts_beats_of_any_setting(found):
    """Amplitudes are known to what a matrix of unit gains tells; phases to what two tenths of a radian cost."""
    session, mesh, _ = found
    truth, rng = true_twin(PORTS, 0), np.random.default_rng(5)
    first = _first_twin(session, mesh)
    powers = rng.uniform(size=(200, len(first.offset))) * session.period_w
    told, seen = (beats_of(twin, powers) for twin in (first, truth))
    for output in range(PORTS):
        assert np.corrcoef(told[:, output], seen[:, output])[0, 1] > 0.98
        assert told[:, output].std() == pytest.approx(seen[:, output].std(), rel=0.2)


def test_light_need_not_find_its_way_through_a_large_mesh(tmp_path):
    """With 16 ports a way through MZIs in random states passes less light than what leaks around it."""
    session = given(tmp_path, 16)
    mesh, _ = find_mesh(session, NOISE)
    assert mesh.coherence > 0.98
    assert all(verdict.good for verdict in mesh.start.verdicts)
    first, truth = _first_twin(session, mesh), true_twin(16, 0)
    powers = np.random.default_rng(5).uniform(size=(40, len(first.offset))) * session.period_w
    told, seen = (beats_of(twin, powers) for twin in (first, truth))
    assert np.corrcoef(told.ravel(), seen.ravel())[0, 1] > 0.95


def test_fields_count_and_the_session_stays_as_it_was(tmp_path):
    session = started(tmp_path, 3)
    before, taken = session.power.copy(), session.bench.readings
    probe = FieldProbe(session)
    power = np.full((4, 6), 0.01)
    assert probe.measure("some", power, np.array([0, 1, 2, 0])).shape == (4, 3)
    assert (probe.readings, session.bench.readings - taken) == (4, 4 * 8)
    np.testing.assert_array_equal(session.power, before)
    assert probe.max_total_power_w < session.bench.max_total_power


def test_an_oscillator_that_wanders_is_named(tmp_path, monkeypatch):
    session = started(tmp_path, 3)
    rng, measure = np.random.default_rng(0), FieldProbe.measure

    def wandering(self, stage, power_w, lit):
        found = measure(self, stage, power_w, lit)
        self.fields[-len(lit) :] *= np.exp(2j * np.pi * rng.random((len(lit), 3)))
        return found

    monkeypatch.setattr(FieldProbe, "measure", wandering)
    with pytest.raises(CalibrationError, match=r"fields' phases do not fit their powers \(coherence 0\.\d+, 0\.6 is"):
        find_mesh(session, NOISE)


def test_a_dead_mesh_heater_is_named(tmp_path):
    session = started(tmp_path, 3)
    heater = session.layout.heaters.index("mzi_1_1_phi")
    bench, alive = session.bench, session.bench.set_voltages
    bench.set_voltages = lambda voltages: alive(np.where(np.arange(len(voltages)) == heater, 0.0, voltages))
    with pytest.raises(CalibrationError, match="without effect on the light: mzi_1_1_phi; a chip with modulators and"):
        find_mesh(session, NOISE)
