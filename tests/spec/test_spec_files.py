"""Job specs as files: YAML, JSON, and what is neither."""

import traceback

import pytest

from distrain.errors import SpecError
from distrain.spec import load_spec, parse_spec
from distrain.spec.load import parse_yaml

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


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("job.yaml", "data: [", "not YAML: while parsing"),
        ("job.yaml", "a: 1\n---\nb: 2", "not YAML: expected a single document"),
        ("job.yaml", "a: !!python/name:os.system x", "not YAML: could not determine a constructor"),
        ("job.yaml", "a: 2026-02-31", "not YAML: day is out of range"),
        ("job.yaml", "a: !!bool perhaps", "not YAML"),
        ("job.yaml", "a: !!timestamp x", "not YAML"),
        ("job.yaml", "a: !!int x", "not YAML"),
        ("job.yaml", "? {a: 1}\n: 2", "not YAML"),
        ("job.yaml", "[" * 1000, "not YAML"),
        ("job.yaml", b"a: \xff", "cannot read the job spec"),
        ("job.yaml", "", "a job spec is a mapping of sections"),
        ("job.json", "{", "not JSON: "),
        ("job.json", "data: 1", "not JSON: "),
        ("job.json", "[" * 100_000, "not JSON: "),
        ("job.yaml", YAML + "train: {epochs: 1}\ntrain: {lanes: 2}", "names train twice"),
        ("job.yaml", YAML + "train:\n  lanes: 1\n  lanes: 2", "(line 4 on) names lanes twice"),
        ("job.json", '{"data": 1, "data": 2}', "a mapping names data twice"),
    ],
)
def test_what_cannot_be_read_says_why(tmp_path, name, text, message):
    assert message in refusal(written(tmp_path, text, name))


def test_yaml_mistakes_are_told_with_their_line(tmp_path):
    with pytest.raises(SpecError) as caught:
        load_spec(written(tmp_path, "data:\n\ttrain: day_0\n"))
    assert "in line 2, column 1" in caught.value.message
    assert "unicode string" not in caught.value.message
    assert "spaces" in str(caught.value.hint)


def test_a_missing_file_and_a_folder(tmp_path):
    assert refusal(tmp_path / "none.yaml") == "no such job spec"
    assert refusal(tmp_path) == "cannot read the job spec: Is a directory"
    assert "null" in refusal(tmp_path / "a\0b")


def test_merge_keys_are_no_repeats():
    text = """
    defs: {base: &base {x: 1, y: 1, <<: &root {x: 0, z: 0}}}
    one: {<<: *base, y: 2}
    two: {<<: *base}
    """
    assert parse_yaml(text)["one"] == {"x": 1, "y": 2, "z": 0}
    assert parse_yaml(text)["two"] == {"x": 1, "y": 1, "z": 0}
    with pytest.raises(ValueError, match="names y twice"):
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
