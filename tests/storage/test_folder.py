"""Folders on the local disk and on another filesystem, alike."""

import mmap
import tempfile
import uuid

import numpy as np
import pytest

from distrain.storage.folder import PAGE_BYTES, open_folder


@pytest.fixture(params=["local", "memory"])
def folder(request, tmp_path):
    if request.param == "local":
        return open_folder(str(tmp_path / "a" / "b"))
    return open_folder(f"memory://{uuid.uuid4().hex}/b")


def write(folder, name, *parts):
    with folder.writer(name) as out:
        for part in parts:
            out.write(memoryview(part))


def test_what_is_written_is_read(folder):
    folder.make()
    write(folder, "x", b"hello ", b"world")
    assert folder.size("x") == 11
    assert folder.read("x") == b"hello world"
    part = bytearray(4)
    with folder.reader("x") as file:
        assert file.read_into(6, memoryview(part)) == 4
        assert bytes(part) == b"worl"
        assert file.read_into(9, memoryview(part)) == 2
        assert bytes(part[:2]) == b"ld"
    write(folder, "x", b"new")
    assert folder.read("x") == b"new"
    folder.sync()


@pytest.mark.parametrize("where", ["disk", "/dev/shm"])
@pytest.mark.parametrize("offset", [0, 1])
def test_whole_pages_pass_the_page_cache_where_they_can(where, offset, tmp_path):
    """Also on a filesystem in memory, and where memory is not aligned to pages."""
    if where == "disk":
        where = tmp_path
    pages = mmap.mmap(-1, 5 * PAGE_BYTES)
    pages[:] = np.random.default_rng(0).bytes(len(pages))
    content = memoryview(pages)
    parts = [
        content[offset : offset + PAGE_BYTES],
        content[offset + PAGE_BYTES : offset + 3 * PAGE_BYTES + 5],
        content[:PAGE_BYTES],  # at an odd place of the file
        memoryview(b""),
        content[3:4],
    ]
    with tempfile.TemporaryDirectory(dir=where) as name:
        folder = open_folder(name)
        write(folder, "x", *parts)
        assert folder.read("x") == b"".join(parts)


def test_long_reads_go_in_ranges(folder, monkeypatch):
    monkeypatch.setattr("distrain.storage.folder._RANGE_BYTES", 3)
    folder.make()
    write(folder, "x", b"0123456789abcdef")
    part = bytearray(11)
    with folder.reader("x") as file:
        assert file.read_into(2, memoryview(part)) == 11
    assert bytes(part) == b"23456789abc"


def test_folders_are_listed(folder):
    assert folder.folders() == []
    for name in ("two", "one"):
        folder.sub(name).make()
        write(folder.sub(name), "file", b"1")
    folder.put("file", b"2")
    assert folder.folders() == ["one", "two"]
    assert folder.sub("one").url == f"{folder.url}/one"


def test_small_files_are_put_and_renamed(folder):
    folder.make()
    folder.put("a", b"1")
    folder.put("a", b"2")
    folder.rename("a", "b")
    assert folder.read("b") == b"2"
    with pytest.raises(FileNotFoundError):
        folder.read("a")
    with pytest.raises(FileNotFoundError):
        folder.size("a")


def test_removal(folder):
    sub = folder.sub("sub")
    sub.make()
    write(sub, "a", b"1")
    write(sub, "b", b"1")
    sub.remove(first=["b", "none"])
    assert folder.folders() == []
    sub.remove(first=["b"])


def test_a_file_url_is_a_local_path(tmp_path):
    open_folder(f"file://{tmp_path}").put("a", b"1")
    assert (tmp_path / "a").read_bytes() == b"1"
