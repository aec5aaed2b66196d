"""The search of the documentation finds what users look for on the page that answers it."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from browser_fixtures import browser as browser

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("pagefind", reason="the extra docs is not installed")
    pages = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "--quiet", "-b", "html", "docs", pages]
    subprocess.run([*command, "-d", tmp_path_factory.mktemp("trees")], cwd=ROOT, check=True)
    handler = partial(SimpleHTTPRequestHandler, directory=pages)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("query", "page"),
    [
        ("resume", "checkpoints"),
        ("oom", "out-of-memory"),
        ("out of memory", "out-of-memory"),
        ("multi-GPU", "faq"),
        ("Kubernetes", "install-kubernetes"),
        ("label", "models/tasks"),
        ("pandas", "python"),
        ("hyperparameter search", "commands"),
    ],
)
def test_the_first_result_is_the_page_that_answers(
    browser: Any, site: str, query: str, page: str
) -> None:
    tab = browser.new_page()
    tab.goto(f"{site}/search.html?q={query}")
    first = tab.locator(".pagefind-ui__result-link").first
    assert first.get_attribute("href") == f"/{page}.html"
    tab.close()
