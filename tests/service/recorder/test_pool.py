"""Threads for work that may hang in a filesystem."""

import threading

from distrain.service.recorder.pool import Pool

LONG_S = 60.0


def test_work_that_comes_at_once_is_all_done_also_beside_some_that_hangs() -> None:
    pool, answers, done = Pool("test"), threading.Event(), threading.Semaphore(0)
    pool.put(lambda: answers.wait(LONG_S) and None)
    for _ in range(200):
        pool.put(done.release)
    for _ in range(200):
        assert done.acquire(timeout=LONG_S)
    answers.set()
    assert pool.close(LONG_S)


def test_threads_that_sleep_are_woken_for_what_comes_later() -> None:
    pool, done = Pool("test"), threading.Semaphore(0)
    pool.put(done.release, delay_s=LONG_S)
    for _ in range(20):  # each time all threads have gone to sleep, or are about to
        pool.put(done.release)
        assert done.acquire(timeout=LONG_S)
    assert pool.close(LONG_S)
    assert done.acquire(blocking=False)  # what was due later, too
    pool.put(done.release)
    assert not done.acquire(blocking=False)
