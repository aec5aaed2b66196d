"""SASRec as a retriever against a plain-torch copy in float64, and what it refuses."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from ragged_rows import draw_rows_of_ids, ragged
from torch import nn

from distrain.errors import ModelError
from distrain.jobs.spec import TrainSpec
from distrain.jobs.spec.models.kinds import SasrecRetrievalSpec
from distrain.loader.batch import Batch, Ragged
from distrain.models import build_model
from distrain.models.embeddings import EmbeddingCollection
from distrain.models.zoo.two_tower import tower_vectors
from distrain.schema import ColumnSchema, Schema, Tags
from distrain.train.step.step import TrainStep
from distrain.train.timing.phases import PhaseClock

ITEMS, USERS, L = 12, 5, 4
SEEN = {"domain": "item", "event": "seen"}
SCHEMA = Schema(
    (
        ColumnSchema("bought", "float32", (Tags.TARGET,)),
        ColumnSchema("user", "int32", (Tags.CATEGORICAL, Tags.USER_ID), USERS),
        ColumnSchema("item", "int32", (Tags.CATEGORICAL, Tags.ITEM_ID), ITEMS),
        ColumnSchema("seen", "int32", (Tags.CATEGORICAL,), ITEMS, is_list=True, properties=SEEN),
    )
)
SGD = TrainSpec.model_validate({"optimizer": {"kind": "sgd"}})


def build(**options):
    spec = SasrecRetrievalSpec(embedding_dim=6, max_length=L, heads=2, **options)
    tables = partial(EmbeddingCollection, dtype=torch.float64)
    model = build_model(SCHEMA, spec, seed=1, make_tables=tables)
    model.dense.double()
    return model


def rows_of(rows, seed):
    """Rows of a few users, some without events, some with more than are looked at."""
    draw = torch.Generator().manual_seed(seed)
    ids = [torch.randint(n, (rows,), generator=draw, dtype=torch.int32) for n in (USERS, ITEMS)]
    seen = ragged(draw_rows_of_ids(rows, ITEMS, draw, 7))
    label = (torch.rand(rows, generator=draw) < 0.8).double()
    none = torch.zeros(rows, 0, dtype=torch.float64)
    lists = {"seen": seen}
    return Batch(torch.stack(ids, 1), none, label, ("user", "item"), (), lists=lists, key=seed)


class PlainSasrec(nn.Module):
    """Of torch's own layers, with the initial values of a model."""

    def __init__(self, model, every):
        super().__init__()
        block, self.every = model.dense.body["user"], every
        self.items = nn.Parameter(model.embeddings.table("item").detach().clone())
        self.positions = nn.Parameter(block.positions.detach().clone())
        self.layers = nn.ModuleList(map(self.copied, block.layers))
        self.norm = nn.LayerNorm(6, dtype=torch.float64)

    @staticmethod
    @torch.no_grad()
    def copied(ours):
        options = {"dropout": 0.0, "norm_first": True, "dtype": torch.float64}
        layer = nn.TransformerEncoderLayer(6, ours.heads, 6, **options)
        for name in ("in_proj_bias", "out_proj.bias"):
            layer.self_attn.get_parameter(name).zero_().requires_grad_(False)
        layer.self_attn.in_proj_weight.copy_(ours.qkv.weight)
        layer.self_attn.out_proj.weight.copy_(ours.joined.weight)
        layer.linear1.load_state_dict(ours.feed[0].state_dict())
        layer.linear2.load_state_dict(ours.feed[2].state_dict())
        return layer

    def states(self, events):
        if not len(events):
            return torch.zeros(1, 6, dtype=torch.float64)
        x = self.items[events] * 6**0.5 + self.positions[: len(events)].flip(0)
        later = torch.full((len(events), len(events)), -torch.inf, dtype=x.dtype).triu(1)
        for layer in self.layers:
            x = layer(x, src_mask=later)
        return self.norm(x)

    def examples(self, batch):
        """Users, states, items and labels."""
        seen = batch.lists["seen"]
        for row in range(batch.num_rows):
            events = seen.values[seen.offsets[row] : seen.offsets[row + 1]][-L:].long()
            user, own = int(batch["user"][row]), int(batch["item"][row])
            user = user if user > 2 else None  # whom nobody knows
            states = self.states(events)
            yield user, states[-1], own, float(batch.label[row])
            for place in range(len(events) - 1 if self.every else 0):
                yield user, states[place], int(events[place + 1]), 1.0

    def loss(self, batch, temperature, draws):
        """Each example with label 1 against all items of others but those that its user has had."""
        every = list(self.examples(batch))
        known = {(user, item) for user, _, item, label in every if label == 1 and user}
        total = torch.zeros((), dtype=torch.float64)
        for place, (user, state, item, label) in enumerate(every):
            at = [n for n in range(len(every)) if n != place]
            rivals = [every[n][2] for n in at] if draws is None else draws.of(batch).values.tolist()
            had = {other for owner, other in known if owner == user} or {item}
            others = [item, *(other for other in rivals if other not in had)]
            scores = self.items[others] @ state / temperature
            if draws is not None:
                scores = scores - draws.log_q(torch.tensor(others))
            total = total + label * (scores.logsumexp(0) - scores[0])
        return total


@pytest.mark.parametrize(
    ("every", "negatives"), [(False, "batch"), (True, "batch"), (True, "popularity")]
)
def test_training_equals_that_of_a_plain_torch_copy(every, negatives):
    model = build(every_event=every, temperature=0.7, negatives=negatives)
    plain = PlainSasrec(model, every)
    step, optimizer = TrainStep(model, SGD, 1), torch.optim.SGD(plain.parameters(), 0.2)
    for number, rows in enumerate((16, 1, 12, 16)):
        batch = rows_of(rows, seed=number)
        _, loss = step(batch, rows, 0.2, PhaseClock())
        optimizer.zero_grad()
        expected = plain.loss(batch, 0.7, model.inputs.draws)
        (expected / rows).backward()
        optimizer.step()
        torch.testing.assert_close(loss, expected.detach(), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(model.embeddings.table("item"), plain.items.detach())
    model.eval()
    batch = rows_of(20, seed=9)
    with torch.no_grad():
        vectors, logits = tower_vectors(model, batch), model(batch)
        plain.every = False
        states = torch.stack([state for _, state, _, _ in plain.examples(batch)])
    torch.testing.assert_close(vectors["user"], states)
    torch.testing.assert_close(vectors["item"], plain.items.detach()[batch["item"].long()])
    torch.testing.assert_close(logits, (vectors["user"] * vectors["item"]).sum(1) / 0.7)


def test_rows_without_events_and_no_rows_train():
    model = build(every_event=True)
    step = TrainStep(model, SGD, 1)
    empty = Ragged(torch.zeros(0, dtype=torch.int32), torch.zeros(7, dtype=torch.int32))
    for batch in (replace(rows_of(6, seed=1), lists={"seen": empty}), rows_of(0, seed=1)):
        _, loss = step(batch, 6, 0.1, PhaseClock())
        assert loss.isfinite()


def test_events_without_the_item_are_refused(wording):
    other = replace(SCHEMA["seen"], properties={"domain": "user", "event": "seen"})
    twice = Schema((*SCHEMA, replace(SCHEMA["seen"], name="again", properties={"domain": "item"})))
    wording.refused(
        ModelError,
        lambda: build_model(SCHEMA.with_columns(other), SasrecRetrievalSpec(), seed=0),
        lambda: build_model(twice, SasrecRetrievalSpec(), seed=0),
    )
