"""Training in blocks Sigma U: the manifold, resuming, and files."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner

from optinc_hw.cli import app
from optinc_hw.errors import NetworkError
from optinc_hw.onn import (
    CellChain,
    InputSpace,
    OpticalNetwork,
    build_cell,
    build_exact,
    enumerate_inputs,
    load_network,
    prove_composition,
    quantised_mean,
    save_network,
    widen_to_sigma_u,
)
from optinc_hw.onn.training import CELL_SETTINGS, TrainingSettings, provenance, train_cell, train_network
from optinc_hw.onn.training._examples import SpaceExamples
from optinc_hw.onn.training._layers import SigmaULayer
from optinc_hw.onn.training._train import _Training
from optinc_hw.photonics import realise

SPACE = InputSpace(2, 4, 2)  # 7 * 7 inputs
SETTINGS = TrainingSettings((2, 16, 16, 2), epochs=40, batch=16, rate=1e-2, enough=None, seed=3)
START = widen_to_sigma_u(build_exact(2, 4, unit="relu"), (2, 24, 24, 24, 2))


def same(first, second):
    return all(
        np.array_equal(one.weight, two.weight) and np.array_equal(one.bias, two.bias)
        for one, two in zip(first.layers, second.layers, strict=True)
    )


@pytest.mark.parametrize("shape", [(8, 8), (12, 4), (4, 12), (7, 3), (3, 7)])
def test_a_layer_stays_in_blocks_and_is_orthogonal_after_steps_and_rebasing(shape):
    layer = SigmaULayer(*shape, torch.Generator().manual_seed(0))
    optimiser = torch.optim.SGD(layer.parameters(), lr=0.3)
    wanted = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    for _ in range(5):
        optimiser.zero_grad()
        ((layer.weight() - wanted) ** 2).sum().backward()
        optimiser.step()
    blocks = layer.blocks()
    assert torch.allclose(blocks @ blocks.mT, torch.eye(min(shape)), atol=1e-5)
    before = layer.weight()
    layer.settle()
    assert not layer.skew.any()
    assert torch.allclose(layer.weight(), before, atol=1e-5)
    exact = layer.exact_weight()
    assert np.allclose(exact, before.detach().numpy(), atol=1e-5)
    if max(shape) % min(shape) == 0:
        assert realise(exact, "sigma_u").residual < 1e-9


def test_a_random_start_learns_one_digit_exactly():
    settings = TrainingSettings((1, 16, 16, 1), epochs=120, batch=7, rate=1e-2, enough=0.1, seed=3)
    trained = train_network(InputSpace(2, 2, 1), settings)
    assert trained.history[0][2] > 3
    found = enumerate_inputs(trained.network)
    assert (found.inputs, found.wrong) == (7, 0)
    assert found.margin == pytest.approx(trained.network.margin, abs=1e-4)
    assert found.margin > 0.1
    assert trained.epochs < 120
    for layer in trained.network.layers:
        assert realise(layer.weight, "sigma_u").residual < 1e-6


def test_a_start_is_kept_where_nothing_is_learned():
    still = TrainingSettings(START.sizes, epochs=10, rate=0.0, enough=None)
    trained = train_network(SPACE, still, start=START)
    codes = SPACE.codes(np.arange(SPACE.size))
    ours, theirs = (network.forward(network.prepare(codes)) for network in (trained.network, START))
    assert np.allclose(ours, theirs, atol=1e-4)
    assert enumerate_inputs(trained.network).wrong == 0
    assert max(realise(layer.weight, "sigma_u").residual for layer in trained.network.layers) < 1e-9


def test_training_ends_where_the_margin_is_enough():
    trained = train_network(SPACE, TrainingSettings(START.sizes, epochs=50, enough=0.3), start=START)
    assert trained.epochs == 0
    assert trained.network.margin > 0.3


@pytest.mark.parametrize("noise", [0.0, 0.02])
def test_a_resumed_training_equals_one_that_was_not_interrupted(tmp_path, noise):
    settings = replace(SETTINGS, noise=noise, inputs_per_epoch=32)
    whole = train_network(SPACE, settings)
    file = tmp_path / "state"

    def interrupt(stage, done, total):
        if done == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_network(SPACE, settings, checkpoint=file, progress=interrupt)
    resumed = train_network(SPACE, settings, checkpoint=file, resume=True)
    assert same(whole.network, resumed.network)
    assert whole.history == resumed.history
    again = train_network(SPACE, settings, checkpoint=file, resume=True)  # a finished one only loads
    assert same(whole.network, again.network)


def test_a_checkpoint_of_other_settings_or_of_no_training_is_refused(tmp_path):
    file = tmp_path / "state"
    train_network(SPACE, replace(SETTINGS, epochs=10), checkpoint=file)
    with pytest.raises(NetworkError, match=r"written with rate = 0\.01, not 0\.02"):
        train_network(SPACE, replace(SETTINGS, epochs=10, rate=0.02), checkpoint=file, resume=True)
    with pytest.raises(NetworkError, match="written with rounding"):
        train_network(SPACE, replace(SETTINGS, epochs=10), "floor", checkpoint=file, resume=True)
    other = replace(SETTINGS, epochs=10, sizes=START.sizes)
    train_network(SPACE, other, checkpoint=file)
    with pytest.raises(NetworkError, match="written with start = None"):
        train_network(SPACE, other, start=START, checkpoint=file, resume=True)
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(NetworkError, match="no readable checkpoint"):
        train_network(SPACE, SETTINGS, checkpoint=file, resume=True)
    with pytest.raises(NetworkError, match="no readable checkpoint"):
        train_network(SPACE, SETTINGS, checkpoint=tmp_path / "missing", resume=True)
    with pytest.raises(NetworkError, match="name the checkpoint"):
        train_network(SPACE, SETTINGS, resume=True)


@pytest.mark.parametrize(
    "changes",
    [
        {"epochs": 0}, {"batch": 1.5}, {"rate": -1.0}, {"margin": 0.6}, {"sizes": (2,)}, {"sizes": (2, 0, 2)},
        {"enough": 0.7}, {"noise": np.nan}, {"clip": 0.0}, {"spectral": -1.0}, {"jitter": 0.6}, {"method": "adam"},
        {"loss": "huber"}, {"look_epochs": 0},
    ],
)  # fmt: skip
def test_settings_that_cannot_be_are_refused(changes):
    with pytest.raises(NetworkError, match=next(iter(changes))):
        replace(SETTINGS, **changes)


def test_starts_and_sizes_that_do_not_fit_are_refused():
    with pytest.raises(NetworkError, match="begin with 2 inputs and end with 2 symbols"):
        train_network(SPACE, replace(SETTINGS, sizes=(3, 16, 2)))
    with pytest.raises(NetworkError, match="the start has sizes"):
        train_network(SPACE, SETTINGS, start=START)
    clipped = widen_to_sigma_u(build_exact(2, 4), (2, 16, 16, 16, 2))
    with pytest.raises(NetworkError, match="other than ReLUs"):
        train_network(SPACE, replace(SETTINGS, sizes=clipped.sizes), start=clipped)
    dense = build_exact(2, 4, unit="relu")
    with pytest.raises(NetworkError, match="off blocks"):
        train_network(SPACE, replace(SETTINGS, sizes=dense.sizes), start=dense)


CELL_START = widen_to_sigma_u(build_cell(unit="relu", slope=2.0), (2, 16, 16, 2))
CELL = replace(CELL_SETTINGS, sizes=CELL_START.sizes, epochs=40, look_epochs=10, seed=1)


def test_a_cell_keeps_what_it_starts_with_and_gains_from_training():
    start = widen_to_sigma_u(build_cell(unit="relu", slope=1.3), CELL.sizes)
    settings = replace(CELL, epochs=60, rate=1e-4, squares=0.0, margin=0.3, jitter=0.3)
    trained = train_cell(4, settings, start=start)
    proof = prove_composition(trained.cell)
    assert trained.cell.margin == proof.margin > 0.4
    assert proof.largest >= prove_composition(start).largest
    assert trained.history[-1][3] < trained.history[0][3]
    assert max(realise(layer.weight, "sigma_u").residual for layer in trained.cell.layers) < 1e-9
    chain = CellChain(trained.cell, 2, 24)
    codes = np.random.default_rng(0).integers(0, 2**24, (2000, 2))
    assert np.array_equal(chain.run(codes), quantised_mean(codes))


def test_a_cell_learns_from_random_blocks():
    trained = train_cell(4, replace(CELL, epochs=100, rate=2e-2, squares=1.0))
    assert trained.history[-1][1] < 0.9 * trained.history[0][1]
    assert not prove_composition(trained.cell).proved
    assert trained.cell.margin == 0.0


def test_a_resumed_cell_equals_one_that_was_not_interrupted(tmp_path):
    whole, file = train_cell(4, CELL), tmp_path / "state"

    def interrupt(stage, done, total):
        if done == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_cell(4, CELL, checkpoint=file, progress=interrupt)
    resumed = train_cell(4, CELL, checkpoint=file, resume=True)
    assert same(whole.cell, resumed.cell)
    with pytest.raises(NetworkError, match="written with divisor = 4, not 16"):
        train_cell(16, CELL, checkpoint=file, resume=True)


def test_cells_that_do_not_fit_are_refused():
    with pytest.raises(NetworkError, match="power of 4"):
        train_cell(8, CELL)
    with pytest.raises(NetworkError, match="begin and end with 3"):
        train_cell(4, CELL, digits=2)


@pytest.mark.parametrize("loss", ["margin", "two_stage"])
def test_projected_matrices_are_in_blocks_at_the_end(loss):
    settings = replace(SETTINGS, method="projection", loss=loss, epochs=60)
    trained = train_network(SPACE, settings)
    assert max(realise(layer.weight, "sigma_u").residual for layer in trained.network.layers) < 1e-9
    assert min(row[2] for row in trained.history) < SPACE.size


def test_free_matrices_learn_and_a_penalty_keeps_their_norms_down():
    plain = replace(SETTINGS, method="free", epochs=80)
    bare, held = (train_network(SPACE, settings).network for settings in (plain, replace(plain, spectral=0.02)))
    norms = [[np.linalg.norm(layer.weight, 2) for layer in network.layers[1:]] for network in (bare, held)]
    assert sum(norms[1]) < 0.9 * sum(norms[0])
    assert any(realise(layer.weight, "sigma_u").residual > 0.1 for layer in bare.layers)


def test_the_losses_by_hand():
    away = torch.tensor([[0.25, -0.5], [0.0, 0.1]])
    paper = _Training(SpaceExamples(SPACE, "half_up"), replace(SETTINGS, loss="two_stage"), None)
    # Place values 4 and 1, scaled to a mean of 1: 1.6 and 0.4.
    assert paper._loss(away, False).item() == pytest.approx((1.6 * 0.0625 + 0.4 * 0.25 + 0.4 * 0.01) / 4)
    assert paper._loss(away, True).item() == pytest.approx(((0.4 - 0.2) ** 2 + 0.04**2) / 2)
    ours = _Training(SpaceExamples(SPACE, "half_up"), replace(SETTINGS, margin=0.4), None)
    assert ours._loss(away, False).item() == pytest.approx((0.0625 + 0.25 + 0.01) / 4)
    assert ours._loss(away, True).item() == pytest.approx((0.15**2 + 0.4**2) / 4)


def test_network_files_give_back_every_bit(tmp_path):
    file = tmp_path / "network.safetensors"
    for network in (build_exact(3, 5, "floor"), START):
        save_network(network, file, {"by": "a test"})
        loaded, about = load_network(file)
        assert same(network, loaded)
        assert about == {"by": "a test"}
        assert (loaded.servers, loaded.bits, loaded.rounding) == (network.servers, network.bits, network.rounding)
        assert loaded.margin == network.margin
        for one, two in zip(network.layers, loaded.layers, strict=True):
            assert one.activation == two.activation
            assert all(np.array_equal(getattr(one, n), getattr(two, n)) for n in ("low", "high", "step", "slack"))


def test_chain_files_give_back_every_bit(tmp_path):
    file = tmp_path / "chain.safetensors"
    chain = CellChain(CELL_START, 2, 7, "floor")
    save_network(chain, file, {"by": "a test"})
    loaded, about = load_network(file)
    assert same(chain, loaded)
    assert about == {"by": "a test"}
    assert (loaded.servers, loaded.bits, loaded.rounding, loaded.margin) == (2, 7, "floor", chain.margin)
    assert (loaded.cell.divisor, loaded.cell.digits, loaded.count) == (4, 1, 4)


def test_files_that_hold_no_network_are_refused(tmp_path):
    file = tmp_path / "network.safetensors"
    with pytest.raises(NetworkError, match="no readable network"):
        load_network(file)
    file.write_bytes(b"not a file of tensors")
    with pytest.raises(NetworkError, match="no readable network"):
        load_network(file)
    save_file({"a": np.zeros(3)}, file)
    with pytest.raises(NetworkError, match="format None"):
        load_network(file)
    save_network(build_exact(2, 2), file, {})
    tensors = load_file(file)
    tensors.pop("layer0.bias")
    save_file(tensors, file, {"format": "optinc-network/1", "network": "{}"})
    with pytest.raises(NetworkError, match="no readable network"):
        load_network(file)


def test_the_command_trains_resumes_and_checks(tmp_path):
    file = tmp_path / "net.safetensors"
    sizes = "-".join(map(str, widen_to_sigma_u(build_exact(4, 8, unit="relu"), (4, *(24,) * 4, 4)).sizes))
    options = ["onn", "train", "--out", str(file), "--sizes", sizes, "--start", "exact", "--json"]
    done = CliRunner().invoke(app, options)
    assert done.exit_code == 0, done.output
    shown = json.loads(done.stdout)
    assert (shown["inputs"], shown["wrong"], shown["mzis"]["sigma_u"]) == (28_561, 0, 1020)
    network, about = load_network(file)
    assert isinstance(network, OpticalNetwork)
    assert about["start"] == "exact"
    checked = CliRunner().invoke(app, ["onn", "check", str(file)])
    assert checked.exit_code == 0
    assert "28,561" in checked.stdout
    wrong = CliRunner().invoke(app, ["onn", "train", "--sizes", "4-x-4", "--out", str(file)])
    assert wrong.exit_code == 2
    assert "4-32-32-4" in wrong.output


def test_the_command_trains_a_cell_and_proves_it(tmp_path):
    file = tmp_path / "cell.safetensors"
    options = ["onn", "train", "--cell", "1", "--sizes", "2-16-16-2", "--start", "exact", "--margin", "0.25"]
    done = CliRunner().invoke(app, [*options, "--out", str(file), "--json"])
    assert done.exit_code == 0, done.output
    shown = json.loads(done.stdout)
    assert (shown["cells"], shown["inputs"], shown["wrong"], shown["mzis"]["sigma_u"]) == (4, 28_561, 0, 4 * 184)
    assert shown["chains_of_any_length"]["proved"] is True
    checked = CliRunner().invoke(app, ["onn", "check", str(file)])
    assert checked.exit_code == 0
    assert "4 cells" in checked.stdout
    save_network(CellChain(build_cell(), 4, 32), file, {})  # 13**16 inputs: only the proof
    long = CliRunner().invoke(app, ["onn", "check", str(file), "--json"])
    assert long.exit_code == 0
    assert "inputs" not in json.loads(long.stdout)
    wrong = replace(CELL_START, layers=(*CELL_START.layers[:2], replace(CELL_START.layers[2], bias=np.full(2, 0.6))))
    save_network(CellChain(wrong, 4, 32), file, {})
    judged = CliRunner().invoke(app, ["onn", "check", str(file), "--json"])
    assert judged.exit_code == 1
    assert json.loads(judged.stdout)["chains_of_any_length"]["largest_carry_error"] is None


def test_a_network_that_is_wrong_ends_with_exit_code_1(tmp_path):
    trained = train_network(SPACE, replace(SETTINGS, epochs=1))
    file = tmp_path / "wrong.safetensors"
    save_network(trained.network, file, provenance(SETTINGS, trained, "random"))
    done = CliRunner().invoke(app, ["onn", "check", str(file), "--json"])
    assert done.exit_code == 1
    assert sum(json.loads(done.stdout)["errors"].values()) == json.loads(done.stdout)["wrong"] > 0


def test_networks_are_read_without_torch(tmp_path):
    file = tmp_path / "network.safetensors"
    save_network(build_exact(2, 2), file, {})
    code = "import pathlib, sys; from optinc_hw import onn; onn.load_network(pathlib.Path(sys.argv[1])); "
    done = subprocess.run(
        [sys.executable, "-c", code + "print('torch' in sys.modules)", str(file)], capture_output=True, text=True,
        check=True, timeout=120,
    )  # fmt: skip
    assert done.stdout.strip() == "False"
