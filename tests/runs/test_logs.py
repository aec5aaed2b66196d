"""What ranks printed, and the first error in it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from wording import Wording

from distrain.cli.main import cli
from distrain.errors import InputError
from distrain.jobs.run_paths import RunPaths
from distrain.runs.logs import find_logs, first_error

INFO = "2026-03-01 12:00:{:02d},000 INFO distrain.rank: met its peers\n"
ERROR = "2026-03-01 12:00:{:02d},000 ERROR distrain.rank: {}\n"


def write(paths: RunPaths, attempt: int, rank: int, *lines: str) -> None:
    path = paths.log(rank, attempt)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines))


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    """Attempt 1: rank 1 fails, and rank 0 loses it before. Attempt 2: all is well."""
    paths = RunPaths(tmp_path)
    lost = "rank 0: RuntimeError: Connection closed by peer [127.0.0.1]:5000"
    write(paths, 1, 0, INFO.format(1), ERROR.format(2, lost))
    cause = "rank 1: ValueError: label is 2\nTraceback (most recent call last):\n  File x"
    write(paths, 1, 1, INFO.format(1), INFO.format(2), ERROR.format(3, cause), INFO.format(4))
    for rank in (0, 1, 10):
        write(paths, 2, rank, INFO.format(10 + rank))
    (paths.log(0, 2).parent / "rank-0.stacks").write_text("")
    return paths


def run(*words: object) -> str:
    result = CliRunner().invoke(cli, ["logs", *map(str, words)], catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_logs_are_found_by_attempt_and_rank(paths: RunPaths, wording: Wording) -> None:
    def found(**wanted: int) -> list[tuple[int, int]]:
        return [(log.attempt, log.rank) for log in find_logs(paths, **wanted)]

    assert found() == [(1, 0), (1, 1), (2, 0), (2, 1), (2, 10)]
    assert found(attempt=1) == [(1, 0), (1, 1)]
    assert found(rank=0) == [(1, 0), (2, 0)]
    wording.refused(InputError, lambda: find_logs(paths, attempt=3))


def test_only_a_folder_without_a_run_is_doubted(tmp_path: Path) -> None:
    hints = []
    for _ in range(2):
        with pytest.raises(InputError) as caught:
            find_logs(RunPaths(tmp_path))
        hints.append(caught.value.hint or "")
        RunPaths(tmp_path).run.touch()  # of an inline run, which has no logs
    assert ["run folder" in hint for hint in hints] == [True, False]


def test_the_first_error_is_not_a_lost_peer(paths: RunPaths) -> None:
    error, _ = first_error(find_logs(paths))
    assert error is not None
    assert (error.log.rank, error.line, error.of_peers) == (1, 3, False)
    assert error.text.splitlines()[-3:] == [
        "2026-03-01 12:00:03,000 ERROR distrain.rank: rank 1: ValueError: label is 2",
        "Traceback (most recent call last):",
        "  File x",
    ]
    assert error.at == "2026-03-01 12:00:03,000"


def test_a_lost_peer_is_the_first_error_only_where_there_is_nothing_else(paths: RunPaths) -> None:
    for lost in (
        "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms",
        "DistBackendError: NCCL communicator was aborted on rank 0",
        "DistBackendError: remote process exited or there was a network error",
        "DistNetworkError: failed to recv, got 0 bytes",
        "DistNetworkError: The client socket has failed to connect: Connection refused",
        "BrokenPipeError: [Errno 32] Broken pipe",
    ):
        write(paths, 1, 0, INFO.format(1), ERROR.format(2, f"rank 0: {lost}"))
        found = [first_error(find_logs(paths, **only))[0] for only in ({}, {"rank": 0})]
        assert [(e.log.rank, e.of_peers) for e in found if e] == [(1, False), (0, True)], lost
    full = "rank 0: DistBackendError: NCCL communicator was aborted: CUDA out of memory"
    write(paths, 1, 0, INFO.format(1), ERROR.format(2, full))
    error, _ = first_error(find_logs(paths))
    assert error is not None
    assert (error.log.rank, error.of_peers) == (0, False)
    assert first_error(find_logs(paths, attempt=2))[0] is None


def test_among_errors_the_earliest_comes_first_also_of_earlier_attempts(paths: RunPaths) -> None:
    write(paths, 2, 0, ERROR.format(1, "earlier by the clock, in a later attempt"))
    error, _ = first_error(find_logs(paths))
    assert error is not None
    assert (error.log.attempt, error.log.rank) == (1, 1)
    write(paths, 1, 0, INFO.format(1), "Fatal Python error: Segmentation fault\n", INFO.format(5))
    error, _ = first_error(find_logs(paths))
    assert error is not None
    assert (error.log.rank, error.at) == (0, "2026-03-01 12:00:01,000")


def test_the_command_prints_the_last_attempt_or_the_first_error(paths: RunPaths) -> None:
    headings = [line for line in run(paths.root).splitlines() if line.startswith("==>")]
    assert headings == [f"==> attempt 2, rank {rank} <==" for rank in (0, 1, 10)]
    assert run(paths.root, "--rank", 1) == INFO.format(11)
    assert "Connection closed" not in run(paths.root, "--first-error")
    paths.summary.write_text('{"restarts": [{"reason": "RankDied", "message": "rank 1 killed"}]}')
    told = ["rank 1 killed" in run(paths.root, "--first-error", *more)
            for more in ((), ("--rank", 0), ("--attempt", 2))]  # fmt: skip
    assert told == [False, True, True], "the coordinator's report where logs have no cause"
    for command in ("logs", "audit"):
        done = CliRunner().invoke(cli, [command, str(paths.root / "nope")])
        assert isinstance(done.exception, InputError)
        assert done.exception.where == {"path": str(paths.root / "nope")}


def test_ranks_that_logged_nothing_are_named_where_all_others_lost_a_peer(paths: RunPaths) -> None:
    write(paths, 1, 1, INFO.format(1), INFO.format(2))
    killed = "Rank 1 logged nothing: killed from outside"
    output = run(paths.root, "--first-error")
    assert output.index(killed) < output.index("==> attempt 1, rank 0")
    paths.summary.write_text('{"restarts": [{"reason": "RankDied", "message": "rank 1 killed"}]}')
    output = run(paths.root, "--first-error")
    assert output.startswith("The coordinator's report: RankDied: rank 1 killed\n")
    found = json.loads(run(paths.root, "--first-error", "--json"))
    assert (found["error"]["rank"], found["error"]["ranks_without_output"]) == (0, [1])
