"""One machine as the units run it: each `ExecStart`, with its environment, credentials and folders.

Only systemd itself is missing: its users, its limits, and who starts what again.
"""

import shutil
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import psutil
import pytest
import small_jobs
import yaml
from unit_files import DEPLOY, UNITS, Root, fixed_port, unit
from waiting import until

from distrain.service.clusters.scheduler_client import SchedulerClient
from distrain.service.settings import load_settings

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

MAKE = DEPLOY / "certificates" / "make-certificates"
TOKEN = "a-token-for-the-scheduler-of-this-test"
BIN = Path(sys.executable).parent
LONG_S = 300.0


@dataclass
class Machine:
    """The scratch machine, and what runs on it."""

    root: Root
    ports: dict[str, int]
    processes: "dict[str, subprocess.Popen[bytes]]" = field(default_factory=dict)

    @property
    def tls(self) -> Path:
        return Path(self.root.path("/etc/distrain/tls"))

    @property
    def scheduler(self) -> str:
        return f"tls://127.0.0.1:{self.ports['comm']}"

    def log(self, name: str) -> Path:
        return self.root.folder / f"{name}.log"

    def start(self, name: str) -> "subprocess.Popen[bytes]":
        process = self.root.start(unit(name), self.log(name))
        self.processes[name] = process
        return process

    def distrain(self, *words: str, code: int = 0) -> str:
        """What a command of the operator's prints."""
        done = subprocess.run(
            [BIN / "distrain", *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
            env={"PATH": "/usr/bin:/bin", "HOME": str(self.root.folder / "home")},
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def shown(self, role: str, tls: Path | None = None) -> list[str]:
        """Options with the certificate of a role."""
        folder = tls or self.tls
        files = {"ca-file": "ca", "cert": role, "key": f"{role}-key"}
        return [w for o, f in files.items() for w in (f"--tls-{o}", str(folder / f"{f}.pem"))]


def install(folder: Path) -> Machine:
    """What docs/install-machine.md does, below a folder and at free ports."""
    names = ("comm", "http", "worker", "nanny", "dashboard", "api")
    ports = {name: fixed_port() for name in names}
    places = {
        "/opt/distrain/bin": str(BIN),
        **{there: f"{folder}{there}" for there in ("/etc/distrain", "/run/credentials")},
        **{there: f"{folder}{there}" for there in ("/var/", "/srv/distrain", "/run/distrain")},
        "--port 8786": f"--port {ports['comm']}",
        "127.0.0.1:8786": f"127.0.0.1:{ports['comm']}",
        "127.0.0.1:8787": f"127.0.0.1:{ports['http']}",
        "--worker-port 9000": f"--worker-port {ports['worker']}",
        "--nanny-port 9001": f"--nanny-port {ports['nanny']}",
        "127.0.0.1:9002": f"127.0.0.1:{ports['dashboard']}",
        "port: 8686": f"port: {ports['api']}",
    }
    machine = Machine(Root(folder, places), ports)
    for there in ("/etc/distrain", "/srv/distrain/runs", "/var/backups/distrain", "/home"):
        Path(f"{folder}{there}").mkdir(parents=True)
    subprocess.run([MAKE, "--folder", machine.tls], check=True, capture_output=True, timeout=120)
    for name in ("distrain.env", "serve.yaml"):
        text = machine.root.path((UNITS / name).read_text())
        Path(machine.root.path(f"/etc/distrain/{name}")).write_text(text)
    token = Path(machine.root.path("/etc/distrain/scheduler.token"))
    token.write_text(f"{TOKEN}\n")
    token.chmod(0o600)
    return machine


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """Scheduler, worker 0 and service, as their units start them."""
    shutil.which("openssl") or pytest.skip("there is no openssl on this machine: install openssl")
    machine = install(tmp_path_factory.mktemp("machine"))
    try:
        for name in ("distrain-scheduler", "distrain-worker@0"):
            machine.start(name)
        client = service_client(machine)
        until(lambda: len(workers(client)) == 1, within_s=LONG_S)
        client.close()
        yield machine
    finally:
        end(machine)


def end(machine: Machine) -> None:
    found = []
    for process in machine.processes.values():
        if process.poll() is None:
            found += [psutil.Process(process.pid), *psutil.Process(process.pid).children(True)]
            process.terminate()
    _, left = psutil.wait_procs(found, 40)
    for process in left:
        process.kill()
    for started in machine.processes.values():
        started.wait(30)


def service_client(machine: Machine) -> SchedulerClient:
    """A client of the scheduler as the service's `address` profile makes it."""
    settings = load_settings(Path(machine.root.path("/etc/distrain/serve.yaml")))
    profile = settings.clusters["here"]
    return SchedulerClient(str(profile.url), TOKEN, profile.tls, service="test")


def workers(client: SchedulerClient) -> list[dict[str, object]]:
    from distrain.service.decisions.world import Unreachable

    try:
        return client.workers()
    except Unreachable:
        return []


def test_the_cluster_is_up_for_holders_of_certificates_alone(
    machine: Machine, tmp_path: Path
) -> None:
    told = machine.distrain("doctor", "--scheduler", machine.scheduler, *machine.shown("client"))
    assert "on 1 worker" in told
    assert b"compression" in greeting(machine, machine.tls, "client")
    # The same role of another authority, and a role that is no client of Dask's.
    subprocess.run([MAKE, "--folder", tmp_path, "client"], check=True, capture_output=True)
    for stranger in ((tmp_path, "client"), (machine.tls, "service"), (machine.tls, "proxy"), None):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            greeting(machine, *(stranger or (None, "")))


def greeting(machine: Machine, tls: Path | None, role: str) -> bytes:
    """What the scheduler's comm says to whoever shows this certificate, once it let them in."""
    trust = ssl.create_default_context(cafile=str(machine.tls / "ca.pem"))
    if tls is not None:
        trust.load_cert_chain(tls / f"{role}.pem", tls / f"{role}-key.pem")
    with (
        socket.create_connection(("127.0.0.1", machine.ports["comm"]), timeout=60) as plain,
        trust.wrap_socket(plain, server_hostname="127.0.0.1") as comm,
    ):
        return comm.recv(4096)


def test_the_schedulers_https_wants_token_and_authority(machine: Machine) -> None:
    with service_client(machine) as client:
        assert len(client.workers()) == 1
    url = f"https://127.0.0.1:{machine.ports['http']}/distrain/v1/jobs"
    with pytest.raises(httpx2.ConnectError):  # not signed by an authority of the system's
        httpx2.get(url)
    trust = ssl.create_default_context(cafile=str(machine.tls / "ca.pem"))
    assert httpx2.get(url, verify=trust).status_code == 401


def test_a_job_through_the_service_and_a_stop_that_is_a_notice(
    machine: Machine, tmp_path: Path
) -> None:
    """A laptop's commands make a run folder; a job continues after its worker was stopped."""
    serve_yaml = machine.root.path("/etc/distrain/serve.yaml")
    data = small_jobs.write_prepared(tmp_path / "data")
    settings = yaml.safe_load(Path(serve_yaml).read_text())
    settings["clusters"]["here"]["allowed_roots"].append(str(tmp_path))
    Path(serve_yaml).write_text(yaml.safe_dump(settings))

    # As in the guide: the first token is made before the first start, so that no log has it.
    machine.distrain("serve", "migrate", "--config", serve_yaml)
    token = machine.distrain(
        "serve", "token", "create", "--config", serve_yaml, "--user", "operator"
    )
    machine.start("distrain-service")
    url = f"https://127.0.0.1:{machine.ports['api']}"
    trust = ssl.create_default_context(cafile=str(machine.tls / "ca.pem"))
    bearer = {"Authorization": f"Bearer {token.strip()}"}
    with httpx2.Client(base_url=url, verify=trust, headers=bearer, timeout=60) as api:
        until(lambda: ready(api), within_s=LONG_S)
        assert "ok    clusters.here " in machine.distrain("serve", "check", "--config", serve_yaml)
        document = small_jobs.small_document(data)
        document["resources"] = {"num_ranks": 1, "device": "cpu"}
        document["train"] |= {"max_steps": 100_000, "epochs": 100_000}
        document["checkpoint"] = {"every_steps": 1_000_000}
        sent = api.put("/v1/jobs/one", json={"spec": document})
        assert sent.status_code == 201, sent.text
        job = sent.json()["id"]

        def now() -> dict[str, object]:
            return dict(api.get(f"/v1/jobs/{job}").json())

        until(lambda: (now()["step"] or 0) > 0, within_s=LONG_S)
        assert stop(machine, "distrain-worker@0") == 0
        manifests = until(lambda: now()["checkpoints"], within_s=LONG_S)
        assert manifests, now()
        # `systemctl start` again: the job goes on there, from that checkpoint.
        machine.start("distrain-worker@0")
        until(lambda: now()["attempt"] == 2 and now()["state"] == "running", within_s=LONG_S)
        api.post(f"/v1/jobs/{job}/cancel").raise_for_status()
        ended = until(lambda: now()["finished_at"] and now(), within_s=LONG_S)
        assert ended["state"] == "cancelled"
        assert Path(str(ended["run_dir"])).is_relative_to(machine.root.path("/srv/distrain/runs"))

        back_up(machine)
    assert stop(machine, "distrain-service") == 0
    assert "dtr_" not in machine.log("distrain-service").read_text()


def ready(api: httpx2.Client) -> bool:
    try:
        return api.get("/readyz").status_code == 200
    except httpx2.TransportError:
        return False


def stop(machine: Machine, name: str) -> int:
    """What `systemctl stop` does: SIGTERM to the first process, and it has the unit's time."""
    of = unit(name)
    assert of.last("KillMode") == "mixed"
    process = machine.processes[name]
    others = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGTERM)
    code = process.wait(int(of.last("TimeoutStopSec")))
    psutil.wait_procs(others, 30)
    return code


def back_up(machine: Machine) -> None:
    of = unit("distrain-backup")
    for line in of.options["ExecStart"]:
        words = ["/bin/sh", "-c", machine.root.path(line).replace("$$", "$")]
        subprocess.run(words, check=True, env=machine.root.environment(of), timeout=120)
    kept = Path(machine.root.path("/var/backups/distrain"))
    assert {file.suffix for file in kept.iterdir()} == {".db"}
    assert all(file.stat().st_mode & 0o077 == 0 for file in kept.iterdir())
