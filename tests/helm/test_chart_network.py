"""What reaches what, as the NetworkPolicies together say, against the table of docs/security.md."""

import pytest
from helm_chart import NAMES, find, pods, rendered, template


def allowed(objects, target, port, labels, namespace=None):
    """Whether a peer with these labels may reach a pod's port."""
    policies = [
        each["spec"]
        for each in objects
        if each["kind"] == "NetworkPolicy"
        and "Ingress" in each["spec"]["policyTypes"]
        and _selects(each["spec"]["podSelector"], pods(objects)[target]["metadata"]["labels"])
    ]
    assert policies, f"no policy selects {target}: all may reach it"
    return any(
        any(_has(ports, port) for ports in rule["ports"])
        and any(_is_peer(peer, labels, namespace) for peer in rule["from"])
        for policy in policies
        for rule in policy.get("ingress", ())
    )


def _selects(selector, labels):
    pairs = selector.get("matchLabels", {}).items() <= labels.items()
    wanted = selector.get("matchExpressions", ())
    assert all(each["operator"] == "In" for each in wanted)
    return pairs and all(labels.get(each["key"]) in each["values"] for each in wanted)


def _has(ports, port):
    return ports["port"] <= port <= ports.get("endPort", ports["port"])


def _is_peer(peer, labels, namespace):
    if "ipBlock" in peer:  # what has no labels
        return False
    where = peer.get("namespaceSelector", {}).get("matchLabels", {})
    if where != ({"kubernetes.io/metadata.name": namespace} if namespace else {}):
        return False
    return _selects(peer.get("podSelector", {}), labels)


def reached(objects, target, port):
    """The chart's own components that reach a port."""
    return {
        name
        for name, pod in pods(objects).items()
        if allowed(objects, target, port, pod["metadata"]["labels"])
    }


@pytest.mark.parametrize("name", [name for name in NAMES if name != "external"])
def test_each_port_of_the_table_is_open_to_its_peers_alone(name):
    """With the last ports that gloo, NCCL and nannies get, and the worker's HTTP on loopback."""
    objects = rendered(name)
    first, store = (50000, 30000) if name == "everything" else (40000, 29400)
    services = {part for part in pods(objects) if part in ("service", "api", "reconciler")}
    workers = {part for part in pods(objects) if part.startswith("worker")}
    assert reached(objects, "scheduler", 8786) == workers
    assert reached(objects, "scheduler", 8787) == services
    assert reached(objects, "scheduler", store) == workers  # rendezvous
    for worker in workers:
        [container] = pods(objects)[worker]["spec"]["containers"]
        comm = container["ports"][0]["containerPort"]
        gpus = int(container["resources"]["limits"].get("nvidia.com/gpu", 1))
        for port in (comm, comm + gpus - 1, first):
            assert reached(objects, worker, port) == {"scheduler", *workers}
        assert reached(objects, worker, 9002) == set()
        assert "--dashboard-address=127.0.0.1:9002" in container["args"]
    api = next(part for part in ("service", "api") if part in services)
    assert reached(objects, api, 8686) == set()


@pytest.mark.parametrize("name", NAMES)
def test_a_stranger_reaches_nothing(name):
    objects = rendered(name)
    for target in pods(objects):
        for port in (22, 8686, 8786, 8787, 9000, 9001, 9002, 9010, 29400, 30000, 40000, 50000):
            for namespace in (None, "elsewhere"):
                assert not allowed(objects, target, port, {"app": "stranger"}, namespace)


def test_ranks_in_the_nodes_network_reach_scheduler_and_workers_from_there():
    nodes = {"ipBlock": {"cidr": "10.4.0.0/16"}}
    peers = "networkPolicy.commFrom[0].ipBlock.cidr=10.4.0.0/16,networkPolicy.egress.enabled=true"
    beside = template("--set", f"{peers},workers.pools.ib.hostNetwork=true")
    for end, ports in (("-scheduler", (8786, 29400, 29499)), ("-worker", (9000, 40000, 49999))):
        [rule, *_] = find(beside, "NetworkPolicy", end)["spec"]["ingress"]
        assert nodes in rule["from"]
        assert all(any(_has(these, port) for these in rule["ports"]) for port in ports)
    [_, out] = find(beside, "NetworkPolicy", "-training-egress")["spec"]["egress"]
    assert nodes in out["to"]
    assert "ipBlock" not in str(find(template("--set", peers), "NetworkPolicy", "-worker"))
