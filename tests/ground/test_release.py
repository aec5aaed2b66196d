"""The files of a release: the same bytes each time, and what their readers need."""

import importlib.util
import os
import tarfile
from pathlib import Path

import pytest

from distrain.version import __version__

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location(
    "make_release", ROOT / "deploy" / "release" / "make_release.py"
)
release = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(release)


def test_an_archive_does_not_depend_on_times_places_or_the_order_of_files(tmp_path):
    for name, time_s in (("one", 1e9), ("two", 1.5e9)):
        folder = tmp_path / name
        folder.mkdir()
        for file in ("b.txt", "a.sh"):
            (folder / file).write_text(file)
            os.utime(folder / file, (time_s, time_s))
        (folder / "a.sh").chmod(0o700 if name == "one" else 0o755)
        files = sorted(folder.iterdir(), reverse=name == "two")
        release.write_tar(tmp_path / f"{name}.tgz", folder, "p", files, 86_400)
    first = (tmp_path / "one.tgz").read_bytes()
    assert first == (tmp_path / "two.tgz").read_bytes()
    with tarfile.open(tmp_path / "one.tgz") as tar:
        assert [(one.name, one.mode, one.mtime) for one in tar] == [
            ("p/a.sh", 0o755, 86_400),
            ("p/b.txt", 0o644, 86_400),
        ]


def test_the_changes_of_this_version_are_told_and_a_missing_section_is_refused():
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert "###" in release.changes_of(__version__, changelog)
    with pytest.raises(SystemExit, match=r"no section \[9\.9\.9\]"):
        release.changes_of("9.9.9", changelog)
    assert release.checked_version(ROOT) == __version__


def test_an_sbom_follows_what_packages_need_without_their_extras():
    names = {*release.needed(["httpx2>=2", "pandas; extra == 'fastai'"], ("",), set())}
    assert {"httpx2", "idna"} <= names
    assert "pandas" not in names
