"""Job specs as files: YAML, JSON, and what is neither."""

import traceback

import pytest

from distrain.errors import SpecError
from distrain.jobs.spec import load_spec, parse_spec
from distrain.jobs.spec.load import parse_yaml

YAML = "data: {train: day_0}\nmodel: {kind: mlp}\n"


def written(tmp_path, text, name="job.yaml"):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def refusal(path):
    with pytest.raises(SpecError) as caught:
        load_spec(path)
    assert caught.value.where == {"file": str(path)}
    return caught.value.message


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("job.yaml", YAML),
        ("job.yaml", b"\xef\xbb\xbf" + YAML.encode()),
        ("job.yaml", '{"data": {"train": "day_0"}, "model": {"kind": "mlp"}}'),
        ("job.json", '{\n\t"data": {"train": "day_0"},\n\t"model": {"kind": "mlp"}\n}'),
        ("job.yaml", "x: &m {kind: mlp}".replace("x:", "model:") + "\ndata: {train: day_0}"),
    ],
    ids=["yaml", "with a byte order mark", "json as yaml", "json with tabs", "anchor"],
)
def test_yaml_and_json_files(tmp_path, name, text):
    spec = load_spec(str(written(tmp_path, text, name)), ["train.epochs=2"])
    assert (spec.data.train, spec.model.kind, spec.train.epochs) == (("day_0",), "mlp", 2)


BAD_FILES = (
    ("job.yaml", "data: ["),
    ("job.yaml", "a: 1\n---\nb: 2"),
    ("job.yaml", "a: !!python/name:os.system x"),
    ("job.yaml", "a: 2026-02-31"),
    ("job.yaml", "a: !!bool perhaps"),
    ("job.yaml", "? {a: 1}\n: 2"),
    ("job.yaml", "[" * 1000),
    ("job.yaml", b"a: \xff"),
    ("job.yaml", ""),
    ("job.json", "data: 1"),
    ("job.json", "[" * 100_000),
    ("job.yaml", YAML + "train:\n  lanes: 1\n  lanes: 2"),
    ("job.json", '{"data": 1, "data": 2}'),
    ("job.yaml", "data:\n\ttrain: day_0\n"),
)


def test_what_cannot_be_read_says_why(tmp_path, wording):
    for name, text in BAD_FILES:
        wording(refusal(written(tmp_path, text, name)).partition(":")[0])
    for place in ("none.yaml", "", "a\0b"):
        assert refusal(tmp_path / place)


def test_merge_keys_are_no_repeats():
    text = """
    defs: {base: &base {x: 1, y: 1, <<: &root {x: 0, z: 0}}}
    one: {<<: *base, y: 2}
    two: {<<: *base}
    """
    assert parse_yaml(text)["one"] == {"x": 1, "y": 2, "z": 0}
    assert parse_yaml(text)["two"] == {"x": 1, "y": 1, "z": 0}
    with pytest.raises(ValueError, match=r"\by\b"):
        parse_yaml("{<<: {x: 1}, y: 1, y: 2}")


@pytest.mark.parametrize(
    "override",
    [
        "data.train=s3://KEY:{}@bucket/train",
        "data.valid=[valid, 's3://KEY:{}@bucket/valid']",
        "checkpoint.dir=s3://KEY:{}@bucket/runs",
        "data.train={{a: s3://KEY:{}@bucket/train}}",
        "nonsense-s3://KEY:{}@bucket",
    ],
)
def test_a_password_in_a_url_is_refused_and_not_shown(override):
    secret = "wJalr/XUtnFEMI+K7MDENG" * 5  # longer than what is shown of a value
    document = {"data": {"train": "day_0"}, "model": {"kind": "mlp"}}
    with pytest.raises(SpecError) as caught:
        parse_spec(document, [override.format(secret)])
    shown = "".join(traceback.format_exception(caught.value))
    assert secret[:20] not in shown
