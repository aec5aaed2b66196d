"""Each code of the calls for jobs."""

import json
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from api_world import SPEC, World, api_world

from distrain.service.api.problems import Problem
from distrain.service.api.submission import choose_cluster
from distrain.service.decisions.api_values import STATES
from distrain.service.settings import Limits
from distrain.service.values import Quota, Role


def code_of(answer):
    assert answer.headers["content-type"] == "application/problem+json"
    document = answer.json()
    assert document["status"] == answer.status_code
    assert set(document) == {
        *("type", "title", "status", "detail", "code", "hint", "errors", "instance"),
    }
    return answer.status_code, document["code"]


def submit(world, body, user="alice", job_id=None):
    return world.ask(user, "PUT", f"/v1/jobs/{job_id or world.new_id()}", body)


def test_a_submitted_job_is_there_with_its_location(world: World):
    answer = submit(world, {"spec": SPEC, "project": "ads", "tags": {"team": "a"}, "priority": 3})
    assert answer.status_code == 201
    job = answer.json()
    assert answer.headers["Location"] == f"/v1/jobs/{job['id']}"
    assert (job["owner"], job["project"], job["cluster"]) == ("alice", "ads", "gpu")
    assert (job["state"], job["priority"], job["tags"]) == ("queued", 3, {"team": "a"})
    assert job["run_dir"].endswith(f"/runs/ads/{job['id']}")
    assert job["created_at"].endswith("Z")
    assert len(job["created_at"]) == 27
    again = world.ask("alice", "GET", f"/v1/jobs/{job['id']}")
    assert again.json() == job
    spec = world.ask("alice", "GET", f"/v1/jobs/{job['id']}/spec").json()["spec"]
    assert spec["data"]["train"] == ["/data/clicks/day_*"]
    assert spec["train"]["epochs"] == 1


def test_an_equal_request_gives_the_same_job_and_another_is_refused(world: World):
    body, job_id = {"spec": SPEC, "project": "ads"}, world.new_id()
    first, second = submit(world, body, job_id=job_id), submit(world, body, job_id=job_id)
    assert (first.status_code, second.status_code) == (201, 200)
    assert second.json() == first.json()
    assert second.headers["Location"] == first.headers["Location"] == f"/v1/jobs/{job_id}"
    for other, user in (({**body, "priority": 1}, "alice"), (body, "bob")):
        assert code_of(submit(world, other, user, job_id)) == (409, "id_taken")
    for bad in ("a" * 129, ".a", "a b", "%2e%2e"):
        assert submit(world, body, job_id=bad).status_code in (400, 404, 405)


def test_a_repeated_request_is_answered_whatever_holds_now(world: World):
    body, job_id = {"spec": SPEC, "project": "ads", "priority": 10}, world.new_id()
    assert submit(world, body, job_id=job_id).status_code == 201
    world.store.put_project("ads", Quota(max_queued_per_user=None, max_priority=0))
    try:
        again = submit(world, body, job_id=job_id)
        assert (again.status_code, again.json()["id"]) == (200, job_id)
        assert code_of(submit(world, body)) == (403, "forbidden")
        worse = {**body, "spec": {**SPEC, "name": 7}}
        assert code_of(submit(world, worse, job_id=job_id)) == (422, "bad_spec")
    finally:
        world.store.put_project("ads", Quota(max_queued_per_user=None, max_priority=10))


def test_a_repeated_request_shows_no_job_to_who_left_its_project(world: World):
    body, job_id, new = {"spec": SPEC, "project": "ads"}, world.new_id(), {"id": world.new_id()}
    assert submit(world, body, "bob", job_id).status_code == 201
    clone = f"/v1/jobs/{job_id}/clone"
    assert world.ask("bob", "POST", clone, new).status_code == 201
    world.store.remove_member("ads", "bob")
    try:
        assert code_of(submit(world, body, "bob", job_id)) == (404, "not_found")
        assert code_of(world.ask("bob", "POST", clone, new)) == (404, "not_found")
    finally:
        world.store.set_member("ads", "bob", Role.SUBMITTER)
    assert submit(world, body, "bob", job_id).status_code == 200


