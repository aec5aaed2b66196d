"""Runs a command with a time limit, and ends all processes that it started."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

GRACE_S = 5.0
_running: set["subprocess.Popen[bytes]"] = set()


@dataclass(frozen=True)
class Done:
    """The result of a command.

    Attributes:
        returncode: Its exit code, negative for a signal; `None` if it reached its time limit.
        took_s: Wall time.
        stdout: Its output, also if it was stopped.
        stderr: Its errors, also if it was stopped.
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
    """Run a command in its own session, and end all processes of that session afterwards.

    Output goes to files: a child that inherited a pipe cannot block the reader, and the output of a
    stopped command is kept.

    Args:
        arguments: The command.
        limit_s: Time limit in seconds.
        folder: An existing folder for its output.
        cwd: Its working directory.
        environment: Its complete environment.
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
        _running.add(process)
        try:
            returncode: int | None = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            returncode = None
        finally:  # also if this process is interrupted
            took_s = time.perf_counter() - began
            end_session(process)
            _running.discard(process)
    told = [path.read_text(errors="replace") for path in paths]
    return Done(returncode, took_s, *told)


def end_all() -> None:
    """End the commands that other threads are running, so that these threads end."""
    for process in tuple(_running):
        end_session(process)


def end_session(process: "subprocess.Popen[bytes]") -> None:
    """Ask the command and its children to end, and kill those that do not.

    The id of its process group stays valid while any member lives, even if the command has ended.
    """
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        if process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_S)
