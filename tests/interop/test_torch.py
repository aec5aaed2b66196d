"""torch's DataLoader with 0 to 3 workers gets each row once, epoch by epoch, forked or spawned."""

import pickle
from collections.abc import Generator, Iterator
from contextlib import closing
from itertools import zip_longest
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from interop_tables import ALL, ROWS, SCHEMA, run_example
from torch.utils.data import DataLoader
from wording import Wording

from distrain import Dataset, Loader
from distrain.errors import SpecError
from distrain.interop.torch import WorkerBatches, as_dict, as_tensordict, as_tuple, unchanged

BATCH_ROWS = 100


def batches_of(table: Path, schema: Any = SCHEMA, **options: Any) -> WorkerBatches:
    return WorkerBatches(Dataset(table, schema), batch_size=BATCH_ROWS, seed=3, **options)


def epoch_of(
    table: Path, num_workers: int, epoch: int, *, rank: int = 0, num_ranks: int = 1, **more: Any
) -> Iterator[torch.Tensor]:
    """What the loaders of the workers give, which take turns."""
    dataset, parts = Dataset(table, SCHEMA), []
    for worker in range(num_workers):
        place = {"rank": rank * num_workers + worker, "num_ranks": num_ranks * num_workers}
        loader = Loader(dataset, batch_size=BATCH_ROWS, seed=3, **place, **more)
        with loader, loader.epoch(epoch) as batches:
            parts.append([batch["row"].clone() for batch in batches if batch.num_rows])
    for turn in zip_longest(*parts):
        yield from (rows for rows in turn if rows is not None)


@pytest.mark.filterwarnings("ignore:This DataLoader will create 3 worker processes")
@pytest.mark.parametrize(
    ("num_workers", "context", "persistent"),
    [(0, None, False), (2, "fork", False), (3, "fork", True)],
)
def test_each_row_comes_once_in_each_epoch_which_have_orders_of_their_own(
    table: Path, num_workers: int, context: str | None, persistent: bool
) -> None:
    loader = DataLoader(
        batches_of(table), batch_size=None, num_workers=num_workers,
        multiprocessing_context=context, persistent_workers=persistent,
    )  # fmt: skip
    for epoch in range(3):
        rows = [batch["row"] for batch in loader]
        expected = list(epoch_of(table, max(1, num_workers), epoch))
        assert len(rows) == len(expected)
        assert all(map(torch.equal, rows, expected))
        assert sorted(torch.cat(rows).tolist()) == list(range(ROWS))


@pytest.mark.slow
def test_spawned_workers_give_what_forked_ones_give_and_start_where_they_are_told(
    table: Path,
) -> None:
    given = batches_of(table, form=as_tuple)
    spawned = DataLoader(given, batch_size=None, num_workers=2, multiprocessing_context="spawn")
    given.set_epoch(7)
    rows = [ids[:, 0] for ids, _, _ in spawned]
    assert all(map(torch.equal, rows, epoch_of(table, 2, 7)))
    assert sorted(torch.cat(rows).tolist()) == list(range(ROWS))


def test_epochs_follow_each_other_whatever_the_number_of_workers(table: Path) -> None:
    given = batches_of(table)
    for epoch, num_workers in enumerate((1, 2)):
        loader = DataLoader(given, batch_size=None, num_workers=num_workers)
        rows = [batch["row"] for batch in loader]
        assert all(map(torch.equal, rows, epoch_of(table, num_workers, epoch)))
        assert sorted(torch.cat(rows).tolist()) == list(range(ROWS))


