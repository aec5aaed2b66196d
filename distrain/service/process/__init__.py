"""The processes of `distrain serve`: the API, the reconciler, and who starts and watches them."""

from distrain.service.process.checks import Check, Verdict, check_service, exit_code
from distrain.service.process.entry import (
    Serving,
    api_alone,
    end_clusters,
    reconciler_alone,
    serve,
    supervised_api,
    supervised_reconciler,
)
from distrain.service.process.logs import set_up_logs, without_secrets
from distrain.service.process.preparing import (
    DEFAULT_PROJECT,
    MadeToken,
    declare,
    keep_key,
    make_folder,
    new_token,
    prepare_database,
)
from distrain.service.settings import NAME_PATTERN, Settings, load_settings
from distrain.service.values import Quota, Role, Scope

__all__ = [
    "NAME_PATTERN",
    "Quota",
    "Role",
    "Scope",
    "Settings",
    "load_settings",
    "Check",
    "DEFAULT_PROJECT",
    "MadeToken",
    "Serving",
    "Verdict",
    "api_alone",
    "check_service",
    "declare",
    "end_clusters",
    "exit_code",
    "keep_key",
    "make_folder",
    "new_token",
    "prepare_database",
    "reconciler_alone",
    "serve",
    "set_up_logs",
    "supervised_api",
    "supervised_reconciler",
    "without_secrets",
]
