"""`distrain train` on a bad spec, or with a bad schema: told at once, and nothing is made."""

from pathlib import Path

import pytest
from damaged import assert_nothing_left, assert_one_screen, tell
from small_jobs import CARDINALITIES

from distrain.schema import ColumnSchema, Tags, criteo_schema


def train_badly(
    capsys: pytest.CaptureFixture[str], job: Path, *culprits: object, options: tuple[str, ...] = ()
) -> None:
    """The command complains and leaves nothing."""
    run = job.parent / "run"
    done = tell(capsys, "train", job, "--run-dir", run, *options)
    assert_one_screen(done, 1, *culprits, hint=False)
    assert_nothing_left(run)


@pytest.mark.parametrize(
    ("content", "culprits"),
    [
        (b"", ["a mapping of sections"]),
        (b"data: [train", ["not YAML"]),
        (b"\xff\xfe\x00", ["cannot read the job spec"]),
        (b"- data\n- model\n", ["a mapping of sections"]),
        (b"data: {train: a}\nmodle: {kind: mlp}\n", ["modle", "did you mean 'model'"]),
        (b"data: {train: a}\nmodel: {kind: mlp, hiden: [4]}\n", ["model.hiden", "'hidden'"]),
        (b"data: {train: a}\nmodel: {kind: mpl}\n", ["model.kind", "'mpl'", "dlrm"]),
        (b"model: {kind: mlp}\n", ["data: required"]),
        (b"data: {train: a}\nmodel: {kind: mlp}\nmodel: {kind: dlrm}\n", ["model twice"]),
        (
            b"data: {train: a}\nmodel: {kind: mlp}\ntrain: {epochs: many, lanes: -3}\n",
            ["train.epochs", "'many'", "train.lanes", "-3"],
        ),
    ],
)
def test_a_spec_with_mistakes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, culprits: list[str]
) -> None:
    job = tmp_path / "job.yaml"
    job.write_bytes(content)
    train_badly(capsys, job, job, *culprits)


@pytest.mark.parametrize(
    ("content", "culprits"),
    [
        (None, ["schema"]),
        (b"", ["schema"]),
        (b"feature { name: ", ["line: 1"]),
        (b"\xff\xfe", ["not UTF-8"]),
        (
            b"feature { name: 'x' }\nfeature { name: 'x' type: INT }\n",
            ["'x' is listed twice", "line: 2"],
        ),
    ],
)
def test_a_schema_that_is_missing_or_garbled(
    prepared: Path, job: Path, capsys: pytest.CaptureFixture[str], content: bytes | None,
    culprits: list[str],
) -> None:  # fmt: skip
    schema = prepared / "schema.pbtxt"
    schema.unlink()
    if content is not None:
        schema.write_bytes(content)
    train_badly(capsys, job, schema, *culprits, options=("--set", f"data.schema={schema}"))


def test_a_second_target_of_other_values(
    prepared: Path, job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    second = ColumnSchema("I1", "float32", (Tags.TARGET,))
    schema = prepared / "schema.pbtxt"
    criteo_schema(CARDINALITIES).with_columns(second).save(schema)
    train_badly(capsys, job, "label 'I1' is", "not 0 or 1", "column: I1")
