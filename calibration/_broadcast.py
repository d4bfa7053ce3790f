"""One calibration for all ranks of a training job: calibrate once, broadcast, and refuse to train on different ones."""

import json
import re
from typing import TYPE_CHECKING

from pydantic import ValidationError

from optinc_hw.bench import CalibrationRecord
from optinc_hw.errors import CalibrationError

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

_HASH = re.compile(r"[0-9a-f]{64}")
_REMEDY = "give a CalibrationRecord, such as CalibrationRecord.load reads, or None if there is none"


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
        On every rank, if the first rank has no record, or something else instead; on a rank that received another
        content than was sent, or cannot read it; on a rank that is not in the group, or has none.
    """
    from torch import distributed

    rank = _rank_in(group)
    source = _global_rank(group, 0)
    message: list[tuple[str, str] | str | None] = [None]
    if rank == 0:
        message[0] = _sent(record)
    distributed.broadcast_object_list(message, src=source, group=group)
    sent = message[0]
    if sent is None:
        raise CalibrationError(
            f"rank {source} has no calibration record to broadcast; see its log, and calibrate again"
        )
    if isinstance(sent, str):
        raise CalibrationError(f"rank {source} gave {sent} to broadcast; {_REMEDY}")
    if rank == 0 and record is not None:
        return record
    return _received(sent, source)


def _sent(record: CalibrationRecord | None) -> tuple[str, str] | str | None:
    """Return hash and content of a record, or in words what is none: every rank must learn of it, or it waits."""
    if record is None:
        return None
    return (record.content_hash, record.model_dump_json()) if _is_record(record) else _in_words(record)


def _received(sent: tuple[str, str], source: int) -> CalibrationRecord:
    from torch import distributed

    stated, content = sent
    begin = f"rank {distributed.get_rank()} received"
    remedy = "run the same version of optinc-hw on all ranks"
    try:
        received = CalibrationRecord.model_validate(json.loads(content))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "record"
        raise CalibrationError(
            f"{begin} a record from rank {source} that it cannot read ({place}: {first['msg']}); {remedy}"
        ) from error
    if received.content_hash != stated:
        raise CalibrationError(
            f"{begin} the record {received.content_hash[:12]} where rank {source} sent {stated[:12]}; {remedy}"
        )
    return received


def _is_record(record: object) -> bool:
    return isinstance(record, CalibrationRecord)


def _in_words(record: object) -> str:
    return f"a {type(record).__name__} instead of a calibration record"


def _rank_in(group: "ProcessGroup | None") -> int:
    """Return this rank's place in a group.

    Raises
    ------
    CalibrationError
        If it has none, or there is no such group.
    """
    from torch import distributed

    if not (distributed.is_available() and distributed.is_initialized()):
        raise CalibrationError("there is no process group; call torch.distributed.init_process_group first")
    given: object = group  # torch gives a number to ranks that a new group leaves out
    if given == distributed.GroupMember.NON_GROUP_MEMBER:
        raise CalibrationError(
            f"rank {distributed.get_rank()} is not in this process group; only the ranks of a group call this"
        )
    if group is not None and not isinstance(group, distributed.ProcessGroup):
        raise CalibrationError(
            f"group is a {type(group).__name__}; give a torch.distributed.ProcessGroup, or None for all ranks"
        )
    return distributed.get_rank(group)


def _global_rank(group: "ProcessGroup | None", place: int) -> int:
    from torch import distributed

    return place if group is None else distributed.get_global_rank(group, place)


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
        On every rank, if the content hashes differ or a rank has no record, or something else instead; the message
        names the ranks. On a rank that is not in the group, or has none.
    """
    from torch import distributed

    _rank_in(group)
    own = "none" if record is None else record.content_hash if _is_record(record) else _in_words(record)
    found = [""] * distributed.get_world_size(group)
    distributed.all_gather_object(found, own, group=group)
    if len(set(found)) > 1 or not _HASH.fullmatch(found[0]):
        held = ", ".join(
            f"rank {_global_rank(group, place)}: {text[:12] if _HASH.fullmatch(text) else text}"
            for place, text in enumerate(found)
        )
        raise CalibrationError(
            f"the ranks hold different calibration records ({held}); calibrate on one rank and call broadcast_record"
        )
