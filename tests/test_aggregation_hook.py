"""The DDP hook in processes of its own: means against arithmetic, and the public problem reports T-02 to T-21."""

import json

import numpy as np
import pytest
import torch
import torch.multiprocessing
from _hook_models import copied, drawn
from _hook_ranks import OPEN_FILES, run

from optinc_hw.aggregation import Aggregator, BlockQuantizer, ExactExecutor, OptincOptions, OptincState, optinc_hook
from optinc_hw.errors import GradientError

RANKS = 3
TOGETHER = (
    "means", "bucket_sizes", "types", "non_finite", "resumed", "unused", "models", "sparse", "joined", "compiled",
    "registered", "differing", "warmed", "first_and_later", "costs", "sharded", "closed", "failing",
)  # fmt: skip


def spawned(folder, ranks, names):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLOO_SOCKET_IFNAME", "lo")
        patch.setenv("OMP_NUM_THREADS", "1")
        torch.multiprocessing.spawn(run, args=(ranks, str(folder), names), nprocs=ranks)
    return {
        name: [torch.load(folder / f"{name}_{rank}", weights_only=False) for rank in range(ranks)] for name in names
    }


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    return spawned(tmp_path_factory.mktemp("ranks"), RANKS, TOGETHER)


def same(values):
    """Whether all tensors have equal bits, NaN included."""
    return all(value.dtype == values[0].dtype and _bytes(value) == _bytes(values[0]) for value in values)


def _bytes(tensor):
    return tensor.contiguous().view(torch.uint8).numpy().tobytes()


def gradients():
    """What `drawn` gives the ranks, by parameter."""
    return list(zip(*(drawn(rank, 300, 5, 1000) for rank in range(RANKS)), strict=True))


@pytest.mark.parametrize("name", ["plain", "ten bits", "three bits", "host", "spare inputs", "twice the inputs"])
def test_every_rank_gets_the_same_mean_within_a_step(found, name):
    bits = {"ten bits": 10, "three bits": 3}.get(name, 8)
    for index, parts in enumerate(gradients()):
        means = [one[name][index] for one in found["means"]]
        assert same(means)
        exact = torch.stack(parts).mean(0)
        step = max(part.abs().max() for part in parts) / (2 ** (bits - 1) - 1)
        assert (means[0] - exact).abs().max() <= step * (4 / 3 if name == "spare inputs" else 1.0)
        assert (means[0] - exact).abs().max() > 0.0


def test_the_hook_gives_what_the_aggregator_gives_in_one_process(found):
    aggregator = Aggregator(ExactExecutor(RANKS), BlockQuantizer(block_size=64))
    for index, parts in enumerate(gradients()):
        expected = aggregator.mean(parts)
        assert same([expected, found["means"][0]["plain"][index], found["means"][0]["host"][index]])


def test_ranks_that_feed_several_inputs_each_lose_nothing(found):
    """Twice three ranks on six inputs: floor((2 T + 3) / 6) = floor((T + 3 / 2) / 3), so the bits are the same."""
    for twice, plain in zip(found["means"][0]["twice the inputs"], found["means"][0]["plain"], strict=True):
        assert same([twice, plain])


def test_stochastic_rounding_is_unbiased_and_not_of_the_buckets(found):
    for one in found["means"]:
        for large, small in zip(one["stochastic"], one["stochastic, small buckets"], strict=True):
            assert same([large, small])
    index = 2
    parts = gradients()[index]
    error = found["means"][0]["stochastic"][index] - torch.stack(parts).mean(0)
    step = max(part.abs().max() for part in parts) / 7
    # Half up of thirds has no bias; a mean of 1000 errors of at most a step has a sigma of 0.02 steps.
    assert abs(error.mean()) < 0.08 * step
    assert error.abs().max() > 0.6 * step  # nearest rounding errs by at most half a step and the mean's rounding


def test_t12_equal_bits_over_ranks_bucket_sizes_views_and_runs(found):
    everything = [vector for one in found["bucket_sizes"] for vector in one.values()]
    assert len(everything) == 6 * RANKS
    assert same(everything)
    assert torch.isfinite(everything[0]).all()


