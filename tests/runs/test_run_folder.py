"""Files of a run folder, for readers who may see nothing else."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from distrain.runs.run_folder import NotInRun, RunFolder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("password")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "secret").write_text("password")
    root = tmp_path / "run"
    (root / "model").mkdir(parents=True)
    (root / "model" / "model.json").write_text("{}")
    (root / "spec.yaml").write_text("a: 1")
    (root / "link").symlink_to(tmp_path / "secret")
    (root / "inner-link").symlink_to("spec.yaml")
    (root / "folder-link").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(root / "pipe")
    return root


@pytest.mark.parametrize(
    "name",
    ["link", "inner-link", "folder-link/secret", "pipe", "model", "nothing", "model/nothing",
     "../secret", "model/../../secret", "/etc/passwd", "", ".", "..", "model//model.json",
     "./spec.yaml", "spec.yaml/", "spec.yaml/x", "spec.yaml\0", "x" * 300, "a/" * 40 + "a"],
)  # fmt: skip
def test_what_is_no_plain_file_inside_is_not_there(root: Path, name: str) -> None:
    with RunFolder(root) as folder, pytest.raises(NotInRun):
        folder.open_file(name)


def test_files_are_listed_without_links_and_can_be_read(root: Path) -> None:
    with RunFolder(root) as folder:
        assert [file.name for file in folder.files()] == ["model/model.json", "spec.yaml"]
        assert [file.name for file in folder.files("model")] == ["model/model.json"]
        for file in folder.files():
            descriptor = folder.open_file(file.name)
            assert os.read(descriptor, 100) == (root / file.name).read_bytes()
            os.close(descriptor)
        with pytest.raises(NotInRun):
            next(folder.files("folder-link"))


def test_a_run_directory_that_is_a_link_is_none(root: Path, tmp_path: Path) -> None:
    (tmp_path / "other").symlink_to(root)
    for missing in (tmp_path / "other", tmp_path / "nothing", root / "spec.yaml"):
        with pytest.raises(NotInRun):
            RunFolder(missing)


def test_guarded_parents_that_are_links_are_not_followed(root: Path, tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "link").symlink_to(root.parent)
    (tmp_path / "outer").symlink_to(root.parent)
    real, linked = tmp_path / "outer" / root.name, tmp_path / "inner" / "link" / root.name
    for run_dir in (root, real, linked):
        with RunFolder(run_dir) as folder:
            assert [file.name for file in folder.files()]
    with RunFolder(root, guarded=2) as folder:
        assert [file.name for file in folder.files()]
    for run_dir, guarded in ((real, 2), (linked, 2), (linked, 3)):
        with pytest.raises(NotInRun):
            RunFolder(run_dir, guarded)


names = st.lists(st.sampled_from(["a", "b", "a-", "a.b", "é"]), min_size=1, max_size=3)


@given(st.sets(names.map("/".join), max_size=12), st.integers(1, 4))
@settings(max_examples=20, deadline=None)
def test_pages_of_a_listing_are_the_listing(
    tmp_path_factory: pytest.TempPathFactory, wanted: set[str], page: int
) -> None:
    root = tmp_path_factory.mktemp("run")
    for name in sorted(wanted):
        path = root / (name + ".txt")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    found: list[str] = []
    with RunFolder(root) as folder:
        while True:
            files = folder.files(after=found[-1] if found else "")
            more = [file.name for file, _ in zip(files, range(page), strict=False)]
            files.close()  # type: ignore[attr-defined]
            if not more:
                break
            found += more
    assert found == sorted(name + ".txt" for name in wanted)
