"""Finds out from S3 listings how large a deployment is, and whether the start has to compile."""

from __future__ import annotations

from collections.abc import Sequence

from handler.artifacts.store.object_names import MANIFESTS
from handler.config.endpoint_config import EndpointConfig
from handler.config.loading.model_file_rules import MOUNT
from handler.errors import SettingError
from handler.model.model_source import left_out_by
from handler.neuron.checkpoint.checkpoint_files import WEIGHT_SUFFIXES
from handler.neuron.checkpoint.checkpoint_reader import read_facts, second_formats
from handler.storage.storage_errors import AccessDenied, ArtifactError
from model_packaging.deployment.definition.limits import Sizes
from model_packaging.package.assembly import COMPILED, STORE
from model_packaging.package.package_item import Item
from model_packaging.package.sources import items


def sizes_of(package: str | None, config: EndpointConfig | None, platform: str) -> Sizes:
    """Returns the sizes of a deployment.

    :param package: the package's URI, as CreateModel gets it.
    :param config: the configuration as the container loads it. None: it cannot be read from here.
    :raises SettingError: a named location is empty.
    """
    archive = bool(package and package.endswith((".tar.gz", ".tgz")))
    listed = items(package, "MODEL") if package and not archive else []
    packed = _object(package) if package and archive else sum(item.size for item in listed)
    if config is None:
        return Sizes(packed=packed, archive=archive, known=False)
    model = config.model
    weights = fetched = 0
    known = True
    if package and model.startswith("/"):
        weights = packed if archive else _weights(listed)
    elif model.startswith("s3://"):
        try:
            files = items(model, "ENDPOINT_MODEL")
        except AccessDenied:  # the endpoint's role may read it
            files, known = [], False
        left_out = left_out_by(config)({item.path for item in files})
        weights, fetched = _weights(files), sum(item.size for item in files if item.path not in left_out)
    else:
        facts = None if model.startswith("/") else read_facts(model)
        weights = fetched = (facts.weight_bytes if facts else None) or 0
        known = weights > 0
    store = config.artifact_store or ""
    own = any(item.path.startswith((f"{COMPILED}/", f"{STORE}/")) for item in listed)
    own = own or bool(config.compiled_artifacts) or store.startswith(f"{model.rstrip('/')}/")
    saves = config.save_sharded_checkpoint or config.neuron_config.get("save_sharded_checkpoint")
    in_place = (config.compiled_artifacts or "").startswith(MOUNT)  # others are downloaded or written
    # Without unpacking it, an archive is assumed to have compiled graphs.
    has_graphs = archive or own or config.on_miss == "fail" or platform == "cpu"
    return Sizes(
        packed=packed,
        weights=weights,
        fetched=fetched,
        sharded=weights if saves and not in_place and platform != "cpu" else 0,
        archive=archive,
        compiles=not has_graphs,
        may_restore=not has_graphs and _filled(store),
        known=known,
    )


def _weights(files: Sequence[Item]) -> int:
    """The bytes of the weights that an engine reads. An export of optimum has none at the top, but in a folder."""
    again = second_formats([item.path for item in files])
    weights = [item for item in files if item.path.endswith(WEIGHT_SUFFIXES) and item.path not in again]
    return sum(item.size for item in [item for item in weights if "/" not in item.path] or weights)


def _filled(store: str) -> bool:
    """Whether a store has an entry, of any model. One that cannot be listed from here may have one."""
    if not store.startswith("s3://"):
        return bool(store)
    try:
        return bool(items(f"{store.rstrip('/')}/{MANIFESTS}graph", "ENDPOINT_ARTIFACT_STORE"))
    except SettingError:
        return False
    except ArtifactError:
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
