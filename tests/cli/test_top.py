"""`distrain top` beside a real scheduler whose jobs are told, not run."""

import asyncio
import io
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import dask
import pytest
from click.testing import CliRunner
from made_certificates import write_certificate
from monitored import Site, on_site
from rich.console import Console
from scripted_service import Reply, ScriptedService

from distrain.cli.main import cli
from distrain.cli.top import live
from distrain.cli.top.fetch_jobs import Dashboard, dashboard_of
from distrain.cli.top.live import chosen
from distrain.cli.top.tables import largest_shares, screen
from distrain.errors import ClusterError, InputError
from distrain.scheduler.lifecycle.messages import Cancel
from distrain.workers.secrets import TOKEN_VARIABLE


@pytest.fixture
def at() -> Iterator[Callable[[str], Dashboard]]:
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


def rendered(part: object, width: int = 80, height: int = 24) -> list[str]:
    text = io.StringIO()
    Console(file=text, width=width, height=height, force_terminal=True, color_system=None).print(
        part
    )
    return text.getvalue().splitlines()


def test_once_prints_jobs_and_the_ranks_of_the_one_that_runs() -> None:
    async def story(site: Site) -> None:
        assert (await run("--once", "--dashboard", site.url)).splitlines() == ["no jobs yet"]
        site.submit("a")
        site.step("a", 10)
        site.submit("b")
        site.coordinator.lifecycle.handle(Cancel("b"), 0.0)
        site.submit("waits", num_ranks=1)
        lines = (
            await run("--once", "--dashboard", f"{site.url}/status", "--job", "a")
        ).splitlines()
        assert [line.split()[0] for line in lines] == ["waits", "b", "a", "a", "a"]
        assert "step 10/100" in lines[2]
        assert "forward_backward" in lines[3]
        assert "rank 1" in lines[4]
        assert "100.0 ms a step  waiting for data 25 %" in lines[4]

    on_site(story)


def test_the_screen_fits_into_eighty_columns_and_grows_with_the_run() -> None:
    async def story(site: Site) -> None:
        site.submit("dlrm-with-a-very-long-name-20260301-123000-ab12")
        site.submit("a")
        site.step("a", 10)
        with dashboard_of(None, site.url) as found:
            watched = live.DashboardView(found, "a")

            async def look() -> list[str]:
                await asyncio.to_thread(watched.update)
                return rendered(screen(watched.jobs, watched.job, 24, "x" * 200))

            await look()
            for step in (20, 30, 40):
                site.step("a", step)
            lines = await look()
            assert max(map(len, lines)) <= 80
            assert len(lines) <= 24
            text = "\n".join(lines)
            for word in (
                "STATE",
                "PROGRESS",
                "40%",
                "slowest: rank 1",
                "time: ",
                "host-1",
                "100.0 ms",
            ):
                assert word in text

    on_site(story)


def test_which_job_is_shown() -> None:
    jobs = [{"id": "new", "state": "failed"}, {"id": "old", "state": "running"}]
    assert chosen(jobs, None) == "old"
    assert chosen(jobs[:1], None) == "new"
    assert chosen(jobs, "gone") == "gone"
    assert chosen([], None) is None


def _watched(num_jobs: int, num_ranks: int) -> tuple[list[dict], dict]:
    jobs = [{"id": f"job-{n}", "state": "running"} for n in range(num_jobs)]
    ranks = [
        {"rank": n, "host": "h", "doing": "exchange", "step": 1, "rows_per_s": 1.0,
         "step_time_s": 0.001 * n, "stall_pct": 0.0, "gpu": None,
         "total_seconds": {"exchange": 3.0}}
        for n in range(num_ranks)
    ]  # fmt: skip
    return jobs, {**jobs[0], "attempt": 1, "num_ranks": num_ranks, "ranks": ranks}


def test_the_slowest_ranks_are_shown() -> None:
    _, job = _watched(1, 1000)
    job["checkpoints"] = 7
    lines = rendered(screen([job], job, 24, "note"))
    assert any(line.endswith("checkpoints 7") for line in lines)
    assert any(line.strip().startswith("999 h") for line in lines)
    assert not any(line.strip().startswith("500 h") for line in lines)
    job["ranks"][0]["total_seconds"]["data_wait"] = 1000.0
    assert largest_shares(job["ranks"]) == [("exchange", 75.0), ("data_wait", 25.0)]


