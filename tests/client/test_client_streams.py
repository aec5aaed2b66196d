"""Events, logs and files through connections that break: nothing is lost, nothing comes twice."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from scripted_service import Reply, ScriptedService, Seen, problem

from distrain.client import (
    Client,
    NotAuthorised,
    Retries,
    ServiceError,
    ServiceUnavailable,
    logs,
)
from distrain.errors import OutputError

QUICK = Retries(for_s=20.0, first_s=0.0005, longest_s=0.001, draw=lambda: 0.0)
SSE = {"Content-Type": "text/event-stream; charset=utf-8"}


@pytest.fixture(autouse=True)
def _looks_are_close_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_POLL_S", (0.001, 0.002))


def client_of(service: ScriptedService, retries: Retries = QUICK) -> Client:
    return Client(service.address, retries=retries)


def stream_of(count: int, after: int) -> bytes:
    """The events behind a cursor, with pings in between, and the end."""
    told = [
        f': ping\n\nid: {n}\nevent: job.progress\ndata: {{"n": {n}}}\n\n'
        for n in range(after + 1, count + 1)
    ]
    return "".join([*told, f"id: {count}\nevent: end\ndata: {{}}\n\n"]).encode()


def cutting(count: int, cuts: int, seed: int, *, politely: bool) -> Callable[[Seen], Reply]:
    """Serve `count` events, and break the connection `cuts` times at any byte."""
    draw = random.Random(seed)
    left = [cuts]

    def answer(seen: Seen) -> Reply:
        whole = stream_of(count, int(seen.headers.get("last-event-id", "0")))
        if not left[0]:
            return Reply(200, headers=SSE, chunks=[whole])
        left[0] -= 1
        at = draw.randrange(min(len(whole) - 20, 200))
        return Reply(200, headers=SSE, chunks=[whole[:at]] if at else [], ends=politely)

    return answer


@pytest.mark.parametrize("politely", [True, False])
def test_a_stream_that_is_cut_a_hundred_times_tells_every_event_once(politely: bool) -> None:
    with ScriptedService(cutting(60, 100, 7, politely=politely)) as service:
        with client_of(service) as client:
            events = list(client.follow("dlrm-1"))
        assert len(service.seen) == 101
    assert [event.data.get("n") for event in events] == [*range(1, 61), None]
    assert events[-1].kind == "end"


def test_a_stream_goes_on_through_a_service_that_is_away() -> None:
    answers = iter(
        [
            Reply(200, headers=SSE, chunks=[b"id: 4\n\n"]),  # a cursor without an event
            Reply(200, headers=SSE, chunks=[b"id: 5\nevent: job.state\ndata: {}\n\n"]),
            Reply(503),
            Reply(drop=True),
            # an unknown kind, text that is no JSON, no data
            Reply(
                200,
                headers=SSE,
                chunks=[
                    b"id: 6\nevent: job.mood\ndata: fair\n\n"
                    b"id: 2\nevent: reset\ndata: {}\n\nid: 3\r\ndata: [1]\r\n\r",
                    b"\nid: 4\nevent: end\n\n",
                ],
            ),
        ]
    )
    with ScriptedService(lambda seen: next(answers)) as service, client_of(service) as client:
        events = [(event.id, event.kind, event.data) for event in client.follow("dlrm-1")]
    assert events == [
        ("5", "job.state", {}),
        ("6", "job.mood", {"text": "fair"}),
        ("2", "reset", {}),
        ("3", "message", {"value": [1]}),
        ("4", "end", {}),
    ]
    assert service.seen[1].headers["last-event-id"] == "4"
    assert service.seen[-1].headers["last-event-id"] == "5"


def test_a_stream_that_never_tells_anything_is_given_up() -> None:
    patience = Retries(for_s=0.05, first_s=0.005, longest_s=0.005)
    with (
        ScriptedService(
            lambda seen: Reply(200, headers=SSE, chunks=[b": ping\n\nid: 4\n\n"])
        ) as service,
        client_of(service, patience) as client,
        pytest.raises(ServiceUnavailable),
    ):
        list(client.follow("dlrm-1"))
    assert len(service.seen) > 1


def test_a_stream_that_is_refused_or_is_none() -> None:
    answers = iter([problem(401, "unauthenticated", detail="who?"), Reply(200, b"<html>")])
    with ScriptedService(lambda seen: next(answers)) as service, client_of(service) as client:
        with pytest.raises(NotAuthorised):
            next(client.follow("dlrm-1"))
        with pytest.raises(ServiceError):
            next(client.events())


def test_who_leaves_a_stream_leaves_no_connection() -> None:
    first = b"id: 1\nevent: job.state\ndata: {}\n\n"
    with ScriptedService(lambda seen: Reply(200)) as service:

        def endless() -> Iterator[bytes]:
            yield first
            yield from service.until_stopped()

        service.answer = lambda seen: Reply(200, headers=SSE, chunks=endless())
        with client_of(service) as client:
            for event in client.events():
                assert event.id == "1"
                break


# Logs


class LogService:
    """A job whose attempts have logs that grow with each look, behind cuts.

    Attributes:
        parts: The first bytes of the parts of each log that are kept, besides its beginning.
    """

    def __init__(self, logs: list[bytes], seed: int, cuts: int, parts: tuple[int, ...] = ()):
        self.logs, self.cuts, self.parts = logs, cuts, parts
        self.draw = random.Random(seed)
        self.attempt = 1
        self.shown = 0
        self.closes = True
        self.kept_first = True

    def answer(self, seen: Seen) -> Reply:
        if seen.path == "/v1/jobs/dlrm-1":
            return Reply(200, {"id": "dlrm-1", "attempt": self.attempt, "state": self.state()})
        self._grow()
        folder = (
            seen.params.get("below") or seen.path.partition("/artifacts/")[2].rpartition("/")[0]
        )
        files = self.files(int(folder.rpartition("-")[2]))
        if seen.path.endswith("/artifacts"):
            listed = [{"name": name, "size_bytes": len(data)} for name, data in files.items()]
            return Reply(200, {"artifacts": listed}) if files else problem(404, "not_found")
        data = files.get(seen.path.partition("/artifacts/")[2])
        if data is None:
            return problem(404, "not_found")
        begin, _, last = seen.headers["range"].removeprefix("bytes=").partition("-")
        content = data[int(begin) : int(last) + 1]
        if not content:
            return problem(416, "range")
        self.cuts -= 1
        cut = self.draw.randrange(len(content)) if self.cuts >= 0 else None
        told = {"Content-Range": f"bytes {begin}-{int(begin) + len(content) - 1}/{len(data)}"}
        return Reply(206, content, told, cut_after=cut)

    def files(self, attempt: int) -> dict[str, bytes]:
        """What is there of an attempt's log now, by name."""
        if attempt > self.attempt:
            return {}
        log, name = self.logs[attempt - 1], f"logs/attempt-{attempt}/rank-0.log"
        shown = self.shown if attempt == self.attempt else len(log)
        ends = (*self.parts, len(log))
        found = {name: log[: min(ends[0], shown)]} if self.kept_first else {}
        for first, end in zip(self.parts, ends[1:], strict=True):
            if first < shown:
                found[f"{name}.from-{first}"] = log[first : min(end, shown)]
        if self.closes and shown == len(log):
            found[f"{name}.end"] = b"%d\n" % len(log)
        return found

    def state(self) -> str:
        done = self.attempt == len(self.logs) and self.shown >= len(self.logs[-1])
        return "succeeded" if done else "running"

    def _grow(self) -> None:
        log = self.logs[self.attempt - 1]
        if self.shown < len(log):
            self.shown = min(len(log), self.shown + self.draw.randrange(1, 4000))
        elif self.attempt < len(self.logs):
            self.attempt, self.shown = self.attempt + 1, 0


