"""A scheduler tells when its certificates end."""

import asyncio
from pathlib import Path

import dask
from distributed import Scheduler
from distributed.security import Security
from made_certificates import write_certificate
from monitored import Site


def test_the_scheduler_tells_when_its_certificates_end(tmp_path: Path) -> None:
    comm, comm_key, comm_end_s = write_certificate(tmp_path, "comm", 30)
    http, http_key, http_end_s = write_certificate(tmp_path, "http", 20)
    security = Security(
        require_encryption=True,
        tls_ca_file=str(comm),
        tls_scheduler_cert=str(comm),
        tls_scheduler_key=str(comm_key),
    )

    async def told() -> str:
        async with Scheduler(
            port=0,
            host="127.0.0.1",
            protocol="tls",
            security=security,
            dashboard=False,
            dashboard_address="127.0.0.1:0",
            preload=["distrain.preload"],
        ) as scheduler:
            site = Site(scheduler)
            site.url = site.url.replace("http:", "https:")
            answer = await site.get("/metrics", validate_cert=False)
            text: str = answer.body.decode()
            return text

    tls = {"ca-file": None, "cert": str(http), "key": str(http_key)}
    with dask.config.set({"distributed.scheduler.dashboard.tls": tls}):
        text = asyncio.run(told())
    for name, end_s in (
        ("comm", comm_end_s),
        ("comm.ca_file", comm_end_s),
        ("http", http_end_s),
    ):
        [line] = [li for li in text.splitlines() if f'certificate="{name}"' in li]
        assert float(line.split()[1]) == end_s
    for name in ('dask_scheduler_workers{state="idle"}', "dask_scheduler_workers_removed_total"):
        assert name in text, "rules and runbooks ask for it"
