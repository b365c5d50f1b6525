"""Runs Horovod's PyTorch examples, unchanged, with 2 ranks for a few steps, and prints a table.

Fashion-MNIST of Debian's package dataset-fashion-mnist, the first images of it, lies where they
look for MNIST. Which of the examples do not run, and why, is in NOT_RUN.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
IMAGES = Path("/usr/share/datasets/fashion-mnist")
COUNT = 1280  # Images of each set.
TIMEOUT = 600  # Seconds for one of them.
MNIST = ["pytorch_mnist.py", "--epochs", "1", "--no-cuda", "--data-dir", "{data}"]
SYNTHETIC = [
    *("pytorch_synthetic_benchmark.py", "--no-cuda", "--model", "resnet18", "--batch-size", "4"),
    *("--num-warmup-batches", "1", "--num-batches-per-iter", "1", "--num-iters", "3"),
]
HOROVODRUN = ["{bin}/horovodrun", "-np", "2", "-H", "localhost:2", "--gloo", "{python}"]
BY_ITSELF = ["--num-proc", "2", "--hosts", "localhost:2", "--communication", "gloo"]
RUNS = [
    [*HOROVODRUN, *MNIST],
    [*HOROVODRUN, *MNIST, "--fp16-allreduce"],
    [*HOROVODRUN, *MNIST, "--gradient-predivide-factor", "2.0"],
    ["{python}", *MNIST, *BY_ITSELF],  # It calls horovod.run().
    [*HOROVODRUN, *SYNTHETIC],
    [*HOROVODRUN, *SYNTHETIC, "--fp16-allreduce"],
]
NOT_RUN = {
    "pytorch_lightning_mnist.py": "asks PyTorch Lightning for its Horovod accelerator, which "
    "Lightning 2, the first for torch 2, does not have any more",
    "pytorch_imagenet_resnet50.py": "needs the images of ImageNet",
}


def put_images(folder: Path) -> None:
    """Puts images where torchvision.datasets.MNIST looks for them."""
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for packed in IMAGES.glob("*.gz"):
        with gzip.open(packed) as file:
            header = 16 if "images" in packed.name else 8
            magic, _, *size = struct.unpack(f">{header // 4}I", file.read(header))
            each = 28 * 28 if "images" in packed.name else 1
            part = struct.pack(f">{header // 4}I", magic, COUNT, *size) + file.read(COUNT * each)
        (raw / packed.stem).write_bytes(part)


def run(words: Sequence[str], checkout: Path, python: Path, folder: Path) -> dict[str, object]:
    """Runs one example; its last line of output, or of the failure, is in the result."""
    places = {"python": python, "bin": python.parent, "data": folder / "data"}
    words = [word.format(**places) for word in words]
    [example] = [i for i, word in enumerate(words) if word.endswith(".py")]
    command = [*words[:example], str(checkout / "examples/pytorch" / words[example])]
    try:
        job = subprocess.run(
            [*command, *words[example + 1 :]],
            cwd=folder,
            env=os.environ | {"HOME": str(folder)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        status, text = job.returncode, job.stderr if job.returncode else job.stdout
    except subprocess.TimeoutExpired:
        status, text = -1, f"not over after {TIMEOUT} s"
    lines = [line.removeprefix("[0]<stdout>:").strip() for line in text.splitlines()]
    last = next((line for line in reversed(lines) if line), "")
    called = " ".join([words[example], *words[example + 1 :]]).replace(str(folder / "data"), "...")
    how = "horovodrun" if example > 1 else "by itself"
    return {"example": called, "started": how, "status": status, "last_line": last}


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkout", type=Path, help="a checkout of Horovod's repository")
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="with its torch")
    parser.add_argument("--out", type=Path, default=ROOT / "build/compat/examples.json")
    options = parser.parse_args(argv)
    if not (options.checkout / "examples/pytorch").is_dir():
        sys.exit(f"run_examples: {options.checkout} has no examples/pytorch")
    if not IMAGES.exists():
        sys.exit("run_examples: no images: apt install dataset-fashion-mnist")
    results = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        put_images(folder / "data")
        for words in RUNS:
            result = run(words, options.checkout.resolve(), options.python.absolute(), folder)
            results.append(result)
            outcome = "passed" if result["status"] == 0 else f"status {result['status']}"
            print(f"{outcome}: {result['example']} ({result['started']})", flush=True)
            print(f"  {result['last_line']}", flush=True)
    for example, reason in NOT_RUN.items():
        print(f"not run, because: {reason}: {example}")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"runs": results, "not_run": NOT_RUN}, indent=1) + "\n")
    print(f"written: {options.out}")
    return int(any(result["status"] != 0 for result in results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
