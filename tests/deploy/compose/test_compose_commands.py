"""Options, configurations and secrets of the containers, as the programs take them."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from distributed.cli import dask_scheduler, dask_worker
from helm_chart import cuda_options

from distrain.cli.main import cli
from distrain.service.settings import load_settings

ROOT = Path(__file__).resolve().parents[3]
COMPOSE = ROOT / "deploy" / "compose"


def test_all_arguments_are_those_of_the_commands(compose):
    def parsed(command, words):
        context = command.make_context(command.name, list(words))
        assert not context.args
        return context.params

    services = compose["services"]
    # The parser would import what is preloaded, and this process would serve our pages.
    words, preload = services["scheduler"]["command"][1:-2], services["scheduler"]["command"][-2:]
    assert preload == ["--preload", "distrain.preload"]
    params = parsed(dask_scheduler.main, words)
    assert (params["port"], params["dashboard_address"]) == ("8786", ":8787")
    assert services["worker"]["command"][0] == "worker"
    params = parsed(dask_worker.main, services["worker"]["command"][1:])
    assert params["scheduler"] == "tcp://scheduler:8786"
    assert (params["worker_port"], params["nanny_port"]) == ("9000", "9001")
    assert (params["n_workers"], params["nthreads"]) == ("1", 1)
    health = {name: services[name]["environment"]["HEALTH_URL"] for name in ("scheduler", "worker")}
    assert [url.rpartition(":")[2] for url in health.values()] == ["8787/health", "9002/health"]
    for name in ("service", "migrate"):
        words = services[name]["command"]
        assert words[-2:] == ["--config", "/etc/distrain/serve.yaml"]
        answer = CliRunner().invoke(cli, [*words[:-2], "--help"])
        assert answer.exit_code == 0, answer.output
        assert "--config" in answer.output


def test_the_workers_on_gpus_have_options_of_dask_cuda(compose_gpu):
    words = compose_gpu["services"]["worker"]["command"]
    assert words[:3] == ["cuda", "worker", "tcp://scheduler:8786"]
    given = {word for word in words if word.startswith("--")}
    assert given
    assert given <= cuda_options()


def test_the_configuration_of_the_service(compose, monkeypatch):
    for name in [name for name in os.environ if name.startswith("DISTRAIN_SERVE_")]:
        monkeypatch.delenv(name)
    service = compose["services"]["service"]
    for variable, value in service["environment"].items():
        if variable.startswith("DISTRAIN_SERVE_"):
            monkeypatch.setenv(variable, value)
    settings = load_settings(COMPOSE / "serve.yaml")
    assert settings.listen.url == "https://localhost:8443"
    mounts = {mount.split(":")[1] for mount in service["volumes"]}
    profile = settings.clusters["main"]
    assert {str(settings.data_dir), str(profile.run_root)} <= mounts
    assert profile.token_file == Path("/run/secrets/scheduler-token")
    assert profile.token_file.name in service["secrets"]
    assert profile.url == "http://scheduler:8787"
    assert settings.database_url == "postgresql://distrain@database/distrain"
    worker = {mount.split(":")[1] for mount in compose["services"]["worker"]["volumes"]}
    assert set(profile.allowed_roots) <= worker


def test_prometheus_takes_its_configuration_and_the_rules(tmp_path):
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool here: apt-get install prometheus")
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    for name in ("scheduler-token-prometheus", "service-token-prometheus"):
        (secrets / name).write_text("0" * 64)
    text = (COMPOSE / "prometheus.yml").read_text()
    text = text.replace("/etc/prometheus/rules", str(ROOT / "deploy" / "prometheus"))
    (tmp_path / "prometheus.yml").write_text(text.replace("/run/secrets", str(secrets)))
    command = [promtool, "check", "config", tmp_path / "prometheus.yml"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    rules = list((ROOT / "deploy" / "prometheus").glob("*.rules.yml"))
    assert rules
    assert done.stdout.count("rules found") == len(rules)


def test_prometheus_asks_who_is_there_as_the_rules_name_them(compose):
    jobs = yaml.safe_load((COMPOSE / "prometheus.yml").read_text())["scrape_configs"]
    rules = "".join(p.read_text() for p in (ROOT / "deploy" / "prometheus").glob("*.rules.yml"))
    named = set(re.findall(r'up\{job="([\w-]+)"', rules))
    assert named <= {job["job_name"] for job in jobs}
    for job in jobs:
        for config in job.get("static_configs", []):
            assert {target.split(":")[0] for target in config["targets"]} <= compose[
                "services"
            ].keys()


def test_each_secret_is_readable_by_the_one_user_who_needs_it_and_made_once(compose, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("the files get owners of their own: only root can make them")
    folder = tmp_path / "secrets"

    def make():
        done = subprocess.run([COMPOSE / "make-secrets", folder], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout, {path.name: path.read_text() for path in folder.iterdir()}

    _, made = make()
    assert made.keys() == compose["secrets"].keys()
    for name, service in compose["services"].items():
        for secret in service.get("secrets", []):
            status = (folder / secret).stat()
            assert status.st_uid == int(service["user"].split(":")[0]), f"{name}: {secret}"
            assert status.st_mode & 0o777 == 0o400
    password = made["database-password"].strip()
    assert len(password) == 64
    assert made["pgpass"] == f"*:*:*:distrain:{password}\n"
    assert made["scheduler-token"] == made["scheduler-token-prometheus"]
    assert make() == ("", made)
