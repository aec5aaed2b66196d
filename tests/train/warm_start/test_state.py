"""Tomorrow goes on from today: a day after another is one run over both, bit for bit."""

from pathlib import Path
from typing import Any

import pytest
import torch
from small_jobs import make_spec
from trained import trained
from wording import Wording

from distrain.errors import SpecError
from distrain.jobs.events import StepsDone, WeightsTaken
from distrain.models import load_model
from distrain.predict.load_model import load_checkpoint
from distrain.train.checkpoint import CheckpointDir
from distrain.train.data.inputs import check_inputs
from distrain.train.loop.trainer import Trainer
from distrain.train.warm_start.transfer import check_warm_start

pytestmark = pytest.mark.usefixtures("undrawn")

RANKS = Path(__file__).parents[1] / "loop" / "resume_ranks.py"
JOB = (
    "resources={backend: inline, num_ranks: 1}",
    "data.windows={by: file}",
    "data.valid=[]",
    "train={global_batch_size: 800, max_steps: null, log_every_steps: 1}",
    "train.schedule={warmup_steps: 7}",
    "evaluate={next_window: true, at_end: false}",
    "checkpoint={every_s: null, keep: 9}",
)


def train(
    prepared: Path, root: Path, days: list[int], *overrides: str, attempt: int = 1
) -> tuple[Trainer, Any]:
    files = [str(prepared / "train" / f"part-{day}.parquet") for day in days]
    spec = make_spec(prepared, *JOB, f"data.train={files}", *overrides)
    return trained(spec, root, attempt, root.name)


def after(root: Path) -> tuple[str, ...]:
    return f"train.init_from={root}/checkpoints", "train.init_state=all"


def tensors_of(trainer: Trainer) -> dict[str, torch.Tensor]:
    found = {}
    for name, tensor in trainer.checkpoints.state.tensors().items():
        rows = slice(0, tensor.shape[0] if tensor.shape else 1)
        found[name] = tensor if isinstance(tensor, torch.Tensor) else tensor.read(rows)
    assert all(value is not None for value in found.values())
    return found  # type: ignore[return-value]


def rates(events: list[Any]) -> list[float]:
    return [event.lr for event in events if isinstance(event, StepsDone)]


@pytest.mark.parametrize(("kind", "decay"), [("adam", 0.1), ("rowwise_adagrad", 0.0)])
def test_a_day_after_another_is_one_run_over_both(
    prepared: Path, tmp_path: Path, kind: str, decay: float
) -> None:
    how = f"train.optimizer={{kind: {kind}, lr: 0.02}}", f"train.table_weight_decay={decay}"
    both, events = train(prepared, tmp_path / "both", [0, 1, 2], *how)
    _, first = train(prepared, tmp_path / "one", [0], *how)
    two, second = train(prepared, tmp_path / "two", [1], *how, *after(tmp_path / "one"))
    three, third = train(prepared, tmp_path / "three", [2], *how, *after(tmp_path / "two"))
    mine, its = tensors_of(three), tensors_of(both)
    assert mine.keys() == its.keys()
    assert all(torch.equal(mine[name], its[name]) for name in mine)
    assert rates(first) + rates(second) + rates(third) == rates(events)
    assert (two.checkpoints.steps_before, three.checkpoints.steps_before) == (5, 10)
    (taken,) = (event for event in third if isinstance(event, WeightsTaken))
    assert (taken.state, taken.step) == ("all", 5)
    assert three.progressive.windows == 1
    total = two.progressive.metrics.merge(three.progressive.metrics)
    assert total.main is not None
    assert both.progressive.metrics.main is not None
    assert total.main.compute() == both.progressive.metrics.main.compute()
    (newest,) = CheckpointDir(str(tmp_path / "one/checkpoints")).list()
    as_saved, as_kept = load_model(tmp_path / "one/model"), load_checkpoint(newest.url)
    for saved, kept in zip(as_saved.model.parameters(), as_kept.model.parameters(), strict=True):
        assert torch.equal(saved, kept)
    # Of a training without a decay the rows have no factor, whatever it goes on from.
    state, tables = three.checkpoints.state, three.checkpoints.state.model.embeddings
    values = [weight.clone() for weight in tables.weights]
    tables.apply_factor(0.5)
    assert not any(map(torch.equal, tables.weights, values))
    state.sparse_optimizer.weight_decay = 0.0
    state.adopt(state.facts())
    assert tables.factor == 1.0
    assert all(map(torch.equal, tables.weights, values))


