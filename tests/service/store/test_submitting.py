"""Jobs that come in, once each, within the quota."""

import pytest
from service_store import SPEC, new_job, submitted

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
