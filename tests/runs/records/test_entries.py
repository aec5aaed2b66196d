from dataclasses import replace

from hypothesis import given, strategies as st

from distrain.jobs.job_view import Notice, Record
from distrain.runs.records.entries import ENTRY_BYTES, RANK_BYTES, EntryLog


def record(step, num_ranks=2):
    return Record(
        "train", 0, step, 10, 10 * step, 1.0, 10.0, 0.5, 0.9, 0.7, 0.0, (0.0,) * num_ranks
    )


@given(
    st.lists(st.integers(0, 64), max_size=60), st.integers(0, 12 * ENTRY_BYTES), st.integers(0, 70)
)
def test_the_newest_that_fit_are_kept_under_their_numbers(ranks, limit_bytes, since):
    kept = EntryLog(limit_bytes)
    entries = [record(step, num_ranks) for step, num_ranks in enumerate(ranks)]
    for entry in entries:
        kept.append(entry)
    fit, size_bytes = 0, 0
    for num_ranks in reversed(ranks):
        size_bytes += ENTRY_BYTES + RANK_BYTES * num_ranks
        if size_bytes > limit_bytes and fit:
            break
        fit += 1
    assert kept.first == len(entries) - fit
    assert len(kept) == len(entries)
    assert kept.since(since) == entries[max(since, len(entries) - fit) :]


def test_the_last_record_of_each_split_is_known_when_its_entry_is_forgotten():
    kept = EntryLog(3 * ENTRY_BYTES)
    valid = replace(record(1), split="valid")
    for entry in (valid, *(record(step) for step in range(2, 200))):
        kept.append(entry)
    assert kept.last == {"valid": valid, "train": record(199)}


def test_a_tighter_limit_forgets_at_once_and_numbers_go_on():
    kept = EntryLog(100 * ENTRY_BYTES)
    for number in range(20):
        kept.append(Notice(str(number)))
    kept.limit(3 * ENTRY_BYTES)
    assert [entry.text for entry in kept.since(0)] == ["18", "19"]
    kept.append(Notice("20"))
    assert [entry.text for entry in kept.since(19)] == ["19", "20"]