@pytest.mark.parametrize(
    ("width", "height", "num_jobs", "num_ranks", "jobs_shown", "ranks_shown"),
    [
        (80, 24, 16, 4, 12, 4),  # all ranks, and jobs in what they leave
        (80, 24, 11, 64, 8, 7),  # half each, less the line that says how many more
        (80, 24, 1, 64, 1, 15),  # the ranks take what the jobs leave
        (200, 50, 11, 4, 11, 4),  # all of both
        (200, 50, 60, 2, 40, 2),  # no line is empty while jobs are left out
        (80, 10, 11, 64, 1, 1),  # too small for either: one of each
    ],
)
def test_jobs_and_ranks_share_the_lines_that_there_are(
    width: int, height: int, num_jobs: int, num_ranks: int, jobs_shown: int, ranks_shown: int
) -> None:
    jobs, job = _watched(num_jobs, num_ranks)
    lines = rendered(screen(jobs, job, height, "note"), width, height)
    text = "\n".join(lines)
    found_jobs = [line for line in lines if line.startswith("job-") and "running  " in line]
    found_ranks = [line for line in lines if "exchange" in line and " h " in line]
    assert (len(found_jobs), len(found_ranks)) == (jobs_shown, ranks_shown)
    assert (f"and {num_jobs - jobs_shown} more" in text) == (jobs_shown < num_jobs)
    assert (f"and {num_ranks - ranks_shown} other ranks" in text) == (ranks_shown < num_ranks)
    if height >= 24:
        assert len(lines) <= height
        cut = jobs_shown < num_jobs or ranks_shown < num_ranks
        assert not cut or len(lines) >= height - 1  # no space is left while something is left out


def test_the_job_that_is_shown_is_always_on_the_list() -> None:
    jobs = [{"id": f"job-{n}", "state": "succeeded"} for n in range(30)]
    for n in range(1, 30):
        lines = rendered(screen(jobs, {**jobs[n], "attempt": 1}, 17, "note"))
        table = [line.split()[0] for line in lines[2:12]]
        assert f"job-{n}" in table
        assert "and 20 more" in "\n".join(lines)


def test_a_terminal_shows_that_the_dashboard_went_away_and_goes_on(monkeypatch) -> None:
    class Flaky:
        url = "http://here"
        fails = False

        def jobs(self):
            if self.fails:
                raise ClusterError("cannot reach the dashboard: gone")
            return []

    dashboard, rounds = Flaky(), iter(range(3))

    def go_on(seconds: float) -> None:
        dashboard.fails = next(rounds) == 0
        if not dashboard.fails and next(rounds) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", go_on)
    text = io.StringIO()
    console = Console(file=text, width=80, height=24, force_terminal=True)
    with pytest.raises(KeyboardInterrupt):
        live.show(console, dashboard, None, 1.0)
    assert "gone; retrying" in text.getvalue()
    assert text.getvalue().count("no jobs yet") >= 2


def seen_at(scheduler: str | None, url: str | None) -> tuple[str, list[str]]:
    """The address that options lead to, and the jobs there."""
    with dashboard_of(scheduler, url) as found:
        return found.url, [job["id"] for job in found.jobs()]


def test_a_scheduler_or_a_url_leads_to_its_dashboard_with_the_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "s3cret-of-some-length\n")

    async def story(site: Site) -> None:
        site.submit("a")
        for place in ((site.scheduler.address, None), (None, site.url)):
            url, ids = await asyncio.to_thread(seen_at, *place)
            assert (url, ids) == (site.url if place[1] else place[0], ["a"])
        with pytest.raises(InputError), dashboard_of(None, site.url) as found:
            await asyncio.to_thread(found.job, "x/y")
        monkeypatch.setenv(TOKEN_VARIABLE, "another-of-some-length")
        with dashboard_of(None, site.url) as found:  # the server reads the variable, too
            monkeypatch.setenv(TOKEN_VARIABLE, "s3cret-of-some-length\n")
            with pytest.raises(ClusterError) as caught:
                await asyncio.to_thread(found.jobs)
        assert TOKEN_VARIABLE in caught.value.hint

    on_site(story, dashboard=True)


def test_what_is_no_dashboard_is_refused(at: Callable[[str], Dashboard]) -> None:
    for url in ("10.0.0.5:8787", "tcp://10.0.0.5:8786", "file:///etc/passwd"):
        with pytest.raises(InputError):
            at(url)
    for reply in (Reply(200, b"<html>"), Reply(404, b"no such page")):
        with ScriptedService(lambda seen, reply=reply: reply) as server:
            with pytest.raises(ClusterError) as caught:
                at(server.address).jobs()
            assert reply.status == 200 or "--preload distrain.preload" in caught.value.hint
    with pytest.raises(ClusterError) as caught:
        at(server.address).jobs()
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_tls: bool, at: Callable[[str], Dashboard]
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
        assert at(url).jobs() == []
        server.shutdown()
