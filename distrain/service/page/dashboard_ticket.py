"""Tickets to a cluster's dashboard: caller and end, signed with the service's key."""

import json
from typing import Final

from distrain.service.access import sign, signed_text
from distrain.service.api import Parts
from distrain.service.values import Principal

TICKET_S: Final = 12 * 3600.0
_PURPOSE = "dashboard"


def make_ticket(key: bytes, cluster: str, caller: Principal, now_s: float) -> str:
    """A ticket for a part of an address; it opens that dashboard and nothing else."""
    text = json.dumps([cluster, caller.user, caller.token_id, now_s + TICKET_S])
    return sign(key, _PURPOSE, text)


def cluster_of_ticket(parts: Parts, ticket: str) -> str | None:
    """The cluster of a ticket; `None` for one that is invalid by now."""
    text = signed_text(parts.key, _PURPOSE, ticket)
    if text is None:
        return None
    cluster, user, token_id, end_s = json.loads(text)
    now_s = parts.now_s()
    is_admin = parts.store.principal(user)[0] or user in parts.settings.admins
    if now_s >= end_s or not is_admin or cluster not in parts.settings.clusters:
        return None
    if token_id is not None:
        held = {token.id: token for token in parts.store.tokens(user)}.get(token_id)
        if held is None or held.revoked_at_s is not None or held.expires_at_s <= now_s:
            return None
    return str(cluster)
