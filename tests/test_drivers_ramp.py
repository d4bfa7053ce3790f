"""Plans of ramps and of commands that set neighbouring channels."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers._ramp import neighbours, ramp_steps

VOLTS = st.floats(min_value=0.0, max_value=12.0)


def test_steps_move_all_channels_together_and_end_exactly():
    steps = list(ramp_steps({0: 0.0, 1: 2.0, 9: 1.0}, {0: 2.5, 1: 0.5, 9: 1.2}, 1.0))
    assert steps == [{0: 1.0, 1: 1.0, 9: 1.2}, {0: 2.0, 1: 0.5}, {0: 2.5}]


def test_rounding_does_not_add_a_step():
    assert len(list(ramp_steps({0: 0.0}, {0: 0.3}, 0.1))) == 3


def test_an_empty_ramp_has_no_steps():
    assert list(ramp_steps({}, {}, 1.0)) == []


@given(st.dictionaries(st.integers(0, 63), st.tuples(VOLTS, VOLTS), min_size=1), st.floats(0.05, 20.0))
def test_no_step_is_larger_than_allowed_and_none_goes_astray(ends, step):
    start = {channel: pair[0] for channel, pair in ends.items()}
    target = {channel: pair[1] for channel, pair in ends.items()}
    position = dict(start)
    count = 0
    for moves in ramp_steps(start, target, step):
        assert moves
        count += 1
        for channel, volts in moves.items():
            assert abs(volts - position[channel]) <= step * (1.0 + 1e-6)
            assert min(start[channel], target[channel]) <= volts <= max(start[channel], target[channel])
            position[channel] = volts
    assert position == target
    longest = max(abs(target[channel] - start[channel]) for channel in ends)
    assert count <= math.ceil(longest / step) + 1


@pytest.mark.parametrize(
    ("moves", "known", "expected"),
    [
        ({3: 2.5}, {}, [{3: 2.5}]),
        ({2: 3.0, 0: 1.0}, {1: 2.0}, [{0: 1.0, 1: 2.0, 2: 3.0}]),
        ({0: 1.0, 2: 3.0}, {}, [{0: 1.0}, {2: 3.0}]),
        ({7: 1.0, 8: 1.0}, {}, [{7: 1.0}, {8: 1.0}]),
        ({12: 0.0, 9: 12.0}, {10: 0.5, 11: 1e-6}, [{9: 12.0, 10: 0.5, 11: 1e-6, 12: 0.0}]),
    ],
)
def test_runs_of_neighbours(moves, known, expected):
    voltages = np.full(16, np.nan)
    for channel, volts in known.items():
        voltages[channel] = volts
    runs = list(neighbours(moves, voltages, 8))
    assert runs == expected
    assert [list(run) for run in runs] == [sorted(run) for run in expected]


@given(st.dictionaries(st.integers(0, 31), VOLTS), st.dictionaries(st.integers(0, 31), VOLTS))
def test_runs_set_what_moves_and_change_nothing_else(moves, known):
    voltages = np.full(32, np.nan)
    for channel, volts in known.items():
        voltages[channel] = volts
    written = {}
    for run in neighbours(moves, voltages, 8):
        channels = list(run)
        assert channels == list(range(channels[0], channels[-1] + 1))
        assert len({channel // 8 for channel in run}) == 1
        assert {channels[0], channels[-1]} <= set(moves)
        assert not set(run) & set(written)
        written.update(run)
    assert set(moves) <= set(written)
    assert written == {channel: moves.get(channel, known.get(channel)) for channel in written}
