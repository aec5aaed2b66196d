"""The chart's pods as processes in networks of their own: a job is trained over TLS."""

import json
import shutil
from contextlib import ExitStack
from pathlib import Path

import networks
import pytest
import yaml
from chart_pods import Network, Pod
from helm_chart import find, rendered
from small_jobs import small_document, write_prepared
from waiting import until

pytestmark = [pytest.mark.release, pytest.mark.timeout(900)]

API = "https://r-distrain-api.clicks.svc:8686"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    if why := networks.why_not():
        pytest.skip(why)
    if not (shutil.which("unshare") and shutil.which("nsenter")):
        pytest.skip("needs unshare and nsenter, of Debian's util-linux")
    root = tmp_path_factory.mktemp("chart")
    objects = rendered("minimal")
    with ExitStack() as ends:
        network = Network()
        ends.callback(network.end)
        started = {}
        for number, (name, part) in enumerate(
            {"scheduler": "scheduler", "service": "service", "a": "worker", "b": "worker"}.items(),
            start=2,
        ):
            pod = Pod(network, number, part, objects, root)
            ends.callback(pod.end)
            pod.start()
            started[name] = pod
            if name == "scheduler":  # Kubernetes starts workers again that came too early
                until(lambda pod=pod: pod.answers("startupProbe"), within_s=280)
        for pod in started.values():
            until(lambda pod=pod: pod.answers("startupProbe"), within_s=280)
        yield started


def test_pods_are_well(cluster):
    for pod in cluster.values():
        assert pod.answers("livenessProbe")
        if "readinessProbe" in pod.container:
            until(lambda pod=pod: pod.answers("readinessProbe"))


def test_they_listen_where_the_network_policies_let_peers_in(cluster):
    assert cluster["scheduler"].listening() == {8786, 8787}
    assert cluster["service"].listening() == {8686}
    for name in "ab":
        assert cluster[name].listening() == {9000, 9001}


def test_the_service_finds_nothing_to_mend(cluster):
    done = cluster["service"].run("distrain", "serve", "check", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    checks = {check["name"]: check["verdict"] for check in json.loads(done.stdout)}
    assert checks["clusters.main"] == "ok"


def test_the_command_of_helm_test_finds_it_ready(cluster):
    [container] = find(rendered("minimal"), "Pod", "-test")["spec"]["containers"]
    *command, url, ca = container["args"]
    service = cluster["service"]
    here = str(service.folder / "tls" / Path(ca).name)
    done = service.run(*command, url.replace("/readyz", ":8686/readyz"), here)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"] == "ok"


def test_no_token_is_in_the_logs_and_the_notes_make_one(cluster, tmp_path):
    service = cluster["service"]
    assert "dtr_" not in service.log.read_text()
    done = service.run("distrain", "serve", "token", "create", "--user", "operator", "--json")
    token = json.loads(done.stdout)["token"]
    ca = str(service.folder / "tls" / "ca.pem")
    done = service.run("distrain", "login", "--ca-file", ca, API, given=f"{token}\n")
    assert done.returncode == 0, done.stderr
    runs = service.folder.parent / "claims" / "r-distrain-runs"
    spec = small_document(write_prepared(tmp_path / "data"))  # which no value allows
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(spec))
    done = service.run("distrain", "submit", str(tmp_path / "job.yaml"), "--server", API)
    assert done.returncode != 0
    assert str(runs) in done.stdout + done.stderr
    spec = small_document(write_prepared(runs / "data"))
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(spec))
    done = service.run("distrain", "submit", str(tmp_path / "job.yaml"), "--server", API, "--wait")
    assert done.returncode == 0, done.stdout + done.stderr + cluster["a"].log.read_text()[-2000:]
    [summary] = runs.rglob("summary.json")
    assert json.loads(summary.read_text())["num_ranks"] == 2


def test_who_has_no_certificate_is_not_let_in(cluster):
    code = "import sys; from distributed import Client; Client(sys.argv[1], timeout=sys.argv[2])"
    address = f"{cluster['scheduler'].address}:8786"
    assert cluster["a"].run("python", "-c", code, f"tls://{address}", "100s").returncode == 0
    for scheme in ("tcp", "tls"):
        done = cluster["service"].run("python", "-c", code, f"{scheme}://{address}", "10s")
        assert done.returncode != 0
        assert "Error" in done.stderr
