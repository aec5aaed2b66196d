import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from other_user import unprivileged
from small_disks import mounted
from synced_files import synced_and_renamed
from wording import Wording

from distrain.errors import DataError, OutputError
from distrain.storage.outputs import (
    atomic_dir,
    atomic_file,
    check_free,
    check_inputs_outside,
    check_output,
    check_place,
    check_writable,
    read_file,
    scratch_folder,
    translated_errors,
)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def tiny_disk(tmp_path):
    with mounted(tmp_path / "disk") as folder:
        yield folder


class Interrupted(BaseException):
    """Stands for a Ctrl-C, which comes while a task runs that writes into a folder."""

    running: Any
    folder: Any


def filled(whole, place, content, **options):
    """Write a file, or a folder of one file, and return what was under its name meanwhile."""
    with whole(place, **options) as unfinished:
        assert unfinished.parent == place.parent
        assert unfinished.name.startswith(f".{place.name}.partial-")
        (unfinished if whole is atomic_file else unfinished / "a").write_text(content)
        meanwhile = content_of(place)
        if isinstance(content, Failing):
            raise content.error
    return meanwhile


class Failing(str):
    error: BaseException


def content_of(place):
    if not place.exists():
        return None
    return place.read_text() if place.is_file() else (place / "a").read_text()


@pytest.mark.parametrize("whole", [atomic_file, atomic_dir])
def test_an_output_appears_when_it_is_whole_and_replaces_the_old_in_one_step(tmp_path, whole):
    final = tmp_path / "new" / "out"
    assert filled(whole, final, "old") is None
    options = {} if whole is atomic_file else {"replace": True}
    assert filled(whole, final, "new", **options) == "old"
    assert (content_of(final), names(final.parent)) == ("new", ["out"])


@pytest.mark.parametrize("whole", [atomic_file, atomic_dir])
@pytest.mark.parametrize("failure", [ValueError("no"), Interrupted(), DataError("bad row")])
def test_a_failure_leaves_what_was_there_and_nothing_else(tmp_path, whole, failure):
    half = Failing("half")
    half.error = failure
    with pytest.raises(type(failure)) as caught:
        filled(whole, tmp_path / "out", half)
    assert caught.value is failure
    assert names(tmp_path) == []
    filled(whole, tmp_path / "out", "old")
    with pytest.raises(type(failure)):
        filled(whole, tmp_path / "out", half, **({"replace": True} if whole is atomic_dir else {}))
    assert (content_of(tmp_path / "out"), names(tmp_path)) == ("old", ["out"])


def test_what_stands_in_the_way_is_kept_and_named(tmp_path, wording):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    for whole, name, options in (
        (atomic_file, "folder", {}),
        (atomic_file, "file/out", {}),
        (atomic_dir, "file/out", {}),
        (atomic_dir, "folder", {}),
        (atomic_dir, "file", {}),
        (atomic_dir, "file", {"replace": True}),
    ):
        write = partial(filled, whole, tmp_path / name, "x", **options)
        wording.refused(OutputError, write, path=str(tmp_path / name))
    for check in (check_free, check_output):
        for name in ("folder", "file"):
            early = partial(check, str(tmp_path / name), replace=False)
            wording.refused(OutputError, early, path=str(tmp_path / name))
    check_output(str(tmp_path / "folder"), replace=True)
    with pytest.raises(OutputError), atomic_file(tmp_path / "unwritten"):
        pass
    assert (names(tmp_path), content_of(tmp_path / "file")) == (["file", "folder"], "mine")


def test_of_what_others_may_have_put_there_only_a_plain_small_file_is_read(tmp_path):
    file, large, link, fifo = (tmp_path / name for name in ("file", "large", "link", "fifo"))
    file.write_bytes(b"12345")
    large.touch()
    os.truncate(large, 2**26 + 1)
    link.symlink_to(file)
    os.mkfifo(fifo)
    assert read_file(file, 5) == b"12345"
    num_open = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        for place in (large, link, fifo, Path("/dev/null")):
            with pytest.raises(OSError, match=f"{place}$"):
                read_file(place)
        with pytest.raises(IsADirectoryError):
            read_file(tmp_path)
    assert len(os.listdir("/proc/self/fd")) < num_open + 20, "they are closed"
    with pytest.raises(OSError, match="4"):
        read_file(file, 4)


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    done = synced_and_renamed(monkeypatch, tmp_path)
    with atomic_file(tmp_path / "out") as partial:
        partial.write_text("new")
    assert done == ["synced out", "named out", "synced ."]


@pytest.mark.parametrize("replace", [False, True])
def test_a_folder_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch, replace):
    if replace:
        (tmp_path / "out").mkdir()
    done = synced_and_renamed(monkeypatch, tmp_path)
    with atomic_dir(tmp_path / "out", replace=replace) as partial:
        (partial / "inner").mkdir()
        (partial / "inner" / "b").write_text("b")
        (partial / "a").write_text("a")
    named = done.index("named out") if not replace else len(done) - 2
    assert done[:4] == ["synced out/a", "synced out/inner", "synced out/inner/b", "synced out"]
    assert done[named:] == ["named out", "synced ."]


def test_a_full_disk_is_told_and_nothing_is_left(tiny_disk, wording):
    final = tiny_disk / "out"
    final.write_text("old")
    with pytest.raises(OutputError, match="No space left") as caught, atomic_file(final) as partial:
        partial.write_bytes(bytes(2**21))
    assert "The disk is full" in caught.value.hint
    assert final.read_text() == "old"
    assert names(tiny_disk) == ["out"]

    def write_folder():
        with atomic_dir(tiny_disk / "d") as folder:
            (folder / "a").write_bytes(bytes(2**19))
            (folder / "b").write_bytes(bytes(2**20))

    wording.refused(OutputError, write_folder)
    assert names(tiny_disk) == ["out"]


