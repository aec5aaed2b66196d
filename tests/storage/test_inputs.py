import os
import traceback
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFile  # type: ignore[import-untyped, unused-ignore]

from distrain.errors import DataError, OutputError
from distrain.storage import inputs
from distrain.storage.folder import open_folder
from distrain.storage.inputs import InputFile, fetched, list_inputs, open_input
from distrain.storage.urls import check_url, without_secrets


@pytest.fixture
def tree(tmp_path):
    for name in (
        "day_1.parquet",
        "day_0.parquet",
        "notes.txt",
        "odd[1].parquet",
        ".day_2.parquet",
        "_SUCCESS.parquet",
        "by_hour/h0.parquet",
        "by_hour/deep/h1.parquet",
        "by_hour/_temporary/h2.parquet",
        "by_hour/.out.partial-1234/h3.parquet",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * len(name))
    return tmp_path


@pytest.fixture
def memory():
    fs = fsspec.filesystem("memory")
    yield fs
    fs.rm("/", recursive=True)


def test_a_fetched_file_has_all_bytes(memory, monkeypatch):
    monkeypatch.setattr(inputs, "_FETCHED_AT_ONCE", 100)
    content = bytes(range(256)) * 5
    memory.pipe("/day/0.bin", content)
    with fetched("memory://day/0.bin") as here:
        assert Path(here).read_bytes() == content


def found(tree, *patterns, **options):
    files = list_inputs([f"{tree}/{pattern}".rstrip("/") for pattern in patterns], **options)
    return [os.path.relpath(file.path, tree) for file in files]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("day_*.parquet", ["day_0.parquet", "day_1.parquet"]),
        ("*.parquet", ["day_0.parquet", "day_1.parquet", "odd[1].parquet"]),
        ("day_?.parquet", ["day_0.parquet", "day_1.parquet"]),
        ("day_[12].parquet", ["day_1.parquet"]),
        ("*", ["day_0.parquet", "day_1.parquet", "notes.txt", "odd[1].parquet"]),
        (".day*", [".day_2.parquet"]),
        ("_*", ["_SUCCESS.parquet"]),
        ("*/h0.parquet", ["by_hour/h0.parquet"]),
        ("by_*", ["by_hour/deep/h1.parquet", "by_hour/h0.parquet"]),
        ("by_hour/**/*.parquet", ["by_hour/deep/h1.parquet", "by_hour/h0.parquet"]),
    ],
)
def test_globs(tree, pattern, expected):
    assert found(tree, pattern) == expected


def test_a_folder_is_listed_with_its_subfolders_but_without_hidden_and_unfinished_files(tree):
    assert found(tree, "") == [
        "by_hour/deep/h1.parquet",
        "by_hour/h0.parquet",
        "day_0.parquet",
        "day_1.parquet",
        "notes.txt",
        "odd[1].parquet",
    ]
    assert "notes.txt" not in found(tree, "", suffixes=(".parquet", ".pq"))
    assert found(tree, "by_hour/") == found(tree, "by_hour")


def test_a_hidden_file_or_folder_is_listed_when_it_is_named(tree):
    assert found(tree, "_SUCCESS.parquet") == ["_SUCCESS.parquet"]
    assert found(tree, "by_hour/_temporary") == ["by_hour/_temporary/h2.parquet"]
    assert found(tree, "by_hour/_temporary/*") == ["by_hour/_temporary/h2.parquet"]


def test_a_name_with_glob_marks_is_a_name_first(tree):
    assert found(tree, "odd[1].parquet") == ["odd[1].parquet"]
    assert open_input(str(tree / "odd[1].parquet")).read() == b"x" * 14


def test_patterns_keep_their_order_and_files_are_sorted_within(tree):
    assert found(tree, "odd*", "day_*") == ["odd[1].parquet", "day_0.parquet", "day_1.parquet"]


def test_a_file_that_several_patterns_name_is_listed_once(tree, memory):
    patterns = ("day_1.parquet", "day_*.parquet", "./day_0.parquet", "")
    files = found(tree, *patterns, suffixes=(".parquet",))
    assert files[:2] == ["day_1.parquet", "day_0.parquet"]
    assert sorted(files) == sorted(found(tree, "", suffixes=(".parquet",)))
    (tree / "linked").symlink_to(tree / "by_hour")
    assert found(tree, "by_hour", "linked") == found(tree, "by_hour")
    memory.pipe({"/days/b": b"bb", "/days/a": b"a"})
    sizes = [file.size_bytes for file in list_inputs(["memory://days/b", "memory://days"])]
    assert sizes == [2, 1]


def test_numbers_are_sorted_as_numbers_since_later_days_come_last(tmp_path):
    names = ["day_0", "day_2", "day_02.gz", "day_10", "month_1/day_9", "month_12/day_1"]
    for name in reversed(names):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    assert found(tmp_path, "") == names


def test_links_are_followed_and_broken_ones_are_told(tree):
    (tree / "link.parquet").symlink_to(tree / "day_0.parquet")
    assert found(tree, "link.parquet") == ["link.parquet"]
    assert list_inputs(str(tree / "link*"))[0].size_bytes == 13
    assert "link.parquet" in found(tree, "")
    (tree / "linked_day").symlink_to(tree / "by_hour")
    assert found(tree, "linked*") == ["linked_day/deep/h1.parquet", "linked_day/h0.parquet"]


