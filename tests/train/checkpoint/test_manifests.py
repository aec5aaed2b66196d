"""A manifest is believed nothing: what it says is compared before anything follows from it."""

import json
import resource
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from checkpoint_states import MIXED, new_state, save_together

from distrain.models.embeddings import Peers
from distrain.train.checkpoint import CheckpointDir, load_newest
from distrain.train.checkpoint.manifest import (
    MANIFEST_FILE,
    _rendered,
    from_document,
    read_document,
)

NAME = "step-0000000001-a1"


@pytest.fixture(scope="module")
def saved(memory_folder):
    """A checkpoint of 2 ranks, and its manifest."""
    states = [new_state("adagrad", MIXED, Peers(rank, 2)) for rank in (0, 1)]
    own = [{"rng": torch.arange(5), "no": torch.empty(0)} for _ in (0, 1)]
    place = CheckpointDir(str(memory_folder / "saved"))
    told, reports = save_together(place, states, own)
    assert told == [True, True], reports
    return place, place.read_manifest(NAME)


def test_the_order_of_values_is_kept(saved):
    _, document = saved
    manifest = from_document(json.loads(json.dumps(document)))
    manifest = replace(manifest, values={"spec": {"tasks": {"click": {}, "buy": {}}}})
    read = from_document(read_document(manifest.to_bytes(), "here"))
    assert list(read.values["spec"]["tasks"]) == ["click", "buy"]


def at(*path, to):
    """A change of one value of a manifest."""

    def change(document):
        *inner, last = path
        for key in inner:
            document = document[key]
        document[last] = to(document[last]) if callable(to) else to

    change.__name__ = ".".join(map(str, path))
    return change


def without(*path):
    def change(document):
        *inner, last = path
        for key in inner:
            document = document[key]
        del document[last]

    return change


def first_own_piece(document):
    pieces = document["files"][0]["pieces"]
    return next(piece for piece in pieces if piece[0] == "rank.rng")


def repeated_piece(document):
    document["files"][0]["pieces"].insert(0, document["files"][0]["pieces"][0])


def no_own_piece(document):
    document["files"][0]["pieces"].remove(first_own_piece(document))


HUGE = 1 << 62
TENSOR = "embeddings.weights.1"

