"""Builds corro's container images as tar files, with no container engine.

    tools/image.py operator --program build/release/pod/corro --to operator.tar
    tools/image.py python --wheel build/wheels/*.whl --to python.tar
    tools/image.py show operator.tar python.tar        name, digest and sizes

operator  /bin/corro, one static program, and nothing else. The operator runs it, and so do the init
          containers and the heads of jobs.
python    Debian's Python with numpy, Open MPI's mpirun and corro's wheels, for pods that train.

The same input gives the same bytes; SOURCE_DATE_EPOCH is the time that files and images bear.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import debian_root
import oci_archive
from oci_archive import Image

ROOT = Path(__file__).resolve().parent.parent
VERSION = (ROOT / "python/corro/VERSION").read_text().strip()
# In /examples. Horovod's image has its MNIST script under the second name; manifests start that.
# There is no TensorFlow in this image, so numpy's script stands for examples/tensorflow_mnist.py.
EXAMPLES = {
    "numpy_mnist.py": ROOT / "examples/numpy_mnist.py",
    "tensorflow_mnist.py": ROOT / "examples/numpy_mnist.py",
}
# Nobody's: a number, since there is no /etc/passwd, and `runAsNonRoot` asks for one.
OPERATOR_RUN = {"User": "65532:65532", "Entrypoint": ["/bin/corro"], "Cmd": ["operator"]}
PYTHON_RUN = {
    "User": debian_root.USER,
    "Env": ["PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8"],
    "Cmd": ["python3"],
    "WorkingDir": debian_root.HOME,
}


def interpreter_of(program: Path) -> str | None:
    """The loader that an ELF program asks for; None if it is static."""
    content = program.read_bytes()
    if content[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"{program}: not a program for 64-bit Linux")
    at = int.from_bytes(content[32:40], "little")
    size, count = (int.from_bytes(content[i : i + 2], "little") for i in (54, 56))
    for header in (at + size * i for i in range(count)):
        if int.from_bytes(content[header : header + 4], "little") == 3:  # PT_INTERP
            begin = int.from_bytes(content[header + 8 : header + 16], "little")
            length = int.from_bytes(content[header + 32 : header + 40], "little")
            return content[begin : begin + length].rstrip(b"\0").decode()
    return None


def operator_image(program: Path, scratch: Path, epoch: int) -> Image:
    if loader := interpreter_of(program):
        raise ValueError(
            f"{program}: needs {loader}, which an empty image has not; link statically"
        )
    tree = scratch / "operator"
    (tree / "bin").mkdir(parents=True)
    shutil.copyfile(program, tree / "bin/corro")
    (tree / "bin/corro").chmod(0o755)
    shutil.copyfile(ROOT / "LICENSE", tree / "LICENSE")
    (tree / "LICENSE").chmod(0o644)
    return Image(
        name=f"corro:{VERSION}",
        layers=[oci_archive.pack_layer(tree, scratch / "operator.gz", epoch)],
        run=OPERATOR_RUN,
        epoch=epoch,
    )


def python_image(wheels: Sequence[Path], scratch: Path, epoch: int) -> Image:
    tar = scratch / "python.tar"
    debian_root.write_root(tar, wheels, EXAMPLES, epoch)
    return Image(
        name=f"corro-python:{VERSION}",
        layers=[oci_archive.compress_layer(tar, scratch / "python.gz")],
        run=PYTHON_RUN,
        epoch=epoch,
    )


def show(archive: Path) -> str:
    name, digest, layers = oci_archive.read_layers(archive)
    packed, unpacked = (
        sum(getattr(each, what) for each in layers) for what in ("size", "unpacked")
    )
    sizes = f"layers {packed / 1e6:.1f} MB, unpacked {unpacked / 1e6:.1f} MB"
    return f"{archive}: {name}\n  {digest}\n  {sizes}"


def build(arguments: argparse.Namespace) -> None:
    os.umask(0o022)  # folders' modes are part of the bytes
    epoch = oci_archive.source_date_epoch()
    arguments.to.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="corro-image-") as folder:
        if arguments.kind == "operator":
            image = operator_image(arguments.program, Path(folder), epoch)
        else:
            image = python_image(arguments.wheel, Path(folder), epoch)
        oci_archive.write_archive(arguments.to, image)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    kinds = parser.add_subparsers(dest="kind", required=True)
    of_operator = kinds.add_parser("operator", help="the operator and what it brings into pods")
    of_operator.add_argument("--program", type=Path, required=True, help="the static corro")
    of_python = kinds.add_parser("python", help="Debian's Python with corro, for pods that train")
    of_python.add_argument("--wheel", type=Path, required=True, nargs="+", help="what to install")
    for kind in (of_operator, of_python):
        kind.add_argument("--to", type=Path, required=True, help="the image's file")
    kinds.add_parser("show", help="print what is in images").add_argument(
        "images", type=Path, nargs="+"
    )
    arguments = parser.parse_args()
    try:
        if arguments.kind == "show":
            print("\n".join(show(archive) for archive in arguments.images))
        else:
            build(arguments)
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        print(f"tools/image.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
