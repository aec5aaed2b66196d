"""Measure how many store calls an agreement between ranks costs.

    python benchmarks/agreement.py [--quick]

Each rank is a thread of this process with its own client of one TCPStore server. The ranks agree on
the step at which to stop (`StepAgreement`) and on whether a checkpoint is complete. Every call to
the store is counted. For comparison, a simple implementation is measured, in which each rank polls
the entries of all other ranks every 10 ms.

calls/rank   mean number of calls per rank, without `check` calls
questions    mean number of `check` calls per rank; it depends on how long the ranks wait
time         from the first request until the last rank knows the decision; the threads share one
             process
"""

import argparse
import json
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.distributed import TCPStore

from distrain.jobs.assignment import Rendezvous
from distrain.jobs.spec import MlpSpec
from distrain.models import build_model
from distrain.models.embeddings import Peers, SparseOptimizer
from distrain.schema import ColumnSchema, Schema, Tags
from distrain.train.checkpoint import CheckpointDir, CheckpointWriter, RankStore, TrainingState
from distrain.train.control.control import join_store
from distrain.train.control.step_agreement import StepAgreement

LONG_S = 240.0
SIZES, QUICK_SIZES = (4, 64, 256), (4, 16, 64)
MOST_CALLS = 5.0  # mean per rank; the rank that arrives last needs a few more
MOST_QUESTIONS_PER_S = 5.0
PLAIN_PAUSE_S = 0.01
WAITS_S = 5.0


class CountedStore:
    """A TCPStore client that counts its calls by name."""

    def __init__(self, store: Any):
        self._store = store
        self.calls = Counter[str]()

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._store, name)

        def counted(*arguments: Any) -> Any:
            self.calls[name] += 1
            return call(*arguments)

        return counted


@dataclass(frozen=True)
class Cost:
    """The cost of one agreement.

    Attributes:
        calls: For each rank, the number of calls by name.
        seconds: Duration of the agreement.
    """

    calls: list[Counter[str]]
    seconds: float

    @property
    def without_questions(self) -> list[int]:
        """The number of calls of each rank, without `check` calls."""
        return [sum(calls.values()) - calls["check"] for calls in self.calls]

    @property
    def questions(self) -> float:
        """The mean number of `check` calls per rank."""
        return statistics.mean(calls["check"] for calls in self.calls)


class Stores:
    """One TCPStore server, with clients for the ranks of several gangs."""

    def __init__(self) -> None:
        self.server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self.gangs = 0

    def of_gang(self, num_ranks: int) -> list[CountedStore]:
        """Return a counting client for each rank of a new gang, which uses its own key prefix."""
        self.gangs += 1
        meeting = Rendezvous("127.0.0.1", self.server.port, f"gang/{self.gangs}")
        boards = [join_store(meeting, LONG_S) for _ in range(num_ranks)]
        return [CountedStore(board._store) for board in boards]


def at_the_same_time(jobs: Iterable[Callable[[], Any]]) -> float:
    """Run each job in its own thread; return the seconds until all have ended."""
    threads = [threading.Thread(target=job, daemon=True) for job in jobs]
    began_s = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG_S)
        assert not thread.is_alive()
    return time.perf_counter() - began_s


def step_agreement(stores: list[CountedStore]) -> Cost:
    """Return the cost of agreeing on the step at which ranks at different steps stop."""
    num_ranks = len(stores)
    targets: list[int | None] = []
    told = threading.Semaphore(0)

    def hear(target: int | None) -> None:
        targets.append(target)
        told.release()

    agreements = [StepAgreement(RankStore(s), r, num_ranks, hear) for r, s in enumerate(stores)]  # type: ignore[arg-type]
    for rank, agreement in enumerate(agreements):
        for _ in range(rank % 3):
            agreement.begin()
    began_s = time.perf_counter()
    for agreement in agreements:
        agreement.request(1, stops=True, wait_s=LONG_S)
    for _ in agreements:
        assert told.acquire(timeout=LONG_S)
    seconds = time.perf_counter() - began_s
    assert set(targets) == {min(2, num_ranks - 1)}
    return Cost([store.calls for store in stores], seconds)