CHANGES = {
    "a path": at("files", 0, "file", to="../../../outside.safetensors"),
    "a sibling's path": at("files", 1, "file", to="../step-0000000002-a1/rank-1-of-2.safetensors"),
    "an absolute path": at("files", 0, "file", to="/etc/passwd"),
    "no name": at("files", 0, "file", to=""),
    "one file twice": at("files", 1, "file", to="rank-0-of-2.safetensors"),
    "a name that is no text": at("files", 0, "file", to=["rank-0-of-2.safetensors"]),
    "a huge file": at("files", 0, "size_bytes", to=HUGE),
    "a file too long": at("files", 0, "size_bytes", to=lambda size: size + 1),
    "a negative size": at("files", 0, "size_bytes", to=-1),
    "a size that is no number": at("files", 0, "size_bytes", to="12"),
    "a huge header": at("files", 0, "header_bytes", to=HUGE),
    "a negative header": at("files", 0, "header_bytes", to=-8),
    "a header of true": at("files", 0, "header_bytes", to=True),
    "an offset elsewhere": at("files", 0, "pieces", 1, 4, to=lambda offset: offset + 8),
    "a negative offset": at("files", 0, "pieces", 0, 4, to=-4096),
    "a huge first row": at("files", 0, "pieces", 0, 1, to=HUGE),
    "a negative first row": at("files", 0, "pieces", 0, 1, to=-1),
    "no stride": at("files", 0, "pieces", 0, 2, to=0),
    "a huge count": at("files", 0, "pieces", 0, 3, to=HUGE),
    "a fraction of a row": at("files", 0, "pieces", 0, 3, to=1.5),
    "a piece of nothing": at("files", 0, "pieces", 0, 0, to="no.such.tensor"),
    "a piece's name that is no text": at("files", 0, "pieces", 0, 0, to=7),
    "a piece too short": at("files", 0, "pieces", 0, to=lambda piece: piece[:-1]),
    "a rank beyond the others": at("files", 0, "pieces", 0, to=lambda piece: [*piece, 1, 0]),
    "a rank that is no number": at("files", 0, "pieces", 0, to=lambda piece: [*piece, "0", 0]),
    "a negative block": at("files", 0, "pieces", 0, to=lambda piece: [*piece, 0, -1]),
    "more than a rank and its block": at(
        "files", 0, "pieces", 0, to=lambda piece: [*piece, 0, 0, 0]
    ),
    "a piece twice": repeated_piece,
    "no piece of a rank's own": no_own_piece,
    "a huge tensor of a rank": at("files", 0, "rank_tensors", "rng", 1, to=[HUGE]),
    "an endless tensor of a rank": at("files", 0, "rank_tensors", "no", 1, to=[0, HUGE, HUGE]),
    "more of a rank than there is": at("files", 0, "rank_tensors", "rng", 1, to=[6]),
    "a type that is none": at("files", 0, "rank_tensors", "rng", 0, to="PICKLE"),
    "a tensor's type": at("tensors", TENSOR, 0, to="PICKLE"),
    "a tensor's shape": at("tensors", TENSOR, 1, to=[-1, 4]),
    "a shape that is no list": at("tensors", TENSOR, 1, to=3),
    "tensors that are a list": at("tensors", to=[]),
    "files that are a mapping": at("files", to={}),
    "no files": without("files"),
    "no tensors": without("tensors"),
    "no step": without("step"),
    "a step of text": at("step", to="1"),
    "an endless auc": at("auc", to=float("inf")),
    "values that are none": at("values", to=None),
    "a run that is no name": at("run", to=["a"]),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_cannot_be_true_is_damage(saved, tmp_path, what):
    place, document = saved
    changed = json.loads(json.dumps(document))
    CHANGES[what](changed)
    assert changed != document
    copy = tmp_path / "copy"
    shutil.copytree(place.url, copy)
    outside = tmp_path / "outside.safetensors"
    outside.write_bytes(b"secret")
    (copy / NAME / MANIFEST_FILE).write_bytes(_rendered(changed))
    told = []
    spoilt = CheckpointDir(str(copy))
    with less_memory():
        loaded = load_newest(spoilt, new_state("adagrad"), Peers(), report=told.append)
    assert (loaded.entry, loaded.touched) == (None, False)
    (trouble,) = told
    assert "damaged: " in trouble.message
    assert f"{NAME}/{MANIFEST_FILE}" in trouble.message or f"{NAME} cannot be used" in str(told)


class less_memory:
    """No more memory than there is already, and a bit: what is huge fails at once."""

    def __enter__(self):
        self._before = resource.getrlimit(resource.RLIMIT_AS)
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmSize:"):
                limit = int(line.split()[1]) * 1024 + (1 << 30)
        resource.setrlimit(resource.RLIMIT_AS, (limit, self._before[1]))

    def __exit__(self, *_):
        resource.setrlimit(resource.RLIMIT_AS, self._before)


def test_sizes_are_compared_with_the_files_before_memory_is_taken(saved, tmp_path):
    """A manifest that agrees with itself, of files that are not so large."""
    place, document = saved
    changed = json.loads(json.dumps(document))
    shard = changed["files"][0]
    piece = first_own_piece(changed)
    rows, taken = 1 << 40, piece[3]
    shard["rank_tensors"]["rng"][1] = [rows]
    piece[3] = rows
    grown = (rows - taken) * 8
    for later in shard["pieces"][shard["pieces"].index(piece) + 1 :]:
        later[4] += grown
    shard["size_bytes"] += grown
    changed["size_bytes"] += grown
    from_document(changed)  # nothing is wrong with it by itself
    copy = tmp_path / "copy"
    shutil.copytree(place.url, copy)
    (copy / NAME / MANIFEST_FILE).write_bytes(_rendered(changed))
    told = []
    with less_memory():
        loaded = load_newest(
            CheckpointDir(str(copy)), new_state("adagrad"), Peers(), report=told.append
        )
    assert (loaded.entry, loaded.touched) == (None, False)
    (trouble,) = told
    assert f"it has {document['files'][0]['size_bytes']:,} bytes, not" in trouble.message


def test_a_manifest_nested_deeper_than_the_stack(saved, tmp_path):
    place, _ = saved
    copy = tmp_path / "copy"
    shutil.copytree(place.url, copy)
    deep = '{"a":' * 100_000 + "1" + "}" * 100_000
    (copy / NAME / MANIFEST_FILE).write_text(f'{{"format":1,"xxh3_64":"0","content":{deep}}}')
    spoilt = CheckpointDir(str(copy))
    assert spoilt.list() == []
    assert "damaged: " in spoilt.damaged[0]
