"""Plans of ramps, as pure functions."""

import math
from collections.abc import Iterator, Mapping, Sequence

_ROUNDING = 1e-9
"""Relative slack that keeps 0.3 V in steps of 0.1 V at three steps."""


def ramp_steps(start: Mapping[int, float], target: Mapping[int, float], step: float) -> Iterator[dict[int, float]]:
    """Yield the voltages to set at each step of a ramp of all channels together.

    Every channel moves by ``step`` V at a time and its last move ends on the target exactly; a step holds the
    channels that still move, and the first step holds every channel.
    """
    moving = dict(target)
    count = 0
    while moving:
        count += 1
        travel = count * step
        reach = travel * (1.0 + _ROUNDING)
        if all(abs(end - start[channel]) <= reach for channel, end in moving.items()):
            yield moving
            return
        moves = {
            channel: end
            if abs(end - start[channel]) <= reach
            else start[channel] + math.copysign(travel, end - start[channel])
            for channel, end in moving.items()
        }
        yield moves
        moving = {channel: end for channel, end in moving.items() if moves[channel] != end}


def neighbours(
    moves: Mapping[int, float], known: Sequence[float], channels_per_unit: int
) -> Iterator[dict[int, float]]:
    """Cut ``moves`` into runs of neighbouring channels of one unit, for commands that set such runs.

    Channels inside a run that do not move keep their ``known`` voltage; at one whose voltage is not known (NaN) the
    run is split, because nothing may be sent for it.
    """
    run: dict[int, float] = {}
    last = -1
    for channel in sorted(moves):
        if run and (channel % channels_per_unit == 0 or channel != last + 1):
            gap = range(last + 1, channel)
            same_unit = last // channels_per_unit == channel // channels_per_unit
            if same_unit and not any(math.isnan(known[between]) for between in gap):
                run.update((between, known[between]) for between in gap)
            else:
                yield run
                run = {}
        run[channel] = moves[channel]
        last = channel
    if run:
        yield run
