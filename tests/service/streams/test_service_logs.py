"""Logs over HTTP: every byte under its number, also where connections break."""

import os
import time

import pytest
from live_service import LiveService
from service_store import submitted

from distrain.service.api.routes import logs
from distrain.service.values import Job, Role
from distrain.workers.log_pump import BoundedLog


@pytest.fixture(scope="module")
def alice(service: LiveService):
    with service.client("alice") as client:
        yield client


def path_of(job: Job) -> str:
    return f"/v1/jobs/{job.id}/logs"


def write_log(service: LiveService, job: Job, data: bytes, kept: int = 2**26, **where: int) -> None:
    log = BoundedLog(service.paths(job).log(**({"rank": 0, "attempt": 1} | where)), kept)
    log.write(data)
    log.close()


def all_of(alice, job: Job, **params: object) -> tuple[bytes, list[str]]:
    """All bytes, and the gaps."""
    offset, found, gaps = 0, b"", []
    while True:
        answer = alice.get(path_of(job), params={"offset": offset, **params})
        assert answer.status_code == 200, answer.text
        gaps += [answer.headers["X-Gap"]] if "X-Gap" in answer.headers else []
        found += answer.content
        assert int(answer.headers["X-Offset"]) + len(answer.content) == int(
            answer.headers["X-Next-Offset"]
        )
        offset = int(answer.headers["X-Next-Offset"])
        if answer.headers["X-Complete"] == "true":
            return found, gaps
        assert answer.content or gaps


def test_a_log_is_read_in_pieces_to_its_end_and_its_tail_is_the_last_lines(
    service: LiveService, alice
) -> None:
    job = service.job()
    lines = [b"line %d\n" % number for number in range(200_000)]
    printed = b"".join(lines)
    write_log(service, job, printed)
    assert all_of(alice, job) == (printed, [])
    first = alice.get(path_of(job))
    assert len(first.content) == 2**20
    assert first.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert first.headers["X-Content-Type-Options"] == "nosniff"
    tail = alice.get(path_of(job), params={"tail": 7})
    assert tail.content == b"".join(lines[-7:])
    assert tail.headers["X-Complete"] == "true"
    assert tail.headers["X-Next-Offset"] == str(len(printed))


def test_what_nobody_kept_is_told(service: LiveService, alice) -> None:
    job = service.job()
    printed = bytes(n % 251 for n in range(1000))
    write_log(service, job, printed, kept=100)
    found, gaps = all_of(alice, job, limit=64)
    assert len(gaps) == 1
    first, end = map(int, gaps[0].split("-"))
    assert found == printed[:first] + printed[end:]
    assert first >= 100
    tail = alice.get(path_of(job), params={"tail": 1000})
    assert f"distrain left out {end - first:,} bytes".encode() in tail.content
    assert tail.headers["X-Gap"] == gaps[0]


def test_a_log_whose_writer_was_killed_is_complete_after_a_while(
    service: LiveService, alice
) -> None:
    job = service.job()
    path = service.paths(job).log(0, 1)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"killed\n")
    service.end(job, "failed")
    answer = alice.get(path_of(job))
    assert (answer.content, answer.headers["X-Complete"]) == (b"killed\n", "false")
    old_s = time.time() - 60
    os.utime(path, (old_s, old_s))
    service.change(job, finished_at_s=old_s)
    assert alice.get(path_of(job)).headers["X-Complete"] == "true"


def test_one_answer_goes_on_while_the_rank_prints(service: LiveService, alice) -> None:
    """As long as bytes come: then `X-Complete` of the next answer tells whether that was all."""
    job = service.job()
    log = BoundedLog(service.paths(job).log(0, 1))
    log.write(b"0\n")
    params = {"offset": 0, "follow": "true", "wait_s": 30}
    with alice.stream("GET", path_of(job), params=params) as answer:
        assert answer.headers["X-Offset"] == "0"
        assert "X-Next-Offset" not in answer.headers
        found = b""
        for chunk in answer.iter_raw():  # each is printed when the one before has come
            found += chunk
            number = found.count(b"\n")
            if number < 20:
                log.write(b"%d\n" % number)
            else:
                log.close()
    assert found == b"".join(b"%d\n" % number for number in range(20))
    assert not service.app.state.streams.logs._logs
    rest = alice.get(path_of(job), params=params | {"offset": len(found)})
    assert (rest.content, rest.headers["X-Complete"]) == (b"", "true")
    whole = alice.get(path_of(job), params=params)  # nothing to wait for
    assert (whole.content, whole.headers["X-Complete"]) == (found, "true")
    assert not service.app.state.streams.open


def test_an_answer_that_goes_on_ends_where_its_reader_may_see_no_more(
    service: LiveService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_CHECK_S", 0.0)
    job = service.job()
    log = BoundedLog(service.paths(job).log(0, 1))
    log.write(b"seen")
    with service.client("eve") as eve:
        service.store.set_member(job.project, "eve", Role.VIEWER)
        params = {"offset": 0, "follow": "true", "wait_s": 30}
        with eve.stream("GET", path_of(job), params=params) as answer:
            service.store.remove_member(job.project, "eve")
            assert b"".join(answer.iter_raw()) == b"seen"
        assert eve.get(path_of(job), params=params).status_code == 404
    log.close()


@pytest.mark.parametrize(
    ("params", "status"),
    [
        ({"offset": 5}, 200),
        ({"offset": 6}, 416),
        ({"offset": -1}, 400),
        ({"rank": 2}, 404),
        ({"rank": -1}, 400),
        ({"rank": "../0"}, 400),
        ({"attempt": "1/../../secret"}, 400),
        ({"attempt": 0}, 400),
        ({"attempt": 2}, 404),
        ({"tail": 1, "offset": 0}, 400),
        ({"offset": 10**30}, 400),
        ({"limit": 0}, 400),
        ({"wait_s": 31}, 400),
    ],
)
def test_what_cannot_be_read_is_refused(service, alice, params, status) -> None:
    job = service.job()
    write_log(service, job, b"12345")
    answer = alice.get(path_of(job), params=params)
    assert answer.status_code == status
    if status == 416:
        assert answer.headers["Content-Range"] == "bytes */5"
        assert answer.json()["code"] == "range"


def test_a_job_that_has_not_begun_has_an_empty_log(service: LiveService, alice) -> None:
    job = submitted(service.store, run_dir=str(service.folder / "not yet"))
    answer = alice.get(path_of(job))
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["X-Complete"] == "false"


def test_links_lead_nowhere(service: LiveService, alice) -> None:
    secret = service.folder / "secret"
    secret.write_text("password")
    job = service.job()
    log = service.paths(job).log(0, 1)
    log.parent.mkdir(parents=True)
    log.symlink_to(secret)
    assert b"password" not in alice.get(path_of(job)).content
    log.unlink()
    log.parent.rmdir()
    (service.folder / "rank-0.log").write_text("password")
    log.parent.symlink_to(service.folder)
    assert b"password" not in alice.get(path_of(job)).content
