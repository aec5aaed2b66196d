"""`/v1/projects`, their members, and `/v1/quotas`."""

import dataclasses
from typing import Annotated

from fastapi import APIRouter, Path, Request

from distrain.service.access import Action, role_allows
from distrain.service.api.answers import answers
from distrain.service.api.dependencies import (
    Caller,
    Counted,
    Parts,
    Service,
    allow,
    audit_note,
    require,
)
from distrain.service.api.documents import (
    MemberList,
    MemberRequest,
    ProjectDocument,
    ProjectList,
    ProjectName,
    ProjectRequest,
    QuotaDocument,
    UserName,
)
from distrain.service.api.problems import Problem, not_found
from distrain.service.store import Project
from distrain.service.values import Principal, Quota

router = APIRouter(tags=["projects"])

Name = Annotated[ProjectName, Path(description="A project.")]
User = Annotated[UserName, Path(description="A user.")]


@router.get("/v1/projects", responses=answers())
def list_projects(caller: Caller, service: Service) -> ProjectList:
    """List the projects in which the caller has a role, with quotas and usage; admins see all."""
    require(caller, Action.SEE_PROJECT)
    found = [p for p in service.store.projects() if _sees(caller, p.name)]
    return ProjectList(projects=[_document(service, caller, project) for project in found])


@router.get("/v1/quotas", responses=answers())
def list_quotas(caller: Caller, service: Service) -> dict[str, QuotaDocument]:
    """The quotas of the projects in which the caller has a role, by project."""
    require(caller, Action.SEE_PROJECT)
    found = [p for p in service.store.projects() if _sees(caller, p.name)]
    return {project.name: _quota(project.quota) for project in found}


@router.get("/v1/projects/{project}", responses=answers("not_found"))
def get_project(project: Name, caller: Caller, service: Service) -> ProjectDocument:
    """A project with its quota, and how much of it is used."""
    require(caller, Action.SEE_PROJECT)
    return _document(service, caller, _seen(service, caller, project))


@router.put(
    "/v1/projects/{project}",
    dependencies=[Counted],
    responses=answers("not_found", "conflict"),
)
def put_project(
    project: Name, body: ProjectRequest, request: Request, caller: Caller, service: Service
) -> ProjectDocument:
    """Make a project, or change its quota; for admins. The configuration's projects stay."""
    require(caller, Action.SET_QUOTA)
    if not caller.is_admin:
        _seen(service, caller, project)
    allow(caller, Action.SET_QUOTA, project)
    quota = body.quota.model_dump()
    audit_note(request).target, audit_note(request).details = project, {"quota": quota}
    service.store.put_project(project, Quota(**quota))
    return _document(service, caller, _seen(service, caller, project))


@router.get("/v1/projects/{project}/members", responses=answers("not_found"))
def list_members(project: Name, caller: Caller, service: Service) -> MemberList:
    """A project's members, with their roles."""
    require(caller, Action.SEE_PROJECT)
    return _members(service, _seen(service, caller, project).name)


@router.put(
    "/v1/projects/{project}/members/{user}",
    dependencies=[Counted],
    responses=answers("not_found", "conflict"),
)
def put_member(
    project: Name,
    user: User,
    body: MemberRequest,
    request: Request,
    caller: Caller,
    service: Service,
) -> MemberList:
    """Give a user a role in a project; for its operators."""
    _may_set(service, caller, project, user)
    note = audit_note(request)
    note.target, note.details = project, {"user": user, "role": str(body.role)}
    service.store.set_member(project, user, body.role)
    return _members(service, project)


@router.delete(
    "/v1/projects/{project}/members/{user}",
    status_code=204,
    dependencies=[Counted],
    responses=answers("not_found", "conflict"),
)
def remove_member(
    project: Name, user: User, request: Request, caller: Caller, service: Service
) -> None:
    """Take a user's role in a project; for its operators."""
    _may_set(service, caller, project, user)
    audit_note(request).target, audit_note(request).details = project, {"user": user}
    service.store.remove_member(project, user)


def _may_set(service: Parts, caller: Principal, project: str, user: str) -> None:
    require(caller, Action.SET_MEMBERS)
    _seen(service, caller, project)
    allow(caller, Action.SET_MEMBERS, project)
    declared = service.settings.projects.get(project)
    if declared is not None and user in declared.members:
        raise Problem(
            "conflict",
            f"the configuration gives {user} a role in project {project}",
            hint="Change it there, and reload the service.",
        )


def _sees(caller: Principal, project: str) -> bool:
    return role_allows(caller, Action.SEE_PROJECT, project)


def _seen(service: Parts, caller: Principal, name: str) -> Project:
    found = next((p for p in service.store.projects() if p.name == name), None)
    if found is None or not _sees(caller, name):
        raise not_found(f"project {name!r}")
    return found


def _members(service: Parts, project: str) -> MemberList:
    found = service.store.members(project)
    return MemberList(members={user: str(role) for user, role in found.items()})


def _document(service: Parts, caller: Principal, project: Project) -> ProjectDocument:
    role = caller.roles.get(project.name)
    return ProjectDocument(
        name=project.name,
        quota=_quota(project.quota),
        usage=service.store.usage(project.name),
        declared=project.declared,
        role=str(role) if role else None,
    )


def _quota(quota: Quota) -> QuotaDocument:
    return QuotaDocument(**dataclasses.asdict(quota))
