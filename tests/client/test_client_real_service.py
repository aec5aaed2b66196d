"""Both clients against the service's real API: every method, and connections that are cut."""

import inspect
import json
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from cutting_proxy import cutting
from dask_world import wait_for
from live_service import LiveService, live_service
from scripted_service import Reply, ScriptedService, Seen
from service_store import submitted

from distrain.cli.main import cli
from distrain.client import (
    Client,
    NotAuthorised,
    NotFinished,
    NotFound,
    RequestRefused,
    Retries,
    WaitTimedOut,
)
from distrain.run_paths import log_end
from distrain.service.settings import ClusterProfile, Limits
from distrain.service.values import Phase, Quota, Role

SPEC: dict[str, Any] = {
    "name": "clicks",
    "data": {"train": "/data/clicks/day_*"},
    "model": {"kind": "mlp"},
}
QUICK = Retries(for_s=20.0, first_s=0.001, longest_s=0.01)
METHODS = {
    name for name, member in inspect.getmembers(Client) if name[0] != "_" and callable(member)
} - {"close"}


class Gateway:
    """A scheduler that checks data: its outcomes are given one by one."""

    def __init__(self) -> None:
        self.outcomes: list[dict[str, Any]] = []

    def answer(self, seen: Seen) -> Reply:
        if seen.method == "POST":
            return Reply(202, {"id": "7"})
        return Reply(200, self.outcomes.pop(0))


@pytest.fixture(scope="module")
def gateway() -> Gateway:
    return Gateway()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, gateway: Gateway) -> Iterator[LiveService]:
    with ScriptedService(gateway.answer) as scheduler:
        profile = ClusterProfile(url=scheduler.address, allowed_roots=("/data",), max_priority=100)
        options = {"clusters": {"gpu": profile}}
        with live_service(tmp_path_factory.mktemp("service"), options) as service:
            service.store.put_project("default", Quota(max_queued_per_user=None, max_priority=10))
            yield service


@pytest.fixture(scope="module")
def token(service: LiveService) -> str:
    return service.token("alice", Role.SUBMITTER).label


@pytest.fixture(autouse=True)
def _nobody_is_logged_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("DISTRAIN_SERVER", "DISTRAIN_TOKEN", "DISTRAIN_CA_FILE"):
        monkeypatch.delenv(name, raising=False)


def write_log(service: LiveService, job_id: str, text: bytes, attempt: int = 1) -> None:
    job = service.store.job(job_id)
    assert job is not None
    path = service.paths(job).log(0, attempt)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text)


def close_log(service: LiveService, job_id: str, attempt: int = 1) -> None:
    """Write the mark that a rank leaves which ends in order: readers wait for no more."""
    job = service.store.job(job_id)
    assert job is not None
    path = service.paths(job).log(0, attempt)
    log_end(path).write_text(f"{path.stat().st_size}\n")


