"""Training examples: data, models, injected errors, trainings in two processes, and what the benchmark says of runs."""

import importlib
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.multiprocessing
from scipy import stats
from torch import nn

from optinc_hw.aggregation import ExactExecutor
from optinc_hw.errors import ConfigurationError

ROOT = Path(__file__).parents[1]
RANKS = 2


@pytest.fixture
def training(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    return importlib.import_module("training")


@pytest.fixture
def benchmark(monkeypatch, training):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("_training")


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What each rank found, see ``_training_ranks``."""
    from _training_ranks import run

    folder = tmp_path_factory.mktemp("ranks")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else "lo0")
        torch.multiprocessing.spawn(run, args=(RANKS, str(folder)), nprocs=RANKS)
    return [torch.load(folder / f"found_{rank}", weights_only=False) for rank in range(RANKS)]


def test_all_ranks_end_with_equal_bits_however_gradients_are_averaged(found):
    for way, first in found[0]["trained"].items():
        second = found[1]["trained"][way]
        assert first.equal, way
        assert (first.digest, first.loss, first.accuracy) == (second.digest, second.loss, second.accuracy)


def test_training_lowers_the_loss_alike_by_float_and_by_code_means(found):
    runs = found[0]["trained"]
    assert runs["untrained"].loss == pytest.approx(math.log(10), abs=0.1)  # ten classes, nothing known
    assert runs["float"].loss < runs["untrained"].loss - 0.2
    assert runs["untrained"].accuracy < 0.2  # chance is 0.1
    assert runs["float"].accuracy > 0.4
    for way in ("exact", "sixteen bits", "injected"):
        assert runs[way].loss == pytest.approx(runs["float"].loss, abs=0.03)
        assert runs[way].digest != runs["float"].digest


def test_a_table_trains_as_the_arithmetic_that_filled_it(found):
    runs = found[0]["trained"]
    assert runs["table"].digest == runs["exact"].digest


def test_answers_of_a_twin_are_what_trains(found):
    """Every mean the largest value of its block: all parameters move the same way, and nothing is learned."""
    runs = found[0]["trained"]
    assert runs["wrong twin"].loss > runs["untrained"].loss - 0.05
    assert runs["wrong twin"].accuracy < 0.2


def test_injected_errors_change_the_run_and_come_again_with_their_seed(found):
    runs = found[0]["trained"]
    elements = 12 * 4810
    assert runs["injected"].injected == pytest.approx(1.109e-4 * elements, abs=4 * math.sqrt(1.109e-4 * elements))
    assert runs["injected"].digest != runs["sixteen bits"].digest
    assert runs["again"].digest == runs["injected"].digest
    assert runs["other seed"].digest != runs["injected"].digest
    assert runs["sixteen bits"].injected == 0


def test_costs_are_those_of_the_hook(found):
    """By hand: 4810 codes of 8 bits a step and rank, half of them sent, half of the answers, and blocks' maxima."""
    costs = found[0]["trained"]["table"].costs
    assert costs.elements == 12 * 4810
    assert costs.traffic == pytest.approx(0.25, abs=0.01)
    assert found[0]["trained"]["float"].costs is None


def test_gradients_of_zeros_stay_zero(found):
    for one in found:
        assert torch.equal(one["gradients"]["zeros"], torch.zeros(130))


def test_ranks_of_different_scale_share_the_largest(found):
    """A thousand times larger on rank 1: within one step of its scale, block by block, and equal on both."""
    values = torch.linspace(-1.0, 1.0, 130)
    for one in found:
        mean = one["gradients"]["scales"]
        assert torch.equal(mean, found[0]["gradients"]["scales"])
        for own, got in zip(values.split(50), mean.split(50), strict=True):
            step = 1000.0 * own.abs().max() / 127
            assert (got - own * 1001.0 / 2.0).abs().max() <= step


@pytest.mark.parametrize("row", ["4-7", "4-8", "3-6", "3-7"])
def test_injected_errors_have_the_rates_and_sizes_of_table_ii(training, row):
    """The published shares; rates are raised, as they are too small to be counted."""
    published = {
        "4-7": (99.99986, {1: 90, 64: 10}),
        "4-8": (99.99999, {1024: 100}),
        "3-6": (99.98891, {1: 99, 1024: 0.9, 4: 0.1}),
        "3-7": (99.99936, {4: 79.5, 16: 17, 12: 3.5}),
    }
    accuracy, shares = published[row]
    errors = training.TABLE_II[row]
    assert errors.rate == pytest.approx(1.0 - accuracy / 100.0, rel=1e-6)
    count = 200_000
    exact = ExactExecutor(4, 16)
    often = training.ErrorStatistics(0.2, errors.shares)
    executor = training.InjectedErrors(exact, often, np.random.default_rng(3))
    codes = np.random.default_rng(0).integers(20_000, 40_000, (count, 4))
    change = executor.run(codes) - exact.run(codes)
    wrong = np.count_nonzero(change)
    assert wrong == executor.injected
    assert stats.binomtest(wrong, count, 0.2).pvalue > 1e-3
    sizes = {size: np.count_nonzero(np.abs(change) == size) for size in shares}
    assert sum(sizes.values()) == wrong
    for size, share in shares.items():
        assert stats.binomtest(sizes[size], wrong, share / 100.0).pvalue > 1e-3
    signs = {"4-7": {-64: 1.0, 1: 0.5}, "4-8": {1024: 1.0}, "3-6": {1: 0.5}, "3-7": {-16: 1.0, 12: 1.0, 4: 0.5}}[row]
    for value, share in signs.items():
        have = np.count_nonzero(change == value)
        assert stats.binomtest(have, sizes[abs(value)], share).pvalue > 1e-3


def test_injected_errors_stay_in_the_range_of_codes(training):
    executor = training.InjectedErrors(
        ExactExecutor(2, 8), training.ErrorStatistics(1.0, {100: 0.5, -100: 0.5}), np.random.default_rng(0)
    )
    answers = np.empty(1000, dtype=np.uint8)
    executor.run(np.full((1000, 2), 250), out=answers)
    assert set(answers.tolist()) == {150, 255}
    assert (executor.servers, executor.bits) == (2, 8)


def test_errors_too_large_for_the_codes_are_refused(training):
    with pytest.raises(ConfigurationError, match="1024 do not fit codes of 8 bits"):
        training.Averaging("exact", errors=training.TABLE_II["3-6"]).executor(4, 0, 0)


def test_a_twin_without_answers_is_refused(training):
    with pytest.raises(ConfigurationError, match="twin_answers"):
        training.Averaging("twin").executor(4, 0, 0)


def test_a_calibrated_twin_answers_as_arithmetic_does(training, calibrated, tmp_path):
    calibrated.record.save(tmp_path / "record.json")
    answers = training.twin_answers(2, 8, tmp_path / "record.json")
    codes = np.random.default_rng(0).integers(0, 256, (2000, 2))
    by_twin = training.Averaging("twin", answers=answers).executor(2, 0, 0).run(codes)
    assert np.array_equal(by_twin, (codes.sum(axis=1) + 1) // 2)


def test_digits_are_split_without_overlap(training):
    split = training.digits()
    assert (len(split.training), len(split.validation)) == (1347, 450)
    assert split.training.inputs.shape[1:] == (1, 8, 8)
    assert 0.0 <= split.training.inputs.min() < split.training.inputs.max() == 1.0
    assert set(split.validation.targets.tolist()) == set(range(10))
    assert torch.equal(training.digits().training.targets, split.training.targets)


def cifar_file(path, records):
    """Write records as the archive describes them: coarse label, fine label, 1024 red, green and blue values."""
    path.write_bytes(b"".join(bytes([coarse, fine]) + bytes(pixels) for coarse, fine, pixels in records))


def test_cifar_100_is_read_as_its_format_says(training, tmp_path):
    """First red, then green, then blue, row by row; the second byte is the fine label."""
    picture = [k % 251 for k in range(3072)]
    cifar_file(tmp_path / "train.bin", [(3, 99, picture), (4, 7, picture[::-1])])
    cifar_file(tmp_path / "test.bin", [(1, 42, picture)])
    split = training.cifar_100(tmp_path)
    assert split.training.targets.tolist() == [99, 7]
    assert split.validation.targets.tolist() == [42]
    images = split.training.inputs
    assert images.shape == (2, 3, 32, 32)
    assert images.dtype == torch.float32
    assert images.mean(dim=(0, 2, 3)).abs().max() < 1e-5
    assert torch.allclose(images.std(dim=(0, 2, 3), correction=0), torch.ones(3), atol=1e-5)
    # Two green values of the first picture, in order and distance: (0, 5) and (1, 0), 27 places further on.
    green = np.array([picture[1024:2048], picture[::-1][1024:2048]], dtype=float) / 255.0
    expected = (picture[1024 + 32] - picture[1024 + 5]) / 255.0 / green.std()
    assert float(images[0, 1, 1, 0] - images[0, 1, 0, 5]) == pytest.approx(expected, rel=1e-4)
    assert torch.equal(split.validation.inputs[0], images[0])
    model = training.images_resnet("", split, classes=100, steps=1).model()
    assert model(images).shape == (2, 100)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "train.bin has 0 bytes"),
        (bytes(3073), "3073 bytes, not a whole number of records of 3074"),
        (bytes([1, 100]) + bytes(3072), "holds the label 100"),
        (None, "train.bin cannot be read"),
    ],
)
def test_what_is_no_cifar_100_is_refused(training, tmp_path, content, message):
    if content is not None:
        (tmp_path / "train.bin").write_bytes(content)
    with pytest.raises(ConfigurationError, match=message):
        training.cifar_100(tmp_path)


