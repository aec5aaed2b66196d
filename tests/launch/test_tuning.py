"""A search is trials that are runs: none is lost, none is begun twice."""

import json
import math
import re
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from optuna.distributions import FloatDistribution, IntDistribution
from optuna.storages.journal import JournalFileBackend
from small_jobs import make_spec, write_prepared
from wording import Wording

from distrain.cli.main import cli
from distrain.errors import InputError, JobError, SpecError
from distrain.jobs.job_view import record_from_json
from distrain.jobs.run_paths import RunPaths
from distrain.jobs.spec import JobSpec, dump_yaml, load_spec, parse_spec
from distrain.launch import tuning
from distrain.launch.tuning import Search, default_space, distributions, with_values

pytestmark = pytest.mark.usefixtures("undrawn")

JOB = (
    "resources={backend: inline, num_ranks: 1}",
    "train={global_batch_size: 500, max_steps: 6, log_every_steps: 2}",
    "evaluate={every_steps: 2}",
    "checkpoint={every_steps: 1, every_s: null, keep_best: log_loss}",
)
SPACE = ("train.optimizer.lr=0.001..0.1", "train.global_batch_size=250,500")


class StopHereError(Exception):
    pass


@pytest.mark.slow
def test_a_search_that_was_stopped_goes_on_and_ends_with_the_trials_asked_for(
    tmp_path: Path,
) -> None:
    spec = make_spec(write_prepared(tmp_path / "prepared"), *JOB)
    search = Search(spec, tmp_path / "search", 3, SPACE)

    def stop(text: str) -> None:
        if text.startswith("trial 2"):
            raise StopHereError

    with pytest.raises(StopHereError):
        search.run(stop)
    found = search.run(lambda _: None)
    rows = found.trials
    assert sorted(row["number"] for row in rows) == [0, 1, 2]
    assert found.to_json() == json.loads((tmp_path / "search/trials.json").read_text())
    first = next(row for row in rows if row["number"] == 0)
    assert first["values"] == {
        "train.optimizer.lr": spec.train.optimizer.lr,
        "train.global_batch_size": "500",
    }
    ended = [row["value"] for row in rows if row["state"] == "complete"]
    assert ended == sorted(ended)
    assert (found.given, found.best) == (first["value"], ended[0])
    assert found.gain == pytest.approx(first["value"] - ended[0])
    best = load_spec(tmp_path / "search/best.yaml")
    assert best.train.optimizer.lr == rows[0]["values"]["train.optimizer.lr"]
    job = tmp_path / "job.yaml"
    job.write_text(dump_yaml(spec.model_dump(mode="json")))
    words = ["--run-dir", tmp_path / "search", "--trials", 3, "--json"]
    words += [word for one in SPACE for word in ("--search", one)]
    done = CliRunner().invoke(cli, ["tune", str(job), *map(str, words)])
    told = json.loads(done.stdout)
    assert told["trials"] == rows, done.output  # no trial is left
    with pytest.raises(InputError):
        Search(spec, tmp_path / "search", 4).run(lambda _: None)


def spec_of(train: dict[str, object]) -> JobSpec:
    document = {"data": {"train": "t"}, "model": {"kind": "mlp"}, "train": train}
    return parse_spec(document | {"evaluate": {"every_steps": 30}, "checkpoint": {}})


def test_a_space_is_ranges_and_choices_of_fields_that_the_spec_has() -> None:
    schedule = {"decay": "linear", "decay_start_step": 100}
    spec = spec_of({"global_batch_size": 64, "schedule": schedule})
    found = with_values(spec, {"train.global_batch_size": "128", "model.hidden": "[8, 4]"})
    assert (found.evaluate.every_steps, found.train.schedule.decay_start_step) == (15, 50)
    assert found.model.hidden == (8, 4)
    space: dict[str, Any] = dict(distributions(spec, default_space(spec)))
    assert space["train.global_batch_size"].choices == ("32", "64", "128")
    assert space["model.hidden"].choices[0] == "[128, 128, 128]"
    assert (space["train.optimizer.lr"].low, space["train.optimizer.lr"].log) == (0.002, True)
    for wrong in ("lr", "lr=", "lr=3..2", "lr=a..b", "lr=[1..2", "lr=1...inf"):
        with pytest.raises(SpecError):
            distributions(spec, [wrong])


