"""An HTTP scorer of raw rows on a folder of `distrain export --with-workflow`; needs no distrain.

    SERVED=served uvicorn --app-dir examples serve_fastapi:app

    POST /score    a JSON list of rows; gives {"probability": [...], ...}
    GET /health    the version of the export
    GET /metrics   counters in Prometheus's text format

Rows of requests that wait at the same time are scored as one batch.
"""

import asyncio
import os
import sys
import time
from collections import Counter
from contextlib import asynccontextmanager

import numpy as np
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import PlainTextResponse

MOST_ROWS = 4096
sys.path.insert(0, os.environ.get("SERVED", "served"))
from score import BadValue, Scorer  # type: ignore[import-not-found]  # noqa: E402


class Batcher:
    """Scores the rows of waiting requests together, in a thread."""

    def __init__(self, scorer):
        self.scorer = scorer
        self.counted: Counter[str] = Counter()
        self.waiting = asyncio.Queue()

    async def score(self, rows):
        """The scores of rows, by column; a `BadValue` is of these rows alone."""
        await asyncio.to_thread(self.scorer.preprocessor.inputs, rows)
        answer = asyncio.get_running_loop().create_future()
        await self.waiting.put((rows, answer))
        return await answer

    async def run(self):
        """Score batches until cancelled."""
        while True:
            batch = [await self.waiting.get()]
            while not self.waiting.empty() and sum(len(rows) for rows, _ in batch) < MOST_ROWS:
                batch.append(self.waiting.get_nowait())
            began = time.perf_counter()
            rows = [row for some, _ in batch for row in some]
            try:
                found = await asyncio.to_thread(self.scorer.score, rows)
            except Exception as error:  # whoever waits is told; later batches go on
                for _, answer in batch:
                    answer.set_exception(error)
                continue
            bounds = np.cumsum([len(some) for some, _ in batch])[:-1]
            pieces = {name: np.split(values, bounds) for name, values in found.items()}
            for place, (_, answer) in enumerate(batch):
                answer.set_result({name: some[place].tolist() for name, some in pieces.items()})
            self.counted["rows"] += len(rows)
            self.counted["batches"] += 1
            self.counted["seconds"] += time.perf_counter() - began  # type: ignore[assignment]


@asynccontextmanager
async def lifespan(app):
    """Open the model once; score until the server ends."""
    app.state.batcher = Batcher(Scorer(os.environ.get("SERVED", "served")))
    task = asyncio.create_task(app.state.batcher.run())
    yield
    task.cancel()


app = FastAPI(lifespan=lifespan)


@app.post("/score")
async def score(request: Request):
    """Scores of a JSON list of rows."""
    batcher = request.app.state.batcher
    batcher.counted["requests"] += 1
    try:
        return await batcher.score(await request.json())
    except (BadValue, TypeError, ValueError) as error:
        batcher.counted["refused"] += 1
        raise HTTPException(422, str(error)) from None


@app.get("/health")
async def health(request: Request):
    """The version of the export that answers."""
    return {"version": request.app.state.batcher.scorer.manifest["version"]}


@app.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request):
    """Counters since the start."""
    names = ("requests", "refused", "batches", "rows", "seconds")
    counted = request.app.state.batcher.counted
    return "".join(f"scorer_{name}_total {counted[name]}\n" for name in names)