def test_t02_t03_every_type_keeps_its_type_and_its_range(found):
    for kind, means in zip(
        (torch.float16, torch.bfloat16, torch.float32, torch.float64),
        zip(*found["types"], strict=True), strict=True,
    ):  # fmt: skip
        assert [mean.dtype for mean in means] == [kind] * RANKS
        assert same(means)
        large, small = means[0][:2].double(), means[0][2:]
        assert large.tolist() == pytest.approx([6e4, -6e4], rel=float(torch.finfo(kind).eps))
        tiny = torch.tensor(1e-7, dtype=kind).double()
        assert float(small[0]) == pytest.approx(200.0, abs=300 / 127)
        assert float(small[1]) == pytest.approx(float(tiny), abs=300 / 127)
        assert float(small[2]) == 0.0


def test_t15_non_finite_gradients_are_seen_by_all_ranks(found):
    for step in range(3):
        assert same([one["steps"][step][0] for one in found["non_finite"]])
        assert len({one["steps"][step][1] for one in found["non_finite"]}) == 1
    steps = found["non_finite"][0]["steps"]
    assert same([steps[0][0], steps[1][0]])  # the scaler skipped the second step on all ranks
    assert [scale for _, scale in steps] == [2.0, 1.0, 1.0]
    assert not torch.equal(steps[1][0], steps[2][0])
    assert torch.isfinite(steps[2][0]).all()


def test_t15_only_the_block_with_nan_is_lost(found):
    for one in found["non_finite"]:
        assert one["blocks"][0].tolist() == [1.0] * 8
        assert one["blocks"][1].isnan().tolist() == [True, True, False, False]
        assert one["blocks"][1][3] == 4.0


def test_t15_an_error_on_demand_names_step_and_parameter_on_every_rank(found):
    for rank, one in enumerate(found["non_finite"]):
        whose = "this rank's" if rank == 1 else "another rank's"
        assert f"step 0: {whose} gradient of module.parts.1 holds NaN or Inf" in one["refused"]


def test_t06_a_resumed_run_equals_the_uninterrupted_one(found):
    for one in found["resumed"]:
        assert same([one["whole"], one["again"]])
        assert one["steps"] == 10
        assert one["names"] == [
            f"module.{layer}.{kind}" for layer in ("first", "last", "middle") for kind in ("bias", "weight")
        ]
    assert same([one["whole"] for one in found["resumed"]])


def test_t06_a_state_that_does_not_belong_here_is_refused(found):
    for rank, one in enumerate(found["resumed"]):
        assert f"the state is of rank {(rank + 1) % RANKS} of 3, this is rank {rank} of 3" in one["other rank"]
        assert "error_feedback is off" in one["off"]
        assert "the state of the hook has keys ['steps']" in one["keys"]


