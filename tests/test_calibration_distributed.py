"""Two ranks on one machine: one record for both (C-10), and a chip of its own for each (C-11)."""

import json

import pytest
import torch.multiprocessing
from _calibration_ranks import run
from test_bench_record import make_record


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


def test_c11_each_rank_drives_its_own_chip(ranks):
    assert [found["own_chip"] for found in ranks] == [True, True]
    assert ranks[0]["outputs"] != ranks[1]["outputs"]
    assert [found["untouched"] for found in ranks] == [True, True]


def test_c11_only_what_is_trained_is_shared_and_saved(ranks):
    assert ranks[0]["phases"] == ranks[1]["phases"]
    assert ranks[0]["phases"] != pytest.approx([0.3] * len(ranks[0]["phases"]), abs=1e-12)
    assert ranks[0]["state"] == ["phases"]
