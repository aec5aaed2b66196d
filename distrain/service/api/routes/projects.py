"""`/v1/projects` and their members."""

from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import Field

from distrain.jobs.api_answers import Answer
from distrain.service.access.rules import Action, role_allows
from distrain.service.api.bodies import ProjectName
from distrain.service.api.dependencies import ApiCall, Call
from distrain.service.api.openapi import answers
from distrain.service.api.problems import not_found
from distrain.service.store.people import Project
from distrain.service.values import Principal, Quota

router = APIRouter(tags=["projects"])

Name = Annotated[ProjectName, Path(description="The project's name.")]


class ProjectDocument(Answer):
    """A project with its quota, its current usage and the caller's role."""

    name: str
    quota: Quota
    usage: dict[str, int] = Field(
        description="`ranks`: the ranks of jobs that are handed over to clusters; `queued`: the "
        "number of jobs without workers."
    )
    role: str | None = Field(
        description="The caller's role; null for an admin without a role in the project."
    )


class ProjectList(Answer):
    """Projects, sorted by name."""

    projects: list[ProjectDocument]


class MemberList(Answer):
    """A project's members."""

    members: dict[str, str] = Field(description="Roles by user.")


@router.get("/v1/projects", responses=answers())
def list_projects(call: Call) -> ProjectList:
    """List the projects in which the caller has a role, with quotas and usage; admins see all."""
    call.require(Action.SEE_PROJECT)
    seen = [one for one in call.store.projects() if _sees(call.caller, one.name)]
    return ProjectList(projects=[_document(call, project) for project in seen])


@router.get("/v1/projects/{project}/members", responses=answers("not_found"))
def list_members(project: Name, call: Call) -> MemberList:
    """Return a project's members, with their roles."""
    call.require(Action.SEE_PROJECT)
    if call.store.project(project) is None or not _sees(call.caller, project):
        raise not_found(f"project {project!r}")
    roles = call.store.members(project)
    return MemberList(members={user: str(role) for user, role in roles.items()})


def _sees(caller: Principal, project: str) -> bool:
    return role_allows(caller, Action.SEE_PROJECT, project)


def _document(call: ApiCall, project: Project) -> ProjectDocument:
    role = call.caller.roles.get(project.name)
    return ProjectDocument(
        name=project.name,
        quota=project.quota,
        usage=call.store.usage(project.name),
        role=str(role) if role else None,
    )
