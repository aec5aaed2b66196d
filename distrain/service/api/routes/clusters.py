"""`/v1/clusters`; and `/v1/preflights`, checks of a spec's data on a cluster's worker."""

from typing import Annotated

from fastapi import APIRouter, Path

from distrain.jobs.api_answers import Answer, Cluster, Preflight, utc
from distrain.service.access.rules import Action
from distrain.service.api.bodies import answer_of
from distrain.service.api.dependencies import ApiCall, Call
from distrain.service.api.openapi import answers
from distrain.service.api.preflights import preflight
from distrain.service.api.submission import usable_clusters
from distrain.service.values import NO_CONTACT_S

router = APIRouter(tags=["clusters"])


class ClusterList(Answer):
    """Clusters, sorted by name."""

    clusters: list[Cluster]


@router.get("/v1/clusters", responses=answers())
def list_clusters(call: Call) -> ClusterList:
    """List the clusters that the caller's projects may use; admins see all."""
    call.require(Action.SEE_CLUSTERS)
    return ClusterList(clusters=clusters_of(call))


@router.get("/v1/preflights/{preflight_id}", responses=answers("not_found"))
def get_preflight(
    preflight_id: Annotated[
        str,
        Path(description="The check's id, from the `url` that the start of the check returned."),
    ],
    call: Call,
) -> Preflight:
    """Return the state of a check of a spec's data.

    `POST /v1/jobs:validate?data=true` starts a check; only the same user may see it.
    """
    call.require(Action.SUBMIT)
    return preflight(call, preflight_id)


def clusters_of(call: ApiCall) -> list[Cluster]:
    """Return the clusters that the caller's projects may use; for admins, all clusters."""
    settings, now_s = call.service.settings, call.service.now_s()
    rows = {row.name: row for row in call.store.clusters()}
    usable = {name for p in call.caller.roles for name in usable_clusters(settings, p)}
    found = []
    for name, profile in sorted(settings.clusters.items()):
        if not call.caller.is_admin and name not in usable:
            continue
        row = rows.get(name)
        heard_s = row.observed_at_s if row else None
        is_up = heard_s is not None and now_s - heard_s < NO_CONTACT_S
        found.append(
            answer_of(
                Cluster,
                profile,
                name=name,
                allowed_roots=list(profile.allowed_roots),
                model_packages=list(profile.model_packages),
                state="new" if heard_s is None else "up" if is_up else "silent",
                details=dict(row.state) if row else {},
                observed_at=utc(heard_s),
            )
        )
    return found