def test_a_worker_whose_pass_ended_before_it_began_is_in_the_next_epoch_with_the_others(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = batches_of(table)

    def first_rows(worker: int, seed: int, of: WorkerBatches = given) -> torch.Tensor:
        # As in a process of its own: each has a copy, and the memory that they share.
        info = SimpleNamespace(id=worker, num_workers=2, seed=seed + worker)
        monkeypatch.setattr("distrain.interop.torch.get_worker_info", lambda: info)
        with closing(cast(Generator[Any, None, None], iter(of))) as begun:
            rows: torch.Tensor = next(begun)["row"]
        return rows

    first_rows(0, seed=5)  # and the pass ends
    expected = list(epoch_of(table, 2, 1))
    passes = given._passes.__dict__
    for worker in (1, 0):
        passes["_begun"] = 0  # started anew
        assert torch.equal(first_rows(worker, seed=6), expected[worker])
    # Once more with the same seed, which is another pass.
    expected = list(epoch_of(table, 2, 2))
    for worker in (0, 1):
        passes["_begun"] = 0
        assert torch.equal(first_rows(worker, seed=6), expected[worker])
    # A copy goes its own way.
    copied = pickle.loads(pickle.dumps(given))
    expected = list(epoch_of(table, 2, 3))
    assert torch.equal(first_rows(0, seed=7, of=copied), expected[0])
    assert torch.equal(first_rows(0, seed=8), expected[0])


def test_ranks_with_workers_share_the_rows_and_take_as_many_batches(table: Path) -> None:
    seen, lengths = [], []
    for rank in range(2):
        given = batches_of(table, rank=rank, num_ranks=2, drop_last=True)
        rows = [b["row"] for b in DataLoader(given, batch_size=None, num_workers=2)]
        expected = epoch_of(table, 2, 0, rank=rank, num_ranks=2, drop_last=True)
        assert all(map(torch.equal, rows, expected))
        lengths.append(len(rows))
        seen += torch.cat(rows).tolist()
    assert lengths == [2 * (ROWS // (4 * BATCH_ROWS))] * 2
    assert len(set(seen)) == len(seen) == 4 * BATCH_ROWS * (ROWS // (4 * BATCH_ROWS))


def test_forms(table: Path) -> None:
    (batch,) = Loader(Dataset(table, ALL), batch_size=ROWS, lanes=1, shuffle="none")
    columns = as_dict(batch)
    assert set(columns) == {column.name for column in ALL.columns}
    assert [len(row) for row in columns["visited"].unbind()] == [row % 5 for row in range(ROWS)]
    assert torch.equal(columns["bought"], batch.labels[:, 1])
    ids, numbers, targets = as_tuple(batch)
    assert torch.equal(ids[:, 0], columns["row"])
    assert numbers.shape == targets.shape == (ROWS, 2)
    (one,) = Loader(Dataset(table, SCHEMA), batch_size=ROWS, lanes=1, shuffle="none")
    assert torch.equal(as_tuple(one)[2], as_dict(one)["label"])


def test_a_tensordict_crosses_from_a_worker(table: Path) -> None:
    tensordict = pytest.importorskip("tensordict")
    given = batches_of(table, form=as_tensordict, shuffle="none", lanes=1)
    loader = DataLoader(given, batch_size=None, num_workers=1, collate_fn=unchanged)
    first = next(iter(loader))
    assert isinstance(first, tensordict.TensorDict)
    assert first.batch_size == (BATCH_ROWS,)
    assert first["row"].tolist() == list(range(BATCH_ROWS))


def test_mistakes_are_told_before_a_worker_starts(table: Path, wording: Wording) -> None:
    wording.refused(SpecError, lambda: batches_of(table, device="cuda"))
    wording.refused(
        SpecError,
        lambda: WorkerBatches(Dataset(table, SCHEMA), batch_size=ROWS + 1, drop_last=True),
    )
    wording.refused(SpecError, lambda: batches_of(table).set_epoch(-1))
    loader = DataLoader(batches_of(table, lanes=1), batch_size=None, num_workers=2)
    with pytest.raises(SpecError, match="lanes"):
        list(loader)


@pytest.mark.usefixtures("in_prepared")
def test_the_page_s_example_runs() -> None:
    names = run_example("WorkerBatches")
    assert names["loss"].isfinite()
