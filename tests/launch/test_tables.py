"""`distrain.fit(table, target=...)`: one model from every form of a table, prepared once."""

import json
import re
import shutil
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from click.testing import CliRunner
from waiting import until

import distrain
from distrain.cli.models.evaluate import command as evaluate
from distrain.cli.runs.report import command as report, compare
from distrain.cli.training.train import command
from distrain.errors import DataError, DistrainError, InputError, OutputError, SpecError
from distrain.jobs.spec import load_spec
from distrain.jobs.spec.load import check_overrides, parse_spec
from distrain.launch.reporting import LoggedProgress
from distrain.launch.tables import TableRequest, job_of_table, make_user_choices
from distrain.predict import raw_rows
from distrain.predict.raw_rows import columns_of_classes
from distrain.prep import FeatureConfig
from distrain.prep.features.inference.suggest import MEASURES_TIME
from distrain.prep.features.inference.user_choices import UserChoices
from distrain.prep.rows_in_memory import table_of
from distrain.train.step.learning_rate import lr_at

pytestmark = pytest.mark.usefixtures("undrawn")

INTERVALS = pa.table(
    {"a": pa.array([[(1, 2, 3)]] * 2, pa.list_(pa.month_day_nano_interval())), "bought": [0, 1]}
)
ROWS = 600
FEW = {"train.max_steps": 3}


@pytest.fixture(scope="module")
def table():
    draw = np.random.default_rng(0)
    shops = [f"shop-{number}" for number in draw.integers(0, 30, ROWS)]
    return pd.DataFrame(
        {
            "shop": shops,
            "price": draw.gamma(2.0, 10.0, ROWS).round(2),
            "at": pd.Timestamp("2024-01-01") + pd.to_timedelta(draw.permutation(ROWS), "min"),
            "stars": draw.integers(1, 6, ROWS),
            "weight": draw.integers(0, 3, ROWS),
            "bought": np.where(draw.random(ROWS) < 0.3, "yes", "no"),
        }
    )


class Exported:
    """Rows of any library, which has nothing but Arrow's C stream."""

    def __init__(self, table):
        self._table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


def rows_of(job):
    data = job.document["data"]
    return pa.concat_tables(
        [pq.read_table(file) for part in ("train", "valid") for file in data[part]]
    )


def same_bits(run, other):
    first, second = (one.load_model().model.state_dict() for one in (run, other))
    return first.keys() == second.keys() and all(torch.equal(first[k], second[k]) for k in first)


@pytest.mark.slow
@pytest.mark.parametrize("form_of_dates", [None, "%d/%m/%Y"])
def test_every_form_of_a_table_gives_the_same_rows_and_is_prepared_once(
    table, tmp_path, form_of_dates
):
    import dask.dataframe as dd

    if form_of_dates is not None:
        days = table["at"] + pd.to_timedelta(table.index % 90, "D")
        table = table.assign(at=days.dt.strftime(form_of_dates))
    table.to_parquet(tmp_path / "rows.parquet")
    table.to_csv(tmp_path / "rows.csv", index=False)
    forms = {
        "frame": table,
        "again": table.set_axis(table.index + 7),
        "stream": Exported(pq.read_table(tmp_path / "rows.parquet")),
        "columns": {name: table[name].tolist() for name in table},
        "parquet": tmp_path / "rows.parquet",
        "glob": [str(tmp_path / "*.csv")],
        "dask": dd.from_pandas(table, npartitions=1),
    }
    kept = tmp_path / "kept"
    jobs, folders = {}, {}
    for name, form in forms.items():
        asked = UserChoices(("bought",), time="at")
        jobs[name] = job_of_table(TableRequest(form, kept, asked), print)
        folders[name] = {*kept.glob("data-*")}
    assert folders["frame"] == folders["again"], "rows were prepared a second time"
    expected = rows_of(jobs["frame"])
    assert any(name.startswith("at_") for name in expected.column_names)
    for name, job in jobs.items():
        assert rows_of(job).equals(expected), name


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (("train.epochs=1",), r"\bmlp, 1 epoch,"),
        (("train.epochs=2", "train.early_stopping=null"), r"\b2 epochs,"),
        (("train.epochs=2", "train.early_stopping.patience=1"), r"\b2 epochs at most,"),
        (
            ("train.epochs=2", "train.max_steps=9999", "train.early_stopping.patience=1"),
            r"\b2 epochs at most, 9999 steps at most,",
        ),
        (("train.optimizer.lr=0.5",), r" 0\.5$"),
        (("model.kind=dcn_v2", "train.max_steps=7"), r"\bdcn_v2\b.*\b7 steps\b"),
        (("train.epochs=auto", "train.global_batch_size=auto"), r"\b15 epochs\b.*\b32 rows\b"),
    ],
)
def test_the_decision_about_the_model_has_the_values_that_overrides_set(
    table, tmp_path, overrides, expected
):
    request = TableRequest(
        table, tmp_path, UserChoices(("bought",)), model="mlp", overrides=overrides
    )
    (line,) = [one for one in job_of_table(request, print).decisions if one.startswith("model: ")]
    assert re.search(expected, line), line


