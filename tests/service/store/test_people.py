"""Users, tokens, projects."""

import pytest

from distrain.service.store.errors import RowNotFound
from distrain.service.store.people import Token
from distrain.service.values import Quota, Role, Scope


def _token(user="alice", number=1):
    return Token(
        f"t{number}", bytes([number]) * 32, user, "laptop", frozenset({Scope.READ}), 5.0, 9e9
    )


def test_a_tokens_use_is_recorded_and_it_is_revoked_once(store):
    token = _token()
    store.put_token(token)
    store.note_token_used("t1")
    [used] = store.tokens("alice")
    assert abs(used.used_at_s - store.now_s()) < 60
    revoked = store.revoke_token("t1")
    assert store.revoke_token("t1") == revoked


def test_a_quota_that_an_earlier_version_stored_is_read(store):
    store.put_project("ads", Quota.model_construct(max_ranks=10**10))
    store.put_token(_token())
    store.set_member("ads", "alice", Role.VIEWER)
    assert store.project("ads").quota.max_ranks == 10**10
    _, caller = store.token_and_user(_token().sha256)
    assert caller.quotas["ads"].max_ranks == 10**10


def test_roles_by_project(store):
    assert store.roles("alice") == {}
    store.put_project("ads", Quota())
    store.set_member("ads", "alice", Role.VIEWER)
    store.set_member("ads", "alice", Role.OPERATOR)
    store.set_member("default", "alice", Role.SUBMITTER)
    roles = {"ads": Role.OPERATOR, "default": Role.SUBMITTER}
    assert store.roles("alice") == roles
    store.remove_member("ads", "alice")
    with pytest.raises(RowNotFound):
        store.remove_member("ads", "alice")
    with pytest.raises(RowNotFound):
        store.set_member("nobodys", "alice", Role.VIEWER)
