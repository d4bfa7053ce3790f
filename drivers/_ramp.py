"""Plans of ramps and VVEC lines, as pure functions."""

import math
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

CHANNELS_PER_MODULE = 8

_VOLT_DECIMALS = 5
"""10 uV: an eighteenth of the converter's step, and short enough for the module's instruction buffer."""


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
        moves = {
            channel: end
            if abs(end - start[channel]) <= travel * (1.0 + _ROUNDING)
            else start[channel] + math.copysign(travel, end - start[channel])
            for channel, end in moving.items()
        }
        yield moves
        moving = {channel: end for channel, end in moving.items() if moves[channel] != end}


def vector_lines(moves: Mapping[int, float], known: NDArray[np.float64]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield one VVEC command for each module that ``moves`` touches, with the channels that it moves.

    A VVEC sets a run of neighbouring channels. Channels inside the run that do not move keep their ``known``
    voltage; at one whose voltage is not known (NaN) the run is split, because nothing may be sent for it.
    """
    run: list[int] = []
    for channel in sorted(moves):
        if run and not _joins(run[-1], channel, known):
            yield _line(run, moves, known)
            run = []
        run.append(channel)
    if run:
        yield _line(run, moves, known)


def _joins(last: int, channel: int, known: NDArray[np.float64]) -> bool:
    same_module = last // CHANNELS_PER_MODULE == channel // CHANNELS_PER_MODULE
    return same_module and not np.isnan(known[last + 1 : channel]).any()


def _line(run: list[int], moves: Mapping[int, float], known: NDArray[np.float64]) -> tuple[str, tuple[int, ...]]:
    values = (moves.get(channel, float(known[channel])) for channel in range(run[0], run[-1] + 1))
    return f"VVEC{run[0]}=" + ",".join(f"{value:.{_VOLT_DECIMALS}f}" for value in values), tuple(run)
