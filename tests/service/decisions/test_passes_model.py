"""Two reconcilers, an unreliable scheduler and users who change their minds, in any order."""

import pytest
from service_story import walk


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "count", "moves"),
    [
        (0, 150, 60),
        pytest.param(1000, 300, 120, marks=pytest.mark.slow),
        pytest.param(2000, 4000, 120, marks=pytest.mark.release),
    ],
)
def test_whatever_happens_no_attempt_starts_twice_and_every_job_ends(
    first: int, count: int, moves: int
) -> None:
    for seed in range(first, first + count):
        walk(seed, moves)