def made_log(lines: int, word: str) -> bytes:
    return b"".join(b"%s line %06d of the log\n" % (word.encode(), n) for n in range(lines))


@pytest.mark.parametrize("parts", [(), (5_000, 100_000)])
def test_a_log_that_is_cut_a_hundred_times_is_the_file(parts: tuple[int, ...]) -> None:
    log = made_log(8000, "a")
    told = LogService([log], seed=5, cuts=100, parts=parts)
    with ScriptedService(told.answer) as service, client_of(service) as client:
        assert b"".join(client.logs("dlrm-1", follow=True)) == log
        assert b"".join(client.logs("dlrm-1", offset=6_000)) == log[6_000:]
    assert told.cuts < 0


def test_following_goes_on_with_the_attempts_that_come() -> None:
    logs = [made_log(40, "first"), b"", made_log(30, "third")]
    told = LogService(logs, seed=2, cuts=5)
    with ScriptedService(told.answer) as service, client_of(service) as client:
        assert b"".join(client.logs("dlrm-1", follow=True)) == b"".join(logs)
        assert b"".join(client.logs("dlrm-1", attempt=1)) == logs[0]
        assert b"".join(client.logs("dlrm-1")) == logs[2]


def test_of_a_log_whose_middle_is_gone_the_rest_comes_once() -> None:
    log = made_log(300, "a")
    told = LogService([log], seed=4, cuts=6, parts=(1000,))
    told.kept_first = False
    with ScriptedService(told.answer) as service, client_of(service) as client:
        assert b"".join(client.logs("dlrm-1", follow=True)) == log[1000:]


def test_a_log_that_nobody_closed_ends_some_time_after_its_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logs, "_QUIET_S", 0.05)
    told = LogService([made_log(30, "a")], seed=4, cuts=0)
    told.closes = False
    with ScriptedService(told.answer) as service, client_of(service) as client:
        assert b"".join(client.logs("dlrm-1", follow=True)) == told.logs[0]


