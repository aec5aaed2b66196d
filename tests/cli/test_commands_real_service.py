"""Commands against the service's real API: what they print, and how they end."""

import json
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from cutting_proxy import cutting
from dask_world import wait_for
from live_service import LiveService, live_service

from distrain.cli.main import cli
from distrain.errors import DistrainError
from distrain.service.settings import ClusterProfile
from distrain.service.values import Quota, Role

SPEC: dict[str, Any] = {
    "name": "clicks",
    "data": {"train": ["/data/clicks/day_0"]},
    "model": {"kind": "mlp"},
}
DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    profile = ClusterProfile(url="http://127.0.0.1:1", allowed_roots=("/data",), max_priority=100)
    options = {"clusters": {"gpu": profile}}
    with live_service(tmp_path_factory.mktemp("service"), options) as service:
        service.store.put_project("default", Quota(max_queued_per_user=None, max_priority=10))
        yield service


@pytest.fixture(scope="module")
def token(service: LiveService) -> str:
    return service.token("alice", Role.SUBMITTER).label


@pytest.fixture(autouse=True)
def _logged_in(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, service: LiveService, token: str
) -> None:
    for name in ("DISTRAIN_CA_FILE", "DISTRAIN_SCHEDULER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
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


def refused(code: int, *words: object) -> str:
    error = run(*words).exception
    assert isinstance(error, DistrainError), error
    assert error.exit_code == code, error
    return str(error)


def test_a_job_from_its_submission_to_its_clone(service: LiveService, spec_file: Path) -> None:
    made = good("submit", spec_file, "--priority", "2", "--tag", "team=ads")
    job_id = made["job_id"]
    short = job_id[:-1]
    assert good("status", short)["job"]["state"] == "queued"
    assert [job["job_id"] for job in good("jobs", "--tag", "team=ads")["jobs"]] == [job_id]
    assert good("priority", job_id, 4)["job"]["priority"] == 4
    assert good("open", short)["url"] == f"{service.url}/jobs/{job_id}"
    assert "has not ended within" in refused(104, "wait", job_id, "--timeout", "0.01")
    assert good("cancel", job_id)["state"] == "cancelled"
    assert "cancelled" in refused(103, "wait", job_id)
    refused(103, "attach", job_id)
    assert run("logs", job_id, "-f").output == ""
    assert good("resume", job_id)["job"]["state"] == "queued"
    assert good("clone", job_id, "--set", "train.epochs=2")["job"]["parent"] == job_id
    job = service.store.job(job_id)
    assert job is not None
    service.end(job)
    assert run("attach", job_id).exit_code == run("wait", job_id).exit_code == 0


def test_what_is_refused_is_said_in_words_with_its_code(
    service: LiveService, spec_file: Path, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    job = service.job()
    assert "distrain jobs" in refused(102, "status", "nothing-of-that-name")
    service.job()
    assert "several" in refused(1, "status", "job-0")
    told = refused(1, "submit", spec_file, "--set", "data.train=[/elsewhere/day_0]")
    assert "/spec/data/train/0: the path is outside the folders" in told
    assert "the highest that you may ask for" in refused(77, "priority", job.id, 99)
    refused(101, "resume", good("submit", spec_file, "--again")["job_id"])
    monkeypatch.setenv("DISTRAIN_TOKEN", service.token("bob", Role.VIEWER).label)
    refused(77, "cancel", job.id)
    monkeypatch.setenv("DISTRAIN_TOKEN", service.token("mallory").label)
    refused(102, "status", job.id)
    monkeypatch.setenv("DISTRAIN_TOKEN", token[:-4] + "0000")
    assert "distrain login" in refused(77, "jobs")


def test_refusals_say_each_mistake_once_and_what_to_do(
    service: LiveService, spec_file: Path
) -> None:
    told = refused(1, "submit", spec_file, "--set", "data.train=[/elsewhere/day_0]")
    assert told.count("the path is outside the folders") == 1
    told = refused(1, "submit", spec_file, "--cluster", "moon")
    assert told.count("the project may use no cluster 'moon'") == 1
    told = refused(1, "jobs", "--state", "bogus")
    assert told.count("bogus") == 1
    assert "queued, handing_over, pending, starting, running" in told
    job = service.store.job(good("submit", spec_file)["job_id"])
    assert job is not None
    service.end(job)
    told = refused(1, "resume", job.id)
    assert "has succeeded" in told
    assert "set train.epochs or train.max_steps higher" in told


LOG = """2026-03-01 12:00:0{second},000 INFO distrain: step {second}
2026-03-01 12:00:0{second},500 ERROR distrain: the rank failed
Traceback (most recent call last):
ValueError: {why}
"""


def test_the_first_error_and_the_report_of_a_job(
    service: LiveService, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    job = service.job(num_ranks=2)
    nothing = refused(1, "logs", job.id, "--first-error")
    assert "no rank has printed anything" in nothing
    assert f"distrain status {job.id}" in nothing
    assert f"distrain open {job.id}" in refused(102, "report", job.id)

    paths = service.paths(job)
    for attempt, rank, second, why in ((1, 0, 3, "late"), (1, 1, 2, "bad label"), (2, 0, 1, "x")):
        paths.log(rank, attempt).parent.mkdir(parents=True, exist_ok=True)
        paths.log(rank, attempt).write_text(LOG.format(second=second, why=why))
    paths.report.write_text("<html>curves</html>")
    service.change(job, attempt=2, first_attempt=1)
    service.end(job, "failed")
    found = good("logs", job.id, "--first-error")["error"]
    assert (found["attempt"], found["rank"], found["line"]) == (1, 1, 2)
    assert found["path"] == "logs/attempt-1/rank-1.log"
    assert found["text"].endswith("ValueError: bad label")
    assert good("logs", job.id, "--first-error", "--attempt", "2")["error"]["rank"] == 0
    assert "no such log" in refused(1, "logs", job.id, "--first-error", "--rank", "7")
    printed = run("logs", job.id, "--first-error").output
    assert printed.startswith("==> attempt 1, rank 1: logs/attempt-1/rank-1.log, line 2 <==\n")

    assert run("report", job.id).output == f"{job.id}.html\n"
    assert Path(f"{job.id}.html").read_text() == "<html>curves</html>"
    assert good("report", job.id, "--out", "mine.html")["files"] == ["mine.html"]
    assert run("report", job.id, "--png").exit_code == 2


def test_a_service_that_does_not_answer_is_told_of_and_looks_end_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By one that refuses, and by one that takes connections and says nothing."""
    monkeypatch.setattr("distrain.cli.jobs.list.READ_S", 1.0)
    monkeypatch.setattr("distrain.client.transport.SLOW_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        for one, words in ((silent, "no answer yet to GET /v1/jobs"), (closed, "refused")):
            server = f"http://127.0.0.1:{one.getsockname()[1]}"
            done = run("jobs", "--server", server)
            assert isinstance(done.exception, DistrainError)
            assert done.exception.exit_code == 69
            assert f"waiting for {server}: " in done.stderr
            assert words in done.stderr
            assert "up to 1 s; Ctrl-C ends this, --no-retry tries once" in done.stderr
        once = run("jobs", "--server", server, "--no-retry")
        assert isinstance(once.exception, DistrainError)
        assert once.exception.where["tried"] == "once in 0 s"
        assert once.stderr == ""


def test_clones_and_resumptions_that_are_not_answered_are_made_once(
    service: LiveService, spec_file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Each command is killed when the service has the request and nobody has read its answer."""
    original = good("submit", spec_file)["job_id"]
    good("cancel", original)
    notes = tmp_path / "state" / "distrain" / "submissions"
    from distrain.client import Client

    for command in ("clone", "resume"):
        known = len(good("jobs", "--limit", 200)["jobs"])
        real = getattr(Client, command)

        def killed(self: Client, *values: Any, real: Any = real, **more: Any) -> None:
            real(self, *values, **more)
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(Client, command, killed)
            done = run(command, original)
        assert done.exit_code == 130
        assert "the same command finds it" in done.output
        assert len(list(notes.iterdir())) == 1
        again = good(command, original)["job"]
        assert not list(notes.iterdir())
        assert len(good("jobs", "--limit", 200)["jobs"]) == known + (command == "clone")
        assert again["resumes"] == (command == "resume")


def test_wait_ends_in_time_also_where_the_service_is_away(
    service: LiveService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distrain.client.job_calls._AWAY_S", 0.2)
    job = service.job()
    with cutting(service.url, 0, 1) as proxy:
        monkeypatch.setenv("DISTRAIN_SERVER", proxy.url)
        real = run("status", job.id)
        assert real.exit_code == 0
        proxy.cuts, proxy.most_bytes = 10**6, 1
        from distrain.client import Client, Retries, ServiceUnavailable

        with Client(retries=Retries()) as client, pytest.raises(ServiceUnavailable) as away:
            client.wait(job.id, 0.3)
    assert re.search(r"in [0-2] s", str(away.value))


def test_the_example_of_the_page_about_the_client(
    service: LiveService, capsys: pytest.CaptureFixture[str]
) -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```", (DOCS / "client.md").read_text(), re.M | re.S)
    known = {job.id for job in service.store.queue("gpu")}

    def cancelled() -> None:
        def new() -> list[Any]:
            return [job for job in service.store.queue("gpu") if job.id not in known]

        wait_for(new, "the example's job")
        service.store.cancel(new()[0].id, "", None, "alice")
        service.publish()

    other = threading.Thread(target=cancelled)
    other.start()
    exec(compile(example, "client.md", "exec"), {})
    other.join()
    first, *others = capsys.readouterr().out.splitlines()
    assert first == "cancelled"
    # The last loop names succeeded jobs with a tag; tests before this one may have made some.
    tagged = [service.store.job(job_id) for job_id in others]
    assert all(job and job.tags == {"team": "ads"} for job in tagged)
