"""Scripts and gangs of ranks, run as forks of one process that has torch loaded.

Loading torch takes five seconds, so one server process loads it for all tests of a test process.
`run_script` runs a script, and `gloo_ranks.on_ranks` a function on gloo ranks. Run as a script
itself, this module is the server: a process with one thread, which is safe to fork. The server ends
when the test process does, and its forks end when it does, whatever ends them.
"""

import atexit
import contextlib
import ctypes
import faulthandler
import gc
import importlib.util
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping
from datetime import timedelta
from functools import cache
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import distrain

SUPPORT = Path(__file__).parent
ORIGIN = "DISTRAIN_TESTED"
"""The environment variable that tells the server from where the tests import distrain."""

KEPT_SIZES = (1, 2, 3, 4)
"""Gangs of these sizes are kept for the next scenario; larger ones end after each."""

ABORTED_S = 5.0
"""How long ranks that hang have to write their stacks."""


def run_script(
    script: Path, *words: object, timeout_s: float = 240.0
) -> subprocess.CompletedProcess[str]:
    """Run a script to its end; return what it printed.

    Raises:
        subprocess.TimeoutExpired: It took longer; it is killed with all that it started.
    """
    command = [str(script), *map(str, words)]
    with TemporaryDirectory() as name:
        printed = [Path(name, stream) for stream in ("stdout", "stderr")]
        request = {"kind": "script", "command": command, "printed": printed}
        try:
            code = ask(request, timeout_s)
        except TimeoutError:
            stderr = printed[1].read_bytes()
            raise subprocess.TimeoutExpired(command, timeout_s, stderr=stderr) from None
        return subprocess.CompletedProcess(command, code, *(path.read_text() for path in printed))


def ask(request: Mapping[str, object], timeout_s: float) -> Any:
    """Return the server's answer to a request.

    Raises:
        TimeoutError: It took longer; the server is killed with all that it started.
        RuntimeError: The server ended, and wrote why to stderr.
    """
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(json.dumps(request, default=str) + "\n")
    server.stdin.flush()
    try:
        if not select.select([server.stdout], [], [], timeout_s)[0]:
            raise TimeoutError(f"no answer within {timeout_s:g} s")
        if not (answer := server.stdout.readline()):
            raise RuntimeError("the server of scripts and ranks ended")
    except BaseException:  # also an interrupt: the next request must not read this one's answer
        _end(server)
        _server.cache_clear()
        raise
    return json.loads(answer)


def environment_of_ranks() -> dict[str, str]:
    """The server's environment: it imports what the tests do, and then `check_origin` agrees."""
    paths = [str(SUPPORT), os.environ.get("PYTHONPATH", "")]
    return os.environ | {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        ORIGIN: str(origin()),
    }


def origin() -> Path:
    """Return the folder from which this process has imported distrain."""
    return Path(distrain.__file__).resolve().parent


def check_origin() -> None:
    """Refuse to test another distrain than the tests import.

    Raises:
        RuntimeError: It was imported from somewhere else.
    """
    expected = os.environ.get(ORIGIN)
    if expected not in (None, str(origin())):
        raise RuntimeError(f"the ranks import distrain from {origin()}, the tests from {expected}")


def load_script(path: Path) -> ModuleType:
    """Load a file as a module, for what the test shares with its ranks."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def _server() -> subprocess.Popen[str]:
    """Start the server for the first request."""
    server = subprocess.Popen(
        [sys.executable, __file__, str(os.getpid())],
        env=environment_of_ranks(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a Ctrl-C is for the tests
    )
    atexit.register(_end, server)
    return server


def _end(server: subprocess.Popen[str]) -> None:
    """End the server and all that its scripts have left."""
    if server.poll() is None:
        os.killpg(server.pid, signal.SIGKILL)
    server.communicate()


# The server's side


def _serve(parent: int) -> None:
    _die_with(parent)
    import distrain.train.loop.trainer  # noqa: F401  # which brings torch

    check_origin()
    parents: list[int] = []
    os.register_at_fork(
        before=lambda: parents.append(os.getpid()), after_in_child=lambda: _die_with(parents[-1])
    )
    gc.freeze()  # forks do not copy what a collection would touch

    gangs: dict[int, _Gang] = {}
    for line in sys.stdin:
        request = json.loads(line)
        answer = _ran(**request) if request.pop("kind") == "script" else _computed(gangs, **request)
        print(json.dumps(answer), flush=True)
    os.killpg(0, signal.SIGKILL)


def _die_with(parent: int) -> None:
    """Have the kernel end this process when its parent's thread ends, however that comes."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        os._exit(1)


