"""What each of two ranks does in the tests of distributed calibration; runs in processes of its own."""

import json
from pathlib import Path

import numpy as np
import torch
from test_bench_record import make_record
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from twins import imperfect_twin

from calibration import CalibrationRecord, broadcast_record, require_same_record
from optinc_hw.errors import CalibrationError
from optinc_hw.photonics import ChipModel

PORTS = 2


def run(rank, folder):
    """Join the other rank over the loopback interface, try everything, and write what was found to a file."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    try:
        found = {**_records(rank), **_mistakes(rank), **_chips(rank, Path(folder))}
        Path(folder, f"rank_{rank}.json").write_text(json.dumps(found))
    finally:
        distributed.destroy_process_group()


def _refusal(act):
    try:
        act()
    except CalibrationError as error:
        return str(error)
    return ""


def _records(rank):
    own = make_record(PORTS, resistance=1000.0 + rank)
    refused = _refusal(lambda: require_same_record(own))
    missing = _refusal(lambda: require_same_record(own if rank == 0 else None))
    shared = broadcast_record(own if rank == 0 else None)
    require_same_record(shared)
    failed = _refusal(lambda: broadcast_record(None if rank == 0 else own))
    return {
        "refused": refused, "missing": missing, "failed": failed, "hash": shared.content_hash,
        "resistance": float(shared.resistance_ohm[0]),
    }  # fmt: skip


class LaterRecord(CalibrationRecord):
    """A record as a later version may send it: with one entry more."""

    def model_dump_json(self):
        return json.dumps({**json.loads(super().model_dump_json()), "later": 1})


def _mistakes(rank):
    """What a rank gives that is no record, or nothing that others can read; a group that it is not in."""
    own, path = make_record(PORTS), "calibration.json"
    later = LaterRecord.model_validate(json.loads(own.model_dump_json()))
    alone = [distributed.new_group([member]) for member in (0, 1)]
    other = alone[1 - rank]
    return {
        "sent path": _refusal(lambda: broadcast_record(path if rank == 0 else None)),
        "path elsewhere": _refusal(lambda: broadcast_record(own if rank == 0 else path)),
        "first path": _refusal(lambda: require_same_record(path if rank == 0 else own)),
        "last path": _refusal(lambda: require_same_record(own if rank == 0 else path)),
        "all paths": _refusal(lambda: require_same_record(path)),
        "later": _refusal(lambda: broadcast_record(later if rank == 0 else None)),
        "not in it": _refusal(lambda: broadcast_record(own, other)),
        "not in it, same": _refusal(lambda: require_same_record(own, other)),
        "no group": _refusal(lambda: broadcast_record(own, "first")),
        "alone": _refusal(lambda: require_same_record(None, alone[rank])),
        "alone, sent": broadcast_record(own, alone[rank]).content_hash,
    }


class Layer(nn.Module):
    """Trained powers in front of a chip that is the rank's own."""

    def __init__(self, twin):
        super().__init__()
        self.phases = nn.Parameter(torch.full((1, len(twin.offset)), 0.3, dtype=torch.float64))
        self.offset = torch.as_tensor(twin.offset)
        self.chip = ChipModel.from_parameters(twin)

    def forward(self):
        return self.chip.detector_powers(self.phases + self.offset)


def _chips(rank, folder):
    twin = imperfect_twin(PORTS, seed=rank)
    layer = Layer(twin)
    torch.save(layer.state_dict(), folder / f"checkpoint_{rank}.pt")
    # The report's fatal case: a checkpoint of another rank, loaded before DDP wraps the layer.
    distributed.barrier()
    layer.load_state_dict(torch.load(folder / f"checkpoint_{1 - rank}.pt", weights_only=True))
    trained = DistributedDataParallel(layer)
    alone = ChipModel.from_parameters(twin).detector_powers(layer.phases.detach() + torch.as_tensor(twin.offset))
    before = trained()
    optimiser = torch.optim.SGD(trained.parameters(), lr=1e2)
    before.sum().backward()
    optimiser.step()
    return {
        "own_chip": bool(torch.equal(before.detach(), alone)),
        "outputs": before.detach().ravel().tolist(),
        "phases": layer.phases.detach().ravel().tolist(),
        "untouched": bool(np.array_equal(layer.chip.elements.mesh_eta.numpy(), twin.mesh_eta)),
        "state": sorted(layer.state_dict()),
    }
