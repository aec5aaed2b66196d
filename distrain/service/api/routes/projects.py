"""`/v1/projects` and their members."""

from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import Field

from distrain.jobs.api_answers import Answer
from distrain.service.access.rules import Action, role_allows
from distrain.service.api.bodies import ProjectName, Request, UserName
from distrain.service.api.dependencies import ApiCall, Call
from distrain.service.api.openapi import answers
from distrain.service.api.problems import not_found
from distrain.service.store.people import Project
from distrain.service.values import Principal, Quota, Role

router = APIRouter(tags=["projects"])

Name = Annotated[ProjectName, Path(description="The project's name.")]
User = Annotated[UserName, Path(description="The user's name.")]


class ProjectDocument(Answer):
    """A project with its quota, its current usage and the caller's role."""

    name: str
    quota: Quota
    usage: dict[str, int] = Field(
        description="`ranks`: the ranks of jobs that are handed over to clusters; `queued`: the "
        "number of jobs without workers."
    )
    declared: bool = Field(
        description="Whether the project is declared in the configuration, so that the API cannot "
        "change it."
    )
    role: str | None = Field(
        description="The caller's role; null for an admin without a role in the project."
    )


class ProjectList(Answer):
    """Projects, sorted by name."""

    projects: list[ProjectDocument]


class ProjectRequest(Request):
    """A project to make, or its new quota."""

    quota: Quota = Field(Quota(), description="The whole quota; missing fields get their defaults.")


class MemberRequest(Request):
    """A user's role in a project."""

    role: Role


class MemberList(Answer):
    """A project's members."""

    members: dict[str, str] = Field(description="Roles by user.")


@router.get("/v1/projects", responses=answers())
def list_projects(call: Call) -> ProjectList:
    """List the projects in which the caller has a role, with quotas and usage; admins see all."""
    call.require(Action.SEE_PROJECT)
    seen = [one for one in call.store.projects() if _sees(call.caller, one.name)]
    return ProjectList(projects=[_document(call, project) for project in seen])


@router.get("/v1/projects/{project}", responses=answers("not_found"))
def get_project(project: Name, call: Call) -> ProjectDocument:
    """Return a project with its quota and usage."""
    call.require(Action.SEE_PROJECT)
    return _document(call, _seen(call, project))


@router.put("/v1/projects/{project}", responses=answers("not_found", "conflict"))
def put_project(project: Name, body: ProjectRequest, call: Call) -> ProjectDocument:
    """Make a project, or replace its quota; for admins.

    A project that the service's configuration declares cannot be changed (409 `conflict`).
    """
    call.require(Action.SET_QUOTA)
    if not call.caller.is_admin:
        _seen(call, project)
    call.allow(Action.SET_QUOTA, project)
    call.note(project, quota=body.quota.model_dump())
    call.store.put_project(project, body.quota)
    return _document(call, _seen(call, project))


@router.get("/v1/projects/{project}/members", responses=answers("not_found"))
def list_members(project: Name, call: Call) -> MemberList:
    """Return a project's members, with their roles."""
    call.require(Action.SEE_PROJECT)
    return _members(call, _seen(call, project).name)


@router.put(
    "/v1/projects/{project}/members/{user}",
    responses=answers("not_found", "conflict"),
)
def put_member(project: Name, user: User, body: MemberRequest, call: Call) -> MemberList:
    """Give a user a role in a project; for the project's operators and for admins.

    Members of a project that the configuration declares cannot be changed (409 `conflict`).
    """
    _may_set(call, project)
    call.note(project, user=user, role=str(body.role))
    call.store.set_member(project, user, body.role)
    return _members(call, project)


@router.delete(
    "/v1/projects/{project}/members/{user}",
    status_code=204,
    responses=answers("not_found", "conflict"),
)
def remove_member(project: Name, user: User, call: Call) -> None:
    """Remove a user's role in a project; for the project's operators and for admins.

    Members of a project that the configuration declares cannot be changed (409 `conflict`).
    """
    _may_set(call, project)
    call.note(project, user=user)
    call.store.remove_member(project, user)


def _may_set(call: ApiCall, project: str) -> None:
    call.require(Action.SET_MEMBERS)
    _seen(call, project)
    call.allow(Action.SET_MEMBERS, project)


def _sees(caller: Principal, project: str) -> bool:
    return role_allows(caller, Action.SEE_PROJECT, project)


def _seen(call: ApiCall, name: str) -> Project:
    project = call.store.project(name)
    if project is None or not _sees(call.caller, name):
        raise not_found(f"project {name!r}")
    return project


def _members(call: ApiCall, project: str) -> MemberList:
    roles = call.store.members(project)
    return MemberList(members={user: str(role) for user, role in roles.items()})


def _document(call: ApiCall, project: Project) -> ProjectDocument:
    role = call.caller.roles.get(project.name)
    return ProjectDocument(
        name=project.name,
        quota=project.quota,
        usage=call.store.usage(project.name),
        declared=project.declared,
        role=str(role) if role else None,
    )
