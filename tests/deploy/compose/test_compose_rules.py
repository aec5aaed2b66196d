"""What compose.yaml promises: no rights, no secrets in plain text, nothing open but the proxy."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

COMPOSE = Path(__file__).resolve().parents[3] / "deploy" / "compose"
OURS = {"service", "migrate", "scheduler", "worker"}
OTHERS = {"proxy", "database", "prometheus", "grafana"}


def test_all_services_are_there(compose):
    assert compose["services"].keys() == OURS | OTHERS


@pytest.mark.parametrize("name", sorted(OURS | OTHERS))
def test_each_service_is_confined(compose, name):
    service = compose["services"][name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "cap_add" not in service
    assert "privileged" not in service
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert re.fullmatch(r"[1-9]\d*:\d+", service["user"])
    assert service["pids_limit"] > 0
    limits = service["deploy"]["resources"]["limits"]
    assert limits.keys() == {"cpus", "memory"}
    assert not {"network_mode", "pid", "ipc"} & service.keys()


@pytest.mark.parametrize("name", sorted(OURS))
def test_ours_run_as_the_user_of_the_image(compose, name):
    assert compose["services"][name]["user"] == "10001:10001"
    assert any(mount.startswith("/tmp:") for mount in compose["services"][name]["tmpfs"])


def test_only_the_proxy_has_ports_on_this_machine_alone(compose):
    open_to = {name for name, service in compose["services"].items() if service.get("ports")}
    assert open_to == {"proxy"}
    for port in compose["services"]["proxy"]["ports"]:
        assert port.startswith("127.0.0.1:"), port


def test_who_is_on_which_network(compose):
    on = {}
    for name, service in compose["services"].items():
        for network in service["networks"]:
            on.setdefault(network, set()).add(name)
    assert on == {
        "front": {"proxy", "service"},
        "database": {"database", "service", "migrate"},
        "cluster": {"scheduler", "worker", "service", "prometheus"},
        "monitor": {"prometheus", "grafana", "proxy", "service"},
    }
    inside = {name for name, network in compose["networks"].items() if network.get("internal")}
    assert inside == {"database", "cluster", "monitor"}


def test_processes_of_dask_have_one_network(compose):
    """With two they might name an address that the others do not reach."""
    for name in ("scheduler", "worker"):
        assert compose["services"][name]["networks"] == ["cluster"]


def test_secrets_are_files(compose):
    folder = "./secrets"
    for name, secret in compose["secrets"].items():
        assert secret == {"file": f"{folder}/{name}"}
    used = {name for service in compose["services"].values() for name in service.get("secrets", [])}
    assert used == compose["secrets"].keys()


def test_no_variable_is_a_secret(compose, example):
    for name, service in compose["services"].items():
        for variable, value in service.get("environment", {}).items():
            secret = re.search(r"PASS|TOKEN|SECRET|KEY", variable)
            if secret and variable != "GF_SECURITY_COOKIE_SECURE":
                assert str(value).startswith("/run/secrets/"), f"{name}: {variable}"
                assert Path(value).name in service["secrets"]
    assert not [name for name in example if re.search(r"PASSWORD|TOKEN|KEY$", name)]


def test_what_has_no_default_stops_the_start_with_a_message(example):
    text = (COMPOSE / "compose.yaml").read_text()
    needed = dict(re.findall(r"\$\{(\w+):\?([^}]+)\}", text))
    assert needed.keys() == {
        "DISTRAIN_IMAGE",
        "DISTRAIN_SECRETS",
        "DISTRAIN_TLS",
        "DISTRAIN_DATA",
        "DISTRAIN_RUNS",
        "NGINX_IMAGE",
        "POSTGRES_IMAGE",
        "PROMETHEUS_IMAGE",
        "GRAFANA_IMAGE",
    }
    assert all(".env" in message for message in needed.values())
    with_defaults = dict(re.findall(r"\$\{(\w+):-([^}]*)\}", text))
    bare = set(re.findall(r"\$\{(\w+)\}", text)) - needed.keys()
    assert not bare, "neither a default nor a message"
    assert example.keys() == needed.keys() | with_defaults.keys()


def test_images_of_others_have_a_version(example):
    for name in ("POSTGRES_IMAGE", "NGINX_IMAGE", "PROMETHEUS_IMAGE", "GRAFANA_IMAGE"):
        assert re.fullmatch(
            r"docker\.io/[\w./-]+:v?\d[\w.-]*(@sha256:[0-9a-f]{64})?", example[name]
        )


@pytest.mark.parametrize("name", sorted(OURS | OTHERS))
def test_each_service_says_when_it_is_healthy(compose, name):
    service = compose["services"][name]
    if name == "migrate":  # it ends
        assert service["healthcheck"] == {"disable": True}
        assert service["restart"] == "no"
        return
    assert service["restart"] == "unless-stopped"
    health = service["healthcheck"]
    assert health["retries"] >= 3
    assert int(health["timeout"].rstrip("s")) >= 5
    if name in OURS:  # the image's command asks HEALTH_URL
        assert "test" not in health
    else:
        assert health["test"][0] == "CMD"


def test_the_order_of_the_start(compose):
    waits = {
        name: {other: how["condition"] for other, how in service.get("depends_on", {}).items()}
        for name, service in compose["services"].items()
    }
    assert waits["service"] == {
        "migrate": "service_completed_successfully",
        "scheduler": "service_healthy",
    }
    assert waits["migrate"] == {"database": "service_healthy"}
    assert waits["worker"] == {"scheduler": "service_healthy"}
    assert waits["proxy"]["service"] == "service_healthy"


def test_workers_have_shared_memory_and_time_for_a_checkpoint(compose, compose_gpu):
    worker = compose["services"]["worker"]
    assert worker["shm_size"] == "2g"
    assert int(worker["stop_grace_period"].rstrip("s")) > 20, "deadlines.stop_grace_s of a job"
    assert compose_gpu["services"]["worker"]["shm_size"]
    # All GPUs' ranks are in one container.
    assert compose_gpu["services"]["worker"]["pids_limit"] > worker["pids_limit"]


def test_the_gpus_of_the_override(compose_gpu):
    (devices,) = compose_gpu["services"]["worker"]["deploy"]["resources"]["reservations"]["devices"]
    assert devices == {"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}
    assert compose_gpu["services"].keys() == {"worker"}


def test_mounted_files_are_in_the_checkout(compose):
    for name, service in compose["services"].items():
        for mount in service.get("volumes", []):
            source, target, *mode = mount.split(":")
            if source.startswith("./tls/") or not source.startswith("."):
                continue
            assert (COMPOSE / source).exists(), f"{name}: {source}"
            assert mode == ["ro"], f"{name}: {target}"


class TestDockerCompose:
    """The schema, as docker-compose knows it."""

    def config(self, tmp_path, env, *files):
        program = shutil.which("docker-compose")
        if program is None:
            pytest.skip("no docker-compose here: apt-get install docker-compose")
        (tmp_path / "env").write_text(env)
        named = [word for file in files for word in ("-f", str(COMPOSE / file))]
        command = [program, "--env-file", str(tmp_path / "env"), *named, "config"]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)

    def test_takes_both_files(self, tmp_path):
        env = (COMPOSE / ".env.example").read_text()
        done = self.config(tmp_path, env, "compose.yaml", "compose.gpu.yaml")
        assert done.returncode == 0, done.stderr
        services = yaml.safe_load(done.stdout)["services"]
        assert services.keys() == OURS | OTHERS
        assert services["worker"]["command"][:2] == ["cuda", "worker"]
        assert services["worker"]["read_only"] is True

    @pytest.mark.slow
    @pytest.mark.release
    def test_a_missing_setting_is_named(self, tmp_path):
        env = (COMPOSE / ".env.example").read_text().replace("DISTRAIN_SECRETS=", "NOTHING=")
        done = self.config(tmp_path, env, "compose.yaml")
        assert done.returncode != 0
        assert "run make-secrets" in done.stderr
