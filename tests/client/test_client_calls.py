"""Requests, answers, retries and errors, against a server that misbehaves by script."""

import asyncio
import pickle
import re
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from scripted_service import Reply, ScriptedService, Seen, problem

from distrain.client import (
    Client,
    Job,
    NotAuthorised,
    NotFinished,
    NotFound,
    RequestRefused,
    Retries,
    ServiceError,
    ServiceUnavailable,
    WaitTimedOut,
    job_calls,
)
from distrain.errors import InputError

TOKEN = "dtr_0123456789_verysecretverysecret_abcdef"
QUICK = Retries(for_s=5.0, first_s=0.001, longest_s=0.002, draw=lambda: 0.0)
SPEC = {"name": "dlrm", "data": {"train": "/data/train"}}


@pytest.fixture(autouse=True)
def _looks_are_close_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_calls, "_FIRST_POLL_S", 0.001)


def script(*replies: Reply | Callable[[Seen], Reply]) -> Callable[[Seen], Reply]:
    """Answer with one after the other, and with the last one from then on."""
    left = list(replies)

    def answer(seen: Seen) -> Reply:
        reply = left.pop(0) if len(left) > 1 else left[0]
        return reply(seen) if callable(reply) else reply

    return answer


def client_of(service: ScriptedService, retries: Retries = QUICK, **options: Any) -> Client:
    return Client(service.address, TOKEN, retries=retries, **options)


def job_document(**more: Any) -> dict[str, Any]:
    return {"id": "dlrm-1", "name": "dlrm", "state": "queued", "rev": 1, **more}


@pytest.mark.parametrize(
    "trouble",
    [
        Reply(drop=True),
        Reply(503, b"<html>no backend</html>"),
        Reply(502),
        Reply(504),
        problem(429, "rate"),
        Reply(201, job_document(), cut_after=10),
    ],
    ids=lambda reply: str(reply.status) + ("-cut" if reply.cut_after else ""),
)
def test_a_submission_is_repeated_with_the_same_id_until_it_is_answered(trouble: Reply) -> None:
    told: list[str] = []
    answer = script(trouble, trouble, Reply(200, job_document(), {"Location": "/v1/jobs/dlrm-1"}))
    with ScriptedService(answer) as service, client_of(service, on_retry=told.append) as client:
        job = client.submit(SPEC, priority=3, tags={"team": "ads"})
    assert (job.id, job.replayed) == ("dlrm-1", True)
    assert len(service.seen) == 3
    (path,) = {seen.path for seen in service.seen}
    assert re.fullmatch(r"/v1/jobs/dlrm-\d{8}-\d{6}-[0-9a-f]{8}", path)
    assert {seen.method for seen in service.seen} == {"PUT"}
    assert service.seen[0].body == {"spec": SPEC, "priority": 3, "tags": {"team": "ads"}}
    assert service.seen[0].headers["authorization"] == f"Bearer {TOKEN}"
    assert len(told) == 2


def test_retries_end_at_the_deadline_and_say_what_was_tried() -> None:
    patience = Retries(for_s=0.05, first_s=0.01, longest_s=0.01)
    with (
        ScriptedService(script(Reply(drop=True))) as service,
        client_of(service, patience) as client,
        pytest.raises(ServiceUnavailable) as caught,
    ):
        client.submit(SPEC)
    assert (caught.value.exit_code, caught.value.where["server"]) == (69, service.address)
    assert "times in" in caught.value.where["tried"]
    assert TOKEN not in str(caught.value)
    assert len(service.seen) > 1
    with Client(service.address, retries=patience) as client, pytest.raises(ServiceUnavailable):
        client.me()  # nobody is there any more


@pytest.mark.parametrize(
    "asked",
    ["3600", format_datetime(datetime.now(UTC) + timedelta(days=9))],
    ids=["seconds", "date"],
)
def test_a_pause_longer_than_the_retries_is_told_at_once(asked: str) -> None:
    refusal = problem(429, "quota", detail="the project has 10 of 10 queued jobs")
    refusal.headers["Retry-After"] = asked
    with (
        ScriptedService(script(refusal)) as service,
        client_of(service) as client,
        pytest.raises(RequestRefused) as caught,
    ):
        client.submit(SPEC)
    assert len(service.seen) == 1
    seconds = "3600 s" if asked == "3600" else "86400 s"  # at most a day
    assert (caught.value.code, seconds in str(caught.value.hint)) == ("quota", True)


