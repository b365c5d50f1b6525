"""The image of a pod's first process, which only lives: a docker archive on standard output.

    pause_image.py BUSYBOX >pause.tar

BUSYBOX is a static one. The kubelet needs such an image for every pod, and here is no registry.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path

NAME = "localhost/pause:1"


def add(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))


def layer_of(program: bytes) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as layer:
        add(layer, "busybox", program, 0o755)
    return content.getvalue()


def main() -> None:
    layer = layer_of(Path(sys.argv[1]).read_bytes())
    digest = hashlib.sha256(layer).hexdigest()
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": ["/busybox", "sleep", "2147483647"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [NAME], "Layers": ["layer.tar"]}]
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as archive:
        add(archive, "config.json", json.dumps(config).encode())
        add(archive, "layer.tar", layer)
        add(archive, "manifest.json", json.dumps(manifest).encode())


if __name__ == "__main__":
    main()
