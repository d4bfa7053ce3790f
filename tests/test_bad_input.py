"""Bad input at the public doors: a clear OptincError, nothing moved, heaters safe, files intact."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch

from optinc_hw import Bench
from optinc_hw.aggregation import Aggregator, BenchExecutor, ExactExecutor, TableExecutor
from optinc_hw.bench import BenchTileRunner, CalibrationRecord, write_bench_folder
from optinc_hw.errors import CalibrationError, ConfigurationError, GradientError, LimitError, MatrixError
from optinc_hw.errors import NetworkError as Mismatch
from optinc_hw.onn import build_exact
from optinc_hw.photonics import RectangularLayout, TwinParameters, decompose, program_matrix, realise

PORTS = 3


@pytest.fixture(scope="module")
def bench():
    with Bench.simulated(ports=PORTS, seed=5) as opened:
        yield opened


@pytest.fixture
def folder(tmp_path) -> Path:
    place = tmp_path / "bench"
    write_bench_folder(
        place, PORTS, {name: f"simulated:{name}" for name in ("laser", "heaters_0", "meter_plus_0", "meter_minus_0")}
    )
    return place


def test_a_bench_folder_appears_whole_or_not_at_all(tmp_path, monkeypatch):
    """Killed between its two files, and tried again."""
    place, names = tmp_path / "bench", ("laser", "heaters_0", "meter_plus_0", "meter_minus_0")
    addresses = {name: f"simulated:{name}" for name in names}

    def killed(path, text):
        if path.name == "chip.yaml":
            raise KeyboardInterrupt
        path.write_text(text, encoding="utf-8")

    with monkeypatch.context() as patch:
        patch.setattr("optinc_hw.bench.write.write_text", killed)
        with pytest.raises(KeyboardInterrupt):
            write_bench_folder(place, PORTS, addresses)
    assert not place.exists()
    write_bench_folder(place, PORTS, addresses)
    assert [entry.name for entry in tmp_path.iterdir()] == ["bench"]
    assert sorted(fingerprint(place)) == ["chip.yaml", "station.yaml"]


def fingerprint(folder: Path) -> dict[str, str]:
    return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir())}


@pytest.mark.parametrize(
    ("file", "old", "new", "names"),
    [
        ("chip.yaml", "averaging_time_s", "averaging_times", ("chip.yaml", "averaging_times")),
        ("chip.yaml", "total_power_w:", "total_power_w: lots #", ("chip.yaml", "total_power_w")),
        ("chip.yaml", "in_0_theta", "in_0_thera", ("chip.yaml", "in_0_thera")),
        ("chip.yaml", f"ports: {PORTS}", "ports: 1", ("chip.yaml", "ports")),
        ("station.yaml", "instruments:", "instrument:", ("station.yaml", "instrument")),
        ("station.yaml", "drivers.SantecTSL570", "drivers.SantecTSL571", ("station.yaml", "SantecTSL571")),
        ("station.yaml", "type:", "typ:", ("station.yaml", "typ")),
    ],
)
def test_wrong_keys_and_values_in_either_file(folder, file, old, new, names):
    text = (folder / file).read_text(encoding="utf-8")
    assert old in text
    (folder / file).write_text(text.replace(old, new, 1), encoding="utf-8")
    before = fingerprint(folder)
    with pytest.raises(ConfigurationError) as caught:
        Bench.open(folder, simulate=True)
    for name in names:
        assert name in str(caught.value)
    assert fingerprint(folder) == before


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(ConfigurationError, match=r"nowhere"):
        Bench.open(tmp_path / "nowhere")


def test_a_missing_calibration_moves_nothing(bench):
    with pytest.raises(CalibrationError, match="calibrate"):
        BenchTileRunner(bench)
    assert not bench.voltages.any()


def test_a_record_of_another_chip_or_a_broken_file(bench, tmp_path):
    broken = tmp_path / "record.json"
    broken.write_text('{"content_hash": "0", "version": 1')
    with pytest.raises(CalibrationError, match=r"record\.json"):
        CalibrationRecord.load(broken)
    with pytest.raises(CalibrationError, match="ports"):
        BenchTileRunner(bench, TwinParameters.nominal(PORTS + 1, input_amplitude=0.03, lo_amplitude=0.02))


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (lambda v, b: v + np.eye(1, len(v), 2)[0] * (b.max_voltage[2] + 0.1), ("in_1_theta", "V")),
        (lambda v, b: v + np.eye(1, len(v), 3)[0] * np.nan, ("V",)),
        (lambda v, b: v - 0.5, ("in_0_theta", "V")),
        (lambda v, b: v + 0.97 * b.max_voltage, ("W",)),
        (lambda v, b: v[:-1], ("heaters",)),
    ],
)
def test_a_limit_exceeded_moves_nothing(bench, change, names):
    with pytest.raises(LimitError) as caught:
        bench.set_voltages(change(np.zeros(len(bench.layout.heaters)), bench))
    for name in names:
        assert name in str(caught.value)
    assert not bench.voltages.any()
    assert np.abs(bench.read_heaters().voltage_v).max() < 0.01


@pytest.mark.parametrize(
    "matrix",
    [np.zeros((PORTS + 1, 2)), np.zeros((2, PORTS + 1)), np.zeros(3), 1.1 * np.eye(2), np.full((2, 2), np.nan)],
)
def test_a_matrix_that_does_not_fit(bench, matrix):
    twin = TwinParameters.nominal(PORTS, input_amplitude=0.03, lo_amplitude=0.02)
    runner = BenchTileRunner(bench, twin)
    with pytest.raises(MatrixError):
        runner.program(matrix)
    with pytest.raises(CalibrationError, match="program"):
        runner.forward(np.zeros((1, 2)))
    assert not bench.voltages.any()


@pytest.mark.parametrize("amplitudes", [np.full((1, 2), 1.01), np.full((1, 2), np.nan), np.zeros((1, 3)), np.zeros(2)])
def test_amplitudes_that_no_modulator_can_send(amplitudes):
    twin = TwinParameters.nominal(PORTS, input_amplitude=0.03, lo_amplitude=0.02)
    with pytest.raises(MatrixError):
        program_matrix(twin, 0.5 * np.eye(2)).drive(amplitudes)


@pytest.mark.parametrize(
    "bad", [0.9 * np.eye(3), np.full((3, 3), np.nan), np.eye(4), np.ones((2, 3)), np.zeros((0, 0))]
)
def test_a_matrix_that_is_not_unitary(bad):
    with pytest.raises(MatrixError):
        decompose(bad, RectangularLayout(3))


def test_a_matrix_that_is_not_real():
    with pytest.raises(MatrixError, match="real"):
        realise(1j * np.eye(2))


def gradients(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    return [torch.ones(shape) for shape in shapes]


@pytest.mark.parametrize(
    ("tensors", "error"),
    [
        (gradients((3,), (3,), (3,)), (GradientError, Mismatch)),
        (gradients(*[(3,)] * 5), (GradientError, Mismatch)),
        (gradients((3,), (3,), (3,), (4,)), GradientError),
        ([*gradients((3,), (3,), (3,)), torch.ones(3, dtype=torch.float64)], GradientError),
        ([*gradients((3,), (3,), (3,)), torch.tensor([0.0, float("nan"), 1.0])], GradientError),
        ([*gradients((3,), (3,), (3,)), torch.tensor([0.0, float("inf"), 1.0])], GradientError),
    ],
)
def test_gradients_that_cannot_be_averaged(tensors, error):
    aggregator = Aggregator(ExactExecutor(4))
    copies = [t.clone() for t in tensors]
    with pytest.raises(error):
        aggregator.mean(tensors)
    for tensor, copy in zip(tensors, copies, strict=True):
        np.testing.assert_array_equal(tensor.numpy(), copy.numpy())


@pytest.mark.parametrize("codes", [np.zeros((2, 3), int), np.full((2, 4), 256), np.full((2, 4), -1), np.zeros((2, 4))])
def test_codes_that_do_not_match_the_network(bench, codes):
    network = build_exact(4, 8)
    twin = TwinParameters.nominal(PORTS, input_amplitude=0.03, lo_amplitude=0.02)
    for executor in (
        ExactExecutor(4),
        TableExecutor.from_executor(ExactExecutor(4, 4)),
        BenchExecutor(network, BenchTileRunner(bench, twin)),
    ):
        with pytest.raises(Mismatch):
            executor.run(codes)
    assert not bench.voltages.any()


def test_a_network_that_does_not_exist():
    with pytest.raises(Mismatch, match="at least 2 servers"):
        build_exact(1, 8)
