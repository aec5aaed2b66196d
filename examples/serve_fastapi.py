"""Serves scores of raw rows over HTTP from an export with workflow; does not need distrain.

    SERVED=served uvicorn --app-dir examples serve_fastapi:app

    POST /score    a JSON list of rows; returns {"probability": [...], ...}
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
        """Return the scores of rows by column; a `BadValue` concerns only these rows."""
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
            try:
                await self.answer(batch)
            except BadValue:  # from one request, which must not fail the others
                for one in batch:
                    try:
                        await self.answer([one])
                    except Exception as error:
                        set_once(one[1].set_exception, one[1], error)
            except Exception as error:  # the waiting requests get it; later batches continue
                for _, answer in batch:
                    set_once(answer.set_exception, answer, error)
            self.counted["batches"] += 1
            self.counted["seconds"] += time.perf_counter() - began  # type: ignore[assignment]

    async def answer(self, batch):
        """Score the rows of some requests together."""
        rows = [row for some, _ in batch for row in some]
        scores_by_name = await asyncio.to_thread(self.scorer.score, rows)
        bounds = np.cumsum([len(some) for some, _ in batch])[:-1]
        pieces = {name: np.split(values, bounds) for name, values in scores_by_name.items()}
        for place, (some, answer) in enumerate(batch):
            scores = {name: of_rows[place].tolist() for name, of_rows in pieces.items()}
            set_once(answer.set_result, answer, scores)
            self.counted["rows"] += len(some)


def set_once(set_it, answer, value):
    """Answer unless the client has disconnected."""
    if not answer.done():
        set_it(value)


@asynccontextmanager
async def lifespan(app):
    """Open the model once; score until the server stops."""
    app.state.batcher = Batcher(Scorer(os.environ.get("SERVED", "served")))
    task = asyncio.create_task(app.state.batcher.run())
    yield
    task.cancel()


app = FastAPI(lifespan=lifespan)


@app.post("/score")
async def score(request: Request):
    """Return the scores of a JSON list of rows."""
    batcher = request.app.state.batcher
    batcher.counted["requests"] += 1
    try:
        rows = await request.json()
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise ValueError("a JSON list of objects is needed")
        return await batcher.score(rows)
    except (BadValue, TypeError, ValueError) as error:
        batcher.counted["refused"] += 1
        raise HTTPException(422, str(error)) from None


@app.get("/health")
async def health(request: Request):
    """Return the version of the served export."""
    return {"version": request.app.state.batcher.scorer.manifest["version"]}


@app.get("/metrics", response_class=PlainTextResponse)
async def metrics(request: Request):
    """Return counters since the start."""
    names = ("requests", "refused", "batches", "rows", "seconds")
    counted = request.app.state.batcher.counted
    return "".join(f"scorer_{name}_total {counted[name]}\n" for name in names)
