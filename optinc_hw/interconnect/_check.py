"""Proof that a schedule is an all-reduce, and that no channel is used twice."""

from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from optinc_hw.errors import ScheduleError
from optinc_hw.interconnect._fabrics import Crossbar, Ints, SwitchTree, WdmRing
from optinc_hw.interconnect._schedule import Circuits, Schedule, Step

_WORD = 64


def check_schedule(schedule: Schedule) -> None:
    """Prove that every server ends with each server's contribution to each chunk exactly once.

    The schedule is executed on sets: what a node holds of a chunk is the set of servers whose vectors are in it, as
    bits of a word.  A node may add only disjoint sets, so every sum is exact; nothing is computed in floating point.
    All sources of a step send what they hold when it begins.

    Parameters
    ----------
    schedule
        Of any fabric and number of servers; time and memory grow with servers squared times chunks.

    Raises
    ------
    ScheduleError
        Naming step, transfer, node and channel, if a contribution is lost or added twice; a node sends what it does
        not hold, or receives a chunk twice in place of what it held; a wavelength is used twice on a segment and
        direction, a transceiver or link twice in a step; a hop is longer than the reach, or shorter than a segment;
        a step is streamed of what a switch did not receive in the step before, or over a link that is still in use;
        circuits change unannounced.
    """
    holdings = _Holdings(schedule)
    number = 0
    before: Circuits | None = None
    for phase in schedule.phases:
        for index in range(phase.steps):
            step = phase.step(index)
            at = _Place(schedule, number, step)
            if index == 0:
                _check_fabric(at)
                if not isinstance(schedule.fabric, SwitchTree):
                    _check_announced(at, before)
            holdings.carry_out(at)
            before = step.circuits
            number += 1
    holdings.check_complete()


class _Place:
    """A step of a schedule, for messages."""

    def __init__(self, schedule: Schedule, number: int, step: Step) -> None:
        self.schedule = schedule
        self.number = number
        self.step = step

    def fail(self, transfer: int, problem: str, remedy: str) -> NoReturn:
        """Raise ScheduleError about a transfer of this step."""
        circuits = self.step.circuits
        source, target = int(circuits.source[transfer]), int(circuits.target[transfer])
        raise ScheduleError(
            f"{self.schedule.name} of {self.schedule.nodes} servers, step {self.number} ({self.step.kind}), transfer "
            f"{transfer} from node {source} to node {target}: {problem}; {remedy}"
        )


def _first(wrong: Any) -> int | None:  # Any: numpy's comparisons are arrays or scalars to mypy
    """Return the first index that is wrong."""
    found = np.flatnonzero(wrong)
    return int(found[0]) if found.size else None


def _check_fabric(at: _Place) -> None:
    circuits, members = at.step.circuits, at.schedule.nodes + at.schedule.switches
    columns = (*circuits.columns, at.step.first, at.step.stop)
    sizes, kinds = {column.shape for column in columns}, {column.dtype for column in columns}
    if sizes != {(circuits.source.size,)} or not circuits.source.size or kinds != {np.dtype(np.int64)}:
        raise ScheduleError(
            f"{at.schedule.name}, step {at.number} ({at.step.kind}): the columns of its transfers have the shapes "
            f"{sorted(sizes)} and types {sorted(map(str, kinds))}; give one int64 a transfer in each, and at least "
            f"one transfer"
        )
    for node in (circuits.source, circuits.target):
        wrong = _first((node < 0) | (node >= members))
        if wrong is not None:
            at.fail(wrong, f"there is no node {int(node[wrong])}", f"nodes are 0 to {members - 1}")
    wrong = _first(circuits.source == circuits.target)
    if wrong is not None:
        at.fail(wrong, "a node sends to itself", "leave the transfer out")
    fabric = at.schedule.fabric
    if isinstance(fabric, WdmRing):
        _check_ring(at, fabric)
    elif isinstance(fabric, Crossbar):
        _check_crossbar(at, fabric)
    else:
        _check_tree(at, fabric)
    server = _first(circuits.source < at.schedule.nodes)
    if at.step.streamed and server is not None:
        at.fail(server, "only switches pass vectors on while they come in", "make the step not streamed")


def _check_channels(at: _Place, limit: int, what: str) -> None:
    channel = at.step.circuits.channel
    wrong = _first((channel < 0) | (channel >= limit))
    if wrong is not None:
        at.fail(
            wrong, f"{what} {int(channel[wrong])} does not exist, there are {limit}", "cut the step into rounds"
        )  # fmt: skip