@pytest.mark.slow
def test_the_decisions_describe_each_target(table, tmp_path):
    described = {}
    for names in (("bought", "price"), ("bought",), ("price",)):
        rows = table.assign(price=table["stars"] * 1.5 + table.index / 7)
        request = TableRequest(rows, tmp_path, UserChoices(names))
        decisions = job_of_table(request, print).decisions
        described[names] = [one for one in decisions if "target" in one.partition(":")[0]]
    first, further = described["bought", "price"]
    assert [first] == described["bought",]
    (alone,) = described["price",]
    reason = alone.partition("(")[2].partition(";")[0].rstrip(")")
    assert reason
    assert reason in further
    assert "price" not in first


MAKER = """
import sys, time
from pathlib import Path
from distrain.launch import tables

def made(wanted, *_):
    print("preparing", flush=True)
    time.sleep(1e6)

if sys.argv[3] == "hangs":
    tables.prepare = made
request = tables.TableRequest(sys.argv[1], Path(sys.argv[2]), tables.UserChoices(("bought",)))
job = tables.job_of_table(request, lambda text: print(text, flush=True))
print("prepared" if job.prepared else "used", job.document["data"]["train"], flush=True)
"""


@contextmanager
def makers(kind, number, file, place):
    """Processes that prepare the rows of a file; yields what each has printed so far."""
    with ExitStack() as stack:
        outputs = [place / f"{kind}-{one}.txt" for one in range(number)]
        processes = []
        for output in outputs:
            words = [sys.executable, "-P", "-c", MAKER, str(file), str(place / "kept"), kind]
            opened = stack.enter_context(output.open("w"))
            process = subprocess.Popen(words, stdout=opened, stderr=subprocess.STDOUT)
            stack.callback(process.wait)
            stack.callback(process.kill)
            processes.append(process)
        yield processes, lambda: [output.read_text() for output in outputs]


@pytest.mark.slow
def test_processes_that_prepare_the_same_rows_wait_for_one_and_take_over_from_a_dead_one(
    table, tmp_path
):
    file = tmp_path / "rows.parquet"
    table.to_parquet(file)
    with makers("hangs", 1, file, tmp_path) as ([hanging], hung):
        until(lambda: "preparing" in hung()[0], lambda: hung()[0])
        with makers("works", 2, file, tmp_path) as (working, worked):
            until(lambda: all("waiting" in text for text in worked()), lambda: str(worked()))
            hanging.kill()
            assert [process.wait() for process in working] == [0, 0], worked()
    ends = sorted(text.splitlines()[-1].split() for text in worked())
    assert [end[0] for end in ends] == ["prepared", "used"]
    assert ends[0][1] == ends[1][1]
    assert {path.name for path in (tmp_path / "kept").iterdir()} == {Path(ends[0][1]).parent.name}


@pytest.mark.slow
@pytest.mark.parametrize("of", [lambda y: y, lambda y: y.to_numpy(), lambda y: y.tolist()])
def test_labels_beside_the_rows_are_an_error_whose_advice_works(table, tmp_path, of):
    labels = table["bought"]
    with pytest.raises(InputError, match="target=") as caught:
        distrain.fit(table.drop(columns="bought"), of(labels))
    advice = re.search(r"fit(\(X.*?\))\.", caught.value.hint)[1].removesuffix(")")
    rest = f"{advice}, run_dir=run_dir, overrides=FEW)"
    names = {"X": table.drop(columns="bought"), "y": of(labels), "FEW": FEW}
    run = eval(f"fit{rest}", names | {"fit": distrain.fit, "run_dir": tmp_path / "run"})
    assert [*run.classes] == sorted(labels.unique())


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("form", ["frame", "csv"])
@pytest.mark.parametrize("first", [2**53, 10**18])
def test_whole_numbers_that_float64_rounds_are_different_labels(tmp_path, first, form, classes):
    draw = np.random.default_rng(0).integers(0, classes, 300)
    rows = pd.DataFrame({"id": draw.astype(str), "seen": first + draw})
    rows.to_csv(tmp_path / "rows.csv", index=False)
    rows = rows if form == "frame" else tmp_path / "rows.csv"
    request = TableRequest(rows, tmp_path / "kept", UserChoices(("seen",), valid=30))
    job = job_of_table(request, print)
    assert pq.read_table(*job.document["data"]["train"])["label"].to_pylist() == [*draw[:-30]]


