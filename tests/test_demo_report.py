"""The demo's report folder, summary, page and pictures."""

import io
import json
from dataclasses import replace

import numpy as np
import pytest

from optinc_hw.demo import DemoSummary, ReportFolder
from optinc_hw.demo._chip import MatrixMeasurement, SampleRun
from optinc_hw.demo._chip_figures import PhaseCurve, full_matrix, held_out, phase_curves, tiles
from optinc_hw.demo._gradient_figures import symbols, training
from optinc_hw.demo._page import Picture, page
from optinc_hw.demo._training import TrainingComparison, TrainingRun
from optinc_hw.errors import ConfigurationError

GOOD = DemoSummary(
    version="1", ports=8, seed=0, readings=5000, bench_readings=9000, twin_residual_over_noise=2.0,
    noise_relative=1e-3, noise_floor_w=5e-9, bench_elements=2000, bench_symbol_error_rate=0.0,
    uncalibrated_elements=400, uncalibrated_symbol_error_rate=0.7, twin_symbol_error_rate=0.0, twin_inputs=28561,
    twin_sample_symbol_error_rate=0.0, accuracy_optical=0.965, accuracy_float=0.975, accuracy_optical_runs=(0.965,),
    accuracy_float_runs=(0.975,), seconds={"total": 90.0},
)  # fmt: skip


class TestFolder:
    def test_a_new_folder_is_made_with_its_parents(self, tmp_path):
        report = ReportFolder.claim(tmp_path / "a" / "b")
        report.write_text("x.txt", "über\n")
        assert (tmp_path / "a" / "b" / "x.txt").read_text(encoding="utf-8") == "über\n"

    def test_an_empty_folder_is_taken(self, tmp_path):
        ReportFolder.claim(tmp_path).write_json("x.json", [1])
        assert json.loads((tmp_path / "x.json").read_text()) == [1]

    def test_a_foreign_folder_is_refused_and_kept(self, tmp_path):
        (tmp_path / "mine").write_text("1")
        with pytest.raises(ConfigurationError, match=r"holds files that no demo wrote.*--out"):
            ReportFolder.claim(tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["mine"]

    def test_a_file_is_refused(self, tmp_path):
        (tmp_path / "file").write_text("1")
        with pytest.raises(ConfigurationError, match="is a file"):
            ReportFolder.claim(tmp_path / "file")

    def test_an_earlier_report_loses_what_would_lie_about_the_new_one_and_nothing_else(self, tmp_path):
        report = ReportFolder.claim(tmp_path)
        report.write_json("summary.json", {})
        report.bench.mkdir()
        for name in ("chip.yaml", "station.yaml", "calibration_simulated_7.json", "notes.txt"):
            (report.bench / name).write_text("old")
        report.write_text("notes.txt", "mine")
        ReportFolder.claim(tmp_path)
        left = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
        assert left == [".optinc-demo", "bench/notes.txt", "notes.txt"]

    def test_a_failed_write_keeps_the_old_file(self, tmp_path):
        report = ReportFolder.claim(tmp_path)
        report.write_text("x.txt", "old")

        def interrupted():
            with report.writing("x.txt") as part:
                part.write_text("half")
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            interrupted()
        assert (tmp_path / "x.txt").read_text() == "old"
        assert sorted(path.name for path in tmp_path.iterdir()) == [".optinc-demo", "x.txt"]


class TestCriteria:
    def test_a_good_summary_passes_with_one_point_of_accuracy_lost(self):
        assert GOOD.passed
        assert all(criterion.passed for criterion in GOOD.criteria)

    @pytest.mark.parametrize(
        ("changes", "name"),
        [
            ({"twin_residual_over_noise": 3.01}, "twin_residual_over_noise"),
            ({"twin_residual_over_noise": float("nan")}, "twin_residual_over_noise"),
            ({"bench_elements": 1999}, "bench_elements"),
            ({"bench_symbol_error_rate": 0.001}, "bench_symbol_error_rate"),
            ({"uncalibrated_symbol_error_rate": 0.2}, "uncalibrated_symbol_error_rate"),
            ({"accuracy_optical": 0.96}, "accuracy_float - accuracy_optical"),
            ({"accuracy_optical": 0.6, "accuracy_float": 0.6}, "accuracy_float"),
        ],
    )
    def test_each_criterion_can_fail_alone(self, changes, name):
        missed = [criterion.name for criterion in replace(GOOD, **changes).criteria if not criterion.passed]
        assert missed == [name]

    def test_json_has_the_agreed_keys_and_no_nan(self):
        content = json.loads(json.dumps(replace(GOOD, noise_floor_w=float("nan")).to_json_dict(), allow_nan=False))
        assert content["noise_floor_w"] is None
        assert content["passed"] is True
        assert "crosstalk" in content["limits"]
        agreed = {
            "ports", "seed", "readings", "twin_residual_over_noise", "bench_elements", "bench_symbol_error_rate",
            "uncalibrated_symbol_error_rate", "twin_symbol_error_rate", "accuracy_optical", "accuracy_float", "seconds",
        }  # fmt: skip
        assert agreed <= set(content)


def test_the_page_shows_figures_pictures_and_files():
    text = page(replace(GOOD, bench_elements=12), (Picture("a.png", "A <b>", "c & d"),), {"data.nc": "the data"})
    for part in ("not done", 'src="a.png"', "A &lt;b&gt;", "c &amp; d", 'href="data.nc"', "crosstalk", "not met"):
        assert part in text
    assert "A <b>" not in text
    assert "not done" not in page(GOOD, (), {})


def texts(figure):
    found = [axes.get_xlabel() for axes in figure.axes] + [axes.get_ylabel() for axes in figure.axes]
    return " | ".join(found + [axes.get_title() for axes in figure.axes])


def is_png(figure):
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=40)
    return stream.getvalue().startswith(b"\x89PNG")


