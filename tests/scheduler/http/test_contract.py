"""The table of docs/monitoring.md, against the routes and answers of a running scheduler."""

import json
import re
from pathlib import Path

from monitored import beside
from order_site import OrderSite, new_order_site

from distrain.jobs.api_answers import Job
from distrain.jobs.job_view import JobView
from distrain.scheduler.http.routes import ROUTES, route_of

PAGE = Path(__file__).parents[3] / "docs/monitoring.md"
ROW = re.compile(r"^\| (GET|PUT|PATCH|POST) \| `(/distrain/[^`]*)` \| (readers|services) \|", re.M)
TABLE = ROW.findall(PAGE.read_text(encoding="utf-8"))


def of_the_table(path: str) -> str:
    """An address of this path."""
    return path.replace("ID", "0" * 32)


def test_the_table_has_every_route_with_who_may_use_it() -> None:
    served = set()
    for method, path, may in TABLE:
        route, _ = route_of(method, of_the_table(path).removeprefix("/distrain"))
        assert may == ("services" if route.is_order else "readers"), path
        served.add(route)
    assert served == set(ROUTES)
    assert len(served) == len(TABLE)


@beside(new_order_site)
async def test_every_route_answers_and_other_paths_and_methods_are_refused(site: OrderSite) -> None:
    for method, path, _ in TABLE:
        reads, one = method == "GET", "ID" in path
        answer = await site.get(of_the_table(path), method=method, body=None if reads else "[")
        assert answer.code == (400 if not reads else 404 if one else 200), path
        assert json.loads(answer.body).keys() >= ({"code", "detail", "hint"} if one else set())
        refused = await site.get(of_the_table(path), method="DELETE")
        assert refused.code == 405
        assert method in refused.headers["Allow"].split(", ")
    for path in ("v1", "v1/nothing", "v1/jobs/a/b", "v1/jobs/%2e", "v1/openapi.json"):
        answer = await site.get(f"/distrain/{path}")
        assert (answer.code, json.loads(answer.body)["code"]) == (404, "not_found"), path


@beside(new_order_site)
async def test_answers_have_the_keys_that_others_read(site: OrderSite) -> None:
    site.submit("a", num_ranks=1)
    site.step("a", 10, num_ranks=1)
    (listed,) = (await site.json("/distrain/v1/jobs"))["jobs"]
    assert listed.keys() >= Job.model_fields.keys()
    one = await site.json("/distrain/v1/jobs/a")
    assert one.keys() >= listed.keys() | {"spec", "ranks", "timeline", "setbacks"}
    curves = await site.json("/distrain/v1/jobs/a/curves")
    assert curves.keys() >= {"cursor", "restart", "train", "valid"}
    assert JobView.from_json(await site.json("/distrain/v1/jobs/a/view?since=1")).records
    changes = await site.json("/distrain/v1/changes")
    assert changes.keys() >= {"epoch", "revision", "more", "workers", "jobs"}
    assert changes["workers"].keys() >= {"total", "usable", "free", "gpus"}
    of_services = {"id", "run_dir", "first_attempt", "priority", "recorded"}
    figures = {"step", "rows_per_s", "loss", "auc", "eta_s", "gpus"}
    assert changes["jobs"][0].keys() >= of_services | figures
    (worker,) = (await site.json("/distrain/v1/workers"))["workers"]
    assert worker.keys() >= {"address", "name", "host", "gpu", "usable", "job", "rank"}
