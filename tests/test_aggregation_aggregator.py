"""Aggregator: means of gradient tensors of every type, error feedback, and bad gradients."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from optinc_hw.aggregation import Aggregator, BlockQuantizer, ExactExecutor, TableExecutor
from optinc_hw.errors import GradientError, NetworkError

_TYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def _gradients(shape=(5, 300), workers=4, dtype=torch.float32, seed=0, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    return [(torch.randn(shape, generator=generator) * scale).to(dtype) for _ in range(workers)]


def _true_mean(tensors):
    return torch.stack([tensor.double() for tensor in tensors]).mean(dim=0)


def test_mean_by_hand():
    aggregator = Aggregator(ExactExecutor(4, 8), BlockQuantizer(8, 4))
    tensors = [torch.tensor([127.0, 0.0, -8.0]), *(torch.tensor([x, 2.0, -8.0]) for x in (3.0, 0.0, 0.0))]
    mean = aggregator.mean(tensors)  # step 1: 130 / 4 = 32.5 rounds up to 33, 1.5 up to 2
    assert mean.tolist() == [33.0, 2.0, -8.0]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([2, 3, 4, 8]),
    st.sampled_from([4, 8, 12, 16]),
    st.integers(1, 300),
    st.sampled_from(["half_up", "floor"]),
    st.sampled_from([1e-40, 1e-6, 1.0, 1e30]),
)
def test_mean_is_within_the_documented_error(seed, workers, bits, block, rounding, scale):
    tensors = _gradients((257,), workers, seed=seed, scale=scale)
    mean = Aggregator(ExactExecutor(workers, bits, rounding), BlockQuantizer(bits, block)).mean(tensors)
    true = _true_mean(tensors).numpy()
    for start in range(0, 257, block):
        largest = max(float(tensor[start : start + block].abs().max()) for tensor in tensors)
        step = largest / (2 ** (bits - 1) - 1)
        bound = step * (1.0 if rounding == "half_up" else 1.5) * 1.001 + largest * 2e-7 + 2e-45
        assert np.abs(mean[start : start + block].double().numpy() - true[start : start + block]).max() <= bound


@pytest.mark.parametrize("dtype", _TYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (7, 11), (70_001,)])
def test_result_has_the_shape_and_type_of_the_gradients(dtype, shape):
    tensors = _gradients(shape, dtype=dtype)
    mean = Aggregator(ExactExecutor(4, 8)).mean(tensors)
    assert mean.shape == torch.Size(shape)
    assert mean.dtype == dtype
    assert mean.device == tensors[0].device
    bound = 0.07 + (0.02 if dtype == torch.bfloat16 else 0.0)
    assert (mean.double() - _true_mean(tensors)).abs().max() < bound if mean.numel() else True


@pytest.mark.parametrize("dtype", _TYPES)
@pytest.mark.parametrize("size", [6e4, 1e-7])
def test_large_and_small_half_precision_values_neither_overflow_nor_vanish(dtype, size):
    """Source: pytorch pull 59522 and fairscale pull 565, sums or divisions in half precision."""
    tensors = [torch.full((300,), size, dtype=dtype) for _ in range(4)]
    assert torch.equal(Aggregator(ExactExecutor(4, 8)).mean(tensors), tensors[0])


@pytest.mark.parametrize("value", [torch.finfo(torch.float32).max, torch.finfo(torch.float32).tiny, 1e-45])
def test_ends_of_the_float_range_survive(value):
    tensors = [torch.tensor([value, -value, 0.0]) for _ in range(4)]
    mean = Aggregator(ExactExecutor(4, 8)).mean(tensors)
    assert torch.isfinite(mean).all()
    assert mean == pytest.approx(tensors[0], rel=1e-6)


def test_blocks_of_zeros_stay_exactly_zero():
    tensors = _gradients((600,))
    for tensor in tensors:
        tensor[256:512] = 0.0
    assert torch.equal(Aggregator(ExactExecutor(4, 8)).mean(tensors)[256:512], torch.zeros(256))


def test_views_are_read_and_inputs_never_changed():
    base = _gradients((40, 30))
    views = [tensor.t()[::2] for tensor in base]
    copies = [tensor.clone() for tensor in base]
    aggregator = Aggregator(ExactExecutor(4, 8), error_feedback=True)
    assert torch.equal(aggregator.mean(views), Aggregator(ExactExecutor(4, 8)).mean([v.contiguous() for v in views]))
    aggregator.mean(views)
    assert all(torch.equal(tensor, copy) for tensor, copy in zip(base, copies, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_views_with_a_pending_sign_are_read_right(dtype):
    views = [torch.complex(tensor.to(dtype), tensor.to(dtype)).conj().imag for tensor in _gradients()]
    plain = [view.clone().resolve_neg() for view in views]
    assert views[0].is_neg()
    assert torch.equal(Aggregator(ExactExecutor(4, 8)).mean(views), Aggregator(ExactExecutor(4, 8)).mean(plain))


def test_gradients_that_require_grad_are_accepted():
    tensors = [tensor.requires_grad_() for tensor in _gradients()]
    assert not Aggregator(ExactExecutor(4, 8)).mean(tensors).requires_grad


def test_result_does_not_depend_on_the_order_of_the_workers_or_the_executor():
    tensors = _gradients((100_000,))
    exact = Aggregator(ExactExecutor(4, 8)).mean(tensors)
    assert torch.equal(exact, Aggregator(ExactExecutor(4, 8)).mean(tensors[::-1]))
    assert torch.equal(exact, Aggregator(TableExecutor.from_executor(ExactExecutor(4, 8))).mean(tensors))


def test_executors_that_want_one_batch_get_one():
    class OneCall(ExactExecutor):
        def __init__(self):
            super().__init__(4, 8)
            self.batch_limit = None
            self.batches = []

        def run(self, codes):
            self.batches.append(len(codes))
            return super().run(codes)

    tensors = _gradients((200_003,))
    executor = OneCall()
    assert torch.equal(Aggregator(executor).mean(tensors), Aggregator(ExactExecutor(4, 8)).mean(tensors))
    assert executor.batches == [200_003]


def test_encoded_samples_are_what_the_mean_sends():
    tensors = _gradients((1000,))
    aggregator = Aggregator(ExactExecutor(4, 8))
    codes = aggregator.encode(tensors)
    assert codes.shape == (1000, 4)
    maxima = np.max([aggregator.quantizer.block_maxima(tensor.numpy()) for tensor in tensors], axis=0)
    mean = aggregator.quantizer.dequantise(ExactExecutor(4, 8).run(codes), maxima)
    assert np.array_equal(mean, aggregator.mean(tensors).numpy())


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_non_finite_gradients_are_refused_by_name_before_anything_is_sent(value):
    class Untouched(ExactExecutor):
        def run(self, codes):
            raise AssertionError("must not be reached")

    tensors = _gradients((2, 100_000))
    tensors[2][1, 77] = value
    for method in ("mean", "encode"):
        with pytest.raises(GradientError, match=r"worker 2 is .* at element 100077"):
            getattr(Aggregator(Untouched(4, 8)), method)(tensors)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors: tensors[:3], "3 workers' gradients given; the executor averages 4"),
        (lambda tensors: [], "0 workers"),
        (lambda tensors: [*tensors[:3], tensors[3][:-1]], "worker 3 has shape"),
        (lambda tensors: [*tensors[:3], tensors[3].double()], "worker 3 has dtype torch.float64"),
        (lambda tensors: [*tensors[:3], tensors[3].to("meta")], "worker 3 has device meta"),
        (lambda tensors: [tensor.int() for tensor in tensors], "dtype torch.int32"),
        (lambda tensors: [tensor.to(torch.complex64) for tensor in tensors], "dtype torch.complex64"),
        (lambda tensors: [tensor.to_sparse() for tensor in tensors], "to_dense"),
        (lambda tensors: [tensor.to("meta") for tensor in tensors], "on device meta and have no values"),
        (lambda tensors: [*tensors[:3], tensors[3].numpy()], "worker 3 is ndarray"),
    ],
)
def test_gradients_that_do_not_fit_are_refused(change, message):
    with pytest.raises(GradientError, match=message):
        Aggregator(ExactExecutor(4, 8)).mean(change(_gradients()))


def test_quantiser_and_executor_must_agree():
    with pytest.raises(NetworkError, match="4-bit codes, the executor takes 8"):
        Aggregator(ExactExecutor(4, 8), BlockQuantizer(4))


def test_an_executor_that_answers_too_little_is_reported():
    class Short(ExactExecutor):
        def run(self, codes):
            return super().run(codes)[:-1]

    with pytest.raises(NetworkError, match="answered 1500 elements with shape"):
        Aggregator(Short(4, 8)).mean(_gradients())


def test_lists_of_mixed_types_keep_each_type():
    workers = [
        [*_gradients((3, 5), 1, torch.float16, seed), *_gradients((), 1, torch.float32, seed + 9),
         *_gradients((0,), 1, torch.bfloat16), *_gradients((700,), 1, torch.float64, seed + 5)]
        for seed in range(4)
    ]  # fmt: skip
    means = Aggregator(ExactExecutor(4, 8)).mean_lists(workers)
    assert [mean.dtype for mean in means] == [torch.float16, torch.float32, torch.bfloat16, torch.float64]
    for index, mean in enumerate(means):
        assert mean.shape == workers[0][index].shape
        assert mean.numel() == 0 or (mean.double() - _true_mean([w[index] for w in workers])).abs().max() < 0.05


def test_a_list_equals_the_flat_vector():
    tensors = _gradients((10, 100))
    flat = Aggregator(ExactExecutor(4, 8)).mean(tensors)
    parts = Aggregator(ExactExecutor(4, 8)).mean_lists([list(tensor.split(3)) for tensor in tensors])
    assert torch.equal(torch.cat(parts), flat)
    assert parts[0].untyped_storage().data_ptr() != parts[1].untyped_storage().data_ptr()
    assert Aggregator(ExactExecutor(4, 8)).mean_lists([[], [], [], []]) == []


def test_bad_lists_are_refused_by_name():
    aggregator = Aggregator(ExactExecutor(4, 8))
    lists = [[tensor[:2].clone(), tensor[2:].clone()] for tensor in _gradients((5,))]
    lists[3][1][2] = float("nan")
    with pytest.raises(GradientError, match="worker 3 is nan at tensor 1, element 2"):
        aggregator.mean_lists(lists)
    lists[1][1] = torch.zeros(4)
    with pytest.raises(GradientError, match=r"worker 1 \(tensor 1\) has shape"):
        aggregator.mean_lists(lists)
    lists[2].pop()
    with pytest.raises(GradientError, match="all must have the same number"):
        aggregator.mean_lists(lists)
    with pytest.raises(GradientError, match="3 workers"):
        aggregator.mean_lists(lists[:3])


def test_error_feedback_removes_the_quantisation_error_over_time():
    tensors = _gradients((512,))
    plain = Aggregator(ExactExecutor(4, 4))
    fed = Aggregator(ExactExecutor(4, 4), error_feedback=True)
    steps = 64
    total = sum((fed.mean(tensors) for _ in range(steps)), torch.zeros(512))
    step = max(float(tensor.abs().max()) for tensor in tensors) / 7
    exact_bias = 0.125 * step  # half-up rounding of quarter means; feedback cannot see it
    kept = (total / steps - _true_mean(tensors)).abs().mean()
    assert kept < exact_bias * 1.3
    assert (plain.mean(tensors) - _true_mean(tensors)).abs().mean() > 1.5 * kept


def test_residuals_are_kept_apart_by_key_and_shape():
    aggregator = Aggregator(ExactExecutor(4, 8), error_feedback=True)
    first, second = _gradients((10,)), _gradients((20,))
    aggregator.mean(first, "a")
    aggregator.mean(second, "b")
    with pytest.raises(GradientError, match="'a' holds 10 values of float32, the gradient has 20 of float32"):
        aggregator.mean(second, "a")
    with pytest.raises(GradientError, match="own key"):
        aggregator.mean([tensor.double() for tensor in first], "a")


def test_a_failed_exchange_leaves_the_residuals_alone():
    class Failing(ExactExecutor):
        broken = False

        def run(self, codes):
            if self.broken:
                raise NetworkError("chip gone")
            return super().run(codes)

    executor = Failing(4, 8)
    aggregator = Aggregator(executor, error_feedback=True)
    aggregator.mean(_gradients((300,)))
    before = aggregator.state_dict()
    executor.broken = True
    with pytest.raises(NetworkError, match="chip gone"):
        aggregator.mean(_gradients((300,), seed=1))
    after = aggregator.state_dict()
    assert all(torch.equal(a, b) for a, b in zip(before["residuals"][""], after["residuals"][""], strict=True))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_training_resumed_from_a_checkpoint_goes_on_bit_for_bit(tmp_path, dtype):
    """Source: pytorch issue 75666, hook state missing from the checkpoint."""
    whole = Aggregator(ExactExecutor(4, 4), error_feedback=True)
    for step in range(5):
        whole.mean(_gradients((300,), seed=step, dtype=dtype), "layer")
    torch.save(whole.state_dict(), tmp_path / "state.pt")
    resumed = Aggregator(ExactExecutor(4, 4), error_feedback=True)
    resumed.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    for step in range(5, 11):
        tensors = _gradients((300,), seed=step, dtype=dtype)
        assert torch.equal(resumed.mean(tensors, "layer"), whole.mean(tensors, "layer"))


def test_damaged_states_are_refused_and_change_nothing():
    aggregator = Aggregator(ExactExecutor(4, 8), error_feedback=True)
    aggregator.mean(_gradients((10,)), "a")
    good = aggregator.state_dict()
    broken = [
        {},
        {"residuals": []},
        {"residuals": {"a": [torch.zeros(3)] * 3}},
        {"residuals": {"a": [torch.zeros(3), torch.zeros(4), torch.zeros(3), torch.zeros(3)]}},
        {"residuals": {"a": [torch.full((3,), float("nan"))] * 4}},
    ]
    for state in broken:
        with pytest.raises(GradientError):
            aggregator.load_state_dict(state)
    assert torch.equal(aggregator.state_dict()["residuals"]["a"][0], good["residuals"]["a"][0])
    with pytest.raises(GradientError, match="error_feedback is off"):
        Aggregator(ExactExecutor(4, 8)).load_state_dict(good)


def test_without_error_feedback_there_is_no_state():
    aggregator = Aggregator(ExactExecutor(4, 8))
    aggregator.mean(_gradients())
    assert aggregator.state_dict() == {"residuals": {}}
    aggregator.load_state_dict(aggregator.state_dict())
