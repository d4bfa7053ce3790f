"""Plans of ramps and VVEC lines."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivers._ramp import ramp_steps, vector_lines

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
        ({3: 2.5}, {}, [("VVEC3=2.50000", (3,))]),
        ({0: 1.0, 2: 3.0}, {1: 2.0}, [("VVEC0=1.00000,2.00000,3.00000", (0, 2))]),
        ({0: 1.0, 2: 3.0}, {}, [("VVEC0=1.00000", (0,)), ("VVEC2=3.00000", (2,))]),
        ({7: 1.0, 8: 1.0}, {}, [("VVEC7=1.00000", (7,)), ("VVEC8=1.00000", (8,))]),
        ({12: 0.0, 9: 12.0}, {10: 0.5, 11: 1e-6}, [("VVEC9=12.00000,0.50000,0.00000,0.00000", (9, 12))]),
    ],
)
def test_vector_lines(moves, known, expected):
    voltages = np.full(16, np.nan)
    for channel, volts in known.items():
        voltages[channel] = volts
    assert list(vector_lines(moves, voltages)) == expected


@given(st.dictionaries(st.integers(0, 31), VOLTS), st.dictionaries(st.integers(0, 31), VOLTS))
def test_vector_lines_set_what_moves_and_change_nothing_else(moves, known):
    voltages = np.full(32, np.nan)
    for channel, volts in known.items():
        voltages[channel] = volts
    written = {}
    for command, channels in vector_lines(moves, voltages):
        head, values = command.removeprefix("VVEC").split("=")
        run = dict(enumerate(map(float, values.split(",")), start=int(head)))
        assert len({channel // 8 for channel in run}) == 1
        assert len(command) < 80
        assert set(channels) == set(run) & set(moves)
        written.update(run)
    for channel, volts in written.items():
        assert volts == pytest.approx(moves.get(channel, known.get(channel)), abs=1e-5)
    assert set(moves) <= set(written)
