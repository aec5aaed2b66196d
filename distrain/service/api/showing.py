"""Jobs and tokens of the database as documents."""

from distrain.jobs import FIGURES, figures_in
from distrain.service.api.documents import JobDocument, TokenDocument
from distrain.service.decide import UNKNOWN, shown, utc
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
    return JobDocument(
        id=job.id,
        name=job.name,
        project=job.project,
        owner=job.owner,
        cluster=job.cluster,
        state=seen.state,
        last_known=seen.last_known,
        reason=job.reason,
        message=job.message,
        why_pending=seen.why_pending,
        intent=job.intent,
        priority=job.priority,
        tags=dict(job.tags),
        attempt=job.attempt,
        first_attempt=job.first_attempt,
        num_ranks=job.num_ranks,
        created_at=utc(job.created_at_s) or "",
        started_at=utc(job.started_at_s),
        finished_at=utc(job.finished_at_s),
        observed_at=utc(job.observed_at_s),
        run_dir=job.run_dir,
        parent=job.parent,
        resumes=job.resumes,
        rev=job.rev,
        **(dict.fromkeys(FIGURES) | figures_in(job.progress)),
    )


def etag(document: JobDocument) -> str:
    """The revision, and whether the silence of its cluster hides its state.

    That silence changes no row: the revision alone would answer 304 to a caller who saw another
    state.
    """
    return f'"{document.rev}-unknown"' if document.state == UNKNOWN else f'"{document.rev}"'


def token_document(token: Token) -> TokenDocument:
    return TokenDocument(
        id=token.id,
        user=token.user,
        label=token.label,
        scopes=sorted(map(str, token.scopes)),
        created_at=utc(token.created_at_s) or "",
        expires_at=utc(token.expires_at_s) or "",
        revoked_at=utc(token.revoked_at_s),
        used_at=utc(token.used_at_s),
    )
