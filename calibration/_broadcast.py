"""One calibration for all ranks of a training job: calibrate once, broadcast, and refuse to train on different ones."""

import json
from typing import TYPE_CHECKING

from optinc_hw.bench import CalibrationRecord
from optinc_hw.errors import CalibrationError

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


def broadcast_record(record: CalibrationRecord | None, group: "ProcessGroup | None" = None) -> CalibrationRecord:
    """Give the record of a group's first rank to all its ranks; every rank of the group calls this.

    Parameters
    ----------
    record
        On the first rank the record, or None if its calibration failed; not looked at elsewhere.
    group
        Process group; None is the default group.

    Returns
    -------
    CalibrationRecord
        The first rank's record on every rank, checked against its content hash.

    Raises
    ------
    CalibrationError
        On every rank, if the first rank has no record; on a rank that received another content than was sent.
    """
    from torch import distributed

    source = distributed.get_global_rank(group, 0) if group is not None else 0
    first = distributed.get_rank() == source
    message: list[tuple[str, str] | None] = [None]
    if first and record is not None:
        message[0] = record.content_hash, record.model_dump_json()
    distributed.broadcast_object_list(message, src=source, group=group)
    if message[0] is None:
        raise CalibrationError(
            f"rank {source} has no calibration record to broadcast; see its log, and calibrate again"
        )
    if first and record is not None:
        return record
    stated, content = message[0]
    received = CalibrationRecord.model_validate(json.loads(content))
    if received.content_hash != stated:
        raise CalibrationError(
            f"rank {distributed.get_rank()} received the record {received.content_hash[:12]} where rank {source} sent "
            f"{stated[:12]}; run the same version of optinc-hw on all ranks"
        )
    return received


def require_same_record(record: CalibrationRecord | None, group: "ProcessGroup | None" = None) -> None:
    """Refuse to go on unless all ranks of a group hold the same record; every rank of the group calls this.

    Parameters
    ----------
    record
        This rank's record, or None if it has none.
    group
        Process group; None is the default group.

    Raises
    ------
    CalibrationError
        On every rank, if the content hashes differ or a rank has no record; the message names the ranks.
    """
    from torch import distributed

    own = record.content_hash if record is not None else "none"
    found = [""] * distributed.get_world_size(group)
    distributed.all_gather_object(found, own, group=group)
    if len(set(found)) > 1 or "none" in found:
        held = ", ".join(f"rank {rank}: {text[:12]}" for rank, text in enumerate(found))
        raise CalibrationError(
            f"the ranks hold different calibration records ({held}); calibrate on one rank and call broadcast_record"
        )
