from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from small_jobs import write_prepared

from distrain.cli.training.init import command
from distrain.errors import OutputError, SpecError
from distrain.jobs.spec import load_spec, parse_spec
from distrain.jobs.spec.fit_to_table import TableFacts
from distrain.jobs.spec.models.kinds import MlpSpec
from distrain.jobs.spec.presets import MODELS, PRESETS, job_for
from distrain.jobs.spec.training import batch_for
from distrain.jobs.states import JobState
from distrain.launch.inline import run_inline
from distrain.models.build import blueprint_of
from distrain.schema import ColumnSchema, Schema


def test_presets_and_the_default_train_as_written(tmp_path: Path) -> None:
    data = write_prepared(tmp_path / "data")
    for number, preset in enumerate((None, *PRESETS)):
        out = tmp_path / f"{preset}.yaml"
        words = [preset] if preset else []
        done = CliRunner().invoke(command, [*words, "--data", str(data), "--out", str(out)])
        assert done.exit_code == 0, done.output
        full = [*words, "--data", str(data), "--out", str(out), "--overwrite", "--full"]
        short, shortly = load_spec(out), out.read_text()
        assert CliRunner().invoke(command, full).exit_code == 0
        assert load_spec(out) == short
        assert len(shortly.splitlines()) < 40 < len(out.read_text().splitlines())
        spec = load_spec(out, ["resources.backend=inline", "train.max_steps=2"])
        if preset is None:
            assert (spec.train.global_batch_size, spec.best_metric) == (32, "log_loss")
            assert (spec.model.kind, spec.model.structure) == ("dcn_v2", "parallel")
        else:
            assert spec.name == preset
        if number < 2:
            view = run_inline(spec, tmp_path / f"run-{preset}", "job", lambda _: None)
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


@pytest.mark.parametrize(
    ("kind", "rows", "is_split_off", "refits"),
    [
        ("mlp", 10_000, True, True),
        ("mlp", 10_000, False, False),
        ("mlp", 20_000_000, True, False),
        ("two_tower", 10_000, True, False),
    ],
)
def test_only_rows_that_nobody_named_for_validation_are_trained(
    kind: str, rows: int, is_split_off: bool, refits: bool
) -> None:
    schema = SCHEMA.remove(["at", "label", "genre", "counts"])
    table = TableFacts(rows, True, valid_is_split_off=is_split_off)
    assert parse_spec(job_for(kind, "data", schema, table)).train.refit == refits


@pytest.mark.parametrize(("cardinality", "passes_once"), [(90_000, True), (90, False)])
def test_a_table_that_is_read_once_gets_twice_as_many_steps(
    cardinality: int, passes_once: bool
) -> None:
    ids = ColumnSchema("user", "int32", ("categorical",), cardinality)
    schema = Schema((*SCHEMA.select(["label"]), ids))
    table = TableFacts(140_110, True)
    train = parse_spec(job_for("mlp", "data", schema, table)).train
    assert (train.epochs == 1) == passes_once
    assert train.global_batch_size == batch_for(table.rows) // (2 if passes_once else 1)


@pytest.mark.parametrize(
    ("rows", "cardinality", "members"), [(9_000, 90, 8), (20_000, 90, 1), (9_000, 9_000, 1)]
)
@pytest.mark.parametrize("numbers", [1, 80, 81])
def test_small_tables_get_members_and_small_wide_ones_no_pieces(
    rows: int, cardinality: int, members: int, numbers: int
) -> None:
    ids = ColumnSchema("user", "int32", ("categorical",), cardinality)
    prices = (ColumnSchema(f"price{n}", "float32", ("continuous",)) for n in range(numbers))
    schema = Schema((*SCHEMA.select(["label"]), ids, *prices))
    model = parse_spec(job_for("mlp", "data", schema, TableFacts(rows, True))).model
    assert isinstance(model, MlpSpec)
    assert (model.members, model.number_pieces > 0) == (members, numbers < 81 or rows > 10_000)


@pytest.mark.parametrize(("cardinality", "passes_once"), [(10_000, True), (1_000, False)])
def test_ids_that_are_rare_are_seen_once_and_more_often_if_they_predict_classes(
    cardinality: int, passes_once: bool
) -> None:
    ids = ColumnSchema("user", "int32", ("categorical",), cardinality)
    genre = ColumnSchema("genre", "float32", ("target", "multi_class_classification"), 4)
    clicked = SCHEMA.select(["bought it"])

    def epochs(target: ColumnSchema) -> int:
        document = job_for("mlp", "data", Schema((target, ids)), TableFacts(20_000, True))
        return int(document["train"]["epochs"])

    tasks = job_for("mlp", "data", Schema((genre, ids)), TableFacts(20_000, True))["model"]["tasks"]
    assert [task["label_smoothing"] > 0 for task in tasks.values()] == [True]
    assert epochs(*clicked) == 1
    assert (epochs(genre) == 1) == passes_once


@pytest.mark.parametrize(
    ("columns", "rows", "rank"), [(4, 9, None), (40, 9, 64), (40, 10**8, None)]
)
def test_wide_cross_layers_of_small_tables_have_a_low_rank(
    columns: int, rows: int, rank: int | None
) -> None:
    ids = (ColumnSchema(f"c{n}", "int32", ("categorical",), 90) for n in range(columns))
    schema = Schema((SCHEMA["bought it"], *ids))
    assert (
        job_for("dcn_v2", "data", schema, TableFacts(rows, True))["model"].get("low_rank") == rank
    )


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
    assert spec.best_metric in ("log_loss", "recall_at_10")
    assert 10 <= spec.train.num_epochs <= 60
    blueprint_of(schema, spec.model).check()
    users = replace(seen, name="by", cardinality=9, properties={"event": "seen", "domain": "user"})
    more = schema.with_columns(users)
    blueprint_of(more, parse_spec(job_for(kind, "data", more, TableFacts(2_000, True))).model)


@pytest.mark.parametrize(
    ("kind", "without"),
    [("two_tower", []), ("two_tower", ["item"]), ("ncf", ["item"]), ("sasrec", []),
     ("dlrm_cross", ["item"])],
)  # fmt: skip
def test_a_model_that_does_not_fit_the_schema_is_refused(
    kind: str, without: list[str], wording: Any
) -> None:
    with pytest.raises(SpecError) as caught:
        job_for(kind, "data", SCHEMA.remove(without))
    wording(caught.value)


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