@pytest.mark.slow
def test_a_run_keeps_what_it_is_repeated_from(table, tmp_path):
    asked = {"target": ["bought", "stars"], "weight": "weight", "time": "at", "valid": 0.25}
    run = distrain.fit(table, **asked, model={"kind": "mlp", "hidden": [8]}, overrides=FEW,
                       run_dir=tmp_path / "run")  # fmt: skip
    features = FeatureConfig.load(run.run_dir / "features.yaml").document
    assert features.target.equals == "yes"
    assert features.more_targets["stars"].classes == (1, 2, 3, 4, 5)
    assert (features.weight, features.split.by, features.split.column) == ("weight", "time", "at")
    spec = load_spec(run.run_dir / "job.yaml")
    assert spec == load_spec(run.run_dir / "spec.yaml")
    assert (spec.model.kind, spec.model.hidden, spec.data.weight) == ("mlp", (8,), "weight")
    again = distrain.fit(run.run_dir / "job.yaml", run_dir=tmp_path / "again")
    by_features = distrain.fit(
        table, features=run.run_dir / "features.yaml", model={"kind": "mlp", "hidden": [8]},
        overrides=FEW, run_dir=tmp_path / "third",
    )  # fmt: skip
    assert same_bits(run, again)
    assert same_bits(run, by_features)


