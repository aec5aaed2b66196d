"""In which order files are synced and named: what would survive a loss of power."""

import os
import re
from pathlib import Path

import pytest


def synced_and_renamed(monkeypatch: pytest.MonkeyPatch, root: Path) -> list[str]:
    """A list that gets `synced PATH` and `named PATH`, below `root`, as they happen.

    A file that has a temporary name yet is told by its final one.
    """
    done: list[str] = []
    original_fsync, original_rename = os.fsync, os.rename

    def told(path: str) -> str:
        name = os.path.relpath(path, root)
        return re.sub(r"\.([^/]+)\.partial-[0-9a-f]+", r"\1", name)

    def fsync(descriptor: int) -> None:
        original_fsync(descriptor)
        done.append(f"synced {told(os.readlink(f'/proc/self/fd/{descriptor}'))}")

    def rename(source: Path, target: Path) -> None:
        original_rename(source, target)
        done.append(f"named {told(os.fspath(target))}")

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "rename", rename)
    return done
