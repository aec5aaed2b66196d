"""The real packages get a run's entries, and their own readers find them."""

import logging
import shutil
from dataclasses import replace

import pytest

from distrain.errors import InputError
from distrain.runs.sinks import choosing
from distrain.runs.sinks.choosing import open_sink, open_sinks
from distrain.runs.sinks.mlflow_tracking import MLflowTracking
from distrain.runs.sinks.tensorboard_files import TensorBoardFiles
from distrain.version import how_to_install

pytestmark = pytest.mark.usefixtures("undrawn")


def read_events(folder):
    logging.getLogger("tensorboard").setLevel(logging.ERROR)  # it tells of points made void
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return events


def test_tensorboard_reads_the_points_that_count(facts, stamped):
    pytest.importorskip("tensorboard", reason="the extra 'tensorboard' is not installed")
    sink = TensorBoardFiles()
    sink.open(facts)
    sink.write(stamped[:4])
    sink.write(stamped[4:])
    sink.close("succeeded")
    events = read_events(facts.run_dir / "tensorboard")
    loss = {point.step: (round(point.value, 4), point.wall_time) for point in
            events.Scalars("train/loss")}  # fmt: skip
    assert loss == {5: (0.9, 1001.0), 10: (0.8, 1006.0), 15: (0.7, 1007.0)}
    assert [point.value for point in events.Scalars("valid/loss")] == [pytest.approx(0.6)]
    assert {"train/rows_per_s", "train/auc", "train/stall_pct", "seconds/data_wait"} <= set(
        events.Tags()["scalars"]
    )
    (text,) = events.Tensors("spec/text_summary")
    assert b"| train.optimizer.lr | 0.1 |" in text.tensor_proto.string_val[0]


@pytest.fixture(scope="module")
def empty_store(tmp_path_factory):
    """A database in which MLflow has made its tables, which takes seconds."""
    pytest.importorskip("mlflow", reason="the extra 'mlflow' is not installed")
    pytest.importorskip("sqlalchemy", reason="MLflow's sqlite store needs sqlalchemy")
    file = tmp_path_factory.mktemp("mlflow") / "empty.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow import MlflowClient

        MlflowClient(tracking_uri=f"sqlite:///{file}").search_experiments()
    return file


@pytest.fixture
def mlflow_store(empty_store, tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    shutil.copy(empty_store, tmp_path / "mlflow.db")
    return f"sqlite:///{tmp_path / 'mlflow.db'}"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_without_an_address_sinks_keep_their_files_in_the_run_directory(
    facts, mlflow_store, tmp_path, monkeypatch
):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    facts.run_dir.mkdir(parents=True)
    sink = open_sink("mlflow")
    sink.open(facts)
    sink.close("succeeded")
    assert list((tmp_path / "here").iterdir()) == []
    assert (facts.run_dir / "mlflow.db").exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # MLflow's, of what it is built on
def test_mlflow_has_the_runs_metrics_parameters_and_end(facts, stamped, mlflow_store):
    from mlflow import MlflowClient

    sink = open_sink(f"mlflow:{mlflow_store}")
    sink.open(facts)
    sink.write(stamped[:5])
    resumed = MLflowTracking(mlflow_store)  # another command goes on with the run
    resumed.open(facts)
    resumed.write(stamped[5:])
    resumed.close("succeeded")
    client = MlflowClient(tracking_uri=mlflow_store)
    experiment = client.get_experiment_by_name("distrain")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_name == "clicks-1"
    assert run.info.status == "FINISHED"
    assert run.data.params == {
        "train.optimizer.lr": "0.1", "model.hidden": "[16, 8]", "name": "clicks"
    }  # fmt: skip
    assert run.data.metrics["train/loss"] == 0.7
    assert run.data.metrics["valid/auc"] == 0.7
    assert run.data.tags["team"] == "ads"
    assert run.data.tags["distrain.attempt"] == "2"
    assert run.data.tags["distrain.notice"] == "a checkpoint is damaged"
    steps = [metric.step for metric in client.get_metric_history(run.info.run_id, "train/loss")]
    assert sorted(set(steps)) == [5, 10, 15]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_mlflow_has_what_has_names_that_it_refuses_or_that_are_alike(facts, stamped, mlflow_store):
    from mlflow import MlflowClient

    entry = stamped[-1].entry
    names = ("price (€)", "a//b", "../c", "größe", "price ($)", 300 * "x", 300 * "x" + "y")
    record = replace(entry, targets={name: {"rmse": 2.5} for name in names})
    sink = MLflowTracking(mlflow_store)
    sink.open(replace(facts, parameters={"data.class_weight.price (€).1": 3.0}))
    sink.write([stamped[-1]._replace(entry=record)])
    client = MlflowClient(tracking_uri=mlflow_store)
    experiment = client.get_experiment_by_name("distrain")
    (run,) = client.search_runs([experiment.experiment_id])
    of_targets = sorted(name for name, value in run.data.metrics.items() if value == 2.5)
    longest = "valid/" + 235 * "x" + "."
    begin = ["_c", "a/_b", "größe.rmse", "price ___.rmse.", "price ___.rmse.", longest, longest]
    for name, expected in zip(of_targets, begin, strict=True):
        assert name.removeprefix("valid/").startswith(expected.removeprefix("valid/"))
    (parameter,) = run.data.params
    assert parameter.startswith("data.class_weight.price ___.1.")
    assert run.data.metrics["valid/loss"] == entry.loss


def test_sinks_have_names_that_tell_no_passwords(monkeypatch):
    class Mine:
        pass

    monkeypatch.setattr(choosing, "find_spec", lambda package: package)
    mine, also_mine = Mine(), Mine()
    found = open_sinks([mine, "mlflow:http://me:secret@10.0.0.9", also_mine])
    assert list(found) == ["Mine", "mlflow", "Mine (3)"]
    assert found["Mine (3)"] is also_mine
    assert isinstance(found["mlflow"], MLflowTracking)


def test_words_that_name_no_sink_that_is_here_are_refused(monkeypatch, wording):
    wording.refused(InputError, lambda: open_sinks(["wandb:x"]))
    monkeypatch.setattr(choosing, "find_spec", lambda package: None)
    for word in ("tensorboard", "mlflow:http://10.0.0.9:5000"):
        with pytest.raises(InputError) as caught:
            open_sink(word)
        assert caught.value.hint == how_to_install(word.partition(":")[0])
