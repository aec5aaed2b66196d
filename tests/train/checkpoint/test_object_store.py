"""Checkpoints in an S3 bucket: a real server, real HTTP."""

import pytest
import torch
from checkpoint_states import (
    MIXED,
    fill,
    load_again,
    new_state,
    same_values,
    save_together,
    some_content,
)
from object_stores import s3fs, serving

from distrain.errors import Unavailable
from distrain.jobs.events import CheckpointSaved, CheckpointTrouble
from distrain.models.embeddings import Peers
from distrain.train.checkpoint import CheckpointDir, shard as shard_module


@pytest.fixture(scope="module")
def server():
    with serving("checkpoints") as filesystem:
        yield filesystem


@pytest.fixture
def place(server, request):
    return CheckpointDir(f"s3://checkpoints/{request.node.name}/checkpoints")


def filled(peers_of):
    """States of so many ranks with the same content, and the content."""
    content = some_content(new_state("adagrad"), peers_of)
    states = [new_state("adagrad", MIXED, Peers(rank, peers_of)) for rank in range(peers_of)]
    for state in states:
        fill(state, content)
    return states, content


def names_in(server, place):
    server.invalidate_cache()
    return sorted(path.split("/", 3)[-1] for path in server.find(place.url.removeprefix("s3://")))


def test_there_and_back(place, server):
    assert place.list() == []
    states, content = filled(2)
    own = [{"rng": torch.tensor([rank])} for rank in (0, 1)]
    told, reports = save_together(place, states, own, step=5, auc=0.5, values={"epoch": 1})
    assert told == [True, True]
    assert isinstance(reports[0], CheckpointSaved)
    assert reports[0].path == f"{place.url}/step-0000000005-a1"
    loaded, state, trouble = load_again(place)
    assert (loaded.entry, trouble) == (place.list()[0], [])
    assert (loaded.entry.step, loaded.entry.auc, loaded.values) == (5, 0.5, {"epoch": 1})
    expected = new_state("adagrad")
    fill(expected, content)
    assert same_values(state, expected)
    assert [own["rng"].tolist() for own in loaded.rank_tensors.values()] == [[0], [1]]


def test_large_files_go_in_parts(place, monkeypatch):
    monkeypatch.setattr("distrain.storage.folder._PART_BYTES", 5 << 20)  # S3's least
    state = new_state("adagrad")
    own = {"large": torch.arange(3 << 20)}
    told, _ = save_together(place, [state], [own], wait=False)
    assert told == [True]
    assert torch.equal(load_again(place)[0].rank_tensors[0]["large"], own["large"])


def test_a_rank_that_fails_amid_its_upload_leaves_nothing(place, server, monkeypatch):
    original = shard_module.write_shard

    def write_shard(folder, file, content, after_slab):
        def fail():
            raise OSError("the cable is out")

        return original(folder, file, content, fail if "rank-1" in file else after_slab)

    monkeypatch.setattr("distrain.train.checkpoint.checkpoint_write.write_shard", write_shard)
    told, reports = save_together(place, filled(2)[0])
    assert told == [False, False]
    assert isinstance(reports[0], CheckpointTrouble)
    assert "rank 1: the cable is out" in reports[0].message
    assert names_in(server, place) == []


def test_a_bucket_that_is_not_there(server):
    place = CheckpointDir("s3://no-such-bucket/run")
    assert place.list() == []
    told, reports = save_together(place, filled(1)[0])
    assert told == [False]
    assert "no-such-bucket" in reports[0].message
    assert not server.exists("no-such-bucket")


def test_a_server_that_is_gone_is_not_an_empty_place(server, monkeypatch, wording):
    place = CheckpointDir("s3://checkpoints/gone")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    s3fs.S3FileSystem.clear_instance_cache()
    try:
        wording.refused(Unavailable, lambda: load_again(place))
        told, reports = save_together(place, filled(1)[0])
    finally:
        s3fs.S3FileSystem.clear_instance_cache()
    assert told == [False]
    assert "was not written" in reports[0].message
