"""What the containers run: commands, options and configurations that the programs know."""

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

ROOT = Path(__file__).resolve().parents[3]
COMPOSE = ROOT / "deploy" / "compose"


def parse_dask(words):
    """Let `dask WORDS` be parsed, and nothing run; the parameters."""
    from distributed.cli import dask_scheduler, dask_worker

    main = {"scheduler": dask_scheduler.main, "worker": dask_worker.main}[words[0]]
    context = main.make_context(words[0], words[1:])
    assert not context.args
    return context.params


def test_the_scheduler(compose):
    service = compose["services"]["scheduler"]
    assert service["entrypoint"] == ["tini", "--", "dask"]
    *words, option, preload = service["command"]
    # The parser would import it, and this process would serve our pages.
    assert option == "--preload"
    assert importlib.util.find_spec(preload)
    params = parse_dask(words)
    assert (params["port"], params["dashboard_address"]) == ("8786", ":8787")
    assert service["environment"]["HEALTH_URL"] == "http://127.0.0.1:8787/health"


def test_the_workers(compose):
    service = compose["services"]["worker"]
    assert service["entrypoint"] == ["tini", "--", "dask"]
    params = parse_dask(service["command"])
    assert params["scheduler"] == "tcp://scheduler:8786"
    assert (params["worker_port"], params["nanny_port"]) == ("9000", "9001")
    assert (params["n_workers"], params["nthreads"]) == ("1", 1)
    assert service["environment"]["HEALTH_URL"] == "http://127.0.0.1:9002/health"


def test_the_workers_on_gpus(compose_gpu):
    cli = pytest.importorskip("dask_cuda.cli", reason="no dask-cuda here: pip install dask-cuda")
    words = compose_gpu["services"]["worker"]["command"]
    assert words[:2] == ["cuda", "worker"]
    context = cli.worker.make_context("worker", words[2:])
    assert context.params["scheduler"] == "tcp://scheduler:8786"
    assert not context.args


@pytest.mark.parametrize("name", ["service", "migrate"])
def test_the_service_and_its_migration(compose, name):
    from distrain.cli.main import cli

    words = [word for word in compose["services"][name]["command"] if word != "--config"]
    assert words.pop() == "/etc/distrain/serve.yaml"
    answer = CliRunner().invoke(cli, [*words, "--help"])
    assert answer.exit_code == 0, answer.output
    assert "--config" in answer.output


def test_no_token_gets_into_the_log(compose):
    assert "--no-token" in compose["services"]["service"]["command"]


def test_the_configuration_of_the_service(compose, monkeypatch):
    from distrain.service.settings import load_settings

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


class TestSecrets:
    """`make-secrets`, which gives each file to the user who reads it."""

    def make(self, folder):
        if os.geteuid() != 0:
            pytest.skip("the files get owners of their own: only root can make them")
        return subprocess.run([COMPOSE / "make-secrets", folder], capture_output=True, text=True)

    def test_each_secret_is_there_and_readable_by_one_user(self, compose, tmp_path):
        folder = tmp_path / "secrets"
        done = self.make(folder)
        assert done.returncode == 0, done.stderr
        assert {path.name for path in folder.iterdir()} == compose["secrets"].keys()
        for name, service in compose["services"].items():
            for secret in service.get("secrets", []):
                status = (folder / secret).stat()
                assert status.st_uid == int(service["user"].split(":")[0]), f"{name}: {secret}"
                assert status.st_mode & 0o777 == 0o400
        password = (folder / "database-password").read_text().strip()
        assert len(password) == 64
        assert (folder / "pgpass").read_text() == f"*:*:*:distrain:{password}\n"
        both = {(folder / f"scheduler-token{end}").read_text() for end in ("", "-prometheus")}
        assert len(both) == 1

    def test_a_second_time_keeps_them(self, tmp_path):
        folder = tmp_path / "secrets"
        self.make(folder)
        before = {path.name: path.read_text() for path in folder.iterdir()}
        assert self.make(folder).stdout == ""
        assert {path.name: path.read_text() for path in folder.iterdir()} == before
