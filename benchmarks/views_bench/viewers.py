"""Viewers of a run that open and close: a dashboard page, JSON, `distrain top`, Prometheus.

    python viewers.py URL SCHEDULER JOB

It reads lines `open` and `close` from stdin, and answers each with a line.
"""

import asyncio
import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from bokeh.protocol import Protocol
from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.websocket import websocket_connect

JSON_EVERY_S = 1.0
SCRAPE_EVERY_S = 5.0


class Viewers:
    """All viewers of one scheduler's dashboard.

    Args:
        url: The dashboard's URL, without a path.
        scheduler: The scheduler's address.
        job_id: The watched job.
    """

    def __init__(self, url: str, scheduler: str, job_id: str):
        self.url, self.job_id = url, job_id
        self.http = AsyncHTTPClient()
        self.tasks: list[asyncio.Task[None]] = []
        self.seen = dict.fromkeys(("page", "json", "scrape"), 0)
        program = Path(sys.executable).with_name("distrain")
        # On its own terminal, as for a user; it is stopped while the views are closed.
        self.terminal, theirs = os.openpty()
        self.top = subprocess.Popen(
            [program, "top", "--scheduler", scheduler, "--job", job_id],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        asyncio.get_running_loop().add_reader(self.terminal, self._read_terminal)

    async def top_shows_the_job(self) -> None:
        """Wait until `distrain top` shows the job, then stop its process (SIGSTOP)."""
        self.shown = b""
        while self.job_id.encode() not in self.shown:
            assert self.top.poll() is None, self.shown
            await asyncio.sleep(0.1)
        self.top.send_signal(signal.SIGSTOP)

    def _read_terminal(self) -> None:
        with suppress(OSError):
            self.shown = os.read(self.terminal, 65_536)

    async def open(self) -> None:
        """Open all views; returns when each has received something."""
        self.seen = dict.fromkeys(self.seen, 0)
        self.top.send_signal(signal.SIGCONT)
        works = (self._page(), self._json(), self._scrapes())
        self.tasks = [asyncio.create_task(work) for work in works]
        while not all(self.seen.values()):
            for task in self.tasks:
                if task.done():
                    task.result()
            await asyncio.sleep(0.02)

    async def close(self) -> None:
        """Close all views."""
        self.top.send_signal(signal.SIGSTOP)
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.tasks = []

    def end(self) -> None:
        """End `distrain top`."""
        self.top.kill()
        self.top.wait()

    async def _page(self) -> None:
        page = await self.http.fetch(self.url + "/distrain")
        token = re.search(r'"token":"([^"]+)"', page.body.decode())
        assert token is not None
        request = HTTPRequest(self.url.replace("http", "ws", 1) + "/distrain/ws")
        socket = await websocket_connect(request, subprotocols=["bokeh", token[1]])
        try:
            await socket.read_message()
            ask = Protocol().create("PULL-DOC-REQ")
            for part in (ask.header_json, ask.metadata_json, ask.content_json):
                await socket.write_message(part)
            while await socket.read_message() is not None:
                self.seen["page"] += 1
        finally:
            socket.close()

    async def _json(self) -> None:
        cursor = ""
        paths = ("/distrain/v1/jobs", f"/distrain/v1/jobs/{self.job_id}")
        while True:
            for path in (*paths, f"{paths[1]}/curves?since={cursor}"):
                answer = await self.http.fetch(self.url + path)
            found = re.search(r'"cursor":"([^"]+)"', answer.body.decode())
            assert found is not None
            cursor = found[1]
            self.seen["json"] += 1
            await asyncio.sleep(JSON_EVERY_S)

    async def _scrapes(self) -> None:
        while True:
            answer = await self.http.fetch(self.url + "/metrics")
            assert b"distrain_job" in answer.body
            self.seen["scrape"] += 1
            await asyncio.sleep(SCRAPE_EVERY_S)


async def main(url: str, scheduler: str, job_id: str) -> None:
    viewers = Viewers(url, scheduler, job_id)
    try:
        await viewers.top_shows_the_job()
        print("ready", flush=True)
        loop = asyncio.get_running_loop()
        while word := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
            await (viewers.open() if word == "open" else viewers.close())
            print(f"{word} {viewers.seen}", flush=True)
    finally:
        viewers.end()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
