"""The connection to S3: over TLS, kept from request to request, and its requests as an S3 server wants them."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from handler.artifacts.restore.restore import RestoreOptions, restore
from handler.storage.retry import Retry
from handler.storage.storage_errors import CredentialsRefused, KmsDenied, StoreUnavailable
from handler.storage.transfer.s3_transfer import S3Source
from tests.handler.artifacts.restore_entry import Entry, in_bucket, make_entry, small_parts
from tests.handler.artifacts.s3_server import environment

OPTIONS = RestoreOptions(threads=1, retry=Retry(attempts=2, base=0.001, wait=5))
Serve = Callable[[type[BaseHTTPRequestHandler]], str]


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    small_parts(monkeypatch)
    for name, value in environment("http://127.0.0.1:1").items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def entry(tmp_path: Path) -> Entry:
    return make_entry(tmp_path / "bucket")


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """Key and certificate of 127.0.0.1, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    built = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    built = built.serial_number(1).not_valid_before(now - day).not_valid_after(now + day)
    signed = built.add_extension(address, critical=False).sign(key, hashes.SHA256())
    plain = serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    path = tmp_path / "certificate.pem"
    path.write_bytes(pem + signed.public_bytes(serialization.Encoding.PEM))
    return path


@pytest.fixture
def serve(certificate: Path) -> Iterator[Serve]:
    """Starts an HTTPS server with a handler; gives its URL."""
    servers: list[ThreadingHTTPServer] = []

    def start(handler: type[BaseHTTPRequestHandler]) -> str:
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        servers.append(server)
        return f"https://127.0.0.1:{server.server_address[1]}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def objects(entry: Entry, requests: list[tuple[tuple[str, int], dict[str, str]]]) -> type[BaseHTTPRequestHandler]:
    """Serves the entry's objects and notes from which connection what came."""

    class Objects(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            requests.append((self.client_address, dict(self.headers.items())))
            content = (entry.objects.parent / self.path.lstrip("/")).read_bytes()
            first, last = 0, len(content) - 1
            asked = self.headers.get("Range")
            if asked:
                first, last = map(int, asked.removeprefix("bytes=").split("-"))
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {first}-{last}/{len(content)}")
            else:
                self.send_response(200)
            self.send_header("Content-Length", str(last + 1 - first))
            self.end_headers()
            self.wfile.write(content[first : last + 1])

        def log_message(self, format: str, *args: object) -> None: ...

    return Objects


def refusing(status: int, body: str) -> type[BaseHTTPRequestHandler]:
    class Refusing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None: ...

    return Refusing


def test_over_tls_with_one_connection_and_signed_headers(
    entry: Entry, serve: Serve, certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[tuple[tuple[str, int], dict[str, str]]] = []
    monkeypatch.setenv("AWS_ENDPOINT_URL", serve(objects(entry, requests)))
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token")
    restore([entry.manifest], S3Source("bucket", in_bucket), tmp_path / "artifacts", options=OPTIONS)
    assert entry.is_restored(tmp_path / "artifacts")
    assert len({connection for connection, _ in requests}) == 1
    for _, headers in requests:
        assert "/us-east-1/s3/aws4_request" in headers["Authorization"]
        assert headers["X-Amz-Security-Token"] == "token"
        assert headers["Accept-Encoding"] == "identity"


def test_a_certificate_that_nobody_vouches_for_is_not_tried_again(
    entry: Entry, serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests: list[tuple[tuple[str, int], dict[str, str]]] = []
    monkeypatch.setenv("AWS_ENDPOINT_URL", serve(objects(entry, requests)))
    monkeypatch.delenv("AWS_CA_BUNDLE", raising=False)
    monkeypatch.delenv("REQUESTS_CA_BUNDLE", raising=False)
    with pytest.raises(StoreUnavailable, match="self-signed certificate; AWS_CA_BUNDLE names the CAs"):
        restore([entry.manifest], S3Source("bucket", in_bucket), tmp_path / "artifacts", options=OPTIONS)
    assert not requests


def test_a_denial_by_kms_names_the_permission(
    entry: Entry, serve: Serve, certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = "<Error><Code>AccessDenied</Code><Message>not authorized to perform: kms:Decrypt on it</Message></Error>"
    monkeypatch.setenv("AWS_ENDPOINT_URL", serve(refusing(403, body)))
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate))
    with pytest.raises(KmsDenied, match="allow kms:Decrypt on the bucket's KMS key"):
        restore([entry.manifest], S3Source("bucket", in_bucket), tmp_path / "artifacts", options=OPTIONS)


def test_without_credentials_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(CredentialsRefused, match="there are none"):
        S3Source("bucket", in_bucket)


def test_on_aws_the_region_of_the_settings_is_addressed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    source = S3Source("some-bucket", in_bucket)
    path, headers = source.signed("objects/ab/c d+~", "bytes=0-9")
    assert source.connect(1).host == "some-bucket.s3.eu-west-1.amazonaws.com"
    assert path == "/objects/ab/c%20d%2B~"
    assert "/eu-west-1/s3/aws4_request" in headers["Authorization"]
    assert headers["Range"] == "bytes=0-9"
