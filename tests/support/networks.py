"""Hosts with a network of their own on one machine: Linux network namespaces on a bridge."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

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

    def part(self) -> None:
        """Have the two hosts not reach each other, while both reach this one."""
        for name, other in zip(self.names, reversed(self.addresses), strict=True):
            ip("-n", name, "route", "add", "blackhole", f"{other}/32")

    def join(self) -> None:
        """Undo that."""
        for name, other in zip(self.names, reversed(self.addresses), strict=True):
            ip("-n", name, "route", "del", "blackhole", f"{other}/32")

    def _remove(self) -> None:
        for words in (
            *(("netns", "del", name) for name in self.names),
            ("link", "del", "distrain-br"),
        ):
            subprocess.run(["ip", *words], check=False, capture_output=True)


class ManyHosts:
    """Any number of hosts on a bridge, whose names no other test's hosts have.

    Args:
        names: Of the hosts, at most 5 letters each.

    Attributes:
        addresses: Of each host, by name; this one has the first of the subnet.
    """

    def __init__(self, *names: str) -> None:
        self._id = os.getpid() % 10_000
        subnet = f"10.{214 + self._id // 256}.{self._id % 256}"
        self._bridge = f"dbr{self._id}"
        self.here = f"{subnet}.1"
        self.addresses = {name: f"{subnet}.{2 + number}" for number, name in enumerate(names)}

    def __enter__(self) -> Self:
        self._remove()
        ip("link", "add", self._bridge, "type", "bridge")
        ip("addr", "add", f"{self.here}/24", "dev", self._bridge)
        ip("link", "set", self._bridge, "up")
        for name, address in self.addresses.items():
            outside, namespace = f"d{self._id}{name}", self.namespace(name)
            ip("netns", "add", namespace)
            ip("link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", namespace)
            ip("link", "set", outside, "master", self._bridge)
            ip("link", "set", outside, "up")
            self.on(name, "link", "set", "lo", "up")
            self.on(name, "addr", "add", f"{address}/24", "dev", "eth0")
            self.on(name, "link", "set", "eth0", "up")
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    def namespace(self, name: str) -> str:
        """A host's network namespace."""
        return f"distrain-{self._id}-{name}"

    def on(self, name: str, *words: str) -> None:
        """Run `ip` on a host."""
        ip("-n", self.namespace(name), *words)

    def wrapper(self, name: str, *first: str) -> list[str]:
        """Words before a command that run it on a host with a name of its own.

        Args:
            first: Shell commands to run there before it, such as mounts, which only it sees.
        """
        steps = " && ".join((f"hostname {name}", *first, 'exec "$@"'))
        words = ["ip", "netns", "exec", self.namespace(name), "unshare", "--uts", "--mount"]
        return [*words, "sh", "-c", steps, "sh"]

    def _remove(self) -> None:
        for name in self.addresses:
            subprocess.run(
                ["ip", "netns", "del", self.namespace(name)], check=False, capture_output=True
            )
        subprocess.run(["ip", "link", "del", self._bridge], check=False, capture_output=True)