def test_what_makes_something_without_an_id_is_not_repeated() -> None:
    with (
        ScriptedService(script(Reply(drop=True))) as service,
        client_of(service) as client,
        pytest.raises(ServiceUnavailable) as caught,
    ):
        client.make_token(label="ci")
    assert (len(service.seen), bool(caught.value.hint)) == (1, True)


@pytest.mark.parametrize(
    ("status", "code", "kind", "exit_code"),
    [
        (401, "unauthenticated", NotAuthorised, 77),
        (403, "forbidden", NotAuthorised, 77),
        (404, "not_found", NotFound, 102),
        (409, "not_final", NotFinished, 101),
        (409, "conflict", RequestRefused, 1),
        (422, "bad_spec", RequestRefused, 1),
        (418, "a_code_of_tomorrow", RequestRefused, 1),
        (500, "internal", ServiceError, 1),
    ],
)
def test_refusals_are_errors_with_the_services_words(
    status: int, code: str, kind: type[ServiceError], exit_code: int
) -> None:
    refusal = problem(
        status,
        code,
        detail=f"no such thing for {TOKEN}",
        hint="Look again.",
        errors=[
            {"pointer": "/spec/train/epochs", "detail": "is 0", "more": TOKEN, TOKEN: 1},
            "nonsense",
        ],
    )
    with (
        ScriptedService(script(refusal)) as service,
        client_of(service) as client,
        pytest.raises(ServiceError) as caught,
    ):
        client.job("dlrm-1")
    error = caught.value
    assert type(error) is kind
    assert (error.exit_code, error.code, error.status) == (exit_code, code, status)
    assert [one.pointer for one in error.pointers] == ["/spec/train/epochs"]
    assert (error.where["/spec/train/epochs"], error.hint) == ("is 0", "Look again.")
    assert error.message == "no such thing for [token]"
    assert TOKEN not in f"{error} {error.pointers}"
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.pointers) == (kind, str(error), error.pointers)


@pytest.mark.parametrize(
    "reply",
    [
        Reply(200, b"<html>please log in</html>"),
        Reply(404, b"<html>not here</html>"),
        Reply(302, b"", {"Location": "https://elsewhere.example/login?next=/v1"}),
        Reply(200, []),
    ],
    ids=["login page", "foreign 404", "redirect", "list"],
)
def test_what_is_no_service_is_told_as_such(reply: Reply) -> None:
    with (
        ScriptedService(script(reply)) as service,
        client_of(service) as client,
        pytest.raises(ServiceError) as caught,
    ):
        client.job("dlrm-1")
    assert type(caught.value) is ServiceError
    assert caught.value.hint
    assert len(service.seen) == 1


def test_a_job_without_what_is_expected_of_one_is_read() -> None:
    odd = {"id": "dlrm-1", "state": "expired", "finished_at": "2026-03-01T12:00:00Z", "rev": "x"}
    job = Job.read(odd)
    assert (job.is_final, job.rev, job.loss) == (True, 0, None)


def test_pages_are_fetched_as_they_are_needed_and_end_with_the_cursor() -> None:
    def page(seen: Seen) -> Reply:
        begin = int(seen.params.get("cursor", "0"))
        some = [{"id": f"job-{n}"} for n in range(begin, min(begin + 2, 5))]
        return Reply(200, {"jobs": some, "next_cursor": str(begin + 2) if begin < 4 else None})

    with ScriptedService(page) as service, client_of(service) as client:
        listed = client.jobs(project="ads", tags={"team": "a b"}, page_jobs=2)
        assert next(listed).id == "job-0"
        assert len(service.seen) == 1
        assert [job.id for job in listed] == ["job-1", "job-2", "job-3", "job-4"]
    assert service.seen[0].params == {"project": "ads", "tag": "team=a b", "limit": "2"}


def found_by(word: str, *ids: str) -> Job:
    def answer(seen: Seen) -> Reply:
        if seen.path == "/v1/jobs":
            return Reply(200, {"jobs": [{"id": one} for one in ids]})
        job_id = seen.path.rpartition("/")[2]
        return Reply(200, {"id": job_id}) if job_id in ids else problem(404, "not_found")

    with ScriptedService(answer) as service, client_of(service) as client:
        return client.find(word)


