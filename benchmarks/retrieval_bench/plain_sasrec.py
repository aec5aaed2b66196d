"""SASRec in plain torch: `PYTHON plain_sasrec.py LOG.npz BEST.npy SEED`.

Each event of a customer's newest 50 is an example with a softmax over all items, without sampling.
Width, layers, dropout and optimizer are those of distrain's job in `benchmarks/retrieval.py`.
"""

import sys
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH, NEWEST, LAYERS, DROPOUT = 64, 50, 2, 0.2
EPOCHS, BATCH, RATE = 40, 128, 0.001


class Sasrec(nn.Module):
    """Kang and McAuley, "Self-Attentive Sequential Recommendation" (arXiv:1808.09781)."""

    def __init__(self, items: int):
        super().__init__()
        self.items = nn.Embedding(items + 1, WIDTH, padding_idx=items)
        self.places = nn.Embedding(NEWEST, WIDTH)
        for table in (self.items, self.places):
            nn.init.normal_(table.weight, std=0.02)
        self.drop = nn.Dropout(DROPOUT)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 1, WIDTH, DROPOUT, batch_first=True, norm_first=True)
            for _ in range(LAYERS)
        )
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, events: Tensor) -> Tensor:
        """Return the states of events, `[rows, length, width]`; rows are padded at the front."""
        length = events.shape[1]
        x = self.items(events) * WIDTH**0.5 + self.places.weight[-length:]
        x = self.drop(x)
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        nothing = events.eq(self.items.num_embeddings - 1)[:, :, None]
        for layer in self.layers:
            x = layer(x, src_mask=later).masked_fill(nothing, 0.0)
        found: Tensor = self.norm(x)
        return found


def padded(lists: list[np.ndarray], fill: int) -> Tensor:
    rows = [
        np.pad(one[-NEWEST:], (max(0, NEWEST - len(one)), 0), constant_values=fill) for one in lists
    ]
    return torch.from_numpy(np.stack(rows))


def main() -> None:
    torch.manual_seed(int(sys.argv[3]))
    torch.set_num_threads(1)
    log = np.load(sys.argv[1])
    lists = [log["values"][a:b] for a, b in pairwise(log["offsets"])]
    items = int(log["values"].max()) + 1
    model = Sasrec(items)
    optimizer = torch.optim.Adam(model.parameters(), RATE)
    events = padded([one[:-2] for one in lists], items)
    wanted = padded([one[1:-1] for one in lists], -100)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(lists)).split(BATCH):
            there = wanted[rows] >= 0
            scores = model(events[rows])[there] @ model.items.weight[:items].t()
            loss = functional.cross_entropy(scores, wanted[rows][there])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    model.eval()
    with torch.no_grad():
        known = padded([one[:-1] for one in lists], items)
        scores = torch.cat(
            [model(part)[:, -1] @ model.items.weight[:items].t() for part in known.split(256)]
        )
    for row, one in enumerate(lists):
        scores[row, torch.from_numpy(one[:-1])] = -torch.inf
    np.save(sys.argv[2], scores.topk(10).indices.numpy())


if __name__ == "__main__":
    main()
