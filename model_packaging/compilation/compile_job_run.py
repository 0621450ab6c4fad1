"""Starts a compile job, or finds the running one, and follows its log to the end."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

from model_packaging.compilation.compile_job import CompileJob, members, prefix
from model_packaging.deployment.aws import Aws, create
from model_packaging.deployment.container_log import ContainerLog
from model_packaging.deployment.deployment_errors import CompileEnded, StillGoing
from model_packaging.deployment.diagnosis import diagnose
from model_packaging.deployment.watch import PollInterval, Tell

GROUP = "/aws/sagemaker/TrainingJobs"
RUNNING = ("InProgress", "Stopping")


def run(
    aws: Aws, spec: CompileJob, tell: Tell, pace: PollInterval | None = None, *, again: bool = False
) -> dict[str, Any]:
    """Runs a job and returns its final description. After an interruption, the same call follows the running job.

    :param again: start a job even if one has already compiled the same artifacts.
    :raises CompileEnded: the job failed or was stopped. Its log is used for the explanation.
    """
    pace = pace or PollInterval()
    name, status = _newest(aws, spec)
    if status == "Completed" and not again:
        tell(f"job {name} has already compiled this; --again starts another")
    elif status not in RUNNING:
        job = members(spec, datetime.now(UTC).strftime("%Y%m%d-%H%M%S"))
        name = str(job["TrainingJobName"])
        tell(f"job {name} on {spec.on} for {spec.target}: starting")
        create(aws.sagemaker.create_training_job, job)
    else:
        tell(f"job {name}: runs already")
    return _followed(aws, name, tell, pace)


def stop(aws: Aws, spec: CompileJob) -> str | None:
    """Stops the running job. Returns its name, or None if there is none."""
    name, status = _newest(aws, spec)
    if status != "InProgress":
        return None
    aws.sagemaker.stop_training_job(TrainingJobName=name)
    return name


def _newest(aws: Aws, spec: CompileJob) -> tuple[str, str]:
    """Returns name and status of the latest job for these artifacts, or two empty strings."""
    jobs = aws.sagemaker.list_training_jobs(
        NameContains=prefix(spec), SortBy="CreationTime", SortOrder="Descending", MaxResults=1
    )["TrainingJobSummaries"]
    return (jobs[0]["TrainingJobName"], jobs[0]["TrainingJobStatus"]) if jobs else ("", "")


def _followed(aws: Aws, name: str, tell: Tell, pace: PollInterval) -> dict[str, Any]:
    log = ContainerLog(aws.logs, GROUP, int((time.time() - 86_400) * 1000), prefix=f"{name}/")
    began, last = pace.clock(), ""
    lines: list[str] = []
    while True:
        about: dict[str, Any] = aws.sagemaker.describe_training_job(TrainingJobName=name)
        status = about["TrainingJobStatus"]
        new = [line.text for line in log.new()]
        lines = [*lines, *new][-1000:]
        for text in new:
            tell(text)
        if (now := f"job {name}: {status}, {about['SecondaryStatus']}") != last:
            tell(now)
            last = now
        if status == "Completed":
            return about
        if status in ("Failed", "Stopped"):
            reason = str(about.get("FailureReason") or f"the job was {status.lower()}")
            raise CompileEnded(reason, diagnose(reason, lines), lines)
        if pace.clock() - began > max(pace.longest, 86_400):
            raise StillGoing(f"job {name}", status, pace.clock() - began)
        pace.sleep(pace.poll)