class Story:
    """A job from its submission to its deletion, told to either kind of client.

    `did` runs a method by name and waits for what it gives; an iterator it reads to its end.
    """

    def __init__(self, service: LiveService, did: Callable[..., Any]):
        self.service, self.did = service, did

    def run(self, folder: Path) -> None:
        job_id = self.submitted()
        self.changed(job_id)
        self.read(job_id, folder)
        self.again(job_id)
        self.people()

    def submitted(self) -> str:
        did = self.did
        assert did("validate", SPEC).is_good
        wrong = did("validate", {**SPEC, "train": {"epochs": 0}})
        assert not wrong.is_good
        assert wrong.errors[0]["pointer"] == "/spec/train/epochs"
        job = did("submit", SPEC, priority=3, tags={"team": "ads"}, key="the-same")
        assert (job.state, job.priority, job.owner, job.replayed) == ("queued", 3, "alice", False)
        body = {"spec": SPEC, "priority": 3, "tags": {"team": "ads"}}
        again = did("submit_body", body, "the-same")
        assert (again.id, again.replayed) == (job.id, True)
        assert did("find", job.id[:-2]).id == did("job", job.id).id == job.id
        assert did("spec", job.id)["model"]["kind"] == "mlp"
        assert [one.id for one in did("jobs", tags={"team": "ads"}, states=["queued"])] == [job.id]
        return str(job.id)

    def changed(self, job_id: str) -> None:
        did = self.did
        assert did("set_priority", job_id, 5).priority == 5
        assert did("set_tags", job_id, {"team": None, "x": "y"}).tags == {"x": "y"}
        with pytest.raises(NotFinished):
            did("delete", job_id)
        seen: list[Any] = []
        with pytest.raises(WaitTimedOut):
            did("wait", job_id, 0.01, seen.append)
        assert [one.id for one in seen] == [job_id]

    def read(self, job_id: str, folder: Path) -> None:
        did, service = self.did, self.service
        job = service.store.job(job_id)
        assert job is not None
        job = service.change(job, phase=Phase.HANDED_OVER, state="running", attempt=1)
        write_log(service, job_id, b"one\ntwo\n")
        close_log(service, job_id)
        service.paths(job).metrics.write_text('{"step": 10}\n{"step": 20}\n')
        service.end(job)
        events = did("follow", job_id, "0")
        assert [one.kind for one in events][-1] == "end"
        assert "running" in [one.data.get("state") for one in events]
        assert b"".join(did("logs", job_id, follow=True)) == b"one\ntwo\n"
        assert b"".join(did("logs", job_id, tail=1)) == b"two\n"
        assert [one["step"] for one in did("metrics", job_id).records] == [10, 20]
        names = {one.name for one in did("artifacts", job_id)}
        assert "metrics.jsonl" in names
        target = did("download", job_id, "metrics.jsonl", folder)
        assert target.read_text().count("\n") == 2
        assert did("wait", job_id).state == did("cancel", job_id).state == "succeeded"

    def again(self, job_id: str) -> None:
        did = self.did
        clone = did("clone", job_id, {"train.epochs": 2})
        assert clone.parent == job_id
        assert did("spec", clone.id)["train"]["epochs"] == 2
        assert did("cancel", clone.id, why="of no use", grace_s=1.0).state == "cancelled"
        did("delete", clone.id)
        with pytest.raises(NotFound):
            did("job", clone.id)
        resumed = did("resume", job_id, {"train.epochs": 3})
        assert (resumed.id, resumed.state, resumed.resumes) == (job_id, "queued", 1)
        assert did("cancel", job_id, force=True).is_final

    def people(self) -> None:
        did = self.did
        assert [one.name for one in did("clusters")] == ["gpu"]
        assert did("me").user == "alice"
        made = did("make_token", label="ci", scopes=["read"], days=1)
        assert made.text
        assert made.id in {one.id for one in did("tokens")}
        did("revoke_token", made.id)
        did("revoke_token", made.id)


def test_every_method_of_the_client(service: LiveService, token: str, tmp_path: Path) -> None:
    called = set()
    with Client(service.url, token, retries=QUICK) as client:

        def did(name: str, *values: Any, **more: Any) -> Any:
            called.add(name)
            found = getattr(client, name)(*values, **more)
            return list(found) if inspect.isgenerator(found) else found

        Story(service, did).run(tmp_path)
        job = service.job()
        events = client.events("0")
        assert next(one for one in events if one.data.get("id") == job.id).kind == "job.state"
        called.add("events")
    assert called == METHODS


@pytest.mark.slow
def test_events_through_a_hundred_cuts_are_those_of_the_service(
    service: LiveService, token: str
) -> None:
    job = service.job()
    for step in range(100):
        job = service.change(
            job, phase=Phase.HANDED_OVER, state="running", attempt=1, priority=step
        )
    service.end(job)
    with Client(service.url, token) as client:
        straight = [(one.id, one.kind, one.data.get("rev")) for one in client.follow(job.id, "0")]
    with (
        cutting(service.url, 100, 1300) as proxy,
        Client(proxy.url, token, retries=QUICK) as client,
    ):
        found = [(one.id, one.kind, one.data.get("rev")) for one in client.follow(job.id, "0")]
        assert proxy.done == 100
    assert found == straight
    assert len({number for number, kind, _ in found if kind != "end"}) == len(found) - 1 == 102


