"""What compose.yaml promises: no rights, no secrets in plain text, nothing open but the proxy."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

COMPOSE = Path(__file__).resolve().parents[3] / "deploy" / "compose"
ALL = {"service", "migrate", "scheduler", "worker", "proxy", "database", "prometheus", "grafana"}


def test_each_service_is_confined(compose):
    for name, service in compose["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        open_ways = {"cap_add", "privileged", "network_mode", "pid", "ipc"}
        assert not open_ways & service.keys(), name
        assert re.fullmatch(r"[1-9]\d*:\d+", service["user"]), name
        assert service["pids_limit"] > 0, name
        assert service["deploy"]["resources"]["limits"].keys() == {"cpus", "memory"}, name


def test_who_reaches_whom(compose):
    on, services = {}, compose["services"]
    for name, service in services.items():
        for network in service["networks"]:
            on.setdefault(network, set()).add(name)
    # Processes of Dask with two networks might name an address that the others do not reach.
    assert on == {
        "front": {"proxy", "service"},
        "database": {"database", "service", "migrate"},
        "cluster": {"scheduler", "worker", "service", "prometheus"},
        "monitor": {"prometheus", "grafana", "proxy", "service"},
    }
    inside = {name for name, network in compose["networks"].items() if network.get("internal")}
    assert inside == {"database", "cluster", "monitor"}
    assert {name for name, service in services.items() if service.get("ports")} == {"proxy"}
    assert all(port.startswith("127.0.0.1:") for port in services["proxy"]["ports"])


def test_no_secret_is_in_an_environment_or_a_log(compose, example):
    for name, secret in compose["secrets"].items():
        assert secret == {"file": f"./secrets/{name}"}
    for name, service in compose["services"].items():
        for variable, value in service.get("environment", {}).items():
            secret = re.search(r"PASS|TOKEN|SECRET|KEY", variable)
            if secret and variable != "GF_SECURITY_COOKIE_SECURE":
                assert str(value).startswith("/run/secrets/"), f"{name}: {variable}"
                assert Path(value).name in service["secrets"]
    assert not [name for name in example if re.search(r"PASSWORD|TOKEN|KEY$", name)]
    assert "--no-token" in compose["services"]["service"]["command"]


def test_docker_compose_takes_both_files_and_names_a_missing_setting(tmp_path):
    program = shutil.which("docker-compose")
    if program is None:
        pytest.skip("no docker-compose here: apt-get install docker-compose")
    named = [word for end in ("", ".gpu") for word in ("-f", COMPOSE / f"compose{end}.yaml")]
    whole = (COMPOSE / ".env.example").read_text()
    asked = []
    for text in (whole, whole.replace("DISTRAIN_SECRETS=", "NOTHING=")):
        (tmp_path / "env").write_text(text)
        command = [program, "--env-file", tmp_path / "env", *named, "config"]
        asked.append(subprocess.run(command, capture_output=True, text=True, cwd=tmp_path))
    assert asked[0].returncode == 0, asked[0].stderr
    services = yaml.safe_load(asked[0].stdout)["services"]
    assert services.keys() == ALL
    assert services["worker"]["command"][:2] == ["cuda", "worker"]
    assert services["worker"]["read_only"] is True
    assert asked[1].returncode != 0
    assert "DISTRAIN_SECRETS" in asked[1].stderr
