"""A cluster on this machine: started once, found again, ended."""

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from distributed import Client, Security
from waiting import until

from distrain.errors import DistrainError
from distrain.service.clusters.choosing import make_launcher
from distrain.service.clusters.launcher import SchedulerAddress, child_environment
from distrain.service.settings import ClusterProfile, Settings
from distrain.workers.cluster_file import ProcessId, StartedCluster, read_started, write_started

PROFILE = {"kind": "local", "num_workers": 1, "device": "cpu"}


def launcher_in(folder, **profile):
    settings = Settings(data_dir=folder, clusters={"here": {**PROFILE, **profile}})
    return make_launcher("here", settings)


def processes_of(folder: Path) -> list[int]:
    """Processes of this machine that serve the folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().decode().split("\0")
            except OSError:
                continue
            if "distrain.workers.serve_local" in words and str(folder) in words:
                found.append(int(entry.name))
    return found


@pytest.mark.slow
def test_a_cluster_is_started_once_survives_its_starter_and_ends(tmp_path, monkeypatch):
    monkeypatch.setenv("DISTRAIN_SERVE_DATABASE_URL", "postgresql://u:secret@h/d")
    folder = tmp_path / "clusters" / "here"
    launchers = [launcher_in(tmp_path) for _ in range(4)]
    assert launchers[0].find() is None
    assert launchers[0].state().phase == "absent"
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda launcher: launcher.start(), launchers))
    found = until(launchers[0].find)
    # Its starter's memory is gone: a new one finds the same by the file.
    assert launcher_in(tmp_path).find() == found
    launcher_in(tmp_path).start()
    until(lambda: len(processes_of(folder)) == 1)
    [pid] = processes_of(folder)
    assert os.getsid(pid) == pid
    environment = Path(f"/proc/{pid}/environ").read_bytes()
    assert b"secret" not in environment
    assert found.token.encode() not in environment
    for name in ("state.json", "log"):
        assert (folder / name).stat().st_mode & 0o077 == 0

    request = urllib.request.Request(f"{found.url}/distrain/v1/jobs")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request)
    assert refused.value.code == 401
    refused.value.close()
    request.add_header("Authorization", f"Bearer {found.token}")
    with urllib.request.urlopen(request) as answer:
        assert json.load(answer)["jobs"] == []
    assert launchers[1].state().phase == "running"

    # Whoever lacks its certificate, another user of the machine say, is not let in by Dask's comm.
    scheduler = read_started(folder).scheduler
    assert scheduler.startswith("tls://")
    with pytest.raises(OSError, match="certificate"):
        Client(scheduler, security=Security.temporary(), timeout=2)

    launcher_in(tmp_path).stop()
    until(lambda: not processes_of(folder))
    assert [launcher.find() for launcher in launchers] == [None] * 4
    assert launchers[0].state().phase == "absent"


@pytest.mark.slow
def test_a_starter_that_is_killed_leaves_no_cluster_that_nobody_finds(tmp_path):
    program = (
        "import sys; sys.path.insert(0, sys.argv[2]); from test_local_launcher import launcher_in; "
        "from pathlib import Path; launcher_in(Path(sys.argv[1])).start(); "
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    )
    words = [sys.executable, "-c", program, str(tmp_path), str(Path(__file__).parent)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    for _ in range(2):
        assert subprocess.run(words, check=False, env=environment).returncode == -signal.SIGKILL
    launcher = launcher_in(tmp_path)
    until(launcher.find)
    assert len(processes_of(tmp_path / "clusters" / "here")) == 1
    process = read_started(tmp_path / "clusters" / "here").process
    os.killpg(process.pid, signal.SIGKILL)
    until(lambda: not process.is_running())
    assert launcher.find() is None  # a stale file
    assert launcher.state().phase == "absent"


def test_a_file_of_another_process_is_stale(tmp_path):
    folder = tmp_path / "clusters" / "here"
    me = ProcessId.of(os.getpid())
    launcher = launcher_in(tmp_path)
    write_started(folder, StartedCluster(me, "t", url="http://127.0.0.1:1"))
    assert launcher.find() == SchedulerAddress("http://127.0.0.1:1", "t")
    assert "'t'" not in repr(launcher.find())
    for other in (
        replace(me, started_ticks=me.started_ticks - 1),  # the number was used before
        replace(me, boot_id="an earlier boot"),
        replace(me, host="elsewhere"),
    ):
        write_started(folder, StartedCluster(other, "t", url="http://127.0.0.1:1"))
        assert launcher.find() is None
        launcher.stop()  # nothing is signalled
    for damaged in ("", "{", "[]", '{"process": {}}', json.dumps({"process": asdict(me)})):
        (folder / "state.json").write_text(damaged)
        assert read_started(folder) is None


def test_a_cluster_that_cannot_start_says_why(tmp_path):
    launcher = launcher_in(tmp_path, device="cuda", num_workers=64)
    launcher.start()
    until(lambda: launcher.state().phase == "failed")
    assert "64 workers" in launcher.state().detail
    assert launcher.find() is None


def test_an_address_takes_its_token_from_the_file_as_it_is(tmp_path):
    token = tmp_path / "token"
    token.write_text("first\n")
    profile = {"url": "http://h:1", "token_file": str(token)}
    launcher = make_launcher("a", Settings(clusters={"a": profile}))
    assert launcher.find() == SchedulerAddress("http://h:1", "first")
    token.write_text("second")
    assert launcher.find().token == "second"
    token.unlink()
    with pytest.raises(DistrainError):
        launcher.find()


def test_what_a_cluster_sees_of_the_environment():
    given = {
        "DISTRAIN_SERVE_DATABASE_URL": "x",
        "PGPASSWORD": "x",
        "POSTGRES_PASSWORD": "x",
        "DATABASE_URL": "x",
        "DISTRAIN_DASHBOARD_TOKEN": "x",
        "AWS_PROFILE": "data",
    }
    profile = ClusterProfile(
        kind="local", model_packages=("ads", "news"), environment={"OMP_NUM_THREADS": "1"}
    )
    assert child_environment(given, profile) == {
        "AWS_PROFILE": "data",
        "DISTRAIN_MODEL_PACKAGES": "ads,news",
        "OMP_NUM_THREADS": "1",
    }
