"""The files of a release: the same bytes each time, and what their readers need."""

import importlib.util
import itertools
import json
import os
import tarfile
from pathlib import Path

import pytest

from distrain.version import RELEASE, __version__

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


def test_the_changes_of_this_version_are_told_and_a_missing_section_is_refused(wording):
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert "###" in release.changes_of(RELEASE, changelog)
    wording.refused(SystemExit, lambda: release.changes_of("9.9.9", changelog))


def tree(folder, version="1.0.0", last="1.0.0", chart="1.0.0", unreleased=""):
    for name, text in {
        "distrain/version.py": f"__version__ = {version!r}\nRELEASE = {last!r}\n",
        "helm/distrain/Chart.yaml": f'version: {chart}\nappVersion: "{chart}"\n',
        "CHANGELOG.md": f"## [Unreleased]\n{unreleased}\n## [1.0.0] - 2026-01-01\n\n- a\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_only_a_release_is_made_into_files(tmp_path, wording):
    assert release.checked_version(tree(tmp_path)) == "1.0.0"
    release.check_tag("1.0.0", ["latest", "v1.0.0"])
    wording.refused(SystemExit, lambda: release.check_tag("1.0.0", ["v0.9.0"]))
    for wrong, said in (
        ({"version": "1.1.0.dev0"}, "in development"),
        ({"chart": "0.9.0"}, "Chart.yaml names"),
        ({"unreleased": "- b\n"}, "entries in .Unreleased"),
    ):
        with pytest.raises(SystemExit, match=said):
            release.checked_version(tree(tmp_path, **wrong))


def test_a_commit_that_is_no_release_says_so():
    changelog = (ROOT / "CHANGELOG.md").read_text()
    unreleased = "## [Unreleased]" in changelog and release.changes_of("Unreleased", changelog)
    assert bool(str(unreleased or "").strip()) <= (".dev" in __version__)
    assert (".dev" in __version__) == (__version__ != RELEASE)


def installed(name, version, *needs, extras=(), **more):
    metadata = {"name": name, "version": version, "requires_dist": list(needs), **more}
    hashes = {"archive_info": {"hashes": {"sha256": name * 3}}}
    return {"metadata": metadata, "requested_extras": list(extras), "download_info": hashes}


def test_an_sbom_is_what_an_install_has_and_what_is_vendored():
    install = [
        installed("distrain", "1", "six>=1", "pip-x; extra == 'dev'", "b_c; extra == 's3'",
                  extras=("s3",), license_expression="Apache-2.0"),
        installed("six", "1.17.0", license="MIT"),
        installed("B.C", "2", "six", classifier=["License :: OSI Approved :: BSD License"]),
    ]  # fmt: skip
    uplot = release.vendored(ROOT)
    document = release.sbom(install, [uplot], 86_400)
    parts = {one["name"]: one for one in document["components"]}
    assert [*parts] == ["b-c", "six", "uplot"]
    assert parts["six"]["hashes"] == [{"alg": "SHA-256", "content": "sixsixsix"}]
    assert parts["b-c"]["licenses"] == [{"license": {"name": "BSD License"}}]
    assert all(one["licenses"] for one in (*parts.values(), document["metadata"]["component"]))
    edges = {one["ref"]: one["dependsOn"] for one in document["dependencies"]}
    six = "pkg:pypi/six@1.17.0"
    assert edges["pkg:pypi/distrain@1"] == ["pkg:pypi/b-c@2", six, uplot["bom-ref"]]
    assert edges["pkg:pypi/b-c@2"] == [six]


def test_an_sbom_is_resolved_with_the_pins_of_an_install_alone(tmp_path, monkeypatch):
    asked, packages = [], [installed("distrain", "1"), installed("six", "1", license="MIT")]

    def run(*words):
        asked.extend(words)
        return json.dumps({"install": packages})

    def write():
        release.write_sbom(tmp_path / "sbom.json", tmp_path / "a.whl", ROOT, 86_400)

    monkeypatch.setattr(release, "run", run)
    write()
    pinned = [after for word, after in itertools.pairwise(asked) if word == "--constraint"]
    # The tools of a release have other versions of the same packages, which would conflict.
    assert pinned == [str(ROOT / "constraints.txt")]
    packages.append(installed("numpy", "2"))
    with pytest.raises(SystemExit, match="numpy"):
        write()
