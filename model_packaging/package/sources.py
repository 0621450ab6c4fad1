"""Lists the files of a folder, an S3 prefix or a hub repository, and selects those that an engine reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from handler.errors import NoDirectory, SettingError
from handler.regular_files import regular_files
from model_packaging.package.package_item import Item, LocalFile, S3File

# The layers behind an embedding model (sentence-transformers). vLLM reads their .bin files, and serves a model without
# them if there are none (model_executor/models/adapters.py, _load_dense_weights).
DENSE = "*_Dense/pytorch_model.bin"
# The files that are downloaded from a repository. Older weight formats only if it has no safetensors.
HUB_FILES = ("*.json", "*.safetensors", "*.txt", "*.model", "*.py", "*.jinja", "*.tiktoken", "LICENSE*", DENSE)
HUB_OLDER = ("*.bin",)
# Files of a working folder or a clone that are not part of a model. `.env`, `.netrc` and similar contain secrets.
NEVER = (".*", "__pycache__", "*.pyc", "*.lock", "*.tmp", "*.incomplete", "endpoint-package.json")
CODE = "code"  # the folder of custom code, with whatever that loads
# The same weights in another format, and training states: a hub has them beside the safetensors.
MISTRAL = "consolidated*"
DOUBLE = (
    *("*.bin", "*.pth", "*.pt", "*.h5", "*.msgpack", "*.ot", "*.onnx", "*.gguf", MISTRAL),
    *("original/*", "onnx/*", "openvino/*"),
)
TRAINING = ("optimizer*", "scheduler.pt", "rng_state*", "trainer_state.json", "training_args.bin", "checkpoint-*/*")


def items(source: str, what: str, revision: str | None = None) -> list[Item]:
    """Returns every file of a source, with paths relative to it.

    :param source: a folder, s3://bucket/prefix, or a hub id `org/name`.
    :param what: the option's name for error messages: `MODEL`, `--artifacts`.
    :param revision: the revision of a hub repository.
    :raises SettingError: the source does not exist, is empty, or has links that lead out of it.
    """
    if revision and (source.startswith("s3://") or Path(source).is_dir()):
        raise SettingError("--revision", f"{source} is no repository of the hub", "Leave it out.")
    if source.startswith("s3://"):
        listed = _of_s3(source, what)
    elif Path(source).is_dir():
        listed = list(_of_folder(Path(source), what))
    elif "://" in source or source.count("/") != 1 or source.startswith((".", "/", "~")):
        raise NoDirectory(what, source)
    else:
        listed = list(_of_folder(hub_snapshot(source, revision, what), what))
    if not listed:
        raise SettingError(what, f"{source} has no files", "Give one that has.")
    return listed


def hub_snapshot(name: str, revision: str | None, what: str) -> Path:
    """Returns the local folder of a hub repository, downloaded if necessary. The hub client finds the token itself."""
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
    except ImportError:
        fix = "pip install huggingface_hub, or give a folder."
        raise SettingError(what, f"'{name}' is a hub id, and the hub's client is not installed", fix) from None
    try:
        snapshot = Path(snapshot_download(name, revision=revision, allow_patterns=list(HUB_FILES)))
        if not any(snapshot.glob("*.safetensors")):
            snapshot = Path(snapshot_download(name, revision=revision, allow_patterns=[*HUB_FILES, *HUB_OLDER]))
    except (HfHubHTTPError, LocalEntryNotFoundError, HFValidationError, OSError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
        fix = "Check the id, HF_TOKEN for a gated model, and HF_HUB_OFFLINE."
        problem = f"there is no directory {name}, and it cannot be fetched from the hub ({reason})"
        raise SettingError(what, problem, fix) from error
    return snapshot


def _of_folder(folder: Path, what: str) -> Iterator[Item]:
    """Yields the files of a folder. Follows links within the folder, and within the hub client's cache."""
    try:
        for path in regular_files(folder):
            real = path.resolve()
            yield Item(path.relative_to(folder).as_posix(), real.stat().st_size, LocalFile(real))
    except OSError as error:
        raise SettingError(what, f"{error.filename}: {error.strerror}", "Put a plain file there.") from None


def _of_s3(uri: str, what: str) -> list[Item]:
    from handler.storage.s3_client import make_client
    from handler.storage.s3_download import list_files, split_uri
    from handler.storage.s3_errors import translated

    bucket, prefix = split_uri(uri, what)
    with translated(uri, "s3:ListBucket"):
        client = make_client()
        files = list_files(client, bucket, prefix, what)
    return [Item(file.path, file.size, S3File(client, bucket, file.key, file.etag)) for file in files]


def select(paths: Iterable[str]) -> tuple[list[str], dict[str, str]]:
    """Returns the selected paths, sorted, and the others with the reason.

    Weights in another format are excluded only if there are safetensors. Those of Mistral's own format are often the
    only ones of a model.
    """
    ordered = sorted(paths)
    tops = [path for path in ordered if "/" not in path and path.endswith(".safetensors")]
    safetensors = not all(fnmatchcase(path, MISTRAL) for path in tops)
    taken, left = [], {}
    for path in ordered:
        if reason := _reason(path, safetensors):
            left[path] = reason
        else:
            taken.append(path)
    return taken, left


def _reason(path: str, safetensors: bool) -> str:
    if any(fnmatchcase(part, pattern) for part in PurePosixPath(path).parts for pattern in NEVER):
        return "no part of a model"
    if path.startswith(f"{CODE}/") or fnmatchcase(path, DENSE):
        return ""
    if any(fnmatchcase(path, pattern) for pattern in TRAINING):
        return "state of a training"
    # A draft's or another part's weights, in a folder of its own, may have that format alone.
    if safetensors and any(fnmatchcase(path, pattern) for pattern in DOUBLE if "/" in pattern or "/" not in path):
        return "the weights again, in another format"
    return ""
