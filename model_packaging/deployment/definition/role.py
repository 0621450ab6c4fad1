"""Finds the IAM role of the endpoint's instances: the given one, or the only one that SageMaker can assume."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import unquote

from handler.errors import SettingError
from model_packaging.deployment.aws import Aws

SERVICE = "sagemaker.amazonaws.com"
FIX = "Give one with --role; docs/policy.json has the least policy it needs."


def role_arn(aws: Aws, role: str | None) -> str:
    """Returns the ARN of the role.

    :param role: an ARN or a role's name. None searches for one.
    :raises SettingError: there is none, or there are several.
    """
    if role and role.startswith("arn:"):
        return role
    if role:
        return str(aws.iam.get_role(RoleName=role)["Role"]["Arn"])
    if own := _own(aws):
        return own
    names = [
        role
        for page in aws.iam.get_paginator("list_roles").paginate()
        for role in page["Roles"]
        if _trusts_sagemaker(role.get("AssumeRolePolicyDocument")) and "/aws-service-role/" not in role["Arn"]
    ]
    if len(names) == 1:
        return str(names[0]["Arn"])
    if not names:
        raise SettingError("--role", f"no role of this account trusts {SERVICE}", FIX)
    some = ", ".join(sorted(role["RoleName"] for role in names)[:6])
    raise SettingError("--role", f"{len(names)} roles trust {SERVICE} ({some})", "Choose one with --role.")


def _own(aws: Aws) -> str | None:
    """Returns the role of this process, if it runs in a SageMaker notebook."""
    arn = str(aws.sts.get_caller_identity()["Arn"])
    if ":assumed-role/" not in arn:
        return None
    name = arn.split("/")[1]
    from botocore.exceptions import ClientError

    try:
        role = aws.iam.get_role(RoleName=name)["Role"]
    except ClientError as error:
        if error.response["Error"]["Code"] not in {"AccessDenied", "NoSuchEntity"}:
            raise
        return None  # it may not read its own role, or acts with a role of another account
    return str(role["Arn"]) if _trusts_sagemaker(role.get("AssumeRolePolicyDocument")) else None


def _trusts_sagemaker(document: Any) -> bool:
    if isinstance(document, str):
        document = json.loads(unquote(document))
    statements = (document or {}).get("Statement", [])
    for statement in [statements] if isinstance(statements, dict) else statements:
        principal = statement.get("Principal")  # "*" is one, too
        services = principal.get("Service", []) if isinstance(principal, dict) else []
        if SERVICE in ([services] if isinstance(services, str) else services):
            return True
    return False
