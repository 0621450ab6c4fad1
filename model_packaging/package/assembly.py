"""Assembles a package: the model's files at the top, `compiled/` or `artifacts/`, `code/`, `endpoint.yaml`.

`compiled/` is a directory for NEURON_COMPILED_ARTIFACTS. `artifacts/` is an artifact store, from which a start restores
the entry with the right key. The settings in `endpoint.yaml`, which the container reads, name them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import unquote

from handler.artifacts.store.object_names import MANIFESTS
from handler.config.loading.config_loader import load
from handler.config.loading.setting_files import LMI_FILE, MODEL_FILE
from handler.errors import SettingError
from handler.neuron.checkpoint.adapter_files import CONFIG as ADAPTER
from handler.neuron.checkpoint.adapter_files import RANKS, AdapterProblem, check_adapter
from handler.neuron.checkpoint.checkpoint_reader import open_checkpoint
from handler.neuron.planning.file_examination import require_sound_files
from handler.storage.safe_paths import confined_all
from model_packaging.package.package_item import GeneratedItem, Item, LocalFile
from model_packaging.package.sources import CODE, items, select

MODEL_DIRECTORY = "/opt/ml/model"
COMPILED, STORE = "compiled", "artifacts"
OURS = (COMPILED, STORE, CODE)
GRAPHS = ("neuron_config.json", "model.pt")


@dataclass(frozen=True, slots=True)
class PackageInputs:
    """The inputs of a package.

    :param model: a folder, s3://bucket/prefix or a hub id.
    :param artifacts: compiled graphs: a directory with `neuron_config.json` and `model.pt`, or an artifact store.
    :param config: a settings document.
    :param code: a folder with `inference.py` and what it imports.
    :param revision: the revision of the hub's repository.
    """

    model: str
    artifacts: str | None = None
    config: str | None = None
    code: str | None = None
    revision: str | None = None


@dataclass(frozen=True, slots=True)
class Assembly:
    """The files of a package.

    :param left: files of the model's folder that are not included, with the reason.
    """

    items: tuple[Item, ...]
    left: Mapping[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        return sum(item.size for item in self.items)


def assemble(inputs: PackageInputs) -> Assembly:
    """Lists every file of the package. Copies nothing. Checks the model's files and settings as the start does.

    :raises SettingError: a part is missing or has the wrong type, or an endpoint would not start with the model or not
        load the adapter.
    :raises UnsafePath: two files would have the same name.
    """
    model = {item.path: item for item in items(inputs.model, "MODEL", inputs.revision)}
    packed = "endpoint-package.json" in model  # made by `pack`: taken as it is
    chosen, left = (sorted(set(model) - {"endpoint-package.json"}), {}) if packed else select(model)
    adapter = not {"config.json", "params.json"} & set(chosen)
    if adapter and ADAPTER not in chosen:
        names = ", ".join(sorted(model)[:6])
        fix = f"Give the folder of a model, or of an adapter with {ADAPTER}."
        raise SettingError("MODEL", f"{inputs.model} has no config.json (found: {names})", fix)
    files = [model[path] for path in chosen]
    if not packed and (taken := sorted({path.partition("/")[0] for path in chosen} & set(OURS) - {CODE})):
        raise SettingError("MODEL", f"it has a folder '{taken[0]}', which is the package's own", "Rename it.")
    settings: dict[str, object] = {}
    if inputs.artifacts:
        graphs, settings = _graphs(inputs.artifacts)
        files += graphs
    if inputs.code:
        files += _code(inputs.code)
    files = _with_settings(files, inputs.config, settings)
    if adapter:
        _require_sound_adapter(inputs.model)
    else:
        require_sound_files(load({}, model=inputs.model), "MODEL")
    confined_all(item.path for item in files)
    return Assembly(tuple(sorted(files, key=lambda item: item.path)), left)


def _require_sound_adapter(place: str) -> None:
    files = open_checkpoint(place)
    try:
        if files is not None:
            check_adapter(files, RANKS[-1])
    except AdapterProblem as problem:
        raise SettingError("MODEL", f"the adapter cannot be loaded: {problem}", "Correct the adapter.") from None


def _graphs(artifacts: str) -> tuple[list[Item], dict[str, object]]:
    if artifacts.startswith("file://"):
        artifacts = unquote(artifacts.removeprefix("file://"))
    graphs = items(artifacts, "--artifacts")
    paths = {item.path for item in graphs}
    if any(path.startswith(MANIFESTS) for path in paths):
        kept = [item for item in graphs if item.path.startswith((MANIFESTS, "objects/", "pins/"))]
        uri = f"file://{MODEL_DIRECTORY}/{STORE}"
        return _below(STORE, kept), {"artifact_store": uri, "on_miss": "fail"}
    if any(path.rpartition("/")[2] == GRAPHS[1] for path in paths) and GRAPHS[0] in paths:
        return _below(COMPILED, graphs), {"compiled_artifacts": f"{MODEL_DIRECTORY}/{COMPILED}"}
    problem = f"{artifacts} has neither {' and '.join(GRAPHS)} nor a store's {MANIFESTS}"
    raise SettingError("--artifacts", problem, "Give what a compile wrote, or an artifact store.")


def _code(folder: str) -> list[Item]:
    code = {item.path: item for item in _below(CODE, items(folder, "--code"))}
    chosen, _ = select(code)
    return [code[path] for path in chosen]


def _below(directory: str, moved: Iterable[Item]) -> list[Item]:
    return [replace(item, path=f"{directory}/{item.path}") for item in moved]


def _with_settings(files: list[Item], config: str | None, more: Mapping[str, object]) -> list[Item]:
    """Returns `endpoint.yaml`: the given one or the model's own, plus the settings that the package itself defines."""
    if not config and not more:
        return files
    beside = next((item for item in files if item.path == MODEL_FILE), None)
    if config and any(item.path == LMI_FILE for item in files):
        raise SettingError("--config", f"the model brings its own {LMI_FILE}", "Leave one of them out.")
    document = _document(config) if config else _document(_local(beside)) if beside else {}
    document.pop("model", None)  # the package is the model
    for name, value in more.items():
        if document.get(name, value) != value:
            problem = f"it sets {name} to {document[name]!r}, and the package has its own"
            raise SettingError("--config", problem, f"Leave out {name}, or --artifacts.")
    import yaml

    body = yaml.safe_dump({**document, **more}, sort_keys=False, width=120).encode()
    place = f"{MODEL_DIRECTORY}/{MODEL_FILE}"
    load({}, model=MODEL_DIRECTORY, fetch=lambda location: body if location == place else None)
    return [item for item in files if item is not beside] + [Item(MODEL_FILE, len(body), GeneratedItem(body))]


def _local(item: Item) -> str:
    if not isinstance(item.origin, LocalFile):
        raise SettingError("--config", f"the model's {MODEL_FILE} is in S3", "Give the settings with --config.")
    return str(item.origin.path.absolute())


def _document(location: str) -> dict[str, object]:
    """Reads a settings document: a path, an s3:// URI, or inline JSON, as ENDPOINT_CONFIG names it.

    :raises SettingError: it is unreadable, or has an unknown setting.
    """
    from handler.config.loading.document_text import parse
    from handler.config.loading.file_reader import Unreadable, fetch

    location = location.strip()
    load({"ENDPOINT_CONFIG": location})
    try:
        body = location.encode() if location.startswith("{") else fetch(location)
    except Unreadable as problem:
        raise SettingError("--config", f"{location[:200]!r}: {problem}", "Give a file, or inline JSON.") from None
    return dict(parse(body or b"", location))
