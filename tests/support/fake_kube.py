"""A Kubernetes API over HTTPS for a few workloads, as strict as the real one about what it takes.

It knows tokens, RBAC rules, resource versions, the `scale` subresource, dry runs and lists of pods.
"""

import json
import re
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

_OBJECT = re.compile(
    r"/apis/(?P<group>[^/]+)/(?P<version>[^/]+)/namespaces/(?P<namespace>[^/]+)/(?P<plural>[^/]+)/"
    r"(?P<name>[^/]+)(?P<scale>/scale)?"
)
_PODS = re.compile(r"/api/v1/namespaces/(?P<namespace>[^/]+)/pods")
RULES = (("get", "apps", "statefulsets/scale"), ("patch", "apps", "statefulsets/scale"))


@dataclass
class Workload:
    """A workload's part that scales."""

    replicas: int = 0
    ready: int = 0
    version: int = 1
    selector: str = "app=workers"


class _Refusal(Exception):
    def __init__(self, code: int, reason: str, message: str):
        self.code, self.reason, self.message = code, reason, message


@dataclass
class FakeKube:
    """The server, in a block.

    Attributes:
        account: The folder that a pod's service account is mounted at, with the present token.
        rules: Verbs on resources that the account is allowed.
        faults: What happens to the next requests: `close` (before it is done), a status, or a
            function to be called before.
        asked: Method, path and status of each answer.
        changed: Called with a workload's new number of replicas.
    """

    folder: Path
    certificate: tuple[Path, Path]
    namespace: str = "ctr"
    workloads: dict[tuple[str, str, str], Workload] = field(default_factory=dict)
    pods: list[dict[str, Any]] = field(default_factory=list)
    rules: list[tuple[str, str, str]] = field(default_factory=lambda: list(RULES))
    faults: deque[Any] = field(default_factory=deque)
    asked: list[tuple[str, str, int]] = field(default_factory=list)
    changed: Callable[[int], None] = lambda replicas: None

    def __enter__(self) -> "FakeKube":
        self.account = self.folder / "account"
        self.account.mkdir()
        self._tokens = 0
        self.rotate()
        (self.account / "namespace").write_text(self.namespace)
        (self.account / "ca.crt").write_bytes(self.certificate[0].read_bytes())
        kube = self

        class Handler(_Handler):
            pass

        Handler.kube = kube
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), Handler)
        self._server.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._server.context.load_cert_chain(*map(str, self.certificate))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def rotate(self) -> None:
        """Write another token; the one before is not taken any more."""
        self._tokens += 1
        self.token = f"token-{self._tokens}"
        new = self.account / "token.new"
        new.write_text(self.token)
        new.rename(self.account / "token")

    def workers(self, group: str = "apps", plural: str = "statefulsets") -> Workload:
        """The workload `workers`, made when it is asked for first."""
        return self.workloads.setdefault((group, plural, "workers"), Workload())

    def answer(
        self, method: str, url: str, headers: Any, body: bytes
    ) -> tuple[int, dict[str, Any]]:
        parts = urlsplit(url)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        with self._lock:
            try:
                if headers.get("Authorization") != f"Bearer {self.token}":
                    raise _Refusal(401, "Unauthorized", "Unauthorized")
                return 200, self._done(method, parts.path, query, headers, body)
            except _Refusal as refusal:
                words = {"message": refusal.message, "reason": refusal.reason}
                return refusal.code, {"kind": "Status", **words, "code": refusal.code}

    def _done(
        self, method: str, path: str, query: dict[str, str], headers: Any, body: bytes
    ) -> dict[str, Any]:
        if (found := _PODS.fullmatch(path)) and method == "GET":
            self._allowed("list", "", "pods", found["namespace"])
            return self._list(query)
        found = _OBJECT.fullmatch(path)
        if not found or found["version"] != "v1":
            raise _Refusal(404, "NotFound", "the server could not find the requested resource")
        group, plural, name = found["group"], found["plural"], found["name"]
        kinds = {(group, plural) for group, plural, _ in self.workloads}
        verb = {"GET": "get", "PATCH": "patch"}.get(method)
        if verb is None or (group, plural) not in kinds:
            raise _Refusal(404, "NotFound", "the server could not find the requested resource")
        self._allowed(verb, group, plural + (found["scale"] or ""), found["namespace"], name)
        workload = self.workloads.get((group, plural, name))
        if workload is None or found["namespace"] != self.namespace:
            raise _Refusal(404, "NotFound", f'{plural}.{group} "{name}" not found')
        if not found["scale"]:
            status = {"replicas": workload.replicas, "readyReplicas": workload.ready}
            return {"kind": "StatefulSet", "status": {k: n for k, n in status.items() if n}}
        if verb == "patch":
            workload = self._patched(workload, f'{plural}.{group} "{name}"', query, headers, body)
        return self._scale(workload, name)

    def _allowed(
        self, verb: str, group: str, resource: str, namespace: str, name: str = ""
    ) -> None:
        if (verb, group, resource) not in self.rules or namespace != self.namespace:
            what = f'{resource.split("/")[0]}.{group} "{name}"'
            raise _Refusal(
                403,
                "Forbidden",
                f'{what} is forbidden: User "system:serviceaccount:{self.namespace}:distrain" '
                f'cannot {verb} resource "{resource}" in API group "{group}" in the namespace '
                f'"{namespace}"',
            )

    def _patched(
        self, workload: Workload, what: str, query: dict[str, str], headers: Any, body: bytes
    ) -> Workload:
        assert query.get("dryRun", "All") == "All"
        assert headers.get("Content-Type") == "application/merge-patch+json"
        patch = json.loads(body)
        metadata, spec = patch.get("metadata", {}), patch.get("spec", {})
        replicas = spec.get("replicas", workload.replicas)
        assert type(replicas) is int
        assert replicas >= 0
        wanted = metadata.get("resourceVersion")
        if wanted is not None and wanted != str(workload.version):
            raise _Refusal(
                409,
                "Conflict",
                f"Operation cannot be fulfilled on {what}: the object has been modified; please "
                "apply your changes to the latest version and try again",
            )
        if "dryRun" in query:
            return Workload(replicas, workload.ready, workload.version, workload.selector)
        if replicas != workload.replicas:
            workload.replicas, workload.version = replicas, workload.version + 1
            self.changed(replicas)
        return workload

    def _scale(self, workload: Workload, name: str) -> dict[str, Any]:
        metadata = {"name": name, "namespace": self.namespace, "uid": "1"}
        return {
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": {**metadata, "resourceVersion": str(workload.version)},
            # As Go writes it: what is 0 is left out.
            "spec": {"replicas": workload.replicas} if workload.replicas else {},
            "status": {"replicas": workload.replicas, "selector": workload.selector},
        }

    def _list(self, query: dict[str, str]) -> dict[str, Any]:
        key, _, value = query.get("labelSelector", "").partition("=")
        assert key, "all pods of a namespace are nobody's business"
        found = [pod for pod in self.pods if pod["metadata"]["labels"].get(key) == value]
        if "fieldSelector" in query:
            phase = query["fieldSelector"].removeprefix("status.phase=")
            found = [pod for pod in found if pod["status"]["phase"] == phase]
        return {"kind": "PodList", "metadata": {}, "items": found[: int(query["limit"])]}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    context: ssl.SSLContext

    def get_request(self) -> tuple[socket.socket, Any]:
        plain, address = super().get_request()
        return self.context.wrap_socket(
            plain, server_side=True, do_handshake_on_connect=False
        ), address

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that do not trust the certificate hang up; tests look at the client."""


class _Handler(BaseHTTPRequestHandler):
    kube: FakeKube
    protocol_version = "HTTP/1.1"
    timeout = 30

    def _serve(self) -> None:
        kube = self.kube
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        fault = kube.faults.popleft() if kube.faults else None
        if callable(fault):
            fault()
        if fault == "close":
            self.close_connection = True
            return
        if isinstance(fault, int):
            status, document = fault, {"kind": "Status", "code": fault, "message": "not now"}
        else:
            status, document = kube.answer(self.command, self.path, self.headers, body)
        kube.asked.append((self.command, self.path, status))
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PATCH = do_PUT = do_POST = _serve

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""
