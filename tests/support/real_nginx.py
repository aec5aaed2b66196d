"""nginx for tests, as one process group with all its files in a folder."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from waiting import until


def find_nginx() -> str:
    """The program; skips the test where there is none."""
    found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if found is None:
        pytest.skip("there is no nginx on this machine: install nginx-light")
    return found


def below(config: str, folder: Path) -> str:
    """A configuration whose temporary files lie in a folder, for whoever runs it."""
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    if os.getuid() == 0:  # its workers shall get into the test's folder
        config = f"user root;\n{config}"
    return config.replace("http {", f"http {{\n{temporary}", 1)


def checked(config: Path) -> str:
    """What `nginx -t` says; it ends with `test is successful` where all is well."""
    folder = config.parent
    done = subprocess.run(
        [find_nginx(), "-t", "-p", folder, "-c", config, "-e", folder / "error.log"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    said: str = done.stderr
    return said.strip()


@contextmanager
def running(config: Path, answers: Callable[[], bool]) -> Iterator[None]:
    """Run it in the block, from when it answers on."""
    folder = config.parent
    process = subprocess.Popen(
        [find_nginx(), "-p", folder, "-c", config, "-e", folder / "error.log", "-g", "daemon off;"],
        stdout=subprocess.DEVNULL,
    )
    try:
        until(lambda: process.poll() is not None or answers(), "nginx answers")
        assert process.poll() is None, (folder / "error.log").read_text()
        yield
    finally:
        process.terminate()
        process.wait(timeout=90)
