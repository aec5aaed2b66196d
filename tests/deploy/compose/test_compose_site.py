"""compose.yaml's commands and configuration as processes of this machine, on free ports."""

import json
import os
import re
import secrets
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import real_postgres
import waiting

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[3]
BIN = Path(sys.executable).parent


def until(condition, process, log):
    """What a condition gives, once it is true; the process must live."""

    def found():
        assert process.poll() is None, log.read_text()
        return condition()

    return waiting.until(found, f"see {log}")


@contextmanager
def running(words, log, **environment):
    """A process, ended by SIGTERM as a container is."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            words, stdout=out, stderr=out, env={**os.environ, **environment}, cwd=log.parent
        )
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        process.wait(waiting.DEADLINE_S)
    finally:
        process.kill()
        process.wait()


def placed(words, changes):
    """A command with other ports, addresses and folders; each must be there."""
    assert changes.keys() <= set(words)
    return [changes.get(word, word) for word in words]


def healthy(url):
    command = [sys.executable, "-I", ROOT / "deploy" / "images" / "healthy"]
    return subprocess.run(command, env={"HEALTH_URL": url}, capture_output=True).returncode == 0


def private(path, text):
    path.write_text(text)
    path.chmod(0o400)
    return path


@pytest.fixture
def cluster(compose, tmp_path):
    """Scheduler and one worker; the address of the scheduler's HTTP, and its token's file."""
    token = private(tmp_path / "scheduler-token", secrets.token_hex(32))
    services = compose["services"]
    told = tmp_path / "scheduler.json"
    words = placed(services["scheduler"]["command"], {"8786": "0", ":8787": "127.0.0.1:0"})
    command = [BIN / "dask", *words, "--host", "127.0.0.1", "--scheduler-file", told]
    log = tmp_path / "scheduler.log"
    with running(command, log, DISTRAIN_DASHBOARD_TOKEN_FILE=str(token)) as scheduler:
        until(lambda: told.is_file() and told.read_text().endswith("}"), scheduler, log)
        about = json.loads(told.read_text())
        url = f"http://127.0.0.1:{about['services']['dashboard']}"
        until(lambda: healthy(f"{url}/health"), scheduler, log)
        changes = {
            "tcp://scheduler:8786": about["address"],
            "9000": "0",
            "9001": "0",
            ":9002": "127.0.0.1:0",
            "/tmp": str(tmp_path),
        }
        words = placed(services["worker"]["command"], changes)
        log = tmp_path / "worker.log"
        with running([BIN / "dask", *words], log) as worker:
            at = r"dashboard at:\s+(127\.0\.0\.1:\d+)"
            found = until(lambda: re.search(at, log.read_text()), worker, log)
            until(lambda: healthy(f"http://{found[1]}/health"), worker, log)
            yield url, token
        assert worker.returncode == 0, log.read_text()


def test_the_service_is_content_with_what_compose_starts(compose, cluster, tmp_path):
    if reason := real_postgres.why_absent():
        pytest.skip(reason)
    url, token = cluster
    with real_postgres.Postgres() as postgres:
        database = urlsplit(postgres.new_database())
        pgpass = private(tmp_path / "pgpass", f"*:*:*:distrain:{database.password}\n")
        data, runs = tmp_path / "data", tmp_path / "runs"
        data.mkdir(mode=0o700)
        runs.mkdir()
        text = (ROOT / "deploy" / "compose" / "serve.yaml").read_text()
        for old, new in {
            "@database/distrain": f"@127.0.0.1:{database.port}{database.path}",
            "http://scheduler:8787": url,
            "/run/secrets/scheduler-token": str(token),
            "/var/lib/distrain": str(data),
            "/srv/distrain/runs": str(runs),
        }.items():
            assert old in text
            text = text.replace(old, new)
        (tmp_path / "serve.yaml").write_text(text)

        def distrain(name, **environment):
            words = compose["services"][name]["command"][:-2] if name == "migrate" else ["serve"]
            words = [*words, *(["check"] if name == "check" else [])]
            command = [BIN / "distrain", *words, "--config", str(tmp_path / "serve.yaml")]
            given = {**os.environ, "PGPASSFILE": str(pgpass), **environment}
            return subprocess.run(command, capture_output=True, text=True, env=given)

        migrated = distrain("migrate")
        assert migrated.returncode == 0, migrated.stderr
        checked = distrain("check")
        assert checked.returncode == 0, checked.stdout + checked.stderr
        assert not re.search(r"^(fail|away)", checked.stdout, re.MULTILINE), checked.stdout
        assert re.search(r"^ok\s+clusters\.main  ", checked.stdout, re.MULTILINE), checked.stdout

        other = private(tmp_path / "other", "*:*:*:distrain:another\n")
        refused = distrain("check", PGPASSFILE=str(other))
        assert refused.returncode != 0
