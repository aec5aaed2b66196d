"""The ranks tell each other how it went, in a collective operation."""

import contextlib
import errno
import json
from collections.abc import Iterator

import torch

from distrain.checkpoint.manifest import Damaged
from distrain.embeddings import Peers
from distrain.errors import DataError, DistrainError, OutputError, SpecError, Unavailable

# The gravest first: a rank that cannot read at all knows nothing of damage.
_ERRORS: dict[str, type[DistrainError]] = {
    "spec": SpecError,
    "output": OutputError,
    "refused": DataError,
    "unavailable": Unavailable,
    "damaged": Damaged,
}


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


@contextlib.contextmanager
def together(peers: Peers, device: torch.device, url: str) -> Iterator[None]:
    """What is done inside has succeeded on all ranks, or fails on all; a collective operation.

    Args:
        peers: Who takes part.
        device: Where their backend wants tensors.
        url: What is read or written inside.

    Raises:
        SpecError, OutputError, DataError, Unavailable: Some rank raised it.
        Damaged: Some rank found damage, and none raised anything else.
    """
    kind, told, hint = "", "", None
    try:
        yield
    except (SpecError, OutputError, DataError, Unavailable) as error:
        kind = next(kind for kind, raised in reversed(_ERRORS.items()) if isinstance(error, raised))
        told, hint = on_one_line(error), error.hint
    except OSError as error:
        # A disk that cannot read a sector lost it. Anything else may pass: a server that does
        # not answer now must not send a training back to its beginning.
        broken = error.errno == errno.EIO and "://" not in url
        kind, told = "damaged" if broken else "unavailable", f"cannot be read: {error}"
    texts = all_texts(peers, device, json.dumps([kind, told, hint]))
    outcomes = [json.loads(text) for text in texts]
    for wanted, raised in _ERRORS.items():
        for rank, (kind, told, hint) in enumerate(outcomes):
            if kind == wanted:
                raise raised(told, where={"seen by rank": rank}, hint=hint)


def on_one_line(error: DistrainError) -> str:
    """An error with its places, without its hint."""
    places = ", ".join(f"{place}: {value}" for place, value in error.where.items())
    return f"{error.message} ({places})" if places else error.message
