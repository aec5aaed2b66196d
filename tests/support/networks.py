"""Hosts with a network of their own on one machine: Linux network namespaces on a bridge."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType

SUBNET = "10.213.57"


def why_not() -> str | None:
    """Why this machine cannot do it, if it cannot."""
    if os.geteuid() != 0:
        return "needs root, to make network namespaces"
    if shutil.which("ip") is None:
        return "needs `ip`, of Debian's iproute2"
    probe = f"dprobe{os.getpid()}"  # another process may ask at the same time
    made = subprocess.run(
        ["ip", "link", "add", probe, "type", "bridge"], capture_output=True, check=False
    )
    if made.returncode:
        return f"this kernel makes no bridges: {made.stderr.decode().strip()}"
    ip("link", "del", probe)
    return None


def ip(*words: str) -> None:
    """Run `ip`."""
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Hosts:
    """Two hosts, and this one, which reaches both through a bridge.

    Names and addresses are fixed: of processes that share the tests, one has them at a time.

    Attributes:
        here: This host's address.
        wrappers: Words before a command that run it on a host.
    """

    def __init__(self) -> None:
        self.here = f"{SUBNET}.1"
        self.names = ("distrain-a", "distrain-b")
        self.addresses = (f"{SUBNET}.2", f"{SUBNET}.3")
        self.wrappers = [["ip", "netns", "exec", name] for name in self.names]

    def __enter__(self) -> "Hosts":
        self._lock = (Path(tempfile.gettempdir()) / f"distrain-hosts-{os.getuid()}.lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._remove()
        ip("link", "add", "distrain-br", "type", "bridge")
        ip("addr", "add", f"{self.here}/24", "dev", "distrain-br")
        ip("link", "set", "distrain-br", "up")
        for number, (name, address) in enumerate(zip(self.names, self.addresses, strict=True)):
            outside, inside = f"distrain-v{number}", f"distrain-i{number}"
            ip("netns", "add", name)
            ip("link", "add", outside, "type", "veth", "peer", "name", inside)
            ip("link", "set", inside, "netns", name)
            ip("link", "set", outside, "master", "distrain-br")
            ip("link", "set", outside, "up")
            for words in (
                ("link", "set", "lo", "up"),
                ("addr", "add", f"{address}/24", "dev", inside),
                ("link", "set", inside, "up"),
            ):
                ip("-n", name, *words)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._remove()
        self._lock.close()

    def cut_off(self, host: int) -> None:
        """Pull a host's cable."""
        ip("link", "set", f"distrain-v{host}", "down")

    def plug_in(self, host: int) -> None:
        """Put it back."""
        ip("link", "set", f"distrain-v{host}", "up")

    def _remove(self) -> None:
        for words in (
            *(("netns", "del", name) for name in self.names),
            ("link", "del", "distrain-br"),
        ):
            subprocess.run(["ip", *words], check=False, capture_output=True)
