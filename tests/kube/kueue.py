"""Kueue's real controller manager beside a plane, and queues for tests.

with Kueue(plane) as kueue:
    kueue.make_queue("team", "namespace", cpu=2)
    kueue.set_quota("team", cpu=3)

The story: build_kueue.sh has the program, its definitions and its webhooks. In a cluster the API
server calls the webhooks by a Service; here it calls 127.0.0.1. So definitions and webhooks are
installed with an address in place of that Service, and Kueue finds in its Secret a certificate for
this address: it makes one itself only if the one there does not hold for another 90 days. The
program ends with the `with`, or with the process of the tests.
"""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import urllib.request
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml
from harness import CRDS, HERE, ROOT, Plane, is_established, wait_until

sys.path.insert(0, str(ROOT / "python/tests"))

from etcd_server import free_ports

Object = dict[str, Any]

API = "/apis/kueue.x-k8s.io/v1beta2"
SPACE = "kueue-system"
SERVICE = f"kueue-webhook-service.{SPACE}.svc"
FRAMEWORKS = ["pod", "kubeflow.org/mpijob"]
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1"
# Of the webhooks, those for what the tests make.
HOOKED = {"pods", "mpijobs"}
START_SECONDS = 120.0


def build() -> Path:
    """The folder that build_kueue.sh fills; takes minutes the first time on a machine."""
    told = subprocess.run([HERE / "build_kueue.sh"], capture_output=True, text=True, check=False)
    assert told.returncode == 0, f"Kueue cannot be built here: {told.stderr[-2000:]}"
    return Path(told.stdout.splitlines()[-1])


def read_all(path: Path) -> list[Object]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # Its definitions are long.
    return [document for document in yaml.load_all(path.read_text(), loader) if document]


