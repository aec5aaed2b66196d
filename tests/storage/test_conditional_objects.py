"""Conditional writes to an S3 server: real HTTP."""

import pytest
from object_stores import serving

from distrain.errors import InputError
from distrain.storage.objects import Changed, Objects


@pytest.fixture(scope="module")
def objects():
    with serving("conditional"):
        yield Objects("s3://conditional/some/run")


def test_an_object_is_made_once(objects):
    version = objects.create("a", b"one")
    with pytest.raises(Changed):
        objects.create("a", b"two")
    assert objects.read("a") == (b"one", version)


def test_only_who_saw_the_last_version_replaces_it(objects):
    first = objects.create("b", b"one")
    second = objects.replace("b", b"two", first)
    with pytest.raises(Changed):
        objects.replace("b", b"three", first)
    assert objects.read("b") == (b"two", second)
    objects.delete("b")
    with pytest.raises(Changed):
        objects.replace("b", b"four", second)
    with pytest.raises(FileNotFoundError):
        objects.read("b")
    with pytest.raises(FileNotFoundError):
        objects.find("b")
    objects.delete("b")


def test_ranges_and_lists(objects):
    for name in ("list/a", "list/b/c", "list/d"):
        objects.put(name, b"0123456789")
    assert objects.read_range("list/a", 3, 4) == b"3456"
    assert objects.read_range("list/a", 8, 4) == b"89"
    assert objects.read_range("list/a", 10, 4) == b""
    assert [found.name for found in objects.find_all("list/")] == ["list/a", "list/b/c", "list/d"]
    assert [found.name for found in objects.find_all("list/", after="list/a")] == [
        "list/b/c",
        "list/d",
    ]
    assert objects.folders("list/") == ["b"]
    assert objects.find("list/d").size_bytes == 10


def test_a_store_without_conditions_is_refused(wording):
    wording.refused(InputError, lambda: Objects("gs://bucket/runs"))
