"""The commands against a service, here a small one with a dictionary of jobs."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from dask_world import wait_for
from scripted_service import Reply, ScriptedService, Seen, problem

from distrain.cli.jobs.server import default_server
from distrain.cli.main import cli
from distrain.cli.runs.logs import lines_of
from distrain.client import servers_file
from distrain.errors import DistrainError, JobCancelled, JobError

TOKEN = "dtr_0123456789_verysecretverysecret_abcdef"
ROOT = Path(__file__).resolve().parents[2]
SPEC = {
    "name": "dlrm",
    "data": {"train": ["/data/train"], "valid": []},
    "queue": {"priority": 2},
    "model": {"kind": "mlp"},
}


class Jobs:
    """What a service does with jobs, as far as the commands see it."""

    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        self.keys: dict[str, str] = {}
        self.log = b"line 1\nline 2\n"
        self.before: Callable[[Seen], Reply | None] = lambda seen: None
        """May answer in its place."""
        self.next_states: list[str] = []

    def answer(self, seen: Seen) -> Reply:
        if (reply := self.before(seen)) is not None:
            return reply
        if seen.headers.get("authorization") != f"Bearer {TOKEN}":
            return problem(401, "unauthenticated", detail="the token is not known")
        if seen.path == "/v1/me":
            roles = {"ads": "submitter"}
            return Reply(200, {"user": "alice", "scopes": ["read", "submit"], "roles": roles})
        if seen.path == "/v1/jobs":
            return self._submit(seen) if seen.method == "POST" else self._list(seen)
        job_id, _, what = seen.path.removeprefix("/v1/jobs/").partition("/")
        if job_id not in self.jobs:
            return problem(404, "not_found", detail=f"no job {job_id!r}")
        return self._of_job(seen, self.jobs[job_id], what)

    def add(self, **more: Any) -> dict[str, Any]:
        job_id = f"dlrm-{len(self.jobs) + 1}"
        self.jobs[job_id] = {
            "id": job_id,
            "name": "dlrm",
            "project": "default",
            "owner": "alice",
            "state": "queued",
            "rev": 1,
            "num_ranks": 2,
            "attempt": 1,
            "priority": 0,
            "cluster": "gpu-a",
            "created_at": "2026-03-01T12:00:00Z",
            "tags": {},
            **more,
        }
        return self.jobs[job_id]

    def _submit(self, seen: Seen) -> Reply:
        key = seen.headers["idempotency-key"]
        if key in self.keys:
            return Reply(200, self.jobs[self.keys[key]])
        job = self.add(spec=seen.body["spec"], tags=seen.body.get("tags", {}))
        self.keys[key] = job["id"]
        return Reply(201, job)

    def _list(self, seen: Seen) -> Reply:
        wanted = seen.params.get("state")
        found = [job for job in self.jobs.values() if wanted in (None, job["state"])]
        return Reply(200, {"jobs": found[::-1], "next_cursor": None})

    def _of_job(self, seen: Seen, job: dict[str, Any], what: str) -> Reply:
        if seen.method == "PATCH" or what in ("cancel", "resume", "clone"):
            return self._change(seen, job, what)
        if self.next_states and what in ("wait", "events"):
            job["state"], job["rev"] = self.next_states.pop(0), job["rev"] + 1
        if what == "events":
            told = {**job, "step": 5, "num_steps": 10, "loss": 0.5}
            frames = f"id: {job['rev']}\nevent: job.state\ndata: {json.dumps(told)}\n\n"
            if job["state"] in ("succeeded", "failed"):
                frames += "event: end\ndata: {}\n\n"
            return Reply(200, frames.encode(), {"Content-Type": "text/event-stream"})
        if what == "logs":
            log = self.log if int(seen.params["rank"]) == 0 else b"of rank 1\n"
            content = log[int(seen.params.get("offset", 0)) :]
            return Reply(200, content, {"X-Next-Offset": str(len(log)), "X-Complete": "true"})
        return Reply(200, job)

    def _change(self, seen: Seen, job: dict[str, Any], what: str) -> Reply:
        if what == "clone":
            return Reply(201, self.add(parent=job["id"], overrides=seen.body["set"]))
        if what == "resume":
            job["state"] = "queued"
        elif what == "cancel":
            job["state"] = "cancelling"
            self.next_states = ["cancelled"]
        else:
            job |= seen.body
        job["rev"] += 1
        return Reply(200 if seen.method == "PATCH" else 202, job)


@pytest.fixture
def told() -> Jobs:
    return Jobs()


@pytest.fixture
def service(told: Jobs) -> Iterator[ScriptedService]:
    with ScriptedService(told.answer) as service:
        yield service


@pytest.fixture(autouse=True)
def _logged_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, service: ScriptedService) -> None:
    for name in ("DISTRAIN_TOKEN", "DISTRAIN_CA_FILE", "DISTRAIN_SCHEDULER", "DISTRAIN_SERVER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("distrain.client.job_calls._LEAST_S", 0.001)
    done = CliRunner().invoke(cli, ["login", service.address], input=TOKEN + "\n")
    assert done.exit_code == 0, done.output


@pytest.fixture
def spec_file(tmp_path: Path) -> Path:
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(SPEC))
    return tmp_path / "job.yaml"


def run(*words: object, environment: dict[str, str] | None = None, **more: Any) -> Result:
    return CliRunner().invoke(cli, [str(word) for word in words], env=environment, **more)


def good(*words: object) -> Result:
    done = run(*words)
    assert done.exit_code == 0, (done.output, done.exception)
    return done


def document(*words: object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(good(*words, "--json").stdout)
    assert found["version"] == 1
    return found


def notes(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "state" / "distrain" / "submissions").glob("*"))


def test_login_checks_the_token_and_keeps_it_out_of_sight(service: ScriptedService) -> None:
    assert default_server() == service.address
    assert TOKEN in servers_file().read_text()
    done = run("login", service.address, "--json", input=TOKEN + "\n")
    told = json.loads(done.stdout)
    assert (told["user"], told["roles"]) == ("alice", {"ads": "submitter"})
    assert TOKEN not in done.output
    assert "submitter in ads" in run("login", service.address, input=TOKEN + "\n").output

    before = servers_file().read_text()
    refused = run("login", service.address, input="dtr_wrong\n")
    assert isinstance(refused.exception, DistrainError)
    assert refused.exception.exit_code == 77
    assert "dtr_wrong" not in str(refused.exception)
    assert servers_file().read_text() == before
    for words, text in (
        (["http://10.0.0.5:8686"], "not sent over plain http"),
        (["tcp://10.0.0.5:8786"], "is not the address of a service"),
        ([service.address], "no token on standard input"),
    ):
        error = run("login", *words, input="").exception
        assert isinstance(error, DistrainError)
        assert text in str(error)


def test_the_command_line_decides_where_a_job_is(
    service: ScriptedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = run("jobs", "--scheduler", "tcp://127.0.0.1:1", "--server", service.address)
    assert both.exit_code == 2
    assert "Give either --scheduler or --server" in both.output
    monkeypatch.setenv("DISTRAIN_SCHEDULER", "tcp://127.0.0.1:1")
    good("jobs", "--server", service.address)  # the command line goes first
    from distrain.cli.jobs import at_scheduler

    asked: list[str] = []

    def connected(scheduler: str) -> Any:
        asked.append(scheduler)
        raise JobError("a scheduler was asked")

    monkeypatch.setattr(at_scheduler, "connect", connected)
    run("jobs")  # the environment's scheduler goes before the default login
    assert asked == ["tcp://127.0.0.1:1"]
    good("jobs", "--scheduler", "")
    servers_file().unlink()
    nowhere = run("jobs", "--scheduler", "")
    assert nowhere.exit_code == 2
    assert "Name a scheduler" in nowhere.output
    assert "distrain login ADDRESS" in nowhere.output


def test_submit_list_look_and_change(told: Jobs, spec_file: Path, tmp_path: Path) -> None:
    assert good("jobs").stdout == "no jobs\n"
    made = document("submit", spec_file, "--set", "train.epochs=3", "--tag", "team=ads")
    assert made["job_id"] == made["job"]["id"] == "dlrm-1"
    sent = told.jobs["dlrm-1"]["spec"]
    assert sent == {**SPEC, "train": {"epochs": 3}}  # no default of this version
    assert told.jobs["dlrm-1"]["tags"] == {"team": "ads"}
    assert notes(tmp_path) == []

    told.jobs["dlrm-1"] |= {"state": "hibernating", "colour": "blue", "why_pending": "it snows"}
    told.add(state="running", loss=0.3, auc=0.9, valid_loss=0.7, valid_auc=0.61)
    table = good("jobs").stdout
    assert "0.6100/0.9000" in table
    status = good("status", "dlrm-2").stdout
    assert "validation     loss 0.70000, AUC 0.61000\n" in status
    assert "training       loss 0.30000, AUC 0.90000\n" in status
    assert re.search(r"dlrm-1 +dlrm +hibernating +2 .*it snows", table)
    listed = document("jobs", "--state", "running")
    assert [job["job_id"] for job in listed["jobs"]] == ["dlrm-2"]
    assert good("jobs", "--state", "frozen").stdout == "no such jobs\n"
    assert "state          hibernating: it snows\n" in good("status", "dlrm-1").stdout
    assert document("status", "dlrm-1")["job"]["colour"] == "blue"

    assert document("priority", "dlrm-2", "7")["job"]["priority"] == 7
    assert good("priority", "dlrm-2", "-5").stdout == "job dlrm-2: priority -5\n"
    assert document("clone", "dlrm-2", "--set", "train.epochs=2")["job"]["overrides"] == {
        "train.epochs": 2
    }
    told.jobs["dlrm-1"]["state"] = "failed"
    assert "dlrm-1 is to be resumed" in good("resume", "dlrm-1").stdout
    assert document("resume", "dlrm-1")["job"]["state"] == "queued"


def test_words_that_name_no_job_or_several(told: Jobs) -> None:
    told.add()
    told.add()
    nobody = run("status", "mlp").exception
    assert isinstance(nobody, DistrainError)
    assert nobody.exit_code == 102
    several = run("wait", "dlrm").exception
    assert isinstance(several, DistrainError)
    assert "beginning of several" in str(several)


@pytest.mark.parametrize(
    ("end", "code", "kind"),
    [
        ("succeeded", 0, None),
        ("failed", 100, JobError),
        ("cancelled", 103, JobCancelled),
        ("expired", 100, JobError),
    ],
)
def test_wait_ends_as_the_job_does(
    told: Jobs, end: str, code: int, kind: type[JobError] | None
) -> None:
    job = told.add(state="running", finished_at="2026-03-01T13:00:00Z", message="rank 1 died")
    told.next_states = ["running", "hibernating" if end != "expired" else "running", end]
    job["finished_at"] = None if end != "expired" else job["finished_at"]
    done = run("wait", "dlrm-1", "--json")
    assert json.loads(done.stdout)["job"]["state"] == end
    if kind is None:
        assert done.exit_code == 0
    else:
        assert type(done.exception) is kind
        assert (kind.exit_code, "rank 1 died" in str(done.exception)) == (code, True)
        assert "distrain logs dlrm-1" in str(done.exception)


def test_wait_has_its_own_codes_for_waiting_in_vain_and_for_no_job(told: Jobs) -> None:
    told.add(state="running")
    codes = []
    for words in (["dlrm-1", "--timeout", "0.01"], ["nothing"]):
        error = run("wait", *words).exception
        assert isinstance(error, DistrainError)
        codes.append(error.exit_code)
    assert codes == [104, 102]


def test_submit_follows_to_the_end(told: Jobs, spec_file: Path) -> None:
    told.next_states = ["running", "succeeded"]
    done = good("submit", spec_file, "--follow")
    assert done.stdout.splitlines() == [
        "job dlrm-1 is submitted",
        "running",
        "  step 5/10, training loss 0.50000",
        "succeeded",
        "job dlrm-1: succeeded",
    ]
    told.next_states = ["failed"]
    assert isinstance(run("submit", spec_file, "--wait").exception, JobError)
    told.add(state="running")
    told.next_states = ["running", "succeeded"]
    assert document("attach", "dlrm-3")["job"]["state"] == "succeeded"


def test_cancel_and_wait(told: Jobs) -> None:
    told.add(state="running")
    assert document("cancel", "dlrm-1") | {"job": None} == {
        "version": 1,
        "job_id": "dlrm-1",
        "asked": True,
        "state": "cancelling",
        "job": None,
    }
    assert isinstance(run("cancel", "dlrm-1", "--wait").exception, JobCancelled)
    assert good("cancel", "dlrm-1").stdout == "job dlrm-1 has ended already: cancelled\n"


def test_logs_of_a_job_and_of_a_run_directory(told: Jobs, tmp_path: Path) -> None:
    told.add(state="succeeded")
    assert good("logs", "dlrm", "-f").stdout == "line 1\nline 2\n"
    assert good("logs", "dlrm-1", "--rank", "1").stdout == "of rank 1\n"
    assert good("logs", "dlrm-1").stdout == (
        "==> attempt 1, rank 0 <==\nline 1\nline 2\n==> attempt 1, rank 1 <==\nof rank 1\n"
    )
    lines = good("logs", "dlrm-1", "--json").stdout.splitlines()
    assert [json.loads(line)["text"] for line in lines] == ["line 1\nline 2\n", "of rank 1\n"]
    (one, _) = good("logs", "dlrm-1", "-f", "--json").stdout.splitlines()
    assert json.loads(one) == {"version": 1, "job_id": "dlrm-1", "rank": 0, "text": "line 1"}
    told.log = b"beep \x07\n"
    assert good("logs", "dlrm-1", "--rank", "0").stdout == "beep ?\n"

    asked = run("logs", tmp_path, "-f")
    assert asked.exit_code == 2
    assert "are for a job of a service" in asked.output
    both = run("logs", "dlrm-1", "--first-error", "-f")
    assert both.exit_code == 2
    assert "without --follow" in both.output


def test_lines_come_out_of_any_pieces() -> None:
    text = "grüße\n\nzwei ☃\nrest"
    whole = text.encode()
    for size in (1, 2, 3, 7, 100):
        pieces = [whole[n : n + size] for n in range(0, len(whole), size)]
        assert list(lines_of(pieces)) == text.split("\n")


def test_open_prints_the_page(told: Jobs, service: ScriptedService) -> None:
    told.add()
    assert good("open", "dlrm", "--no-browser").stdout == f"{service.address}/jobs/dlrm-1\n"
    assert document("open")["url"] == f"{service.address}/jobs"


def test_the_list_of_jobs_is_opened_where_no_token_may_be_sent() -> None:
    elsewhere = {"DISTRAIN_SERVER": "http://jobs.example", "DISTRAIN_TOKEN": "dst_secret"}
    opened = run("open", "--no-browser", environment=elsewhere)
    assert (opened.exit_code, opened.stdout) == (0, "http://jobs.example/jobs\n")


def test_options_of_the_other_kind_of_place_are_refused(spec_file: Path) -> None:
    at = ["--scheduler", "tcp://127.0.0.1:1"]
    for words in (
        ["submit", spec_file, "--run-dir", "runs/a"],
        ["submit", spec_file, "--project", "ads", *at],
        ["jobs", "--owner", "alice", *at],
        ["jobs", "--state", "frozen", *at],
        ["attach", "dlrm", "--run-dir", "runs/a"],
        ["priority", "dlrm", "3", *at],
        ["submit", spec_file, "--tag", "team"],
        ["resume", "dlrm", "--set", "train.epochs"],
    ):
        assert run(*words).exit_code == 2, words


# Submissions that nobody answered


def test_an_unanswered_submission_is_found_by_the_same_command(
    told: Jobs, spec_file: Path, tmp_path: Path
) -> None:
    def lose(seen: Seen) -> Reply | None:
        if seen.method == "POST":
            told.before = lambda seen: None
            told.answer(seen)  # the job is made, and nobody hears of it
            return Reply(drop=True)
        return None

    told.before = lose
    lost = run("submit", spec_file, "--no-retry")
    assert isinstance(lost.exception, DistrainError)
    assert lost.exception.exit_code == 69
    assert "submits nothing twice" in str(lost.exception)
    (note,) = notes(tmp_path)
    assert note.stat().st_mode & 0o777 == 0o600
    assert TOKEN not in note.read_text()

    other = good("submit", spec_file, "--set", "name=other")  # another submission
    assert "is submitted" in other.stdout
    again = good("submit", spec_file)
    assert "the same submission was left unanswered" in again.stdout
    assert "job dlrm-1 was submitted already" in again.stdout
    assert notes(tmp_path) == []
    assert "job dlrm-3 is submitted" in good("submit", spec_file).stdout


def test_a_refused_submission_leaves_no_note(told: Jobs, spec_file: Path, tmp_path: Path) -> None:
    told.before = lambda seen: problem(422, "bad_spec", detail="no such file")
    assert isinstance(run("submit", spec_file).exception, DistrainError)
    assert notes(tmp_path) == []


def killed_at_its_request(
    told: Jobs, spec_file: Path, number: signal.Signals, *, makes: bool
) -> subprocess.CompletedProcess[str]:
    """`submit` in a process of its own, which a signal ends while its request is under way."""
    asked, go_on = threading.Event(), threading.Event()

    def hold(seen: Seen) -> Reply | None:
        if seen.method != "POST":
            return None
        if makes:
            told.before = lambda seen: None
            told.answer(seen)
        asked.set()
        go_on.wait(60)
        return Reply(drop=True)

    told.before = hold
    command = subprocess.Popen(
        [sys.executable, "-m", "distrain", "submit", str(spec_file)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ},
    )
    try:
        wait_for(lambda: asked.is_set() or command.poll() is not None, "the request arrives")
        command.send_signal(number)
        stdout, stderr = command.communicate(timeout=60)
    finally:
        told.before = lambda seen: None
        go_on.set()
        if command.poll() is None:
            command.kill()
            command.wait()
    return subprocess.CompletedProcess([], command.returncode, stdout, stderr)


@pytest.mark.parametrize("makes", [True, False])
def test_kill_9_between_note_and_answer_makes_one_job(
    told: Jobs, spec_file: Path, tmp_path: Path, makes: bool
) -> None:
    ended = killed_at_its_request(told, spec_file, signal.SIGKILL, makes=makes)
    assert ended.returncode == -signal.SIGKILL
    assert len(notes(tmp_path)) == 1
    assert len(told.jobs) == (1 if makes else 0)
    good("submit", spec_file)
    assert len(told.jobs) == 1
    assert notes(tmp_path) == []


def test_ctrl_c_during_the_request_says_what_to_do(
    told: Jobs, spec_file: Path, tmp_path: Path
) -> None:
    ended = killed_at_its_request(told, spec_file, signal.SIGINT, makes=True)
    assert ended.returncode == 130
    assert "the same command finds it, and submits nothing twice" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert "submitted already" in good("submit", spec_file).stdout


def test_again_submits_another_job(told: Jobs, spec_file: Path, tmp_path: Path) -> None:
    killed_at_its_request(told, spec_file, signal.SIGKILL, makes=True)
    assert "job dlrm-2 is submitted" in good("submit", spec_file, "--again").stdout
    assert notes(tmp_path) == []


def test_help_loads_no_client() -> None:
    code = (
        "import sys\nfrom distrain.cli.main import main\n"
        "try:\n    main(['submit', '--help'])\nexcept SystemExit:\n    pass\n"
        "print(sorted({'httpx2', 'torch', 'dask'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
    assert io.StringIO(done.stderr).read() == ""
