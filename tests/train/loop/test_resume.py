"""Trainings that were interrupted and resumed equal the undisturbed ones, bit by bit."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from loaded_scripts import run_script
from rank_processes import of_kind

from distrain.metrics import BinaryMetrics
from distrain.train.audit.audit import audit_run

SCRIPT = Path(__file__).with_name("resume_ranks.py")
# The first test waits for all trainings.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

# 15 steps of an epoch, 19 in all, and validations of 5 batches after steps 6, 12, 18 and 19.
# The places of the agreement are: steps 1 to 6: 0 to 5; validation: 6 to 10; steps 7 to 12: 11 to
# 16; validation: 17 to 21; steps 13 to 18: 22 to 27; validation: 28 to 32; step 19: 33;
# validation: 34 to 38; the end: 39.
JOB = [
    "train.global_batch_size=700",
    "train.epochs=2",
    "train.max_steps=19",
    "train.log_every_steps=4",
    "evaluate.every_steps=6",
    "evaluate.max_auc_bound=1.0",  # else a validation whose bins are too wide scores rows twice
    "checkpoint.every_steps=5",
    "train.audit=true",
]
NUM_STEPS = 19
TABULAR = "{kind: tabular, embedding_dim: 4, hidden: [16], dropout: 0.3, embedding_dropout: 0.1}"

CASES: dict[str, tuple[int, list[str]]] = {
    "adagrad": (1, ["train.optimizer={kind: adagrad, lr: 0.02}", "train.ema=0.5"]),
    "rowwise, cached": (
        1,
        [
            "train.optimizer={kind: rowwise_adagrad, lr: 0.02}",
            "embeddings.placement=host_cached",
            "embeddings.cache_gib=0.0001",
            "data.shuffle=full",
        ],
    ),
    "sgd, decay": (
        1,
        [
            "train.optimizer={kind: sgd, lr: 0.1}",
            "train.schedule={warmup_steps: 3, decay: cosine}",
            "train.clip_grad_norm=0.5",
            "train.table_weight_decay=0.1",
            "train.micro_batches=2",
            "checkpoint.asynchronous=false",
        ],
    ),
    "two, rowwise, bf16": (
        2,
        [
            "train.optimizer={kind: rowwise_adagrad, lr: 0.02}",
            "embeddings.placement=row_wise",
            "embeddings.storage=bf16",
            "checkpoint.keep_best=auc",
            # falls after steps 12 and 18
            "train.reduce_on_plateau={patience: 0, threshold: 0.5, min_lr: 0.001}",
        ],
    ),
    "two, adamw, dropout and norms": (
        2,
        ["train.optimizer={kind: adamw, lr: 0.01, weight_decay: 0.1}", f"model={TABULAR}"],
    ),
    # Stops early at step 12, the best; of its 20 steps an epoch, a refit takes 16. Places: the end:
    # 22, steps of the refit: from 23 on.
    "two, refit": (
        2,
        [
            "train.audit=false",
            "train.refit=true",
            "train.early_stopping={metric: log_loss, patience: 1, min_delta: 1.0}",
            "train.optimizer={kind: adagrad, lr: 0.05}",
            "train.schedule={warmup_steps: 3, decay: linear}",
            "train.ema=0.5",
            f"model={TABULAR}",
            "embeddings.placement=row_wise",
        ],
    ),
    # 5 steps a window, and 5 batches of the next one. Places: steps: 0 to 4; the second window is
    # scored: 5 to 9; steps: 10 to 14; the third is scored: 15 to 19; steps: 20 to 24.
    "two, windows": (
        2,
        [
            "train.epochs=1",
            "train.optimizer={kind: adam, lr: 0.01}",
            "data.windows={by: file}",
            "evaluate={next_window: true, at_end: false, max_auc_bound: 1.0}",
        ],
    ),
}
# Name: the case, how its attempts end before the last, and steps and validations that are expected
# to be done where each begins.
INTERRUPTED: dict[str, tuple[str, list[dict[str, int]], list[int]]] = {
    # The second attempt begins with step 3, the third with the validation that was broken off.
    "in a window, a validation, at the end of an epoch": (
        "adagrad",
        [{"stop": 2}, {"stop": 6}, {"stop": 19}],
        [2, 6, 15],
    ),
    "killed in the second epoch": ("rowwise, cached", [{"kill": 33}], [15]),
    "asked for one and killed, after all steps": (
        "sgd, decay",
        [{"checkpoint": 13, "kill": 14}, {"stop": 26}],
        [8, 19],
    ),
    "two, killed later": ("two, rowwise, bf16", [{"kill": 33}], [18]),
    "two, killed before and in the refit": ("two, refit", [{"kill": 13}, {"kill": 16}], [6, 15]),
    "two, drawing on": (
        "two, adamw, dropout and norms",
        [{"stop": 9, "by": 1}, {"kill": 25}],
        [-1, 15],
    ),
    "two, windows: stopped on a border and in a scoring, killed in the next": (
        "two, windows",
        [{"stop": 5, "by all": True}, {"stop": 3, "by all": True}, {"kill": 13}],
        [5, 5, 5],
    ),
}


def stories() -> dict[str, Any]:
    told: dict[str, Any] = {}
    specs = {
        name: [*JOB, *overrides, f"resources.num_ranks={num_ranks}"]
        for name, (num_ranks, overrides) in CASES.items()
    }
    for name, (case, ends, _) in INTERRUPTED.items():
        told[case] = {"spec": specs[case], "attempts": [{}]}
        attempts = [{"end": end} for end in [*ends, {}]]
        told[name] = {"spec": specs[case], "attempts": attempts}
    told["two, one, two"] = {
        "spec": [
            *JOB,
            "resources.num_ranks=2",
            "train.optimizer={kind: adam, lr: 0.001}",
            "train.log_every_steps=1",
        ],
        "attempts": [
            {"end": {"stop": 13}},
            {"spec": ["resources.num_ranks=1"], "end": {"stop": 3}},
            {"spec": ["embeddings.placement=row_wise"]},
        ],
    }
    told["two all the time"] = told["two, one, two"] | {"attempts": [{}]}
    return told


@pytest.fixture(scope="module")
def folder(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all stories left their results."""
    root = tmp_path_factory.mktemp("runs")
    (root / "stories.json").write_text(json.dumps(stories()))
    process = run_script(SCRIPT, root, prepared, root / "stories.json", timeout_s=580.0)
    assert (root / "done").exists(), process.stderr[-5000:]
    return root


