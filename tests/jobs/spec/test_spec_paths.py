"""The local paths of a spec mean the same to every process."""

import pwd
from pathlib import Path

import pytest

from distrain.errors import SpecError
from distrain.jobs.spec import parse_spec
from distrain.jobs.spec.paths import with_absolute_paths

DOCUMENT = {"data": {"train": ["day_0", "s3://b/day_1"]}, "model": {"kind": "mlp"}}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("given", "absolute"),
    [
        ("x/y", "{here}/x/y"),
        ("./x", "{here}/x"),
        ("/x", "/x"),
        ("~/x", "/home/me/x"),
        ("~", "/home/me"),
        ("~root/x", f"{pwd.getpwnam('root').pw_dir}/x"),
        ("./~/x", "{here}/~/x"),
        ("s3://bucket/~/{run_id}", "s3://bucket/~/{run_id}"),
        ("states/{run_id}", "{here}/states/{run_id}"),
    ],
)
def test_every_field_that_holds_a_path(here: Path, given: str, absolute: str) -> None:
    absolute = absolute.replace("{here}", str(here))
    fields = ("data.schema", "data.cache_dir", "checkpoint.dir")
    words = [f"{field}='{given}'" for field in fields]
    words += [f"data.train=['{given}', 's3://b/x']", f"data.valid=['{given}']"]
    spec = with_absolute_paths(parse_spec(DOCUMENT, words))
    assert spec.data.train == (absolute, "s3://b/x")
    assert spec.data.valid == (absolute,)
    assert (spec.data.schema_path, spec.data.cache_dir, spec.checkpoint.dir) == (absolute,) * 3
    assert with_absolute_paths(spec) == spec


def test_what_is_no_path_stays(here: Path) -> None:
    for schema in ("auto", "criteo"):
        spec = with_absolute_paths(parse_spec(DOCUMENT, [f"data.schema={schema}"]))
        assert spec.data.schema_path == schema
        assert (spec.data.cache_dir, spec.checkpoint.dir) == (None, None)


def test_a_home_of_nobody_is_told_with_its_field(here: Path) -> None:
    words = ["checkpoint.dir=~no-such-user/x", "data.train=~no-such-user/y"]
    with pytest.raises(SpecError) as caught:
        with_absolute_paths(parse_spec(DOCUMENT, words))
    lines = str(caught.value).splitlines()
    assert [line.partition(":")[0] for line in lines[:2]] == ["data.train", "checkpoint.dir"]
