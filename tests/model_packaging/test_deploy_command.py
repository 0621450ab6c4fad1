"""`deploy`, `delete`, `logs`, `store` and `bench` as a user types them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Never

import pytest

import sample_model
from handler.artifacts.store.artifact_store import ArtifactStore
from handler.artifacts.store.publication import CompileInputs
from handler.config.endpoint_config import EndpointConfig
from handler.errors import SettingError
from handler.neuron.hardware.instance_catalogue import find
from handler.storage.storage_errors import AccessDenied
from model_packaging.cli import COMMANDS
from model_packaging.deployment import aws as deployment_aws
from model_packaging.deployment import container_log
from model_packaging.deployment.definition import instance_size
from model_packaging.deployment.definition.instance_size import sizes_of
from model_packaging.deployment.definition.limits import MOST, Sizes, compute
from model_packaging.deployment.diagnosis import SYMPTOMS, diagnose
from tests.model_packaging.command import run
from tests.model_packaging.fake_aws import FakeAws, Switchboard

ROLE = "arn:aws:iam::123456789012:role/endpoint"
IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/neuron-endpoint:0.1"
SETTINGS = ("--set", "SM_VLLM_MAX_NUM_SEQS=4", "--set", "SM_VLLM_MAX_MODEL_LEN=512", "--set", "ENDPOINT_BLOCK_SIZE=32")
BASE = ("--image", IMAGE, "--instance", "ml.inf2.xlarge", "--role", ROLE, *SETTINGS)
QUICK = ("--poll", "0.1")
TOKEN = "hf_VerySecret1234"
CFN_LINT = Path(sys.executable).with_name("cfn-lint")


@pytest.fixture(scope="module")
def board() -> Switchboard:
    return Switchboard()


@pytest.fixture
def fake(board: Switchboard, s3: Any, monkeypatch: pytest.MonkeyPatch) -> FakeAws:
    """S3 is moto's; every other service is the fake."""
    board.fake = FakeAws()
    shared = deployment_aws.Aws(session=board.session)
    monkeypatch.setattr(deployment_aws.Aws, "client", lambda self, service: _client(shared, service))
    return board.fake


CLIENTS: dict[str, Any] = {}


def _client(aws: Any, service: str) -> Any:
    if service not in CLIENTS:
        CLIENTS[service] = aws._session.client(service, endpoint_url="http://127.0.0.1:9")
    return CLIENTS[service]


@pytest.fixture
def package(bucket: str) -> str:
    to = f"s3://{bucket}/models/sample/"
    assert run("push", str(sample_model.path()), to).exit_code == 0
    return to


def test_from_a_package_to_an_endpoint_and_back(fake: FakeAws, package: str) -> None:
    result = run("deploy", "chat", package, *BASE, "--json", *QUICK)
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    variant = told["endpoint_config"]["ProductionVariants"][0]
    assert variant["InferenceAmiVersion"] == "al2-ami-sagemaker-inference-neuron-2"
    assert variant["VolumeSizeInGB"] == 64
    assert told["model"]["PrimaryContainer"]["ModelDataSource"]["S3DataSource"]["S3Uri"] == package
    assert told["model"]["PrimaryContainer"]["Environment"]["ENDPOINT_INSTANCE"] == "ml.inf2.xlarge"
    assert set(fake.things["endpoint"]) == {"chat"}
    listed = json.loads(run("delete", "chat", "--dry-run", "--json").stdout)
    assert len(listed["there"]) == 5
    for json_too in ((), ("--json",)):
        refused = run("delete", "chat", *json_too, input="n\n")
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert "This is deleted:" in refused.stderr
    assert set(fake.things["endpoint"]) == {"chat"}
    assert run("delete", "chat", "--yes", *QUICK).exit_code == 0
    assert fake.state() == FakeAws().state()
    nothing = run("delete", "chat", "--yes")
    assert (nothing.exit_code, nothing.stdout) == (1, "Nothing carries the tag of chat.\n")


