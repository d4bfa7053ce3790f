"""What modules and factories of users may look like, and how others are refused."""

import pytest
import torch
from torch import nn

from optinc_hw.errors import ComparisonError
from optinc_hw.interconnect.comparison import load_module, measure_workload

FLOPS = 2 * 2 * 8 * 4  # of 8 x 4 weights: forward, and gradients of weights


class Answering(nn.Module):
    """Answers with whatever is made of the output of a layer of 8 x 4 weights."""

    def __init__(self, make):
        super().__init__()
        self.layer, self.make = nn.Linear(8, 4), make

    def forward(self, x):
        return self.make(self.layer(x))


@pytest.mark.parametrize(
    "make",
    [
        lambda y: y, lambda y: (y, None), lambda y: [y], lambda y: {"loss": y, "hidden": None},
        lambda y: ([{"a": y}], "text"), lambda y: y.to(torch.complex64),
    ],
)  # fmt: skip
def test_the_first_entry_of_an_answer_is_differentiated(make):
    assert measure_workload("net", Answering(make), torch.zeros(5, 8)).flops_per_sample == FLOPS


@pytest.mark.parametrize(
    ("make", "got"),
    [
        (lambda _: "text", "a str"), (lambda _: None, "None"), (lambda _: (), "a tuple"), (lambda _: {}, "a dict"),
        (lambda _: ["text"], "a list"), (lambda y: y.detach(), "a Tensor"), (lambda y: y.argmax(1), "a Tensor"),
        (lambda y: iter([y]), "a list_iterator"),
    ],
)  # fmt: skip
def test_answers_without_gradients_are_refused(make, got):
    with pytest.raises(ComparisonError, match=rf"net must return a tensor that depends .* got {got}"):
        measure_workload("net", Answering(make), torch.zeros(5, 8))


def test_frozen_modules_are_refused():
    with pytest.raises(ComparisonError, match="nothing is trained; unfreeze it"):
        measure_workload("net", nn.Linear(8, 4).requires_grad_(False), torch.zeros(5, 8))


@pytest.mark.parametrize(
    ("inputs", "got"),
    [
        ({"x": torch.zeros(5, 8)}, "a dict"), (None, "None"), ((), "a tuple"), (torch.tensor(1.0), "a Tensor"),
        (torch.zeros(0, 8), "a Tensor"), ("text", "a str"), ((5,), "a tuple"),
    ],
)  # fmt: skip
def test_inputs_without_samples_are_refused(inputs, got):
    with pytest.raises(ComparisonError, match=rf"inputs of net must be a tensor of one sample or more.* got {got}"):
        measure_workload("net", nn.Linear(8, 4), inputs)


def test_gradients_of_the_caller_stay():
    net, inputs = nn.Linear(8, 4), torch.zeros(5, 8, requires_grad=True)
    net.weight.grad = torch.full((4, 8), 3.0)
    with torch.no_grad():  # which must not stop the count
        measure_workload("net", net, inputs)
    assert torch.equal(net.weight.grad, torch.full((4, 8), 3.0))
    assert (net.bias.grad, inputs.grad) == (None, None)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("their_net:sized", "takes no arguments.*size"), ("their_net:value", "takes no arguments"),
        ("their_net:none", "got a NoneType"), (".their_net:sized", "no factory"), ("", "no factory"),
        (":sized", "no factory"), ("their_net", "no factory"), ("builtins:dict", "no arguments|got a dict"),
    ],
)  # fmt: skip
def test_other_factories_are_refused(path, message, tmp_path, monkeypatch):
    (tmp_path / "their_net.py").write_text(
        "import torch\n"
        "value = 5\n"
        "def sized(size): return torch.nn.Linear(size, 2)\n"
        "def none(size=3): return None\n"
    )  # fmt: skip
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ComparisonError, match=message):
        load_module(path)
