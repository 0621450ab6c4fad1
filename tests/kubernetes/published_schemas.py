"""The schemas that Kubernetes and KServe publish: of the PyPI packages kubernetes-validate and kserve.

kserve's package has its OpenAPI models. It is installed without what its server needs, so nothing of it is imported:
what a model's class says of its fields is read from its source.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import referencing

KUBERNETES = "1.34"
SIMPLE = {"str": str, "int": int, "bool": bool, "float": (int, float), "object": object}
# Types of Kubernetes that kserve's models name otherwise than Kubernetes' own definitions end in.
POD_TEMPLATE = "io.k8s.api.core.v1.PodTemplateSpec"
AS_QUANTITY = ("V1beta1MetricQuantity", "ResourceQuantity")


def problems(document: dict[str, Any]) -> list[str]:
    """What is wrong with a manifest by its published schema; unknown fields are."""
    if document["apiVersion"].startswith("serving.kserve.io/"):
        group, version = document["apiVersion"].split("/")
        return list(_by_kserve(document, f"{version.capitalize()}{document['kind']}", "")) if group else []
    if document["kind"] == "LeaderWorkerSet":  # whose own schema no package has; its pods are Kubernetes' own
        template = document["spec"]["leaderWorkerTemplate"]
        parts = [("leader", template["leaderTemplate"]), ("worker", template["workerTemplate"])]
        return [text for name, part in parts for text in _by_definition(part, POD_TEMPLATE, name)]
    try:
        kubernetes_validate.validate(document, KUBERNETES, strict=True)
    except kubernetes_validate.ValidationError as error:
        return [f"{'.'.join(map(str, error.path))}: {error.message}"]
    return []


def _by_kserve(value: Any, kind: str, path: str) -> Any:
    container = re.fullmatch(r"(list|dict)\((?:str, )?(.+)\)|list\[(.+)\]", kind)
    if container:
        inner = container[2] or container[3]
        if not isinstance(value, dict if kind.startswith("dict") else list):
            yield f"{path}: no {kind}"
            return
        entries = value.items() if isinstance(value, dict) else enumerate(value)
        for name, entry in entries:
            yield from _by_kserve(entry, inner, f"{path}.{name}")
    elif kind in SIMPLE:
        if not isinstance(value, SIMPLE[kind]) or (isinstance(value, bool) and kind == "int"):
            yield f"{path}: {value!r} is no {kind}"
    elif kind in AS_QUANTITY:
        yield from _by_definition(value, "io.k8s.apimachinery.pkg.api.resource.Quantity", path)
    elif (fields := _model(kind)) is not None:
        yield from _by_model(value, fields, path)
    else:
        yield from _by_definition(value, _definition(kind), path)


def _by_model(value: Any, fields: tuple[dict[str, str], frozenset[str]], path: str) -> Any:
    types, required = fields
    if not isinstance(value, dict):
        yield f"{path}: no object"
        return
    for name in required - value.keys():
        yield f"{path}: {name} is required"
    for name, entry in value.items():
        if name not in types:
            yield f"{path}: unknown field {name}"
        else:
            yield from _by_kserve(entry, types[name], f"{path}.{name}")


@cache
def _model(kind: str) -> tuple[dict[str, str], frozenset[str]] | None:
    """The JSON names, types and required fields of a model class of kserve's; None where it has no such class."""
    return _models().get(kind)


@cache
def _models() -> dict[str, tuple[dict[str, str], frozenset[str]]]:
    spec = importlib.util.find_spec("kserve")
    assert spec is not None, "make setup installs kserve's models"
    assert spec.submodule_search_locations
    found = {}
    for file in (Path(spec.submodule_search_locations[0]) / "models").glob("*.py"):
        source = file.read_text(encoding="utf-8")
        for node in ast.parse(source).body:
            if not isinstance(node, ast.ClassDef):
                continue
            tables = {
                target.id: ast.literal_eval(statement.value)
                for statement in node.body
                if isinstance(statement, ast.Assign) and isinstance(target := statement.targets[0], ast.Name)
            }
            names = tables["attribute_map"]
            needed = re.findall(r"Invalid value for `(\w+)`, must not be `None`", source)
            types = {names[key]: kind for key, kind in tables["openapi_types"].items()}
            found[node.name] = types, frozenset(names[key] for key in needed)
    return found


@cache
def _definitions() -> dict[str, Any]:
    folder = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema" / f"v{KUBERNETES}.0-local-strict"
    document: dict[str, Any] = json.loads((folder / "_definitions.json").read_text(encoding="utf-8"))
    return document


def _definition(kind: str) -> str:
    """`V1Container` and `K8sIoApiAppsV1DeploymentStrategy` are Kubernetes' own."""
    plain = re.sub(r"^K8sIoApi", "", kind).lower()
    known = _definitions()["$defs"]
    ends = [name for name in known if "".join(name.split(".")[-3:]).lower() == plain]
    ends += [name for name in known if "".join(name.split(".")[-2:]).lower() == plain and ".core." in name]
    ends += [name for name in known if "".join(name.split(".")[-2:]).lower() == plain and ".meta." in name]
    assert ends, f"neither KServe nor Kubernetes has {kind}"
    return ends[0]


def _by_definition(value: Any, name: str, path: str) -> Any:
    whole = _definitions()
    registry: Any = referencing.Resource.from_contents(whole) @ referencing.Registry()
    checker = jsonschema.Draft202012Validator({"$ref": f"{whole['$id']}#/$defs/{name}"}, registry=registry)
    for error in checker.iter_errors(value):
        yield f"{path}.{'.'.join(map(str, error.path))}: {error.message}"
