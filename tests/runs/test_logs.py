"""What ranks printed, and the first error in it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from distrain.cli.main import cli
from distrain.errors import InputError
from distrain.run_paths import RunPaths
from distrain.runs.logs import find_logs, first_error
from distrain.worker.log_pump import BoundedLog

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


def test_logs_are_found_by_attempt_and_rank(paths: RunPaths) -> None:
    def found(**wanted: int) -> list[tuple[int, int]]:
        return [(log.attempt, log.rank) for log in find_logs(paths, **wanted)]

    assert found() == [(1, 0), (1, 1), (2, 0), (2, 1), (2, 10)]
    assert found(attempt=1) == [(1, 0), (1, 1)]
    assert found(rank=0) == [(1, 0), (2, 0)]
    with pytest.raises(InputError, match="no such log") as caught:
        find_logs(paths, attempt=3)
    assert "attempt 2 rank 10" in str(caught.value)


def test_a_folder_without_logs_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no rank of this run has printed anything"):
        find_logs(RunPaths(tmp_path))


def test_the_first_error_is_not_a_lost_peer(paths: RunPaths) -> None:
    error = first_error(find_logs(paths))
    assert error is not None
    assert (error.log.rank, error.line, error.of_peers) == (1, 3, False)
    assert error.text.splitlines()[-3:] == [
        "2026-03-01 12:00:03,000 ERROR distrain.rank: rank 1: ValueError: label is 2",
        "Traceback (most recent call last):",
        "  File x",
    ]
    assert error.at == "2026-03-01 12:00:03,000"


def test_among_errors_the_earliest_comes_first_also_of_earlier_attempts(paths: RunPaths) -> None:
    write(paths, 2, 0, ERROR.format(1, "earlier by the clock, in a later attempt"))
    error = first_error(find_logs(paths))
    assert error is not None
    assert (error.log.attempt, error.log.rank) == (1, 1)
    write(paths, 1, 0, INFO.format(1), "Fatal Python error: Segmentation fault\n", INFO.format(5))
    error = first_error(find_logs(paths))
    assert error is not None
    assert (error.log.rank, error.at) == (0, "2026-03-01 12:00:01,000")


def test_a_lost_peer_is_told_where_there_is_nothing_else(paths: RunPaths) -> None:
    error = first_error(find_logs(paths, rank=0))
    assert error is not None
    assert error.of_peers
    assert first_error(find_logs(paths, attempt=2)) is None


@pytest.mark.parametrize(
    "lost",
    [
        "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms",
        "DistBackendError: NCCL communicator was aborted on rank 0",
        "DistBackendError: remote process exited or there was a network error",
        "DistNetworkError: failed to recv, got 0 bytes",
        "DistNetworkError: The client socket has failed to connect: Connection refused",
        "BrokenPipeError: [Errno 32] Broken pipe",
    ],
)
def test_a_rank_that_lost_a_peer_is_not_blamed_whatever_its_library_calls_that(
    paths: RunPaths, lost: str
) -> None:
    write(paths, 1, 0, INFO.format(1), ERROR.format(2, f"rank 0: {lost}"))
    error = first_error(find_logs(paths))
    assert error is not None
    assert error.log.rank == 1


def test_a_full_gpu_that_nccl_reports_is_a_cause(paths: RunPaths) -> None:
    full = "rank 0: DistBackendError: NCCL communicator was aborted: CUDA out of memory"
    write(paths, 1, 0, INFO.format(1), ERROR.format(2, full))
    error = first_error(find_logs(paths))
    assert error is not None
    assert (error.log.rank, error.of_peers) == (0, False)


def test_the_command_prints_the_last_attempt_with_headings(paths: RunPaths) -> None:
    output = run(paths.root)
    headings = [line for line in output.splitlines() if line.startswith("==>")]
    assert headings == [f"==> attempt 2, rank {rank} <==" for rank in (0, 1, 10)]
    assert run(paths.root, "--rank", 1) == INFO.format(11)
    assert run(paths.root, "--rank", 0, "--attempt", 1).startswith(INFO.format(1))


def test_the_command_prints_the_first_error_or_the_coordinators_account(paths: RunPaths) -> None:
    output = run(paths.root, "--first-error")
    assert output.startswith(f"==> attempt 1, rank 1: {paths.log(1, 1)}, line 3 <==\n")
    assert "Connection closed" not in output
    paths.summary.write_text('{"restarts": [{"reason": "RankDied", "message": "rank 1 killed"}]}')
    assert "coordinator" not in run(paths.root, "--first-error")
    account = "The coordinator's account: RankDied: rank 1 killed"
    assert account in run(paths.root, "--first-error", "--rank", 0)
    assert account in run(paths.root, "--first-error", "--attempt", 2)


def test_ranks_that_logged_nothing_are_named_where_all_others_lost_a_peer(paths: RunPaths) -> None:
    write(paths, 1, 1, INFO.format(1), INFO.format(2))
    killed = "Rank 1 logged nothing: killed from outside"
    output = run(paths.root, "--first-error")
    assert output.index(killed) < output.index("==> attempt 1, rank 0")
    paths.summary.write_text('{"restarts": [{"reason": "RankDied", "message": "rank 1 killed"}]}')
    output = run(paths.root, "--first-error")
    assert output.startswith("The coordinator's account: RankDied: rank 1 killed\n")
    found = json.loads(run(paths.root, "--first-error", "--json"))
    assert (found["error"]["rank"], found["error"]["silent_ranks"]) == (0, [1])


def test_the_log_of_a_rank_that_prints_very_much_is_whole_while_it_prints(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    log = BoundedLog(paths.log(0, 1), kept_bytes=40)
    log.write(b"the beginning\n" + b"x" * 100 + b"\nthe end")
    assert run(tmp_path).endswith("the end\n")
    log.close()
    assert run(tmp_path).endswith("the end\n")


@pytest.mark.parametrize("command", ["logs", "audit"])
def test_a_folder_that_is_not_there_is_named(command, tmp_path):
    done = CliRunner().invoke(cli, [command, str(tmp_path / "nope")])
    assert isinstance(done.exception, InputError)
    assert done.exception.message == "no such folder"
    assert done.exception.where == {"path": str(tmp_path / "nope")}