def test_a_dry_run_creates_nothing_and_shows_no_secret(fake: FakeAws, package: str) -> None:
    words = ("deploy", "chat", package, *BASE, "--set", f"HF_TOKEN={TOKEN}", "--dry-run")
    result = run(*words)
    assert result.exit_code == 0, result.output
    assert TOKEN not in result.output
    shown = json.loads(result.stdout)["model"]["PrimaryContainer"]["Environment"]
    assert (shown["HF_TOKEN"], shown["SM_VLLM_MAX_NUM_SEQS"]) == ("***", "4")
    assert fake.state() == FakeAws().state()


def test_the_container_has_the_instance_and_the_document_that_were_checked(
    fake: FakeAws, package: str, tmp_path: Path
) -> None:
    (tmp_path / "e.yaml").write_text("max_queue: 2\n")
    settings = ("--set", "ENDPOINT_INSTANCE=ml.trn1.32xlarge", "--set", f"ENDPOINT_CONFIG={tmp_path}/e.yaml")
    told = json.loads(run("deploy", "chat", package, *BASE, *settings, "--dry-run").stdout)
    environment = told["model"]["PrimaryContainer"]["Environment"]
    assert (environment["ENDPOINT_INSTANCE"], environment["ENDPOINT_CONFIG"]) == ("ml.inf2.xlarge", '{"max_queue":2}')


