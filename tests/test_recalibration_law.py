"""Resistance laws of re-calibrations: they grow better while nothing changes, and follow what does."""

import numpy as np
import pytest
from true_records import TrueMesh

from calibration import CalibrationRecord, fit_resistance, read_run, recalibrate
from calibration._electrical import measure_resistances, use_resistances
from calibration._mesh_law import combined_law
from calibration._run_file import RunFile
from calibration._session import Session
from optinc_hw.errors import CalibrationError

HEATERS, OHM, BETA, TOP_W = 400, 1000.0, 0.7, 0.06
SIGMA = np.array([1.3, 0.02])
"""Standard deviations of R0 in ohm and beta in 1/W."""
CORRELATION = -0.8
COVARIANCE = np.outer(SIGMA, SIGMA) * np.array([[1.0, CORRELATION], [CORRELATION, 1.0]])
COVARIANCES = np.tile(COVARIANCE, (HEATERS, 1, 1))
TOP = np.full(HEATERS, TOP_W)


def measured_law(rng, ohm=OHM):
    noise = rng.multivariate_normal(np.zeros(2), COVARIANCE, HEATERS)
    return ohm + noise[:, 0], BETA + noise[:, 1]


def rms(values):
    return float(np.sqrt(np.mean(np.square(values))))


def test_laws_that_agree_are_averaged():
    rng = np.random.default_rng(0)
    ohm, beta = combined_law(measured_law(rng), measured_law(rng), COVARIANCES, TOP)
    assert rms(ohm - OHM) == pytest.approx(SIGMA[0] / np.sqrt(2.0), rel=0.1)
    assert rms(beta - BETA) == pytest.approx(SIGMA[1] / np.sqrt(2.0), rel=0.1)


def test_many_measurements_do_not_add_up_their_noise():
    """Weights of 1/2, 1/4, 1/8, ... have squares that sum up to 1/3."""
    rng = np.random.default_rng(1)
    law = measured_law(rng)
    for _ in range(20):
        law = combined_law(law, measured_law(rng), COVARIANCES, TOP)
    assert rms(law[0] - OHM) == pytest.approx(SIGMA[0] / np.sqrt(3.0), rel=0.1)


@pytest.mark.parametrize("change", [-0.02, -0.002, 0.002, 0.02])
def test_what_all_resistances_do_is_followed_at_once_and_not_half(change):
    """2 per mille is 1.5 standard deviations of a single heater, and 21 of the median of all."""
    rng = np.random.default_rng(2)
    ohm, _ = combined_law(measured_law(rng), measured_law(rng, OHM * (1.0 + change)), COVARIANCES, TOP)
    error = ohm - OHM * (1.0 + change)
    assert abs(error.mean()) < 5.0 * SIGMA[0] / np.sqrt(HEATERS)
    assert rms(error) < 0.85 * SIGMA[0]


def test_heaters_that_changed_by_themselves_have_their_new_law():
    rng = np.random.default_rng(3)
    now = np.full(HEATERS, OHM)
    now[[5, 77]] *= 0.98
    new = measured_law(rng, now)
    ohm, beta = combined_law(measured_law(rng), new, COVARIANCES, TOP)
    for heater in (5, 77):
        assert (ohm[heater], beta[heater]) == (new[0][heater], new[1][heater])
    assert rms(ohm - now) < 0.8 * SIGMA[0]


def test_a_growth_that_changed_alone_is_followed_too():
    """At zero power both laws agree, at full power they do not."""
    rng = np.random.default_rng(4)
    new = measured_law(rng)
    new[1][9] += 0.5
    _, beta = combined_law(measured_law(rng), new, COVARIANCES, TOP)
    assert beta[9] == new[1][9]


def test_heaters_that_were_not_measured_keep_what_stands_for_them():
    rng = np.random.default_rng(5)
    old, new = measured_law(rng), measured_law(rng)
    unknown = COVARIANCES.copy()
    unknown[3] = np.nan
    ohm, beta = combined_law(old, new, unknown, TOP)
    assert (ohm[3], beta[3]) == (new[0][3], new[1][3])
    ohm, beta = combined_law(old, new, np.full_like(unknown, np.nan), TOP)
    np.testing.assert_array_equal([ohm, beta], new)


