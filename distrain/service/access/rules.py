"""The rights of callers: a table of actions, and `may`, which evaluates it; no I/O.

An action needs a scope of the token, and a role in the affected project. Admins need no role. Some
actions of submitters are limited to their own jobs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from distrain.service.values import Principal, Role, Scope


class Action(StrEnum):
    """The actions that need permission."""

    SEE_JOB = "see_job"
    SUBMIT = "submit"
    CHANGE_JOB = "change_job"  # priority, tags, resume, delete
    CANCEL_JOB = "cancel_job"
    SEE_PROJECT = "see_project"
    SEE_CLUSTERS = "see_clusters"
    SEE_SELF = "see_self"
    OWN_TOKENS = "own_tokens"
    OTHERS_TOKENS = "others_tokens"


@dataclass(frozen=True)
class AccessRule:
    """The requirements of an action: a scope of the token, and a role in the affected project."""

    scope: Scope
    # the roles allowed for any owner's job; if empty, only admins
    any_job: frozenset[Role] = frozenset()
    own_job: frozenset[Role] = frozenset()  # the roles allowed for the caller's own jobs
    everybody: bool = False  # whether the action needs no role


_ALL = frozenset(Role)
_OPERATOR = frozenset({Role.OPERATOR})
_SUBMITTER = frozenset({Role.SUBMITTER})
_VIEWERS = frozenset({Role.VIEWER, Role.OPERATOR})

RULES: Final[Mapping[Action, AccessRule]] = {
    Action.SEE_JOB: AccessRule(Scope.READ, _VIEWERS, _SUBMITTER),
    Action.SUBMIT: AccessRule(Scope.SUBMIT, _SUBMITTER | _OPERATOR),
    Action.CHANGE_JOB: AccessRule(Scope.SUBMIT, _OPERATOR, _SUBMITTER),
    Action.CANCEL_JOB: AccessRule(Scope.CANCEL, _OPERATOR, _SUBMITTER),
    Action.SEE_PROJECT: AccessRule(Scope.READ, _ALL),
    Action.SEE_CLUSTERS: AccessRule(Scope.READ, everybody=True),
    Action.SEE_SELF: AccessRule(Scope.READ, everybody=True),
    Action.OWN_TOKENS: AccessRule(Scope.ADMIN, everybody=True),
    Action.OTHERS_TOKENS: AccessRule(Scope.ADMIN),
}


def may(
    principal: Principal, action: Action, project: str | None = None, owner: str | None = None
) -> bool:
    """Return True if a caller's token and roles allow an action.

    `project` and `owner` are those of the affected job; see `role_allows`.

    >>> alice = Principal("alice", roles={"ads": Role.SUBMITTER})
    >>> may(alice, Action.SEE_JOB, "ads", "alice"), may(alice, Action.SEE_JOB, "ads", "bob")
    (True, False)
    """
    return has_scope(principal, action) and role_allows(principal, action, project, owner)


def has_scope(principal: Principal, action: Action) -> bool:
    return RULES[action].scope in principal.scopes


def role_allows(
    principal: Principal, action: Action, project: str | None = None, owner: str | None = None
) -> bool:
    """Return True if the caller's roles allow the action; the token's scopes are not checked.

    `project` and `owner` are those of the affected job. Without a project, only admins may do the
    action, unless everybody may.
    """
    rule = RULES[action]
    if principal.is_admin or rule.everybody:
        return True
    role = principal.roles.get(project) if project is not None else None
    return role in rule.any_job or (role in rule.own_job and owner == principal.user)


def visible(principal: Principal) -> tuple[tuple[str, str | None], ...] | None:
    """Return the jobs that a caller may see, as pairs of a project and an owner.

    An owner `None` means all jobs of the project. Returns `None` if the caller may see all jobs.

    >>> visible(Principal("alice", roles={"ads": Role.SUBMITTER, "web": Role.VIEWER}))
    (('ads', 'alice'), ('web', None))
    """
    if principal.is_admin:
        return None
    rule = RULES[Action.SEE_JOB]
    return tuple(
        (project, None if role in rule.any_job else principal.user)
        for project, role in sorted(principal.roles.items())
        if role in rule.any_job | rule.own_job
    )


def max_priority(principal: Principal, project: str, of_project: int, of_cluster: int) -> int:
    """Return the highest priority that a caller may request for jobs of a project on a cluster.

    `of_project` and `of_cluster` are the two limits; only the cluster's binds admins and the
    project's operators.
    """
    if principal.is_admin or principal.roles.get(project) == Role.OPERATOR:
        return of_cluster
    return min(of_project, of_cluster)
