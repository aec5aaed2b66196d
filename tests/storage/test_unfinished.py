"""Folders that are being made, and what is left of them when their process is killed."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from distrain.errors import OutputError
from distrain.storage.outputs import atomic_dir, check_free
from distrain.storage.unfinished import partial_name

_MAKER = """
import sys, time
from distrain.storage.outputs import atomic_dir
with atomic_dir(sys.argv[1], replace=True) as folder:
    (folder / "half").write_text("half")
    print(folder.name, flush=True)
    sys.stdin.read()
"""


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


@contextmanager
def in_progress_error(final: Path) -> Iterator[str]:
    """Another process makes the folder; it is killed at the end. Yields the unfinished one."""
    process = subprocess.Popen(
        [sys.executable, "-c", _MAKER, str(final)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


def test_a_second_maker_is_refused_at_its_beginning_and_a_killed_one_is_cleared_up(
    tmp_path, wording
):
    final = tmp_path / "out"
    (tmp_path / ".out-other.partial-0123456789abcdef").mkdir()  # of an output of another name
    with in_progress_error(final) as unfinished:
        for replace in (False, True):
            making = atomic_dir(final, replace=replace)
            for begin in (partial(check_free, final, replace), making.__enter__):
                with pytest.raises(OutputError) as caught:
                    begin()
                assert caught.value.where["unfinished"] == str(tmp_path / unfinished)
                wording(caught.value, unfinished=unfinished)
        assert names(tmp_path / unfinished) == ["half"]
        with atomic_dir(tmp_path / "out2"):
            pass
    assert unfinished in names(tmp_path)
    check_free(final, replace=False)
    with atomic_dir(final) as folder:
        assert unfinished not in names(tmp_path)
        (folder / "whole").touch()
    assert names(final) == ["whole"]
    assert names(tmp_path) == [".out-other.partial-0123456789abcdef", "out", "out2"]


def test_what_a_process_of_another_machine_makes_is_left_until_it_is_old(tmp_path):
    there = tmp_path / ".out.partial-0000000000000000"
    (there / "inner").mkdir(parents=True)
    os.utime(there, (0, 0))
    for final in ("out", "again"):
        with atomic_dir(tmp_path / "out", replace=True):
            assert there.is_dir() == (final == "out")
        os.utime(there / "inner", (0, 0)) if final == "out" else None


def test_a_folder_that_was_to_be_replaced_by_a_killed_process_comes_back(tmp_path):
    final = tmp_path / "out"
    final.mkdir()
    (final / "old").touch()
    left = partial_name(final).name.replace(".partial-", ".replaced-")
    final.rename(tmp_path / left)
    with pytest.raises(OutputError, match="exists already"), atomic_dir(final):
        pass
    assert names(final) == ["old"]
    assert names(tmp_path) == ["out"]


def test_unfinished_files_of_killed_tasks_are_no_part_of_the_folder(tmp_path):
    with atomic_dir(tmp_path / "out") as folder:
        (folder / "train").mkdir()
        (folder / "train" / "part-0").touch()
        (folder / "train" / ".hidden").touch()
        partial_name(folder / "train" / "part-0").touch()
    assert names(tmp_path / "out" / "train") == [".hidden", "part-0"]
