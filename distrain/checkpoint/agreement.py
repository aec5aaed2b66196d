"""The ranks tell each other how it went, in a collective operation."""

import torch

from distrain.embeddings import Peers


def all_texts(peers: Peers, device: torch.device, text: str) -> list[str]:
    """Every rank's text, in rank order; a collective operation.

    Args:
        peers: Who takes part.
        device: Where their backend wants tensors.
        text: This rank's.
    """
    if peers.num_ranks == 1:
        return [text]
    content = torch.tensor(list(text.encode()), dtype=torch.uint8, device=device)
    length = torch.tensor([len(content)], dtype=torch.int64, device=device)
    lengths = peers.gather_counts(length).flatten().tolist()
    return [bytes(rows.tolist()).decode() for rows in peers.gather_rows(content, lengths)]