def test_a_range_is_of_the_type_of_its_field(wording: Any) -> None:
    spec = spec_of({"global_batch_size": 64})
    space: dict[str, Any] = distributions(spec, ["train.optimizer.lr=0..1", "train.epochs=1..3"])
    assert isinstance(space["train.optimizer.lr"], FloatDistribution)
    assert isinstance(space["train.epochs"], IntDistribution)
    assert tuning._usable_of(spec, "train.optimizer.lr", space["train.optimizer.lr"]) == 1
    for wrong in (
        ["train.optimizer.lrr=1,2"],
        ["train.seed=1,2", "train.seed=3,4"],
        ["model.hidden=[a];[b]"],
        ["train.ema=0.9,0.90"],
        ["train.optimizer.lr=1,1.0"],
        ["data.valid=a,b"],
        ["train.seed=1, 1"],
        ["train.seed=*a,*b"],
        ["queue.priority=1,2"],
    ):
        with pytest.raises(SpecError) as refused:
            distributions(spec, wrong)
        wording(re.sub(r"\(allowed: .*\)", "(allowed: ...)", str(refused.value)))


def test_a_trial_that_diverges_is_one_that_failed_and_a_lost_worker_ends_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = make_spec(write_prepared(tmp_path / "prepared"), *JOB)
    with pytest.raises(SpecError):  # no column has this name
        Search(spec, tmp_path / "search", 3, ("data.max_list_length.NOPE=3,4",)).run(print)
    search, reasons = Search(spec, tmp_path / "search", 3, SPACE), ["NonFiniteLoss", "WorkerLost"]

    def train(request: Any, _: object) -> None:
        if request.run_dir.name != "0000":
            raise JobError("ended", where={"reason": reasons.pop(0)})

    monkeypatch.setattr(tuning, "train", train)
    said: list[str] = []
    with pytest.raises(JobError):
        search.run(said.append)
    assert said[-2:] == ["trial 2 cannot be trained: ended", said[-1]]
    reasons.append("NonFiniteLoss")
    assert [row["state"] for row in search.run(said.append).trials] == ["fail"] * 3
    journal = tmp_path / "search/trials.journal"
    journal.write_bytes(journal.read_bytes()[:-10])  # the end of the last trial
    reasons.append("NonFiniteLoss")
    for _ in range(2):
        assert [row["state"] for row in search.run(said.append).trials] == ["fail"] * 3
    assert not reasons


def test_a_search_needs_validations(tmp_path: Path) -> None:
    with pytest.raises(SpecError):
        Search(spec_of({}), tmp_path, 2).run(lambda _: None)
    retrieval = {"kind": "two_tower", "task": "retrieval"}
    windows = {"data": {"train": "t", "windows": {"by": "file"}}, "evaluate": {"next_window": True}}
    with pytest.raises(SpecError):
        Search(parse_spec({**windows, "model": retrieval}), tmp_path, 2).run(lambda _: None)


def test_trials_of_windows_are_compared_by_all_windows_before_they_were_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    windows = ("data.windows={by: file}", "evaluate={next_window: true}")
    spec = make_spec(write_prepared(tmp_path / "prepared"), *JOB[:2], *windows)

    def train(request: Any, _: object) -> None:
        lines = [{"window": name, "progressive": {"log_loss": value}} for name, value in
                 (("b", 0.5), ("c", request.spec.train.optimizer.lr))]  # fmt: skip
        of_all = {"split": "next_window", "epoch": 0, "step": 1, "rows": 1, "rows_total": 1}
        unknown = dict.fromkeys(("rows_per_s", "loss", "normalised_entropy", "auc", "auc_bound"))
        text = [json.dumps({**of_all, "elapsed_s": 1.0, **unknown, **line}) for line in lines]
        file = RunPaths(request.run_dir).attempt_records(1)
        file.parent.mkdir(parents=True)
        file.write_text("\n".join(text) + "\n")

    monkeypatch.setattr(tuning, "train", train)
    found = Search(spec, tmp_path / "search", 2, ("train.optimizer.lr=0.01,0.02",)).run(print)
    assert found.metric == "log_loss"
    assert all(row["value"] == float(row["values"]["train.optimizer.lr"]) for row in found.trials)


