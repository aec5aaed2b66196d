"""`distrain ensemble`: runs' mean scores as one run, which every command takes."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch
from click.testing import CliRunner, Result
from small_jobs import draw_rows, make_spec, write_prepared
from wording import Wording

import distrain
from distrain.cli.main import cli
from distrain.errors import DataError, InputError, ModelError
from distrain.jobs.spec import DcnV2Spec, MlpSpec
from distrain.jobs.spec.load import dump_yaml
from distrain.jobs.spec.tasks import TaskSpec
from distrain.launch.reporting import LoggedProgress
from distrain.launch.seeds import train_seeds
from distrain.models import build_model, load_model
from distrain.models.click_model import Ensemble
from distrain.models.heads import Target
from distrain.models.heads.scores import mean_scores
from distrain.models.saved_model import read_description, save_model
from distrain.schema import Schema, criteo_schema

pytestmark = pytest.mark.usefixtures("undrawn")

SMALL = MlpSpec(embedding_dim=2, hidden=(4,))
FILLS = "data.fill_null_id=1", "data.fill_null_value=0.5"


def invoke(*words: object) -> Result:
    return CliRunner().invoke(cli, [str(word) for word in words])


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs on planted rows, of two models, and their ensemble."""
    root = tmp_path_factory.mktemp("ensemble")
    prepared = write_prepared(root / "prepared")
    for seed, model in enumerate(("mlp, embedding_dim: 4", "dcn_v2, embedding_dim: 8")):
        words = (f"model={{kind: {model}, hidden: [8]}}", f"train.seed={seed}", *FILLS)
        spec = make_spec(
            prepared, *words, "train.max_steps=25", "resources={backend: inline, num_ranks: 1}"
        )
        distrain.fit(spec, run_dir=root / f"run-{seed}")
    done = invoke("ensemble", root / "run-0", root / "run-1", "--out", root / "mean", "--json")
    assert done.exit_code == 0, done.output
    (root / "said.json").write_text(done.stdout)
    return root


def test_probabilities_are_the_mean_of_the_members_and_as_good(root: Path) -> None:
    rows = draw_rows(500, seed=9).drop_columns(["label"])
    members = [distrain.load(root / f"run-{n}").predict(rows)["probability"] for n in (0, 1)]
    mean = np.mean(np.asarray(members, np.float64), axis=0)
    found = distrain.load(root / "mean").predict(rows)["probability"]
    np.testing.assert_allclose(found, mean, rtol=0, atol=1e-7)
    said = json.loads((root / "said.json").read_text())
    runs = list(said["runs"].values())
    assert said["ensemble"]["auc"] >= np.mean([one["auc"] for one in runs]) > 0.6
    assert said["ensemble"]["log_loss"] <= np.mean([one["log_loss"] for one in runs])  # by Jensen


@pytest.mark.parametrize("run", ["run-0", "mean"])
def test_nulls_are_replaced_as_in_training(root: Path, tmp_path: Path, run: str) -> None:
    filled, model = draw_rows(300, seed=9), distrain.load(root / run)
    places, file = np.arange(300) % 7 == 0, tmp_path / "valid" / "rows.parquet"
    file.parent.mkdir()
    empty = filled
    for name, fill in (("I1", pa.scalar(0.5, pa.float32())), ("C5", pa.scalar(1, pa.int32()))):
        column = filled.column_names.index(name)
        nulls = pc.if_else(pa.array(places), None, filled[name])
        empty = empty.set_column(column, name, nulls)
        filled = filled.set_column(column, name, pc.fill_null(nulls, fill))
    pq.write_table(empty, file)
    expected = model.predict(filled)["probability"].to_numpy()
    for rows in (empty, str(file)):
        np.testing.assert_array_equal(model.predict(rows)["probability"].to_numpy(), expected)
        assert model.evaluate(rows).auc == model.evaluate(filled).auc
        assert model.importance(rows) == model.importance(filled)


@pytest.mark.slow
def test_seeds_of_a_spec_are_trained_once_and_measured_before_their_refits(
    root: Path, tmp_path: Path, wording: Wording
) -> None:
    words = ("train.max_steps=10", "train.refit=true", "checkpoint.keep_best=log_loss")
    inline = "resources={backend: inline, num_ranks: 1}"
    spec = make_spec(root / "prepared", *words, inline, "evaluate.every_steps=5", "train.seed=3")
    (tmp_path / "job.yaml").write_text(dump_yaml(spec.model_dump(mode="json")))
    asked = ("ensemble", tmp_path / "job.yaml", "--seeds", 2, "--out", tmp_path / "mean", "--json")
    said = json.loads(invoke(*asked).stdout)
    runs = [tmp_path / "mean-runs" / f"seed-{seed}" for seed in (3, 4)]
    alone = distrain.fit(spec, run_dir=tmp_path / "alone", overrides={"train.seed": 4})
    rows = draw_rows(500, seed=9).drop_columns(["label"])
    members = [distrain.load(run).predict(rows)["probability"] for run in runs]
    assert members[1].equals(alone.predict(rows)["probability"])
    assert not members[0].equals(members[1])
    found = distrain.load(tmp_path / "mean").predict(rows)["probability"]
    np.testing.assert_allclose(found, np.mean(members, axis=0), rtol=0, atol=1e-6)
    figures = [json.loads((run / "summary.json").read_text())["log_loss"] for run in runs]
    assert [one["log_loss"] for one in said["runs"].values()] == pytest.approx(figures, rel=1e-5)
    before = [(run / "summary.json").stat().st_mtime_ns for run in runs]
    assert invoke(*asked, "--overwrite").exit_code == 0
    assert [(run / "summary.json").stat().st_mtime_ns for run in runs] == before
    other = spec.model_copy(update={"name": "other"})
    with pytest.raises(InputError) as refused:
        train_seeds(other, tmp_path / "mean-runs", 2, lambda _: LoggedProgress())
    wording(refused.value)