def test_two_documents_are_refused(fake: FakeAws, package: str, tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text("max_queue: 2\n")
    named = ("--set", f"ENDPOINT_CONFIG={tmp_path}/b.yaml")
    for words in (("deploy", "chat", package, *BASE, "--dry-run"), ("kubernetes", "chat", package, "--cpu", *BASE[:2])):
        refused = run(*words, "--config", f"{tmp_path}/a.yaml", *named)
        assert (refused.exit_code, "--config: ENDPOINT_CONFIG names" in refused.stderr) == (2, True), refused.output
        assert run(*words, "--config", f"{tmp_path}/b.yaml", *named).exit_code == 0


def test_an_asynchronous_endpoint_is_told_that_it_is_one(fake: FakeAws, package: str) -> None:
    words = ("deploy", "chat", package, *BASE, "--async-output", "s3://models/out/", "--dry-run")
    told = json.loads(run(*words).stdout)
    assert told["model"]["PrimaryContainer"]["Environment"]["ENDPOINT_ASYNCHRONOUS"] == "true"  # replies within an hour
    output = told["endpoint_config"]["AsyncInferenceConfig"]["OutputConfig"]
    assert output == {"S3OutputPath": "s3://models/out/", "S3FailurePath": "s3://models/out/"}
    kept = json.loads(run(*words, "--set", "ENDPOINT_ASYNCHRONOUS=false").stdout)
    assert kept["model"]["PrimaryContainer"]["Environment"]["ENDPOINT_ASYNCHRONOUS"] == "false"


def test_the_line_of_the_image_is_checked_and_given_to_the_container(fake: FakeAws, package: str) -> None:
    trn2 = ("--image", IMAGE, "--instance", "ml.trn2.48xlarge", "--set", "ENDPOINT_FUSED_QKV=true", *SETTINGS[:4])
    deploy = ("deploy", "chat", package, *trn2, "--role", ROLE, "--set", "SM_VLLM_TENSOR_PARALLEL_SIZE=1", "--dry-run")
    kubernetes = ("kubernetes", "chat", package, *trn2, "--set", "SM_VLLM_TENSOR_PARALLEL_SIZE=1")
    told = json.loads(run(*deploy).stdout)
    assert "line: the settings were checked for nxdi-0.16. --line names another" in told["limits"]["why"]
    assert "ENDPOINT_LINE" not in told["model"]["PrimaryContainer"]["Environment"]
    for words in (deploy, kubernetes):
        refused = run(*words, "--line", "native-0.24")
        assert (refused.exit_code, "native-0.24 does not have kernel switches" in refused.output) == (1, True)
        assert "is not a line" in run(*words, "--line", "nxdi").stderr
    told = json.loads(run(*deploy, "--line", "nxdi-0.16").stdout)
    assert told["model"]["PrimaryContainer"]["Environment"]["ENDPOINT_LINE"] == "nxdi-0.16"
    assert "name: ENDPOINT_LINE" in run(*kubernetes, "--line", "nxdi-0.16").stdout
    assert "--line goes with --instance" in run(*kubernetes[:3], "--cpu", *trn2[:2], "--line", "nxdi-0.16").stderr


def test_what_would_not_start_is_not_deployed(fake: FakeAws, package: str) -> None:
    result = run("deploy", "chat", package, *BASE, "--set", "SM_VLLM_PORT=1", "--json")
    assert result.exit_code == 1
    assert {finding["setting"] for finding in json.loads(result.stdout)["findings"]} == {"SM_VLLM_PORT"}
    assert fake.state() == FakeAws().state()


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (("chat", "/a/folder", *BASE), 1, "Push it first"),
        (("chat", *BASE), 1, "no model is named"),
        (("chat", "s3://b/x"), 2, "--instance and --image"),
        (("chat", "s3://b/x", *BASE, "--min", "1"), 2, "need --max"),
        (("chat", "s3://b/x", *BASE, "--set", "x"), 2, "NAME=VALUE"),
        (("chat", *BASE, "--isolated", "--set", "HF_MODEL_ID=org/model"), 2, "reaches neither S3 nor the hub"),
    ],
)
def test_half_a_request_is_refused(fake: FakeAws, words: tuple[str, ...], status: int, told: str) -> None:
    result = run("deploy", *words, "--no-check")
    assert result.exit_code == status, result.output
    assert told in result.stderr
    assert fake.state() == FakeAws().state()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ENDPOINT_MODEL", "org/model"),
        ("ENDPOINT_SPECULATIVE_MODEL", "org/draft"),
        ("ENDPOINT_LORA_MODULES", "a=org/adapter"),
        ("SM_VLLM_TOKENIZER", "org/name"),
        ("ENDPOINT_ARTIFACT_SIGNING_KEY", "arn:aws:secretsmanager:us-east-1:123456789012:secret:key"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318"),
    ],
)
def test_an_isolated_container_needs_no_network(fake: FakeAws, package: str, name: str, value: str) -> None:
    refused = run("deploy", "chat", package, *BASE, "--isolated", "--set", f"{name}={value}", "--dry-run")
    assert refused.exit_code != 0
    assert name in refused.output
    assert "isolat" in refused.output.lower()


def test_an_isolated_container_knows_that_it_is(fake: FakeAws, package: str) -> None:
    settings = ("ENDPOINT_NETWORK_ISOLATION=false", "OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318")
    words = [word for setting in settings for word in ("--set", setting)]
    result = run("deploy", "chat", package, *BASE, "--isolated", *words, "--dry-run")
    assert result.exit_code == 0, result.output
    model = json.loads(result.stdout)["model"]
    assert model["EnableNetworkIsolation"] is True
    assert model["PrimaryContainer"]["Environment"]["ENDPOINT_NETWORK_ISOLATION"] == "true"


def test_prefix_routing_takes_its_threshold_from_the_plan(fake: FakeAws, package: str) -> None:
    words = ("deploy", "chat", package, *BASE, "--routing", "prefix", "--dry-run")
    result = run(*words)
    assert result.exit_code == 0, result.output
    chosen = json.loads(result.stdout)["endpoint_config"]["ProductionVariants"][0]["RoutingConfig"]
    config = {"PrefixLength": 4096, "ConcurrencyThreshold": 4}
    assert chosen == {"RoutingStrategy": "PREFIX_AWARE", "PrefixAwareRoutingConfig": config}
    assert "enable_prefix_caching is off" in result.stderr
    cached = run(*words, "--set", "SM_VLLM_ENABLE_PREFIX_CACHING=true", "--set", "SM_VLLM_TENSOR_PARALLEL_SIZE=1")
    assert (cached.exit_code, cached.stderr) == (0, "")


