"""What ranks printed."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from wording import Wording

from distrain.cli.main import cli
from distrain.errors import InputError
from distrain.jobs.run_paths import RunPaths
from distrain.runs.logs import find_logs

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
    (paths.log(0, 2).parent / "rank-0.txt").write_text("")
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


def test_the_command_prints_the_last_attempt(paths: RunPaths) -> None:
    headings = [line for line in run(paths.root).splitlines() if line.startswith("==>")]
    assert headings == [f"==> attempt 2, rank {rank} <==" for rank in (0, 1, 10)]
    assert run(paths.root, "--rank", 1) == INFO.format(11)
    for command in ("logs", "audit"):
        done = CliRunner().invoke(cli, [command, str(paths.root / "nope")])
        assert isinstance(done.exception, InputError)
        assert done.exception.where == {"path": str(paths.root / "nope")}