def test_text_of_a_folder_is_cut_in_windows_with_the_next_byte_as_target(training, tmp_path):
    (tmp_path / "inner").mkdir()
    first = bytes(k % 90 + 33 for k in range(2000))
    (tmp_path / "a.txt").write_bytes(first)
    (tmp_path / "inner" / "b.txt").write_text("ä" * 500, encoding="utf-8")
    (tmp_path / "c.bin").write_bytes(b"not text")
    split = training.text_folder(tmp_path)
    window, after = split.training.inputs, split.training.targets
    assert window.shape == after.shape == ((1800 + 2 + 900 - 1) // 64, 64)
    assert bytes(window[0].tolist()) == first[:64]
    assert bytes(after[1].tolist()) == first[65:129]
    assert torch.equal(window[1:, 0], after[:-1, -1])
    assert bytes(split.validation.inputs[0].tolist()) == first[1800:1864]
    assert split.validation.inputs[-1, -1] in "ä".encode()


@pytest.mark.parametrize(("content", "message"), [(None, "holds no \\*.txt file"), (b"short", "at least 1280 bytes")])
def test_folders_without_text_are_refused(training, tmp_path, content, message):
    if content is not None:
        (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(ConfigurationError, match=message):
        training.text_folder(tmp_path)


def test_documentation_is_english_of_a_fixed_split(training):
    split = training.documentation()
    assert len(split.training) > 5_000
    assert len(split.validation) > 500
    text = bytes(split.validation.inputs.flatten().tolist())
    assert text.count(b" the ") > 200


def test_the_language_model_sees_no_later_byte(training):
    torch.manual_seed(0)
    model = training.LanguageModel()
    assert 250_000 < sum(part.numel() for part in model.parameters()) < 1_000_000
    text = torch.randint(0, 256, (3, 20))
    changed = text.clone()
    changed[:, 12] = (changed[:, 12] + 1) % 256
    before, after = model(text), model(changed)
    assert torch.equal(before[:, :12], after[:, :12])
    assert (before[:, 12:] - after[:, 12:]).abs().amax(dim=(0, 2)).min() > 0.0


def test_rotary_embeddings_show_distances_not_places(training):
    """Products of turned queries and keys depend on how far they are apart; lengths stay."""
    models = importlib.import_module("training.models")
    angles = models.rotary_angles(30, 8).double()
    query, key = torch.randn(2, 8, dtype=torch.float64).unbind()
    queries, keys = (models.rotate(vector.expand(30, 8), angles) for vector in (query, key))
    products = queries @ keys.T
    for distance in range(-5, 6):
        diagonal = products.diagonal(distance)
        assert torch.allclose(diagonal, diagonal[:1].expand_as(diagonal), atol=1e-10)
    assert products[0, 3] != pytest.approx(float(products[0, 0]))
    assert torch.allclose(queries.norm(dim=1), query.norm().expand(30))


def test_models_without_what_is_tied_to_a_rank(training):
    """Normalisations with running statistics would differ between ranks."""
    for model in (training.ResNet(1, 10), training.LanguageModel(), training.perceptron(64, 64, 10)):
        assert not list(model.buffers())
        assert not any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in model.modules())


def test_intervals_are_those_of_a_paired_t_test(benchmark):
    values, reference = [2.0, 2.4, 2.1, 2.2, 2.8], [1.9, 2.5, 1.8, 2.1, 2.3]
    interval = benchmark.Interval.of(values, reference)
    expected = stats.ttest_rel(values, reference).confidence_interval(0.95)
    assert interval.mean == pytest.approx(0.18)
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high))


