"""Checks of a spec's data on a worker: started by one request, asked for by others.

The API opens nothing that a spec names: a cluster's scheduler has a worker look. The id of a check
is signed and names its user, so that any API process can answer, and nobody else can ask.
"""

import json
from collections.abc import Mapping
from typing import Any

from distrain.service.access import sign, signed_text
from distrain.service.api.dependencies import Parts
from distrain.service.api.documents import Preflight, PreflightStarted
from distrain.service.api.problems import not_found
from distrain.service.api.schedulers import scheduler_of, unavailable
from distrain.service.clusters import Refused
from distrain.service.values import Principal

_PURPOSE = "preflight"
_WITHOUT = "Try again, or validate without `data`."


def start_preflight(
    service: Parts, caller: Principal, cluster: str, spec: Mapping[str, Any]
) -> PreflightStarted:
    """Have a worker of a cluster check the data of a spec; `unavailable` while it cannot."""
    with scheduler_of(service, cluster, "check data", _WITHOUT) as client:
        try:
            number = client.preflight(spec, caller.user)
        except Refused as error:
            raise unavailable(cluster, error.message, "check data", _WITHOUT) from error
    text = json.dumps([cluster, number, caller.user])
    return PreflightStarted(url=f"/v1/preflights/{sign(service.key, _PURPOSE, text)}")


def preflight(service: Parts, caller: Principal, preflight_id: str) -> Preflight:
    """A check as far as it is; `not_found` for one that is forgotten or not the caller's."""
    text = signed_text(service.key, _PURPOSE, preflight_id)
    cluster, number, user = json.loads(text) if text else ("", "", "")
    if user != caller.user or cluster not in service.settings.clusters:
        raise not_found("check of that id")
    with scheduler_of(service, cluster, "check data", _WITHOUT) as client:
        try:
            seen = client.preflight_result(number)
        except Refused as error:
            raise not_found("check of that id") from error
    return Preflight(
        state=seen.state,
        notes=list(seen.notes),
        errors=[dict(error) for error in seen.errors],
        error=seen.error,
    )