def test_mistakes_of_a_spec_come_with_pointers(world: World):
    spec = {**SPEC, "train": {"epochs": 0}, "modle": {}}
    answer = submit(world, {"spec": spec, "project": "ads"})
    assert code_of(answer) == (422, "bad_spec")
    pointers = {mistake["pointer"] for mistake in answer.json()["errors"]}
    assert pointers == {"/spec/train/epochs", "/spec/modle"}


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"resources": {"backend": "inline"}}, "/spec/resources/backend"),
        ({"data": {"train": "clicks/day_0"}}, "/spec/data/train/0"),
        ({"data": {"train": "~/day_0"}}, "/spec/data/train/0"),
        ({"data": {"train": ["/data/a", "/etc/passwd"]}}, "/spec/data/train/1"),
        ({"data": {"train": "/data/../etc"}}, "/spec/data/train/0"),
        ({"data": {"train": "s3://other/x"}}, "/spec/data/train/0"),
        ({"data": {"train": "/data/a", "schema": "/etc/schema"}}, "/spec/data/schema"),
        ({"checkpoint": {"dir": "/elsewhere/{run_id}"}}, "/spec/checkpoint/dir"),
        ({"train": {"init_from": "runs/a"}}, "/spec/train/init_from"),
        ({"model": {"kind": "custom", "function": "os.path:join"}}, "/spec/model/function"),
        ({"evaluate": {"metrics": {"own": "os.path:join"}}}, "/spec/evaluate/metrics/own"),
        ({"tags": {"url": "https://alice:canary@host/x"}}, "/spec/tags/url"),
        ({"tags": {"a=b": "c"}}, "/spec/tags"),
    ],
)
def test_what_the_operator_does_not_allow_is_refused(world: World, change, pointer):
    answer = submit(world, {"spec": {**SPEC, **change}, "project": "ads"})
    assert code_of(answer) == (422, "bad_spec")
    assert [mistake["pointer"] for mistake in answer.json()["errors"]] == [pointer]
    assert "canary" not in answer.text


def test_allowed_paths_and_packages_pass(world: World):
    own = f"{world.settings.run_root('gpu')}/ads/earlier"
    spec = {
        **SPEC,
        "data": {"train": ["/data/a", "s3://clicks/raw/day_?"], "schema": "criteo"},
        "train": {"init_from": own},
        "model": {"kind": "custom", "function": "clickmodels.wide:make"},
    }
    assert submit(world, {"spec": spec, "project": "ads"}).status_code == 201


def test_limits_of_bodies_and_specs(world: World):
    large = {"spec": SPEC, "tags": {"a": "x" * 300_000}, "project": "ads"}
    assert code_of(submit(world, large)) == (413, "too_large")

    def chunks():
        for _ in range(300):
            yield b" " * 1024

    headers = world.headers("alice")
    streamed = world.client.put("/v1/jobs/one", content=chunks(), headers=headers)
    assert code_of(streamed) == (413, "too_large")
    wide = {**SPEC, "model": {"kind": "mlp", "x": "y" * 70_000}}
    assert code_of(submit(world, {"spec": wide, "project": "ads"})) == (422, "bad_spec")
    for depth, refused in ((40, (422, "bad_spec")), (440, (400, "bad_request"))):
        deep = json.loads('{"a":' * depth + "0" + "}" * depth)
        assert code_of(submit(world, {"spec": {**SPEC, "deep": deep}, "project": "ads"})) == refused
    tags = {str(n): "" for n in range(33)}
    for many in ({"spec": SPEC, "tags": tags}, {"spec": {**SPEC, "tags": tags}}):
        assert code_of(submit(world, {**many, "project": "ads"})) == (422, "bad_spec")
    half = {"spec": {**SPEC, "tags": {str(n): "" for n in range(20)}}, "project": "ads"}
    both = {**half, "tags": {f"b{n}": "" for n in range(20)}}
    assert code_of(submit(world, both)) == (422, "bad_spec")


def test_the_limit_of_tags_is_that_of_the_settings(tmp_path):
    tags = {str(n): "" for n in range(40)}
    with api_world(tmp_path, limits=Limits(tags=40)) as world:
        answer = submit(world, {"spec": SPEC, "project": "ads", "tags": tags})
    assert (answer.status_code, answer.json()["tags"]) == (201, tags)


@pytest.mark.parametrize(
    "body",
    [
        "{",
        '{"spec": {"a": NaN}}',
        '{"spec": {"a": "\\u0000"}}',
        '{"spec": {"a": "\\ud800"}}',
        "[]",
        "",
    ],
)
def test_bodies_that_no_database_takes_are_refused(world: World, body: str):
    headers = world.headers("alice", Content_Type="application/json")
    answer = world.client.put("/v1/jobs/one", content=body, headers=headers)
    assert code_of(answer) == (400, "bad_request")


def test_projects_and_clusters_that_are_not_the_callers(world: World):
    body = {"spec": SPEC, "project": "web"}
    assert code_of(submit(world, body)) == (404, "not_found")
    assert code_of(submit(world, {**body, "project": "nowhere"})) == (404, "not_found")
    assert code_of(submit(world, {**body, "project": "ads"}, user="viewer")) == (403, "forbidden")
    own = submit(world, {**body, "project": "ads", "cluster": "own"})
    assert code_of(own) == (422, "bad_spec")
    assert own.json()["errors"][0]["pointer"] == "/cluster"


