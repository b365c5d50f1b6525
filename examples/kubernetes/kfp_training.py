"""Steps of a Kubeflow pipeline that train with corro.

    pip install kfp
    python kfp_training.py pipeline.yaml      # to be uploaded to Kubeflow Pipelines

`train` runs ranks in pods of their own: the step's pod makes a CorroJob, waits for its end, and has
its output. It needs an image with the program `corro`, such as corro-python, and a service account
with the rights that docs/kubernetes.md names. The ranks' image is another one.

`train_here` runs ranks in the step's own pod. What they print is the step's log while they run, and
Kubeflow shows metrics and a page of the job beside the step.
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


@dsl.component(base_image="corro-python:0.1.0")
def train_here(
    command: list[str],
    ranks: int,
    metrics: dsl.Output[dsl.Metrics],
    page: dsl.Output[dsl.HTML],
) -> None:
    """Runs a command as so many ranks in the step's own pod, and fails if they do.

    Args:
        command: what each rank runs, such as ["python", "/examples/numpy_mnist.py"].
        ranks: how many there are.
        metrics: seconds, steps, steps per second, ranks that have failed, and more.
        page: how the job went, and what has happened.
    """
    import subprocess
    import tempfile
    from pathlib import Path

    from corro import kubeflow

    with tempfile.TemporaryDirectory() as logs:
        line = ["corro", "run", "--log-dir", logs, "-np", str(ranks), *command]
        status = subprocess.run(line, check=False).returncode
        report = kubeflow.report(logs)
    for name, value in report.metrics.items():
        metrics.log_metric(name, value)
    Path(page.path).write_text(report.html)
    if status != 0:
        raise RuntimeError(f"corro run has ended with status {status}")


@dsl.pipeline(name="corro-training")
def pipeline(ranks: int = 2, image: str = "") -> str:
    """Trains the example that is in corro's image."""
    step = train(command=["python", "/examples/numpy_mnist.py"], ranks=ranks, image=image)
    return step.output


if __name__ == "__main__":
    compiler.Compiler().compile(pipeline, sys.argv[1])
