"""Processes that are killed while they write checkpoints, run as a script: FOLDER.

Each is a fork that saves three times and kills itself, with SIGKILL, in the middle of some call of
a Python function, whichever thread makes it. Prints what was found after each.
"""

import itertools
import json
import os
import random
import signal
import sys
import threading
from multiprocessing import get_context
from pathlib import Path

import torch
from checkpoint_states import MIXED, fill, new_state, same_values

from distrain.models.embeddings import Peers
from distrain.train.checkpoint import (
    CheckpointDir,
    CheckpointWriter,
    RankStore,
    load_newest,
    shard as shard_module,
)

KILLS = 8
STEPS = (1, 2, 3)


def content_of(step):
    """The step in every value."""
    return {
        name: torch.full(tuple(tensor.shape), step, dtype=tensor.dtype)
        for name, tensor in new_state("adagrad").tensors().items()
    }


def save_all(folder, contents, at_call):
    """Save, counting calls; returns how many there were, if it lives."""
    calls = itertools.count(1)

    def count(frame, event, argument):
        if event in ("call", "c_call") and next(calls) == at_call:
            os.kill(os.getpid(), signal.SIGKILL)

    state = new_state("adagrad", MIXED)
    writer = CheckpointWriter(CheckpointDir(folder), state, Peers(), RankStore(), keep=2)
    threading.setprofile(count)
    sys.setprofile(count)
    for step, content in contents.items():
        fill(state, content)
        writer.save(step, 1, {}, {}, wait=step == 2)
    writer.wait()
    sys.setprofile(None)
    threading.setprofile(None)
    return next(calls)


def look(folder, contents):
    """What a next attempt finds, and whether it is what was saved."""
    place = CheckpointDir(folder)
    found = []
    for entry in place.list():
        state, expected = new_state("adagrad", seed=3), new_state("adagrad")
        loaded = load_newest(place, state, Peers())
        fill(expected, contents[entry.step])
        found.append([entry.step, loaded.entry == entry and same_values(state, expected)])
        Path(entry.url, "manifest.json").rename(Path(entry.url, "manifest.kept"))
    for kept in Path(folder).glob("step-*/manifest.kept"):
        kept.rename(kept.with_name("manifest.json"))
    writer = CheckpointWriter(place, new_state("adagrad"), Peers(), RankStore(), keep=2)
    writer.save(9, 2, {}, {}, wait=True)
    left = sorted(path.name for path in Path(folder).iterdir())
    return {"found": found, "left": left, "listed": sorted(e.name for e in place.list())}


def main(folder):
    torch.set_num_threads(1)
    shard_module.SLAB_BYTES = 2000
    contents = {step: content_of(step) for step in STEPS}
    total = save_all(f"{folder}/all", contents, -1)
    generator = random.Random(5)
    context = get_context("fork")
    # One in each second sixteenth of all calls, and in the last one.
    for number in range(1, 2 * KILLS, 2):
        place = f"{folder}/{number}"
        at_call = 1 + int((total - 1) * (number + generator.random()) / (2 * KILLS))
        process = context.Process(target=save_all, args=(place, contents, at_call))
        process.start()
        process.join()
        Path(place).mkdir(exist_ok=True)
        print(json.dumps({"exit": process.exitcode, "call": at_call} | look(place, contents)))


if __name__ == "__main__":
    main(sys.argv[1])
