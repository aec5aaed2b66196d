from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from small_jobs import CARDINALITIES, write_prepared

from distrain.cli.training.init import command
from distrain.errors import OutputError, SpecError
from distrain.jobs.states import JobState
from distrain.models import blueprint_of
from distrain.partition import column_moments, read_footers
from distrain.schema import ColumnSchema, Schema, criteo_schema
from distrain.spec import MODELS, TableFacts, job_for, load_spec, parse_spec
from distrain.spec.presets import PRESETS
from distrain.submission.inline import run_inline


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_trains_as_written(preset: str, tmp_path: Path) -> None:
    data = write_prepared(tmp_path / "data")
    out = tmp_path / "job.yaml"
    done = CliRunner().invoke(command, [preset, "--data", str(data), "--out", str(out)])
    assert done.exit_code == 0, done.output
    spec = load_spec(out, ["resources.backend=inline", "train.global_batch_size=1000"])
    assert spec.name == preset
    view = run_inline(spec, tmp_path / "run", "job", lambda _: None)
    assert view.state is JobState.SUCCEEDED


SCHEMA = Schema(
    (
        ColumnSchema("label", "float32", ("target", "regression")),
        ColumnSchema("bought it", "float32", ("target", "binary_classification")),
        ColumnSchema("genre", "float32", ("target", "multi_class_classification"), 3),
        ColumnSchema("counts", "float32", ("weight",)),
        ColumnSchema("at", tags=("time",), properties={"window_size": "1d"}),
        ColumnSchema("user", "int32", ("categorical", "user_id"), 9),
        ColumnSchema("item", "int32", ("categorical", "item_id"), 7),
    )
)


def test_a_spec_has_the_targets_weight_and_windows_of_the_schema() -> None:
    document = job_for("mlp", "data", SCHEMA)
    assert document["model"]["tasks"] == {
        "label": {"target": "label", "kind": "regression"},
        "bought_it": {"target": "bought it", "kind": "binary"},
        "genre": {"target": "genre", "kind": "multiclass", "classes": 3},
    }
    assert document["data"]["weight"] == "counts"
    assert document["data"]["windows"] == {"by": "at", "size": "1d"}
    parse_spec(document)


def test_targets_whose_names_are_alike_are_tasks_of_their_own() -> None:
    long = "n" * 63
    names = ("ä", "ö", "_2", "a b", "a_b", "-x", "--", f"{long}1", f"{long}2", "continuous")
    columns = [ColumnSchema(name, "float32", ("target", "binary_classification")) for name in names]
    document = job_for("mlp", "data", Schema((*columns, SCHEMA["user"])))
    tasks = {name: task["target"] for name, task in document["model"]["tasks"].items()}
    assert tuple(tasks.values()) == names
    expected = ["_", "__2", "_2", "a_b", "a_b_2", "x", "task", long, f"{long[:61]}_2"]
    expected.append("continuous_2")
    assert list(tasks) == expected
    parse_spec(document)


@pytest.mark.parametrize("kind", MODELS)
def test_every_model_has_a_spec_for_one_target_of_two_values(kind: str) -> None:
    plain = ColumnSchema("label", "float32", ("target", "binary_classification"))
    events = {"event": "seen", "domain": "item"}
    seen = ColumnSchema("seen", "int32", ("categorical",), 7, is_list=True, properties=events)
    ago = ColumnSchema("ago", "float32", ("continuous",), is_list=True, properties=events)
    schema = Schema((plain, SCHEMA["user"], SCHEMA["item"], seen, ago))
    spec = parse_spec(job_for(kind, "data", schema, TableFacts(2_000, True)))
    assert spec.model.kind == kind
    assert not getattr(spec.model, "tasks", {})
    retrieves = kind in ("two_tower", "sasrec_retrieval")
    assert spec.best_metric == ("recall_at_10" if retrieves else "log_loss")
    epochs = {"two_tower": 60, "sasrec_retrieval": 10}  # of 2 and 63 steps
    assert spec.train.num_epochs == epochs.get(kind, 60)
    blueprint_of(schema, spec.model).check()
    users = replace(seen, name="by", cardinality=9, properties={"event": "seen", "domain": "user"})
    more = schema.with_columns(users)
    blueprint_of(more, parse_spec(job_for(kind, "data", more, TableFacts(2_000, True))).model)
    if kind in ("din", "bst", "sasrec", "hstu", "sasrec_retrieval"):
        with pytest.raises(SpecError, match=f"{kind} reads events"):
            job_for(kind, "data", schema.with_columns(replace(seen, properties={})))


def test_towers_of_rows_with_weights_which_retrieval_has_not_learn_their_labels() -> None:
    labels = ColumnSchema("label", "float32", ("target", "binary_classification"))
    schema = Schema((labels, *(SCHEMA[name] for name in ("counts", "user", "item"))))
    document = job_for("two_tower", "data", schema, TableFacts(2_000, True))
    assert parse_spec(document).best_metric == "log_loss"
    assert "log_q" not in document["model"]


