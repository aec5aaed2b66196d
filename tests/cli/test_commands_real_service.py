"""Commands against the service's real API: what they print, and how they end."""

import json
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from kept_runs import new_run, records_of, spec_of, view_of
from live_service import LiveService, service as service, token as token
from scripted_service import Reply, ScriptedService, Seen
from waiting import until

from distrain.cli.jobs.service_connection import default_server
from distrain.cli.main import cli
from distrain.cli.runs.logs import lines_of
from distrain.client.credentials import servers_file
from distrain.errors import DistrainError
from distrain.jobs.states import JobState
from distrain.service.values import Role

SPEC: dict[str, Any] = {
    "name": "clicks",
    "data": {"train": ["/data/clicks/day_0"]},
    "model": {"kind": "mlp"},
}
DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(autouse=True)
def _logged_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, service: LiveService, token: str
) -> None:
    for name in ("DISTRAIN_CA_FILE", "DISTRAIN_SCHEDULER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("DISTRAIN_SERVER", service.url)
    monkeypatch.setenv("DISTRAIN_TOKEN", token)


@pytest.fixture
def spec_file(tmp_path: Path) -> Path:
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(SPEC))
    return tmp_path / "job.yaml"


def run(*words: object, **more: Any) -> Result:
    return CliRunner().invoke(cli, [str(word) for word in words], **more)


def good(*words: object) -> dict[str, Any]:
    done = run(*words, "--json")
    assert done.exit_code == 0, (done.output, done.exception)
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["version"] == 1
    return found


def refused(code: int, *words: object, **more: Any) -> DistrainError:
    error = run(*words, **more).exception
    assert isinstance(error, DistrainError), error
    assert error.exit_code == code, error
    return error


def test_a_job_from_its_submission_to_its_clone(service: LiveService, spec_file: Path) -> None:
    made = good("submit", spec_file, "--priority", "2", "--tag", "team=ads")
    job_id = made["job_id"]

    short = job_id[:-1]
    queued = good("status", short)["job"]
    assert (queued["state"], queued["priority"]) == ("queued", 2)
    assert [job["job_id"] for job in good("jobs", "--tag", "team=ads")["jobs"]] == [job_id]
    assert good("priority", job_id, 4)["job"]["priority"] == 4
    refused(104, "wait", job_id, "--timeout", "0.01")
    assert good("cancel", job_id)["state"] == "cancelled"
    refused(103, "wait", job_id)
    refused(103, "attach", job_id)
    assert run("logs", job_id, "-f").output == ""
    refused(1, "logs", job_id, "--rank", 9)
    refused(1, "logs", job_id, "--attempt", 9)
    assert good("resume", job_id)["job"]["state"] == "queued"
    assert good("clone", job_id, "--set", "train.epochs=2")["job"]["parent"] == job_id
    job = service.store.job(job_id)
    assert job is not None
    progress = {"loss": 0.3, "auc": 0.9, "valid_loss": 0.7, "valid_auc": 0.61}
    job = service.change(job, state="running", progress=progress)
    table, status = run("jobs").stdout, run("status", job_id).stdout
    assert "0.6100/0.9000" in table
    assert all(value in status for value in ("0.70000", "0.61000", "0.30000", "0.90000"))
    service.end(job)
    assert run("attach", job_id).exit_code == run("wait", job_id).exit_code == 0


@pytest.mark.parametrize(("end", "code"), [("failed", 100), ("cancelled", 103)])
def test_a_command_that_waits_ends_as_the_job_does(
    service: LiveService, end: str, code: int
) -> None:
    job = service.change(service.job(), state="running", message="rank 1 died")
    ended = threading.Thread(target=service.end, args=(job, end))
    ended.start()
    done = run("wait", job.id, "--json")
    ended.join()
    assert json.loads(done.stdout)["job"]["state"] == end
    assert isinstance(done.exception, DistrainError)
    assert done.exception.exit_code == code
    assert "rank 1 died" in str(done.exception)


