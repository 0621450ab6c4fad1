"""docs/policy.json: all is limited to the two prefixes, to one account, and to what SageMaker and the code call.

docs/deployer-policy.json: what the commands call.
"""

from __future__ import annotations

import json
import re
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from model_packaging.compilation.compile_job_run import GROUP
from model_packaging.deployment.container_log import groups
from tests.model_packaging.fake_aws import FakeAws

DOCS = Path(__file__).parents[1] / "docs"
STATEMENTS = {one["Sid"]: one for one in json.loads((DOCS / "policy.json").read_text())["Statement"]}


# IAM knows no resource for these actions.
WITHOUT_RESOURCE = {"ecr:GetAuthorizationToken", "cloudwatch:PutMetricData"}


# What the commands call besides deployment (model_packaging/client.py, package/upload.py), and what AWS asks for beside
# the calls: a role and tags that are given along, the first scaling of an account, a key of volumes ("SageMaker API
# permissions" of SageMaker's developer guide; "Service-linked roles" of Application Auto Scaling's).
BESIDE = """sagemaker:InvokeEndpoint sagemaker:InvokeEndpointWithResponseStream sagemaker:InvokeEndpointAsync
s3:ListBucket s3:GetObject s3:PutObject s3:DeleteObject s3:AbortMultipartUpload iam:PassRole
iam:CreateServiceLinkedRole sagemaker:AddTags sagemaker:UpdateInferenceComponentRuntimeConfig
application-autoscaling:TagResource cloudwatch:TagResource kms:Decrypt kms:GenerateDataKey
kms:CreateGrant kms:DescribeKey"""


def test_a_deployer_may_make_the_calls_of_the_commands_and_no_others() -> None:
    """The fake AWS of the tests answers the calls that `deploy`, `delete`, `logs` and `compile --on` make."""
    answered = (name.rpartition("_") for name in vars(FakeAws) if re.fullmatch(r"[a-z][a-z_]*_[A-Z]\w+", name))
    calls = {f"{service.replace('_', '-')}:{operation}" for service, _, operation in answered}
    policy = json.loads((DOCS / "deployer-policy.json").read_text())["Statement"]
    allowed = [action for statement in policy for action in sorted(actions(statement))]
    assert len(allowed) == len(set(allowed))
    assert set(allowed) == {*calls, *BESIDE.split()} - {"sts:GetCallerIdentity"}, "it needs no permission"
    everywhere = {action for statement in policy if statement["Resource"] == "*" for action in actions(statement)}
    assert all(action.partition(":")[2].startswith(("List", "Describe")) for action in everywhere)


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
