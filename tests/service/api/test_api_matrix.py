"""Who may call what: every call of the OpenAPI document, by every role, on alice's job.

The table below is written by hand from what the contract promises, not from the rules in the code.
A call that has no line here fails the test.
"""

from pathlib import Path
from typing import Any

import pytest
from api_world import SPEC, USERS, World
from kept_runs import write_records

from distrain.jobs.run_paths import RunPaths
from distrain.service.api.app import openapi_document
from distrain.service.values import Phase, Scope

# Who is let in, of: admin, operator, viewer, alice (owner), bob (another submitter), stranger
# (member of another project). The rest gets what is after the colon, or for strangers 404.
_READ = {"admin", "operator", "viewer", "alice"}
_WRITE = {"admin", "operator", "alice"}
_ALL = set(USERS)
_MEMBERS = {"admin", "operator", "viewer", "alice", "bob"}
SEES_JOB = _READ
SECRET = "what only those may read who see the job\n"
SEES_PROJECT = _MEMBERS

TABLE: dict[tuple[str, str], tuple[set[str], set[str], Scope]] = {
    # (method, path): (who may, who may see the thing at all, scope)
    ("get", "/v1/jobs"): (_ALL, _ALL, Scope.READ),
    ("put", "/v1/jobs/{job_id}"): (
        {"admin", "operator", "alice", "bob"},
        SEES_PROJECT,
        Scope.SUBMIT,
    ),
    ("post", "/v1/jobs:validate"): (
        {"admin", "operator", "alice", "bob"},
        SEES_PROJECT,
        Scope.SUBMIT,
    ),
    ("get", "/v1/jobs/{job_id}"): (_READ, SEES_JOB, Scope.READ),
    ("get", "/v1/jobs/{job_id}/spec"): (_READ, SEES_JOB, Scope.READ),
    ("patch", "/v1/jobs/{job_id}"): (_WRITE, SEES_JOB, Scope.SUBMIT),
    ("delete", "/v1/jobs/{job_id}"): (_WRITE, SEES_JOB, Scope.SUBMIT),
    ("post", "/v1/jobs/{job_id}/cancel"): (_WRITE, SEES_JOB, Scope.CANCEL),
    ("post", "/v1/jobs/{job_id}/resume"): (_WRITE, SEES_JOB, Scope.SUBMIT),
    ("post", "/v1/jobs/{job_id}/clone"): (_WRITE, SEES_JOB, Scope.SUBMIT),
    ("get", "/v1/me"): (_ALL, _ALL, Scope.READ),
    ("get", "/v1/tokens"): (_ALL, _ALL, Scope.READ),
    ("post", "/v1/tokens"): (_ALL, _ALL, Scope.ADMIN),
    ("delete", "/v1/tokens/{token_id}"): ({"admin", "alice"}, {"admin", "alice"}, Scope.ADMIN),
    ("get", "/v1/projects"): (_ALL, _ALL, Scope.READ),
    ("get", "/v1/usage"): (_ALL, _ALL, Scope.READ),
    ("get", "/v1/projects/{project}/members"): (_MEMBERS, SEES_PROJECT, Scope.READ),
    ("get", "/v1/clusters"): (_ALL, _ALL, Scope.READ),
    # Bytes and streams of a job; what they answer besides is tested where they are.
    ("get", "/v1/jobs/{job_id}/metrics"): (_READ, SEES_JOB, Scope.READ),
    ("get", "/v1/jobs/{job_id}/artifacts"): (_READ, SEES_JOB, Scope.READ),
    ("get", "/v1/jobs/{job_id}/artifacts/{path}"): (_READ, SEES_JOB, Scope.READ),
    ("head", "/v1/jobs/{job_id}/artifacts/{path}"): (_READ, SEES_JOB, Scope.READ),
    ("get", "/v1/jobs/{job_id}/events"): (_READ, SEES_JOB, Scope.READ),
}
"""Elsewhere tested, since they do not end, or need more than one request."""
OTHERS = {
    ("get", "/v1/events"),
    ("get", "/v1/preflights/{preflight_id}"),
    ("get", "/livez"),
    ("get", "/readyz"),
    ("get", "/metrics"),
}

