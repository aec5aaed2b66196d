"""The table of docs/monitoring.md, against the routes and answers of a running scheduler."""

import json
import re
from pathlib import Path

from order_site import OrderSite, on_order_site

from distrain.scheduler.http import job_routes, order_routes
from distrain.scheduler.http.handler import NothingHandler

PAGE = Path(__file__).parents[3] / "docs/monitoring.md"
ROW = re.compile(r"^\| (GET|PUT|POST) \| `(/distrain/[^`]*)` \| (readers|services) \|", re.M)
TABLE = ROW.findall(PAGE.read_text(encoding="utf-8"))


def of_the_table(path: str) -> str:
    """An address of this path."""
    return path.replace("ID", "0" * 32)


def test_the_table_has_every_route_with_who_may_use_it() -> None:
    served = set()
    for pattern, handler, _ in [*job_routes.routes, *order_routes.routes]:
        if not issubclass(handler, NothingHandler):
            may = "services" if handler.is_for_orders else "readers"
            (path,) = {path for _, path, _ in TABLE if re.fullmatch(pattern, of_the_table(path))}
            methods = [m for m in ("GET", "PUT", "POST") if m.lower() in vars(handler)]
            served |= {(method, path, may) for method in methods}
    assert served == set(TABLE)
    assert len(served) == len(TABLE)


def test_every_route_answers_and_other_paths_and_methods_are_refused() -> None:
    async def story(site: OrderSite) -> None:
        for method, path, _ in TABLE:
            reads, one = method == "GET", "ID" in path
            answer = await site.get(of_the_table(path), method=method, body=None if reads else "[")
            assert answer.code == (400 if not reads else 404 if one else 200), path
            assert json.loads(answer.body).keys() >= ({"code", "error", "hint"} if one else set())
            refused = await site.get(of_the_table(path), method="DELETE")
            assert refused.code == 405
            assert method in refused.headers["Allow"].split(", ")
        for path in ("v1", "v1/nothing", "v1/jobs/a/b", "v1/jobs/%2e", "v1/openapi.json",
                     "jobs/a/nothing"):  # fmt: skip
            answer = await site.get(f"/distrain/{path}")
            assert (answer.code, json.loads(answer.body)["code"]) == (404, "not_found"), path

    on_order_site(story)


def test_answers_have_the_keys_that_others_read() -> None:
    async def story(site: OrderSite) -> None:
        site.submit("a", num_ranks=1)
        site.step("a", 10, num_ranks=1)
        (listed,) = (await site.json("/distrain/jobs"))["jobs"]
        assert listed.keys() >= {"job_id", "name", "tags", "state", "attempt", "num_ranks"}
        one = await site.json("/distrain/jobs/a")
        assert one.keys() >= listed.keys() | {"spec", "ranks", "timeline"}
        metrics = await site.json("/distrain/jobs/a/metrics")
        assert metrics.keys() >= {"cursor", "restart", "train", "valid", "ranks"}
        changes = await site.json("/distrain/v1/jobs")
        assert changes.keys() >= {"epoch", "revision", "more", "workers", "jobs"}
        assert changes["workers"].keys() >= {"total", "usable", "free", "gpus"}
        of_services = {"job_id", "run_dir", "service", "first_attempt", "priority", "view"}
        figures = {"step", "rows_per_s", "loss", "auc", "valid_auc", "eta_s", "gpus"}
        assert changes["jobs"][0].keys() >= of_services | figures
        seen = await site.json("/distrain/v1/jobs/a")
        assert seen["job"].keys() == changes["jobs"][0].keys()
        (worker,) = (await site.json("/distrain/v1/workers"))["workers"]
        assert worker.keys() >= {"address", "name", "host", "gpu", "usable", "job", "rank"}

    on_order_site(story)
