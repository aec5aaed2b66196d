"""Logs that are read once for all who follow them: each byte once, and nobody waits for another."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from live_service import LiveService

from distrain.runs.log_bytes import LogSlice
from distrain.service.api.streams import job_logs
from distrain.service.api.streams.job_logs import LogPlace, SharedLogs
from distrain.workers.log_pump import BoundedLog

PLACE = LogPlace("/runs/ads/clicks-1", 1, 0)
WITHIN_S = 30.0


class Printed:
    """A log in memory: what a rank has printed, and who looked."""

    def __init__(self) -> None:
        self.data = b""
        self.gap: tuple[int, int] | None = None
        self.is_closed = False
        self.error: OSError | None = None
        self.reads = 0

    async def read(self, place: LogPlace, offset: int, limit: int) -> LogSlice:
        self.reads += 1
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        first, gaps = offset, ()
        if self.gap is not None and self.gap[0] <= offset < self.gap[1]:
            first, gaps = self.gap[1], ((offset, self.gap[1]),)
        end = len(self.data) if self.gap is None or first >= self.gap[1] else self.gap[0]
        data = self.data[first : min(end, first + limit)]
        return LogSlice(data, first, first + len(data), len(self.data), self.is_closed, gaps)

    def shared(self) -> SharedLogs:
        return SharedLogs(self.read, every_s=0.001)


async def follow(shared, printed, offset, until, taken=None):
    """The bytes from a number up to another, as a request gets them."""
    found = b""
    async with shared.followed(PLACE, len(printed.data)) as log:
        while len(found) < until - offset:
            data = await log.after(offset + len(found), 2**20, WITHIN_S)
            if data is None:
                data = (await printed.read(PLACE, offset + len(found), 2**20)).data
            assert data != b"", "nothing came in time"
            found += data
            if taken is not None:
                taken.set()
    return found[: until - offset]


def test_followers_join_and_leave_amid_a_log_and_miss_nothing():
    async def story():
        printed = Printed()
        shared = printed.shared()
        whole = b"".join(b"step %d\n" % n for n in range(400))
        first_has = asyncio.Event()
        first = asyncio.create_task(follow(shared, printed, 0, len(whole), first_has))
        printed.data = whole[:1000]
        await asyncio.wait_for(first_has.wait(), WITHIN_S)
        leaves = asyncio.create_task(follow(shared, printed, 300, 900))  # what is no longer news
        joins = [asyncio.create_task(follow(shared, printed, n, len(whole))) for n in (0, 10, 999)]
        assert await leaves == whole[300:900]
        for end in range(1000, len(whole) + 1, 7):
            printed.data = whole[:end]
            await asyncio.sleep(0)
        printed.data = whole
        assert await first == whole
        assert await asyncio.gather(*joins) == [whole, whole[10:], whole[999:]]
        assert shared._logs == {}
        reads = printed.reads
        for _ in range(50):
            await asyncio.sleep(0)
        assert printed.reads == reads  # the task ended with the last follower

    asyncio.run(story())


def test_a_line_is_read_once_for_all():
    async def story():
        printed = Printed()
        shared = printed.shared()
        async with shared.followed(PLACE, 0) as log:
            waiting = [asyncio.create_task(follow(shared, printed, 0, 5)) for _ in range(100)]
            while log.followers < 101:
                await asyncio.sleep(0)
            printed.data = b"line\n"
            assert await asyncio.gather(*waiting) == [b"line\n"] * 100
            assert printed.reads == log.begun  # nobody has read but the task

    asyncio.run(story())


def test_one_that_takes_nothing_holds_no_other_and_reads_the_file_later(monkeypatch):
    monkeypatch.setattr(job_logs, "KEPT_BYTES", 1000)

    async def story():
        printed = Printed()
        shared = printed.shared()
        whole = bytes(n % 251 for n in range(50_000))
        async with shared.followed(PLACE, 0) as slow:
            quick = [asyncio.create_task(follow(shared, printed, 0, len(whole))) for _ in range(3)]
            for end in range(0, len(whole) + 1, 500):
                printed.data = whole[:end]
                while slow.end < end:
                    await asyncio.sleep(0)
                assert sum(map(len, slow.chunks)) <= 1000
            assert await asyncio.gather(*quick) == [whole] * 3
            assert await slow.after(0, 10, WITHIN_S) is None  # its byte is not kept
        assert await follow(shared, printed, 0, len(whole)) == whole

    asyncio.run(story())


@pytest.mark.parametrize("what", ["closed", "gap", "error"])
def test_who_waits_reads_the_file_where_there_is_more_to_say_than_bytes(what):
    async def story():
        printed = Printed()
        printed.data = b"12345"
        shared = printed.shared()
        async with shared.followed(PLACE, 5) as log:
            waiting = asyncio.create_task(log.after(5, 10, WITHIN_S))
            while not log.done:
                await asyncio.sleep(0)
            assert not waiting.done()
            if what == "closed":
                printed.is_closed = True
            elif what == "gap":
                printed.gap, printed.data = (5, 8), b"12345...9"
            else:
                printed.error = OSError("the filesystem is away")
            assert await asyncio.wait_for(waiting, WITHIN_S) is None
            if what == "gap":
                assert await log.after(8, 10, WITHIN_S) == b"9"
            if what == "error":  # and then it is back
                printed.error, printed.data = None, b"123456"
                while not (data := await log.after(5, 10, WITHIN_S)):
                    assert data is None
                assert data == b"6"

    asyncio.run(story())


@pytest.fixture(scope="module")
def alice(service: LiveService):
    with service.client("alice") as client:
        yield client


def all_followed(alice, path, offset, attempt, has_some):
    """The bytes of an attempt over HTTP, from a number to the end of the log."""
    found = b""
    while True:
        params = {"attempt": attempt, "offset": offset + len(found), "follow": "true", "wait_s": 30}
        with alice.stream("GET", path, params=params) as answer:
            assert answer.status_code == 200
            assert "X-Gap" not in answer.headers
            for chunk in answer.iter_raw():
                found += chunk
                has_some.set()
            if answer.headers.get("X-Complete") == "true":
                return found


def test_each_byte_comes_once_across_parts_and_attempts(service: LiveService, alice) -> None:
    """Followers come before, amid and after the change of files, while the rank prints."""
    job = service.change(service.job(), attempt=2)
    path, kept = f"/v1/jobs/{job.id}/logs", 4000
    with ThreadPoolExecutor(12) as pool:
        for attempt in (1, 2):
            log = BoundedLog(service.paths(job).log(0, attempt), kept)
            printed = b"".join(b"%d.%d\n" % (attempt, n) for n in range(1000))[: 2 * kept - 100]
            following = []
            for begin in range(
                0, len(printed), 650
            ):  # each is printed when the last ones have some
                log.write(printed[begin : begin + 650])
                if begin % 1300 == 0:
                    came = threading.Event()
                    given = (alice, path, begin, attempt, came)
                    following.append((begin, pool.submit(all_followed, *given)))
                    assert came.wait(30)
            log.close()
            assert len(list(service.paths(job).log(0, attempt).parent.iterdir())) > 2
            for begin, found in following:
                assert found.result(60) == printed[begin:]
    assert service.app.state.streams.logs._logs == {}
