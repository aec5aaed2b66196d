"""Scoring one file: which model is used."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from damaged import flip_bytes
from object_stores import serving
from small_jobs import CARDINALITIES, draw_rows
from wording import Wording

from distrain.errors import DataError, OutputError
from distrain.jobs.spec import MlpSpec
from distrain.models import build_model
from distrain.models.saved_model import save_model
from distrain.predict import cluster_tasks, prediction, score_file as files
from distrain.predict.prediction import PredictRequest, PredictResult, check_request, predict
from distrain.predict.score_file import join_pieces, score_file
from distrain.predict.side_columns import check_side_columns
from distrain.schema import criteo_schema


def save_small(folder: Path, seed: int = 0, about: dict[str, Any] | None = None) -> None:
    schema, spec = criteo_schema(CARDINALITIES), MlpSpec(embedding_dim=2, hidden=(4,))
    save_model(folder, build_model(schema, spec, seed=seed), spec, schema, about=about)


def test_a_damaged_page_of_a_kept_column_is_named(tmp_path: Path) -> None:
    source = tmp_path / "rows.parquet"
    table = draw_rows(50, seed=1)
    table = table.append_column("extra", table["I3"])
    pq.write_table(table, source, row_group_size=25, write_page_checksum=True)
    flip_bytes("extra", in_header=False)(source)
    save_small(tmp_path / "model")
    check_side_columns(str(source), ["extra"], "--keep")
    with pytest.raises(DataError) as refused:
        score_file(
            str(tmp_path / "model"), str(source), str(tmp_path / "out"), (("extra", "extra"),), 20
        )
    assert refused.value.where["file"] == str(source)
    assert not (tmp_path / "out").exists()


def test_a_model_written_anew_in_the_same_folder_is_used(tmp_path: Path) -> None:
    source = tmp_path / "rows.parquet"
    pq.write_table(draw_rows(50, seed=1), source)
    models = [tmp_path / "first", tmp_path / "second"]
    for seed, folder in enumerate(models):
        save_small(folder, seed=seed)

    def scores(folder: Path) -> list[float]:
        assert score_file(str(folder), str(source), str(tmp_path / "out"), (), 20) == 50
        return list(pq.read_table(tmp_path / "out")["probability"].to_pylist())

    expected = scores(models[1])
    used = tmp_path / "used"
    shutil.copytree(models[0], used)
    assert scores(used) != expected
    shutil.rmtree(used)
    shutil.copytree(models[1], used)
    assert scores(used) == expected


def test_columns_of_folders_are_read_as_in_training(tmp_path: Path) -> None:
    known = {"reading": {"hive": True}, "workflow": {"folder": str(tmp_path / "gone")}}
    save_small(tmp_path / "model", about=known)
    rows = draw_rows(50, seed=1)
    rows = rows.set_column(rows.column_names.index("C5"), "C5", pa.array([3] * 50, pa.int32()))
    required = pa.schema([field.with_nullable(False) for field in rows.schema])
    rows = rows.cast(required)
    files = [tmp_path / "all.parquet", tmp_path / "C5=3" / "most.parquet"]
    files[1].parent.mkdir()
    pq.write_table(rows, files[0])
    pq.write_table(rows.drop_columns(["C5"]), files[1])
    for file in files:
        predict(
            PredictRequest(tmp_path / "model", (str(file),), tmp_path / f"of-{file.name}"), None
        )
    expected, found = (pq.read_table(tmp_path / f"of-{file.name}") for file in files)
    assert found.equals(expected)


def test_a_file_is_scored_on_the_device_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, folder = tmp_path / "rows.parquet", tmp_path / "model"
    pq.write_table(draw_rows(20, seed=1), source)
    save_small(folder)
    # A worker of a local cluster without GPUs of its own, on a machine with one.
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert score_file(str(folder), str(source), str(tmp_path / "out"), (), 20, "cpu") == 20


def test_a_gpu_gets_batches_where_it_is_from_more_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr(files, "Loader", lambda *_, **options: made.append(options))
    for kind in ("cpu", "cuda"):
        files.scoring_loader(None, 100, torch.device(kind), threads=1)  # type: ignore[arg-type]
    assert [options["device"].type for options in made] == ["cpu", "cuda"]
    assert [options["decode_threads"] for options in made] == [1, files._GPU_THREADS]


def test_few_files_are_at_the_scheduler_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client of two threads runs what is submitted at once."""
    client, ahead = Mock(**{"nthreads.return_value": {"worker": 2}}), []

    class Completed(list[Any]):
        def __init__(self, futures: list[Any], loop: Any):
            super().__init__(futures)
            assert loop is client.loop

        def __iter__(self) -> Iterator[Any]:
            while self:
                ahead.append(client.submit.call_count - len(ahead))
                yield self.pop()

        add = list.append

    client.submit.side_effect = lambda function, *words, pure: function(*words)
    monkeypatch.setattr("distributed.as_completed", Completed)
    done = lambda value: Mock(**{"result.return_value": value})  # noqa: E731
    found = cluster_tasks.results(client, done, ((n,) for n in range(100, 200)))
    assert sorted(found) == list(enumerate(range(100, 200)))
    assert max(ahead) == 6
    assert not client.cancel.called


