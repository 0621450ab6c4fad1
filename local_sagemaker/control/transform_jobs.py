"""The operations on batch transform jobs. ``transform`` runs them."""

from __future__ import annotations

from local_sagemaker.control.control_errors import ResourceInUse, ResourceNotFound, ValidationException
from local_sagemaker.control.models import check_environment, container_of
from local_sagemaker.control.protocol import OperationHandler
from local_sagemaker.control.registry import MODEL, TRANSFORM, JsonDocument, Registry, now
from local_sagemaker.control.resource_operations import ResourceOperations
from local_sagemaker.hosting.host import Host
from local_sagemaker.hosting.transform_job import MAX_PAYLOAD_MB, TransformJob

MOST_MEGABYTES = 100
UNSUPPORTED = ("DataCaptureConfig", "ExperimentConfig", "DataProcessing")
RUNNING = ("InProgress", "Stopping")
# SageMaker's message (aws/sagemaker-python-sdk, issues 4777 and 5160).
NO_MODEL_DATA_SOURCE = (
    "SageMaker Batch currently doesn't support Model entity with container definitions which use ModelDataSource "
    "attribute"
)


class TransformJobs(ResourceOperations):
    kind = TRANSFORM
    noun = "TransformJob"
    listed = "TransformJobSummaries"
    status = "TransformJobStatus"

    def __init__(self, registry: Registry, host: Host) -> None:
        super().__init__(registry)
        self._host = host
        self._jobs: dict[str, TransformJob] = {}

    def changes(self) -> dict[str, OperationHandler]:
        return {"StopTransformJob": self.stop}

    def create(self, params: JsonDocument) -> JsonDocument:
        """Creates and starts a job.

        :raises ResourceInUse: the name is taken.
        :raises ResourceNotFound: the model does not exist.
        :raises ValidationException: it or its model breaks a rule that the service model does not have.
        """
        name = params["TransformJobName"]
        arn = self._registry.arn(TRANSFORM, name)
        _check(params)
        with self._registry.lock:
            if name in self._registry.of(TRANSFORM):
                raise ResourceInUse(
                    "Job name must be unique within an AWS account and region, "
                    f"and a job with this name already exists ({arn})"
                )
            model = self._registry.of(MODEL).get(params["ModelName"])
            if model is None:
                raise ResourceNotFound(self._registry.missing(MODEL, params["ModelName"]).message)
            container = container_of(model)
            _check_container(container)
            document = {
                **params,
                "TransformJobArn": arn,
                "TransformJobStatus": "InProgress",
                "CreationTime": now(),
                "TransformStartTime": now(),
            }
            self._registry.add(TRANSFORM, name, document)

            def finish(status: str, reason: str | None) -> None:
                with self._registry.lock:
                    self._report(name, status, reason, {"TransformEndTime": now()})
                    self._jobs.pop(name, None)

            job = TransformJob(params, container, self._host.fleets, self._host.objects, finish)
            self._jobs[name] = job
            job.start()
        return {"TransformJobArn": arn}

    def stop(self, params: JsonDocument) -> None:
        """Stops a job.

        :raises ResourceNotFound: there is no such job.
        :raises ValidationException: it has ended.
        """
        with self._registry.lock:
            job = self._found(params["TransformJobName"])
            if job["TransformJobStatus"] not in RUNNING:
                raise ValidationException(
                    f"The request was rejected because the transform job is in status {job['TransformJobStatus']}."
                )
            job["TransformJobStatus"] = "Stopping"
            self._jobs[params["TransformJobName"]].stop()

    def stop_all(self) -> list[TransformJob]:
        """Stops the jobs, and returns them. Their containers may be ending."""
        jobs = list(self._jobs.values())
        for job in jobs:
            job.stop()
        return jobs

    def _found(self, name: str) -> JsonDocument:
        job = self._registry.of(TRANSFORM).get(name)
        if job is None:
            raise ResourceNotFound(f"Requested resource not found: transform job {name}.")
        return job


def _check_container(container: JsonDocument) -> None:
    if container.get("ModelDataSource"):
        raise ValidationException(NO_MODEL_DATA_SOURCE)
    if container.get("Mode") == "MultiModel":
        raise ValidationException("A transform job of a MultiModel container is not supported.")


def _check(params: JsonDocument) -> None:
    for member in UNSUPPORTED:
        if params.get(member):
            raise ValidationException(f"{member} is not supported on this machine's SageMaker.")
    source = params["TransformInput"]["DataSource"]["S3DataSource"]["S3DataType"]
    if source != "S3Prefix":
        raise ValidationException(f"S3DataType {source} is not supported on this machine's SageMaker.")
    split = params["TransformInput"].get("SplitType", "None")
    if split not in ("None", "Line"):
        raise ValidationException(f"SplitType {split} is not supported on this machine's SageMaker.")
    if params.get("BatchStrategy") == "MultiRecord" and split == "None":
        raise ValidationException("BatchStrategy MultiRecord needs a SplitType.")
    if params["TransformResources"]["InstanceCount"] < 1:
        raise ValidationException("InstanceCount must be at least 1.")
    check_environment(params.get("Environment", {}))
    payload = params.get("MaxPayloadInMB", MAX_PAYLOAD_MB)
    if payload > MOST_MEGABYTES or payload * params.get("MaxConcurrentTransforms", 1) > MOST_MEGABYTES:
        raise ValidationException(
            f"MaxPayloadInMB, and MaxPayloadInMB times MaxConcurrentTransforms, must not exceed {MOST_MEGABYTES} MB."
        )
