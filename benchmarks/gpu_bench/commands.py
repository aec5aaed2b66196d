"""Running a command with a limit, and everything that it starts with it."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

GRACE_S = 5.0


@dataclass(frozen=True)
class Done:
    """How a command ended.

    Attributes:
        returncode: Its exit code, negative for a signal; `None` if its time was up.
        took_s: Wall time.
        stdout: What it wrote, also if it was stopped.
        stderr: The same.
    """

    returncode: int | None
    took_s: float
    stdout: str
    stderr: str


def run(
    arguments: Sequence[str],
    limit_s: float,
    folder: Path,
    cwd: Path,
    environment: Mapping[str, str],
) -> Done:
    """Run a command in a session of its own; nothing of that session outlives it.

    Output goes to files, so that a process which inherited a pipe cannot hold the reader up, and
    what a stopped command had written is there.

    Args:
        arguments: The command.
        limit_s: It is stopped after so long.
        folder: Where its output is kept meanwhile; it exists.
        cwd: Where it runs.
        environment: Its whole environment.
    """
    paths = folder / "stdout", folder / "stderr"
    began = time.perf_counter()
    with paths[0].open("wb") as stdout, paths[1].open("wb") as stderr:
        process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            cwd=cwd,
            env=dict(environment),
            start_new_session=True,
        )
        try:
            returncode: int | None = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            returncode = None
        finally:  # also where this process is interrupted
            took_s = time.perf_counter() - began
            end_session(process)
    told = [path.read_text(errors="replace") for path in paths]
    return Done(returncode, took_s, *told)


def end_session(process: "subprocess.Popen[bytes]") -> None:
    """Ask the command and its children to end, and kill those that do not.

    Its process group has its id while any member lives, even if the command itself has ended.
    """
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        if process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_S)