class Kueue:
    """One process, and what it needs on the plane."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._programs = build()
        self._folder = plane.folder / "kueue"
        self._folder.mkdir()
        self._webhooks, self._health, visibility = free_ports(3)
        self._make_certificates()
        self._install()
        (self._folder / "kueue.yaml").write_text(yaml.safe_dump(self._configuration(visibility)))
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                [
                    *("setpriv", "--pdeathsig", "KILL", str(self._programs / "kueue")),
                    *("--config", str(self._folder / "kueue.yaml")),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | {"KUBECONFIG": str(plane.folder / "admin.kubeconfig")},
            )
        try:
            wait_until(self._is_ready, "Kueue being ready", START_SECONDS)
        except BaseException:
            self.end()
            print(self.log.read_text())
            raise

    def __enter__(self) -> Kueue:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: object, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()

    @property
    def log(self) -> Path:
        return self._folder / "log"

    def _is_ready(self) -> bool:
        said = f"Kueue ended: {self.log.read_text()[-2000:]}"
        assert self._process.poll() is None, said
        try:
            address = f"http://127.0.0.1:{self._health}/readyz"
            return bool(urllib.request.urlopen(address, timeout=10).status == 200)
        except OSError:
            return False

    # --- Installation ----------------------------------------------------------------------------

    def _configuration(self, visibility: int) -> Object:
        return {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "namespace": SPACE,
            "health": {"healthProbeBindAddress": f"127.0.0.1:{self._health}"},
            "metrics": {"bindAddress": "0"},
            "webhook": {
                "host": "127.0.0.1",
                "port": self._webhooks,
                "certDir": str(self._folder),
            },
            "leaderElection": {"leaderElect": False},
            "visibilityServer": {"bindAddress": "127.0.0.1", "bindPort": visibility},
            "integrations": {"frameworks": FRAMEWORKS},
            "featureGates": {"VisibilityOnDemand": False, "MultiKueue": False},
        }

    def _make_certificates(self) -> None:
        # Kueue knows its authority by this name.
        self._certify("ca", "kueue-ca", "DNS:kueue-ca")
        signed = ("-CA", str(self._folder / "ca.crt"), "-CAkey", str(self._folder / "ca.key"))
        alone = ("-addext", "basicConstraints=critical,CA:FALSE")
        self._certify("tls", SERVICE, f"DNS:{SERVICE},IP:127.0.0.1", *signed, *alone)

    def _certify(self, file: str, name: str, names: str, *options: str) -> None:
        """Kueue reads keys of PKCS #1 alone."""
        key, certificate = (str(self._folder / f"{file}.{end}") for end in ("key", "crt"))
        who = ("-subj", f"/CN={name}", "-addext", f"subjectAltName={names}")
        for command in (
            ("genrsa", "-traditional", "-out", key, "2048"),
            ("req", "-x509", "-days", "365", "-key", key, "-out", certificate, *who, *options),
        ):
            subprocess.run(["openssl", *command], capture_output=True, check=True)

    def _encoded(self, name: str) -> str:
        return base64.b64encode((self._folder / name).read_bytes()).decode()

    def _install(self) -> None:
        api = self._plane.api
        api.post("/api/v1/namespaces", {"metadata": {"name": SPACE}})
        names = ("ca.crt", "ca.key", "tls.crt", "tls.key")
        secret = {"metadata": {"name": "kueue-webhook-server-cert"}}
        api.post(
            f"/api/v1/namespaces/{SPACE}/secrets",
            secret | {"data": {name: self._encoded(name) for name in names}},
        )
        for path in sorted((self._programs / "crd" / "bases").glob("*.yaml")):
            for definition in read_all(path):
                self._convert(definition)
                api.post(CRDS, definition)
                name = definition["metadata"]["name"]
                wait_until(partial(is_established, self._plane, name), f"{name} being served")
        for configuration in read_all(self._programs / "webhooks.yaml"):
            self._hook(configuration)

    def _convert(self, definition: Object) -> None:
        """As Kueue's patch for that definition, if it has one."""
        plural = definition["spec"]["names"]["plural"]
        patch = self._programs / "crd" / "patches" / f"webhook_in_{plural}.yaml"
        if not patch.exists():
            return
        [change] = read_all(patch)
        definition["spec"]["conversion"] = change["spec"]["conversion"]
        webhook = definition["spec"]["conversion"]["webhook"]
        webhook["clientConfig"] = self._client(webhook["clientConfig"])

    def _hook(self, configuration: Object) -> None:
        kind = configuration["kind"]
        plural = f"{kind[0].lower()}{kind[1:]}s"
        word = kind.removesuffix("WebhookConfiguration").lower()
        configuration["metadata"]["name"] = f"kueue-{word}-webhook-configuration"
        hooks = []
        for hook in configuration["webhooks"]:
            [rule] = hook["rules"]
            if rule["apiGroups"] == ["kueue.x-k8s.io"] or HOOKED & set(rule["resources"]):
                hook["clientConfig"] = self._client(hook["clientConfig"])
                hooks.append(hook)
        configuration["webhooks"] = hooks
        self._plane.api.post(f"{WEBHOOKS}/{plural.lower()}", configuration)

    def _client(self, given: Object) -> Object:
        path = given["service"]["path"]
        url = f"https://127.0.0.1:{self._webhooks}{path}"
        return {"url": url, "caBundle": self._encoded("ca.crt")}

    # --- Queues ----------------------------------------------------------------------------------

    def make_queue(self, name: str, space: str, cpu: int) -> None:
        """A ClusterQueue of that name, and a LocalQueue of that name in the namespace."""
        local = f"{API}/namespaces/{space}"
        self._make(API, "ResourceFlavor", name, {})
        self._make(API, "ClusterQueue", name, self._quota(name, cpu) | {"namespaceSelector": {}})
        self._make(local, "LocalQueue", name, {"clusterQueue": name})
        for path in (f"{API}/clusterqueues/{name}", f"{local}/localqueues/{name}"):
            wait_until(partial(self._is_active, path), f"{path} being active")

    def _make(self, place: str, kind: str, name: str, spec: Object) -> None:
        body: Object = {"apiVersion": API.removeprefix("/apis/"), "kind": kind}
        body |= {"metadata": {"name": name}, "spec": spec}
        self._plane.api.post(f"{place}/{kind.lower()}s", body)

    def set_quota(self, name: str, cpu: int) -> None:
        self._plane.api.patch(f"{API}/clusterqueues/{name}", {"spec": self._quota(name, cpu)})

    def set_stop_policy(self, name: str, policy: str) -> None:
        """None, Hold or HoldAndDrain."""
        self._plane.api.patch(f"{API}/clusterqueues/{name}", {"spec": {"stopPolicy": policy}})

    def workloads(self, space: str) -> list[Object]:
        return list(self._plane.api.get(f"{API}/namespaces/{space}/workloads")["items"])

    def _quota(self, name: str, cpu: int) -> Object:
        # Kueue refuses pods that ask for what a queue has no word on; corro's own container, which
        # every worker begins with, asks for memory.
        resources = [
            {"name": "cpu", "nominalQuota": cpu},
            {"name": "memory", "nominalQuota": "100Gi"},
        ]
        flavors = [{"name": name, "resources": resources}]
        return {"resourceGroups": [{"coveredResources": ["cpu", "memory"], "flavors": flavors}]}

    def _is_active(self, path: str) -> bool:
        conditions = (self._plane.api.get(path).get("status") or {}).get("conditions") or []
        return any(c["type"] == "Active" and c["status"] == "True" for c in conditions)