def test_t11_residuals_belong_to_parameters_through_rebuilt_buckets_and_unused_steps(found):
    """Against integer arithmetic and feedback parameter by parameter, written down independently here."""
    quantizer = BlockQuantizer(4, 32)
    residuals = [{} for _ in range(RANKS)]
    for step in range(6):
        used = found["unused"][0][step][1]
        assert ("module.middle.weight" in used or "middle.weight" in used) or step in (1, 3)
        for name in found["unused"][0][step][0]:
            if (step in (1, 3)) and name.startswith("middle"):
                continue
            parts = [one[step][0][name].reshape(-1) for one in found["unused"]]
            fed = [part + residuals[rank].get(name, np.float32(0.0)) for rank, part in enumerate(parts)]
            shared = np.max([quantizer.block_maxima(part) for part in fed], axis=0)
            codes = np.stack([quantizer.quantise(part, shared) for part in fed])
            for rank, part in enumerate(fed):
                residuals[rank][name] = part - quantizer.dequantise(codes[rank], shared)
            total = codes.sum(axis=0, dtype=np.int64)
            expected = quantizer.dequantise((2 * total + RANKS) // (2 * RANKS), shared)
            for one in found["unused"]:
                assert np.array_equal(one[step][1][name].reshape(-1), expected), (step, name)


def test_t09_models_with_one_trained_parameter_and_with_an_empty_one(found):
    assert same([one["one"] for one in found["models"]])
    for one in found["models"]:
        assert one["empty"][0].tolist() == pytest.approx([1.0] * 3, abs=2 / 127)
        assert one["empty"][1].shape == (0,)


def test_t08_sparse_gradients_are_refused_by_name(found):
    for message in found["sparse"]:
        assert "module.words.weight has layout torch.sparse_coo" in message
        assert "sparse=False" in message


def test_t05_join_counts_ranks_without_batches_as_zero(found):
    """As torch does with divide_by_initial_world_size: 1 + 2 + 3, then 2 + 3, over three."""
    for rank, seen in enumerate(found["joined"]):
        expected = [2.0] * 3 + ([] if rank == 0 else [5.0 / 3.0] * 2)
        assert seen == pytest.approx(expected, abs=3 / 127)


def test_t17_compiled_training_equals_eager(found):
    for eager, compiled in found["compiled"]:
        assert torch.allclose(eager, compiled, rtol=0.0, atol=1e-6)


def test_t18_ways_to_register(found):
    for one in found["registered"]:
        assert same([one["through"], one["direct"]])
        assert "unknown options of the OptINC hook: bit; there are bits, block_size" in one["unknown"]
        assert one["warned"] == ["the copy of an OptincState joins the default process group"]
        assert one["group"]
        assert one["steps"] == 1


def test_ranks_that_differ_end_with_the_reason_on_every_rank(found):
    for one in found["differing"]:
        assert "differ in block_size: rank 0 has 32; ranks 1, 2 have 64; set up all ranks alike" in one["options"]
        assert "differ in network of (servers, bits): ranks 0, 2 have (3, 8); rank 1 has (3, 4)" in one["bits"]
        assert "takes codes of 4 bits, the options say 8" in one["wrong bits"]
        assert "rank 1 has no executor; give one to OptincState on every rank" in one["missing"]
        assert "chip_host is rank 3, but there are only 3 ranks" in one["host"]
        assert "3 ranks cannot feed 2 inputs" in one["servers"]


@pytest.mark.parametrize("error", ["OptincError", "SystemExit"])
def test_a_failing_executor_ends_all_ranks_at_once_and_for_good(found, error):
    for one in found["failing"]:
        assert one[error][:2] == ["", ""]
        for message in one[error][2:]:
            assert f"the executor failed on rank 1: {error}: output 2 of the chip is dark" in message


def test_warmup_averages_in_floating_point(found):
    exact = torch.stack([drawn(rank, 500)[0] for rank in range(RANKS)]).mean(0)
    for steps in found["warmed"]:
        assert torch.allclose(steps[0], exact, rtol=1e-6, atol=1e-7)
        assert torch.equal(steps[0], steps[1])
        assert not torch.allclose(steps[2], exact, rtol=1e-6, atol=1e-7)
        assert torch.allclose(steps[2], exact, rtol=0.0, atol=4 / 127)


def test_t21_equal_gradients_give_equal_means_in_every_step(found):
    for steps in found["first_and_later"]:
        assert same(steps)


def test_the_account_counts_what_travels(found, tmp_path):
    """By hand: 12 maxima of 4 bytes to 2 others; codes and answers of two thirds of the elements; symbols of 2 bits."""
    for rank, (shares, host) in enumerate(found["costs"]):
        assert (shares.ranks, shares.elements, shares.buckets, shares.symbols) == (RANKS, 12_000, 1, 48_000)
        assert shares.bytes_sent == 2 * 12 * 4 + 2 * 8_000
        assert host.bytes_sent == 2 * 12 * 4 + (2 * 12_000 if rank == 0 else 12_000)
        assert shares.ring_bytes == 2 * 2 / 3 * 4 * 12_000
        assert shares.traffic == pytest.approx(16_096 / 64_000)
        assert min(shares.seconds.values()) >= 0.0
        assert shares.seconds["executor"] > 0.0
        assert (host.seconds["executor"] > 0.0) == (rank == 0)
    shares.save(tmp_path / "costs.json")
    saved = json.loads((tmp_path / "costs.json").read_text())
    assert saved["bytes_sent"] == 16_096
    assert list(saved["seconds"]) == ["maxima", "quantise", "exchange", "executor", "dequantise"]
    assert "16,096 bytes sent, 25.1% of a ring all-reduce" in str(shares)


def test_fsdp_trains_through_the_executor(found):
    """A share of 3 of (0 .. 8) k on rank k: the mean is twice, the sum six times (0 .. 8)."""
    ours = [one["ours"] for one in found["sharded"]]
    assert same(ours)
    assert not torch.equal(ours[0], found["sharded"][0]["float"])
    assert torch.allclose(ours[0], found["sharded"][0]["float"], rtol=0.0, atol=2e-3)
    for rank, one in enumerate(found["sharded"]):
        own = torch.arange(9.0)[3 * rank : 3 * rank + 3]
        assert one["mean"].tolist() == pytest.approx((2 * own).tolist(), abs=24 / 127)
        assert torch.equal(one["sum"], 3 * one["mean"])
        assert one["elements"] == 18
        assert "the chip gives means and sums" in one["operation"]
        assert "error_feedback and warmup_steps are not possible with FSDP" in one["feedback"]


@pytest.mark.skipif(not OPEN_FILES.is_dir(), reason="the platform does not list open files")
def test_closed_hooks_leave_no_connections_behind(found):
    for one in found["closed"]:
        assert one["files"][-1] <= one["files"][0] + 2
        assert (one["steps"], one["same"]) == (2, True)


def test_t21_one_rank_gets_its_gradients_back(tmp_path):
    gradient = spawned(tmp_path, 1, ("alone",))["alone"][0]
    assert gradient.tolist() == torch.tensor([1.0, 1e-30, torch.pi, np.nextafter(1.0, 2.0)]).tolist()


def test_t20_the_hook_has_the_signature_that_torch_demands():
    """Torch looks for a parameter called bucket and refuses annotations that are text."""
    assert list(optinc_hook.__annotations__) == ["state", "bucket", "return"]
    assert not any(isinstance(annotation, str) for annotation in optinc_hook.__annotations__.values())
    assert optinc_hook.__annotations__["return"] == torch.futures.Future[torch.Tensor]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bits": 1}, "bits"),
        ({"block_size": 0}, "block_size"),
        ({"rounding": "up"}, "rounding"),
        ({"non_finite": "skip"}, "non_finite"),
        ({"warmup_steps": -1}, "warmup_steps"),
        ({"chip_host": 1.0}, "chip_host"),
        ({"timeout_s": 0.0}, "timeout_s"),
        ({"timeout_s": True}, "timeout_s must be a positive, finite number of seconds, got True"),
        ({"timeout_s": "300"}, "timeout_s must be a positive, finite number of seconds, got '300'"),
        ({"timeout_s": None}, "timeout_s"),
        ({"error_feedback": "false"}, "error_feedback must be True or False, got 'false' of type str"),
        ({"error_feedback": 1}, "error_feedback must be True or False, got 1 of type int"),
        ({"shared_memory": 0}, "shared_memory must be True or False, got 0 of type int"),
        ({"shared_memory": None}, "shared_memory must be True or False"),
        ({"bits": "8"}, "bits"),
        ({"bits": True}, "bits"),
        ({"block_size": 64.0}, "block_size"),
        ({"seed": True}, "seed"),
        ({"chip_host": False}, "chip_host"),
        ({"rounding": ["nearest"]}, "rounding"),
        ({"non_finite": None}, "non_finite"),
        ({"timeout_s": float("inf")}, "timeout_s"),
    ],
)
def test_bad_options_are_refused(settings, message):
    with pytest.raises(GradientError, match=message):
        OptincOptions(**settings)
    with pytest.raises(GradientError, match=message):
        OptincOptions.from_mapping(settings)