def plain_step_agreement(stores: list[CountedStore]) -> Cost:
    """Return the cost of the same agreement if each rank polls the entries of all others."""
    num_ranks = len(stores)

    def decide(rank: int, store: CountedStore) -> None:
        store.set(f"passed/{rank}", str(rank % 3))
        posts = [f"passed/{other}" for other in range(num_ranks)]
        while not store.check(["decision"]):
            if all(store.check([post]) for post in posts):
                target = max(int(store.get(post)) for post in posts if store.check([post]))
                store.compare_set("decision", "", str(target))
            time.sleep(PLAIN_PAUSE_S)
        store.get("decision")

    jobs = [partial(decide, rank, store) for rank, store in enumerate(stores)]
    seconds = at_the_same_time(jobs)
    return Cost([store.calls for store in stores], seconds)


def checkpoint_agreement(stores: list[CountedStore]) -> Cost:
    """Return the cost of agreeing that a checkpoint, which all ranks have written, is complete."""
    num_ranks, states = len(stores), [small_state() for _ in stores]
    whole: list[bool | None] = []
    with tempfile.TemporaryDirectory() as folder:
        place = CheckpointDir(folder)

        def save(rank: int, store: CountedStore) -> None:
            peers, board = Peers(rank, num_ranks), RankStore(store)  # type: ignore[arg-type]
            writer = CheckpointWriter(place, states[rank], peers, board, keep=1, patience_s=LONG_S)
            whole.append(writer.save(1, 1, {}, {}, wait=True).whole)

        jobs = [partial(save, rank, store) for rank, store in enumerate(stores)]
        seconds = at_the_same_time(jobs)
    assert whole == [True] * num_ranks
    return Cost([store.calls for store in stores], seconds)


def small_state() -> TrainingState:
    """Return a model with one small table and its optimizers."""
    schema = Schema(
        (
            ColumnSchema("clicked", "float32", (Tags.TARGET, Tags.BINARY_CLASSIFICATION)),
            ColumnSchema("a", "int32", (Tags.CATEGORICAL,), cardinality=4096),
        )
    )
    model = build_model(schema, MlpSpec(embedding_dim=4, hidden=(3,)), seed=0)
    dense = torch.optim.SGD(model.dense.parameters(), lr=0.1)
    return TrainingState(model, SparseOptimizer(model.embeddings, "sgd"), dense)


def questions_per_s(stores: Stores) -> float:
    """Return the `check` calls per second of a rank that waits for a key that is never set."""
    (store,) = stores.of_gang(1)
    try:
        RankStore(store).read("never", WAITS_S)  # type: ignore[arg-type]
    except TimeoutError:
        return store.calls["check"] / WAITS_S
    raise AssertionError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer ranks")
    sizes = QUICK_SIZES if parser.parse_args().quick else SIZES
    stores = Stores()
    ways = {
        "agreement": step_agreement,
        "agreement, the plain way": plain_step_agreement,
        "checkpoint": checkpoint_agreement,
    }
    print(f"{'agreement':22}{'ranks':>6}{'calls/rank':>12}{'most':>6}{'questions':>11}{'time':>10}")
    found: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
    for name, agree in ways.items():
        for num_ranks in sizes:
            cost = agree(stores.of_gang(num_ranks))
            calls = cost.without_questions
            mean, most = statistics.mean(calls), max(calls)
            found[name].append(
                {
                    "ranks": num_ranks,
                    "calls_per_rank": round(mean, 2),
                    "most_calls": most,
                    "questions_per_rank": round(cost.questions, 1),
                    "seconds": round(cost.seconds, 4),
                }
            )
            print(
                f"{name:22}{num_ranks:>6}{mean:>12.1f}{most:>6}{cost.questions:>11.1f}"
                f"{cost.seconds:>9.3f}s",
                flush=True,
            )
    waits = questions_per_s(stores)
    print(f"a rank that waits for {WAITS_S:g} s asks {waits:.1f} times a second")
    largest = {name: costs[-1] for name, costs in found.items()}
    goals = {
        "agreement_calls_per_rank": largest["agreement"]["calls_per_rank"] <= MOST_CALLS,
        "checkpoint_calls_per_rank": largest["checkpoint"]["calls_per_rank"] <= MOST_CALLS,
        "nobody_calls_more_with_more_ranks": all(
            len({cost["most_calls"] for cost in found[name]}) == 1
            for name in ("agreement", "checkpoint")
        ),
        "faster_than_the_plain_way": largest["agreement"]["seconds"]
        < largest["agreement, the plain way"]["seconds"],
        "questions_per_s": waits <= MOST_QUESTIONS_PER_S,
    }
    print(
        json.dumps(
            {
                "benchmark": "agreement",
                "agreements": found,
                "questions_per_s": waits,
                "goals": goals,
                "met": all(goals.values()),
            }
        )
    )


if __name__ == "__main__":
    main()
