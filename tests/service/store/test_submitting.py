"""Jobs that come in, once each, within the quota."""

import pytest
from service_store import SPEC, new_job, submitted

from distrain.service.store.auditing import AuditEntry
from distrain.service.store.errors import QuotaExceeded, RowNotFound
from distrain.service.values import Quota


@pytest.mark.parametrize("limit", ["max_queued", "max_queued_per_user"])
def test_what_a_quota_refuses_leaves_nothing_behind(store, limit):
    store.put_project("small", Quota(**{"max_queued_per_user": None, limit: 1}))
    submitted(store, project="small")
    new = new_job(project="small")
    with pytest.raises(QuotaExceeded) as caught:
        store.submit(new, SPEC)
    assert caught.value.where["quota"] == f"{limit}: 1"
    assert store.job(new.id) is None
    if limit == "max_queued_per_user":
        submitted(store, project="small", owner="bob")  # it leaves space to others


def test_a_project_must_exist(store):
    new = new_job(project="nobodys")
    with pytest.raises(RowNotFound):
        store.submit(new, SPEC)


def test_the_audit_row_stands_and_falls_with_its_job(store):
    store.put_project("small", Quota(max_queued=1))
    new, beyond = new_job(project="small"), new_job(project="small")

    def audit_entry(job):
        return AuditEntry("alice", "submit", job.id, "abc", {"project": "small"})

    store.submit(new, SPEC, audit_entry=audit_entry(new))
    assert store.submit(new, SPEC, audit_entry=audit_entry(new))[1] is False
    with pytest.raises(QuotaExceeded):
        store.submit(beyond, SPEC, audit_entry=audit_entry(beyond))
    (row,) = store.audit_rows(None, 10)
    assert (row.user, row.action, row.target, row.token_id) == ("alice", "submit", new.id, "abc")
    assert row.details == {"project": "small"}
