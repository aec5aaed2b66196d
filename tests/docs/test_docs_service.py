"""What a reader types who follows docs/service.md from top to bottom, in an empty folder."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from dask_world import free_port
from service_processes import Serve, end_cluster, serving

from distrain.jobs.run_paths import RunPaths

PAGE = Path(__file__).parents[2] / "docs" / "service.md"
ADDRESS = "http://127.0.0.1:8686"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


def commands_of_page() -> list[str]:
    blocks = re.findall(r"^```console\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    return [line[2:] for block in blocks for line in block.splitlines() if line[:2] == "$ "]


def run(
    command: str, folder: Path, environment: dict[str, str], typed: str = ""
) -> subprocess.CompletedProcess[str]:
    program, *words = shlex.split(command)
    assert program == "distrain"
    done = subprocess.run(
        [sys.executable, "-m", "distrain", *words],
        cwd=folder,
        env=environment,
        input=typed,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done


def test_the_commands_of_the_page_work_and_a_job_has_the_bits_of_train(tmp_path: Path) -> None:
    commands = commands_of_page()
    assert commands[:2] == ["pip install -c constraints.txt '.[service]'", "distrain serve"]
    data = tmp_path / ".local" / "share" / "distrain" / "serve"
    environment = {**os.environ, "HOME": str(tmp_path), "COLUMNS": "200"}
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "DISTRAIN_SERVER"):
        environment.pop(name, None)
    data.parent.mkdir(parents=True)
    port = ("--port", str(free_port()))
    restart = commands.index("distrain serve --config serve.yaml")
    try:
        with serving(data, *port, environment=environment) as serve:
            operator = serve.told["token"]
            type_in(serve, operator, commands[2:restart], tmp_path, environment)
        (projects,) = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.M | re.S)
        config = tmp_path / "serve.yaml"
        config.write_text(projects)
        words = (*port, "--config", str(config))
        with serving(data, *words, environment=environment) as serve:
            told = type_in(serve, operator, commands[restart + 1 :], tmp_path, environment)
            look(serve, operator, told.strip(), tmp_path, environment)
    finally:  # after the service, which would start another
        end_cluster(data / "clusters" / "local")


def type_in(
    serve: Serve, token: str, commands: list[str], folder: Path, environment: dict[str, str]
) -> str:
    """Run the commands, and return what the last one prints; `login` gets the token."""
    told = ""
    for command in commands:
        typed = token + "\n" if " login " in command else ""
        told = run(command.replace(ADDRESS, serve.told["url"]), folder, environment, typed).stdout
    return told


def look(
    serve: Serve, operator: str, alice: str, folder: Path, environment: dict[str, str]
) -> None:
    """See what the page promises of the job, as its owner and as the second user."""
    (download,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    subprocess.run([sys.executable, "-c", download], cwd=folder, env=environment, check=True)
    assert (folder / "copy" / "model" / "workflow" / "workflow.json").is_file()
    run("distrain predict copy/model criteo/valid --out scores", folder, environment)
    with serve.client(operator) as client:
        [job] = client.get("/v1/jobs").json()["jobs"]
        assert job["state"] == "succeeded"
        assert (
            client.get(f"/v1/jobs/{job['id']}/artifacts/logs/attempt-1/rank-0.log").status_code
            == 200
        )
    with serve.client(alice) as second:
        assert second.get("/v1/jobs").json()["jobs"] == []
        assert second.get(f"/v1/jobs/{job['id']}").status_code == 404
        assert second.get(f"/v1/jobs/{job['id']}/artifacts").status_code == 404

    served = RunPaths(Path(job["run_dir"]))
    direct = RunPaths(folder / "direct")
    run(f"distrain train {served.spec} --run-dir {direct.root}", folder, environment)
    mine, theirs = (yaml.safe_load(p.spec.read_text()) for p in (served, direct))
    assert mine == theirs
    weights = "weights.safetensors"
    assert (served.model / weights).read_bytes() == (direct.model / weights).read_bytes()
    told = [json.loads(paths.summary.read_text()) for paths in (served, direct)]
    for key in ("auc", "log_loss", "normalised_entropy", "steps", "state"):
        if key in told[0] or key in told[1]:
            assert told[0][key] == told[1][key], key
    assert told[0]["auc"] is not None