def events_of(folder: Path, name: str, attempt: int, rank: int) -> list[dict[str, Any]]:
    lines = (folder / f"{name}.{attempt}.{rank}.events").read_text().splitlines()
    return [json.loads(line) for line in lines]


def history(folder: Path, name: str, rank: int, attempts: int) -> list[dict[str, Any]]:
    """The reports that count: an attempt's last ones do not if the next began before them."""
    counted: list[dict[str, Any]] = []
    for attempt in range(1, attempts + 1):
        events = events_of(folder, name, attempt, rank)
        (started,) = of_kind(events, "training_started")
        counted = [event for event in counted if event["step"] <= started["first_step"]]
        counted += [e for e in events if e["kind"] in ("steps_done", "evaluation_done")]
    return counted


def what_it_says(event: dict[str, Any]) -> tuple[Any, ...]:
    fields = ("kind", "epoch", "step", "metrics", "lr", "window", "progressive")
    return tuple(event.get(field) for field in fields)


def start_of(folder: Path, name: str, attempt: int) -> dict[str, Any]:
    (started,) = of_kind(events_of(folder, name, attempt, 0), "training_started")
    return started


@pytest.mark.parametrize("name", INTERRUPTED)
def test_weights_and_reports_are_those_of_the_undisturbed_training(folder: Path, name: str) -> None:
    case, ends, _ = INTERRUPTED[name]
    attempts = len(ends) + 1
    for rank in range(CASES[case][0]):
        expected = torch.load(folder / f"{case}.1.{rank}.pt", weights_only=True)
        state = torch.load(folder / f"{name}.{attempts}.{rank}.pt", weights_only=True)
        assert state.keys() == expected.keys()
        for key, values in expected.items():
            assert torch.equal(state[key], values), key
        told = [what_it_says(event) for event in history(folder, name, rank, attempts)]
        undisturbed = [what_it_says(event) for event in history(folder, case, rank, 1)]
        assert [entry[:3] for entry in told] == [entry[:3] for entry in undisturbed]
        assert told == undisturbed


