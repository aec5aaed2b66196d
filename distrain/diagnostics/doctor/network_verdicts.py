"""Finds processes that do not answer, and connections that fail; no I/O."""

from collections.abc import Iterator

from distrain.diagnostics.doctor.facts import (
    ClusterFacts,
    Finding,
    Link,
    ProcessFacts,
    ProcessPlace,
    ProcessRole,
    mistake,
)

_SETTINGS = "docs/security.md, Settings for a firewall"


def judge_answers(seen: ClusterFacts) -> Iterator[Finding]:
    """Yield findings on processes that did not answer, and on a cluster without workers."""
    for place, why in sorted(seen.silent.items()):
        mend = "Check its log: is it stopped, is it swapping, or is its distrain version different?"
        yield mistake("no answer", (place,), why, mend)
    if not any(place.role is ProcessRole.WORKER for place in (*seen.facts, *seen.silent)):
        scheduler = ProcessPlace(ProcessRole.SCHEDULER, seen.scheduler)
        mend = f"Start some: dask worker {seen.scheduler}"
        yield mistake("workers", (scheduler,), "the cluster has no workers", mend)


def judge_links(seen: ClusterFacts) -> Iterator[Finding]:
    """Yield findings on connections that failed or stalled, and processes that cannot listen.

    A process that no other could reach has one finding, not one for each connection to it. A
    process without a usable interface gets none here, since it has one already.
    """
    for place, why in sorted(seen.not_listening.items()):
        if place.role is ProcessRole.SCHEDULER:
            mend = f"Widen DISTRAIN_RENDEZVOUS_PORTS, or free one of them ({_SETTINGS})."
            yield mistake("rendezvous", (place,), f"no store could listen: {why}", mend)
        elif not seen.facts[place].interface_trouble:
            mend = "Set DISTRAIN_INTERFACE there to an interface with an address."
            yield mistake("interface", (place,), f"its ranks could not listen: {why}", mend)
    yield from _rendezvous(seen)
    between = [link for link in seen.links if not link.rendezvous]
    alone = {place for place in {link.target for link in between} if _alone(place, between)}
    for place in sorted(alone):
        yield _unreachable(seen, place, [link for link in between if link.target == place])
    for link in between:
        if link.trouble and link.target not in alone:
            yield _pair(link)


def _rendezvous(seen: ClusterFacts) -> Iterator[Finding]:
    failed: dict[tuple[ProcessPlace, str], list[str]] = {}
    for link in seen.links:
        if link.rendezvous and link.trouble:
            failed.setdefault((link.source, link.trouble), []).append(link.address)
    for (source, trouble), addresses in sorted(failed.items()):
        places = (source, ProcessPlace(ProcessRole.SCHEDULER, seen.scheduler))
        fact = f"{source} cannot reach the scheduler's rendezvous at {', '.join(addresses)}"
        ranges = [f.rendezvous_ports for f in seen.of(ProcessRole.SCHEDULER).values()]
        ports = ranges[0] if ranges and ranges[0] else ""
        mend = (
            f"Open TCP ports {ports} of the scheduler's host to the workers."
            if ports
            else "Set DISTRAIN_RENDEZVOUS_PORTS for the scheduler, and open those ports to workers"
        )
        yield mistake("rendezvous", places, f"{fact}: {trouble}", f"{mend} ({_SETTINGS})")


def _alone(place: ProcessPlace, links: list[Link]) -> bool:
    """Return True if a process itself seems unreachable, rather than a single connection to it.

    That is so if at least two hosts tried to connect to it, all of them failed, and a connection to
    another process worked.
    """
    tried = [link for link in links if link.target == place]
    others_reach = any(not link.trouble for link in links if link.target != place)
    return len(tried) > 1 and others_reach and all(link.trouble for link in tried)


def _unreachable(seen: ClusterFacts, place: ProcessPlace, links: list[Link]) -> Finding:
    facts = seen.facts[place]
    troubles = ", ".join(sorted({link.trouble for link in links}))
    where = f"{facts.rank_address} ({facts.interface or 'no interface'})"
    fact = f"none of {len(links)} other hosts reaches its ranks' address {where}: {troubles}"
    if facts.asked_interface:
        own = [name for name, addresses in facts.interfaces.items() if facts.host in addresses]
        mend = (
            f"DISTRAIN_INTERFACE={facts.asked_interface} is set there: is it on the network of the "
            f"others? The worker's own address, {facts.host}, is on {', '.join(own) or 'none'}."
        )
    else:
        mend = _open_ports(facts)
    return mistake("connections", (place,), fact, mend)


def _pair(link: Link) -> Finding:
    fact = f"{link.source} cannot reach {link.target} at {link.address}: {link.trouble}"
    if "did not get through" in link.trouble:
        mend = (
            "Small packets pass and large ones are lost: set the same MTU on all interfaces of the "
            "path (`ip link`; a tunnel or VLAN needs space), or allow ICMP `packet too big`."
        )
    else:
        mend = _open_ports(None)
    return mistake("connections", (link.source, link.target), fact, mend)


def _open_ports(facts: ProcessFacts | None) -> str:
    first_last = facts.port_range if facts else []
    ports = "-".join(map(str, first_last)) or "of net.ipv4.ip_local_port_range"
    return f"Open TCP ports {ports} between the workers' hosts ({_SETTINGS})."
