"""Checks SigV4 signatures as AWS does, with botocore's own signer."""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from local_sagemaker.control.control_errors import ControlError

AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256\s+Credential=(?P<key>[^/,\s]+)/(?P<date>\d{8})/(?P<region>[^/,\s]+)/(?P<service>[^/,\s]+)/"
    r"aws4_request,\s*SignedHeaders=(?P<headers>[a-z0-9;\-]+),\s*Signature=(?P<signature>[0-9a-f]{64})"
)
SERVICES = frozenset({"sagemaker", "application-autoscaling"})
SKEW = timedelta(minutes=5)
TIME = "%Y%m%dT%H%M%SZ"


class SignatureError(ControlError):
    """A signature is rejected. ``code`` is AWS's."""

    status = 403

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class AccessKeys:
    access: str
    secret: str
    region: str

    def check(self, method: str, url: str, headers: Mapping[str, str], body: bytes, at: datetime) -> None:
        """Checks the signature of a request.

        :param url: the quoted URL as it was sent.
        :param headers: by lower-case name.
        :raises SignatureError: the signature is missing, of another key or scope, too old, or wrong.
        """
        if not (authorization := headers.get("authorization")):
            raise SignatureError("MissingAuthenticationTokenException", "Missing Authentication Token")
        parts = AUTHORIZATION.fullmatch(authorization.strip())
        if parts is None:
            raise SignatureError("IncompleteSignatureException", "Authorization header is not of the form of SigV4.")
        if not hmac.compare_digest(parts["key"].encode(), self.access.encode()):
            raise SignatureError(
                "UnrecognizedClientException", "The security token included in the request is invalid."
            )
        if parts["region"] != self.region or parts["service"] not in SERVICES:
            raise SignatureError(
                "InvalidSignatureException",
                f"Credential should be scoped to the region {self.region} and the service sagemaker, "
                f"not to {parts['region']} and {parts['service']}.",
            )
        signed = parts["headers"].split(";")
        stamp = headers.get("x-amz-date", "")
        self._check_time(stamp, parts["date"], at)
        if "host" not in signed or any(name not in headers for name in signed):
            raise SignatureError("InvalidSignatureException", "SignedHeaders must name host, and only what is sent.")
        expected = self._signature(method, url, {name: headers[name] for name in signed}, body, stamp, parts["service"])
        if not hmac.compare_digest(expected, parts["signature"]):
            raise SignatureError(
                "InvalidSignatureException",
                "The request signature we calculated does not match the signature you provided. "
                "Check your AWS Secret Access Key and signing method.",
            )

    def _check_time(self, stamp: str, date: str, at: datetime) -> None:
        try:
            signed_at = datetime.strptime(stamp, TIME).replace(tzinfo=UTC)
        except ValueError:
            raise SignatureError("IncompleteSignatureException", "X-Amz-Date must be given.") from None
        if not stamp.startswith(date) or abs(at - signed_at) > SKEW:
            raise SignatureError(
                "InvalidSignatureException", f"Signature expired: {stamp} is not within 5 minutes of {at:{TIME}}."
            )

    def _signature(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, stamp: str, service: str
    ) -> str:
        signer = SigV4Auth(Credentials(self.access, self.secret), service, self.region)
        request = AWSRequest(method=method, url=url, headers=dict(headers), data=body)
        request.context["timestamp"] = stamp
        canonical = signer.canonical_request(request)
        signature: str = signer.signature(signer.string_to_sign(request, canonical), request)
        return signature
