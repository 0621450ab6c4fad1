"""What a cluster would say of a manifest's fields, by Kubernetes' schemas and by those of the CRDs in schemas/."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import referencing

KUBERNETES = "1.34"
SCHEMAS = Path(__file__).parent / "schemas"
META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


def problems(document: dict[str, Any]) -> list[str]:
    """What is wrong with a manifest by its published schema; unknown fields are. Rules in CEL are not evaluated."""
    schema = SCHEMAS / f"{document['kind']}.json"
    if not schema.exists():
        try:
            kubernetes_validate.validate(document, KUBERNETES, strict=True)
        except (kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError) as error:
            return [str(error.message)]
        return []
    errors = [*_validator(schema).iter_errors(document), *_metadata().iter_errors(document.get("metadata"))]
    return [f"{'.'.join(map(str, error.path))}: {error.message}" for error in errors]


@cache
def _validator(schema: Path) -> jsonschema.Draft202012Validator:
    pinned = json.loads(schema.read_text(encoding="utf-8"))
    structure = _strict(pinned["openAPIV3Schema"])
    structure["properties"]["apiVersion"] = {"const": pinned["apiVersion"]}
    structure["required"] = sorted({"apiVersion", "kind", "metadata", *structure.get("required", ())})
    return jsonschema.Draft202012Validator(structure)


def _strict(node: Any) -> Any:
    """An API server drops fields that the schema does not have, and `kubectl apply` rejects them. So do these."""
    if isinstance(node, list):
        return [_strict(item) for item in node]
    if not isinstance(node, dict):
        return node
    strict = {name: _strict(value) for name, value in node.items()}
    if isinstance(node.get("properties"), dict) and "additionalProperties" not in node:
        strict["additionalProperties"] = bool(node.get("x-kubernetes-preserve-unknown-fields"))
    return strict


@cache
def _metadata() -> jsonschema.Draft202012Validator:
    folder = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema" / f"v{KUBERNETES}.0-local-strict"
    whole = json.loads((folder / "_definitions.json").read_text(encoding="utf-8"))
    registry: Any = referencing.Resource.from_contents(whole) @ referencing.Registry()
    return jsonschema.Draft202012Validator({"$ref": f"{whole['$id']}#/$defs/{META}"}, registry=registry)
