from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import boto3
import pytest
from botocore.exceptions import NoCredentialsError

from handler.artifacts.store.manifest_signature import KmsSigner, SecretSigner, Signature, Signer, signer
from handler.errors import SettingError
from handler.storage.storage_errors import CredentialsMissing, SignatureRefused

SECRET = "a secret of enough bytes"
BODY = b'{"key":"..."}'


def test_a_signature_is_taken_only_for_its_bytes_and_its_key() -> None:
    ours = SecretSigner(b"k" * 32)
    signature = ours.sign(BODY)
    ours.check(BODY, signature, "m")
    with pytest.raises(SignatureRefused, match="changed"):
        ours.check(BODY + b" ", signature, "m")
    with pytest.raises(SignatureRefused):
        SecretSigner(b"j" * 32).check(BODY, signature, "m")
    with pytest.raises(SignatureRefused, match="not signed"):
        ours.check(BODY, None, "m")


@pytest.mark.parametrize("value", ["", "00", "zz", "\ud800", "é" * 64])
def test_what_is_no_signature_is_refused(value: str) -> None:
    with pytest.raises(SignatureRefused):
        SecretSigner(b"k" * 32).check(BODY, Signature("hmac-sha256", "x", value), "m")


def test_another_algorithm_is_refused() -> None:
    signature = SecretSigner(b"k" * 32).sign(BODY)
    with pytest.raises(SignatureRefused, match="none"):
        SecretSigner(b"k" * 32).check(BODY, Signature("none", signature.key, signature.value), "m")


def test_neither_the_signature_nor_an_error_holds_the_secret(tmp_path: Path) -> None:
    made = signer("env:KEY", {"KEY": SECRET})
    assert made is not None
    assert SECRET not in repr(made.sign(BODY))
    with pytest.raises(SettingError) as caught:
        signer("env:KEY", {"KEY": "short-secret"})
    assert "short-secret" not in caught.value.message


def same(first: Signer | None, second: Signer | None) -> bool:
    assert first is not None
    assert second is not None
    second.check(BODY, first.sign(BODY), "m")
    return True


def test_a_key_from_a_variable_and_from_a_file_is_the_same(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(SECRET + "\n")
    assert same(signer("env:KEY", {"KEY": SECRET}), signer(f"file://{tmp_path}/key"))
    assert signer("") is None
    assert signer(" ") is None


@pytest.mark.parametrize("value", ["env:MISSING", "file:///no/such/file", SECRET, "arn:aws:s3:::bucket", "arn:aws:kms"])
def test_what_names_no_key_is_refused_without_being_shown(value: str) -> None:
    with pytest.raises(SettingError, match="ENDPOINT_ARTIFACT_SIGNING_KEY") as caught:
        signer(value, {})
    assert SECRET not in caught.value.message


def test_a_key_from_secrets_manager(s3: Any) -> None:
    client = boto3.session.Session().client("secretsmanager")
    arn = client.create_secret(Name="signing", SecretString=SECRET)["ARN"]
    assert same(signer("env:KEY", {"KEY": SECRET}), signer(arn))
    with pytest.raises(SettingError, match="no secret"):
        signer(arn.replace("signing", "another"))


def test_a_key_that_stays_in_kms(s3: Any) -> None:
    client = boto3.session.Session().client("kms")
    keys = [client.create_key(KeyUsage="GENERATE_VERIFY_MAC", KeySpec="HMAC_256")["KeyMetadata"]["Arn"] for _ in "ab"]
    ours, other = (signer(arn) for arn in keys)
    assert isinstance(ours, KmsSigner)
    assert isinstance(other, KmsSigner)
    large = BODY * 10_000
    signature = ours.sign(large)
    ours.check(large, signature, "m")
    with pytest.raises(SignatureRefused, match="changed"):
        ours.check(large + b" ", signature, "m")
    with pytest.raises(SignatureRefused):
        other.check(large, signature, "m")
    with pytest.raises(SignatureRefused, match="hexadecimal"):
        ours.check(large, Signature("kms-hmac-sha256", "x", "zz"), "m")
    with pytest.raises(SignatureRefused):
        ours.check(large, SecretSigner(b"k" * 32).sign(large), "m")


def test_a_kms_key_that_is_not_there(s3: Any) -> None:
    gone = signer("arn:aws:kms:us-east-1:123456789012:key/00000000-0000-0000-0000-000000000000")
    assert gone is not None
    with pytest.raises(SettingError, match="NotFound"):  # not StoreUnavailable, for which a start waits
        gone.sign(BODY)


def test_a_key_that_no_credentials_give_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boto3, "client", Mock(side_effect=NoCredentialsError))
    with pytest.raises(CredentialsMissing):
        signer("arn:aws:secretsmanager:us-east-1:123456789012:secret:s")
