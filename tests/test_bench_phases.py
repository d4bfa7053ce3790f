"""Phases and the transfer matrix of a calibrated bench, by its QCoDeS instrument; the judge is the hidden chip."""

import numpy as np
import pytest
import torch
from qcodes.dataset import LinSweep, dond, initialise_or_create_database_at, load_or_create_experiment

from optinc_hw.bench import Bench, PhotonicChip, measure_transfer_matrix
from optinc_hw.errors import CalibrationError, LimitError
from optinc_hw.photonics import ChipModel, fidelity


@pytest.fixture
def bench(calibrated):
    with calibrated.bench() as opened:
        yield opened


@pytest.fixture
def chip(bench):
    chip = PhotonicChip("chip", bench=bench)
    yield chip
    chip.close()


def predicted(bench):
    """The twin's matrix at the present voltages."""
    twin = bench.require_record().twin()
    phases = twin.phases(bench.interlock.power(bench.voltages))
    with torch.no_grad():
        return ChipModel.from_parameters(twin).transfer_matrix(torch.as_tensor(phases)[None])[0].numpy()


def test_a_phase_moves_alone_and_takes_the_least_power(chip):
    names = chip.bench.layout.heaters
    chip.bench.set_voltages(np.full(len(names), 4.0))
    before = chip.phases()
    chip.mzi_1_1_theta.phase(before[names.index("mzi_1_1_theta")] + 0.7)
    moved = chip.phases() - before
    moved[names.index("mzi_1_1_theta")] -= 0.7
    assert moved == pytest.approx(0.0, abs=1e-6)
    period = 2.0 * np.pi / chip.phase_drive().twin.efficiency[names.index("mzi_1_1_theta")]
    for phase in np.linspace(-7.0, 7.0, 15):
        chip.mzi_1_1_theta.phase(phase)
        assert np.angle(np.exp(1j * (chip.mzi_1_1_theta.phase() - phase))) == pytest.approx(0.0, abs=1e-6)
        assert -1e-9 <= chip.mzi_1_1_theta.power() < 1.02 * period


def test_all_phases_at_once(chip):
    rng = np.random.default_rng(0)
    wanted = rng.uniform(0.0, 2.0 * np.pi, len(chip.bench.layout.heaters))
    chip.phases(wanted)
    assert np.exp(1j * chip.phases()) == pytest.approx(np.exp(1j * wanted), abs=2e-2)


def test_what_cannot_be_a_phase_is_refused(chip):
    before = chip.voltages()
    with pytest.raises(LimitError, match="not finite"):
        chip.phase_drive().set({0: np.nan})
    assert np.array_equal(chip.voltages(), before)


def test_measured_matrix_agrees_with_the_twin(chip):
    chip.bench.set_voltages(np.linspace(2.0, 5.0, len(chip.bench.layout.heaters)))
    before = chip.voltages()
    measured = chip.transfer_matrix()
    assert np.array_equal(chip.voltages(), before)
    expected = predicted(chip.bench)
    assert fidelity(measured / np.linalg.norm(measured, 2), expected / np.linalg.norm(expected, 2)) > 0.999
    assert measured == pytest.approx(expected, abs=0.03)


def test_dond_stores_matrix_powers_and_phase(chip, tmp_path):
    initialise_or_create_database_at(str(tmp_path / "data.db"))
    experiment = load_or_create_experiment("test", "sample")
    chip.light(True)
    sweep = LinSweep(chip.mzi_0_0_theta.phase, 1.0, 2.0, 2)
    dataset, _, _ = dond(sweep, chip.transfer_matrix, chip.powers, exp=experiment, do_plot=False)
    data = dataset.to_xarray_dataset()
    assert data["chip_transfer_matrix"].dtype == complex
    assert data["chip_transfer_matrix"].shape == (2, 4, 4)
    assert data["chip_powers"].shape == (2, 8)
    chip.mzi_0_0_theta.phase(2.0)
    stored = data["chip_transfer_matrix"].sel(chip_output_port=1.0, chip_input_port=3.0).values[1]
    assert stored == pytest.approx(measure_transfer_matrix(chip.bench)[1, 3], abs=0.02)  # rows are outputs
    dataset.conn.close()


def test_without_a_calibration_phases_say_what_is_missing():
    with Bench.simulated(ports=2) as bench:
        chip = PhotonicChip("chip", bench=bench)
        for parameter in (chip.lo.phase, chip.phases, chip.transfer_matrix):
            with pytest.raises(CalibrationError, match="no calibration"):
                parameter()
        chip.snapshot(update=True)
        chip.close()