def test_priorities_are_bounded_by_role(world: World):
    body = {"spec": SPEC, "project": "ads"}
    assert submit(world, {**body, "priority": 10}).status_code == 201
    assert code_of(submit(world, {**body, "priority": 11})) == (403, "forbidden")
    spec = {**SPEC, "queue": {"priority": 11}}
    assert code_of(submit(world, {"spec": spec, "project": "ads"})) == (403, "forbidden")
    assert submit(world, {**body, "priority": 100}, user="operator").status_code == 201
    assert code_of(submit(world, {**body, "priority": 101}, user="operator"))[0] == 403


def test_validate_says_what_would_become_of_a_spec(world: World):
    good = world.ask("alice", "POST", "/v1/jobs:validate", {"spec": SPEC, "project": "ads"}).json()
    assert (good["valid"], good["errors"]) == (True, [])
    assert good["spec"]["train"]["epochs"] == 1
    body = {"spec": {**SPEC, "train": {"epochs": 0}}, "project": "ads", "priority": 99}
    bad = world.ask("alice", "POST", "/v1/jobs:validate", body)
    assert bad.status_code == 200
    assert bad.json()["spec"] is None
    assert [mistake["pointer"] for mistake in bad.json()["errors"]] == ["/spec/train/epochs"]
    body = {"spec": SPEC, "project": "ads", "priority": 99}
    late = world.ask("alice", "POST", "/v1/jobs:validate", body).json()
    assert [mistake["pointer"] for mistake in late["errors"]] == ["/priority"]


def test_a_change_keeps_other_tags_and_is_checked(world: World):
    job = world.submit(tags={"a": "1", "b": "2"})
    path = f"/v1/jobs/{job['id']}"
    body = {"priority": 2, "tags": {"a": None, "c": "3", "none": None}}
    for _ in range(2):  # a repeated request changes nothing
        good = world.ask("alice", "PATCH", path, body)
        assert good.status_code == 200
        assert (good.json()["priority"], good.json()["tags"]) == (2, {"b": "2", "c": "3"})
        assert good.json()["rev"] == job["rev"] + 1
    assert code_of(world.ask("alice", "PATCH", path, {"priority": 11}))[0] == 403
    many = {str(number): "" for number in range(31)}
    for tags in ({"": "b"}, many, {"a=b": "c"}):
        assert code_of(world.ask("alice", "PATCH", path, {"tags": tags})) == (422, "bad_spec")
    assert world.ask("alice", "GET", path).json() == good.json()
    world.change(job["id"], phase="handed_over", state="running")
    assert code_of(world.ask("alice", "PATCH", path, {"priority": 3})) == (409, "conflict")
    world.end(job["id"])
    assert code_of(world.ask("alice", "PATCH", path, {"priority": 3})) == (409, "final")
    assert world.ask("alice", "PATCH", path, {"tags": {"b": None}}).json()["tags"] == {"c": "3"}


def test_tags_that_break_the_limits_of_today_may_be_removed(world: World):
    job = world.submit()
    old = {str(number): "x" * 999 for number in range(40)}
    world.store.change(job["id"], tags=old)
    path = f"/v1/jobs/{job['id']}"
    assert world.ask("alice", "PATCH", path, {"tags": None}).json()["tags"] == old
    for tags in ({"new": ""}, {"1": "y" * 999}):
        assert code_of(world.ask("alice", "PATCH", path, {"tags": tags})) == (422, "bad_spec")
    body = {"tags": {"0": None, "1": "short"}}
    left = world.ask("alice", "PATCH", path, body).json()["tags"]
    assert left == {key: "short" if key == "1" else old[key] for key in old if key != "0"}


def test_changes_of_different_tags_at_once_are_all_kept(world: World):
    path = f"/v1/jobs/{world.submit()['id']}"
    names = [str(number) for number in range(8)]
    with ThreadPoolExecutor(len(names)) as threads:
        bodies = [{"tags": {name: name}} for name in names]
        asked = [threads.submit(world.ask, "alice", "PATCH", path, body) for body in bodies]
    assert {one.result().status_code for one in asked} == {200}
    assert set(world.ask("alice", "GET", path).json()["tags"]) == set(names)


