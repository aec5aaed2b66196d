"""Both clients against the service's real API: every method, and connections that are cut."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kept_runs import write_records
from live_service import LiveService, service as service, token as token

from distrain.client import (
    Client,
    NotFinished,
    NotFound,
    Retries,
    WaitTimedOut,
)
from distrain.service.values import Phase
from distrain.workers.rank_log import BoundedLog

SPEC: dict[str, Any] = {
    "name": "clicks",
    "data": {"train": "/data/clicks/day_*"},
    "model": {"kind": "mlp"},
}
QUICK = Retries(for_s=20.0, first_s=0.001, longest_s=0.01)
METHODS = {
    name for name, member in inspect.getmembers(Client) if name[0] != "_" and callable(member)
} - {"close", "of_scheduler"}


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
        assert wrong.errors[0].pointer == "/spec/train/epochs"
        job = did("submit", SPEC, priority=3, tags={"team": "ads"}, job_id="mine")
        assert (job.state, job.priority, job.owner, job.replayed) == ("queued", 3, "alice", False)
        again = did("submit", SPEC, priority=3, tags={"team": "ads"}, job_id="mine")
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
        log = BoundedLog(service.paths(job).log(0, 1))
        log.write(b"one\ntwo\n")
        log.close()
        records = [{"split": "train", "step": step} for step in (10, 20)]
        write_records(service.paths(job), records)
        service.end(job)
        events = did("follow", job_id, "0")
        assert [one.kind for one in events][-1] == "end"
        assert "running" in [one.data.get("state") for one in events]
        assert b"".join(did("logs", job_id, follow=True)) == b"one\ntwo\n"
        assert b"".join(did("logs", job_id, tail=1)) == b"two\n"
        assert [one["step"] for one in did("metrics", job_id).records] == [10, 20]
        names = {one.name for one in did("artifacts", job_id)}
        assert "records/attempt-1.jsonl" in names
        target = did("download", job_id, "records/attempt-1.jsonl", folder)
        assert target.read_text().count("\n") == 3
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
        waits = did("submit", SPEC)
        assert did("cancel", waits.id).state == "cancelled"
        assert did("logs", waits.id, follow=True) == [], "it never ran"

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