@pytest.mark.usefixtures("cluster_here")
def test_commands_take_it_as_a_run(root: Path) -> None:
    said = json.loads((root / "said.json").read_text())
    valid = root / "prepared/valid"
    found = json.loads(invoke("evaluate", root / "mean", valid, "--json").stdout)
    assert found["auc"] == said["ensemble"]["auc"]
    assert distrain.load(root / "mean").summary.auc == found["auc"]
    done = invoke("predict", root / "mean", valid, "--out", root / "scores")
    assert done.exit_code == 0, done.output
    scores = pq.read_table(root / "scores")["probability"].to_numpy()
    of_frame = distrain.load(root / "mean").predict(str(valid))
    np.testing.assert_array_equal(scores, of_frame["probability"])


@pytest.mark.parametrize("to", ["torch", "onnx"])
@pytest.mark.slow
def test_an_export_averages_by_itself(root: Path, to: str) -> None:
    out, valid = root / f"exported-{to}", root / "prepared/valid"
    done = invoke("export", root / "mean", out, "--to", to, "--tables", "fp32", "--valid", valid)
    assert done.exit_code == 0, done.output
    described = json.loads((out / "inputs.json").read_text())
    assert described["model"]["kind"] == "ensemble"
    names = [place["table"] for place in described["tables"]["places"]]
    assert {"0/C1", "1/C1"} <= {*names}
    rows = pq.read_table(valid).slice(0, 300).to_pandas()
    ids, numbers = (
        torch.tensor(rows[[one["name"] for one in part["columns"]]].to_numpy(dtype))
        for part, dtype in zip(described["inputs"], (np.int64, np.float32), strict=True)
    )
    if to == "torch":
        logits = torch.export.load(out / "model.pt2").module()(ids, numbers).detach().numpy()
    else:
        session = pytest.importorskip("onnxruntime").InferenceSession(str(out / "model.onnx"))
        given = {"categorical": ids.numpy(), "continuous": numbers.numpy()}
        (logits,) = session.run(None, given)
    wanted = distrain.load(root / "mean").predict(pd.DataFrame(rows))["logit"]
    np.testing.assert_allclose(logits, wanted, rtol=0, atol=2e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_means_of_scores_are_those_of_probabilities(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    draws = [8 * torch.randn(50, generator=generator, dtype=dtype) for _ in range(3)]
    draws[0][:2] = torch.tensor([90.0, -90.0])  # a probability that float32 rounds to 1 or 0
    classes = [torch.randn(50, 4, generator=generator, dtype=dtype) for _ in range(3)]
    targets = [Target("a"), Target("b", kind="regression"), Target("c", "c", "multiclass", 4)]
    rows = list(zip(draws, draws, classes, strict=True))
    clicks, prices, kinds = mean_scores(targets, rows)
    exact = torch.stack(draws).double()
    for sign in (1, -1):
        torch.testing.assert_close(
            torch.sigmoid(sign * clicks.double()),
            torch.sigmoid(sign * exact).mean(0),
            rtol=2e-6,
            atol=0,
        )
    torch.testing.assert_close(prices.double(), exact.mean(0), rtol=1e-6, atol=1e-6)
    shares = torch.stack(classes).double().softmax(-1).mean(0)
    torch.testing.assert_close(kinds.double().softmax(-1), shares, rtol=1e-6, atol=0)


def test_members_lie_in_it_and_it_is_no_single_model(root: Path, wording: Wording) -> None:
    saved = load_model(root / "mean/model")
    assert isinstance(saved.model, Ensemble)
    member = load_model(root / "mean/model/1").model.state_dict()
    for name, values in load_model(root / "run-1/model").model.state_dict().items():
        torch.testing.assert_close(member[name], values, rtol=0, atol=0)
    model = root / "mean/model/model.json"
    wording.refused(DataError, lambda: read_description(model))
    wording.refused(ModelError, lambda: saved.model.dense)


def _saved(folder: Path, schema: Schema, spec: MlpSpec | DcnV2Spec) -> Path:
    save_model(folder, build_model(schema, spec, seed=1), spec, schema)
    return folder


def test_runs_that_do_not_go_together_are_refused(
    root: Path, tmp_path: Path, wording: Wording
) -> None:
    ids = {f"C{n}": 3 + 37 * (n - 1) for n in range(1, 27)}
    other_ids = _saved(tmp_path / "ids", criteo_schema({**ids, "C3": 5}), SMALL)
    named = SMALL.model_copy(update={"tasks": {"bought": TaskSpec(target="label")}})
    other_target = _saved(tmp_path / "target", criteo_schema(ids), named)
    valid = ("--valid", root / "prepared/valid", "--out", tmp_path / "out")
    first = root / "run-0"
    for words in (
        ("ensemble", first, other_ids, *valid),
        ("ensemble", first, other_target, *valid),
        ("ensemble", first, root / "mean", *valid),
        ("ensemble", first, *valid),
        ("ensemble", first, first / "model", *valid),
        ("ensemble", first, other_ids, *valid[2:]),
        ("ensemble", first, root / "run-1", "--out", first),
        ("ensemble", first, root / "run-1", "--out", root / "prepared", "--overwrite"),
        ("export", first, "--out", root, "--overwrite"),
    ):
        done = invoke(*words)
        assert isinstance(done.exception, distrain.errors.DistrainError), done.output
        wording(done.exception)
    assert not (tmp_path / "out").exists()
