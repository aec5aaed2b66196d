"""Logs of the service: JSON lines, and no secrets in them."""

import io
import json
import logging
import sys

import pytest
import structlog

from distrain.service.access.sessions import make_token
from distrain.service.process.logs import set_up_logs, without_secrets


@pytest.fixture
def logs(monkeypatch):
    root, written = logging.getLogger(), io.StringIO()
    before = root.handlers[:], root.level
    monkeypatch.setattr(sys, "stderr", written)
    set_up_logs("api", console=False)
    yield lambda: [json.loads(line) for line in written.getvalue().splitlines()]
    root.handlers[:], root.level = before
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def test_lines_of_structlog_and_of_logging_are_json_with_the_process(logs):
    with structlog.contextvars.bound_contextvars(request_id="r1"):
        structlog.stdlib.get_logger("a").info("said", job="j")
        logging.getLogger("b").warning("said %s", "too")
    first, second = logs()
    assert (first["event"], first["job"], first["request_id"]) == ("said", "j", "r1")
    assert (second["event"], second["level"], second["process"]) == ("said too", "warning", "api")
    assert second["request_id"] == "r1"


def test_no_secret_is_logged_wherever_it_stands(logs):
    token, password, key = make_token().text, "canary-password", "canary-key-0123456789"
    url = f"postgresql://me:{password}@db/x"
    log = structlog.stdlib.get_logger("a")
    log.info(f"with {token}", headers={"Authorization": f"Bearer {key}", "Cookie": key})
    log.info("nested", values=[{"deep": (url, {"password": password})}], token_file="/run/t")
    logging.getLogger("b").error("GET /x?token=%s HTTP/1.1 to %s", key, url)
    try:
        raise ValueError(f"cannot connect to {url} with {token}")
    except ValueError:
        log.exception("failed")
    lines = logs()
    text = json.dumps(lines)
    assert len(lines) == 4
    for secret in (token, token.split("_")[2], password, key):
        assert secret not in text
    assert lines[1]["token_file"] == "/run/t"
    assert "ValueError" in lines[3]["exception"]


def test_what_is_no_secret_stays():
    for value in ("https://host/path?page=2", 1.5, None, True, {"state": "running"}, "a:b@c"):
        assert without_secrets(value) == value
