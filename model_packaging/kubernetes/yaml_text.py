"""Writes manifests as readable YAML. A comment at the top explains how the values were computed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml

from model_packaging.kubernetes.workload import Workload


class _Dumper(yaml.SafeDumper):
    """Lists are indented, texts of several lines are blocks, and nothing is an anchor."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)


def as_text(work: Workload, documents: Iterable[dict[str, Any]]) -> str:
    head = [f"# {work.name}, made by `neuron-endpoint kubernetes`. The values were computed as follows:"]
    head += [f"#   {reason}" for reason in work.size.reasons]
    if work.secrets:
        pairs = " ".join(f"--from-literal={name}=..." for name in work.secrets)
        head.append(f"# It needs a Secret, which you create: kubectl create secret generic {work.name} {pairs}")
    bodies = [yaml.dump(one, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True) for one in documents]
    return "\n".join([*head, ""]) + "---\n".join(bodies)
