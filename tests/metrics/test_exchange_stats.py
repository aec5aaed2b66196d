"""What steps looked up and sent, added up over steps and over ranks."""

from dataclasses import replace

import pytest

from distrain.metrics.exchange_stats import (
    ExchangeStats,
    add_up_exchanges,
    follow_up_exchanges,
)


def stats_of(*steps, route_s=0.0):
    """The sum of steps: ids looked up, distinct rows, updated rows and sent bytes of each."""
    return sum(
        (ExchangeStats(1, *counts, route_s=route_s) for counts in steps), start=ExchangeStats()
    )


def test_steps_add_up():
    stats = stats_of((100, 30, 50, 1000), (60, 10, 10, 200), route_s=0.25)
    assert stats.to_json() == {
        "steps": 2,
        "lookups": 160,
        "distinct": 40,
        "updated": 60,
        "sent_bytes": 1200,
        "route_s": 0.5,
        "unique_ratio": 0.25,
        "sent_bytes_per_step": 600.0,
    }


def test_windows_add_up_to_the_whole():
    first, second = stats_of((5, 4, 3, 2), route_s=1.0), stats_of((7, 1, 1, 9))
    expected = stats_of((5, 4, 3, 2), (7, 1, 1, 9))
    assert first + second == replace(expected, route_s=1.0)


def test_ranks_take_the_same_steps_and_send_each_their_own():
    busy = stats_of((100, 30, 50, 1000), (100, 30, 50, 1000)).to_json()
    idle = stats_of((0, 0, 50, 16), (0, 0, 50, 16)).to_json()
    both = add_up_exchanges([busy, idle])
    assert (both["steps"], both["lookups"], both["updated"]) == (2, 200, 200)
    assert both["sent_bytes_per_step"] == 1016.0
    assert both["unique_ratio"] == pytest.approx(0.3)


def test_no_lookups_and_no_steps_are_no_error():
    assert stats_of((0, 0, 0, 0)).to_json()["unique_ratio"] == 0.0
    assert ExchangeStats().to_json()["sent_bytes_per_step"] == 0.0
    assert add_up_exchanges([]) == add_up_exchanges([{}, {}]) == {}


def test_a_figure_that_an_earlier_version_did_not_report_is_0():
    assert follow_up_exchanges([{"steps": 2}, {"steps": 1}]) == ExchangeStats(steps=3).to_json()
