"""Measure which share of an object store's bandwidth the loader uses.

    python benchmarks/object_store.py [--quick]

An S3 server (moto) holds Criteo-shaped rows (26 id columns, 13 float32 columns, a label) in files
of two row groups of 65,536, as `distrain prep` writes them. A proxy in front of it delays each
request by 20 ms and limits each connection to 50 MB/s. Both are separate processes. The contenders
take turns, each with N connections:

  plain    N threads that request the row groups' ranges over HTTP, and drop them
  loader   `distrain.loader.Loader`, shuffled, with N connections and two decoding threads

"MB/s" counts the columns' compressed bytes over a whole pass with its start. For the loader it is
the second epoch, because the first one also reads footers and allocates memory. "CPU s/GB" is the
contender's own processor time. "allowed" is the loader's rate as a share of what N connections
allow: N times 50 MB/s, or the rate of `plain` in the same round if that is lower, because server,
proxy and contender share the machine. The goal is 0.8. Figures are medians over the rounds. The
last line is JSON.
"""

import argparse
import asyncio
import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # modules are found from the repository's root, not from this folder
    sys.path[0] = str(Path(__file__).resolve().parents[1])

LATENCY_S = 0.02
CAP_BYTES_S = 50e6
GOAL = 0.8
GROUP_ROWS, GROUPS_PER_FILE = 65_536, 2
BUCKET = "clicks"
_CHUNK_BYTES = 256 << 10
_START_S = 60


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer files and rounds, only N = 2")
    parser.add_argument("--proxy", nargs=2, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--contender", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.proxy:
        asyncio.run(proxy(*options.proxy))
        return
    if options.contender:
        name, connections, folder = options.contender
        print(json.dumps(CONTENDERS[name](int(connections), Path(folder))))
        return
    files, rounds, numbers = (12, 3, (2,)) if options.quick else (16, 5, (2, 4))
    results: dict[int, list[dict[str, dict[str, float]]]] = {number: [] for number in numbers}
    with tempfile.TemporaryDirectory() as folder:
        make_files(Path(folder), files)
        with store(Path(folder)) as environment:
            for _ in range(rounds):
                for number in numbers:
                    found = {
                        name: run_contender(name, number, folder, environment)
                        for name in CONTENDERS
                    }
                    results[number].append(found)
    tell(results, files)


def tell(results: dict[int, list[dict[str, dict[str, float]]]], files: int) -> None:
    """Print the table, and the JSON line."""
    print(f"{'N':>2} {'contender':10}{'MB/s':>8}{'of N x cap':>12}{'CPU s/GB':>10}{'allowed':>10}")
    shares = {}
    cases = {}
    for number, rounds in results.items():
        cap = number * CAP_BYTES_S / 1e6
        share = statistics.median(
            one["loader"]["mb_s"] / min(cap, one["plain"]["mb_s"]) for one in rounds
        )
        shares[number] = share
        for name in CONTENDERS:
            rate = statistics.median(one[name]["mb_s"] for one in rounds)
            cpu = statistics.median(one[name]["cpu_s_gb"] for one in rounds)
            last = f"{share:10.2f}" if name == "loader" else f"{'':10}"
            print(f"{number:2} {name:10}{rate:8.1f}{rate / cap:12.2f}{cpu:10.2f}{last}")
            cases[f"{name}, {number}"] = {"mb_s": round(rate, 1), "cpu_s_gb": round(cpu, 2)}
    about = {
        "benchmark": "object_store",
        "latency_s": LATENCY_S,
        "cap_mb_s": CAP_BYTES_S / 1e6,
        "files": files,
        "rounds": len(next(iter(results.values()))),
        "load": os.getloadavg()[0],
        "cases": cases,
        "share_of_allowed": {number: round(share, 3) for number, share in shares.items()},
        "goals": {"share_of_allowed": GOAL},
        "met": all(share >= GOAL for share in shares.values()),
    }
    print(json.dumps(about))


def make_files(folder: Path, files: int) -> None:
    """Write the rows into a folder."""
    from benchmarks.loader_bench.data import WRITERS, draw_table

    for number in range(files):
        table = draw_table(number, GROUP_ROWS * GROUPS_PER_FILE, scale=1.0)
        WRITERS["prep"](table, folder / f"part_{number:05d}.parquet")


@contextmanager
def store(folder: Path) -> Iterator[dict[str, str]]:
    """Serve the files as a bucket behind the proxy; yield the environment of its clients."""
    server, front = free_port(), free_port()
    command = f"from moto.server import main; main(['-H', '127.0.0.1', '-p', '{server}'])"
    running = [
        subprocess.Popen([sys.executable, "-c", command], stderr=subprocess.DEVNULL),
        subprocess.Popen([sys.executable, __file__, "--proxy", str(front), str(server)]),
    ]
    try:
        for port in (server, front):
            wait_for(port)
        ask(server, "PUT", f"/{BUCKET}")
        for file in sorted(folder.glob("*.parquet")):
            content = file.read_bytes()
            ask(
                server,
                "PUT",
                f"/{BUCKET}/table/{file.name}",
                content,
                **{"x-amz-acl": "public-read"},
            )
        yield {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{front}",
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": "us-east-1",
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }
    finally:
        for process in running:
            process.kill()
            process.wait()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


def wait_for(port: int) -> None:
    """Wait until a server listens at a port."""
    end_s = time.monotonic() + _START_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            if time.monotonic() > end_s:
                raise
            time.sleep(0.05)
        else:
            return


def ask(port: int, method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        if answer.status >= 300:
            raise OSError(f"{method} {path}: {answer.status} {content[:200]!r}")
        return content
    finally:
        connection.close()


async def proxy(front: int, server: int) -> None:
    """Forward connections from one port to another, with delayed requests and slow responses."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back, forth = await asyncio.open_connection("127.0.0.1", server, limit=_CHUNK_BYTES)
        await asyncio.gather(
            passed_on(reader, forth, wait_s=LATENCY_S), passed_on(back, writer, cap=CAP_BYTES_S)
        )

    listening = await asyncio.start_server(serve, "127.0.0.1", front, limit=_CHUNK_BYTES)
    await listening.serve_forever()


async def passed_on(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    wait_s: float = 0.0,
    cap: float | None = None,
) -> None:
    """Forward bytes until they end, each piece after a delay, or at a limited rate."""
    free_s = 0.0
    try:
        while content := await reader.read(_CHUNK_BYTES):
            now_s = time.perf_counter()
            if cap is not None:  # a piece is sent after the pieces before it
                free_s = max(free_s, now_s) + len(content) / cap
                wait_s = free_s - now_s
            await asyncio.sleep(wait_s)
            writer.write(content)
            await writer.drain()
    except OSError:
        pass  # the peer closed the connection
    finally:
        writer.close()


def run_contender(
    name: str, connections: int, folder: str, environment: dict[str, str]
) -> dict[str, float]:
    command = [sys.executable, __file__, "--contender", name, str(connections), folder]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr}")
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def plain(connections: int, folder: Path) -> dict[str, float]:
    """Request the row groups' ranges, and drop them."""
    import pyarrow.parquet as pq

    from distrain.loader import FetchOptions
    from distrain.loader.reading.partial_file import Span, plan_ranges

    port = int(os.environ["AWS_ENDPOINT_URL"].rpartition(":")[2])
    options = FetchOptions()
    wanted: list[tuple[str, Span]] = []
    for file in sorted(folder.glob("*.parquet")):
        metadata = pq.read_metadata(file)
        for index in range(metadata.num_row_groups):
            group = metadata.row_group(index)
            chunks = [group.column(number) for number in range(group.num_columns)]
            begins = [chunk.dictionary_page_offset or chunk.data_page_offset for chunk in chunks]
            spans = [
                Span(begin, begin + chunk.total_compressed_size)
                for begin, chunk in zip(begins, chunks, strict=True)
            ]
            ranges = plan_ranges(spans, gap_bytes=options.gap_bytes, most_bytes=options.range_bytes)
            wanted += [(file.name, span) for span in ranges]

    def fetch(one: tuple[str, Span]) -> int:
        name, (begin, end) = one
        return len(ask(port, "GET", f"/{BUCKET}/table/{name}", Range=f"bytes={begin}-{end - 1}"))

    def read() -> int:
        with ThreadPoolExecutor(connections) as pool:
            return sum(pool.map(fetch, wanted))

    return timed(read)


def loader(connections: int, folder: Path) -> dict[str, float]:
    """Measure the loader's second epoch."""
    from benchmarks.loader_bench.data import schema
    from distrain.loader import Dataset, FetchOptions, Loader

    dataset = Dataset(f"s3://{BUCKET}/table", schema(scale=1.0))
    options = FetchOptions(connections=connections)
    with Loader(dataset, batch_size=65_536, decode_threads=2, fetch=options) as batches:

        def read() -> int:
            before = batches.stats.bytes_read
            for _ in batches:
                pass
            return batches.stats.bytes_read - before

        read()
        return timed(read)


def timed(read: Any) -> dict[str, float]:
    """Return megabytes per second, and processor seconds per gigabyte."""
    start_s, start_cpu_s = time.perf_counter(), time.process_time()
    num_bytes = read()
    wall_s, cpu_s = time.perf_counter() - start_s, time.process_time() - start_cpu_s
    return {"mb_s": num_bytes / wall_s / 1e6, "cpu_s_gb": cpu_s / num_bytes * 1e9}


CONTENDERS = {"plain": plain, "loader": loader}


if __name__ == "__main__":
    main()