def test_silence_of_a_cluster_is_a_state(world: World):
    job = world.submit()
    heard_s = world.store.now_s() - 31
    world.change(job["id"], phase="handed_over", state="running", observed_at_s=heard_s)
    answer = world.ask("alice", "GET", f"/v1/jobs/{job['id']}").json()
    assert (answer["state"], answer["last_known"]) == ("unknown", "running")


def test_cancel_answers_202_until_the_job_has_ended(world: World):
    job = world.submit()
    world.change(job["id"], phase="handed_over", state="running")
    path = f"/v1/jobs/{job['id']}/cancel"
    answer = world.ask("alice", "POST", path, {"grace_s": 5})
    assert answer.status_code == 202
    assert answer.json()["state"] == "cancelling"
    forced = world.ask("alice", "POST", path, {"force": True})
    assert forced.status_code == 202
    kept = world.store.job(job["id"])
    assert kept is not None
    assert kept.cancel_grace_s == 0
    world.end(job["id"], "cancelled")
    assert world.ask("alice", "POST", path).status_code == 200
    queued = world.submit()
    ended = world.ask("alice", "POST", f"/v1/jobs/{queued['id']}/cancel")
    assert (ended.status_code, ended.json()["state"]) == (202, "cancelled")


def test_a_job_whose_cluster_is_no_longer_configured_says_so_and_cancelling_ends_it(world: World):
    job = world.submit()
    world.change(job["id"], phase="handed_over", state="running")
    clusters = {"own": world.settings.clusters["own"]}
    parts = world.app.state.parts
    kept, parts.settings = parts.settings, world.settings.model_copy(update={"clusters": clusters})
    try:
        path = f"/v1/jobs/{job['id']}"
        told = world.ask("alice", "GET", path).json()["why_pending"]
        ended = world.ask("alice", "POST", f"{path}/cancel").json()
    finally:
        parts.settings = kept
    assert told == "cluster gpu is no longer configured"
    assert (ended["state"], ended["why_pending"]) == ("cancelled", "")
    assert ended["message"].endswith(f"{told}: its ranks, if there are any, were not reached")
    assert ended["first_attempt"] == job["first_attempt"] + 1  # a hand-over may have used it


def test_resume_goes_on_with_an_ended_job(world: World):
    job = world.submit()
    path = f"/v1/jobs/{job['id']}/resume"
    early = world.ask("alice", "POST", path, {"resumes": 0})
    assert code_of(early) == (409, "not_final")
    world.end(job["id"], "failed")
    body = {"resumes": 0, "set": {"train.epochs": 3, "resources.num_ranks": 2}}
    answer = world.ask("alice", "POST", path, body)
    assert answer.status_code == 202
    assert (answer.json()["state"], answer.json()["resumes"]) == ("queued", 1)
    assert answer.json()["num_ranks"] == 2
    assert world.store.spec(job["id"])["train"]["epochs"] == 3
    for state in ("failed", "succeeded"):
        replay = world.ask("alice", "POST", path, body)
        assert (replay.status_code, replay.json()["resumes"]) == (200, 1)
        world.end(job["id"], state)
    world.end(job["id"], "failed")
    late = world.ask("alice", "POST", path, {"resumes": 0, "set": {"train.epochs": 5}})
    assert code_of(late) == (409, "conflict")
    for wrong, pointer in (
        ({"train.epochs": 0}, "/set/train/epochs"),
        ({"train.": 1}, "/set/train."),
    ):
        bad = world.ask("alice", "POST", path, {"resumes": 1, "set": wrong})
        assert code_of(bad) == (422, "bad_spec")
        assert bad.json()["errors"][0]["pointer"] == pointer


def test_a_resumed_job_has_the_name_priority_and_tags_that_were_set(world: World):
    job = world.submit(tags={"team": "a"}, priority=4)
    world.end(job["id"], "failed")
    path = f"/v1/jobs/{job['id']}/resume"
    high = {"resumes": 0, "set": {"queue.priority": 11}}
    assert code_of(world.ask("alice", "POST", path, high)) == (403, "forbidden")
    long = {"resumes": 0, "set": {"tags.why": "x" * 1000}}
    assert code_of(world.ask("alice", "POST", path, long)) == (422, "bad_spec")
    body = {"resumes": 0, "set": {"name": "again", "queue.priority": 7, "tags.why": "oom"}}
    again = world.ask("alice", "POST", path, body).json()
    assert (again["name"], again["priority"]) == ("again", 7)
    assert again["tags"] == {"team": "a", "why": "oom"}
    found = world.ask("alice", "GET", "/v1/jobs?tag=why=oom").json()["jobs"]
    assert [one["id"] for one in found] == [job["id"]]
    world.ask("alice", "PATCH", f"/v1/jobs/{job['id']}", {"priority": 6, "tags": {"why": "disk"}})
    world.end(job["id"], "failed")
    body = {"resumes": 1, "set": {"tags.team": "b"}}
    kept = world.ask("alice", "POST", path, body).json()
    assert (kept["name"], kept["priority"]) == ("again", 6)
    assert kept["tags"] == {"team": "b", "why": "disk"}