NAMED = [("module.first.weight", torch.zeros(2)), ("module.first.bias", torch.zeros(1))]


@pytest.mark.parametrize(
    ("given", "saved", "own"),
    [
        (NAMED, "first.weight", "such as module.first.bias"),
        (NAMED, "parameter_00000", "such as module.first.bias"),
        ([], "module.first.weight", "numbers such as parameter_00000"),
    ],
)
def test_t06_residuals_of_parameters_with_other_names_are_refused(given, saved, own, monkeypatch):
    for name, number in (("get_rank", 0), ("get_world_size", 1)):
        monkeypatch.setattr(torch.distributed, name, lambda *_, number=number: number)
    options = OptincOptions(error_feedback=True)
    state = OptincState(None, options, parameters=given)
    good = "module.first.bias" if given else "parameter_00001"
    loaded = {"steps": 7, "rank": 0, "ranks": 1, "residuals": {good: torch.ones(1)}}
    for kept in (state, copied(state)):
        kept.load_state_dict(loaded)
        bad = loaded | {"steps": 9, "residuals": {good: torch.zeros(1), saved: torch.ones(2)}}
        with pytest.raises(GradientError, match="named_parameters") as raised:
            kept.load_state_dict(bad)
        assert f"residuals of 1 unknown parameters, such as {saved}; the names here are {own}" in str(raised.value)
        assert (kept.steps, kept.state_dict()["residuals"][good].tolist()) == (7, [1.0])
