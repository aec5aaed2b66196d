"""The documentation has the table that the code opens with, and every state."""

from pathlib import Path

from distrain.jobs import JobState
from distrain.service.decide import CANCELLING, HANDING_OVER, QUEUED, UNKNOWN, rules

PAGE = (Path(__file__).parents[3] / "docs" / "service-states.md").read_text()


def test_the_table_of_decisions_is_that_of_the_code() -> None:
    rows = [line for line in str(rules.__doc__).splitlines() if line.startswith("|")]
    assert len(rows) > 8
    assert "\n".join(rows) in PAGE


def test_every_shown_state_is_explained() -> None:
    states = [QUEUED, HANDING_OVER, CANCELLING, UNKNOWN, *map(str, JobState)]
    assert [state for state in states if f"`{state}`" not in PAGE] == []
