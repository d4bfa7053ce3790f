"""Two ranks on one machine: one record for both (C-10), and a chip of its own for each (C-11)."""

import json

import pytest
import torch.multiprocessing
from _calibration_ranks import run
from test_bench_record import make_record

from calibration import broadcast_record, require_same_record
from optinc_hw.errors import CalibrationError


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLOO_SOCKET_IFNAME", "lo")
        patch.setenv("OMP_NUM_THREADS", "1")
        torch.multiprocessing.spawn(run, args=(str(folder),), nprocs=2)
    return [json.loads((folder / f"rank_{rank}.json").read_text()) for rank in (0, 1)]


def test_c10_all_ranks_hold_the_record_of_the_first(ranks):
    expected = make_record(2, resistance=1000.0)
    assert [found["hash"] for found in ranks] == [expected.content_hash] * 2
    assert [found["resistance"] for found in ranks] == [1000.0, 1000.0]


def test_c10_different_or_missing_records_are_refused_on_every_rank(ranks):
    for found in ranks:
        assert "the ranks hold different calibration records (rank 0: " in found["refused"]
        assert make_record(2, resistance=1001.0).content_hash[:12] in found["refused"]
        assert "rank 1: none" in found["missing"]


def test_c10_a_failed_calibration_ends_all_ranks_instead_of_leaving_them_waiting(ranks):
    for found in ranks:
        assert "rank 0 has no calibration record to broadcast" in found["failed"]


def test_c10_what_is_no_record_is_refused_on_every_rank_instead_of_leaving_them_waiting(ranks):
    for found in ranks:
        assert found["sent path"].startswith("rank 0 gave a str instead of a calibration record to broadcast; give a")
        assert found["path elsewhere"] == ""  # the others' is not looked at
        assert "(rank 0: a str instead of a calibration record, rank 1: " in found["first path"]
        assert "rank 1: a str instead of a calibration record)" in found["last path"]
        assert "rank 0: a str" in found["all paths"]


def test_c10_a_record_of_another_version_is_named_where_it_cannot_be_read(ranks):
    assert ranks[0]["later"] == ""
    assert ranks[1]["later"].startswith("rank 1 received a record from rank 0 that it cannot read (later: ")
    assert ranks[1]["later"].endswith("run the same version of optinc-hw on all ranks")


def test_c10_only_ranks_of_a_group_may_ask(ranks):
    for rank, found in enumerate(ranks):
        for refusal in (found["not in it"], found["not in it, same"]):
            assert refusal == f"rank {rank} is not in this process group; only the ranks of a group call this"
        assert "group is a str; give a torch.distributed.ProcessGroup" in found["no group"]
        assert f"(rank {rank}: none)" in found["alone"]  # by its number in the job
        assert found["alone, sent"] == make_record(2).content_hash


def test_c10_without_a_process_group_the_way_to_one_is_named():
    for ask in (broadcast_record, require_same_record):
        with pytest.raises(CalibrationError, match=r"call torch.distributed.init_process_group first"):
            ask(make_record(2))


def test_c11_each_rank_drives_its_own_chip(ranks):
    assert [found["own_chip"] for found in ranks] == [True, True]
    assert ranks[0]["outputs"] != ranks[1]["outputs"]
    assert [found["untouched"] for found in ranks] == [True, True]


def test_c11_only_what_is_trained_is_shared_and_saved(ranks):
    assert ranks[0]["phases"] == ranks[1]["phases"]
    assert ranks[0]["phases"] != pytest.approx([0.3] * len(ranks[0]["phases"]), abs=1e-12)
    assert ranks[0]["state"] == ["phases"]
