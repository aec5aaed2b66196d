"""`distrain top` beside a real scheduler whose jobs are told, not run."""

import asyncio
import io
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import dask
import pytest
from click.testing import CliRunner
from made_certificates import write_certificate
from monitored import Site, beside, new_site
from rich.console import Console
from scripted_service import Reply, ScriptedService

from distrain.cli.main import cli
from distrain.cli.top import command
from distrain.cli.top.fetch_jobs import dashboard_of, read_jobs
from distrain.cli.top.tables import largest_shares, screen
from distrain.client.client import Client
from distrain.client.errors import NotFound
from distrain.errors import ClusterError, InputError
from distrain.jobs.api_answers import Job
from distrain.scheduler.lifecycle.messages import Cancel
from distrain.workers.secrets import TOKEN_VARIABLE


@pytest.fixture
def at() -> Iterator[Callable[[str], Client]]:
    """The dashboard at a URL."""
    with ExitStack() as opened:
        yield lambda url: opened.enter_context(dashboard_of(None, url))


async def run(*args: object) -> str:
    """What the command prints, while the scheduler goes on beside it."""

    def invoke() -> str:
        done = CliRunner().invoke(cli, ["top", *map(str, args)], catch_exceptions=False)
        assert done.exit_code == 0
        return done.output

    return await asyncio.to_thread(invoke)


def rendered(part: object, width: int = 80) -> list[str]:
    text = io.StringIO()
    Console(file=text, width=width, force_terminal=True, color_system=None).print(part)
    return text.getvalue().splitlines()


@beside(new_site)
async def test_once_prints_the_ranks_of_a_job_and_all_jobs(site: Site) -> None:
    assert (await run("--once", "--dashboard", site.url)).splitlines()[1:] == ["no jobs yet"]
    site.submit("a")
    site.step("a", 10)
    site.queue("b")  # a job without workers ends at once
    site.coordinator.lifecycle.handle(Cancel("b"), 0.0)
    for more in ((), ("--job", "a")):  # `a` is the only unfinished job
        lines = (await run("--once", "--dashboard", f"{site.url}/status", *more)).splitlines()
        ranks = next(n for n, line in enumerate(lines) if line.startswith("RANK"))
        jobs = next(n for n, line in enumerate(lines) if line.startswith("JOB"))
        about = "\n".join(lines[1:ranks])
        for part in ("a, attempt 1: running", "step 10 of 100", "slowest: rank 1", "time: "):
            assert part in about
        cells = lines[ranks + 2].split()
        assert cells[:4] == ["1", "host-1", "forward_backward", "10"]
        assert cells[5:9] == ["100.0", "ms", "25", "%"]
        assert [line.split()[0] for line in lines[jobs + 1 :]] == ["b", "a"]
    assert "b, attempt" in await run("--once", "--dashboard", site.url, "--job", "b")


def test_the_slowest_ranks_are_shown_in_the_width_of_a_terminal() -> None:
    ranks = [
        {"rank": n, "host": "h", "doing": "exchange", "step": 1, "rows_per_s": 1.0,
         "step_time_s": 0.001 * n, "stall_pct": 0.0, "gpu": None,
         "total_seconds": {"exchange": 3.0, "data_wait": 1.0}}
        for n in range(1000)
    ]  # fmt: skip
    job = Job.read({"id": "a", "state": "running", "num_ranks": 1000, "ranks": ranks})
    lines = rendered(screen([job], job, 7, "x" * 200))
    assert max(map(len, lines)) <= 80
    shown = [int(line.split()[0]) for line in lines if " h " in line]
    assert shown == list(range(993, 1000))
    assert "and 993 other ranks" in "\n".join(lines)
    assert largest_shares(ranks) == [("exchange", 75.0), ("data_wait", 25.0)]


def test_a_terminal_shows_that_the_dashboard_went_away_and_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = iter([([], None), ClusterError("cannot reach it: gone"), ([], None)])

    def read() -> tuple[list[Job], None]:
        answer = next(answers, KeyboardInterrupt())
        if isinstance(answer, BaseException):
            raise answer
        return answer

    text = io.StringIO()
    console = Console(file=text, width=80, height=24, force_terminal=True)
    with pytest.raises(KeyboardInterrupt):
        command._show(console, read, "http://here", 0.0)
    assert text.getvalue().count("gone; retrying") == 1
    assert text.getvalue().count("no jobs yet") == 3


def seen_at(scheduler: str | None, url: str | None) -> tuple[str, list[str]]:
    """The address that options lead to, and the jobs there."""
    with dashboard_of(scheduler, url) as found:
        return found.address, [job.id for job in read_jobs(found, None)[0]]


def test_a_scheduler_or_a_url_leads_to_its_dashboard_with_the_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "s3cret-of-some-length\n")

    @beside(partial(new_site, dashboard=True))
    async def story(site: Site) -> None:
        site.submit("a")
        for place in ((site.scheduler.address, None), (None, site.url)):
            url, ids = await asyncio.to_thread(seen_at, *place)
            assert (url, ids) == (site.url if place[1] else place[0], ["a"])
        with pytest.raises(NotFound), dashboard_of(None, site.url) as found:
            await asyncio.to_thread(read_jobs, found, "x")
        monkeypatch.setenv(TOKEN_VARIABLE, "another-of-some-length")
        with dashboard_of(None, site.url) as found:  # the server reads the variable, too
            monkeypatch.setenv(TOKEN_VARIABLE, "s3cret-of-some-length\n")
            with pytest.raises(ClusterError) as caught:
                await asyncio.to_thread(read_jobs, found, None)
        assert TOKEN_VARIABLE in caught.value.hint

    story()


def test_what_is_no_dashboard_is_refused(at: Callable[[str], Client]) -> None:
    for url in ("10.0.0.5:8787", "tcp://10.0.0.5:8786", "file:///etc/passwd"):
        with pytest.raises(InputError):
            at(url)
    for reply in (Reply(200, b"<html>"), Reply(404, b"no such page")):
        with ScriptedService(lambda seen, reply=reply: reply) as server:
            with pytest.raises(ClusterError) as caught:
                read_jobs(at(server.address), None)
            assert reply.status == 200 or "--preload distrain.preload" in caught.value.hint
    with pytest.raises(ClusterError) as caught:
        read_jobs(at(server.address), None)
    assert "--dashboard" in caught.value.hint


class Jobs(BaseHTTPRequestHandler):
    """A dashboard without jobs."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"jobs": []}')

    def log_message(self, *_: object) -> None: ...


@pytest.mark.parametrize("has_tls", [False, True])
def test_the_token_goes_to_the_dashboard_alone_and_by_tls_where_it_has_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_tls: bool, at: Callable[[str], Client]
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")  # nobody answers there
    with ThreadingHTTPServer(("127.0.0.1", 0), Jobs) as server:
        if has_tls:
            certificate, key, _ = write_certificate(tmp_path, "localhost", 1)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, key)
            server.socket = context.wrap_socket(server.socket, server_side=True)
            monkeypatch.setattr(dask.config, "get", lambda *_: str(certificate))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv(TOKEN_VARIABLE, "secret-of-some-length")
        url = f"http{'s' if has_tls else ''}://localhost:{server.server_port}"
        assert read_jobs(at(url), None) == ([], None)
        server.shutdown()