def test_a_file_in_pieces_of_row_groups_has_the_scores_of_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_small(tmp_path / "model")
    rows = draw_rows(95, seed=1)
    pq.write_table(rows, tmp_path / "long.parquet", row_group_size=10)
    pq.write_table(rows.slice(0, 12), tmp_path / "short.parquet")

    def run(client, function, tasks):
        for place, task in enumerate(tasks):
            ran.append(function)
            yield place, function(*task)

    monkeypatch.setattr(prediction, "results", run)
    inputs = (str(tmp_path / "*.parquet"),)
    found = {}
    progress: list[tuple[int, int, int]] = []
    for name, piece_rows in (("whole", 1000), ("pieces", 30)):
        ran: list[object] = []
        monkeypatch.setattr(cluster_tasks, "PIECE_ROWS", piece_rows)
        request = PredictRequest(tmp_path / "model", inputs, tmp_path / name, ("I1",), 7)
        progress.clear()
        result = predict(request, None, lambda *at: progress.append(at))
        assert (result.rows, result.files) == (107, 2)
        assert ran.count(join_pieces) == (name == "pieces")
        assert progress[-1] == ((5, 5, 107) if name == "pieces" else (2, 2, 107))
        assert sorted(p.name for p in request.out.iterdir()) == ["long.parquet", "short.parquet"]
        found[name] = pq.read_table(request.out / "long.parquet")
    assert found["pieces"]["I1"].equals(rows["I1"])
    for name, column in zip(found["whole"].column_names, found["whole"].columns, strict=True):
        assert found["pieces"][name].to_pylist() == pytest.approx(column.to_pylist(), abs=1e-6)


def test_requests_that_cannot_be_served_are_refused_before_any_row_is_scored(
    tmp_path: Path, wording: Wording
) -> None:
    rows = draw_rows(10, seed=1)
    (tmp_path / "data").mkdir()
    pq.write_table(rows, tmp_path / "data" / "a.parquet")
    pq.write_table(rows.slice(0, 0), tmp_path / "none.parquet")
    save_small(tmp_path / "model")
    (tmp_path / "link").symlink_to(tmp_path / "data")
    model, data = tmp_path / "model", str(tmp_path / "data")
    for out in ("data", "model", "link", "."):
        request = PredictRequest(model, (data,), tmp_path / out, overwrite=True)
        wording.refused(OutputError, partial(check_request, request))
    request = PredictRequest(model, (data, str(tmp_path / "none.parquet")), tmp_path / "scores")
    wording.refused(DataError, lambda: check_request(request))


def test_joining_again_after_a_worker_was_lost_finds_what_is_whole(tmp_path: Path) -> None:
    pieces = (str(tmp_path / "0"), str(tmp_path / "1"))
    for piece in pieces:
        pq.write_table(draw_rows(5, seed=1), piece)
    assert join_pieces(pieces, str(tmp_path / "all")) == 10
    assert join_pieces(pieces, str(tmp_path / "all")) == 10


class _Killed(Exception):
    pass


@pytest.fixture
def rows_and_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`long.parquet` of four pieces, `short.parquet` of one, and a model."""
    save_small(tmp_path / "model")
    rows = draw_rows(95, seed=1)
    pq.write_table(rows, tmp_path / "long.parquet", row_group_size=10)
    pq.write_table(rows.slice(0, 12), tmp_path / "short.parquet")
    monkeypatch.setattr(cluster_tasks, "PIECE_ROWS", 30)
    return tmp_path


def _ran(monkeypatch: pytest.MonkeyPatch, most: int = 100) -> list[str]:
    """What is scored from now on; the command is killed before one more file than `most`."""
    scored: list[str] = []

    def run(client, function, tasks):
        for place, task in enumerate(tasks):
            if function is score_file:
                if len(scored) == most:
                    raise _Killed
                scored.append(Path(task[2]).name)
            yield place, function(*task)

    monkeypatch.setattr(prediction, "results", run)
    return scored


def test_a_command_that_ends_early_leaves_nothing_and_the_next_one_scores_all(
    rows_and_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = (str(rows_and_model / "*.parquet"),)
    out = rows_and_model / "out"
    request = PredictRequest(rows_and_model / "model", inputs, out, ("I1",), 7)
    before = sorted(rows_and_model.iterdir())
    _ran(monkeypatch, most=3)
    with pytest.raises(_Killed):
        predict(request, None)
    assert sorted(rows_and_model.iterdir()) == before
    scored = _ran(monkeypatch)
    names = ("long.parquet", "short.parquet")
    assert predict(request, None) == PredictResult(107, 2, names=names)
    assert len(scored) == 5
    with pytest.raises(OutputError):
        predict(request, None)


@pytest.mark.slow
def test_scores_in_an_object_store_appear_together(
    rows_and_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = (str(rows_and_model / "*.parquet"),)
    with serving("scores") as store:
        request = PredictRequest(rows_and_model / "model", inputs, "s3://scores/out", ("I1",), 7)
        _ran(monkeypatch, most=2)
        with pytest.raises(_Killed):
            predict(request, None)
        store.invalidate_cache()
        assert not store.find("scores/out/long.parquet")
        _ran(monkeypatch)
        assert predict(request, None).rows == 107
        with pytest.raises(OutputError):
            predict(request, None)
        predict(replace(request, out=rows_and_model / "here"), None)
        store.invalidate_cache()
        found = {name.rpartition("/")[2] for name in store.find("scores/out")}
        assert found == {"long.parquet", "short.parquet", ".distrain-output.json"}
        for name in ("long.parquet", "short.parquet"):
            with store.open(f"scores/out/{name}") as file:
                assert pq.read_table(file).equals(pq.read_table(rows_and_model / "here" / name))