@pytest.mark.parametrize("look", [list_inputs, open_input])
@pytest.mark.parametrize("path", ["nosuchprotocol://bucket/x", "hdfs://\0", "", "memory://none"])
def test_whatever_a_filesystem_says_becomes_a_data_error(look, path):
    with pytest.raises(DataError) as caught:
        look(path)
    assert path in caught.value.where.values()


def test_a_filesystem_whose_package_is_missing_names_the_package(monkeypatch, wording):
    monkeypatch.setattr(
        "fsspec.core.get_filesystem_class",
        Mock(side_effect=ImportError("Install s3fs to access S3")),
    )
    wording.refused(
        DataError, lambda: list_inputs("s3://bucket/x"), lambda: open_input("s3://bucket/x")
    )


def test_the_empty_objects_that_stand_for_folders_are_no_files(memory):
    memory.pipe("/days/day=1/a.csv", b"a")
    memory.store["/days/day=1/"] = MemoryFile(memory, "/days/day=1/", b"")
    for path in ("memory://days", "memory://days/*", "memory://days/**"):
        assert [file.size_bytes for file in list_inputs([path])] == [1]
    del memory.store["/days/day=1/"]


def test_urls_stay_urls(memory, wording):
    memory.pipe({"/days/b.parquet": b"bb", "/days/a.parquet": b"a", "/days/_SUCCESS": b"1"})
    expected = [InputFile("memory://days/a.parquet", 1), InputFile("memory://days/b.parquet", 2)]
    for pattern in ("memory://days", "memory://days/", "memory://days/*.parquet"):
        files = list_inputs(pattern)
        assert [file.size_bytes for file in files] == [1, 2]
        assert [file.path.replace(":///", "://") for file in files] == [f.path for f in expected]
        assert [open_input(file.path).read() for file in files] == [b"a", b"bb"]
    memory.touch("/days/c.parquet")
    wording.refused(DataError, lambda: list_inputs("memory://days/*.parquet"))


def test_a_file_that_may_not_be_read_is_told(tree, monkeypatch, wording):
    monkeypatch.setattr("fsspec.open", Mock(side_effect=PermissionError(13, "Permission denied")))
    wording.refused(DataError, lambda: open_input(str(tree / "day_0.parquet")))


SECRET = "wJalr/XUtnFEMI+bPxRfiCYEXAMPLEKEY"


@pytest.mark.parametrize("look", [list_inputs, open_input, open_folder])
@pytest.mark.parametrize(
    "url",
    [
        f"s3://AKIDEXAMPLE:{SECRET}@bucket/x/*.parquet",
        f"sftp://me:{SECRET}@host/x",
        f"https://me:{SECRET}@host/x",
    ],
)
def test_a_password_in_a_url_is_refused_and_never_shown(look, url, wording):
    caught = wording.refused(DataError, lambda: look(url))
    shown = "".join(traceback.format_exception(caught))
    assert SECRET not in shown
    assert "AKIDEXAMPLE" not in shown


@pytest.mark.parametrize("look", [list_inputs, open_input, open_folder])
@pytest.mark.parametrize("url", ["s3://no_such!/x", "s3a://two words/x"])
def test_an_impossible_bucket_is_refused_in_words(look, url, wording):
    wording.refused(DataError, lambda: look(url), url=url)


@pytest.mark.parametrize(
    "url",
    [
        *("/a:b@c/x", "hdfs://host:8020/me@x", "s3://bucket/a@b", "s3://bucket"),
        *("s3://a.b-c_1/d:e@f", "sftp://me@host/x", "gs://bucket/x", "s3://b*/x"),
        "memory://a b/c",
    ],
)
def test_other_urls_are_good(url):
    check_url(url)
    assert without_secrets(url) == url


@pytest.mark.parametrize("state", [b"{}", b'{"state": "made"}', b"[1]", b"{", b"\xff"])
def test_a_folder_with_a_damaged_state_file_is_rejected(memory, state):
    memory.pipe("/days/a.parquet", b"1")
    memory.pipe("/days/.distrain-output.json", state)
    with pytest.raises(OutputError) as caught:
        list_inputs("memory://days")
    assert str(caught.value.where["file"]).endswith("/days/.distrain-output.json")


def test_inputs_that_cannot_be_listed_or_opened_are_named(tree, wording):
    (tree / "texts").mkdir()
    (tree / "texts" / "day_0.tsv").write_bytes(b"x")
    (tree / "nothing").mkdir()
    listed = partial(list_inputs, suffixes=(".parquet", ".pq"))
    wording.refused(DataError, lambda: listed(str(tree / "texts")), path=str(tree / "texts"))
    for pattern in ("none.parquet", "none*", "day_0.parquet/x", "none/", "nothing"):
        paths = [str(tree / "day_0.parquet"), str(tree / pattern)]
        wording.refused(DataError, partial(list_inputs, paths), path=str(tree / pattern))
    for pattern in ("", " "):
        wording.refused(DataError, partial(list_inputs, pattern))
    for name in ("none", "by_hour"):
        wording.refused(DataError, partial(open_input, str(tree / name)), file=str(tree / name))
    (tree / "day_5.parquet").touch()
    days, empty = str(tree / "day_*.parquet"), str(tree / "day_5.parquet")
    wording.refused(DataError, lambda: list_inputs(days), file=empty)
    empty_folders = ("nowhere", "by_hour/deep")
    for target in empty_folders:
        link = tree / "by_hour" / target.replace("/", "-")
        link.symlink_to(tree / target)
        wording.refused(DataError, lambda: list_inputs(str(tree / "by_hour")), path=str(link))
        link.unlink()
