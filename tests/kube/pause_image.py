"""The image of a pod's first process, which does nothing but live.

    pause_image.py BUSYBOX pause.tar

BUSYBOX is a static one. The kubelet needs such an image for every pod, and here is no registry.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import oci_archive


def main() -> None:
    program, target = map(Path, sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="corro-pause-") as folder:
        tree = Path(folder) / "tree"
        tree.mkdir()
        shutil.copy(program, tree / "busybox")
        image = oci_archive.Image(
            name="localhost/pause:1",
            layers=[oci_archive.pack_layer(tree, Path(folder) / "layer.gz", 0)],
            run={"Entrypoint": ["/busybox", "sleep", "2147483647"]},
        )
        oci_archive.write_archive(target, image)


if __name__ == "__main__":
    main()
