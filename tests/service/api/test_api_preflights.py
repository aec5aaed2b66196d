"""Checks of data: asked of the scheduler over HTTP, and told to nobody but who asked."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from api_world import SPEC, World, api_world
from scripted_service import Reply, ScriptedService, Seen, problem
from waiting import until

from distrain.service.settings import ClusterProfile

DONE = {"state": "passed", "notes": ["3 files"], "errors": [], "error": None}


class Scheduler:
    """Answers as a scheduler's routes do; the token is its only guard."""

    def __init__(self) -> None:
        self.gate, self.server = threading.Event(), ScriptedService(self.answer)
        self.gate.set()

    def answer(self, seen: Seen) -> Reply:
        if seen.headers["authorization"] != "Bearer secret":
            return problem(401, "unauthenticated")
        if seen.method == "POST":
            self.gate.wait(120)
            return Reply(202, {"id": "7"})
        found = seen.path.endswith("/preflights/7") and seen.params == {"owner": "alice"}
        return Reply(200, DONE) if found else problem(404, "not_found")

    @property
    def specs(self) -> list[dict[str, object]]:
        """The specs that it was sent."""
        return [seen.body["spec"] for seen in self.server.seen if seen.method == "POST"]


@pytest.fixture(scope="module")
def scheduler() -> Iterator[Scheduler]:
    scheduler = Scheduler()
    with scheduler.server:
        yield scheduler


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory, scheduler: Scheduler) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("checked")
    (folder / "token").write_text("secret\n")
    profile = ClusterProfile(url=scheduler.server.address, token_file=folder / "token")
    away = ClusterProfile(url="http://127.0.0.1:1")
    with api_world(folder, clusters={"gpu": profile, "away": away}) as world:
        yield world


def validate(world: World, cluster: str, spec: object = SPEC):
    body = {"spec": spec, "project": "ads", "cluster": cluster}
    return world.ask("alice", "POST", "/v1/jobs:validate?data=true", body)


def test_a_check_is_made_by_the_scheduler_and_read_by_who_asked(
    checked: World, scheduler: Scheduler
):
    started = validate(checked, "gpu")
    url = started.json()["url"]
    assert (started.status_code, started.headers["Location"]) == (202, url)
    assert scheduler.specs[-1]["data"]["train"] == ["/data/clicks/day_*"]
    assert checked.ask("alice", "GET", url).json() == DONE
    assert checked.ask("bob", "GET", url).status_code == 404
    assert checked.ask("alice", "GET", url + "0").status_code == 404
    assert "secret" not in started.text


def test_a_spec_with_mistakes_is_not_sent_and_a_silent_cluster_is_503(
    checked: World, scheduler: Scheduler
):
    sent = len(scheduler.specs)
    bad = validate(checked, "gpu", {**SPEC, "train": {"epochs": 0}})
    assert (bad.status_code, bad.json()["valid"]) == (200, False)
    assert len(scheduler.specs) == sent
    silent = validate(checked, "away")
    assert (silent.status_code, silent.json()["code"]) == (503, "unavailable")
    assert "Retry-After" in silent.headers


def test_a_scheduler_that_hangs_takes_few_threads(checked: World, scheduler: Scheduler):
    scheduler.gate.clear()
    sent = len(scheduler.specs)
    with ThreadPoolExecutor(4) as threads:
        held = [threads.submit(validate, checked, "gpu") for _ in range(4)]
        until(lambda: len(scheduler.specs) == sent + 4)
        more = validate(checked, "gpu")
        scheduler.gate.set()
    assert (more.status_code, more.json()["code"]) == (503, "unavailable")
    assert len(scheduler.specs) == sent + 4, "it is not asked"
    assert {answer.result().status_code for answer in held} <= {202, 503}
    assert validate(checked, "gpu").status_code == 202