def test_an_error_inside_a_folder_names_the_final_place(tmp_path, wording):
    final = tmp_path / "out"

    def write():
        with atomic_dir(final) as partial:
            (partial / "taken").mkdir()
            with atomic_file(partial / "taken") as inner:
                inner.write_text("x")

    caught = wording.refused(OutputError, write, path=str(final / "taken"))
    assert isinstance(caught.__cause__, IsADirectoryError)
    assert names(tmp_path) == []


def test_a_folder_without_permission_is_named():
    with unprivileged() as folder:
        folder.chmod(0o500)
        with pytest.raises(OutputError) as caught:
            check_writable(folder)
    assert caught.value.where == {"path": str(folder)}
    assert isinstance(caught.value.__cause__, PermissionError)


def test_translated_errors_tells_os_errors_with_and_without_a_number():
    with pytest.raises(OutputError, match="could not write: odd") as caught, translated_errors("p"):
        raise OSError("odd")
    assert (caught.value.where, caught.value.hint) == (
        {"path": "p"},
        "Check the disk and the permissions.",
    )
    assert isinstance(caught.value.__cause__, OSError)
    with pytest.raises(KeyError), translated_errors("p"):
        raise KeyError("not ours")


@pytest.mark.parametrize("path", ["s3://bucket/out", "s3:/bucket/out", "gs://b", "file:///tmp/x"])
def test_a_url_is_no_output(tmp_path, monkeypatch, path, wording):
    monkeypatch.chdir(tmp_path)
    for check in (partial(check_free, replace=True), check_writable):
        wording.refused(OutputError, partial(check, path))
    for whole in (atomic_file, atomic_dir):
        with pytest.raises(OutputError, match="cannot be a URL"), whole(Path(path)):
            pass
    assert not list(tmp_path.iterdir())


def test_a_task_that_is_still_writing_does_not_bring_a_given_up_folder_back(tmp_path):
    given_up, writing = threading.Event(), threading.Event()

    def task(folder):
        with atomic_file(folder / "late.parquet", make_folder=False) as unfinished:
            unfinished.write_bytes(b"half")
            writing.set()
            assert given_up.wait(30)

    def run(pool):
        with atomic_dir(tmp_path / "out") as folder:
            running = pool.submit(task, folder)
            running.add_done_callback(lambda _: writing.set())
            assert writing.wait(30)
            error = Interrupted()
            error.running, error.folder = running, folder
            raise error

    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(Interrupted) as caught:
            run(pool)
        given_up.set()
        assert isinstance(caught.value.running.exception(30), OutputError)
        assert isinstance(pool.submit(task, caught.value.folder).exception(30), OutputError)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["there", "missing", "missing/and/its/folders"])
def test_a_place_is_tried_and_left_as_it_was(tmp_path: Path, name: str) -> None:
    (tmp_path / "there").mkdir()
    check_place(tmp_path / name)
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]


@pytest.mark.parametrize("name", ["file", "file/inside", "x" * 300])
def test_a_place_that_cannot_be_is_refused_and_nothing_is_made(
    tmp_path: Path, name: str, wording: Wording
) -> None:
    (tmp_path / "file").write_text("mine")
    wording.refused(OutputError, lambda: check_place(tmp_path / name))
    assert [path.name for path in tmp_path.rglob("*")] == ["file"]
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    ("out", "used", "refused"),
    [
        ("s3://made/out", "s3://made/out/part", True),
        ("s3://made/out/", "s3://made/out", True),
        ("s3://made/out", "s3://made/output", False),
        ("made/out", "made/out/part", True),
        ("made/out", "made/output", False),
        ("made", "s3://made/out", False),
        ("s3://made", "made/out", False),
    ],
)
def test_an_output_that_holds_an_input_is_refused(out: str, used: str, refused: bool) -> None:
    with pytest.raises(OutputError) if refused else nullcontext():
        check_inputs_outside(out, ["elsewhere", used])


def test_a_scratch_folder_goes_with_its_block_and_with_its_process(tmp_path: Path) -> None:
    left = tmp_path / ".distrain-staging.partial-0000000000000000"
    left.mkdir()
    os.utime(left, (0, 0))
    with scratch_folder(tmp_path) as kept, scratch_folder(tmp_path) as other:
        Path(other, "half").touch()
        assert names(tmp_path) == sorted(Path(path).name for path in (kept, other))
    assert names(tmp_path) == []


def test_a_link_stays_and_what_it_names_is_replaced(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "disk")
    with atomic_dir(tmp_path / "out", replace=True) as folder:
        (folder / "new").write_text("new")
    assert names(tmp_path) == ["disk", "out"]
    assert (tmp_path / "out").is_symlink()
    assert names(tmp_path / "disk") == ["new"]


def test_an_interrupt_while_the_new_folder_takes_its_place_keeps_the_old(tmp_path, monkeypatch):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old").write_text("old")
    rename = Path.rename

    def interrupted(self, target):
        if Path(target) == tmp_path / "out" and ".partial-" in self.name:
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    with (
        pytest.raises(KeyboardInterrupt),
        atomic_dir(tmp_path / "out", replace=True) as folder,
    ):
        (folder / "new").write_text("new")
    assert names(tmp_path) == ["out"]
    assert names(tmp_path / "out") == ["old"]


def test_the_slower_of_two_writers_does_not_replace_the_faster(tmp_path, wording):
    final = tmp_path / "out"

    def write_slowly():
        with atomic_dir(final) as partial:
            (partial / "slow").write_text("slow")
            final.mkdir()
            (final / "fast").write_text("fast")

    wording.refused(OutputError, write_slowly)
    assert (names(final), names(tmp_path)) == (["fast"], ["out"])
