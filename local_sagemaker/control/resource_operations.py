"""The operations that every kind of resource has: create, describe, list (filtered, sorted, in pages) and delete."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from operator import itemgetter
from typing import Any, ClassVar

from local_sagemaker.control.control_errors import ValidationException
from local_sagemaker.control.protocol import OperationHandler
from local_sagemaker.control.registry import KIND_NAMES, JsonDocument, Registry, now

DEFAULT_PAGE = 10
MOST_TAGS = 50
TOKEN_DIGITS = 20


class ResourceOperations(ABC):
    """The operations on the resources of one kind.

    :cvar kind: the kind in the registry and in ARNs.
    :cvar noun: the kind in the names of operations and members, for example ``Model`` of CreateModel and ModelName.
    :cvar listed: the member of the List operation's reply that has the documents.
    :cvar status: the member that has a document's status, if there is one.
    """

    kind: ClassVar[str]
    noun: ClassVar[str]
    listed: ClassVar[str]
    status: ClassVar[str] = ""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._name = f"{self.noun}Name"

    def operations(self) -> dict[str, OperationHandler]:
        return {
            f"Create{self.noun}": self.create,
            f"Describe{self.noun}": self.describe,
            f"List{self.noun}s": self.list,
            **self.changes(),
        }

    def changes(self) -> dict[str, OperationHandler]:
        """Returns the operations on an existing resource."""
        return {f"Delete{self.noun}": self.delete}

    @abstractmethod
    def create(self, params: JsonDocument) -> JsonDocument:
        """Creates a resource and returns its ARN."""

    def describe(self, params: JsonDocument) -> JsonDocument:
        with self._registry.lock:
            return self._found(params[self._name])

    def list(self, params: JsonDocument) -> JsonDocument:
        with self._registry.lock:
            kept = [document for document in self._selected(params) if self._matches(document, params)]
            key = {"Name": self._name, "Status": self.status or self._name}.get(
                params.get("SortBy", ""), "CreationTime"
            )
            kept.sort(key=itemgetter(self._name))
            kept.sort(key=itemgetter(key), reverse=params.get("SortOrder", "Descending") == "Descending")
            listed, token = _slice(kept, params, DEFAULT_PAGE)
            return {self.listed: listed, "NextToken": token}

    def delete(self, params: JsonDocument) -> None:
        with self._registry.lock:
            self._found(params[self._name])
            self._forget(params[self._name])

    def _selected(self, params: JsonDocument) -> Iterable[JsonDocument]:
        """Returns the documents that the List operation sorts and pages."""
        return self._registry.of(self.kind).values()

    def _matches(self, document: JsonDocument, params: JsonDocument) -> bool:
        if (part := params.get("NameContains")) and part.lower() not in document[self._name].lower():
            return False
        if self.status and params.get("StatusEquals") not in (None, document[self.status]):
            return False
        for member in ("CreationTime", "LastModifiedTime"):
            at: Any = document.get(member)
            before, after = params.get(f"{member}Before"), params.get(f"{member}After")
            if at is not None and ((before is not None and at > before) or (after is not None and at < after)):
                return False
        return True

    def _found(self, name: str) -> JsonDocument:
        return self._registry.get(self.kind, name)

    def _check_name(self, name: str) -> None:
        """Checks that no resource has this name.

        :raises ValidationException: one has.
        """
        if name in self._registry.of(self.kind):
            arn = self._registry.arn(self.kind, name)
            raise ValidationException(f'Cannot create already existing {KIND_NAMES[self.kind]} "{arn}".')

    def _change(self, document: JsonDocument, status: str) -> None:
        document[self.status] = status
        document["LastModifiedTime"] = now()

    def _report(self, name: str, status: str, reason: str | None, changes: JsonDocument | None = None) -> None:
        """Records the status that a resource has reached, and changes of its document, unless it is being deleted."""
        with self._registry.lock:
            document = self._registry.of(self.kind).get(name)
            if document is not None and document[self.status] != "Deleting":
                document.update(changes or {})
                document["FailureReason"] = reason[:1024] if reason else None
                self._change(document, status)

    def _forget(self, name: str) -> None:
        with self._registry.lock:
            self._registry.remove(self.kind, name)


def _slice(listed: list[JsonDocument], params: JsonDocument, most: int) -> tuple[list[JsonDocument], str | None]:
    """Returns the page of a list that NextToken and MaxResults ask for, and the token of the next one."""
    token = params.get("NextToken", "0")
    if not (token.isascii() and token.isdigit() and len(token) < TOKEN_DIGITS):
        raise ValidationException("Invalid NextToken.")
    start = int(token)
    end = start + int(params.get("MaxResults", most))
    return listed[start:end], str(end) if end < len(listed) else None


class Tags:
    """The operations on tags of SageMaker resources."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def operations(self) -> dict[str, OperationHandler]:
        return {"AddTags": self.add, "ListTags": self.list, "DeleteTags": self.delete}

    def add(self, params: JsonDocument) -> JsonDocument:
        with self._registry.lock:
            tags = self._tags(params["ResourceArn"])
            added = {tag["Key"]: tag["Value"] for tag in params["Tags"]}
            if len(tags.keys() | added.keys()) > MOST_TAGS:
                raise ValidationException(f"A resource has at most {MOST_TAGS} tags.")
            tags.update(added)
            return {"Tags": _listed(tags)}

    def list(self, params: JsonDocument) -> JsonDocument:
        with self._registry.lock:
            tags, token = _slice(_listed(self._tags(params["ResourceArn"])), params, MOST_TAGS)
            return {"Tags": tags, "NextToken": token}

    def delete(self, params: JsonDocument) -> None:
        with self._registry.lock:
            tags = self._tags(params["ResourceArn"])
            for key in params["TagKeys"]:
                tags.pop(key, None)

    def _tags(self, arn: str) -> dict[str, str]:
        if self._registry.owner(arn) is None:
            raise ValidationException(f'Could not find resource "{arn}".')
        return self._registry.tags(arn)


def _listed(tags: dict[str, str]) -> list[JsonDocument]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]
