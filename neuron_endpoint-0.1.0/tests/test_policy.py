"""docs/policy.json: everything is limited to the two prefixes, to one account, and to what the code calls."""

from __future__ import annotations

import json
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
STATEMENTS = {one["Sid"]: one for one in json.loads((DOCS / "policy.json").read_text())["Statement"]}


def test_nothing_is_allowed_on_all_buckets_objects_or_keys() -> None:
    for statement in STATEMENTS.values():
        assert statement["Effect"] == "Allow"
        actions = statement["Action"]
        assert not any("*" in action for action in ([actions] if isinstance(actions, str) else actions))
        assert "BUCKET" in statement["Resource"] or "key/KEY" in statement["Resource"]
        assert "ACCOUNT" in json.dumps(statement)


def test_only_the_two_prefixes_are_listed() -> None:
    condition = STATEMENTS["ListModelsAndArtifacts"]["Condition"]
    assert condition["StringLike"]["s3:prefix"] == ["MODEL_PREFIX/*", "STORE_PREFIX/*"]
    assert not any("IfExists" in operator for operator in condition), "it would allow a list of the whole bucket"


def test_the_role_is_sagemakers_for_one_account() -> None:
    (statement,) = json.loads((DOCS / "trust-policy.json").read_text())["Statement"]
    assert statement["Principal"] == {"Service": "sagemaker.amazonaws.com"}
    assert statement["Condition"] == {"StringEquals": {"aws:SourceAccount": "ACCOUNT"}}
