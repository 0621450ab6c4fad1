"""Signs and verifies manifests. `model.pt` is executable: without signatures, a writer of the bucket can run code here.

The key is an HMAC secret: in Secrets Manager, in KMS (which never reveals it), or in a file or variable. A manifest has
the digest of every file, so its signature covers all of them.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import msgspec

from handler.config.assignment import converted
from handler.config.values import KEY_FIX, KeyPlace, to_key_place
from handler.errors import EndpointError, SettingError
from handler.storage.retry import SERVICES
from handler.storage.s3_errors import CREDENTIAL_CODES, translated
from handler.storage.storage_errors import AccessDenied, SignatureRefused

SETTING = "ENDPOINT_ARTIFACT_SIGNING_KEY"
SHORTEST_KEY = 16
INVALID = "its signature is not the configured key's, or its content was changed"
# Signed messages begin with this purpose, so that a MAC for another purpose is never valid here.
PURPOSE = b"neuron-endpoint artifact manifest 1\n"


class Signature(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A signature. `value` is the MAC in hex. `key` identifies the key without revealing it."""

    algorithm: str
    key: str
    value: str


class Signer(Protocol):
    """Signs bytes, and rejects bytes that are not signed with the same key."""

    def sign(self, body: bytes) -> Signature: ...

    def check(self, body: bytes, signature: Signature | None, where: str) -> None:
        """Returns if the signature is valid.

        :raises SignatureRefused: there is no signature, or it is not this key's.
        """


class SecretSigner:
    """Signs with HMAC-SHA256 and a secret in this process."""

    def __init__(self, secret: bytes) -> None:
        if len(secret) < SHORTEST_KEY:
            raise SettingError(
                SETTING, f"the key has {len(secret)} bytes", f"Give at least {SHORTEST_KEY} random bytes."
            )
        self._secret = secret
        self._name = hashlib.sha256(PURPOSE + b"key\n" + secret).hexdigest()[:16]

    def sign(self, body: bytes) -> Signature:
        return Signature("hmac-sha256", self._name, hmac.new(self._secret, _message(body), hashlib.sha256).hexdigest())

    def check(self, body: bytes, signature: Signature | None, where: str) -> None:
        mac = _mac_of(signature, "hmac-sha256", where)
        if not hmac.compare_digest(self.sign(body).value.encode(), mac.encode(errors="surrogatepass")):
            raise SignatureRefused(where, INVALID)


class KmsSigner:
    """Signs with KMS (`GenerateMac`, `VerifyMac`) and a key of type HMAC_256. The secret never leaves KMS."""

    def __init__(self, arn: str) -> None:
        self._arn = arn
        self._client: Any = None

    def sign(self, body: bytes) -> Signature:
        reply = self._call("generate_mac", "kms:GenerateMac", Message=_message(body))
        return Signature("kms-hmac-sha256", self._arn, bytes(reply["Mac"]).hex())

    def check(self, body: bytes, signature: Signature | None, where: str) -> None:
        try:
            mac = bytes.fromhex(_mac_of(signature, "kms-hmac-sha256", where))
        except ValueError:
            raise SignatureRefused(where, "its signature is not hexadecimal") from None
        if not self._call("verify_mac", "kms:VerifyMac", where, Message=_message(body), Mac=mac).get("MacValid"):
            raise SignatureRefused(where, INVALID)

    def _call(self, operation: str, permission: str, where: str = "", **arguments: object) -> Mapping[str, Any]:
        import boto3

        with _aws_errors(self._arn, permission, "KMSInvalidMacException", SignatureRefused(where, INVALID)):
            if self._client is None:
                self._client = boto3.client("kms", region_name=self._arn.split(":")[3], config=SERVICES.config())
            reply: Mapping[str, Any] = getattr(self._client, operation)(
                KeyId=self._arn, MacAlgorithm="HMAC_SHA_256", **arguments
            )
            return reply


def signer(setting_value: str, environ: Mapping[str, str] = os.environ, setting: str = SETTING) -> Signer | None:
    """Returns the signer of a setting, or None for "".

    The setting is `arn:aws:secretsmanager:...`, `arn:aws:kms:...`, `file:///path` or `env:NAME`.

    :raises SettingError: the setting has another form, or the key is too short.
    :raises AccessDenied: the role may not read the secret.
    """
    value = setting_value.strip()
    if not value:
        return None
    place = converted(to_key_place, value, setting)
    if place is KeyPlace.KMS:
        return KmsSigner(value)
    if place is KeyPlace.SECRET:
        return SecretSigner(_secret(value))
    if place is KeyPlace.VARIABLE:
        return SecretSigner(environ.get(value.removeprefix(place), "").encode())
    path = Path(value.removeprefix("file://"))
    try:
        return SecretSigner(path.read_bytes().strip())
    except OSError as error:
        raise SettingError(setting, f"{path} cannot be read ({error.strerror})", f"{KEY_FIX}.") from None


def _secret(arn: str) -> bytes:
    import boto3

    missing = SettingError(SETTING, f"there is no secret {arn}", "Check the ARN and its region.")
    with _aws_errors(arn, "secretsmanager:GetSecretValue", "ResourceNotFoundException", missing):
        client = boto3.client("secretsmanager", region_name=arn.split(":")[3], config=SERVICES.config())
        reply = client.get_secret_value(SecretId=arn)
    return bytes(reply["SecretBinary"]) if "SecretBinary" in reply else reply["SecretString"].encode()


@contextmanager
def _aws_errors(arn: str, permission: str, known: str, meaning: EndpointError) -> Iterator[None]:
    """Raises errors of botocore inside the block as errors of this project.

    Only what may pass is StoreUnavailable, because a start waits for that.

    :param permission: the permission that the call needs.
    :param known: an error code of the service, which is raised as `meaning`.
    """
    from botocore.exceptions import ClientError

    with translated(arn, permission):
        try:
            yield
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
            if code == known:
                raise meaning from error
            if "AccessDenied" in code:
                raise AccessDenied(arn, permission, code) from error
            if status < 500 and code not in CREDENTIAL_CODES and "Throttling" not in code:
                fix = "Check the ARN, its region and the key's state."
                raise SettingError(SETTING, f"{arn} cannot be used ({code})", fix) from error
            raise


def _message(body: bytes) -> bytes:
    """Returns the signed message. It contains only a digest, because KMS accepts at most 4,096 bytes."""
    return PURPOSE + hashlib.sha256(body).digest()


def _mac_of(signature: Signature | None, algorithm: str, where: str) -> str:
    """:raises SignatureRefused: there is no signature with this algorithm."""
    if signature is None:
        raise SignatureRefused(where, "it is not signed", unsigned=True)
    if signature.algorithm != algorithm:
        raise SignatureRefused(where, f"it is signed with {signature.algorithm[:40]!r} and not {algorithm!r}")
    return signature.value
