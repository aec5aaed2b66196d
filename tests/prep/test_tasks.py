"""Tasks in windows, without a cluster."""

from itertools import islice
from types import SimpleNamespace
from typing import Any

import distributed
import pytest

from distrain.prep.workers import as_they_end


class Ended(list[object]):
    """Futures that end in the order in which they were made."""

    def __init__(self, futures: list[object], loop: object):
        super().__init__(futures)
        assert loop == "the client's"

    add = list.append


@pytest.mark.parametrize(("taken", "cancelled"), [(9, []), (2, [[2, 3, 4]])])
def test_only_what_is_in_flight_is_cancelled(
    monkeypatch: pytest.MonkeyPatch, taken: int, cancelled: list[list[int]]
) -> None:
    monkeypatch.setattr(distributed, "as_completed", Ended)
    asked: list[list[int]] = []
    client: Any = SimpleNamespace(
        nthreads=lambda: {"worker": 1}, cancel=asked.append, loop="the client's"
    )

    def submit(place: int, _: tuple[Any, ...]) -> Any:
        return place

    ended = as_they_end(client, submit, [(place, ()) for place in range(9)])
    assert [place for place, _ in islice(ended, taken)] == list(range(taken))
    next(ended, None) if taken == 9 else ended.close()
    assert asked == cancelled
