"""Plays the Deployment of deploy/operator.yaml: as long as it is there, `corro operator` runs.

The nodes of a plane run no containers, so the Deployment's pods do nothing. This starts the program
as they would, with the Deployment's own flags (but for the address, which is one on loopback), its
service account's token, and the Secrets that it mounts, and again when the Deployment changes.
"""

from __future__ import annotations

import base64
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

from api import ApiError
from harness import Plane, service_account_kubeconfig
from operator_process import OperatorProcess

Object = dict[str, Any]
DEPLOYMENT = "/apis/apps/v1/namespaces/corro-system/deployments/corro-operator"


class PlayedDeployment:
    """Its thread looks at the Deployment twice a second; `failure` says why it ended early."""

    def __init__(self, plane: Plane, folder: Path) -> None:
        self._plane = plane
        self._folder = folder
        self._kubeconfig = folder / "operator.kubeconfig"
        self._end = threading.Event()
        self._flags: list[str] = []
        self._process: OperatorProcess | None = None
        self._thread = threading.Thread(target=self._play)
        self.failure = ""

    def __enter__(self) -> PlayedDeployment:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: object, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()
        if self._process is not None:
            self._process.kill()

    def log(self) -> list[Object]:
        """What the newest process has said."""
        return self._process.log() if self._process is not None else []

    def _wanted(self) -> list[str]:
        """The Deployment's flags; none if there is none."""
        try:
            deployment = self._plane.api.get(DEPLOYMENT)
        except ApiError as error:
            if error.code == 404:
                return []
            raise
        pod = deployment["spec"]["template"]["spec"]
        [container] = pod["containers"]
        program, command, *flags = container["command"]
        assert (program, command) == ("/bin/corro", "operator"), container["command"]
        for path, file in self._mounted(pod, container).items():
            flags = [flag.replace(path, file) for flag in flags]
        return [flag for flag in flags if not flag.startswith("--listen=")]

    def _mounted(self, pod: Object, container: Object) -> dict[str, str]:
        """Where the files of Secrets are here, by their paths in the container."""
        secrets = {v["name"]: v["secret"]["secretName"] for v in pod.get("volumes") or []}
        files = {}
        for mount in container.get("volumeMounts") or []:
            place = f"/api/v1/namespaces/corro-system/secrets/{secrets[mount['name']]}"
            for key, value in self._plane.api.get(place)["data"].items():
                file = self._folder / f"{mount['name']}-{key}"
                file.write_bytes(base64.b64decode(value))
                files[f"{mount['mountPath']}/{key}"] = str(file)
        return files

    def _play(self) -> None:
        try:
            while not self._end.wait(0.5):
                wanted = self._wanted()
                if wanted != self._flags:
                    self._change_to(wanted)
        except (AssertionError, ApiError, OSError) as error:
            self.failure = repr(error)

    def _change_to(self, flags: list[str]) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None
        if flags:
            service_account_kubeconfig(self._plane, self._kubeconfig)
            self._process = OperatorProcess(self._kubeconfig, "", *flags, lock_space="corro-system")
        self._flags = flags
