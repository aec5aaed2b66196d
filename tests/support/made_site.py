"""A real scheduler in a thread whose pages show documents that are made by hand."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from distributed import Scheduler
from made_documents import MadeDocuments

from distrain.scheduler.dashboard.watching import DOCUMENTS


@contextmanager
def made_site(documents: MadeDocuments) -> Iterator[str]:
    """Serve them; the dashboard's URL."""
    ready, done = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()
    found: list[str] = []

    async def serve() -> None:
        options = {"dashboard_address": "127.0.0.1:0", "preload": ["distrain.preload"]}
        async with Scheduler(host="127.0.0.1", port=0, dashboard=True, **options) as scheduler:
            scheduler.extensions[DOCUMENTS] = documents
            found.append(f"http://127.0.0.1:{scheduler.http_server.port}")
            ready.set()
            await done.wait()

    def run() -> None:
        try:
            loop.run_until_complete(serve())
        finally:
            ready.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert ready.wait(60)
        assert found, "the scheduler did not start"
        yield found[0]
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join(60)
        loop.close()