@pytest.mark.skipif(not CFN_LINT.exists(), reason="needs cfn-lint, which moto brings")
@pytest.mark.slow
def test_the_templates_are_what_cloudformation_takes(fake: FakeAws, package: str, tmp_path: Path) -> None:
    scaled = ("--min", "0", "--max", "2", "--concurrency", "4")
    network = ("--subnet", "subnet-01234567", "--security-group", "sg-01234567")
    secret = ("--config", '{"hf_token": "hf_VerySecret1234"}')
    variants = (
        secret,
        ("--instances", "2", "--routing", "prefix", *network),
        ("--component", *scaled),
        ("--async-output", "s3://bucket/out", *scaled),
    )
    for number, more in enumerate(variants):
        result = run("deploy", "chat", package, *BASE, *more, "--set", f"HF_TOKEN={TOKEN}", "--template")
        assert result.exit_code == 0, result.output
        assert TOKEN not in result.stdout
        (tmp_path / f"{number}.json").write_text(result.stdout)
    template = json.loads(result.stdout)
    assert template["Parameters"]["SecretHfToken"]["NoEcho"] is True
    template["Resources"]["Model"]["Properties"]["PrimaryContainer"]["Imge"] = "x"
    (tmp_path / "broken.json").write_text(json.dumps(template))
    words: list[str | Path] = [CFN_LINT, "--format", "parseable", *sorted(tmp_path.glob("*.json"))]
    found = subprocess.run(words, capture_output=True, text=True).stdout
    assert found
    assert all(line.startswith(str(tmp_path / "broken.json")) for line in found.splitlines()), found
    assert fake.state() == FakeAws().state()


def test_a_log_that_is_longer_than_what_is_read_says_so(fake: FakeAws, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.log = ["one", "two", "three"]
    assert "Only the lines until" not in run("logs", "chat").stderr
    monkeypatch.setattr(container_log, "PAGES", 1)
    result = run("logs", "chat")
    assert "three" not in result.stdout
    assert "Only the lines until" in result.stderr


def test_logs_and_what_they_mean(fake: FakeAws) -> None:
    fake.log = ["[   1.0 s] fetch model: 0.5 s", "OSError: [Errno 28] No space left on device", "later"]
    lines = [json.loads(line) for line in run("logs", "chat", "--json").stdout.splitlines()]
    assert [line["text"] for line in lines] == fake.log
    assert "Fix: Raise --volume" in run("logs", "chat", "--explain").stdout
    fake.log = ["all is well"]
    assert "None of the known symptoms" in run("logs", "chat", "--explain").stdout


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("serve: ENDPOINT_MODL: is not a setting", "refuses a setting: ENDPOINT_MODL: is not a setting"),
        ("NRT: driver version 2.19 is not supported by this nrt, upgrade", "driver does not fit"),
        ("nrt_init failed: no neuron device available", "no Neuron device"),
        ("Failed to allocate 1.2GB on ND 0:NC 1 HBM", "core's memory is full"),
        ("GatedRepoError: 403 Client Error. Cannot access gated repo for url", "gated"),
        ("botocore: User: arn:x is not authorized to perform: s3:ListBucket on resource", "lacks s3:ListBucket"),
        ("EndpointConnectionError: Could not connect to the endpoint URL: https://s3", "reaches no S3"),
        ("exec /usr/bin/env: exec format error", "another processor"),
        (
            "Unable to provision requested ML compute capacity due to InsufficientInstanceCapacity error.",
            "no such instance",
        ),
        ("ResourceLimitExceeded: The account-level service limit 'ml.trn2.48xlarge for endpoint usage'", "quota"),
        (
            "The primary container for production variant AllTraffic did not pass the ping health check.",
            "not ready in time",
        ),
        # An engine that has served is told from a start that failed.
        (
            "[  61.0 s] failed: the engine's process was ended by the kernel, because memory ran out",
            "the host's memory is full",
        ),
        (
            "[  61.0 s] failed: The start failed at 'start engine': the engine's process was ended by SIGKILL, often "
            "because memory ran out. Use an instance with more memory.",
            "the host's memory is full",
        ),
        ("[  61.0 s] failed: the engine's process ended", "the engine failed while it served"),
        ("[  61.0 s] failed: the engine's process was ended by SIGSEGV", "the engine failed while it served"),
        ("[  61.0 s] failed: the engine made no progress for 30 s", "the engine failed while it served"),
        ("[  61.0 s] failed: The start failed at 'start engine': ValueError: x", "the container could not start"),
    ],
)
def test_each_symptom_has_its_cause(line: str, cause: str) -> None:
    found = diagnose("", ["INFO fine", line])
    assert found is not None
    assert cause in found.cause
    assert found.fix.endswith(".")


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        ("[  61.0 s] failed: start engine: NotImplementedError: Cannot copy out of meta tensor; no data!", "SHARDED"),
        ("ImportError: cannot import name 'default_dump_dir' from 'triton.runtime.cache'", "triton 3.0.0"),
    ],
)
def test_the_errors_that_the_guides_quote_have_their_workaround(line: str, fix: str) -> None:
    found = diagnose("", [line])
    assert found is not None
    assert fix in found.fix