REFUSED = {
    "no such job": (102, "status nothing-of-that-name"),
    "several jobs": (1, "status job-0"),
    "a path outside": (1, "submit {file} --set data.train=[/elsewhere/day_0]"),
    "no such cluster": (1, "submit {file} --cluster moon"),
    "no such state": (1, "jobs --state bogus"),
    "too high a priority": (77, "priority {job} 99"),
    "a job that has succeeded": (1, "resume {ended}"),
    "a job that waits": (101, "resume {waits}"),
}


def test_refusals_have_their_codes_and_say_each_mistake_once(
    service: LiveService, spec_file: Path, monkeypatch: pytest.MonkeyPatch, token: str, wording: Any
) -> None:
    job = service.job()
    service.job()
    ended, waits = (good("submit", spec_file)["job_id"] for _ in range(2))
    done = service.store.job(ended)
    assert done is not None
    service.end(done)
    names = {"file": spec_file, "job": job.id, "ended": ended, "waits": waits}
    for why, (code, words) in REFUSED.items():
        more = ["--id", "of-the-test"] if words.startswith("submit") else []
        error = refused(code, *words.format(**names).split(), *more)
        if not why.startswith(("several", "no such state")):  # which have lists of names
            wording(f"{why}: {error}", url=service.url, job=job.id, ended=ended, waits=waits)
    monkeypatch.setenv("DISTRAIN_TOKEN", service.token("bob", Role.VIEWER).label)
    refused(77, "cancel", job.id)
    monkeypatch.setenv("DISTRAIN_TOKEN", service.token("mallory").label)
    refused(102, "status", job.id)
    monkeypatch.setenv("DISTRAIN_TOKEN", token[:-4] + "0000")
    refused(77, "jobs")


def test_a_service_that_does_not_answer_has_its_own_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distrain.cli.jobs.choose_server.READ_S", 0.0)
    monkeypatch.setattr("distrain.cli.jobs.list.READ_S", 0.0)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        server = f"http://127.0.0.1:{closed.getsockname()[1]}"
        once = refused(69, "jobs", "--server", server)
    assert once.where["tried"] == "once in 0 s"


