"""docs/policy.json: all is limited to the two prefixes, to one account, and to what SageMaker and the code call."""

from __future__ import annotations

import json
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from model_packaging.compilation.compile_job_run import GROUP
from model_packaging.deployment.container_log import groups

DOCS = Path(__file__).parents[1] / "docs"
STATEMENTS = {one["Sid"]: one for one in json.loads((DOCS / "policy.json").read_text())["Statement"]}


# IAM knows no resource for these actions.
WITHOUT_RESOURCE = {"ecr:GetAuthorizationToken", "cloudwatch:PutMetricData"}


def actions(statement: dict[str, Any]) -> set[str]:
    return {statement["Action"]} if isinstance(statement["Action"], str) else set(statement["Action"])


def test_nothing_is_allowed_on_all_buckets_objects_keys_images_or_logs() -> None:
    for statement in STATEMENTS.values():
        assert statement["Effect"] == "Allow"
        assert not any("*" in action for action in actions(statement))
        if actions(statement) <= WITHOUT_RESOURCE:
            continue
        places = ("BUCKET", "key/KEY", "repository/REPOSITORY", "log-group:/aws/sagemaker/")
        assert any(place in statement["Resource"] for place in places)
        assert "ACCOUNT" in json.dumps(statement)


def test_sagemaker_can_pull_the_image_and_write_log_and_metrics() -> None:
    """Amazon SageMaker AI developer guide, "SageMaker AI roles": the execution role of CreateModel."""
    allowed = set().union(*map(actions, STATEMENTS.values()))
    pull = {"BatchCheckLayerAvailability", "GetDownloadUrlForLayer", "BatchGetImage", "GetAuthorizationToken"}
    log = {"CreateLogGroup", "CreateLogStream", "DescribeLogStreams", "PutLogEvents"}
    assert {f"ecr:{action}" for action in pull} | {f"logs:{action}" for action in log} <= allowed
    condition = STATEMENTS["WriteMetrics"]["Condition"]
    assert condition == {"StringLike": {"cloudwatch:namespace": "/aws/sagemaker/*"}}
    for group in (groups("chat"), groups("chat", component=True), GROUP):
        assert fnmatch(group, STATEMENTS["WriteLog"]["Resource"].partition("log-group:")[2])


def test_only_the_two_prefixes_are_listed() -> None:
    condition = STATEMENTS["ListModelsAndArtifacts"]["Condition"]
    assert condition["StringLike"]["s3:prefix"] == ["MODEL_PREFIX/*", "STORE_PREFIX/*"]
    assert not any("IfExists" in operator for operator in condition), "it would allow a list of the whole bucket"


def test_the_role_is_sagemakers_for_one_account() -> None:
    (statement,) = json.loads((DOCS / "trust-policy.json").read_text())["Statement"]
    assert statement["Principal"] == {"Service": "sagemaker.amazonaws.com"}
    assert statement["Condition"] == {"StringEquals": {"aws:SourceAccount": "ACCOUNT"}}
