"""A step of a Kubeflow pipeline that trains with `corro run --on kubernetes`.

    pip install kfp
    python kfp_training.py pipeline.yaml      # to be uploaded to Kubeflow Pipelines

The step's pod makes a CorroJob, waits for its end, and has its output. It needs an image with the
program `corro`, such as corro-python, and a service account with the rights that
docs/kubernetes.md names. The ranks run in pods of their own, with an image of their own.
"""

import sys

from kfp import compiler, dsl


@dsl.component(base_image="corro-python:0.1.0")
def train(
    command: list[str],
    ranks: int,
    image: str = "",
    options: list[str] = [],  # noqa: B006  # Kubeflow keeps it as text.
) -> str:
    """Runs a command as so many ranks, and fails if they do.

    Args:
        command: what each rank runs, such as ["python", "/examples/numpy_mnist.py"].
        ranks: how many there are.
        image: of their pods; corro's own if empty.
        options: others of `corro run --on kubernetes`, such as ["--volume", "data:/data:ro"].

    Returns:
        The name of the job.
    """
    import secrets
    import subprocess

    name = f"kfp-{secrets.token_hex(4)}"
    line = ["corro", "run", "--on", "kubernetes", "--name", name, "-np", str(ranks), *options]
    line += ["--image", image] if image else []
    subprocess.run([*line, *command], check=True)
    return name


@dsl.pipeline(name="corro-training")
def pipeline(ranks: int = 2, image: str = "") -> str:
    """Trains the example that is in corro's image."""
    step = train(command=["python", "/examples/numpy_mnist.py"], ranks=ranks, image=image)
    return step.output


if __name__ == "__main__":
    compiler.Compiler().compile(pipeline, sys.argv[1])
