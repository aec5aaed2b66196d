"""The compose files, read as YAML; `docker-compose config` reads them in its own way."""

import re
from pathlib import Path

import pytest
import yaml

COMPOSE = Path(__file__).resolve().parents[3] / "deploy" / "compose"


def environment_of(file):
    lines = [line for line in file.read_text().splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def interpolated(text, values):
    """Compose's `${NAME}`, `${NAME:-default}`, `${NAME:?message}`."""

    def value(match):
        name, kind, rest = match.group(1), match.group(2), match.group(3)
        if values.get(name):
            return values[name]
        if kind == ":-":
            return rest
        raise KeyError(f"{name}: {rest}")

    return re.sub(r"\$\{(\w+)(?:(:-|:\?)([^}]*))?\}", value, text)


@pytest.fixture(scope="session")
def example():
    """The variables of `.env.example`."""
    return environment_of(COMPOSE / ".env.example")


@pytest.fixture(scope="session")
def compose(example):
    return yaml.safe_load(interpolated((COMPOSE / "compose.yaml").read_text(), example))


@pytest.fixture(scope="session")
def compose_gpu(example):
    return yaml.safe_load(interpolated((COMPOSE / "compose.gpu.yaml").read_text(), example))