class Killed(BaseException):
    """The process ends here, whatever it did."""


class Trainings:
    """Trains by writing records: the value of a validation depends on values and step alone.

    `lives_for` counts down at every write of any kind; at 0 the process is killed.
    """

    def __init__(self) -> None:
        self.lives_for: float = math.inf

    def write(self) -> None:
        self.lives_for -= 1
        if self.lives_for < 0:
            raise Killed

    def train(self, request: Any, _: object) -> None:
        file = RunPaths(request.run_dir).attempt_records(1)
        file.parent.mkdir(parents=True, exist_ok=True)
        # A killed one is taken up at its checkpoint, one validation back.
        lines = file.read_text().splitlines()[:-1] if file.exists() else []
        lr, batch = request.spec.train.optimizer.lr, request.spec.train.global_batch_size
        for step in range(len(lines) + 1, 9):
            self.write()
            value = (math.log10(lr) + 2) ** 2 + batch / 1e4 + 1 / step + math.sin(lr * 1e6) / 50
            unknown = dict.fromkeys(("rows_per_s", "normalised_entropy", "auc", "auc_bound"))
            line = {"split": "valid", "epoch": 0, "step": step, "rows": 1, "rows_total": step}
            lines.append(json.dumps({**line, "elapsed_s": 1.0, "loss": value, **unknown}))
            file.write_text("\n".join(lines) + "\n")
            self.write()
            request.call_back(record_from_json(json.loads(lines[-1])))


@pytest.mark.slow
def test_a_search_that_was_killed_again_and_again_has_the_trials_of_one_that_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, trainings = make_spec(write_prepared(tmp_path / "prepared"), *JOB), Trainings()
    monkeypatch.setattr(tuning, "train", trainings.train)
    append = JournalFileBackend.append_logs

    def appended(backend: Any, logs: Any) -> None:
        trainings.write()
        append(backend, logs)
        trainings.write()

    monkeypatch.setattr(JournalFileBackend, "append_logs", appended)
    whole = Search(spec, tmp_path / "whole", 16, SPACE).run(lambda _: None)
    states = [row["state"] for row in whole.trials]
    assert {"complete", "pruned"} == set(states)
    random, kills = Random(5), 0
    search = Search(spec, tmp_path / "killed", 16, SPACE)
    while True:
        trainings.lives_for = random.randrange(5, 60)
        try:
            found = search.run(lambda _: None)
        except Killed:
            kills += 1
        else:
            break
    assert kills > 5
    assert found == whole
    assert (tmp_path / "killed/best.yaml").read_text() == (tmp_path / "whole/best.yaml").read_text()
    trainings.lives_for = math.inf
    for trials in (5, 16):  # more of them later
        part = Search(spec, tmp_path / "later", trials, SPACE).run(lambda _: None)
    assert part == whole


def test_a_choice_that_the_spec_never_takes_is_refused_before_the_first_trial(wording: Any) -> None:
    spec = spec_of({"global_batch_size": 64})
    caught = wording.refused(
        SpecError,
        lambda: distributions(spec, ["train.optimizer.lr=0.1,0.2", "model.hidden=[8];[8, -1];[4]"]),
    )
    assert caught.hint is not None


def test_a_search_is_not_continued_on_other_rows(tmp_path: Path, wording: Wording) -> None:
    spec = make_spec(write_prepared(tmp_path / "prepared"), *JOB)
    one, two = (Search(spec, tmp_path / "search", trials, SPACE) for trials in (1, 2))
    found = one.run(lambda _: None)
    part = next((tmp_path / "prepared" / "train").glob("*.parquet"))
    rows = pq.read_table(part)
    pq.write_table(rows.slice(rows.num_rows // 2), part)
    wording.refused(InputError, lambda: two.run(lambda _: None), path=str(tmp_path / "search"))
    assert one.run(lambda _: None) == found