def test_a_job_is_found_by_the_beginning_or_end_of_its_id() -> None:
    assert found_by("dlrm-1", "dlrm-1", "dlrm-12").id == "dlrm-1"
    assert found_by("dl", "mlp-1", "dlrm-12").id == "dlrm-12"
    assert found_by("0a1b", "mlp-1-0a1b", "mlp-1-0a1c").id == "mlp-1-0a1b"
    for word, kind in (("dlrm", InputError), ("x", NotFound), ("../tokens", InputError)):
        with pytest.raises(kind, match=word):
            found_by(word, "dlrm-1", "dlrm-2")


def test_a_change_whose_answer_was_lost_is_repeated() -> None:
    for change, body in (
        (lambda client: client.set_priority("dlrm-1", 7), {"priority": 7}),
        (
            lambda client: client.set_tags("dlrm-1", {"a": "b", "c": None}),
            {"tags": {"a": "b", "c": None}},
        ),
    ):
        lost = script(Reply(drop=True), Reply(200, job_document(rev=2)))
        with ScriptedService(lost) as service, client_of(service) as client:
            assert change(client).rev == 2
        assert [(seen.method, seen.body) for seen in service.seen] == [("PATCH", body)] * 2


def test_a_deletion_whose_answer_was_lost_is_done() -> None:
    there = [True]

    def answer(seen: Seen) -> Reply:
        if seen.method == "DELETE" and there:
            there.clear()
            return Reply(drop=True)
        return Reply(200, job_document()) if there else problem(404, "not_found")

    with ScriptedService(answer) as service, client_of(service) as client:
        client.delete("dlrm-1")
        with pytest.raises(NotFound):
            client.delete("dlrm-1")


def waiting(*states: str) -> Callable[[Seen], Reply]:
    return script(*(Reply(200, job_document(state=state, rev=n)) for n, state in enumerate(states)))


def test_wait_tells_each_change_and_lasts_through_a_restart_of_the_service() -> None:
    seen: list[str] = []
    states = script(
        Reply(200, job_document(state="running")),
        Reply(drop=True),
        Reply(503),
        Reply(500, b"Internal Server Error"),  # by a server that is being stopped
        Reply(200, job_document(state="hibernating")),
        Reply(200, job_document(state="succeeded")),
    )
    with ScriptedService(states) as service, client_of(service) as client:
        job = client.wait("dlrm-1", on_change=lambda job: seen.append(job.state))
    assert seen == ["running", "hibernating", "succeeded"]
    assert job.is_final
    assert {request.path for request in service.seen} == {"/v1/jobs/dlrm-1"}


def test_wait_ends_with_its_time() -> None:
    with (
        ScriptedService(waiting("running")) as service,
        client_of(service) as client,
        pytest.raises(WaitTimedOut) as caught,
    ):
        client.wait("dlrm-1", timeout_s=0.05)
    assert caught.value.exit_code == 104


def test_resume_clone_and_cancel_are_repeatable() -> None:
    lost = script(Reply(drop=True), Reply(202, job_document(parent="dlrm-0", resumes=4)))
    with ScriptedService(lost) as service, client_of(service) as client:
        assert client.clone("dlrm-0", {"train.epochs": 3}, new_id="mine").parent == "dlrm-0"
        client.resume("dlrm-1")
        client.cancel("dlrm-1", grace_s=5)
        with pytest.raises(InputError):
            client.submit(SPEC, job_id="müller")
    first, second, _, resumed, cancelled = service.seen
    assert (first.path, first.body) == (second.path, second.body)
    assert first.body == {"id": "mine", "set": {"train.epochs": 3}}
    assert (resumed.path, resumed.body) == ("/v1/jobs/dlrm-1/resume", {"resumes": 4, "set": {}})
    assert (cancelled.path, cancelled.body) == ("/v1/jobs/dlrm-1/cancel", {"grace_s": 5})


def test_asyncio_calls_it_in_threads_at_the_same_time() -> None:
    begun = threading.Barrier(2, timeout=30)

    def answer(seen: Seen) -> Reply:
        begun.wait()  # each of two calls is answered while the other one waits
        return Reply(200, job_document(state="succeeded"))

    async def wait_for_both(client: Client) -> list[Job]:
        return await asyncio.gather(
            *(asyncio.to_thread(client.wait, name) for name in ("dlrm-1", "dlrm-2"))
        )

    with ScriptedService(answer) as service, client_of(service) as client:
        assert all(job.is_final for job in asyncio.run(wait_for_both(client)))
