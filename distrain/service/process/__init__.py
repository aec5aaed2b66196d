"""The processes of `distrain serve`: the API, the reconciler, and their supervisor."""

from distrain.service.access import new_token as new_token
from distrain.service.process.checks import check_service as check_service, exit_code as exit_code
from distrain.service.process.entry import (
    Serving as Serving,
    api_alone as api_alone,
    reconciler_alone as reconciler_alone,
    serve as serve,
    supervised_api as supervised_api,
    supervised_reconciler as supervised_reconciler,
)
from distrain.service.process.preparing import (
    declare as declare,
    keep_key as keep_key,
    make_folder as make_folder,
)
from distrain.service.settings import (
    NAME_PATTERN as NAME_PATTERN,
    Settings as Settings,
    load_settings as load_settings,
)
from distrain.service.store import migrate as migrate
from distrain.service.values import Quota as Quota, Role as Role, Scope as Scope