class TestPictures:
    def test_phase_curves_state_the_power_for_pi(self):
        power = np.linspace(0.0, 0.05, 14)
        reading = 2e-4 + 1e-4 * np.cos(np.pi / 0.0215 * power + 1.0)
        figure = phase_curves([PhaseCurve(f"h{k}", power, reading, "rx_0_plus") for k in range(4)])
        assert "21.500" in texts(figure)
        assert "(mW)" in texts(figure)
        assert "(µW)" in texts(figure)
        assert is_png(figure)

    def test_held_out_states_the_rms_over_the_noise(self):
        rng = np.random.default_rng(0)
        measured = rng.uniform(1e-6, 1e-4, (500, 4))
        figure = held_out(measured, measured + 2e-8 * rng.standard_normal((500, 4)), np.full((500, 4), 1e-8))
        label = figure.axes[2].get_legend_handles_labels()[1][0]
        assert float(label.removeprefix("twin, rms ")) == pytest.approx(2.0, rel=0.05)
        assert is_png(figure)

    def test_matrices_show_target_measured_difference_and_uncalibrated(self):
        target = np.array([[0.5, -0.25, 0.0], [0.0, 0.1, 0.2]])
        one = MatrixMeasurement("tile 0, layer 0", target, target + 1e-3, np.zeros((2, 3)))
        figure = full_matrix(one)
        shown = [axes.images[0].get_array() for axes in figure.axes[:4]]
        np.testing.assert_allclose(shown[0], target)
        np.testing.assert_allclose(shown[2], 1e-3, atol=1e-12)
        assert "1.0e-03" in texts(figure)
        assert is_png(figure)
        assert is_png(tiles([one, one]))

    def test_symbols_count_the_wrong_ones(self):
        wanted = np.tile(np.arange(4), (10, 1))
        analogue = wanted + 0.1
        analogue[0, 2] = 2.7
        run = SampleRun(analogue, np.zeros(10, dtype=np.int64), wanted, 1 / 40)
        figure = symbols(run, run)
        notes = [text.get_text() for axes in figure.axes for text in axes.texts]
        assert notes.count("symbol 2: 1 of 10 wrong") == 2
        assert notes.count("symbol 1: 0 of 10 wrong") == 2
        assert is_png(figure)

    def test_training_shows_both_averages_and_their_difference(self):
        def one(shift):
            return TrainingRun(0, np.geomspace(2.0, 0.1, 12), np.array([0.1, 0.6, 0.9, 0.95 + shift]))

        figure = training(TrainingComparison((one(0.0), one(0.0)), (one(0.01), one(0.01))))
        assert "optical 95.00 %, float 96.00 %" in texts(figure)
        np.testing.assert_allclose(figure.axes[2].lines[0].get_ydata()[-1], -1.0)
        assert is_png(figure)
