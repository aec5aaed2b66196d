"""What differs between specs, which value is best, and a spec without its defaults."""

from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from service_jobs import a_job

from distrain.jobs.api_answers import Job
from distrain.jobs.spec import parse_spec
from distrain.jobs.spec.load import dump_yaml, parse_yaml
from distrain.runs.run_folder import RunFolder
from distrain.service.page.clusters_page import cluster_state
from distrain.service.page.comparison import metric_rows, setting_rows
from distrain.service.page.job_page import files_of, short_text
from distrain.service.page.start_times import starts_in_s
from distrain.service.values import Quota

VALUES = st.recursive(
    st.none() | st.integers() | st.text("xyz", max_size=3),
    lambda inner: st.dictionaries(st.text("abc", min_size=1, max_size=2), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text("abc", min_size=1, max_size=2), VALUES, max_size=4))
def test_a_spec_does_not_differ_from_itself(spec):
    assert setting_rows([spec, spec, spec]) == []
    more = {**spec, "of its own": 1}
    (row,) = setting_rows([spec, more, spec])
    assert (row.field, row.values) == ("of its own", ("-", "1", "-"))


def test_a_cluster_that_starts_is_not_called_unreachable():
    reports = [{}, {"reachable": True}, {"reachable": False, "starting": True}, {"starting": False}]
    assert [*map(cluster_state, reports)] == ["unknown", "up", "starting", "unreachable"]


def test_the_best_job_of_each_metric_is_marked():
    jobs = [
        Job(valid_auc=0.7, valid_loss=0.5, valid_targets={"price": {"rmse": 3.0}}),
        Job(valid_auc=0.8, valid_loss=0.6, valid_targets={"price": {"rmse": 2.0}}),
        Job(valid_auc=0.8),
    ]
    best = {row.field: set(row.best) for row in metric_rows(jobs, [1.0, 2.0, None])}
    assert best["Validation AUC"] == {1, 2}
    assert best["Validation loss"] == {0}
    assert best["Validation RMSE of price"] == {1}
    assert best["Duration"] == set()
    assert all(not row.best for row in metric_rows([jobs[0], jobs[0]], [1.0, 1.0]))


@pytest.mark.parametrize("kind", ["dlrm", "dcn_v2", "mlp", "deepfm"])
@pytest.mark.parametrize("optimizer", [{}, {"kind": "adam"}, {"kind": "sgd", "lr": 0.5}])
def test_a_spec_without_its_defaults_is_the_same_job(kind, optimizer):
    document = {"data": {"train": "day_0"}, "model": {"kind": kind}, "train": {"epochs": 3}}
    if optimizer:
        document["train"]["optimizer"] = optimizer
    spec = parse_spec(document).model_dump(mode="json")
    short = short_text(spec)
    assert parse_spec(parse_yaml(short)).model_dump(mode="json") == spec
    assert short.count("\n") < dump_yaml(spec).count("\n") / 3


def test_the_files_of_a_job_are_found_without_a_look_at_its_many_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = ["run.json", "spec.yaml", "model/model.json", "logs/attempt-1/rank-0.log"]
    others = [".hidden", "logs/attempt-1/rank-0.txt", "model/parts/a", "zoo/a"]
    others += [f"checkpoints/step-{n}/shard-{m}" for n in range(3) for m in range(40)]
    for name in (*shown, *others):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    looked_at = []
    files = RunFolder.files

    def noted(folder, below="", after=""):
        for file in files(folder, below, after):
            looked_at.append(file.name)
            yield file

    monkeypatch.setattr(RunFolder, "files", noted)
    found = files_of(str(tmp_path))
    assert [file.name for file in found] == shown
    assert [file.size_bytes for file in found] == [len(name) for name in shown]
    assert len(looked_at) <= len(shown) + 5


def test_thousands_of_folders_in_a_run_do_not_hold_its_page_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.json").write_text("{}")
    for n in range(300):
        (tmp_path / f"folder-{n}").mkdir()
        (tmp_path / f"folder-{n}" / "x").touch()
    listings = []
    files = RunFolder.files

    def noted(folder, below="", after=""):
        listings.append(after)
        return files(folder, below, after)

    monkeypatch.setattr(RunFolder, "files", noted)
    assert [file.name for file in files_of(str(tmp_path))] == ["a.json"]
    assert len(listings) <= 50, "each lists all folders again"


def test_jobs_start_in_order_once_running_jobs_have_freed_enough_workers():
    running = [
        a_job(n, num_ranks=2, progress={"eta_s": eta_s}) for n, eta_s in enumerate((90.0, 60.0))
    ]
    waiting = [a_job(n, num_ranks=ranks) for n, ranks in ((5, 2), (6, 1), (7, 2), (8, 1))]

    def starts(free, holding=running, quota=None, elsewhere=0, fewest=None):
        quotas = {waiting[0].project: Quota(max_ranks=quota)}
        used = {waiting[0].project: elsewhere}
        return list(starts_in_s(waiting, holding, free, quotas, used, fewest or {}).values())

    assert starts(0) == [60.0, 90.0], "the third needs two workers, and one is left"
    assert starts(2) == [0.0, 60.0, 90.0, 90.0]
    assert starts(9) == [0.0] * 4
    late = [a_job(1, num_ranks=8, progress={"eta_s": -3.0})]
    assert starts(0, late) == [0.0] * 4, "it may end at any moment"
    silent = [a_job(1, num_ranks=8)]
    assert starts(2, silent) == [0.0], "nobody knows when a job ends that reports nothing"
    assert starts(2, quota=6) == [0.0]
    assert starts(2, quota=6, elsewhere=1) == []
    two, one = waiting[0].id, waiting[1].id
    assert starts(1, fewest={two: 1}) == [0.0, 60.0, 90.0, 90.0], "it takes what there is"
    assert starts(2, fewest={two: 1, one: 1})[0] == 0.0
    waiting.insert(0, a_job(4, num_ranks=99))
    assert starts(2) == [0.0, 60.0, 90.0, 90.0], "a job larger than the cluster blocks no other"
    assert starts(2, [], quota=4) == [0.0], "nor does one larger than its project's quota"
