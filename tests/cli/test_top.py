"""`distrain top` beside a real scheduler whose jobs are told, not run."""

import asyncio
import io

import pytest
from click.testing import CliRunner
from monitored import Site, beside, new_site
from rich.console import Console

from distrain.cli.main import cli
from distrain.cli.top import command
from distrain.cli.top.tables import largest_shares, screen
from distrain.errors import ClusterError
from distrain.jobs.api_answers import Job
from distrain.scheduler.lifecycle.messages import Cancel


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
    assert (await run("--once", "--scheduler", site.scheduler.address)).splitlines()[1:] == [
        "no jobs yet"
    ]
    site.submit("a")
    site.step("a", 10)
    site.queue("b")  # a job without workers ends at once
    site.coordinator.lifecycle.handle(Cancel("b"), 0.0)
    for more in ((), ("--job", "a")):  # `a` is the only unfinished job
        lines = (await run("--once", "--scheduler", site.scheduler.address, *more)).splitlines()
        ranks = next(n for n, line in enumerate(lines) if line.startswith("RANK"))
        jobs = next(n for n, line in enumerate(lines) if line.startswith("JOB"))
        about = "\n".join(lines[1:ranks])
        for part in ("a, attempt 1: running", "step 10 of 100", "slowest: rank 1", "time: "):
            assert part in about
        cells = lines[ranks + 2].split()
        assert cells[:4] == ["1", "host-1", "forward_backward", "10"]
        assert cells[5:9] == ["100.0", "ms", "25", "%"]
        assert [line.split()[0] for line in lines[jobs + 1 :]] == ["b", "a"]
    assert "b, attempt" in await run("--once", "--scheduler", site.scheduler.address, "--job", "b")


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
