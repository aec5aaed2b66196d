"""Checks of data: asked of the scheduler over HTTP, and told to nobody but who asked."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest
from api_world import SPEC, World, api_world

from distrain.service.settings import ClusterProfile


class Scheduler(BaseHTTPRequestHandler):
    """Answers as a door does; the token is its only guard."""

    specs: ClassVar[list[dict[str, Any]]] = []
    arrived: ClassVar[threading.Semaphore] = threading.Semaphore(0)
    gate: ClassVar[threading.Event] = threading.Event()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.specs.append(json.loads(body)["spec"])
        self.arrived.release()
        self.gate.wait(4)  # longer, and the service gives up
        self._answer(202, {"id": "7"})

    def do_GET(self) -> None:
        found = self.path.endswith("/preflight/7")
        done = {"state": "passed", "notes": ["3 files"], "errors": [], "error": None}
        self._answer(200 if found else 404, done if found else {"code": "unknown", "error": ""})

    def _answer(self, status: int, document: object) -> None:
        good = self.headers["Authorization"] == "Bearer secret"
        body = json.dumps(document if good else {"code": "unauthenticated"}).encode()
        self.send_response(status if good else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("checked")
    (folder / "token").write_text("secret\n")
    Scheduler.gate.set()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Scheduler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    profile = ClusterProfile(url=url, token_file=folder / "token")
    away = ClusterProfile(url="http://127.0.0.1:1")
    try:
        with api_world(folder, clusters={"gpu": profile, "away": away}) as world:
            yield world
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def validate(world: World, cluster: str, spec: object = SPEC):
    body = {"spec": spec, "project": "ads", "cluster": cluster}
    return world.ask("alice", "POST", "/v1/jobs:validate?data=true", body)


def test_a_check_is_made_by_the_scheduler_and_read_by_who_asked(checked: World):
    started = validate(checked, "gpu")
    assert started.status_code == 202
    url = started.json()["url"]
    assert started.headers["Location"] == url
    assert Scheduler.specs[-1]["data"]["train"] == ["/data/clicks/day_*"]
    assert checked.ask("alice", "GET", url).json() == {
        "state": "passed",
        "notes": ["3 files"],
        "errors": [],
        "error": None,
    }
    assert checked.ask("bob", "GET", url).status_code == 404
    assert checked.ask("alice", "GET", url + "0").status_code == 404
    assert "secret" not in started.text


def test_a_spec_with_mistakes_is_not_sent_and_a_silent_cluster_is_503(checked: World):
    sent = len(Scheduler.specs)
    bad = validate(checked, "gpu", {**SPEC, "train": {"epochs": 0}})
    assert (bad.status_code, bad.json()["valid"]) == (200, False)
    assert len(Scheduler.specs) == sent
    silent = validate(checked, "away")
    assert (silent.status_code, silent.json()["code"]) == (503, "unavailable")
    assert "Retry-After" in silent.headers


def test_a_scheduler_that_hangs_takes_few_threads(checked: World):
    while Scheduler.arrived.acquire(blocking=False):
        pass
    Scheduler.gate.clear()
    with ThreadPoolExecutor(4) as threads:
        held = [threads.submit(validate, checked, "gpu") for _ in range(4)]
        for _ in held:
            assert Scheduler.arrived.acquire(timeout=60)
        more = validate(checked, "gpu")
        other = validate(checked, "away")
        Scheduler.gate.set()
    assert (more.status_code, more.json()["code"]) == (503, "unavailable")
    assert "others are asking" in more.json()["detail"]
    assert "does not answer" in other.json()["detail"]
    assert {answer.result().status_code for answer in held} <= {202, 503}
    assert validate(checked, "gpu").status_code == 202
