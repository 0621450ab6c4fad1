"""Finds out from S3 listings how large a deployment is, and whether the start has to compile."""

from __future__ import annotations

from collections.abc import Mapping

from handler.artifacts.store.object_names import MANIFESTS
from handler.errors import SettingError
from handler.neuron.checkpoint.checkpoint_files import WEIGHT_SUFFIXES
from model_packaging.deployment.definition.limits import Sizes
from model_packaging.package.assembly import COMPILED, STORE
from model_packaging.package.sources import items

ARTIFACTS = ("ENDPOINT_ARTIFACT_STORE", "ENDPOINT_COMPILED_ARTIFACTS", "NEURON_COMPILED_ARTIFACTS")


def sizes_of(package: str | None, environment: Mapping[str, str], platform: str) -> Sizes:
    """Returns the sizes of a deployment.

    :param package: the package's URI, as CreateModel gets it.
    :param environment: may name a model and graphs in S3.
    :raises SettingError: a named location is empty.
    """
    remote = environment.get("ENDPOINT_MODEL") or environment.get("SM_VLLM_MODEL") or ""
    graphs = next((environment[name] for name in ARTIFACTS if environment.get(name)), "")
    packed = weights = fetched = 0
    has_graphs = bool(graphs) and not _empty_store(environment)
    archive = bool(package and package.endswith((".tar.gz", ".tgz")))
    if package and archive:
        packed = weights = _object(package)
        has_graphs = True  # unknown without unpacking; an archive is assumed to have compiled graphs
    elif package:
        listed = items(package, "MODEL")
        packed = sum(item.size for item in listed)
        weights = sum(item.size for item in listed if item.path.endswith(WEIGHT_SUFFIXES) and "/" not in item.path)
        has_graphs = has_graphs or any(item.path.startswith((f"{COMPILED}/", f"{STORE}/")) for item in listed)
    if remote.startswith("s3://"):
        weights = sum(item.size for item in items(remote, "ENDPOINT_MODEL") if item.path.endswith(WEIGHT_SUFFIXES))
        fetched += weights
    return Sizes(
        packed=packed,
        weights=weights,
        fetched=fetched,
        archive=archive,
        compiles=not has_graphs and platform != "cpu",
    )


def _empty_store(environment: Mapping[str, str]) -> bool:
    """Whether a store in S3 has no entry. Then the first start has to compile."""
    store = environment.get("ENDPOINT_ARTIFACT_STORE", "")
    if not store.startswith("s3://") or environment.get("NEURON_COMPILED_ARTIFACTS"):
        return False
    try:
        return not items(f"{store.rstrip('/')}/{MANIFESTS}graph", "ENDPOINT_ARTIFACT_STORE")
    except SettingError:
        return True


def _object(uri: str) -> int:
    from handler.storage.s3_client import make_client
    from handler.storage.s3_errors import translated
    from handler.storage.storage_errors import NotFound

    bucket, _, key = uri.removeprefix("s3://").partition("/")
    try:
        with translated(uri, "s3:GetObject"):
            return int(make_client().head_object(Bucket=bucket, Key=key)["ContentLength"])
    except NotFound as error:
        raise SettingError("MODEL", f"there is no object {uri}", "Push it first: `neuron-endpoint push`.") from error