def test_an_ordinary_start_has_no_symptom() -> None:
    log = [
        "[   0.4 s] listening on port 8080; GET /ping shows the stage",
        "[   2.0 s] check configuration: 1.5 s",
        "INFO container: loading repositories of tokens, timeout 60",
        "[  90.0 s] ready. Try:",
    ]
    assert diagnose("", log) is None


def test_evidence_holds_no_token() -> None:
    found = diagnose("", [f"serve: HF_TOKEN={TOKEN}aaaaaaaa is wrong"])
    assert found is not None
    assert TOKEN not in found.evidence + found.cause


def test_every_symptom_is_in_the_documentation() -> None:
    text = (Path(__file__).parents[2] / "docs" / "troubleshooting.md").read_text()
    for symptom in SYMPTOMS:
        assert symptom.fix in text, symptom.pattern


def test_the_document_may_name_the_model_and_the_store(
    fake: FakeAws, package: str, bucket: str, s3: Any, tmp_path: Path
) -> None:
    settings = tmp_path / "endpoint.yaml"
    settings.write_text(f"model: {package}\nartifact_store: s3://{bucket}/store\n")
    s3.put_object(Bucket=bucket, Key="endpoint.yaml", Body=settings.read_bytes())
    named = json.loads(run("deploy", "chat", *BASE, "--set", f"ENDPOINT_MODEL={package}", "--dry-run").stdout)
    for place in (str(settings), f"s3://{bucket}/endpoint.yaml"):
        result = run("deploy", "chat", *BASE, "--config", place, "--dry-run")
        assert result.exit_code == 0, result.output
        assert json.loads(result.stdout)["limits"] == named["limits"]
    settings.write_text(f"model: {package}\nmax_model_len: 0\n")
    refused = run("deploy", "chat", *BASE, "--config", str(settings), "--json")
    assert refused.exit_code == 1
    assert "max_model_len" in refused.stdout
    settings.write_text("max_model_len: 512\n")
    assert "no model is named" in run("deploy", "chat", *BASE[:-6], "--config", str(settings)).stderr
    assert fake.state() == FakeAws().state()


