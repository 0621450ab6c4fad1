"""Selects whether a notebook uses this machine or AWS: variables for the shell cells, and boto3's addresses."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from pathlib import Path


def use(image: str | None, bucket: str, instance: str, eager_here: bool = False) -> Path:
    """Sets BUCKET, INSTANCE, WHERE, TO, ON and WORK for the cells in bash. Creates the bucket on this machine.

    :param image: the container's image in ECR, or None for the SageMaker that `neuron-endpoint local up` started here.
    :param eager_here: on this machine, endpoints do not use torch.compile: they start sooner and are slower.
    :return: WORK, an empty directory, which is deleted when the kernel ends.
    :raises click.ClickException: image is None, and none was started.
    """
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    work = Path(tempfile.mkdtemp(prefix="notebook-"))
    atexit.register(shutil.rmtree, work, ignore_errors=True)
    os.environ.update(BUCKET=bucket, INSTANCE=instance, WORK=str(work), COLUMNS="110", TERM="dumb")
    # The kernel requests colours and progress bars, which do not fit a saved output.
    for name in ("FORCE_COLOR", "CLICOLOR_FORCE"):
        os.environ.pop(name, None)
    if image is not None:
        os.environ.update(WHERE="", TO=f"--image {image} --instance {instance}", ON=f"--image {image} --on {instance}")
        return work
    os.environ.update(WHERE="--local", TO="--local" + " --set SM_VLLM_ENFORCE_EAGER=true" * eager_here, ON="")
    import boto3

    from model_packaging.local_endpoint import use_local

    use_local()
    boto3.client("s3", region_name="us-east-1").create_bucket(Bucket=bucket)  # others want a LocationConstraint
    return work
