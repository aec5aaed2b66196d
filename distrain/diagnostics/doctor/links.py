"""Tests connections like those of ranks: to other ranks' hosts and to the rendezvous ports.

Listeners use the address of the ranks' interface, or rendezvous ports of the scheduler. Each
connection transfers one mebibyte, since connections with a wrong MTU open and then stall.
"""

import asyncio
import contextlib
import os
import socket
from typing import Any

PAYLOAD_BYTES = 2**20
_RECEIVED = b"received"

_listeners: dict[str, list[asyncio.Server]] = {}


async def listen(key: str, host: str, lifetime_s: float) -> list[int]:
    """Listen at a free port of `host` for at most `lifetime_s`; return a list with the port.

    `stop_listening` with the same key closes the listener earlier.
    """
    server = await asyncio.start_server(_receive, host, 0)
    return _keep(key, [server], lifetime_s)


async def listen_for_rendezvous(
    key: str, host: str, listens_at: str, lifetime_s: float
) -> list[int]:
    """Listen on the scheduler, as the attempts' rendezvous stores do; return the ports.

    These are free ports near the beginning, the middle and the end of `DISTRAIN_RENDEZVOUS_PORTS`;
    only one port if the range has fewer than ten; without that variable, any free port. `host` and
    `listens_at` are the hosts of the scheduler's address and of its listener. Raises `ClusterError`
    if no port can be used.
    """
    from distrain.scheduler.rendezvous import beginning_at, listen_for_store, rendezvous_ports

    ports = rendezvous_ports(os.environ)
    # Only one port of a short range, to leave ports for attempts that start now.
    indices = [0, len(ports) // 2, len(ports) - 1] if len(ports) >= 10 else [0]
    servers: list[asyncio.Server] = []
    for index in indices:
        try:
            listener = listen_for_store(host, listens_at, beginning_at(ports, index))
        except Exception:
            if not servers:
                raise
            break  # fewer ports are free than tested
        listener.setblocking(False)
        servers.append(await asyncio.start_server(_receive, sock=listener))
    return _keep(key, servers, lifetime_s)


async def stop_listening(key: str) -> None:
    for server in _listeners.pop(key, []):
        server.close()


async def try_links(targets: list[list[Any]], timeout_s: float) -> list[str]:
    """Send a mebibyte to each target, a list of host and port, all at the same time.

    Returns for each target an error, or "" if the connection worked.
    """
    return list(await asyncio.gather(*(_send(host, port, timeout_s) for host, port in targets)))


def _keep(key: str, servers: list[asyncio.Server], lifetime_s: float) -> list[int]:
    _listeners.setdefault(key, []).extend(servers)
    loop = asyncio.get_running_loop()
    loop.call_later(lifetime_s, lambda: asyncio.ensure_future(stop_listening(key)))
    return [server.sockets[0].getsockname()[1] for server in servers]


async def _receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
        async with asyncio.timeout(60.0):
            await reader.readexactly(PAYLOAD_BYTES)
            writer.write(_RECEIVED)
            await writer.drain()
    writer.close()


async def _send(host: str, port: int, timeout_s: float) -> str:
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(host, port)
    except TimeoutError:
        return f"no answer within {timeout_s:g} s"
    except (OSError, socket.gaierror) as error:
        return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
    try:
        async with asyncio.timeout(timeout_s):
            writer.write(bytes(PAYLOAD_BYTES))
            await reader.readexactly(len(_RECEIVED))
    except TimeoutError:
        return f"it opened, but 1 MiB did not get through within {timeout_s:g} s"
    except (OSError, asyncio.IncompleteReadError) as error:
        return f"it opened, but broke under 1 MiB: {error}"
    finally:
        writer.close()
    return ""