@pytest.mark.parametrize("name", INTERRUPTED)
def test_they_went_on_where_they_had_stopped(folder: Path, name: str) -> None:
    case, ends, steps = INTERRUPTED[name]
    for attempt, (end, step) in enumerate(zip(ends, steps, strict=True), 1):
        started = start_of(folder, name, attempt + 1)
        assert step in (-1, started["first_step"])
        if "stop" in end:
            stopped = [
                of_kind(events_of(folder, name, attempt, rank), "rank_stopped")
                for rank in range(CASES[case][0])
            ]
            told = [(event["step"], event["saved"]) for (event,) in stopped]
            assert told == [(started["first_step"], True)] * len(told)
        if started["first_step"]:
            assert started["checkpoint"].startswith(str(folder / name / "checkpoints"))
            assert started["elapsed_before_s"] > 0
        epochs, rest = divmod(started["first_step"], 15)
        assert started["rows_before"] == 10_500 * epochs + 700 * rest


def test_ranks_load_no_part_of_torchs_compiler(folder: Path) -> None:
    loaded = {path.name: path.read_text() for path in folder.glob("*.loaded")}
    assert len(loaded) > len(INTERRUPTED)
    assert not any(loaded.values()), loaded


AUDITED = [name for name, (case, _, _) in INTERRUPTED.items() if "refit" not in case]


@pytest.mark.parametrize("name", [*AUDITED, "two, one, two"])
def test_every_row_was_trained_once(folder: Path, name: str) -> None:
    found = audit_run(folder / name)
    assert found.proved, found
    in_windows = "windows" in name
    assert found.steps == found.num_steps == (15 if in_windows else NUM_STEPS)
    expected = [(3_500, True)] * 3 if in_windows else [(10_500, True), (2_800, False)]
    assert [(epoch.rows, epoch.whole) for epoch in found.epochs] == expected


def test_the_auc_of_a_checkpoint_is_that_of_all_ranks_rows(folder: Path) -> None:
    name = "two, rowwise, bf16"
    told: dict[int, BinaryMetrics] = {}
    for rank in range(2):
        for event in of_kind(events_of(folder, name, 1, rank), "evaluation_done"):
            state = BinaryMetrics.from_json(event["metrics"])
            told[event["step"]] = told.get(event["step"], BinaryMetrics()).merge(state)
    saved = of_kind(events_of(folder, name, 1, 0), "checkpoint_saved")
    aucs = {event["step"]: event["auc"] for event in saved if event["auc"] is not None}
    assert aucs == {step: state.compute().auc for step, state in told.items()}
    assert sorted(aucs) == [6, 12, 18, 19]


def test_another_number_of_ranks_goes_on_with_the_same_training(folder: Path) -> None:
    def losses(name: str, ranks: list[int]) -> dict[tuple[str, int], float]:
        told: dict[tuple[str, int], BinaryMetrics] = {}
        for attempt, num_ranks in enumerate(ranks, 1):
            first = start_of(folder, name, attempt)["first_step"]
            told = {key: state for key, state in told.items() if key[1] <= first}
            for rank in range(num_ranks):
                for event in events_of(folder, name, attempt, rank):
                    if event["kind"] in ("steps_done", "evaluation_done"):
                        key = event["kind"], event["step"]
                        state = BinaryMetrics.from_json(event["metrics"])
                        told[key] = told.get(key, BinaryMetrics()).merge(state)
        return {key: state.compute().log_loss or 0.0 for key, state in told.items()}

    assert start_of(folder, "two, one, two", 2)["first_step"] in (8, 9)
    mixed = losses("two, one, two", [2, 1, 2])
    expected = losses("two all the time", [2])
    assert len(mixed) == NUM_STEPS + 4
    assert mixed.keys() == expected.keys()
    for key, loss in expected.items():
        assert mixed[key] == pytest.approx(loss, rel=1e-4), key