def test_the_command_trains_what_fit_trains(table, tmp_path):
    table.to_csv(tmp_path / "rows.csv", index=False)
    root = tmp_path / "runs" / "command"
    words = [str(tmp_path / "rows.csv"), "--target", "stars", "--task", "regression", "--valid"]
    words += ["{by: hash, column: shop, share: 0.3}", "--set", "train.max_steps=3"]
    done = CliRunner().invoke(command, [*words, "--run-dir", str(root)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    split = {"by": "hash", "column": "shop", "share": 0.3}
    run = distrain.fit(
        table, target="stars", task="regression", valid=split, overrides=FEW, run_dir=tmp_path / "r"
    )
    assert same_bits(run, distrain.Run(root))
    for wrong in (
        [*words[:1]],
        ["job.yaml", "--model", "mlp"],
        ["a", "b"],
        [*words, "--resume", "r"],
    ):
        assert CliRunner().invoke(command, wrong).exit_code != 0


def test_the_command_takes_a_features_document(table, tmp_path):
    table.to_csv(tmp_path / "rows.csv", index=False)
    document = {"columns": {"shop": {"kind": "categorical"}}, "target": {"column": "stars"}}
    document["target"] |= {"kind": "regression"}
    (tmp_path / "f.yaml").write_text(yaml.safe_dump(document))
    words = [str(tmp_path / "rows.csv"), "--features", str(tmp_path / "f.yaml"), "--dry-run"]
    done = CliRunner().invoke(
        command, [*words, "--run-dir", str(tmp_path / "run")], catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    assert "inferring" not in done.output
    assert "regression" in done.output


@pytest.mark.parametrize(
    "overrides",
    [
        ("data.windows={by: stars, size: 1}",),
        ("data.negatives=0.5",),
        ("train.audit=true",),
        ("train.reduce_on_plateau={}",),
        ("train.table_weight_decay=0.1",),
        ("data.valid=[]",),
        ("evaluate.every_steps=null",),
        ("checkpoint.keep_best=auc",),
        ("train.early_stopping.metric=auc",),
    ],
)
def test_what_overrides_exclude_is_not_set_for_the_table(table, tmp_path, overrides):
    request = TableRequest(table, tmp_path, UserChoices(("bought",)), model="mlp")
    plain = job_of_table(request, print).document
    assert plain["train"]["refit"]
    assert plain["train"]["ema"]
    document = job_of_table(replace(request, overrides=overrides), print).document
    parse_spec(document, overrides)


@pytest.mark.slow
def test_evaluating_the_rows_that_a_model_trained_on_is_warned_of(table, tmp_path, caplog):
    rows, valid, other = (tmp_path / f"{name}.csv" for name in ("rows", "valid", "other"))
    table.to_csv(rows, index=False)
    table[:200].to_csv(valid, index=False)
    table[200:].to_csv(other, index=False)
    fitted = {"target": "bought", "overrides": FEW | {"train.refit": True}}
    of_files = distrain.fit(rows, valid=valid, **fitted, run_dir=tmp_path / "files")
    of_table = distrain.fit(table, **fitted, run_dir=tmp_path / "table")
    for data, is_warned in ((rows, True), (valid, True), (other, False)):
        done = CliRunner().invoke(evaluate, [str(of_files.run_dir), str(data)])
        assert done.exit_code == 0, done.output
        assert ("trained on these rows" in done.output) == is_warned
        caplog.clear()
        of_files.evaluate(data)
        assert ("trained on these rows" in caplog.text) == is_warned
    for data, is_warned in ((table, True), (table[:300], False)):
        caplog.clear()
        of_table.evaluate(data)
        assert ("trained on these rows" in caplog.text) == is_warned
    with rows.open("a") as file:
        file.write(rows.read_text().splitlines()[1] + "\n")
    caplog.clear()
    of_files.evaluate(rows)
    assert "trained on these rows" not in caplog.text, "the file has changed"


@pytest.mark.slow
def test_bad_lines_stop_or_are_dropped_up_to_a_share(table, tmp_path):
    lines = table.to_csv(index=False).splitlines()
    (tmp_path / "rows.csv").write_text("\n".join([*lines[:300], "torn", *lines[300:]]))
    words = [str(tmp_path / "rows.csv"), "--target", "bought", "--dry-run", "--run-dir"]
    kept, skip = [], ["--bad-lines", "skip"]
    for name, options, is_accepted in (
        ("a", skip, True),
        ("a", [*skip, "--max-bad", "0.1%"], False),  # rows prepared with another share do not count
        ("a", [], False),
        ("b", skip, True),
    ):
        place = tmp_path / name / "run"
        done = CliRunner().invoke(command, [*words, str(place), *options])
        assert (done.exit_code == 0) == is_accepted
        assert isinstance(done.exception, DataError | None), done.exception
        kept += [*(tmp_path / name / ".prepared").glob("data-*/train")] if is_accepted else []
    request = TableRequest(
        tmp_path / "rows.csv", tmp_path / "c", UserChoices(("bought",)), max_bad=0.01
    )
    assert job_of_table(request, print).prepared.bad_lines.count == 1
    again = job_of_table(request, print)  # with the rows that are prepared
    assert any(line.startswith("bad lines: 1 ") for line in again.decisions)
    rows = [pq.read_table(folder).num_rows for folder in kept]
    assert rows[0] == rows[1] > 0
    with pytest.raises(DataError):
        distrain.fit(tmp_path / "rows.csv", target="bought", run_dir=tmp_path / "d" / "run")
    for wrong in ("5%", 1.5, float("nan")):
        with pytest.raises(SpecError):
            distrain.fit(table, target="bought", run_dir=tmp_path / "d" / "run", max_bad=wrong)


def test_rows_left_out_and_warnings_are_repeated_when_prepared_rows_are_used_again(table, tmp_path):
    unlabelled = np.arange(ROWS) % 20 == 0
    last = np.arange(ROWS) >= ROWS - 240
    rows = table.assign(bought=table["bought"].mask(last, "no").mask(unlabelled))
    request = TableRequest(rows, tmp_path, UserChoices(("bought",), valid=180))
    first, again = (job_of_table(request, print) for _ in range(2))
    assert (first.prepared.unlabelled, again.prepared) == (unlabelled.sum(), None)
    assert any(f" {unlabelled.sum()} left out" in decision for decision in first.decisions)
    assert any("validation rows have the label 0" in warning for warning in first.warnings)
    assert (again.decisions, again.warnings) == (first.decisions, first.warnings)


@pytest.mark.slow
def test_results_name_the_target_by_its_column(table, tmp_path):
    table.to_csv(tmp_path / "rows.csv", index=False)
    rows, root = str(tmp_path / "rows.csv"), tmp_path / "run"
    words = [rows, "--target", "price", "--model", "mlp", "--set", "train.max_steps=3"]
    trained = CliRunner().invoke(command, [*words, "--run-dir", str(root)], catch_exceptions=False)
    evaluated = CliRunner().invoke(evaluate, [str(root), rows], catch_exceptions=False)
    reported = CliRunner().invoke(report, [str(root)], catch_exceptions=False)
    assert trained.exit_code == evaluated.exit_code == reported.exit_code == 0
    copy = shutil.copytree(root, tmp_path / "copy")
    compared = CliRunner().invoke(compare, [str(root), str(copy)], catch_exceptions=False)
    shown = (trained.output, evaluated.output, compared.output, repr(distrain.Run(root)))
    for text in (*shown, (root / "report.html").read_text()):
        assert "price" in text
        assert not re.search(r"\blabel\b[ :<]*(RMSE|rmse|/th)", text)


@pytest.mark.slow
def test_a_feature_named_label_is_not_the_target(table, tmp_path):
    said = []
    run = distrain.fit(
        table.assign(label=table["price"] > 9, stars=np.arange(ROWS) % 7), target="stars",
        task="regression", model="mlp", overrides=FEW, run_dir=tmp_path / "run",
        progress=LoggedProgress(said.append),
    )  # fmt: skip
    found = run.evaluate(table.assign(label=True))
    assert (found.target, {*found.targets}) == ("stars", {"stars"})
    warnings = [text for text in said if text.startswith("warning")]
    assert any("stars" in text for text in warnings)
    assert not any("label" in text for text in warnings)


@pytest.mark.parametrize("form", ["csv", "parquet", "folder"])
def test_a_table_without_a_target_is_refused_with_its_columns(table, tmp_path, form):
    path = tmp_path / f"rows.{form}"
    if form == "csv":
        table.to_csv(path, index=False)
    else:
        (path if form == "folder" else tmp_path).mkdir(exist_ok=True)
        table.to_parquet(path / "a.parquet" if form == "folder" else path)
    with pytest.raises(InputError) as of_command:
        CliRunner().invoke(command, [str(path)], catch_exceptions=False)
    with pytest.raises(InputError) as of_fit:
        distrain.fit(path)
    for refused in (of_command.value, of_fit.value):
        assert refused.where["columns"] == ", ".join(table.columns)


@pytest.mark.parametrize("state", ["succeeded", "failed", None])
def test_a_run_folder_is_not_a_table(tmp_path, state):
    (tmp_path / "run.json").write_text("{}")
    if state is not None:
        (tmp_path / "summary.json").write_text(json.dumps({"state": state}))
    with pytest.raises(InputError) as of_command:
        CliRunner().invoke(command, [str(tmp_path)], catch_exceptions=False)
    with pytest.raises(InputError) as of_fit:
        distrain.fit(tmp_path)
    for refused in (of_command.value, of_fit.value):
        assert refused.where == {"path": str(tmp_path)}
        assert ("--resume" in refused.hint) == (state != "succeeded")


def test_a_run_folder_is_not_a_table_with_a_target_either(tmp_path, wording):
    (tmp_path / "run.json").write_text("{}")
    wording.refused(
        InputError,
        lambda: distrain.fit(tmp_path, target="bought", run_dir=tmp_path / "run"),
        path=str(tmp_path),
    )


@pytest.mark.parametrize("types", [("double", "string"), ("null", "double", "string")])
def test_files_with_other_types_of_a_column_are_not_one_table(tmp_path, types):
    for number, kind in enumerate(types):
        values = {"null": pa.nulls(2), "double": [0.5, 1.5], "string": ["a", "b"]}[kind]
        pq.write_table(pa.table({"x": values, "y": [0, 1]}), tmp_path / f"{number}.parquet")
    with pytest.raises(DataError) as refused:
        distrain.fit(tmp_path, target="y", run_dir=tmp_path / "run")
    assert refused.value.where["column"] == "x"
    last = str(tmp_path / f"{len(types) - 1}.parquet")
    assert str(refused.value.where["file"]).startswith(last)


@pytest.mark.parametrize("below", ["", "run"])
def test_a_run_folder_that_is_a_file_is_refused_before_rows_are_prepared(
    table, tmp_path, below, wording
):
    (tmp_path / "a").write_text("")
    wording.refused(
        OutputError,
        lambda: distrain.fit(table, target="bought", run_dir=tmp_path / "a" / below),
        path=str(tmp_path / "a"),
    )
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_folder_without_files_of_tables_is_not_a_table(tmp_path):
    (tmp_path / "notes.txt").write_text("a,b\n1,2\n")
    with pytest.raises(DataError):
        distrain.fit(tmp_path)


@pytest.mark.parametrize("rows", [0, 4])
def test_odd_values_are_reported_before_rows_are_prepared(table, tmp_path, rows):
    said = []
    odd = table.assign(price=table["price"].astype(str))
    odd.loc[:rows, "price"] = "dear"
    with pytest.raises(DataError) as refused:
        job_of_table(TableRequest(odd, tmp_path, UserChoices(("bought",))), said.append)
    assert refused.value.where["row (from 0)"] == 0
    assert [text.startswith("warning: price") for text in said] == [True]


@pytest.mark.slow
@pytest.mark.parametrize(
    "length",
    [
        {"train.epochs": 2},
        {"train.epochs": 90},
        {"train.max_steps": 30},
        {"train.global_batch_size": 100},
        {"train.epochs": 4, "train.global_batch_size": 50},
    ],
)
def test_the_learning_rate_decays_in_the_second_half_of_the_steps_that_are_set(
    table, tmp_path_factory, length
):
    kept = tmp_path_factory.getbasetemp() / "decay"
    words = tuple(f"{name}={value}" for name, value in length.items())
    request = TableRequest(table, kept, UserChoices(("bought",), valid=False), overrides=words)
    job = job_of_table(request, print)
    train = parse_spec(job.document, words).train
    steps = train.num_epochs * -(-ROWS // train.batch_rows)
    steps = min(steps, train.max_steps or steps)
    start = train.schedule.decay_start_step
    assert abs(start - steps // 2) <= 0.1 * steps + 1
    half, last = (lr_at(step, steps, 1.0, train.schedule) for step in (start, steps - 1))
    assert (half, last) == (1.0, 0.0)


def test_overrides_of_what_is_fitted_to_the_rows_need_not_be_complete():
    overrides = ("train.early_stopping.patience=3", "model.hidden=[8]", "model.tasks.a.weight=2")
    check_overrides(overrides)
    check_overrides(("resources={backend: inline}", "model={kind: dlrm}"), "mlp")


@pytest.mark.slow
@pytest.mark.parametrize("values", [["red", "green", "blue"], [10, 30, 70]])
def test_classes_are_the_values_of_the_target(table, tmp_path, values):
    target = np.array(values)[table["stars"].to_numpy() % 3]
    run = distrain.fit(
        table.assign(goal=target), target="goal", task="multiclass", run_dir=tmp_path / "run",
        overrides={"train.epochs": 10, "train.optimizer.lr": 0.05},
    )  # fmt: skip
    assert run.classes.tolist() == sorted(values)
    scores = run.predict(table)
    assert (scores["class_value"] == target).mean() > 0.6
    assert scores["class_value"].tolist() == run.classes[scores["class"]].tolist()
    assert np.array_equal(run.predict_proba(table).argmax(axis=1), scores["class"])
    table.to_csv(tmp_path / "rows.csv", index=False)
    assert run.predict(tmp_path / "rows.csv")["class_value"].equals(scores["class_value"])
    assert run.predict([]).columns.tolist() == scores.columns.tolist()
    with pytest.raises(DataError):
        run.predict(table.assign(class_value=1), keep=["class_value"])


@pytest.mark.slow
def test_classes_that_no_signed_integer_holds_are_texts_in_scores(table, tmp_path, monkeypatch):
    def unreadable(*_):
        raise SpecError("of another version")

    values = [7, 2**63 + 5, 2**63 + 9]
    target = np.array(values, np.uint64)[table["stars"].to_numpy() % 3]
    run = distrain.fit(
        table.assign(goal=target), target="goal", task="multiclass", run_dir=tmp_path / "run",
        overrides={"train.epochs": 1},
    )  # fmt: skip
    assert run.classes.tolist() == values
    scores = run.predict(table)
    assert scores["class_value"].tolist() == [str(values[number]) for number in scores["class"]]
    monkeypatch.setattr(raw_rows, "features_of", unreadable)
    assert columns_of_classes(run.run_dir / "model", run.load_model()) == {}


@pytest.mark.slow
def test_a_column_named_class_value_is_kept_where_the_values_of_classes_are_not_known(
    table, tmp_path
):
    run = distrain.fit(
        table.assign(goal=table["stars"] % 3), run_dir=tmp_path / "run", features={
            "target": {"column": "goal", "kind": "multiclass", "classes": 3},
            "columns": {"stars": {"kind": "continuous"}},
        },
    )  # fmt: skip
    rows = table.assign(class_value=range(ROWS))
    rows.to_csv(tmp_path / "rows.csv", index=False)
    for given in (rows, tmp_path / "rows.csv"):
        scores = run.predict(given, keep=["class_value"])
        assert scores["class_value"].astype(int).tolist() == list(range(ROWS))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("values", "classes"),
    [(["no", "yes"], ["no", "yes"]), ([False, True], [0, 1]), ([3, 7], [3, 7])],
)
def test_the_last_of_two_classes_is_the_value_whose_probability_is_predicted(
    table, tmp_path, values, classes
):
    goal = np.array(values)[(table["price"] > 20).astype(int)]
    run = distrain.fit(
        table.assign(bought=goal), target="bought", run_dir=tmp_path / "run", valid=False,
        overrides={"train.epochs": 10, "train.optimizer.lr": 0.05},
    )  # fmt: skip
    assert run.classes.tolist() == classes
    chances = run.predict_proba(table)
    assert chances.shape == (ROWS, 2)
    assert ((chances[:, 1] > 0.5) == (goal == classes[1])).mean() > 0.9
    assert run.evaluate(table.assign(bought=goal)).auc > 0.95


@pytest.mark.slow
def test_a_regression_has_no_classes(table, tmp_path):
    run = distrain.fit(table, target="price", run_dir=tmp_path / "run", overrides=FEW)
    with pytest.raises(InputError):
        _ = run.classes
    found = run.evaluate(table)
    assert found.rmse == found.targets[found.target]["rmse"] > 0


def test_classes_are_those_of_the_target_that_the_model_learns(table, tmp_path):
    colors = table.assign(color=[*"abcde"] * (ROWS // 5))
    tasks = {"stars": {"target": "stars"}}
    run = distrain.fit(
        colors, target=["color", "stars"], valid=False, model="mlp", run_dir=tmp_path / "run",
        overrides={**FEW, "model.tasks": tasks},
    )  # fmt: skip
    assert run.classes.tolist() == [1, 2, 3, 4, 5]


@pytest.mark.slow
def test_rows_of_its_own_validate_a_model(table, tmp_path):
    run = distrain.fit(
        table[100:], target="price", valid=table[:100], run_dir=tmp_path / "run", overrides=FEW
    )
    found = run.evaluate(table[:100])
    assert found.rows == 100
    (metrics,) = run.summary.targets.values()
    assert metrics["rmse"] == pytest.approx(found.targets["price"]["rmse"], rel=1e-5)
    none = distrain.fit(
        table, target="price", valid=False, run_dir=tmp_path / "none", overrides=FEW
    )
    assert none.summary.scored_on == "train"


def test_columns_may_be_named_by_numbers_of_numpy(table, tmp_path):
    numbered = table.set_axis(pd.Index(range(table.shape[1])), axis=1)
    target, time, weight = (
        numbered.columns.to_numpy()[table.columns.get_loc(name)]
        for name in ("bought", "at", "weight")
    )
    asked, *_ = make_user_choices(target, time=time, weight=weight)
    job = job_of_table(TableRequest(numbered, tmp_path / "kept", asked), print)
    document = FeatureConfig.parse(yaml.safe_load(job.features)).document
    assert (document.target.column, document.weight) == (str(target), str(weight))


def test_an_index_with_a_name_is_a_column():
    frame = pd.DataFrame({"a": [5, 6]})
    assert table_of(frame.rename_axis("shop")).to_pydict() == {"a": [5, 6], "shop": [0, 1]}
    assert table_of(frame.set_index("a").assign(b=1)).to_pydict() == {"b": [1, 1], "a": [5, 6]}
    for without in (frame, frame.rename_axis("a"), frame.set_axis([7, 8])):
        assert table_of(without).to_pydict() == {"a": [5, 6]}


def test_columns_that_are_left_out_are_told_with_the_reason(tmp_path):
    times = pd.date_range("2026-01-01", periods=720, freq="12h")
    draw = np.random.default_rng(0)
    rows = pd.DataFrame({"at": times, "month": times.month, "size": draw.normal(size=720)})
    rows = rows.assign(bought=(draw.random(720) < 0.5).astype(int), same=1)
    request = TableRequest(rows, tmp_path / "kept", UserChoices(("bought",)))
    text = "\n".join(job_of_table(request, print).decisions)
    assert f"month ({MEASURES_TIME})" in text
    assert "same (" in text
    assert "--valid 0.1" in text


def test_no_validation_may_be_said_with_a_truth_value_of_numpy():
    assert make_user_choices("bought", valid=np.False_) == make_user_choices("bought", valid=False)


def test_runs_become_single_values(wording):
    plain = pa.table({"shop": ["a", "a", None, "b"], "price": [1.5, 1.5, 1.5, 2.0]})
    columns = [pc.run_end_encode(values.combine_chunks()) for values in plain.columns]
    encoded = pa.table(columns, plain.column_names)
    assert table_of(encoded).equals(plain)
    assert table_of(pa.concat_tables([encoded, encoded[1:3]])).to_pydict() == (
        pa.concat_tables([plain, plain[1:3]]).to_pydict()
    )
    texts = pa.array(["a"])
    for values in (texts.cast(pa.string_view()), texts.dictionary_encode()):
        runs = pa.RunEndEncodedArray.from_arrays(pa.array([3], pa.int32()), values)
        wording.refused(InputError, partial(table_of, pa.table({"shop": runs})), column="shop")


def test_intervals_of_pandas_become_the_texts_that_it_shows():
    bins = pd.cut(pd.Series([1.0, 2.0, np.nan, 9.0]), [0, 2, 10])
    days = pd.interval_range(pd.Timestamp("2024-01-01"), periods=4, closed="left")
    frame = pd.DataFrame({"bins": bins, "plain": bins.astype("interval"), "days": days})
    found = table_of(frame)
    assert found["bins"].to_pylist() == ["(0, 2]", "(0, 2]", None, "(2, 10]"]
    for name in ("plain", "days"):
        shown = [None if pd.isna(one) else str(one) for one in frame[name]]
        assert found[name].to_pylist() == shown, name


def test_string_views_become_strings_at_any_depth():
    texts = pa.array(["a", "b"])
    indices = pa.array([0, 1, None, 1, 0], pa.uint32())
    dictionary = pa.DictionaryArray.from_arrays(indices, texts)
    offsets = pa.array([0, 2, None, 5], pa.int32())
    plain = pa.table(
        {
            "flat": texts.take(indices)[:3],
            "dictionary": dictionary[:3],
            "list": pa.ListArray.from_arrays(offsets, dictionary),
        }
    )
    viewed = pa.DictionaryArray.from_arrays(indices, texts.cast(pa.string_view()))
    columns = [plain["flat"].cast(pa.string_view()), viewed[:3]]
    columns.append(pa.ListArray.from_arrays(offsets, viewed))
    views = pa.table(columns, plain.column_names)
    assert table_of(views).equals(plain)
    assert table_of(pa.concat_tables([views, views[1:]])).equals(
        pa.concat_tables([plain, plain[1:]])
    )


@pytest.mark.parametrize(
    ("data", "arguments"),
    [
        ("frame", {}),
        ("frame", {"target": "nothing"}),
        ("frame", {"target": "at"}),
        ("frame", {"target": "shop", "task": "regression"}),
        ("frame", {"target": "price", "task": "binary"}),
        ("frame", {"target": "price", "task": "multiclass"}),
        ("frame", {"target": "bought", "time": "price"}),
        ("frame", {"target": "bought", "weight": "nothing"}),
        ("frame", {"target": "bought", "valid": 1.5}),
        ("frame", {"target": "bought", "valid": {"by": "chance"}}),
        ("frame", {"target": "bought", "valid": 0}),
        ("frame", {"target": ["bought", "bought"]}),
        ("frame", {"target": "stars", "weight": "stars"}),
        ("frame", {"target": pd.Series([0, 1])}),
        (pd.DataFrame([[1, 2, 0], [1, 2, 1]], columns=["a", "a", "bought"]), {"target": "bought"}),
        ({"name": [f"n{i}" for i in range(40)], "a": [1, 2] * 20}, {"target": "name"}),
        (pd.DataFrame({"a": [1, 2], "bought": 1.5}), {"target": "bought"}),
        ("frame", {"target": "bought", "model": "mlpp"}),
        ("frame", {"target": "bought", "features": {"target": "bought"}}),
        ("nowhere.parquet", {"target": "bought"}),
        ({"data": {"train": "a"}}, {"model": "mlp"}),
        (7, {"target": "bought"}),
        ("frame", {"target": "bought", "task": "ranking"}),
        (pd.DataFrame({"": ["a", "b"] * 20, "bought": [0, 1] * 20}), {"target": "bought"}),
        ("frame", {"target": "bought", "weight": pd.Series([0, 1])}),
        (pd.DataFrame({"a": [1, 2], "b": 1.5}), {"target": "b", "task": "regression"}),
        (pd.DataFrame({"a": [1, 2], "b": [0, 1], "w": 0}), {"target": "b", "weight": "w"}),
        (pd.DataFrame({"a": [1, 2], "b": pd.to_timedelta([1, 2], "h")}), {"target": "b"}),
        (pd.DataFrame({"a": [1, 2], "b": [["x"], ["y"]]}), {"target": "b"}),
        (pd.DataFrame({"a": [1, 2], "b": [0, 1]})[:0], {"target": "b"}),
        (INTERVALS, {"target": "bought"}),
        ("frame", {"target": "bought", "max_bad": True}),
        ("frame", {"target": "bought", "valid": True}),
        ("frame", {"target": []}),
        ("frame", {"target": "bought", "weight": "shop"}),
        ("frame", {"target": "bought", "time": "shop"}),
        ("frame", {"valid": pd.DataFrame({"bought": [0, 1]})}),
        ("frame", {"features": {"target": "bought"}, "valid": pd.DataFrame({"bought": [0, 1]})}),
        ("frame", {"features": {"target": "bought"}, "weight": pd.Series([0, 1])}),
        ("frame", {"target": "bought", "model": "mlp", "model_fn": dict}),
        ("frame", {"target": "bought", "options": {"width": 3}}),
        ("x" * 300 + ".csv", {"target": "bought"}),
        *(("frame", {"target": name}) for name in ("bougth", "SHOP")),
        *(
            ("frame", {"target": "bought", "overrides": overrides})
            for overrides in (
                {"train.epoch": 2},
                {"train.epochs": "many"},
                {"trian.epochs": 2},
                {"model.hidden": 5},
                {"model.hiden": [8]},
            )
        ),
        ("frame", {"target": "bought", "model": "mlp", "overrides": {"model.hiden": [8]}}),
        (None, {"resume": "run", "target": "bought", "valid": 0.5, "model": "mlp"}),
        (None, {"resume": "run", "features": {"target": "bought"}, "max_bad": 0.1}),
    ],
)
def test_what_cannot_be_is_refused_before_a_run_begins(table, tmp_path, wording, data, arguments):
    rows = table if isinstance(data, str) and data == "frame" else data
    with pytest.raises(DistrainError) as refused:
        distrain.fit(rows, **arguments, run_dir=tmp_path / "run")
    wording(refused.value)
    assert not [*tmp_path.rglob("run"), *tmp_path.glob(".prepared/data-*/train")]


@pytest.mark.parametrize(
    "splits",
    [
        {"test": 0.2},
        {"test": 0.2, "valid": 0.1},
        {"test": 100, "valid": 50},
        {"test": 0.2, "valid": 0.1, "time": "at"},
        {by: {"by": "hash", "column": "user", "share": 0.3} for by in ("test", "valid")},
        {"test": {"by": "column", "column": "stars", "equals": 5}, "valid": "rows"},
        {"test": "rows", "valid": 0.1},
        {"test": "rows"},
    ],
    ids=str,
)
def test_test_rows_are_only_for_a_final_evaluation(table, tmp_path, splits):
    table = table.assign(user=np.random.default_rng(1).integers(0, 60, ROWS), row=range(ROWS))
    more = table[:90].assign(row=range(ROWS, ROWS + 90))
    given = {name: more if value == "rows" else value for name, value in splits.items()}
    run = distrain.fit(
        table.drop(columns="weight"), target="bought", model="mlp", run_dir=tmp_path / "run",
        overrides=FEW, curves=False, **given,
    )  # fmt: skip
    job = yaml.safe_load((tmp_path / "run" / "job.yaml").read_text())
    data = Path(job["data"]["train"] if isinstance(job["data"]["train"], str)
                else job["data"]["train"][0]).parent  # fmt: skip
    rows = json.loads((data / "prep.json").read_text())["rows"]
    assert sum(rows[side] for side in ("train", "valid", "test")) == rows["in"]
    assert rows["in"] == ROWS + 90 * [*splits.values()].count("rows")
    assert run.summary.test["rows"] == rows["test"]
    assert min(rows["test"], rows["valid"]) > 30
    assert distrain.load(tmp_path / "run").summary.test["targets"]["bought"]["auc"] is not None
