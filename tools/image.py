"""Builds corro's container images as tar files, with no container engine.

    tools/image.py operator --program build/release/cpp/src/app/pod/corro --to dist/images
    tools/image.py python --wheel build/dist/corro-*.whl --to dist/images

operator  /corro, one static program, and nothing else. The operator runs it, and so do the init
          containers and the heads of jobs.
python    Debian's Python with numpy, Open MPI's mpirun and corro's wheels, for pods that train.

Each prints its name, digest and sizes. The same input gives the same bytes; SOURCE_DATE_EPOCH is
the time that files and images bear.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

import oci_archive
from oci_archive import Image

ROOT = Path(__file__).resolve().parent.parent
VERSION = (ROOT / "python/corro/VERSION").read_text().strip()
# Nobody's: a number, since there is no /etc/passwd, and `runAsNonRoot` asks for one.
OPERATOR_USER = "65532:65532"


def interpreter_of(program: Path) -> str | None:
    """The loader that an ELF program asks for; None if it is static."""
    content = program.read_bytes()
    if content[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"{program}: not a program for 64-bit Linux")
    at = int.from_bytes(content[32:40], "little")
    size, count = (int.from_bytes(content[i : i + 2], "little") for i in (54, 56))
    for header in range(at, at + size * count, size):
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
    tree.mkdir()
    shutil.copyfile(program, tree / "corro")
    (tree / "corro").chmod(0o755)
    shutil.copyfile(ROOT / "LICENSE", tree / "LICENSE")
    (tree / "LICENSE").chmod(0o644)
    return Image(
        name=f"corro:{VERSION}",
        layers=[oci_archive.pack_layer(tree, scratch / "operator.gz", epoch)],
        run={"User": OPERATOR_USER, "Entrypoint": ["/corro"], "Cmd": ["operator"]},
        epoch=epoch,
    )


def write(image: Image, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    digest = oci_archive.write_archive(target, image)
    packed, unpacked = (
        sum(getattr(each, what) for each in image.layers) for what in ("size", "unpacked")
    )
    print(f"{target}: {image.name} {digest}")
    print(f"  layers {packed / 1e6:.1f} MB compressed, {unpacked / 1e6:.1f} MB unpacked")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    kinds = parser.add_subparsers(dest="kind", required=True)
    of_operator = kinds.add_parser("operator", help="the operator and what it brings into pods")
    of_operator.add_argument("--program", type=Path, required=True, help="the static corro")
    for kind in (of_operator,):
        kind.add_argument("--to", type=Path, required=True, help="folder of the images")
    arguments = parser.parse_args()
    epoch = oci_archive.source_date_epoch()
    with tempfile.TemporaryDirectory(prefix="corro-image-") as folder:
        try:
            image = operator_image(arguments.program, Path(folder), epoch)
            write(image, arguments.to / f"corro-{arguments.kind}.tar")
        except (OSError, ValueError) as error:
            print(f"tools/image.py: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
