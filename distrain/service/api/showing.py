"""Jobs and tokens of the database as documents."""

from distrain.jobs import FIGURES, figures_in
from distrain.service.api.documents import JobDocument, TokenDocument
from distrain.service.decide import UNKNOWN, shown
from distrain.service.store import Store, Token
from distrain.service.values import Job, Phase


def contacts(store: Store) -> dict[str, float | None]:
    """When each cluster's scheduler last answered, in unix seconds."""
    return {row.name: row.observed_at_s for row in store.clusters()}


def contact_of(store: Store, job: Job) -> float | None:
    """When a job's cluster last answered; `None`, without a query, where no cluster has it."""
    return contacts(store).get(job.cluster) if job.phase is Phase.HANDED_OVER else None


def job_document(job: Job, now_s: float, contact_s: float | None) -> JobDocument:
    """A job as callers see it; `contact_s` is when its cluster last answered."""
    seen = shown(job, now_s, contact_s=contact_s)
    figures = dict.fromkeys(FIGURES) | figures_in(job.progress)
    return JobDocument.of(job, **vars(seen), **figures)


def etag(document: JobDocument) -> str:
    """The revision, and whether a silence of its cluster, which changes no row, hides its state."""
    return f'"{document.rev}-unknown"' if document.state == UNKNOWN else f'"{document.rev}"'


def token_document(token: Token) -> TokenDocument:
    return TokenDocument.of(token, scopes=sorted(map(str, token.scopes)))