def test_a_compiled_405b_is_deployed_on_trn2() -> None:
    trn2, size = find("trn2.48xlarge"), 810 * 10**9
    assert compute(Sizes(packed=size, weights=size), trn2).download < MOST
    assert compute(Sizes(weights=size, fetched=size), trn2).startup < MOST
    small = find("trn1.2xlarge")  # it has one disk
    assert compute(Sizes(packed=size // 10), small).download > compute(Sizes(packed=size // 10), trn2).download


def test_a_store_of_other_models_gives_the_time_to_compile() -> None:
    trn2, size = find("trn2.48xlarge"), 16 * 10**9
    compiles = compute(Sizes(weights=size, fetched=size, compiles=True), trn2)
    perhaps = compute(Sizes(weights=size, fetched=size, compiles=True, may_restore=True), trn2)
    assert perhaps.startup == compiles.startup
    assert "if the store lacks its graphs" in perhaps.reasons[1]
    # Whoever has compiled a large model is not told to compile it.
    assert compute(Sizes(weights=9 * size, fetched=9 * size, compiles=True, may_restore=True), trn2).startup == MOST


def test_a_start_of_unknown_size_gets_the_longest_limit(fake: FakeAws, bucket: str) -> None:
    large = ("--image", IMAGE, "--instance", "ml.inf2.48xlarge", "--role", ROLE, "--dry-run")
    hub = ("--set", "ENDPOINT_MODEL=org/not-on-this-machine")
    limits = json.loads(run("deploy", "chat", *large, *hub, "--no-check").stdout)["limits"]
    assert limits["startup"] == MOST
    assert limits["volume"] > 384  # as much as the devices hold
    assert "--startup-seconds" in limits["why"][1]
    chosen = json.loads(run("deploy", "chat", *large, *hub, "--no-check", "--startup-seconds", "900").stdout)["limits"]
    assert chosen["startup"] == 900
    unread = run("deploy", "chat", *large, "--config", "s3://no-such-bucket-of-ours/endpoint.yaml")
    assert "The settings are not checked: s3://no-such-bucket-of-ours/endpoint.yaml: " in unread.stderr
    assert json.loads(unread.stdout)["limits"]["startup"] == MOST
    missing = run("deploy", "chat", *large, "--config", f"s3://{bucket}/endpoint.yaml")
    assert (missing.exit_code, "there is no such file" in missing.output) == (1, True)


def test_a_model_that_only_the_role_may_list_is_deployed_unchecked(fake: FakeAws, bucket: str) -> None:
    def denied(source: str, what: str) -> Never:
        raise AccessDenied(source, "s3:ListBucket")

    words = ("deploy", "chat", "--image", IMAGE, "--instance", "ml.inf2.48xlarge", "--role", ROLE, "--dry-run")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(instance_size, "items", denied)
        result = run(*words, "--set", f"ENDPOINT_MODEL=s3://{bucket}/llama", "--no-check")
    assert result.exit_code == 0, result.output
    limits = json.loads(result.stdout)["limits"]
    assert limits["startup"] == MOST
    assert "the model's size is not known here" in limits["why"][1]


def test_limits_grow_with_sizes_and_stay_within_the_services() -> None:
    inf2, trn2 = find("inf2.48xlarge"), find("trn2.48xlarge")
    small = compute(Sizes(packed=10**9, weights=10**9), inf2)
    large = compute(Sizes(packed=140 * 10**9, weights=140 * 10**9), inf2)
    assert 60 <= small.download < large.download <= MOST
    assert small.startup < large.startup <= MOST
    assert large.volume is not None
    assert large.volume >= 140
    assert compute(Sizes(packed=140 * 10**9), trn2).volume is None
    assert compute(Sizes(packed=10**9), inf2, download=77, startup=3600, volume=99).volume == 99
    for sizes, words in (
        (Sizes(packed=1800 * 10**9), "longer than an hour"),
        (Sizes(packed=400 * 10**9, archive=True), "longer than an hour"),
        (Sizes(weights=140 * 10**9, compiles=True), "to compile and start"),
        (Sizes(fetched=1800 * 10**9), "to start, SageMaker waits 60. --startup-seconds 3600 deploys"),
    ):
        with pytest.raises(Exception, match=words):
            compute(sizes, trn2)
    with pytest.raises(Exception, match="NVMe"):
        compute(Sizes(packed=1), trn2, volume=100)


@pytest.mark.parametrize(
    ("settings", "platform", "written"),
    [
        ({"save_sharded_checkpoint": True}, "inf2", True),
        ({"neuron_config": {"save_sharded_checkpoint": True}}, "inf2", True),
        ({"save_sharded_checkpoint": True, "compiled_artifacts": "s3://bucket/compiled"}, "inf2", True),
        ({"save_sharded_checkpoint": True, "compiled_artifacts": "/opt/ml/model/compiled"}, "inf2", False),
        ({"save_sharded_checkpoint": True}, "cpu", False),
        ({}, "inf2", False),
    ],
)
def test_sharded_weights_are_on_the_disk_too(
    fake: FakeAws, package: str, settings: dict[str, Any], platform: str, written: bool
) -> None:
    sizes = sizes_of(package, EndpointConfig(**settings), platform)
    assert sizes.sharded == (sizes.weights if written else 0)
    plain, sharded = (compute(Sizes(packed=140 * 10**9, sharded=size), find("inf2.48xlarge")) for size in (0, 10**11))
    assert (plain.volume, sharded.volume) == (160, 260)
    with pytest.raises(SettingError, match="--volume 512 deploys"):
        compute(Sizes(packed=250 * 10**9, sharded=250 * 10**9), find("inf2.48xlarge"))


@pytest.mark.slow
def test_a_start_compiles_unless_there_are_graphs(s3: Any, bucket: str, package: str, tmp_path: Path) -> None:
    assert sizes_of(package, EndpointConfig(), "inf2").compiles
    store = f"s3://{bucket}/store"
    saved = EndpointConfig(artifact_store=store)
    assert sizes_of(package, saved, "inf2").compiles  # nothing is in it yet
    (tmp_path / "model.pt").write_bytes(b"graph")
    ArtifactStore.open(store).publish(tmp_path, CompileInputs("ab" * 32, "graph", {}))
    shared = sizes_of(package, saved, "inf2")
    assert (shared.compiles, shared.may_restore) == (True, True)  # it may be another model's
    assert not sizes_of(package, EndpointConfig(artifact_store=store, on_miss="fail"), "inf2").compiles
    assert sizes_of(package, EndpointConfig(artifact_store="s3://another-accounts/store"), "inf2").may_restore
    assert not sizes_of(None, EndpointConfig(model=package, artifact_store=f"{package}artifacts"), "inf2").compiles
    plain = sizes_of(None, EndpointConfig(model=package), "inf2")
    assert plain.fetched > plain.weights > 5_000_000
    bucket, _, prefix = package.removeprefix("s3://").partition("/")
    s3.put_object(Bucket=bucket, Key=f"{prefix}original/consolidated.00.pth", Body=b"again")
    assert sizes_of(None, EndpointConfig(model=package), "inf2") == plain, "Meta's format is not downloaded"


@pytest.fixture
def store(tmp_path: Path) -> str:
    uri = f"file://{tmp_path}/store"
    for number, key in enumerate(("ab" * 32, "cd" * 32)):
        made = tmp_path / f"made-{number}"
        made.mkdir()
        (made / "model.pt").write_bytes(b"graph %d" % number)
        ArtifactStore.open(uri).publish(made, CompileInputs(key, "graph", {"platform": "trn2"}, compile_seconds=60.0))
    return uri


def test_a_stores_entries_are_listed_verified_pinned_and_deleted(store: str, tmp_path: Path) -> None:
    listed = json.loads(run("store", "ls", store, "--json").stdout)["entries"]
    assert {entry["key"][:2] for entry in listed} == {"ab", "cd"}
    assert "abababab" in run("store", "ls", store).stdout
    assert run("store", "verify", store).exit_code == 0
    assert run("store", "pin", store, "abab").exit_code == 0
    assert run("store", "rm", store, "abab").exit_code == 1
    assert run("store", "rm", store, "--keep", "0", "--dry-run").stdout == f"Would delete graph {'cd' * 32}.\n"
    assert run("store", "unpin", store, "abab").exit_code == 0
    assert run("store", "rm", store, "abab").exit_code == 0
    assert [entry["key"][:2] for entry in json.loads(run("store", "ls", store, "--json").stdout)["entries"]] == ["cd"]
    assert "no entry's key begins" in run("store", "rm", store, "ff").stderr
    for path in (tmp_path / "store" / "objects").rglob("*"):
        if path.is_file():
            path.write_bytes(b"damaged")
    assert run("store", "verify", store).exit_code == 1


def test_every_command_has_help_and_is_completed() -> None:
    for name in COMMANDS:
        result = run(name, "--help")
        assert result.exit_code == 0, name
        assert "Usage:" in result.stdout
    assert "_NEURON_ENDPOINT_COMPLETE=bash_complete" in run("completion", "bash").stdout
    code = "from model_packaging.cli import main; main(prog_name='neuron-endpoint')"
    environ = {"_NEURON_ENDPOINT_COMPLETE": "bash_complete", "COMP_WORDS": "neuron-endpoint dep", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**environ, "PYTHONPATH": str(Path(__file__).parents[2]), "PATH": ""},
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "plain,deploy"


def test_credentials_that_are_not_there_exit_3(aws: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    result = run("delete", "chat", "--yes")
    assert result.exit_code == 3
    assert "no AWS credentials" in result.stderr


def test_the_package_of_this_test_is_plain(tmp_path: Path) -> None:
    """The sample model is packed from a checkout; nothing of git or Python goes with it."""
    shutil.copytree(sample_model.path(), tmp_path / "m")
    made = json.loads(run("pack", str(tmp_path / "m"), "--to", str(tmp_path / "out"), "--json").stdout)
    assert made["excluded"] == {}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--prefix-threshold", "4"), "go with --routing prefix"),
        (("--async-output", "models/out"), "'models/out' is not in S3. Write s3://bucket/prefix/"),
    ],
)
def test_an_option_that_would_have_no_effect_or_fail_is_told(
    fake: FakeAws, package: str, words: tuple[str, ...], told: str
) -> None:
    result = run("deploy", "chat", package, *BASE, *words, "--dry-run")
    assert result.exit_code != 0
    assert told in result.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--body", "q.json", "--max-tokens", "5"), "--max-tokens goes with PROMPT"),
        (("--body", "q.json", "--temperature", "0"), "--temperature goes with PROMPT"),
        (("--async", "s3://models/q.json", "--system", "S"), "--system goes with PROMPT"),
        (("Hello", "--async-seconds", "900"), "--async-seconds goes with --async"),
        (("Hello", "--wait"), "--wait goes with --async"),
        (("Hello", "--async", "s3://models/q.json", "--longest", "9"), "--longest goes with --wait"),
    ],
)
def test_an_option_of_invoke_without_an_effect_is_wrong_usage(
    fake: FakeAws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "q.json").write_text('{"prompt": "x"}')
    result = run("invoke", "chat", *words)
    assert (result.exit_code, told in result.stderr) == (2, True), result.output


@pytest.mark.parametrize("option", ["--explain", "--timeline"])
def test_no_log_is_no_symptom(fake: FakeAws, option: str) -> None:
    fake.log = []
    result = run("logs", "chat", option)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "No container of chat has written anything" in result.stderr