def test_the_last_bytes_of_a_closed_log_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_TAIL_OF_LOGS_S", 0.05)
    told = LogService([made_log(30, "a")], seed=4, cuts=0)
    told.shown = len(told.logs[0])
    of_attempt = told.files

    def files(attempt: int) -> dict[str, bytes]:
        end = {"logs/attempt-1/rank-0.log.end": b"100000\n"}
        return of_attempt(attempt) | end

    monkeypatch.setattr(told, "files", files)
    with (
        ScriptedService(told.answer) as service,
        client_of(service) as client,
        pytest.raises(ServiceError) as caught,
    ):
        list(client.logs("dlrm-1", follow=True))
    assert caught.value.code == "incomplete"


@pytest.mark.parametrize("lines", [2, 5000])
def test_the_last_lines_of_a_log_and_what_follows(lines: int) -> None:
    log = made_log(8000, "a")
    told = LogService([log], seed=1, cuts=0)
    told.shown = len(log) // 2
    with ScriptedService(told.answer) as service, client_of(service) as client:
        found = b"".join(client.logs("dlrm-1", tail=lines, follow=True))
    assert found == log[-len(found) :]
    assert found.count(b"\n") > lines
    with ScriptedService(told.answer) as service, client_of(service) as client:
        assert b"".join(client.logs("dlrm-1", tail=lines)).count(b"\n") == lines
        assert list(client.logs("dlrm-1", rank=3, tail=2)) == []


@pytest.mark.parametrize("newest", [0, 1, 30])
def test_the_last_lines_may_be_in_an_earlier_part_of_a_log(
    newest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = made_log(400, "a")
    parts = (len(log) // 2, len(log) - newest)
    told = LogService([log], seed=4, cuts=0, parts=parts)
    told.shown, told.closes = len(log), False
    of_attempt = told.files

    def files(attempt: int) -> dict[str, bytes]:
        return {f"logs/attempt-1/rank-0.log.from-{parts[1]}": b""} | of_attempt(attempt)

    monkeypatch.setattr(told, "files", files)
    lines = log.splitlines(keepends=True)
    for wanted in (5, 300, 1000):
        with ScriptedService(told.answer) as service, client_of(service) as client:
            assert b"".join(client.logs("dlrm-1", tail=wanted)) == b"".join(lines[-wanted:])
    told.kept_first = False
    with ScriptedService(told.answer) as service, client_of(service) as client:
        assert b"".join(client.logs("dlrm-1", tail=1000)) == log[parts[0] :]


# Files


def ranges(content: bytes, etags: list[str], seed: int, cuts: int) -> Callable[[Seen], Reply]:
    """Serve a file with ranges, and cut its answers; each ETag is that of one answer."""
    draw = random.Random(seed)
    left = [cuts]

    def answer(seen: Seen) -> Reply:
        etag = etags.pop(0) if len(etags) > 1 else etags[0]
        begin, headers, status = 0, {"ETag": etag}, 200
        if seen.headers.get("if-range") == etag:
            begin = int(seen.headers["range"].removeprefix("bytes=").rstrip("-"))
            headers["Content-Range"] = f"bytes {begin}-{len(content) - 1}/{len(content)}"
            status = 206
        left[0] -= 1
        rest = content[begin:]
        cut = draw.randrange(1, max(2, len(rest) // 3)) if left[0] >= 0 else None
        return Reply(status, rest, headers, cut_after=cut)

    return answer


def test_a_file_comes_whole_through_cuts_and_asks_only_for_what_is_missing(tmp_path: Path) -> None:
    content = random.Random(1).randbytes(300_000)
    with ScriptedService(ranges(content, ['"a"'], 1, 8)) as service, client_of(service) as client:
        written = client.download("dlrm-1", "model/dense file.safetensors", tmp_path)
    assert written == tmp_path / "dense file.safetensors"
    assert written.read_bytes() == content
    assert list(tmp_path.iterdir()) == [written]
    assert len(service.seen) == 9
    assert service.seen[0].path == "/v1/jobs/dlrm-1/artifacts/model/dense%20file.safetensors"


def test_a_file_that_changes_meanwhile_is_not_mixed(tmp_path: Path) -> None:
    content = b"new" * 1000
    etags = ['"old"', '"new"']
    with ScriptedService(ranges(content, etags, 1, 1)) as service, client_of(service) as client:
        assert client.download("dlrm-1", "a", tmp_path / "b").read_bytes() == content
    assert len(service.seen) == 2


def test_a_file_that_does_not_come_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("before")
    answers = iter([problem(404, "not_found", detail="no file 'a'")] * 2)
    with ScriptedService(lambda seen: next(answers)) as service, client_of(service) as client:
        with pytest.raises(ServiceError):
            client.download("dlrm-1", "a", tmp_path / "a")
        service.answer = lambda seen: Reply(200, b"x" * 100, cut_after=0)
        with pytest.raises(ServiceError):
            client.download("dlrm-1", "a", tmp_path / "a")
        with pytest.raises(OutputError):
            client.download("dlrm-1", "a", tmp_path / "nowhere" / "a")
    assert [file.read_text() for file in tmp_path.iterdir() if file.is_file()] == ["before"]
