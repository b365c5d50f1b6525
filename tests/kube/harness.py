"""What the tests of this folder share: planes that start and end, kubectl, waiting."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from api import Api, ApiError

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MANIFESTS = HERE / "manifests"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def start_plane(*options: str) -> Path:
    """Runs up.sh and returns the plane's folder; it ends with this process at the latest."""
    command = [str(HERE / "up.sh"), "--owner", str(os.getpid()), *options]
    shown = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    last = shown.splitlines()[-1]
    assert last.startswith("KUBECONFIG=")
    return Path(last.removeprefix("KUBECONFIG=")).parent


def stop_plane(folder: Path) -> None:
    subprocess.run([HERE / "down.sh", folder], check=True)


@contextmanager
def own_plane(*options: str) -> Iterator[Plane]:
    """A plane that ends with the block."""
    folder = start_plane(*options)
    yield Plane(folder)
    stop_plane(folder)


def wait_until(condition: Callable[[], Any], what: str, seconds: float = 60) -> Any:
    """Returns the condition's first true value; ApiError 404 counts as not yet, 429 too."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            if value := condition():
                return value
        except ApiError as error:
            if error.code not in (404, 429):
                raise
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.05)


class QuietFor:
    """Tells when a value has been the same for so long: `wait_until(lambda: quiet.holds(x()))`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._value: Any = None
        self._since = time.monotonic()

    def holds(self, value: Any) -> bool:
        if value != self._value:
            self._value, self._since = value, time.monotonic()
        return time.monotonic() - self._since >= self._seconds


class Plane:
    """A control plane that runs, and kubectl for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.api = Api(folder)

    def kubectl(self, *arguments: str, fails: bool = False, text: str | None = None) -> str:
        """Returns what kubectl printed; with `fails` it has to fail and its message is returned."""
        command = [
            str(self.folder / "bin" / "kubectl"),
            "--cache-dir",
            str(self.folder / "kubectl"),
        ]
        environment = os.environ | {"KUBECONFIG": str(self.folder / "admin.kubeconfig")}
        done = subprocess.run(
            [*command, *arguments],
            env=environment,
            input=text,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode != 0) == fails, done.stderr or done.stdout
        return done.stderr if fails else done.stdout


def apply_crds(plane: Plane, expected: str = "") -> None:
    shown = plane.kubectl("apply", "-f", str(ROOT / "deploy" / "crds.yaml"))
    assert expected in shown
    for name in ("mpijobs.kubeflow.org", "corrojobs.training.corro.dev"):
        wait_until(partial(is_established, plane, name), f"{name} being served")


def is_established(plane: Plane, name: str) -> bool:
    """kubectl's own wait ends with an error when it comes before the first condition."""
    crd = plane.api.get(f"{CRDS}/{name}")
    conditions = (crd.get("status") or {}).get("conditions") or []
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


def service_account_kubeconfig(
    plane: Plane, target: Path, account: str = "corro-operator", space: str = "corro-system"
) -> Path:
    """The plane's kubeconfig with a service account's token in place of the administrator."""
    token = plane.kubectl("create", "token", account, "-n", space).strip()
    config = yaml.safe_load((plane.folder / "admin.kubeconfig").read_text())
    config["users"] = [{"name": "admin", "user": {"token": token}}]
    config["contexts"][0]["context"]["namespace"] = space
    target.touch(mode=0o600)
    target.write_text(json.dumps(config))
    return target
