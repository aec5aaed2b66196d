"""How far a command is, on a terminal and in a log."""

import io

import pytest
from rich.console import Console

from distrain.cli.progress import WorkProgress


class Clock:
    """Time that passes when it is told to."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.parametrize("terminal", [False, True])
def test_rate_and_time_to_go_are_told(terminal: bool) -> None:
    screen, clock = io.StringIO(), Clock()
    console = Console(file=screen, force_terminal=terminal, width=100)
    with WorkProgress(console, clock, from_start=True) as progress:
        for second in range(25):
            clock.now_s = 100.0 + second
            progress.show("reading", second, 24, 1000 * second)
        clock.now_s += 1.0
        progress.show("writing", 0, 1, 0)
        progress.show("writing", 0, 1, 0, "files")
    said = screen.getvalue()
    assert "24/24 tasks, 24,000 rows, 1,000 rows/s, in 24s" in said
    if terminal:
        return
    # A line at the start, one every ten seconds, one at the end.
    assert said.splitlines()[:4] == [
        "reading: 0/24 tasks, 0 rows",
        "reading: 10/24 tasks, 10,000 rows, 1,000 rows/s, ETA 14s",
        "reading: 20/24 tasks, 20,000 rows, 1,000 rows/s, ETA 4s",
        "reading: 24/24 tasks, 24,000 rows, 1,000 rows/s, in 24s",
    ]


def test_quick_work_says_nothing_where_there_is_no_terminal() -> None:
    said, clock = io.StringIO(), Clock()
    with WorkProgress(Console(file=said, width=100), clock) as progress:
        for second in range(10):
            clock.now_s = 100.0 + second
            progress.show("scoring", second, 9, 0, "rows")
        assert said.getvalue() == ""
        for second in (0, 10, 12):
            clock.now_s = 200.0 + second
            progress.show("ordering", second, 12, 0, "rows")
    assert said.getvalue().splitlines() == [
        "ordering: 10/12 rows, ETA 2s",
        "ordering: 12/12 rows, in 12s",
    ]