def test_a_model_that_does_not_fit_the_schema_is_refused() -> None:
    with pytest.raises(SpecError, match="two_tower learns one target of 0 and 1"):
        job_for("two_tower", "data", SCHEMA)
    for kind in ("two_tower", "ncf"):
        with pytest.raises(SpecError, match="none is tagged item_id"):
            job_for(kind, "data", SCHEMA.remove(["item"]))
    with pytest.raises(SpecError, match="sasrec reads events"):
        job_for("sasrec", "data", SCHEMA)
    with pytest.raises(SpecError, match="there are not two"):
        job_for("dlrm_cross", "data", SCHEMA.remove(["item"]))


def test_a_model_that_is_not_there_is_a_mistake_of_the_command() -> None:
    done = CliRunner().invoke(command, ["mpl", "--data", "d"])
    assert done.exit_code == 2
    assert "'mpl' is not one of criteo-mlp" in done.output.replace("\n", " ")


def test_validation_is_left_out_where_there_are_no_rows_for_it(tmp_path: Path) -> None:
    out = tmp_path / "job.yaml"
    CliRunner().invoke(command, ["criteo-mlp", "--data", str(tmp_path), "--out", str(out)])
    assert load_spec(out).data.valid == ()


def test_an_existing_file_is_kept(tmp_path: Path) -> None:
    out = tmp_path / "job.yaml"
    out.write_text("mine")
    done = CliRunner().invoke(command, ["criteo-mlp", "--data", "d", "--out", str(out)])
    assert isinstance(done.exception, OutputError)
    assert out.read_text() == "mine"


@pytest.mark.parametrize(("rows", "batch", "epochs"), [(2_000, 32, 60), (200_000, 512, 10)])
def test_a_model_is_trained_for_as_long_as_its_table_wants(
    rows: int, batch: int, epochs: int
) -> None:
    table = TableFacts(rows, True, {"label": (3.0, 2.0), "bought it": (0.25, 0.4)})
    spec = parse_spec(job_for("mlp", "data", SCHEMA.remove(["at"]), table))
    assert (spec.train.batch_rows, spec.train.num_epochs) == (batch, epochs)
    assert spec.model.tasks["label"].mean == 3.0
    assert spec.model.tasks["label"].std == 2.0
    assert spec.model.tasks["bought_it"].mean == 0.25
    assert spec.best_metric == "label.rmse"
    once = epochs == 1
    assert spec.train.optimizer.kind == ("adagrad" if once else "adamw")
    assert spec.train.ema == 0.99
    in_order = parse_spec(job_for("mlp", "data", SCHEMA, table))
    assert (in_order.train.num_epochs, in_order.best_metric) == (1, None)
    # The newest window counts most, and tomorrow's run goes on from it.
    assert in_order.train.schedule.decay == "none"
    assert in_order.evaluate.next_window


def test_each_window_has_as_many_steps_as_another_tables_epoch() -> None:
    spec = parse_spec(job_for("mlp", "data", SCHEMA, TableFacts(2_000_000, True, windows=10)))
    assert spec.train.batch_rows == 512
    auto = parse_spec({"data": {"train": "t", "windows": {"by": "file"}}, "model": {"kind": "mlp"},
                       "train": {"global_batch_size": "auto", "epochs": "auto"}})  # fmt: skip
    assert auto.for_rows(1_000).train.num_epochs == 1


def test_a_written_spec_is_fitted_to_the_rows_of_the_folder(tmp_path: Path) -> None:
    data = write_prepared(tmp_path / "data")
    out = tmp_path / "job.yaml"
    done = CliRunner().invoke(command, ["--data", str(data), "--out", str(out)])
    assert done.exit_code == 0, done.output
    spec = load_spec(out)
    assert spec.train.global_batch_size == 32
    assert spec.best_metric == "log_loss"
    assert spec.model.number_pieces == 12


def test_moments_are_weighted_exact_and_of_some_row_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = (
        ColumnSchema("price", "float64", ("target", "regression")),
        ColumnSchema("counts", "float32", ("weight",)),
        ColumnSchema("user", "int32", ("categorical",), 9),
    )
    price = 1e9 + np.array([0.0, 3.0, 50.0, 70.0, 1.0, 5.0])
    counts = np.array([1, 3, 1, 1, 2, 1], np.float32)
    rows = {"price": price, "counts": counts, "user": np.zeros(6, np.int32)}
    pq.write_table(pa.table(rows), tmp_path / "a.parquet", row_group_size=2)
    table = read_footers(str(tmp_path), Schema(columns))
    for sampled, taken in ((6, slice(None)), (3, [0, 1, 4, 5])):
        monkeypatch.setattr("distrain.partition.scanning._SAMPLED_ROWS", sampled)
        repeated = np.repeat(price[taken], counts[taken].astype(int))
        (mean, std) = column_moments(table, ["price"], "counts")["price"]
        assert mean == pytest.approx(repeated.mean(), abs=1e-6)
        assert std == pytest.approx(repeated.std(), rel=1e-6)


def test_a_damaged_table_is_said_to_be_unread(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "a.parquet").write_bytes(b"no parquet")
    criteo_schema(CARDINALITIES).save(tmp_path / "schema.pbtxt")
    options = ["--data", str(tmp_path), "--out", str(tmp_path / "job.yaml")]
    done = CliRunner().invoke(command, options)
    assert done.exit_code == 0
    assert "note: the training is not fitted to the table: " in done.stderr