def test_what_has_succeeded_is_resumed_only_to_train_longer(world: World):
    data = {**SPEC["data"], "valid": "/data/clicks/day_9"}
    train = {"epochs": 2, "max_steps": 50}
    spec = {**SPEC, "data": data, "train": train, "evaluate": {"every_steps": 5}}
    job = submit(world, {"spec": spec, "project": "ads"}).json()
    world.end(job["id"])
    path = f"/v1/jobs/{job['id']}/resume"

    def resume(**train):
        kept = world.store.job(job["id"])
        assert kept is not None
        settings = {f"train.{name}": value for name, value in train.items()}
        return world.ask("alice", "POST", path, {"resumes": kept.resumes, "set": settings})

    patient = {"early_stopping": {"patience": 2}}
    shorter = ({}, {"epochs": 1}, {"max_steps": 50}, {"optimizer.lr": 0.1})
    shorter += ({"epochs": 1, **patient}, {"max_steps": 40, **patient})
    for answer in (resume(**train) for train in shorter):
        assert code_of(answer) == (409, "final")
    other = resume(epochs=3, seed=4)  # its ranks would refuse the checkpoint
    assert code_of(other) == (422, "bad_spec")
    kept = world.store.job(job["id"])
    assert kept is not None
    assert (kept.state, kept.resumes, kept.finished_at_s is None) == ("succeeded", 0, False)
    assert world.store.spec(job["id"])["train"]["epochs"] == 2
    longer = (
        {"epochs": 3},
        {"max_steps": 60},
        {"max_steps": None},
        {"epochs": "auto"},
        {"epochs": 4},
    )
    for number, train in enumerate(longer, 1):
        assert resume(**train).json()["resumes"] == number, train
        world.end(job["id"])


def test_a_filter_by_a_state_that_there_is_not_names_those_that_there_are(world: World):
    answer = world.ask("alice", "GET", "/v1/jobs?state=running&state=bogus")
    assert code_of(answer) == (400, "bad_request")
    assert [mistake["pointer"] for mistake in answer.json()["errors"]] == ["#state.1"]
    for state in STATES:
        assert world.ask("alice", "GET", f"/v1/jobs?state={state}").status_code == 200


def test_a_clone_is_a_new_job_with_a_parent(world: World):
    parent = world.submit(tags={"team": "a"}, priority=4)
    path = f"/v1/jobs/{parent['id']}/clone"
    body = {"id": world.new_id(), "set": {"train.epochs": 2}}
    answer = world.ask("bob", "POST", path, body)
    assert code_of(answer) == (404, "not_found")  # bob may not see it
    answer = world.ask("alice", "POST", path, body)
    assert answer.status_code == 201
    job = answer.json()
    assert job["id"] == body["id"]
    assert (job["parent"], job["priority"], job["tags"]) == (parent["id"], 4, {"team": "a"})
    assert world.store.spec(job["id"])["train"]["epochs"] == 2
    assert world.ask("alice", "POST", path, body).status_code == 200
    for bad in ("..", "a/b", "a\0b", "a\n"):
        assert code_of(world.ask("alice", "POST", path, {"id": bad})) == (400, "bad_request")


def test_unknown_addresses_and_methods(world: World):
    assert code_of(world.ask("alice", "GET", "/v1/nothing")) == (404, "not_found")
    assert code_of(world.ask("alice", "PUT", "/v1/jobs")) == (405, "method_not_allowed")
    assert code_of(world.ask("alice", "GET", "/v1/jobs/none")) == (404, "not_found")


def test_a_cluster_is_chosen_only_if_the_project_may_use_one():
    profiles = {
        "a": SimpleNamespace(projects=("ads",)),
        "b": SimpleNamespace(projects=("ads", "x")),
    }
    settings = SimpleNamespace(clusters=profiles)
    assert choose_cluster(settings, "x", None) == "b"
    assert choose_cluster(settings, "ads", "a") == "a"
    for project, asked, words in (
        ("none", None, "the project may use no cluster"),
        ("none", "a", "the project may use no cluster"),
        ("ads", None, "the project may use several clusters: a, b"),
        ("x", "a", "the project cannot use a cluster 'a'; it may use: b"),
    ):
        with pytest.raises(Problem) as caught:
            choose_cluster(settings, project, asked)
        assert caught.value.detail == words
