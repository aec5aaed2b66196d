"""`/v1/clusters`, and checks of data that they make."""

from fastapi import APIRouter

from distrain.service.access import Action
from distrain.service.api.answers import answers
from distrain.service.api.dependencies import Caller, Parts, Service, require
from distrain.service.api.documents import ClusterDocument, ClusterList, Preflight
from distrain.service.api.preflights import preflight
from distrain.service.api.problems import not_found
from distrain.service.api.submission import usable_clusters
from distrain.service.decide import NO_CONTACT_S, utc
from distrain.service.values import Principal

router = APIRouter(tags=["clusters"])


@router.get("/v1/clusters", responses=answers())
def list_clusters(caller: Caller, service: Service) -> ClusterList:
    """List the clusters that the caller's projects may use."""
    require(caller, Action.SEE_CLUSTERS)
    return ClusterList(clusters=_documents(service, caller))


@router.get("/v1/clusters/{cluster}", responses=answers("not_found"))
def get_cluster(cluster: str, caller: Caller, service: Service) -> ClusterDocument:
    """A cluster, and its reconciler's last report."""
    require(caller, Action.SEE_CLUSTERS)
    found = next((c for c in _documents(service, caller) if c.name == cluster), None)
    if found is None:
        raise not_found(f"cluster {cluster!r}")
    return found


@router.get("/v1/preflights/{preflight_id}", responses=answers("not_found"))
def get_preflight(preflight_id: str, caller: Caller, service: Service) -> Preflight:
    """A check of a spec's data, as far as it is."""
    require(caller, Action.SUBMIT)
    return preflight(service, caller, preflight_id)


def _documents(service: Parts, caller: Principal) -> list[ClusterDocument]:
    settings, now_s = service.settings, service.now_s()
    rows = {row.name: row for row in service.store.clusters()}
    usable = {name for p in caller.roles for name in usable_clusters(settings, p)}
    found = []
    for name, profile in sorted(settings.clusters.items()):
        if not caller.is_admin and name not in usable:
            continue
        row = rows.get(name)
        heard_s = row.observed_at_s if row else None
        is_up = heard_s is not None and now_s - heard_s < NO_CONTACT_S
        found.append(
            ClusterDocument.of(
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
