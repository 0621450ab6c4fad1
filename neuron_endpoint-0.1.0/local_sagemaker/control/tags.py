"""The operations on tags of SageMaker resources."""

from __future__ import annotations

from local_sagemaker.control.control_errors import ValidationException
from local_sagemaker.control.listing import DEFAULT_PAGE
from local_sagemaker.control.protocol import OperationHandler
from local_sagemaker.control.registry import JsonDocument, Registry

MOST = 50


class Tags:
    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def operations(self) -> dict[str, OperationHandler]:
        return {"AddTags": self.add, "ListTags": self.list, "DeleteTags": self.delete}

    def add(self, params: JsonDocument) -> JsonDocument:
        with self._registry.lock:
            tags = self._tags(params["ResourceArn"])
            added = {tag["Key"]: tag["Value"] for tag in params["Tags"]}
            if len(tags.keys() | added.keys()) > MOST:
                raise ValidationException(f"A resource has at most {MOST} tags.")
            tags.update(added)
            self._registry.save()
            return {"Tags": _listed(tags)}

    def list(self, params: JsonDocument) -> JsonDocument:
        with self._registry.lock:
            tags = _listed(self._tags(params["ResourceArn"]))
        token = params.get("NextToken", "0")
        if not (token.isascii() and token.isdigit()):
            raise ValidationException("Invalid NextToken.")
        start = int(token)
        end = start + int(params.get("MaxResults", max(DEFAULT_PAGE, MOST)))
        return {"Tags": tags[start:end], "NextToken": str(end) if end < len(tags) else None}

    def delete(self, params: JsonDocument) -> None:
        with self._registry.lock:
            tags = self._tags(params["ResourceArn"])
            for key in params["TagKeys"]:
                tags.pop(key, None)
            self._registry.save()

    def _tags(self, arn: str) -> dict[str, str]:
        if self._registry.owner(arn) is None:
            raise ValidationException(f'Could not find resource "{arn}".')
        return self._registry.tags(arn)


def _listed(tags: dict[str, str]) -> list[JsonDocument]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]