def _ran(command: list[str], printed: list[str]) -> int:
    """Run a script in a fork; return its exit code."""
    child = os.fork()
    if child == 0:
        _live(command, printed)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _live(command: list[str], printed: list[str]) -> None:
    """Be the script; never returns."""
    for stream, path in enumerate((os.devnull, *printed)):
        flags = os.O_WRONLY | os.O_CREAT if stream else os.O_RDONLY
        os.dup2(os.open(path, flags), stream)
    sys.argv, code = command, 1
    sys.path[0] = str(Path(command[0]).parent)
    try:
        runpy.run_path(command[0], run_name="__main__")
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    # gloo sometimes aborts at interpreter exit, after all work is done.
    os._exit(code)


def _computed(gangs: dict[int, "_Gang"], num_ranks: int, timeout_s: float, **work: Any) -> str:
    """Run a scenario on the gang of a size; return what went wrong, empty for nothing."""
    gang = gangs.pop(num_ranks, None) or _Gang(num_ranks)
    trouble = gang.run(work, time.monotonic() + timeout_s)
    if trouble or num_ranks not in KEPT_SIZES:
        gang.end()
    else:
        gangs[num_ranks] = gang
    return trouble


class _Gang:
    """Forks of the server that are the ranks of one process group."""

    def __init__(self, num_ranks: int) -> None:
        fork = get_context("fork")
        store = os.memfd_create("store")  # no file that an interrupted run could leave
        self.ranks = {}
        for rank in range(num_ranks):
            ours, theirs = fork.Pipe()
            process = fork.Process(target=_be_rank, args=(theirs, store, rank, num_ranks))
            process.start()
            theirs.close()
            self.ranks[ours] = (rank, process)
        os.close(store)

    def run(self, work: dict[str, Any], deadline_s: float) -> str:
        """Have each rank do some work; return the first trouble."""
        for fork_pipe in self.ranks:
            with contextlib.suppress(BrokenPipeError):  # read below as its end
                fork_pipe.send(work)
        waiting = set(self.ranks)
        while waiting:
            ready = wait(waiting, deadline_s - time.monotonic())
            if not ready:
                return self._hangs(waiting)
            for pipe in ready:
                assert isinstance(pipe, Connection)
                rank, process = self.ranks[pipe]
                try:
                    trouble = pipe.recv()
                except EOFError:
                    process.join()
                    trouble = f"it ended with exit code {process.exitcode}"
                if trouble:
                    return f"rank {rank}: {trouble}"
                waiting.discard(pipe)
        return ""

    def _hangs(self, waiting: set[Any]) -> str:
        """Have ranks that hang write where they are."""
        hanging = [self.ranks[pipe] for pipe in waiting]
        for _, process in hanging:
            assert process.pid is not None
            os.kill(process.pid, signal.SIGABRT)
        for _, process in hanging:
            process.join(ABORTED_S)
        return f"ranks hang: {sorted(rank for rank, _ in hanging)}"

    def end(self) -> None:
        """Kill the ranks; gloo sometimes aborts at interpreter exit, after all work is done."""
        for pipe, (_, process) in self.ranks.items():
            process.kill()
            process.join()
            pipe.close()


def _be_rank(pipe: Any, store: int, rank: int, num_ranks: int) -> None:
    """Compute what the server asks for, until it ends the gang."""
    import torch
    from torch import distributed as dist

    os.dup2(2, 1)  # the server's stdout is for its answers
    torch.set_num_threads(1)
    group = f"/proc/self/fd/{store}"
    dist.init_process_group(
        "gloo",
        store=dist.FileStore(group, num_ranks),
        rank=rank,
        world_size=num_ranks,
        timeout=timedelta(seconds=180),
    )
    faulthandler.enable(2)
    while True:
        work = pipe.recv()
        output = os.open(Path(work["folder"], "output"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        trouble = ""
        try:
            scenario = getattr(load_script(Path(work["file"])), work["name"])
            found = scenario(rank, num_ranks, *work["arguments"])
            torch.save(found, Path(work["folder"], f"{rank}.pt"))
        except BaseException:
            trouble = traceback.format_exc()
        pipe.send(trouble)


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
