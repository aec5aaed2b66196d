"""Scripts of tests, run as forks of one process that has torch loaded, which takes five seconds.

`run_script` is for the test. Run as a script itself this is that process, which lives as long as
the process of the tests. A script finds a process of one thread that has imported what a rank does.
"""

import atexit
import gc
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import traceback
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import distrain

SUPPORT = Path(__file__).parent
ORIGIN = "DISTRAIN_TESTED"
"""The environment's variable that tells a script from where the tests import distrain."""


def run_script(
    script: Path, *words: object, timeout_s: float = 240.0
) -> subprocess.CompletedProcess[str]:
    """Run a script to its end, with what it printed.

    Raises:
        subprocess.TimeoutExpired: It took longer; it is killed with all that it started.
    """
    command = [str(script), *map(str, words)]
    with TemporaryDirectory() as name:
        printed = [Path(name, stream) for stream in ("stdout", "stderr")]
        server = _server()
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(json.dumps([command, *map(str, printed)]) + "\n")
        server.stdin.flush()
        if not select.select([server.stdout], [], [], timeout_s)[0]:
            _end(server)
            _server.cache_clear()
            raise subprocess.TimeoutExpired(command, timeout_s, stderr=printed[1].read_bytes())
        code = int(server.stdout.readline())
        return subprocess.CompletedProcess(command, code, *(path.read_text() for path in printed))


def environment_of_ranks() -> dict[str, str]:
    """A script's environment: it imports what the tests do, and then `check_origin` agrees."""
    paths = [str(SUPPORT), os.environ.get("PYTHONPATH", "")]
    return os.environ | {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        ORIGIN: str(origin()),
    }


def origin() -> Path:
    """The folder from which this process has imported distrain."""
    return Path(distrain.__file__).resolve().parent


@cache
def _server() -> subprocess.Popen[str]:
    """Started for the first script."""
    server = subprocess.Popen(
        [sys.executable, __file__],
        env=environment_of_ranks(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    atexit.register(_end, server)
    return server


def _end(server: subprocess.Popen[str]) -> None:
    """End it and all that its scripts have left."""
    if server.poll() is None:
        os.killpg(server.pid, signal.SIGKILL)
    server.communicate()


def _serve() -> None:
    import distrain.train.loop.trainer  # noqa: F401  # which brings torch

    gc.freeze()  # forks do not copy what a collection would touch

    for line in sys.stdin:
        command, stdout, stderr = json.loads(line)
        child = os.fork()
        if child == 0:
            _live(command, stdout, stderr)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _live(command: list[str], stdout: str, stderr: str) -> None:
    """Be the script; never returns."""
    for stream, path in enumerate((os.devnull, stdout, stderr)):
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


if __name__ == "__main__":
    _serve()