def test_without_any_noise_the_new_law_is_the_law():
    old, new = (np.full(HEATERS, ohm) for ohm in (OHM, OHM + 1e-6))
    growth = np.full(HEATERS, BETA)
    ohm, _ = combined_law((old, growth), (new, growth), np.zeros_like(COVARIANCES), TOP)
    np.testing.assert_array_equal(ohm, new)


def law_of(bench):
    session = Session(bench, np.random.default_rng(0), lambda *_: None)
    use_resistances(session, measure_resistances(session))
    return session.resistance_ohm, session.beta_per_w


def recorded(mesh, law):
    """The record of the true twin with this law."""
    record = mesh.record()
    nothing = np.zeros(len(mesh.twin.offset))
    return CalibrationRecord.from_twin(mesh.twin, *law, (nothing, nothing), record.quality, record.provenance)


def single_of(path):
    """Resistances (H,) in ohm that the currents in a run's file tell by themselves."""
    steps = [step.answered for step in read_run(path).steps if step.stage == "heater resistances"]
    voltage = np.stack([step["measured_voltage_v"] for step in steps])
    current = np.stack([step["measured_current_a"] for step in steps])
    group = np.argmax(voltage.max(axis=1), axis=0)  # every heater is stepped in one of the groups
    return np.array(
        [
            fit_resistance(current[group[h], :, h], voltage[group[h], :, h]).resistance_ohm
            for h in range(voltage.shape[2])
        ]
    )


@pytest.fixture(scope="module")
def mesh():
    return TrueMesh.of("method_a", 4, 0)


def test_records_get_better_resistances_while_a_chip_does_not_change(mesh, tmp_path):
    truth = mesh.chip.parameters.resistance_ohm
    ours, singles = [], []
    with mesh.bench() as bench:
        record = recorded(mesh, law_of(bench))
        for turn in range(4):
            path = tmp_path / f"{turn}.nc"
            record = recalibrate(bench, record, data_file=path)
            ours.append(record.resistance_ohm / truth - 1.0)
            singles.append(single_of(path) / truth - 1.0)
    assert rms(singles) > 5e-4
    assert rms(ours) < 0.8 * rms(singles)


def test_records_follow_resistances_that_all_fell(mesh):
    now = 0.98 * mesh.chip.parameters.resistance_ohm
    with mesh.bench() as before:
        old = law_of(before)
    with mesh.bench(drift={"resistance_change": -0.02}) as bench:
        error = recalibrate(bench, recorded(mesh, old)).resistance_ohm / now - 1.0
    assert abs(np.mean(error)) < 2e-3  # half of the old law would leave 1 %
    assert rms(error) < 3e-3


def test_a_record_follows_one_resistance_that_fell(mesh, tmp_path):
    name, path = "mzi_1_1_theta", tmp_path / "run.nc"
    at = mesh.twin.layout.heater_index[name]
    fallen = 0.98 * float(mesh.chip.parameters.resistance_ohm[at])
    with mesh.bench() as before:
        old = law_of(before)
    with mesh.bench(truth={"resistance_ohm": {name: fallen}}) as bench:
        record = recalibrate(bench, recorded(mesh, old), data_file=path)
    assert record.resistance_ohm[at] == single_of(path)[at]
    assert record.resistance_ohm[at] == pytest.approx(fallen, rel=5e-3)


def test_a_resumed_recalibration_finds_the_same_law(mesh, tmp_path, monkeypatch):
    path = tmp_path / "run.nc"
    with mesh.bench() as bench:
        record = recorded(mesh, law_of(bench))
        with monkeypatch.context() as patch:
            patch.setattr(RunFile, "finish", lambda *_: (_ for _ in ()).throw(CalibrationError("killed")))
            with pytest.raises(CalibrationError, match="killed"):
                recalibrate(bench, record, data_file=path)
        taken = bench.readings
        one = recalibrate(bench, record, resume=f"{path}.journal")
        assert bench.readings == taken
        again = recalibrate(bench, record, resume=path)
        assert bench.readings == taken
    np.testing.assert_array_equal(one.resistance_ohm, again.resistance_ohm)
    np.testing.assert_array_equal(one.resistance_beta_per_w, again.resistance_beta_per_w)
    assert (one.resistance_ohm != single_of(path)).all()
