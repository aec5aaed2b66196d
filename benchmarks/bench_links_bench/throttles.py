"""Control groups that limit the CPU time and disk reads of their processes."""

import errno
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Self

ROOT = Path("/sys/fs/cgroup")
PERIOD_US = 20_000


class Throttle:
    """A control group (version 1 or 2) whose processes can be slowed down.

    Args:
        name: Name of the group. It is made on entry, and removed on exit once its processes have
            ended.
        root: Where control groups are mounted.

    Attributes:
        wrapper: Words to put before a command, to run it in the group.
    """

    def __init__(self, name: str, root: Path = ROOT) -> None:
        self._root = root
        self._is_v2 = (root / "cgroup.controllers").exists()
        self._cpu, self._io = (
            root / name if self._is_v2 else root / controller / name
            for controller in ("cpu", "blkio")
        )
        self._folders = sorted({self._cpu, self._io})
        into = " && ".join(f"echo $$ > {folder}/cgroup.procs" for folder in self._folders)
        self.wrapper = ["sh", "-c", f'{into} && exec "$@"', "sh"]

    def __enter__(self) -> Self:
        if self._is_v2:
            (self._root / "cgroup.subtree_control").write_text("+cpu +io")
        for folder in self._folders:
            folder.mkdir()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for folder in self._folders:
            _remove(folder)

    def limit_cores(self, cores: float, share: float) -> None:
        """Limit the processes to `cores` cores, and to `share` of the normal CPU weight.

        Both limits are needed: the weight has no effect while cores are idle, and the quota has
        none if each process gets less than it anyway.
        """
        quota_us = round(cores * PERIOD_US)
        if self._is_v2:
            (self._cpu / "cpu.weight").write_text(str(round(100 * share)))
            (self._cpu / "cpu.max").write_text(f"{quota_us} {PERIOD_US}")
            return
        (self._cpu / "cpu.shares").write_text(str(round(1024 * share)))
        (self._cpu / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (self._cpu / "cpu.cfs_quota_us").write_text(str(quota_us))

    def limit_reads(self, disk: str, bytes_per_s: int) -> None:
        """Limit all processes together to reading `bytes_per_s` from `disk` (see `disk_of`)."""
        if self._is_v2:
            (self._io / "io.max").write_text(f"{disk} rbps={bytes_per_s}")
        else:
            (self._io / "blkio.throttle.read_bps_device").write_text(f"{disk} {bytes_per_s}")


def why_not(folder: Path, root: Path = ROOT) -> str | None:
    """Return why processes cannot be slowed down here; None if they can."""
    v2 = root / "cgroup.controllers"
    has = v2.read_text().split() if v2.exists() else []
    files = ("cpu/cpu.cfs_quota_us", "blkio/blkio.throttle.read_bps_device")
    if not {"cpu", "io"} <= set(has) and not all((root / file).exists() for file in files):
        return f"needs control groups of CPU and disks in {root}"
    if disk_of(folder) is None:
        return f"{folder} is on no disk of its own, whose reads could be slowed down"
    return None


def disk_of(folder: Path) -> str | None:
    """Return the disk that holds a folder, as `MAJOR:MINOR`; None if it is unknown."""
    device = folder.stat().st_dev
    known = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}")
    if not known.exists():
        return None
    whole = known.resolve().parent if (known / "partition").exists() else known
    return (whole / "dev").read_text().strip()


def _remove(folder: Path, timeout_s: float = 20.0) -> None:
    """Remove a group once the kernel has removed its last process."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            folder.rmdir()
            return
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > deadline_s:
                raise
        time.sleep(0.05)
