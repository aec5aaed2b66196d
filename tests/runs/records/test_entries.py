from hypothesis import given, strategies as st

from distrain.jobs.job_view import Notice
from distrain.runs.records.entries import EntryLog


@given(st.integers(0, 60), st.integers(1, 30), st.integers(1, 30), st.integers(0, 70))
def test_the_newest_are_kept_under_their_numbers(
    count: int, limit: int, tighter: int, since: int
) -> None:
    kept, entries = EntryLog(limit), [Notice(str(number)) for number in range(count + 5)]
    for entry in entries[:count]:
        kept.append(entry)
    assert len(kept) == count
    assert kept.since(since) == entries[max(since, count - limit, 0) : count]
    kept.limit(tighter)
    left = min(count, limit, tighter)
    assert kept.since(0) == entries[count - left : count]
    for entry in entries[count:]:
        kept.append(entry)
    assert kept.since(0) == entries[max(count - left, count + 5 - tighter) :]
    assert len(kept) == count + 5