def test_a_run_that_goes_on_again_keeps_the_course_of_the_learning_rate(
    prepared: Path, tmp_path: Path
) -> None:
    _, first = train(prepared, tmp_path / "one", [0])
    _, cut = train(prepared, tmp_path / "two", [1], *after(tmp_path / "one"), "train.max_steps=1")
    _, rest = train(prepared, tmp_path / "two", [1], *after(tmp_path / "one"), attempt=2)
    _, events = train(prepared, tmp_path / "both", [0, 1])
    assert rates(first) + rates(cut) + rates(rest) == rates(events)


def test_a_run_after_plateaus_keeps_the_reduced_learning_rate(
    prepared: Path, tmp_path: Path
) -> None:
    how = (
        f"data.valid={prepared}/valid",
        "train.schedule={}",
        "train.reduce_on_plateau={patience: 0, factor: 0.5, threshold: 1}",
        "evaluate={every_steps: 1}",
        "checkpoint={every_s: null, keep_best: log_loss}",
    )
    train(prepared, tmp_path / "one", [0], *how, "train.max_steps=3")
    _, events = train(
        prepared, tmp_path / "two", [1], *how, *after(tmp_path / "one"), "train.max_steps=2"
    )
    assert rates(events) == [0.0025, 0.0025]  # the first validation of a run only begins its record


def test_weights_alone_begin_the_optimizers_anew(prepared: Path, tmp_path: Path) -> None:
    train(prepared, tmp_path / "one", [0])
    two, events = train(
        prepared, tmp_path / "two", [1], f"train.init_from={tmp_path / 'one'}/checkpoints"
    )
    (taken,) = (event for event in events if isinstance(event, WeightsTaken))
    assert taken.state == ""
    assert rates(events) == [0.01 * ((step + 1) / 7) for step in range(5)]
    assert two.checkpoints.state.sparse_optimizer.num_steps == 5


def test_what_has_no_such_state_is_refused_before_anything_is_started(
    prepared: Path, tmp_path: Path, wording: Wording
) -> None:
    train(prepared, tmp_path / "one", [0])

    def refusal(*overrides: str) -> str:
        spec = make_spec(prepared, *JOB, *overrides)
        with pytest.raises(SpecError) as caught:
            check_warm_start(spec, check_inputs(spec))
        return str(caught.value)

    state = "train.init_state=all"
    model = f"train.init_from={tmp_path / 'one' / 'model'}"
    assert "a saved model has no optimizer state" in refusal(model, state)
    place = f"train.init_from={tmp_path / 'one' / 'checkpoints'}"
    told = refusal(place, state, "train.optimizer={kind: sgd}")
    assert "the optimizer was adagrad and is sgd" in told
    wording.refused(SpecError, lambda: make_spec(prepared, state))
    assert CheckpointDir(str(tmp_path / "one" / "checkpoints")).list()[0].step == 5


def test_what_is_left_by_another_optimizer_is_its_state(prepared: Path, tmp_path: Path) -> None:
    train(prepared, tmp_path / "one", [0])
    others = ("train.optimizer={kind: sgd}", "train.init_strict=false")
    _, events = train(prepared, tmp_path / "two", [1], *after(tmp_path / "one"), *others)
    (taken,) = (event for event in events if isinstance(event, WeightsTaken))
    assert taken.state == ""
    assert taken.left == ["the optimizer was adagrad and is sgd: it has another state"]
