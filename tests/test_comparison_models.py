"""Models of a comparison: counts of published networks, steps with overlap, energies and losses by hand."""

import math
from itertools import product

import pytest
import torch
from torch import nn

from optinc_hw.errors import ComparisonError
from optinc_hw.interconnect import Crossbar, LinkParameters, in_switch, optinc, ring, step_time, wrht
from optinc_hw.interconnect.comparison import (
    EnergyParameters,
    LinkBudget,
    MeshLoss,
    NetworkDesign,
    Server,
    Training,
    Workload,
    all_reduce_energy,
    count_parameters,
    find_workload,
    load_module,
    measure_workload,
    optical_power,
    splitting_loss_db,
    training_step,
)
from optinc_hw.onn import SCENARIOS

PUBLISHED = {  # parameters, 10^9 multiply-accumulates of a forward pass: torchvision's and transformers' model pages
    "resnet50": (25_557_032, 4.089),
    "vgg16": (138_357_544, 15.470),
    "vgg19": (143_667_240, 19.632),
    "alexnet": (61_100_840, 0.714),
    "googlenet": (6_624_904, 1.498),
    "bert-large": (335_141_888, 0.335141888),
    "gpt2": (124_439_808, 0.124439808),
    "gpt2-xl": (1_557_611_200, 1.5576112),
    "llama-7b": (6_738_415_616, 6.738415616),
    "resnet50-cifar": (23_705_252, 1.298),
    "resnet50-32": (23_712_932, 0.0836),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_built_in_models_have_their_published_size(name):
    parameters, macs = PUBLISHED[name]
    found = find_workload(name)
    assert found.parameters == parameters
    assert found.flops_per_sample == pytest.approx(6e9 * macs, rel=1e-3)


def test_the_language_model_of_the_optinc_paper():
    found = find_workload("llama-8x384")
    layers = 8 * (4 * 384**2 + 3 * 384 * 1024)
    tables, norms = 2 * 32000 * 384, 8 * 2 * 384 + 384
    assert (found.parameters, found.sample) == (layers + tables + norms, "token")


def test_unknown_models_are_refused_with_a_list():
    with pytest.raises(ComparisonError, match=r"no model 'resnet'.*resnet50, .*llama-7b"):
        find_workload("resnet")
    with pytest.raises(ComparisonError, match="must have parameters"):
        Workload("none", 0, 1.0)


def test_modules_are_counted_and_measured():
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    net[2].bias.requires_grad_(False)
    assert count_parameters(net) == 8 * 16 + 16 + 16 * 4
    tied = nn.ModuleList([net[0], net[0]])
    assert count_parameters(tied) == 8 * 16 + 16
    found = measure_workload("net", net, torch.randn(5, 8))
    forward, weights, inputs = 2 * (8 * 16 + 16 * 4), 2 * (8 * 16 + 16 * 4), 2 * 16 * 4  # inputs of the net need none
    assert found.flops_per_sample == forward + weights + inputs
    assert all(parameter.grad is None for parameter in net.parameters())


def test_modules_are_found_by_name(tmp_path, monkeypatch):
    (tmp_path / "my_net.py").write_text(
        "import torch\n"
        "def make(): return torch.nn.Linear(3, 2)\n"
        "def fed(): return torch.nn.Linear(3, 2), torch.zeros(4, 3)\n"
        "def wrong(): return 5\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    module, inputs = load_module("my_net:make")
    assert (count_parameters(module), inputs) == (8, None)
    module, inputs = load_module("my_net:fed")
    assert inputs.shape == (4, 3)
    for path, message in (("my_net:gone", "no factory"), ("gone:make", "no factory"), ("my_net:wrong", "got a int")):
        with pytest.raises(ComparisonError, match=message):
            load_module(path)


def test_computing_takes_flops_over_what_a_server_reaches():
    """0.084 GMAC, 2 images: 28 us on 60 TFLOP/s of which 60 % are used."""
    job = Training.of(find_workload("resnet50-32"), 2)
    assert job.compute_s == pytest.approx(27.9e-6, rel=2e-3)
    assert job.payload_bytes == 2 * 23_712_932
    assert Training.of(find_workload("gpt2"), 7, Server(1e12, 0.5)).compute_s == pytest.approx(
        7 * 6 * 124_439_808 / 5e11
    )


@pytest.mark.parametrize(
    ("model", "batch", "gain"),
    [
        ("resnet50-32", 2, 25.3), ("resnet50-32", 32, 5.5), ("resnet50-32", 128, 1.6), ("resnet50-cifar", 1, 9.7),
        ("llama-8x384", 20, 17.6), ("gpt2", 20, 17.6), ("llama-8x384", 128, 5.0), ("llama-8x384", 1024, 0.7),
    ],
)  # fmt: skip
def test_latency_of_the_optinc_paper(model, batch, gain):
    """The gain over a ring with the published hardware depends on the batch alone."""
    job, links = Training.of(find_workload(model), batch), LinkParameters.optinc()
    with_ring, with_optinc = (
        training_step(job, lambda payload, one=one: step_time(one, payload, links)) for one in (ring(4), optinc(4))
    )
    assert 100 * (1 - with_optinc.total_s / with_ring.total_s) == pytest.approx(gain, abs=0.1)
    assert with_ring.share == pytest.approx(with_ring.communication_s / with_ring.total_s)


def simulated_end(compute, backward_share, buckets, each):
    """Send buckets one after the other, each as soon as its gradients are there."""
    backward = backward_share * compute
    free = 0.0
    for bucket in range(1, buckets + 1):
        free = max(free, compute - backward + bucket / buckets * backward) + each
    return free


@pytest.mark.parametrize(("batch", "share", "each"), [*product((1, 30, 1000), (0.0, 0.5, 1.0), (1e-4, 1e-2))])
def test_overlap_is_what_sending_buckets_one_by_one_takes(batch, share, each):
    job = Training("net", 1_000_000, batch, 1e-4, bits=32, backward_share=share, bucket_bytes=0.7e6)
    asked = []

    def time(payload):
        asked.append(payload)
        return each

    step = training_step(job, time, overlap=True)
    assert asked == [pytest.approx(4e6 / 6)]
    assert step.total_s == pytest.approx(simulated_end(job.compute_s, share, 6, each))
    assert (step.communication_s, step.compute_s) == (pytest.approx(6 * each), job.compute_s)
    assert 0 < step.exposed_s <= 6 * each * (1 + 1e-12)


@pytest.mark.parametrize(
    "change", [{"batch": 0.0}, {"bits": -1}, {"sample_s": math.inf}, {"backward_share": 1.5}, {"parameters": 0}]
)
def test_impossible_jobs_are_refused(change):
    with pytest.raises(ComparisonError, match=next(iter(change))):
        Training(**{"name": "net", "parameters": 1, "batch": 1.0, "sample_s": 1.0} | change)


def design(number, approximated=True):
    scenario = SCENARIOS[number - 1]
    layers = scenario.approximated[0] if approximated else ()
    return NetworkDesign(
        "published", scenario.servers, scenario.bits, scenario.sizes, frozenset(layers), scenario.mzis(layers)
    )


@pytest.mark.parametrize(
    ("number", "full", "less"), [(1, 1294, 398), (2, 2832, 1040), (3, 5906, 2066), (4, 2836, 1556)]
)
def test_columns_that_light_crosses(number, full, less):
    assert (design(number, approximated=False).columns, design(number).columns) == (full, less)


def test_losses_and_gain_stages_by_hand():
    assert splitting_loss_db(4) == pytest.approx(6.0206, abs=1e-4)
    loss = MeshLoss()
    assert loss.loss_db(design(1)) == pytest.approx(0.2 * 398 + 2 * 6.0206, abs=1e-3)  # 91.6 dB
    assert loss.gain_stages(design(1)) == 5  # (91.6 - 10) / 20
    assert MeshLoss(column_db=0.0, budget_db=13.0).gain_stages(design(1)) == 0


def test_reach_is_what_power_and_losses_leave():
    assert LinkBudget().reach == 8  # 10 + 14 - 5 - 3 = 16 dB, of 2 dB each
    assert LinkBudget(laser_dbm=9.9).reach == 7
    assert LinkBudget(node_db=1.0).reach == 16
    with pytest.raises(ComparisonError, match="reaches no neighbour"):
        LinkBudget(laser_dbm=-10.0).reach  # noqa: B018


ENERGIES = EnergyParameters(
    transceiver_J_per_bit=1.0, switch_J_per_bit=100.0, circuit_W=3.0, heater_W=0.5, carrier_W=7.0, gain_W=11.0
)


def test_energy_of_rings_by_hand():
    """8 servers send 2 x 7 / 8 of 1 bit each."""
    bits = 8 * 2 * 7 / 8
    packet = all_reduce_energy(ring(8, Crossbar()), 1 / 8, ENERGIES, electrical=True)
    assert (packet.transceivers_J, packet.switches_J, packet.standing_W) == (2 * bits, 100 * bits, 0)  # in and out
    light = all_reduce_energy(ring(8), 1 / 8, ENERGIES, electrical=False)
    assert (light.transceivers_J, light.switches_J, light.standing_W) == (bits, 0, 8 * 3.0)
    assert light.of(2.0) == bits + 2 * 24


def test_energy_of_relays_and_switches_by_hand():
    near = all_reduce_energy(wrht(5, 2), 1 / 8, ENERGIES, electrical=False)
    relayed = all_reduce_energy(wrht(5, 2, reach=1, group=5), 1 / 8, ENERGIES, electrical=False)
    steps = list(wrht(5, 2, reach=1, group=5).steps)
    assert near.transceivers_J == sum(step.circuits.source.size for step in wrht(5, 2).steps)
    assert relayed.transceivers_J == sum(int((step.circuits.relays + 1).sum()) for step in steps) > near.transceivers_J
    added = all_reduce_energy(in_switch(8, 4), 1 / 8, ENERGIES, electrical=True)
    assert added.transceivers_J == 2 * (8 + 2)  # up and down, to 2 switches and from these to 1
    assert added.switches_J == 100 * (8 + 2 + 2)  # 8 + 2 bits up, 2 down into the lower ones


def test_energy_of_optical_networks_by_hand():
    """16 servers on 5 networks of 4; 400 Gb/s are 4 lanes of 100 Gb/s, one network of 4 symbols; 800 are two."""
    small = NetworkDesign("small", 4, 8, (4, 8, 4), frozenset({1, 2}), 50)
    loss = MeshLoss(column_db=1.0, gain_db=10.0, budget_db=0.0)
    assert small.columns == 10
    assert loss.gain_stages(small) == 3  # 10 + 2 x 6.02 dB
    power = optical_power(optinc(16, 4), 400e9, small, ENERGIES, loss)
    assert (power.networks, power.heaters_W, power.carriers_W) == (5, 5 * 50 * 2 * 0.5, 5 * 4 * 7.0)
    assert power.gain_W == 5 * 3 * 8 * 11.0  # 8 waveguides
    assert optical_power(optinc(16, 4), 800e9, small, ENERGIES, loss).networks == 10
    energy = all_reduce_energy(optinc(16, 4), 1 / 8, ENERGIES, power, electrical=False)
    assert (energy.transceivers_J, energy.switches_J, energy.standing_W) == (16, 0, power.total_W)
    with pytest.raises(ComparisonError, match="16 inputs, small has 4; cascade"):
        optical_power(optinc(16), 400e9, small, ENERGIES, loss)
