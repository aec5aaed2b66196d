"""`distrain prep` from the command line."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import distrain.cluster
from distrain.cli.data.prep import command
from distrain.cluster import ClusterRequest
from distrain.errors import DataError
from distrain.loader.packed.mark import is_packed


@pytest.fixture
def in_process(client: Any, monkeypatch: pytest.MonkeyPatch) -> list[ClusterRequest]:
    """The test's cluster in place of new ones; collects what was asked for."""
    asked: list[ClusterRequest] = []

    @contextmanager
    def open_cluster(request: ClusterRequest) -> Iterator[Any]:
        asked.append(request)
        yield client

    monkeypatch.setattr(distrain.cluster, "open_cluster", open_cluster)
    return asked


@pytest.fixture
def raw(tmp_path: Path, make_lines: Callable[..., list[bytes]]) -> Path:
    path = tmp_path / "raw.csv"
    lines = make_lines(200, delimiter=",")
    lines[50] = b"what,is,this"
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def run(*arguments: object) -> Any:
    return CliRunner().invoke(command, [str(a) for a in arguments], catch_exceptions=True)


def test_options_reach_the_run_and_the_summary_tells(
    in_process: list[dict[str, Any]], tmp_path: Path, raw: Path
) -> None:
    out = tmp_path / "out"
    result = run(
        raw, "--out", out, "--delimiter", ",", "--bad-lines", "skip", "--valid-rows", 20,
        "--freq-threshold", 3, "--max-size", 4, "--num-buckets", 2, "--row-group-rows", "100",
        "--workers", 3, "--scheduler", "tcp://somewhere:8786",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert in_process == [ClusterRequest("tcp://somewhere:8786", 3, in_process=True)]
    assert re.search(r"reading: 1/1 tasks, 50.* KiB of 50.* KiB, .*199 rows", result.output)
    assert "training rows       179 in 1 files" in result.output
    assert "bad lines left out  1 (1 wrong number of fields)" in result.output
    assert "line 51: 3 fields, not 40" in result.output
    assert str(out) in result.output
    ids = pq.read_table(out / "train", columns=["C26"])["C26"].to_numpy()
    assert ids.max() < 2 + 2 + 4
    assert pq.read_metadata(out / "train" / "part-00000.parquet").num_row_groups == 2


def test_a_missing_input_is_found_before_a_cluster_starts(
    in_process: list[dict[str, Any]], tmp_path: Path
) -> None:
    result = run(tmp_path / "absent", "--out", tmp_path / "out")
    assert isinstance(result.exception, DataError)
    assert in_process == []


def test_the_fast_layout_in_an_object_store_is_refused_before_a_cluster_starts(
    in_process: list[dict[str, Any]], raw: Path
) -> None:
    result = run(raw, "--out", "s3://bucket/out", "--layout", "fast")
    assert result.exit_code == 2
    assert "folders only" in result.output
    assert in_process == []


def test_it_starts_worker_processes_itself(
    tmp_path: Path, raw: Path, make_lines: Callable[..., list[bytes]]
) -> None:
    raw.write_bytes(b"".join(line + b"\n" for line in make_lines(100)))
    out = tmp_path / "out"
    result = run(raw, "--out", out, "--workers", 1, "--freq-threshold", 0)
    assert result.exit_code == 0, result.output
    again = run(
        raw, "--out", tmp_path / "again", "--workers", 1, "--workflow", out / "workflow"
    )  # fmt: skip
    assert again.exit_code == 0, again.output
    first, second = (pq.read_table(folder / "train") for folder in (out, tmp_path / "again"))
    assert first.equals(second)


@pytest.fixture
def shops(tmp_path: Path) -> tuple[object, ...]:
    """Words that prepare a table of two columns: a raw Criteo file has forty."""
    columns = "{shop: {kind: categorical, freq_threshold: 2}, price: {kind: continuous}}"
    document = f"target: label\ncolumns: {columns}\nsplit: {{by: rows, last: 20}}\n"
    (tmp_path / "features.yaml").write_text(document)
    rows = "".join(f"{n % 3 % 2},s{n * n % 17},{n / 7:.2f}\n" for n in range(199))
    (tmp_path / "shops.csv").write_text("label,shop,price\n" + rows)
    return tmp_path / "shops.csv", "--config", tmp_path / "features.yaml"


def test_the_fast_layout_holds_the_same_rows(
    in_process: list[dict[str, Any]], tmp_path: Path, shops: tuple[object, ...]
) -> None:
    for layout in ("compact", "fast"):
        result = run(*shops, "--out", tmp_path / layout, "--layout", layout)
        assert result.exit_code == 0, result.output
        assert "training rows       179 in 1 files" in result.output
    for split in ("train", "valid"):
        compact, fast = (pq.read_table(tmp_path / layout / split) for layout in ("compact", "fast"))
        assert fast.select(compact.column_names).equals(compact)
        (file,) = (tmp_path / "fast" / split).glob("*.parquet")
        assert is_packed(pq.read_metadata(file))
    names = {path.name for path in (tmp_path / "fast").iterdir()}
    assert names == {path.name for path in (tmp_path / "compact").iterdir()}


def test_what_has_drifted_is_warned_of(
    in_process: list[dict[str, Any]], tmp_path: Path, make_lines: Callable[..., list[bytes]]
) -> None:
    fields = [line.split(b"\t") for line in make_lines(200)]
    for name in ("first", "second"):
        (tmp_path / name).write_bytes(b"".join(b"\t".join(of_line) + b"\n" for of_line in fields))
        for of_line in fields:  # the second day
            of_line[2:4], of_line[14], of_line[15] = [b"9000", b""], b"", b"abcdef01"
    numbers = dict.fromkeys(
        ("I2", "I3"), "continuous, fill: 0, clip: {min: 0}, log: true, normalize: true"
    )
    categories = dict.fromkeys(("C1", "C2", "C11"), "categorical, freq_threshold: 6")
    columns = "".join(f"  {n}: {{kind: {of}}}\n" for n, of in (numbers | categories).items())
    document = f"target: label\nformat: {{kind: criteo}}\ncolumns:\n{columns}"
    (tmp_path / "features.yaml").write_text(document)
    words = ("--config", tmp_path / "features.yaml", "--out", tmp_path / "out")
    fitted = run(tmp_path / "first", *words)
    assert fitted.exit_code == 0, fitted.output
    assert re.findall("warning: .* in C11", fitted.output) == [
        "warning: most training values have no id in C11"  # of 200 rows, fewer than 6 of each
    ]
    assert fitted.output.count("warning") == 1
    options = (tmp_path / "second", "--workflow", tmp_path / "out" / "workflow")
    result = run(*options, "--out", tmp_path / "again")
    assert result.exit_code == 0, result.output
    warnings = [line for line in result.output.splitlines() if line.startswith("warning")]
    told = "\n".join(warnings)
    assert "train: the mean of I2 is 9.105 after its operators before Normalize" in told
    assert "standard deviations from the fitted" in told
    assert "100.0% of I3's values are missing" in told
    assert "100.0% of C1's values are missing" in told
    assert "100.0% of C2's values have no id, 0.0% when it was fitted" in told
    assert "no --workflow, prep fits anew" in told
    assert "--update gives those that are frequent enough an id" in told
    assert len(warnings) == 5, told  # the mean of I3 is that of what fills its gaps
    learnt = run(*options, "--out", tmp_path / "learnt", "--update")
    assert "values have no id" not in learnt.output
    many = b"".join(
        b"\t".join([*of_line[:15], b"%08x" % place, *of_line[16:]]) + b"\n"
        for place, of_line in enumerate(fields)
    )
    (tmp_path / "third").write_bytes(many)
    rare = run(tmp_path / "third", *options[1:], "--out", tmp_path / "rare", "--update")
    assert "C2's values have no id" in rare.output
    assert "too rare yet: --keep-counts" in rare.output
    wide = run(
        *options, "--out", tmp_path / "wide", "--drift-mean", 1000, "--drift-share", 1, "--json"
    )
    assert "warning" not in wide.output


def test_an_update_tells_what_it_learnt(in_process: list[dict[str, Any]], tmp_path: Path) -> None:
    table = "target: label\ncolumns: {shop: {kind: categorical, freq_threshold: 2}}\n"
    (tmp_path / "features.yaml").write_text(table)
    for name, shops in (("first.csv", "aab"), ("second.csv", "bccd")):
        rows = "".join(f"{place % 2},{shop}\n" for place, shop in enumerate(shops))
        (tmp_path / name).write_text("label,shop\n" + rows)
    fitted = run(
        tmp_path / "first.csv", "--config", tmp_path / "features.yaml",
        "--out", tmp_path / "1", "--keep-counts", "1M",
    )  # fmt: skip
    assert re.search(r"counts kept +of [\d,]+ values without an id, [\d,]+ bytes", fitted.output)
    saved = ("--workflow", tmp_path / "1" / "workflow")
    result = run(tmp_path / "second.csv", *saved, "--update", "--out", tmp_path / "2")
    assert result.exit_code == 0, result.output
    assert re.search(r"new ids +2 in 1 columns", result.output), result.output
    new_ids = json.loads((tmp_path / "2" / "prep.json").read_text())["new_ids"]
    assert new_ids == {"shop": 2}
    again = run(
        tmp_path / "second.csv", "--workflow", tmp_path / "2" / "workflow", "--update",
        "--out", tmp_path / "3",
    )  # fmt: skip
    assert "had learnt" in again.output
    assert str(tmp_path / "second.csv") in again.output
    for options, message in (
        (("--update",), "--update needs --workflow"),
        ((*saved, "--keep-counts", 5), "--keep-counts needs --update"),
        ((*saved, "--update", "--freq-threshold", 2), "leave out --freq-threshold"),
    ):
        refused = run(tmp_path / "second.csv", *options, "--out", tmp_path / "4")
        assert refused.exit_code == 2
        assert message in refused.output


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
