"""Ranks exchange texts, and the errors of each other, in collective operations."""

import contextlib
import errno
import json
from collections.abc import Iterator

import torch

from distrain.checkpoint.manifest import Damaged
from distrain.embeddings import Peers
from distrain.errors import DataError, DistrainError, OutputError, SpecError, Unavailable
from distrain.storage import is_remote

# The gravest first: a rank that cannot read at all knows nothing of damage.
_ERRORS: dict[str, type[DistrainError]] = {
    "spec": SpecError,
    "output": OutputError,
    "refused": DataError,
    "unavailable": Unavailable,
    "damaged": Damaged,
}


def gather_texts(peers: Peers, device: torch.device, text: str) -> list[str]:
    """Every rank's text, in rank order; a collective operation."""
    if peers.num_ranks == 1:
        return [text]
    content = torch.tensor(list(text.encode()), dtype=torch.uint8, device=device)
    length = torch.tensor([len(content)], dtype=torch.int64, device=device)
    lengths = peers.gather_counts(length).flatten().tolist()
    return [bytes(rows.tolist()).decode() for rows in peers.gather_rows(content, lengths)]


@contextlib.contextmanager
def fail_together(peers: Peers, device: torch.device, url: str) -> Iterator[None]:
    """If the code inside fails on any rank, raise on all of them; a collective operation.

    `Damaged` is raised only if no rank raised anything else.
    """
    kind, message, hint = "", "", None
    try:
        yield
    except (SpecError, OutputError, DataError, Unavailable) as error:
        kind = next(kind for kind, raised in reversed(_ERRORS.items()) if isinstance(error, raised))
        message, hint = on_one_line(error), error.hint
    except OSError as error:
        # A disk that cannot read a sector lost it. Anything else may pass: a server that does
        # not answer now must not send a training back to its beginning.
        broken = error.errno == errno.EIO and not is_remote(url)
        kind, message = "damaged" if broken else "unavailable", f"cannot be read: {error}"
    texts = gather_texts(peers, device, json.dumps([kind, message, hint]))
    outcomes = [json.loads(text) for text in texts]
    for wanted, raised in _ERRORS.items():
        for rank, (kind, message, hint) in enumerate(outcomes):
            if kind == wanted:
                raise raised(message, where={"seen by rank": rank}, hint=hint)


def on_one_line(error: DistrainError) -> str:
    places = ", ".join(f"{place}: {value}" for place, value in error.where.items())
    return f"{error.message} ({places})" if places else error.message
