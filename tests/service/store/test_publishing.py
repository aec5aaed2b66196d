"""Events: dense numbers, each job's in order, and none that a reader passes by."""

import threading
from concurrent.futures import ThreadPoolExecutor

from service_store import SPEC, new_job, submitted


def test_numbers_are_dense_and_go_on(store):
    assert (store.publish(), store.first_seq(), store.last_seq()) == (0, 0, 0)
    jobs = [submitted(store) for _ in range(5)]
    assert [store.publish(limit=2) for _ in range(4)] == [2, 2, 1, 0]
    submitted(store)
    assert store.publish() == 1
    events = store.events_after(0, 100)
    assert [event.seq for event in events] == [1, 2, 3, 4, 5, 6]
    assert [event.job_id for event in events[:5]] == [job.id for job in jobs]
    assert [event.seq for event in store.events_after(2, 2)] == [3, 4]
    assert [event.seq for event in store.job_events_after(jobs[2].id, 0, 10)] == [3]
    assert store.job_events_after(jobs[2].id, 3, 10) == []
    assert (store.first_seq(), store.last_seq()) == (1, 6)


def _change_often(store, num_jobs, num_changes):
    for _ in range(num_jobs):
        new = new_job()
        store.submit(new, SPEC)
        for number in range(num_changes):
            store.change(new.id, tags={"n": str(number)})


def test_a_reader_misses_nothing_while_many_write(store, second):
    num_writers, num_jobs, num_changes = 6, 3, 4
    num_events = num_writers * num_jobs * (1 + num_changes)
    seen = []
    done = threading.Event()

    def follow():
        while len(seen) < num_events and not (done.is_set() and store.publish() == 0):
            store.publish(limit=7)
            seen.extend(second.events_after(seen[-1].seq if seen else 0, 5))
        seen.extend(second.events_after(seen[-1].seq if seen else 0, num_events))

    with ThreadPoolExecutor(num_writers + 1) as pool:
        reader = pool.submit(follow)
        writers = [
            pool.submit(_change_often, at, num_jobs, num_changes)
            for at in (store, second)
            for _ in range(num_writers // 2)
        ]
        for writer in writers:
            writer.result()
        done.set()
        reader.result()
    assert [event.seq for event in seen] == list(range(1, num_events + 1))
    revisions = {}
    for event in seen:
        revisions.setdefault(event.job_id, []).append(event.body["rev"])
    assert all(revs == list(range(1, num_changes + 2)) for revs in revisions.values())


def test_two_who_publish_at_once_number_each_event_once(store, second):
    for _ in range(60):
        submitted(store)
    assert store.unpublished_s() >= 0

    def publish(at):
        done = 1
        while done:
            try:
                done = at.publish(limit=3)
            except Exception:  # the other one took the number: the next call goes on
                done = 1

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(publish, (store, second)))
    assert [event.seq for event in store.events_after(0, 100)] == list(range(1, 61))
    assert len({event.job_id for event in store.events_after(0, 100)}) == 60
    assert store.unpublished_s() == 0
