"""The operations on models. A model has an image, an environment and the location of its data."""

from __future__ import annotations

from collections.abc import Iterator

from local_sagemaker.control.control_errors import InternalFailure, ValidationException
from local_sagemaker.control.registry import MODEL, JsonDocument, Registry, now
from local_sagemaker.control.resource_operations import ResourceOperations
from local_sagemaker.hosting.instances.s3_access import ObjectError, Objects

ISOLATION = "EnableNetworkIsolation"
ENVIRONMENT_BYTES = 32 * 1024


class ModelDocuments(ResourceOperations):
    kind = MODEL
    noun = "Model"
    listed = "Models"

    def __init__(self, registry: Registry, data: Objects) -> None:
        super().__init__(registry)
        self._data = data

    def create(self, params: JsonDocument) -> JsonDocument:
        """Creates a model.

        :raises ValidationException: it exists, or breaks a rule that the service model does not have.
        :raises InternalFailure: S3 cannot be asked for its data.
        """
        name = params["ModelName"]
        arn = self._registry.arn(MODEL, name)
        container = container_of(params)
        check_environment(container.get("Environment", {}))
        _check_source(container)
        for uri, prefix in locations(container):
            try:
                found = self._data.exists(uri, prefix)
            except ObjectError as error:
                raise InternalFailure(str(error)) from error
            if not found:
                raise ValidationException(f"Could not find model data at {uri}.")
        with self._registry.lock:
            self._check_name(name)
            self._registry.add(MODEL, name, {**params, "ModelArn": arn, "CreationTime": now()})
        return {"ModelArn": arn}


def container_of(model: JsonDocument) -> JsonDocument:
    """Returns the container of a model, with the model's EnableNetworkIsolation.

    :raises ValidationException: there is none, both members are given, or there are several containers.
    """
    primary, containers = model.get("PrimaryContainer"), model.get("Containers") or []
    if (primary is None) == (not containers):
        raise ValidationException("Exactly one of PrimaryContainer and Containers must be given.")
    if len(containers) > 1:
        raise ValidationException("A model of several containers is not supported on this machine's SageMaker.")
    container: JsonDocument = containers[0] if primary is None else primary
    if not container.get("Image"):
        raise ValidationException("Image must be given; model packages are not supported on this machine's SageMaker.")
    return {**container, **isolation_of(model)}


def isolation_of(document: JsonDocument) -> JsonDocument:
    """Returns what a container gets of a model, an endpoint configuration or a plan that may isolate its containers."""
    return {ISOLATION: True} if document.get(ISOLATION) else {}


def check_environment(environment: JsonDocument) -> None:
    """Checks the size of an environment, which the service model does not limit.

    :raises ValidationException: it has more than 32 KB in total.
    """
    size = sum(len(key.encode()) + len(value.encode()) for key, value in environment.items())
    if size > ENVIRONMENT_BYTES:
        raise ValidationException(f"Environment has {size} bytes, more than the limit of {ENVIRONMENT_BYTES}.")


def _check_source(container: JsonDocument) -> None:
    if container.get("ModelDataUrl") and container.get("ModelDataSource"):
        raise ValidationException("ModelDataUrl and ModelDataSource must not both be given.")
    channels = [source["ChannelName"] for source in container.get("AdditionalModelDataSources", [])]
    if len(set(channels)) != len(channels) or {".", ".."} & set(channels):
        raise ValidationException("Each ChannelName must be a directory's name of its own.")
    if container.get("Mode") == "MultiModel" and not container.get("ModelDataUrl"):
        raise ValidationException("A container of the mode MultiModel needs ModelDataUrl, the prefix of its models.")
    for source in _sources(container):
        if source.get("S3DataSource") is None:
            raise ValidationException("ModelDataSource must have S3DataSource.")
        _check_s3_source(source["S3DataSource"])


def _sources(container: JsonDocument) -> list[JsonDocument]:
    own = container.get("ModelDataSource")
    return [*([] if own is None else [own]), *container.get("AdditionalModelDataSources", [])]


def _check_s3_source(s3: JsonDocument) -> None:
    if s3.get("ManifestS3Uri"):
        raise ValidationException("S3DataSource.ManifestS3Uri is not supported on this machine's SageMaker.")
    kind, uri = s3["S3DataType"], s3["S3Uri"]
    if kind == "S3Prefix" and not uri.endswith("/"):
        raise ValidationException(f"S3Uri of an S3Prefix must end with a forward slash (/): {uri}")
    if kind == "S3Object" and uri.endswith("/"):
        raise ValidationException(f"S3Uri of an S3Object must not end with a forward slash (/): {uri}")
    if kind == "S3Prefix" and s3["CompressionType"] == "Gzip":
        raise ValidationException("CompressionType Gzip needs S3DataType S3Object.")


def locations(container: JsonDocument) -> Iterator[tuple[str, bool]]:
    """Yields each URI of a container's data, and whether it is a prefix."""
    if url := container.get("ModelDataUrl"):
        yield url, container.get("Mode") == "MultiModel"
    for source in _sources(container):
        yield source["S3DataSource"]["S3Uri"], source["S3DataSource"]["S3DataType"] == "S3Prefix"