def test_login_checks_the_token_and_keeps_it_out_of_sight(
    service: LiveService, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DISTRAIN_SERVER", "DISTRAIN_TOKEN"):
        monkeypatch.delenv(name)
    done = run("login", service.url, "--json", input=token + "\n")
    assert json.loads(done.stdout)["user"] == "alice"
    assert token not in done.output
    before = servers_file().read_text()
    assert (default_server(), token in before) == (service.url, True)
    wrong = refused(77, "login", service.url, input="dtr_wrong\n")
    assert "dtr_wrong" not in str(wrong)
    assert "token create" in (wrong.hint or "")
    assert "Authorization" not in (wrong.hint or ""), "a header is not what to try next"
    for place in ("http://10.0.0.5:8686", "tcp://10.0.0.5:8786", service.url):
        assert isinstance(run("login", place, input="").exception, DistrainError), place
    assert servers_file().read_text() == before


def test_the_command_line_decides_where_a_job_is(
    service: LiveService, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = ("--scheduler", "tcp://127.0.0.1:1")
    assert run("jobs", *here, "--server", service.url).exit_code == 2
    monkeypatch.setenv("DISTRAIN_SCHEDULER", here[1])
    good("jobs", "--server", service.url)  # the command line has precedence
    monkeypatch.delenv("DISTRAIN_SERVER")
    asked: list[str] = []
    monkeypatch.setattr("distrain.cli.jobs.at_scheduler.connect", asked.append)
    run("jobs")
    assert asked == [here[1]]
    assert run("jobs", "--scheduler", "").exit_code == 2, "no place is named"


def test_options_of_the_other_kind_of_place_are_refused(spec_file: Path) -> None:
    at = ["--scheduler", "tcp://127.0.0.1:1"]
    for words in (
        ["submit", spec_file, "--run-dir", "runs/a"],
        ["submit", spec_file, "--project", "ads", *at],
        ["jobs", "--owner", "alice", *at],
        ["jobs", "--state", "frozen", *at],
        ["attach", "dlrm", "--run-dir", "runs/a"],
        ["submit", spec_file, "--tag", "team"],
        ["resume", "dlrm", "--set", "train.epochs"],
        ["logs", spec_file.parent, "-f"],
    ):
        assert run(*words).exit_code == 2, words


def test_lines_come_out_of_any_pieces() -> None:
    text = "grüße\n\nzwei ☃\nrest"
    whole = text.encode()
    for size in (1, 2, 3, 7, 100):
        pieces = [whole[n : n + size] for n in range(0, len(whole), size)]
        assert list(lines_of(pieces)) == text.split("\n")


@pytest.mark.slow
def test_the_logs_and_the_report_of_a_job(
    service: LiveService, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    job = service.job(num_ranks=2)
    assert f"distrain status {job.id}" in str(refused(1, "logs", job.id))
    assert f"distrain status {job.id}" in str(refused(1, "report", job.id))

    paths = service.paths(job)
    paths.log(1, 1).parent.mkdir(parents=True, exist_ok=True)
    paths.log(1, 1).write_text("of the first attempt\n")
    paths.log(0, 2).parent.mkdir()
    with new_run(paths.root, spec_of(), job.id) as kept:
        kept.add(view_of(JobState.RUNNING, records_of(40)))
    service.change(job, attempt=2, first_attempt=1)
    service.end(job, "failed")
    refused(1, "logs", job.id, "--rank", "7")
    paths.log(0, 2).write_bytes(b"beep \x07\n")
    paths.log(1, 2).write_bytes(b"of rank 1\n")
    assert run("logs", job.id, "--rank", "0").stdout == "beep ?\n"
    assert run("logs", job.id, "--attempt", "1").stdout == "of the first attempt\n"
    lines = run("logs", job.id, "--json").stdout.splitlines()
    assert [json.loads(line)["text"] for line in lines] == ["beep \x07\n", "of rank 1\n"]

    assert run("report", job.id).output == f"{job.id}.html\n"
    assert f"{job.id}, " in Path(f"{job.id}.html").read_text()
    assert good("report", job.id, "--out", "mine.html")["files"] == ["mine.html"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_command_that_is_not_answered_can_be_repeated_with_the_id(
    number: signal.Signals, spec_file: Path
) -> None:
    asked, go_on = threading.Event(), threading.Event()
    paths: list[str] = []

    def answer(seen: Seen) -> Reply:
        paths.append(seen.path)
        asked.set()
        go_on.wait()
        job = {"id": "a-1", "name": "a", "state": "queued", "rev": 1}
        return Reply(201, job)

    with ScriptedService(answer) as scripted:
        words = ["submit", str(spec_file), "--server", scripted.address]
        program = [sys.executable, "-m", "distrain"]
        command = subprocess.Popen([*program, *words], stdout=subprocess.PIPE, text=True)
        try:
            until(lambda: asked.is_set() or command.poll() is not None, "the request arrives")
            command.send_signal(number)
            printed, _ = command.communicate()
        finally:
            go_on.set()
            command.kill()
        assert command.returncode == (130 if number == signal.SIGINT else -signal.SIGKILL)
        job_id = paths[0].rpartition("/")[2]
        assert job_id in printed
        good(*words, "--id", job_id)
    assert paths == [f"/v1/jobs/{job_id}"] * 2


def test_the_example_of_the_page_about_the_client(
    service: LiveService, capsys: pytest.CaptureFixture[str]
) -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```", (DOCS / "jobs.md").read_text(), re.M | re.S)
    known = {job.id for job in service.store.alive("gpu")}

    def cancelled() -> None:
        def new() -> list[Any]:
            return [job for job in service.store.alive("gpu") if job.id not in known]

        until(new, "the example's job")
        service.store.cancel(new()[0].id, "", None, "alice")
        service.publish()

    other = threading.Thread(target=cancelled)
    other.start()
    exec(compile(example, "jobs.md", "exec"), {})
    other.join()
    first, *others = capsys.readouterr().out.splitlines()
    assert first == "cancelled"
    # The last loop names succeeded jobs with a tag; tests before this one may have made some.
    tagged = [service.store.job(job_id) for job_id in others]
    assert all(job and job.tags == {"team": "ads"} for job in tagged)
