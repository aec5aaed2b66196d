"""ItemRetrievalTask against the formulas of Yi et al. (2019) and of BPR, row by row."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings, strategies as st

from distrain.errors import ModelError
from distrain.models.heads import retrieval
from distrain.models.heads.retrieval import ItemRetrievalTask
from distrain.models.heads.towers import DotProductTask
from distrain.models.shapes import Branches, Flat

TOWERS = Branches({"user": Flat(3), "item": Flat(3)})


def naive_loss(users, items, labels, ids, temperature, log_q, who=None, kind="softmax"):
    """The sum over positive rows of their losses, items that the row's user has left out."""
    total = 0.0
    who = list(range(len(labels))) if who is None else who
    # Of users with ids below 3 nobody knows who they are.
    who = [user if user > 2 else -1 - ids[i] for i, user in enumerate(who)] if ids else who
    known = {(who[i], ids[i]) for i in range(len(labels)) if labels[i] == 1} if ids else set()
    for i, label in enumerate(labels):
        if label != 1:
            continue
        scores = {
            j: sum(a * b for a, b in zip(users[i], items[j], strict=True)) / temperature
            - (0.0 if log_q is None else log_q[j])
            for j in range(len(items))
            if j == i or not ids or (who[i], ids[j]) not in known
        }
        if kind == "softmax":
            total -= scores[i] - math.log(sum(math.exp(s) for s in scores.values()))
        elif len(scores) > 1:
            pairs = [math.log1p(math.exp(s - scores[i])) for j, s in scores.items() if j != i]
            total += sum(pairs) / len(pairs)
    return total


def with_users(some, num_users=3):
    """A batch whose rows are of few users."""
    generator = torch.Generator().manual_seed(some.num_rows)
    users = 2 + torch.randint(num_users, (some.num_rows, 1), generator=generator, dtype=torch.int32)
    ids = torch.cat([some.categorical, users], dim=1)
    return replace(some, categorical=ids, categorical_names=("movie", "user"))


def vectors(rows, dim=3):
    generator = torch.Generator().manual_seed(rows)
    return torch.randn(2, rows, dim, generator=generator, dtype=torch.float64)


def as_towers(user, item):
    return {"user": user, "item": item}


@settings(deadline=None, max_examples=20)
@given(
    st.integers(0, 9),
    st.sampled_from([0.3, 1.0, 2.0]),
    st.sampled_from(["rows", "items", "users"]),
    st.sampled_from([None, "items", "batch", "stream"]),
    st.integers(1, 40),
    st.sampled_from(["softmax", "bpr"]),
)
def test_loss_equals_formula(batch, rows, temperature, told, correction, at_a_time, kind):
    some = with_users(batch(rows, num_items=4))
    ids = some["movie"].tolist()
    log_q, naive_q = None, None
    if correction == "items":
        log_q = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64).log()
        naive_q = [float(log_q[i]) for i in ids]
    if correction == "batch":
        log_q = "batch"
        naive_q = [math.log(ids.count(i) / rows) for i in ids]
    seen = torch.tensor([5, 0, 2, 1])
    if correction == "stream":
        log_q, counts = "stream", torch.bincount(torch.tensor(ids, dtype=torch.int64), minlength=4)
        naive_q = [math.log(int((seen + counts)[i]) / (8 + rows)) for i in ids]
    item_id = "movie" if told != "rows" or correction else None
    user_id = "user" if told == "users" else None
    task = ItemRetrievalTask(
        item_id=item_id,
        temperature=temperature,
        log_q=log_q,
        user_id=user_id,
        kind=kind,
        num_items=4,
    )
    task.attach(TOWERS)
    if correction == "stream":
        task.seen.copy_(seen)
    users, items = vectors(rows)
    output = task({"user": users, "item": items})
    assert output.shape == (rows, 6)
    expected = naive_loss(
        users.tolist(),
        items.tolist(),
        some.label.tolist(),
        None if item_id is None else ids,
        temperature,
        naive_q if kind == "softmax" else None,
        some["user"].tolist() if user_id else None,
        kind,
    )
    before = retrieval._SCORES_AT_A_TIME
    for most in (before, at_a_time):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(retrieval, "_SCORES_AT_A_TIME", most)
            torch.testing.assert_close(float(task.loss(output, some)), float(expected))
    dots = [sum(u * v) / temperature for u, v in zip(users, items, strict=True)]
    found = task.logits(output)
    torch.testing.assert_close(found.tolist(), [float(dot) for dot in dots])


@pytest.mark.parametrize("at_a_time", [10, 4096])
def test_gradients(at_a_time, batch, attached, check_gradients, monkeypatch):
    monkeypatch.setattr(retrieval, "_SCORES_AT_A_TIME", at_a_time)
    task = ItemRetrievalTask(item_id="movie", temperature=0.7, log_q="batch")
    attached(task, TOWERS)
    check_gradients(task, batch(5), *vectors(5), rebuild=as_towers)


def test_a_stream_is_what_was_observed(batch, attached):
    task = ItemRetrievalTask(item_id="movie", log_q="stream", num_items=5)
    attached(task, TOWERS)
    some, output = batch(8), torch.cat(list(vectors(8)), dim=1)
    for _ in range(2):
        task.observe(task.candidates(output, some))
    assert task.seen.tolist() == (2 * torch.bincount(some["movie"].long(), minlength=5)).tolist()
    assert "seen" in task.state_dict()
    assert ItemRetrievalTask(item_id="movie", log_q=torch.zeros(3)).state_dict() == {}


def test_only_positives_of_the_target_are_queries(batch, attached):
    task = ItemRetrievalTask(target="clicked")
    attached(task, TOWERS)
    some = batch(6)
    users, items = vectors(6).requires_grad_()
    users.retain_grad()
    task.loss(task({"user": users, "item": items}), some).backward()
    has_gradient = users.grad.abs().sum(1) > 0
    assert torch.equal(has_gradient, some.label == 1)


def test_tasks_and_towers_that_do_not_fit_are_refused(wording):
    uneven = Branches({"user": Flat(3, "MLPBlock([3])"), "item": Flat(4, "MLPBlock([4])")})
    wording.refused(
        ModelError,
        lambda: ItemRetrievalTask(temperature=0),
        lambda: ItemRetrievalTask(log_q="sketch"),
        lambda: ItemRetrievalTask(kind="hinge"),
        lambda: ItemRetrievalTask(item_id="movie", log_q="stream"),
        lambda: ItemRetrievalTask(user_id="user"),
        lambda: ItemRetrievalTask(log_q="batch"),
        lambda: ItemRetrievalTask(item_id="movie", log_q=torch.zeros(3).log()),
        lambda: ItemRetrievalTask().attach(uneven),
        lambda: ItemRetrievalTask().attach(Flat(6, "MLPBlock")),
        lambda: DotProductTask().attach(uneven),
    )
