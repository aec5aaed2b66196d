"""Projects, members and tokens."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, Select, bindparam, delete, select, update

from distrain.service.store import tables
from distrain.service.store.engine import Database
from distrain.service.store.errors import RowNotFound
from distrain.service.values import Principal, Quota, Role, Scope

_members, _projects = tables.members, tables.projects
_tokens, _sessions = tables.tokens, tables.sessions

# Statements used by each request, built once: building one takes longer than running it.
_OF_SESSION = select(_sessions.c.token_id).where(
    _sessions.c.sha256 == bindparam("sha256"), _sessions.c.expires_at_s > bindparam("now_s")
)
_OF_USER = (
    select(_tokens, _members.c.project, _members.c.role, _projects.c.quota)
    .outerjoin_from(_tokens, _members, _members.c.user == _tokens.c.user)
    .outerjoin(_projects, _projects.c.name == _members.c.project)
)
_BY_TOKEN = _OF_USER.where(_tokens.c.sha256 == bindparam("sha256"))
_BY_SESSION = _OF_USER.where(_tokens.c.id == _OF_SESSION.scalar_subquery())
_PROJECT = select(_projects).where(_projects.c.name == bindparam("name"))


@dataclass(frozen=True)
class Token:
    id: str  # the public part of its text
    sha256: bytes  # the hash of its text
    user: str
    label: str
    scopes: frozenset[Scope]
    created_at_s: float
    expires_at_s: float
    revoked_at_s: float | None = None
    used_at_s: float | None = None  # to about a minute

    def is_good(self, now_s: float) -> bool:
        return self.revoked_at_s is None and now_s < self.expires_at_s


@dataclass(frozen=True)
class Project:
    name: str
    quota: Quota
    created_at_s: float


class People:
    db: Database

    def roles(self, user: str) -> dict[str, Role]:
        """Return a user's roles by project."""
        found = select(_members.c.project, _members.c.role).where(_members.c.user == user)
        return {row.project: Role(row.role) for row in self.db.all(found)}

    def token_and_user(self, sha256: bytes) -> tuple[Token, Principal] | None:
        """Return the token with this hash, and its user with roles and quotas, by one query.

        The token may have expired or be revoked. `None` if there is no such token.
        """
        return self._token_and_user(_BY_TOKEN, {"sha256": sha256})

    def session_and_user(self, sha256: bytes, now_s: float) -> tuple[Token, Principal] | None:
        """Return the token and the user of the session whose cookie has this hash.

        The result is that of `token_and_user`; `None` if there is no such session, or it expired.
        """
        return self._token_and_user(_BY_SESSION, {"sha256": sha256, "now_s": now_s})

    def _token_and_user(
        self, statement: Select[Any], values: dict[str, Any]
    ) -> tuple[Token, Principal] | None:
        found = self.db.all(statement, values)
        if not found:
            return None
        fields = found[0]._asdict()
        del fields["project"], fields["role"], fields["quota"]
        roles = {row.project: Role(row.role) for row in found if row.project is not None}
        quotas = {row.project: stored_quota(row.quota) for row in found if row.quota is not None}
        token = _token(fields)
        return token, Principal(token.user, False, roles, token.scopes, token.id, quotas)

    def put_token(self, token: Token) -> None:
        fields = dataclasses.asdict(token) | {"scopes": sorted(s.value for s in token.scopes)}
        with self.db.write() as connection:
            connection.execute(_tokens.insert().values(fields))

    def revoke_token(self, token_id: str) -> Token:
        """Revoke a token immediately, and return it. Raises RowNotFound."""
        with self.db.write() as connection:
            connection.execute(
                update(_tokens)
                .where(_tokens.c.id == token_id, _tokens.c.revoked_at_s.is_(None))
                .values(revoked_at_s=self.db.now())
            )
            row = connection.execute(select(_tokens).where(_tokens.c.id == token_id)).first()
        if row is None:
            raise RowNotFound("no such token", where={"token": token_id})
        return _token(row._asdict())

    def put_session(self, sha256: bytes, token_id: str, now_s: float, expires_at_s: float) -> None:
        """Store a browser session of a token until `expires_at_s`; delete expired sessions.

        `sha256` is the hash of the session's cookie.
        """
        row = {"sha256": sha256, "token_id": token_id, "expires_at_s": expires_at_s}
        with self.db.write() as connection:
            connection.execute(delete(_sessions).where(_sessions.c.expires_at_s <= now_s))
            connection.execute(_sessions.insert().values(row))

    def end_sessions(self, sha256: bytes) -> None:
        """End all sessions of the token to which the session with this hash belongs."""
        mine = select(_sessions.c.token_id).where(_sessions.c.sha256 == sha256)
        with self.db.write() as connection:
            connection.execute(delete(_sessions).where(_sessions.c.token_id.in_(mine)))

    def note_token_used(self, token_id: str) -> None:
        """Record that a token is used now; the caller does so about once a minute."""
        mine = update(_tokens).where(_tokens.c.id == token_id)
        with self.db.write() as connection:
            connection.execute(mine.values(used_at_s=self.db.now()))

    def tokens(self, user: str | None = None) -> list[Token]:
        statement = select(_tokens).order_by(_tokens.c.created_at_s.desc(), _tokens.c.id)
        if user is not None:
            statement = statement.where(_tokens.c.user == user)
        return [_token(row._asdict()) for row in self.db.all(statement)]

    def projects(self) -> list[Project]:
        return [_project(row) for row in self.db.all(select(_projects).order_by(_projects.c.name))]

    def project(self, name: str) -> Project | None:
        row = self.db.first(_PROJECT, {"name": name})
        return None if row is None else _project(row)

    def put_project(self, name: str, quota: Quota) -> None:
        """Create a project, or replace its quota."""
        values = {"quota": quota.model_dump()}
        with self.db.write() as connection:
            connection.execute(
                self.db.insert(_projects)
                .values(name=name, created_at_s=self.db.now(), **values)
                .on_conflict_do_update(index_elements=["name"], set_=values)
            )

    def members(self, project: str) -> dict[str, Role]:
        members = select(_members.c.user, _members.c.role).where(_members.c.project == project)
        found = self.db.all(members.order_by(_members.c.user))
        return {row.user: Role(row.role) for row in found}

    def set_member(self, project: str, user: str, role: Role) -> None:
        """Give a user a role in a project. Raises RowNotFound if there is no such project."""
        with self.db.write() as connection:
            known = select(_projects.c.name).where(_projects.c.name == project)
            if connection.execute(known).first() is None:
                raise RowNotFound(
                    "no such project",
                    where={"project": project},
                    hint="Add it to `projects` in serve.yaml, and restart the service.",
                )
            connection.execute(
                self.db.insert(_members)
                .values(project=project, user=user, role=role.value)
                .on_conflict_do_update(
                    index_elements=["project", "user"], set_={"role": role.value}
                )
            )

    def remove_member(self, project: str, user: str) -> None:
        """Remove a user's role in a project. Raises RowNotFound if the user has none."""
        with self.db.write() as connection:
            gone = connection.execute(
                delete(_members).where(_members.c.project == project, _members.c.user == user)
            )
            if not gone.rowcount:
                raise RowNotFound("no such member", where={"project": project, "user": user})


def _project(row: Row[Any]) -> Project:
    return Project(row.name, stored_quota(row.quota), row.created_at_s)


def stored_quota(stored: dict[str, Any]) -> Quota:
    """Return a quota from the database without validation: version 0.2.0 allowed larger numbers."""
    return Quota.model_construct(**stored)


def _token(fields: dict[str, Any]) -> Token:
    scopes = frozenset(Scope(word) for word in fields.pop("scopes"))
    return Token(**fields, scopes=scopes)