@pytest.mark.slow
def test_a_log_through_a_hundred_cuts_is_the_file(service: LiveService, token: str) -> None:
    job = service.job()
    job = service.change(job, phase=Phase.HANDED_OVER, state="running", attempt=1)
    draw = random.Random(3)
    pieces = [draw.randbytes(draw.randrange(1, 20_000)) for _ in range(60)]
    path = service.paths(job).log(0, 1)
    path.parent.mkdir(parents=True)
    path.touch()

    def write() -> None:
        for piece in pieces:
            with path.open("ab") as file:
                file.write(piece)
        close_log(service, job.id)
        service.end(job)

    with (
        cutting(service.url, 100, 12_000) as proxy,
        Client(proxy.url, token, retries=QUICK) as client,
    ):
        writer = threading.Thread(target=write)
        writer.start()
        found = b"".join(client.logs(job.id, follow=True))
        writer.join()
        assert proxy.done == 100
    assert found == b"".join(pieces)


def test_a_log_of_a_queued_job_that_restarts_holds_both_attempts(
    service: LiveService, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distrain.client.streams._POLL_S", (0.01, 0.05))
    job = service.job()
    found: list[bytes] = []
    with Client(service.url, token, retries=QUICK) as client:
        reader = threading.Thread(
            target=lambda: found.extend(client.logs(job.id, follow=True)), name="reader"
        )
        reader.start()
        running = service.change(job, phase=Phase.HANDED_OVER, state="running", attempt=1)
        write_log(service, job.id, b"first\n")
        wait_for(lambda: b"".join(found) == b"first\n", "the first attempt's log")
        close_log(service, job.id)
        service.change(running, state="restarting", attempt=2)
        write_log(service, job.id, b"second\n", attempt=2)
        wait_for(lambda: b"".join(found) == b"first\nsecond\n", "the second attempt's log")
        assert reader.is_alive()
        close_log(service, job.id, attempt=2)
        service.end(running)
        reader.join(20)
        assert not reader.is_alive()
    assert b"".join(found) == b"first\nsecond\n"


def test_the_log_of_a_job_that_never_ran_is_empty_and_ends(
    service: LiveService, token: str
) -> None:
    job = service.job()
    with Client(service.url, token, retries=QUICK) as client:
        assert list(client.logs(job.id)) == []
        assert client.cancel(job.id).state == "cancelled"
        began_s = time.monotonic()
        assert list(client.logs(job.id, follow=True)) == []
        assert time.monotonic() - began_s < 10  # and not the 15 s of a rank that was killed


def test_a_submission_whose_answer_is_lost_makes_one_job(service: LiveService, token: str) -> None:
    with (
        cutting(service.url, 5, 40) as proxy,
        Client(proxy.url, token, retries=QUICK) as client,
    ):
        job = client.submit({**SPEC, "name": "lost"})
        clone = client.clone(job.id)
        assert proxy.done == 5
        assert job.replayed
    with Client(service.url, token) as client:
        assert {one.id for one in client.jobs(text="lost")} == {job.id, clone.id}


@pytest.mark.slow
def test_all_pages_of_many_jobs_come_once_each(
    service: LiveService, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [submitted(service.store, name="many").id for _ in range(230)]
    with Client(service.url, token) as client:
        found = [one.id for one in client.jobs(text="many", page_jobs=200)]
    assert found == made[::-1]
    monkeypatch.setenv("DISTRAIN_SERVER", service.url)
    monkeypatch.setenv("DISTRAIN_TOKEN", token)
    done = CliRunner().invoke(cli, ["jobs", "--limit", "220", "--json"])
    listed = [one["job_id"] for one in json.loads(done.stdout)["jobs"]]
    assert listed == made[:-221:-1]


def test_what_a_service_refuses(service: LiveService, token: str, tmp_path: Path) -> None:
    job = service.job()
    with Client(service.url, token) as client:
        with pytest.raises(RequestRefused) as bad:
            client.submit({**SPEC, "train": {"epochs": 0, "nonsense": 1}})
        assert {one.pointer for one in bad.value.pointers} == {
            "/spec/train/epochs",
            "/spec/train/nonsense",
        }
        client.submit(SPEC, key="reused")
        with pytest.raises(RequestRefused) as reused:
            client.submit({**SPEC, "name": "other"}, key="reused")
        assert reused.value.code == "key_reused"
        waiting = client.submit(SPEC)
        with pytest.raises(NotFinished):
            client.resume(waiting.id)
        with pytest.raises(NotFound):
            client.download(job.id, "nothing.json", tmp_path / "nothing.json")
        assert not list(tmp_path.glob("*nothing*"))
    with Client(service.url, "dtr_0123456789_nosuchtoken_abcdef") as client:
        with pytest.raises(NotAuthorised) as unknown:
            client.me()
        assert unknown.value.status == 401
    with Client(service.url, service.token("mallory").label) as client, pytest.raises(NotFound):
        client.job(job.id)
    with Client(service.url, service.token("bob", Role.VIEWER).label) as client:
        with pytest.raises(NotAuthorised) as viewer:
            client.cancel(job.id)
        assert viewer.value.status == 403


def test_the_longest_hold_is_shorter_than_the_retries(service: LiveService, token: str) -> None:
    """A service that holds a request for as long as it is asked to is not a silent one."""
    job = service.job()
    with Client(service.url, token, retries=Retries(for_s=0.5)) as client:
        ender = threading.Timer(1.5, lambda: service.end(job))
        ender.start()
        assert client.wait(job.id).state == "succeeded"
        ender.join()


def test_one_who_asks_too_often_is_told_when_to_come_back(tmp_path: Path) -> None:
    limits = Limits(reads_per_s=0.1, submits_per_s=1e6)
    with live_service(tmp_path, {"limits": limits}) as service:
        token = service.token("alice", Role.SUBMITTER).label
        with (
            Client(service.url, token, retries=Retries(for_s=0.1)) as client,
            pytest.raises(RequestRefused) as rate,
        ):
            list(iter(client.me, None))
    assert rate.value.status == 429
    assert re.search(r"Try again in \d+ s", str(rate.value.hint))


def test_a_validation_with_data_waits_for_what_a_worker_finds(
    service: LiveService, token: str, gateway: Gateway
) -> None:
    found = {"notes": [], "errors": [], "error": None}
    mistake = {"message": "the folder is empty", "where": {"folder": "/data"}, "hint": None}
    gateway.outcomes = [
        {**found, "state": "waiting"},
        {**found, "state": "running"},
        {**found, "state": "passed", "notes": ["3 files"]},
        {**found, "state": "failed", "errors": [mistake]},
        {**found, "state": "lost", "error": "the worker has died"},
    ]
    with Client(service.url, token, retries=QUICK) as client:
        assert not client.validate({**SPEC, "train": {"epochs": 0}}, data=True).is_good
        good, failed, lost = [client.validate(SPEC, data=True) for _ in range(3)]
    assert good.is_good
    assert good.notes == ("3 files",)
    assert not failed.is_good
    assert failed.errors[0]["detail"] == "the folder is empty"
    assert not lost.is_good
    assert lost.errors[0]["detail"] == "the worker has died"
    assert not gateway.outcomes


def test_a_wait_outlives_a_server_that_drops_it_as_it_stops() -> None:
    """A server that is being stopped gives 500 without a document to what it still holds."""
    replies = [Reply(500, b"Internal Server Error"), Reply(200, {"id": "a", "state": "succeeded"})]
    with (
        ScriptedService(lambda seen: replies.pop(0)) as service,
        Client(service.address, retries=QUICK) as client,
    ):
        assert client.wait("a").state == "succeeded"