def _check_ring(at: _Place, ring: WdmRing) -> None:
    circuits, nodes = at.step.circuits, at.schedule.nodes
    _check_channels(at, ring.wavelengths, "wavelength")
    wrong = _first(np.abs(circuits.direction) != 1)
    if wrong is not None:
        at.fail(wrong, f"direction {int(circuits.direction[wrong])} is none of a ring's", "use +1 or -1")
    length = circuits.direction * (circuits.target - circuits.source) % nodes
    wrong = _first(length != circuits.segments)
    if wrong is not None:
        said = int(circuits.segments[wrong])
        at.fail(wrong, f"the way is {int(length[wrong])} segments, not {said}", "correct its segments")
    wrong = _first((circuits.relays < 0) | (circuits.relays >= length))
    if wrong is not None:
        at.fail(
            wrong, f"{int(circuits.relays[wrong])} nodes are to regenerate the light on {int(length[wrong])} segments",
            f"give 0 to {int(length[wrong]) - 1} relays",
        )  # fmt: skip
    if ring.reach is not None:
        hop = -(-length // (circuits.relays + 1))
        wrong = _first(hop > ring.reach)
        if wrong is not None:
            relays = int((length[wrong] - 1) // ring.reach)
            at.fail(
                wrong, f"an optical hop of {int(hop[wrong])} segments exceeds the reach of {ring.reach}",
                f"regenerate the light in {relays} nodes on the way",
            )  # fmt: skip
    _check_arcs(at, nodes)


def _check_arcs(at: _Place, nodes: int) -> None:
    """Arcs of one wavelength and direction must be disjoint: sort them by where they begin."""
    circuits = at.step.circuits
    start = np.where(circuits.direction > 0, circuits.source, circuits.target)
    key = 2 * circuits.channel + (circuits.direction > 0)
    order = np.lexsort((start, key))
    start, stop, key = start[order], (start + circuits.segments)[order], key[order]
    begins = np.concatenate([[True], key[1:] != key[:-1]])
    heads = np.flatnonzero(begins)
    following = np.arange(1, key.size + 1)
    following[np.append(heads[1:] - 1, key.size - 1)] = heads  # the last arc of a key is followed by its first
    after = start[following] + nodes * (following <= np.arange(key.size))
    wrong = _first(stop > after)
    if wrong is not None:
        transfer, other = int(order[wrong]), int(order[following[wrong]])
        way = "upward" if key[wrong] & 1 else "downward"
        at.fail(
            transfer,
            f"wavelength {int(key[wrong]) // 2} is used twice on segment {int(after[wrong]) % nodes} {way}, also by "
            f"transfer {other} from node {int(circuits.source[other])} to node {int(circuits.target[other])}",
            "give one of them another wavelength or step",
        )


def _check_off_ring(at: _Place) -> None:
    circuits = at.step.circuits
    for name, column, value in (
        ("direction", circuits.direction, 0), ("segments", circuits.segments, 1), ("relays", circuits.relays, 0)
    ):  # fmt: skip
        wrong = _first(column != value)
        if wrong is not None:
            at.fail(wrong, f"{name} {int(column[wrong])} is a ring's", f"give {name} {value} off a ring")


def _check_crossbar(at: _Place, crossbar: Crossbar) -> None:
    circuits = at.step.circuits
    _check_off_ring(at)
    _check_channels(at, crossbar.transceivers, "transceiver")
    for what, node in (("transmitter", circuits.source), ("receiver", circuits.target)):
        again = _repeated(node * crossbar.transceivers + circuits.channel)
        if again is not None:
            channel = int(circuits.channel[again])
            at.fail(
                again, f"{what} {channel} of node {int(node[again])} is used twice", "use another one or another step"
            )  # fmt: skip


def _check_tree(at: _Place, tree: SwitchTree) -> None:
    circuits = at.step.circuits
    _check_off_ring(at)
    _check_channels(at, 1, "channel")
    up = tree.parents[circuits.source] == circuits.target
    wrong = _first(~(up | (tree.parents[circuits.target] == circuits.source)))
    if wrong is not None:
        at.fail(wrong, "there is no link between them", "send along the tree")
    again = _repeated(circuits.source * tree.parents.size + circuits.target)
    if again is not None:
        at.fail(again, "the link is used twice in this direction", "use another step")


def _check_announced(at: _Place, before: Circuits | None) -> None:
    if at.step.reconfigures:
        return
    if before is None or not at.step.circuits.within(before):
        at.fail(0, "circuits differ from those of the step before", "set reconfigures of the step")


def _repeated(values: Ints) -> int | None:
    """Return the index of a value that occurs earlier, too."""
    order = np.argsort(values, kind="stable")
    again = _first(values[order][1:] == values[order][:-1])
    return None if again is None else int(order[again + 1])


class _Holdings:
    """(node, chunk) rows of words, whose bits say which servers' vectors are in what the node holds."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        nodes, chunks = schedule.nodes, schedule.chunks
        words = -(-nodes // _WORD)
        servers = np.arange(nodes)
        own = np.zeros((nodes, words), dtype=np.uint64)
        own[servers, servers // _WORD] = np.uint64(1) << (servers % _WORD).astype(np.uint64)
        self._all = np.bitwise_or.reduce(own)
        self._held = np.zeros(((nodes + schedule.switches) * chunks, words), dtype=np.uint64)
        self._held[: nodes * chunks] = np.repeat(own, chunks, axis=0)
        self._stream = _Stream(schedule)

    def carry_out(self, at: _Place) -> None:
        """Let all targets of a step receive."""
        step, chunks = at.step, self._schedule.chunks
        wrong = _first((step.first < 0) | (step.stop > chunks) | (step.first >= step.stop))
        if wrong is not None:
            given = f"{int(step.first[wrong])} to {int(step.stop[wrong])}"
            at.fail(wrong, f"chunks {given} are no part of {chunks}", "give first < stop within the chunks")
        transfer, chunk = _expand(step.first, step.stop)
        sent = self._held[step.circuits.source[transfer] * chunks + chunk]
        empty = _first(~sent.any(axis=1))
        if empty is not None:
            index = int(transfer[empty])
            at.fail(index, f"the node holds nothing of chunk {int(chunk[empty])} yet", "let it receive first")
        rows = step.circuits.target[transfer] * chunks + chunk
        if isinstance(self._schedule.fabric, SwitchTree):
            self._stream.carry_out(at, transfer, chunk, rows)
        if step.add:
            self._add(at, transfer, chunk, rows, sent)
            return
        again = _repeated(rows)
        if again is not None:
            problem = f"chunk {int(chunk[again])} of the target is replaced twice in one step"
            at.fail(int(transfer[again]), problem, "leave one of the transfers out")
        self._held[rows] = sent

    def check_complete(self) -> None:
        """Raise ScheduleError unless every server holds every contribution to every chunk."""
        nodes, chunks = self._schedule.nodes, self._schedule.chunks
        missing = self._all & ~self._held[: nodes * chunks]
        row = _first(missing.any(axis=1))
        if row is None:
            return
        bits = np.unpackbits(missing[row].astype("<u8").view(np.uint8), bitorder="little")
        lost = np.flatnonzero(bits).tolist()
        raise ScheduleError(
            f"{self._schedule.name} of {nodes} servers: after the last step node {row // chunks} lacks the "
            f"contribution of {len(lost)} servers ({lost[0]} is the first) to chunk {row % chunks}; add the transfers "
            f"that bring it there"
        )

    def _add(self, at: _Place, transfer: Ints, chunk: Ints, rows: Ints, sent: NDArray[np.uint64]) -> None:
        """Add to rows that may occur several times: the first arrivals of all rows, then the second, and so on."""
        order = np.argsort(rows, kind="stable")
        ordered = rows[order]
        heads = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        turn = np.arange(rows.size) - np.repeat(heads, np.diff(np.append(heads, rows.size)))
        turns = np.argsort(turn, kind="stable")
        for which in np.split(order[turns], np.cumsum(np.bincount(turn))[:-1]):
            held = self._held[rows[which]]
            double = held & sent[which]
            wrong = _first(double.any(axis=1))
            if wrong is not None:
                entry = which[wrong]
                bits = np.unpackbits(double[wrong].astype("<u8").view(np.uint8), bitorder="little")
                at.fail(
                    int(transfer[entry]),
                    f"the contribution of server {int(np.flatnonzero(bits)[0])} to chunk {int(chunk[entry])} would be "
                    f"added twice",
                    "leave one of the transfers out",
                )
            self._held[rows[which]] = held | sent[which]


class _Stream:
    """A step and those streamed after it, which all send at the same time.

    So a streamed step can pass on only what came in the step before, and no link may be used twice in all of them.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._members = schedule.nodes + schedule.switches
        self._chunks = schedule.chunks
        self._arrived: Ints = np.zeros(0, dtype=np.int64)
        self._links: Ints = np.zeros(0, dtype=np.int64)

    def carry_out(self, at: _Place, transfer: Ints, chunk: Ints, rows: Ints) -> None:
        """Check a step if it is streamed, and note the links that it uses and the rows in which chunks arrive."""
        circuits = at.step.circuits
        links = circuits.source * self._members + circuits.target
        if at.step.streamed:
            missing = _first(~np.isin(circuits.source[transfer] * self._chunks + chunk, self._arrived))
            if missing is not None:
                problem = f"the step is streamed, but in the step before chunk {int(chunk[missing])} did not come in"
                at.fail(int(transfer[missing]), problem, "make the step not streamed")
            busy = _first(np.isin(links, self._links))
            if busy is not None:
                problem = "the link still carries what an earlier step of the stream sends on it"
                at.fail(busy, problem, "make the step not streamed")
            links = np.concatenate([self._links, links])
        self._arrived, self._links = rows, links


def _expand(first: Ints, stop: Ints) -> tuple[Ints, Ints]:
    """Return a row for each chunk of each transfer: the transfer and the chunk."""
    count = stop - first
    transfer = np.repeat(np.arange(count.size), count)
    begin = np.cumsum(count) - count
    return transfer, np.arange(transfer.size) - begin[transfer] + first[transfer]
