"""In every collective operation a rank tells that it waits for its peers."""

import threading
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from played_graph import PlayedGraph
from torch import Tensor, distributed as dist

from distrain.models.embeddings import Peers
from distrain.train.loop.rank_events import PendingSteps
from distrain.train.loop.setup import WaitTrackingPeers
from distrain.train.step.recorder import WARM_UP_STEPS, Recorder
from distrain.train.timing.phases import PEERS, wait_of

ROWS = torch.zeros(2, 3)
OPERATIONS = {
    "gather_rows": lambda peers: peers.gather_rows(ROWS, [2, 2]),
    "gather_counts": lambda peers: peers.gather_counts(torch.tensor([1])),
    "exchange_counts": lambda peers: peers.exchange_counts(torch.tensor([1, 2])),
    "gather_padded": lambda peers: peers.gather_padded(ROWS, 2),
    "gather_rows_on_rank_0": lambda peers: peers.gather_rows_on_rank_0(ROWS, [2, 2]),
    "exchange_rows": lambda peers: peers.exchange_rows(ROWS, [1, 1], [1, 1]),
    "all_reduce_sum": lambda peers: peers.all_reduce_sum(ROWS),
    "all_reduce_counts": lambda peers: peers.all_reduce_counts(torch.tensor([1])),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_rank_in_a_collective_operation_waits_for_its_peers(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[str] = []

    class Done:
        def wait(self) -> None:
            pass

    def note(*_: object, **__: object) -> Done:
        waits.append(wait_of(threading.get_ident()))
        return Done()

    for operation in ("all_gather_single", "all_reduce", "all_to_all_single", "gather"):
        monkeypatch.setattr(dist, operation, note, raising=False)
    OPERATIONS[name](WaitTrackingPeers(0, 2))
    assert waits == [PEERS]
    assert wait_of(threading.get_ident()) == ""


@pytest.mark.parametrize("gathers", [True, False])
def test_it_waits_for_rows_on_their_way_only_when_it_asks_for_them(
    gathers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[str] = []

    class Work:
        def wait(self) -> None:
            waits.append(wait_of(threading.get_ident()))

    for operation in ("all_gather_single", "all_to_all_single"):
        monkeypatch.setattr(dist, operation, lambda *_, **__: Work(), raising=False)
    peers = WaitTrackingPeers(0, 2)
    arriving = (
        peers.begin_gather(ROWS, 2) if gathers else peers.begin_exchange_rows(ROWS, [1, 1], [1, 1])
    )
    assert waits == []
    assert len(peers.wait_for_rows(arriving)) == 2
    assert waits == [PEERS]


def test_a_hang_in_a_replay_or_in_a_report_is_a_wait_for_peers() -> None:
    """NCCL's watchdog does not see a graph's collective operations."""
    waits: list[str] = []

    class Graph(PlayedGraph):
        def replay(self) -> tuple[Tensor, ...]:
            waits.append(wait_of(threading.get_ident()))
            return super().replay()

    class TwoPeers(Peers):
        def all_reduce_max(self, numbers: Any) -> list[int]:
            return list(numbers)

    @dataclass
    class Report:
        metrics: dict[str, Any] = field(default_factory=dict)

        def read(self) -> dict[str, Any]:
            waits.append(wait_of(threading.get_ident()))
            return {"rows": 1}

    recorder = Recorder(TwoPeers(0, 2), gives_up=False, make_graph=Graph)
    for _ in range(WARM_UP_STEPS + 1):
        recorder.call("step", 1, (ROWS,), lambda inputs: ())
    sent: Any = PendingSteps(Report(), Report()).event()  # type: ignore[arg-type]
    assert sent.metrics == {"rows": 1}
    assert waits == [PEERS, PEERS]
