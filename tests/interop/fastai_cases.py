"""fastai's Learner gets the loader's batches and trains on them; `test_fastai.py` runs this."""

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from interop_tables import ALL, SCHEMA, epoch_of, loader_threads, run_example

from distrain import Dataset, Loader, Schema
from distrain.errors import SpecError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # fastai scripts a function with torch.jit as it is imported
    from fastai.callback.core import Callback, CancelEpochException
    from fastai.tabular.all import Learner, TabularModel

    from distrain.interop.fastai import data_loaders

BATCH_ROWS = 300
STEPS = 8  # the last one has 250 rows


def train_loader(table: Path, schema: Schema = SCHEMA) -> Loader:
    return Loader(Dataset(table, schema), batch_size=BATCH_ROWS, seed=3)


def valid_loader(table: Path) -> Loader:
    return Loader(Dataset(table, SCHEMA), batch_size=500, shuffle="none")


def equal(item: Any, batch: Any) -> bool:
    ids, numbers, label = item
    return (
        torch.equal(ids, batch.categorical)
        and torch.equal(numbers, batch.continuous)
        and label.dtype == torch.long
        and torch.equal(label, batch.label.long())
    )


class Recorder(Callback):  # type: ignore[misc]
    """Keeps what the learner trains and validates on; may stop an epoch."""

    def __init__(self, stop_after: int = 0):
        self.trained: list[Any] = []
        self.tested: list[Any] = []
        self.stop_after = stop_after

    def before_batch(self) -> None:
        kept = self.trained if self.training else self.tested
        kept.append((*self.learn.xb, *self.learn.yb))
        if self.training and len(self.trained) == self.stop_after:
            raise CancelEpochException


def learner(dls: Any, *callbacks: Any, layers: tuple[int, ...] = (8,), **options: Any) -> Any:
    """A small tabular model over `dls`, without a progress bar."""
    dataset = dls.train.dataset.dataset
    sizes = [(c.cardinality, 4) for c in dataset.schema.categorical]
    torch.manual_seed(1)
    model = TabularModel(sizes, len(dataset.schema.continuous), 2, list(layers))
    options = {"loss_func": torch.nn.CrossEntropyLoss(), "cbs": list(callbacks), **options}
    made = Learner(dls, model, **options)
    made.remove_cb(made.progress)
    made.logger = lambda *values: None
    return made


def test_a_learner_gets_the_loaders_batches_bit_for_bit(table: Path) -> None:
    dls = data_loaders(train_loader(table), valid_loader(table))
    seen = Recorder()
    learner(dls, seen).fit(2, 0.01)
    given = [*epoch_of(train_loader(table), 0), *epoch_of(train_loader(table), 1)]
    assert len(seen.trained) == 2 * STEPS == 2 * len(dls.train)
    assert all(map(equal, seen.trained, given))
    assert len(seen.tested) == 2 * 5 == 2 * len(dls.valid)
    assert all(map(equal, seen.tested, 2 * epoch_of(valid_loader(table), 0)))


def test_one_batch_is_no_step_forward(table: Path) -> None:
    dls = data_loaders(train_loader(table), valid_loader(table))
    first = epoch_of(train_loader(table), 0)[0]
    assert equal(dls.one_batch(), first)
    assert equal(dls.one_batch(), first)
    assert loader_threads() == []
    assert equal(next(iter(dls.train)), first)
    assert equal(dls.one_batch(), first)


def test_an_epoch_that_is_cut_off_leaves_no_thread(table: Path) -> None:
    dls = data_loaders(train_loader(table), valid_loader(table))
    seen = Recorder(stop_after=2)
    learn = learner(dls, seen)
    learn.fit(1, 0.01)
    assert len(seen.trained) == 2
    assert loader_threads() == []
    dls.one_batch()
    learn.fit(1, 0.01)  # the next epoch, from its first step
    assert len(seen.trained) == 2 + STEPS
    assert all(map(equal, seen.trained[2:], epoch_of(train_loader(table), 1)))


@pytest.mark.filterwarnings("ignore:.*numpy.core is deprecated:DeprecationWarning")  # fastai's own
def test_the_learning_rate_finder_works(table: Path, tmp_path: Path) -> None:
    dls = data_loaders(train_loader(table), valid_loader(table), path=tmp_path)
    found = learner(dls).lr_find(num_it=20, show_plot=False)
    assert 1e-7 < found.valley < 10
    assert loader_threads() == []


def test_batches_go_to_the_device(table: Path) -> None:
    dls = data_loaders(train_loader(table), valid_loader(table)).to(torch.device("meta"))
    assert dls.device.type == "meta"
    assert {tensor.device.type for tensor in dls.one_batch()} == {"meta"}


def test_one_logit_takes_numbers_as_targets(table: Path) -> None:
    dls = data_loaders(train_loader(table), valid_loader(table), target_dtype=torch.float32)
    assert torch.equal(dls.one_batch()[2], epoch_of(train_loader(table), 0)[0].label)


def test_what_fastai_has_no_place_for_is_refused(table: Path) -> None:
    with pytest.raises(SpecError, match="list column visited") as caught:
        data_loaders(train_loader(table, ALL))
    assert "weight weight" in str(caught.value)
    unlabelled = Dataset(table, SCHEMA, need_label=False)
    with pytest.raises(SpecError, match="needs a target"):
        data_loaders(Loader(unlabelled, batch_size=9))


@pytest.mark.usefixtures("in_prepared")
def test_the_page_s_example_runs() -> None:
    names = run_example("fastai")
    assert len(names["learn"].recorder.values[-1]) == 4  # two losses and two metrics
