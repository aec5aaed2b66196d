"""`distrain prep` from the command line."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from wording import Wording

from distrain.cli.data.prep import command
from distrain.errors import DataError, OutputError, SpecError
from distrain.workers.open_cluster import ClusterRequest


@pytest.fixture
def in_process(client: Any, monkeypatch: pytest.MonkeyPatch) -> list[ClusterRequest]:
    """The test's cluster in place of new ones; collects what was asked for."""
    asked: list[ClusterRequest] = []

    @contextmanager
    def open_cluster(request: ClusterRequest) -> Iterator[Any]:
        asked.append(request)
        yield client

    monkeypatch.setattr("distrain.workers.open_cluster.open_cluster", open_cluster)
    return asked


@pytest.fixture
def raw(tmp_path: Path, make_lines: Callable[..., list[bytes]]) -> Path:
    path = tmp_path / "raw.csv"
    lines = make_lines(200, delimiter=",")
    lines[50] = b"what,is,this"
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


@pytest.fixture
def shops(tmp_path: Path) -> tuple[object, ...]:
    """Words that prepare a table of two columns: a raw Criteo file has forty."""
    columns = "{shop: {kind: categorical, freq_threshold: 2}, price: {kind: continuous}}"
    document = f"target: label\ncolumns: {columns}\nsplit: {{by: rows, last: 20}}\n"
    (tmp_path / "features.yaml").write_text(document)
    rows = "".join(f"{n % 3 % 2},s{n * n % 17},{n / 7:.2f}\n" for n in range(199))
    (tmp_path / "shops.csv").write_text("label,shop,price\n" + rows)
    return tmp_path / "shops.csv", "--features", tmp_path / "features.yaml"


def run(*arguments: object) -> Any:
    return CliRunner().invoke(command, [str(a) for a in arguments], catch_exceptions=True)


def test_options_reach_the_run(in_process: list[ClusterRequest], tmp_path: Path, raw: Path) -> None:
    out = tmp_path / "out"
    result = run(
        raw, "--out", out, "--delimiter", ",", "--bad-lines", "skip", "--valid-rows", 20,
        "--freq-threshold", 3, "--max-size", 4, "--num-buckets", 2, "--row-group-rows", "100",
        "--workers", 3, "--scheduler", "tcp://somewhere:8786",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert in_process == [ClusterRequest("tcp://somewhere:8786", 3, in_process=True)]
    for shown in ("1/1 tasks", "199 rows", "179", "line 51", str(out)):
        assert shown in result.output
    ids = pq.read_table(out / "train", columns=["C26"])["C26"].to_numpy()
    assert ids.max() < 2 + 2 + 4
    assert pq.read_metadata(out / "train" / "part-00000.parquet").num_row_groups == 2


def test_mistakes_are_found_before_a_cluster_starts(
    in_process: list[dict[str, Any]], tmp_path: Path, shops: tuple[object, ...], wording: Wording
) -> None:
    table, _, features = shops
    out = ("--out", tmp_path / "out")
    assert isinstance(run(tmp_path / "absent", *out).exception, DataError)
    assert isinstance(run(table, "--out", tmp_path).exception, OutputError)
    assert run(*shops, *out, "--delimiter", ",").exit_code == 2
    for document in ("target: laabel\ncolumns: {shp: {kind: categorical}}\n", "target: {"):
        Path(str(features)).write_text(document)
        wording(run(*shops, *out).exception)
    assert isinstance(run(table, "--features", tmp_path / "x/y", *out).exception, SpecError)
    for options in (
        ("--update",),
        ("--workflow", tmp_path, "--update", "--freq-threshold", 2),
    ):
        refused = run(table, *options, *out)
        assert refused.exit_code == 2
        wording(refused.output)
    assert in_process == []


def test_the_end_says_what_is_next(
    in_process: list[ClusterRequest], tmp_path: Path, shops: tuple[object, ...]
) -> None:
    out, again = tmp_path / "out", tmp_path / "again"
    saved = (shops[0], "--workflow", out / "workflow")
    said = run(*shops, "--out", out).output
    assert f"next: distrain init --data {out} --out job.yaml" in said
    said = run(*saved, "--out", again).output
    assert f"next: distrain predict RUN {again}/train --out {again}-scores" in said
    said = run(*saved, "--out", tmp_path / "learnt", "--update").output
    assert "--set train.init_from=RUN" in said


@pytest.mark.parametrize(
    ("tags", "listed", "kind"),
    [
        (("user_id", "item_id"), [], ["two_tower"]),
        (("", "item_id"), ["item"], ["sasrec_retrieval"]),
        (("", "item_id"), [], []),
    ],
)
def test_the_next_model_of_purchases_suits_the_columns(
    in_process: list[ClusterRequest],
    tmp_path: Path,
    tags: tuple[str, str],
    listed: list[str],
    kind: list[str],
) -> None:
    rows = "".join(f"{n % 5},{n % 7},2024-01-{n % 28 + 1:02},1\n" for n in range(100))
    (tmp_path / "rows.csv").write_text(f"user,item,at,bought\n{rows}")
    columns = {
        name: {"kind": "categorical", **({"tags": [tag]} if tag else {})}
        for name, tag in zip(("user", "item"), tags, strict=True)
    }
    history = {"by": "user", "order": "at", "keep": 5, "of": listed}
    document = {"columns": columns, "target": "bought"} | ({"history": history} if listed else {})
    (tmp_path / "f.yaml").write_text(json.dumps(document))
    out = tmp_path / "out"
    said = run(tmp_path / "rows.csv", "--features", tmp_path / "f.yaml", "--out", out).output
    command = " ".join(["init", *kind, "--data", str(out)])
    assert f"next: distrain {command} --out job.yaml" in said