CALLS = {
    (method, path)
    for path, operations in openapi_document()["paths"].items()
    for method in operations
}

BODIES: dict[tuple[str, str], object] = {
    ("put", "/v1/jobs/{job_id}"): {"spec": SPEC, "project": "ads"},
    ("post", "/v1/jobs:validate"): {"spec": SPEC, "project": "ads"},
    ("patch", "/v1/jobs/{job_id}"): {"tags": {"seen": "yes"}},
    ("post", "/v1/jobs/{job_id}/cancel"): {},
    ("post", "/v1/jobs/{job_id}/resume"): {"resumes": 0},
    ("post", "/v1/tokens"): {"label": "x", "scopes": ["admin"]},
}
NEW = ("put", "/v1/jobs/{job_id}")
ENDED = {
    ("delete", "/v1/jobs/{job_id}"),
    ("post", "/v1/jobs/{job_id}/resume"),
    ("get", "/v1/jobs/{job_id}/events"),  # its stream ends
}


def ask(
    world: World,
    user: str,
    call: tuple[str, str],
    token: str | None = None,
    job: dict[str, Any] | None = None,
):
    """Alice's job, token and project, asked for by somebody; without a job, a new one."""
    method, path = call
    job = job or world.submit("alice")
    known = world.store.job(job["id"])
    if call in ENDED and known is not None and known.phase is not Phase.FINAL:
        world.end(job["id"], "failed")  # what has succeeded is resumed only to train longer
    if path.endswith(("/metrics", "/artifacts", "/artifacts/{path}")):
        paths = RunPaths(Path(job["run_dir"]))
        paths.log(0, 1).parent.mkdir(parents=True, exist_ok=True)
        paths.log(0, 1).write_text(SECRET)
        write_records(paths, [])
    token_id = world.token("alice").split("_")[1]
    address = path.format(
        job_id=world.new_id() if call == NEW else job["id"],
        path="logs/attempt-1/rank-0.log",
        token_id=token_id,
        project="ads",
    )
    headers = {"Authorization": f"Bearer {token or world.tokens[user]}"}
    body = {"id": world.new_id()} if path.endswith("/clone") else BODIES.get(call)
    return world.client.request(method.upper(), address, json=body, headers=headers)


def test_every_call_has_a_rule():
    assert TABLE.keys() | OTHERS >= CALLS, "add the new calls to TABLE"


def _case(call: tuple[str, str]):
    waits = call[1].endswith("/events")  # a second or two for each role
    return pytest.param(call, id=" ".join(call), marks=[pytest.mark.slow] if waits else [])


@pytest.mark.parametrize("call", [_case(call) for call in sorted(CALLS & TABLE.keys())])
def test_each_role_gets_what_the_table_says(world: World, call: tuple[str, str]):
    may, sees, scope = TABLE[call]
    job = world.submit("alice") if call[0] == "get" else None  # who reads changes nothing
    for user in USERS:
        answer = ask(world, user, call, job=job)
        status = answer.status_code
        if user in may:
            assert status < 300, (user, status)
        else:
            assert status == (403 if user in sees else 404), (user, status)
            assert SECRET not in answer.text
    assert world.client.request(call[0].upper(), call[1].format_map(_Any())).status_code in (
        *(401, 400),  # a missing body is found first
    )
    others = frozenset(Scope) - {scope}
    admin = world.token("admin", *others)
    assert ask(world, "admin", call, admin, job).status_code == 403
    only = world.token("admin", scope)
    assert ask(world, "admin", call, only, job).status_code != 403


class _Any(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return "x"


def test_lists_show_what_the_caller_may_see(world: World):
    mine, theirs = world.submit("alice")["id"], world.submit("bob")["id"]
    seen = {
        user: {job["id"] for job in world.ask(user, "GET", "/v1/jobs?limit=200").json()["jobs"]}
        for user in USERS
    }
    assert seen["alice"] >= {mine}
    assert theirs not in seen["alice"]
    assert all({mine, theirs} <= seen[user] for user in ("admin", "operator", "viewer"))
    assert not seen["stranger"]
    owner = world.ask("alice", "GET", "/v1/jobs?owner=bob&project=ads").json()["jobs"]
    assert owner == []
