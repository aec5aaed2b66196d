"""The environment of started clusters: no credentials of the service's own."""

from collections.abc import Mapping

from distrain.cluster import TOKEN_VARIABLE
from distrain.service.settings import ClusterProfile

_WITHHELD = ("DISTRAIN_SERVE_", "PG", "POSTGRES", "DATABASE_URL", TOKEN_VARIABLE)
"""Beginnings of names. Clusters run code of users' specs: they must not reach the database."""


def child_environment(environment: Mapping[str, str], profile: ClusterProfile) -> dict[str, str]:
    """This process's environment as a started cluster may see it, and what its profile adds.

    >>> child_environment({"PATH": "/bin", "PGPASSWORD": "x"}, ClusterProfile(kind="local"))
    {'PATH': '/bin'}
    """
    kept = {name: value for name, value in environment.items() if not name.startswith(_WITHHELD)}
    if profile.model_packages:
        kept["DISTRAIN_MODEL_PACKAGES"] = ",".join(profile.model_packages)
    return {**kept, **profile.environment}
