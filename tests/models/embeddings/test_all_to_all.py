"""Rows between two to four real gloo ranks, several exchanges under way at once."""

from pathlib import Path

import pytest
import torch
from gloo_ranks import on_ranks
from loaded_scripts import load_script
from torch import distributed as dist

from distrain.diagnostics.bench.measuring.rank import Measuring
from distrain.models.embeddings import Peers
from distrain.models.embeddings.peers import all_to_all

rank_side = load_script(Path(__file__).with_name("all_to_all_rank.py"))


@pytest.fixture(scope="module", params=rank_side.NUM_RANKS)
def gang(request: pytest.FixtureRequest) -> list[dict[str, torch.Tensor]]:
    """What each rank got."""
    return on_ranks(request.param, rank_side.compute)


def test_every_rank_gets_its_rows_in_rank_order(gang: list[dict[str, torch.Tensor]]) -> None:
    num_ranks = len(gang)
    for rank, found in enumerate(gang):
        for case, dtype in enumerate(rank_side.DTYPES):
            rows = [
                rank_side.rows_of(source, rank, of[rank], dtype)
                for source, of in enumerate(rank_side.lengths(num_ranks, case))
            ]
            assert torch.equal(found[str(case)], torch.cat(rows))


def test_every_rank_gets_all_rows_filled_up_to_the_most(
    gang: list[dict[str, torch.Tensor]],
) -> None:
    num_ranks = len(gang)
    for found in gang:
        for n in (0, 3):
            expected = torch.arange(num_ranks).unsqueeze(1).expand(num_ranks, n)
            assert torch.equal(found[f"gathered at once, {n}"], expected)
        for case, (length, dtype) in enumerate(
            zip(rank_side.GATHERED, rank_side.DTYPES, strict=True)
        ):
            expected = torch.zeros(num_ranks, rank_side.MOST, 8, dtype=dtype)
            for rank in range(num_ranks):
                rows = rank_side.gathered_rows(rank, length, dtype)
                expected[rank, : len(rows)] = rows
            assert torch.equal(found[f"gathered {case}"], expected)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """On which devices gloo's sends and receives were given tensors; nothing travels."""
    devices: list[str] = []

    def note(tensor: torch.Tensor, *_: object, **__: object) -> None:
        devices.append(tensor.device.type)

    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_backend", lambda *_: "gloo")
    monkeypatch.setattr(dist, "get_rank", lambda *_: 0)
    for name in ("isend", "irecv", "send", "recv"):
        monkeypatch.setattr(dist, name, note)
    return devices


def test_gloo_moves_rows_of_a_device_by_its_own_all_to_all(
    sent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = []

    class Work:
        def wait(self) -> None:
            pass

    def all_to_all_single(received: torch.Tensor, *_: object, **__: object) -> Work:
        whole.append(received.device.type)
        return Work()

    monkeypatch.setattr(dist, "all_to_all_single", all_to_all_single)
    for device in ("cpu", "meta"):  # the latter in the place of a GPU, as nowhere else are sends
        rows = torch.zeros(4, 2, device=device)
        all_to_all(torch.zeros_like(rows), rows, [2, 2], [2, 2], None)
        peers = Peers(0, 2)
        peers.wait_for_rows(peers.begin_exchange_rows(rows, [2, 2], [2, 2]))
    assert whole == ["meta", "meta"]
    assert sent == ["cpu"] * 4


def test_gloo_measures_links_between_the_hosts_memories(sent: list[str]) -> None:
    words = {"rank": 0, "repeats": 1, "link_bytes": 64}
    assert len(Measuring(words, torch.device("meta"))._send(0, 1)) == 1
    assert set(sent) == {"cpu"}
