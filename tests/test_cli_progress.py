"""Progress on a console."""

import io

from rich.console import Console

from optinc_hw._progress import ProgressDisplay


def test_a_log_gets_one_line_a_stage():
    stream = io.StringIO()
    with ProgressDisplay(Console(file=stream, width=100)) as show:
        for done in range(5):
            show("sweep [a]", done, 5)
        show("fit", 1, 1)
    lines = [line.split(" s  ")[1] for line in stream.getvalue().splitlines()]
    assert lines == ["sweep [a]", "fit"]


def test_a_terminal_gets_bars_that_end_full():
    stream = io.StringIO()
    with ProgressDisplay(Console(file=stream, width=100, force_terminal=True)) as show:
        show("sweep", 1, 4)
        show("sweep", 4, 4)
        show("fit", 3, 8)  # ends early
    text = stream.getvalue()
    assert "4/4" in text
    assert "3/3" in text