def test_losses_are_judged_by_the_spread_of_float_averaging(benchmark):
    """Float's losses 1, 2, 3 have standard deviation 1; the 8-bit mean is 0.5 away, then 1.5."""
    for shift, reached in ((0.5, True), (1.5, False)):
        losses = {benchmark.FLOAT: [1.0, 2.0, 3.0], benchmark.JUDGED: [1.0 + shift, 2.0 + shift, 3.0 + shift]}
        rows = [row for row in benchmark.figures("task", losses) if row["goal"] is not None]
        assert [(row["value"], row["reached"]) for row in rows] == [(pytest.approx(shift), reached)]


def test_two_seeds_are_reported_not_judged(benchmark):
    losses = {benchmark.FLOAT: [1.0, 2.0], benchmark.JUDGED: [1.1, 2.3]}
    rows = {row["case"]: row for row in benchmark.figures("task", losses)}
    assert all(row["goal"] is None for row in rows.values())
    assert rows[f"task, {benchmark.JUDGED}: loss minus float32's, same seeds"]["value"] == pytest.approx(0.2)
    wide = rows[f"task, {benchmark.JUDGED}: upper end of its 95 % interval"]["value"]
    assert wide == pytest.approx(0.2 + 12.7062 * 0.1, rel=1e-4)  # Student's t of one degree of freedom


def test_ways_of_the_benchmark_hold_what_they_are_called(benchmark):
    ways = benchmark.averagings(np.zeros(28_561, dtype=np.int64))
    assert next(iter(ways)) == benchmark.FLOAT
    judged = ways[benchmark.JUDGED].options
    assert (judged.bits, judged.block_size, judged.error_feedback) == (8, 1024, False)
    coarse = ways["4 bit, block 256, error feedback"].options
    assert (coarse.bits, coarse.block_size, coarse.error_feedback) == (4, 256, True)
    injected = {name: way for name, way in ways.items() if way.errors is not None}
    assert len(injected) == 5
    assert all(way.options.bits == 16 for way in injected.values())
