"""Deployments against SageMaker's own service model: every call validated, every interruption survived."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from botocore.model import StringShape, StructureShape

from container.telemetry.event_log import JsonFormatter
from handler.errors import SettingError
from model_packaging.deployment.apply import Application
from model_packaging.deployment.aws import Aws, create
from model_packaging.deployment.definition.limits import InstanceLimits
from model_packaging.deployment.definition.request import DeploymentRequest, Network, ScalingRequest
from model_packaging.deployment.definition.resources import TAG, resources
from model_packaging.deployment.definition.role import role_arn
from model_packaging.deployment.definition.routing import STRATEGIES, Routing
from model_packaging.deployment.deployment_errors import DeploymentFailed, NotOurs, StillGoing
from model_packaging.deployment.removal import Removal
from model_packaging.deployment.watch import PollInterval
from tests.model_packaging.fake_aws import FakeAws, Switchboard

GOLDEN = Path(__file__).parent / "golden"
ROLE = "arn:aws:iam::123456789012:role/endpoint"
TRUST = {"Statement": [{"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}}]}

PLAIN: dict[str, Any] = {
    "name": "chat",
    "image": "123456789012.dkr.ecr.us-east-1.amazonaws.com/neuron-endpoint:0.1",
    "role": ROLE,
    "instance": "ml.inf2.48xlarge",
    "limits": InstanceLimits(600, 1800, 128),
    "model": "s3://bucket/models/one",
    "environment": {"ENDPOINT_INSTANCE": "ml.inf2.48xlarge"},
    "ami": "al2-ami-sagemaker-inference-neuron-2",
}
# name -> what differs from PLAIN. Together they make every call that a deployment can make.
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "scaled": {
        "instances": 2,
        "scaling": ScalingRequest(2, 6, 8.0),
        "routing": Routing("prefix", 8192, 16),
        "alarm_topic": "arn:aws:sns:us-east-1:123456789012:x",
    },
    "component": {
        "component": True,
        "instance": "ml.trn2.48xlarge",
        "limits": InstanceLimits(600, 1800, None),
        "scaling": ScalingRequest(0, 4, 16.0),
        "network": Network(("subnet-1", "subnet-2"), ("sg-1",)),
        "kms_key": "arn:aws:kms:us-east-1:123456789012:key/x",
        "tags": {"team": "search"},
    },
    "async": {
        "async_output": "s3://bucket/out/",
        "model": "s3://bucket/model.tar.gz",
        "scaling": ScalingRequest(0, 2, 5.0),
    },
}


@pytest.fixture(scope="module")
def switchboard() -> Switchboard:
    return Switchboard()


@pytest.fixture
def fake(switchboard: Switchboard) -> FakeAws:
    switchboard.fake = FakeAws()
    return switchboard.fake


@pytest.fixture(scope="module")
def aws(switchboard: Switchboard) -> Aws:
    return Aws(session=switchboard.session)


def pace(longest: float = 1000.0) -> PollInterval:
    now = iter(range(10**9))
    return PollInterval(poll=1, longest=longest, sleep=lambda seconds: None, clock=lambda: float(next(now)))


def wanted(variant: str, **more: Any) -> DeploymentRequest:
    return DeploymentRequest(**{**PLAIN, **VARIANTS[variant], **more})


def deploy(aws: Aws, what: DeploymentRequest) -> list[str]:
    told: list[str] = []
    Application(aws, resources(what), told.append, pace()).run()
    return told


def remove(aws: Aws, name: str = "chat") -> list[str]:
    return Removal(aws, name).run(lambda line: None, pace())


def strangers(fake: FakeAws) -> None:
    """What a careless deletion would take: similar names, no tag, or the tag of another deployment."""
    other = [{"Key": TAG, "Value": "chat-2"}]
    for name, tags in (("chat-2", other), ("my-chat", []), ("chat-old", [])):
        fake.sagemaker_CreateModel(name, tags, ExecutionRoleArn=ROLE)
        fake.sagemaker_CreateEndpointConfig(name, tags, ProductionVariants=[{"VariantName": "x", "ModelName": name}])
        fake.sagemaker_CreateEndpoint(name, name, tags)
        fake.things["endpoint"][name]["moves"] = ["InService"]
        fake.cloudwatch_PutMetricAlarm(f"{name}-errors", Tags=tags)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_whole_run_is_as_recorded(fake: FakeAws, aws: Aws, variant: str) -> None:
    """UPDATE_GOLDEN=1 writes the files anew; what changed is then read in the diff."""
    deploy(aws, wanted(variant))
    remove(aws)
    seen = [
        {"call": f"{service}.{operation}", **({"with": members} if members else {})}
        for service, operation, members in fake.calls
        if operation != "FilterLogEvents"  # its start time is now
    ]
    text = json.dumps(seen, indent=1, sort_keys=True) + "\n"
    path = GOLDEN / f"deploy-{variant}.json"
    if os.environ.get("UPDATE_GOLDEN"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


def test_nothing_captures_data(fake: FakeAws, aws: Aws) -> None:
    for variant in VARIANTS:
        assert "DataCapture" not in json.dumps(resources(wanted(variant)).config)


def test_it_starts_with_as_many_instances_as_scaling_keeps() -> None:
    calls = resources(wanted("component", instances=1, scaling=ScalingRequest(2, 4, 16.0)))
    (variant,) = calls.config["ProductionVariants"]
    assert variant["InitialInstanceCount"] == variant["ManagedInstanceScaling"]["MinInstanceCount"] == 2
    assert calls.component is not None
    assert calls.component["RuntimeConfig"] == {"CopyCount": 2}
    (plain,) = resources(wanted("plain", instances=1, scaling=ScalingRequest(2, 4, 16.0))).config["ProductionVariants"]
    assert plain["InitialInstanceCount"] == 2


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_same_again_creates_nothing(fake: FakeAws, aws: Aws, variant: str) -> None:
    deploy(aws, wanted(variant))
    state, before = fake.state(), len(fake.calls)
    deploy(aws, wanted(variant))
    assert fake.state() == state
    changing = {
        operation for _, operation, _ in fake.calls[before:] if operation.startswith(("Create", "Update", "Delete"))
    }
    assert changing == set()


@pytest.mark.parametrize("lost", [False, True], ids=["before the call", "after it took effect"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_interrupted_at_every_call_a_second_run_finishes(
    switchboard: Switchboard, aws: Aws, variant: str, lost: bool
) -> None:
    def fresh() -> FakeAws:
        switchboard.fake = FakeAws()
        strangers(switchboard.fake)
        return switchboard.fake

    whole = fresh()
    alone = whole.state()
    deploy(aws, wanted(variant))
    there, calls = whole.state(), len(whole.calls)
    remove(aws)
    assert whole.state() == alone
    for number in range(len(whole.calls)):
        fake = fresh()
        fake.interrupt, fake.lost = number, lost
        _until_done(lambda: deploy(aws, wanted(variant)), number < calls)
        assert fake.state() == there, f"interrupted at call {number}: {whole.calls[number][1]}"
        _until_done(lambda: remove(aws), number >= calls)
        assert fake.state() == alone, f"interrupted at call {number}: {whole.calls[number][1]}"


def _until_done(run: Callable[[], object], interrupted: bool) -> None:
    if interrupted:
        with pytest.raises(KeyboardInterrupt):
            run()
    run()


def test_delete_after_half_a_deployment_leaves_nothing(switchboard: Switchboard, aws: Aws) -> None:
    for number in range(25):
        fake = switchboard.fake = FakeAws()
        fake.interrupt, fake.lost = number, True
        with pytest.raises(KeyboardInterrupt):
            deploy(aws, wanted("component"))
        remove(aws)
        assert fake.state() == FakeAws().state(), number


def test_a_change_is_an_update_and_its_leftovers_are_deleted(fake: FakeAws, aws: Aws) -> None:
    deploy(aws, wanted("scaled"))
    deploy(aws, wanted("scaled", image="other:2"))
    updates = [members for _, operation, members in fake.calls if operation == "UpdateEndpoint"]
    assert len(updates) == 1
    assert updates[0]["RetainAllVariantProperties"] is True  # auto scaling decides how many there are
    assert updates[0]["DeploymentConfig"]["RollingUpdatePolicy"]["MaximumBatchSize"]["Value"] == 1
    assert len(fake.things["model"]) == 2
    remove(aws)
    assert fake.state() == FakeAws().state()


@pytest.mark.parametrize(("running", "batch"), [(0, None), (1, None), (2, 1), (20, 1), (21, 2), (41, 3)])
def test_the_steps_of_an_update_are_of_the_instances_that_run(
    fake: FakeAws, aws: Aws, running: int, batch: int | None
) -> None:
    scaling = {"instances": 1, "scaling": ScalingRequest(1, 50, 8.0)}
    deploy(aws, wanted("plain", **scaling))
    fake.things["endpoint"]["chat"]["count"] = running
    deploy(aws, wanted("plain", **scaling, image="other:2"))
    (update,) = [members for _, operation, members in fake.calls if operation == "UpdateEndpoint"]
    policy = update.get("DeploymentConfig", {}).get("RollingUpdatePolicy", {})
    assert policy.get("MaximumBatchSize", {}).get("Value") == batch
    assert batch is None or running * 0.05 <= batch <= running * 0.5
    alone = resources(wanted("plain", instances=running)).update
    assert alone.get("DeploymentConfig") == update.get("DeploymentConfig")


@pytest.mark.parametrize(("bounds", "batch"), [((1, 4), None), ((2, 6), 1), ((2, 21), None), ((4, 21), 2)])
def test_the_steps_of_a_template_fit_every_number_that_scaling_allows(
    bounds: tuple[int, int], batch: int | None
) -> None:
    update = resources(wanted("plain", scaling=ScalingRequest(*bounds, 8.0))).update
    policy = update.get("DeploymentConfig", {}).get("RollingUpdatePolicy", {})
    assert policy.get("MaximumBatchSize", {}).get("Value") == batch
    assert update["RetainAllVariantProperties"] is True


def test_a_component_is_updated_in_place(fake: FakeAws, aws: Aws) -> None:
    deploy(aws, wanted("component"))
    deploy(aws, wanted("component", model="s3://bucket/models/two"))
    assert [operation for _, operation, _ in fake.calls].count("UpdateInferenceComponent") == 1
    assert [operation for _, operation, _ in fake.calls].count("CreateEndpoint") == 1


@pytest.mark.parametrize(("copies", "batch"), [(0, None), (1, None), (2, 1), (4, 1), (40, 2)])
def test_new_copies_replace_the_old_ones_in_steps(fake: FakeAws, aws: Aws, copies: int, batch: int | None) -> None:
    deploy(aws, wanted("component"))
    fake.things["component"]["chat"]["RuntimeConfig"] = {"CopyCount": copies}
    deploy(aws, wanted("component", model="s3://bucket/models/two"))
    (update,) = [members for _, operation, members in fake.calls if operation == "UpdateInferenceComponent"]
    steps = {"Type": "COPY_COUNT", "Value": batch}
    policy = update.get("DeploymentConfig", {}).get("RollingUpdatePolicy", {})
    assert policy.get("MaximumBatchSize", steps) == policy.get("RollbackMaximumBatchSize", steps) == steps
    assert bool(policy) == bool(batch)


@pytest.mark.parametrize(
    "change", [{"instances": 3}, {"limits": InstanceLimits(600, 3600, None)}], ids=["copies", "startup parameters"]
)
def test_what_changes_of_a_component_is_changed(fake: FakeAws, aws: Aws, change: dict[str, Any]) -> None:
    deploy(aws, wanted("component", scaling=None))
    deploy(aws, wanted("component", scaling=None, **change))
    component = resources(wanted("component", scaling=None, **change)).component
    assert component is not None
    there = fake.things["component"]["chat"]
    assert all(there[key] == component[key] for key in ("Specification", "RuntimeConfig"))
    deploy(aws, wanted("component", scaling=None, **change))
    assert [operation for _, operation, _ in fake.calls].count("UpdateInferenceComponent") == 1


def test_scaling_decides_about_the_copies(fake: FakeAws, aws: Aws) -> None:
    deploy(aws, wanted("component"))
    fake.things["component"]["chat"]["RuntimeConfig"] = {"CopyCount": 4}
    deploy(aws, wanted("component"))
    assert fake.things["component"]["chat"]["RuntimeConfig"] == {"CopyCount": 4}


def test_a_component_that_was_rolled_back_is_no_success(fake: FakeAws, aws: Aws) -> None:
    deploy(aws, wanted("component"))
    fake.fails = "Insufficient capacity"
    with pytest.raises(DeploymentFailed, match="update of component chat failed: Insufficient capacity"):
        deploy(aws, wanted("component", model="s3://bucket/models/two"))


def test_scaling_that_is_not_asked_for_any_more_ends(fake: FakeAws, aws: Aws) -> None:
    deploy(aws, wanted("plain"))
    plain = fake.state()["things"]
    deploy(aws, wanted("plain", scaling=ScalingRequest(1, 4, 8.0)))
    fake.things["endpoint"]["chat"]["count"] = 4  # the load was high
    told = deploy(aws, wanted("plain"))
    assert "scaling of endpoint/chat/variant/AllTraffic: deleting" in told
    assert fake.state()["things"] == plain


def test_scaling_that_no_longer_goes_to_zero_keeps_no_wake_alarm(fake: FakeAws, aws: Aws) -> None:
    deploy(aws, wanted("component"))
    assert {"chat-wake", "chat-errors"} <= set(fake.things["alarm"])
    deploy(aws, wanted("component", scaling=ScalingRequest(1, 4, 16.0), alarms=False))
    assert set(fake.things["alarm"]) == set()
    assert set(fake.things["policy"]) == {"chat-concurrency"}
    deploy(aws, wanted("component", scaling=None))
    assert (fake.things["target"], fake.things["policy"]) == ({}, {})


def test_scaling_and_alarms_of_others_are_left(fake: FakeAws, aws: Aws) -> None:
    deploy(aws, wanted("plain"))
    where = {"ServiceNamespace": "sagemaker", "ScalableDimension": "sagemaker:variant:DesiredInstanceCount"}
    fake.application_autoscaling_RegisterScalableTarget(
        "endpoint/chat/variant/AllTraffic", **where, MinCapacity=1, MaxCapacity=2, Tags={}
    )
    fake.cloudwatch_PutMetricAlarm("chat-own", Tags=[])
    deploy(aws, wanted("plain"))
    assert set(fake.things["target"]) == {"endpoint/chat/variant/AllTraffic"}
    assert "chat-own" in fake.things["alarm"]


def test_what_somebody_else_made_is_not_touched(fake: FakeAws, aws: Aws) -> None:
    fake.sagemaker_CreateModel("m", [], ExecutionRoleArn=ROLE)
    fake.sagemaker_CreateEndpointConfig("c", [], ProductionVariants=[{"ModelName": "m"}])
    fake.sagemaker_CreateEndpoint("chat", "c", [])
    with pytest.raises(NotOurs, match="endpoint chat without the tag"):
        deploy(aws, wanted("plain"))
    assert "UpdateEndpoint" not in [operation for _, operation, _ in fake.calls]
    assert not Removal(aws, "chat").owned()["endpoint"]


def test_somebody_elses_component_is_found_before_an_endpoint_is_paid_for(fake: FakeAws, aws: Aws) -> None:
    fake.sagemaker_CreateModel("m", [], ExecutionRoleArn=ROLE)
    fake.sagemaker_CreateEndpointConfig("c", [], ProductionVariants=[{"VariantName": "x"}])
    fake.sagemaker_CreateEndpoint("theirs", "c", [])
    fake.things["endpoint"]["theirs"]["moves"] = ["InService"]
    about = {"EndpointName": "theirs", "Specification": {"ModelName": "m"}, "RuntimeConfig": {"CopyCount": 1}}
    fake.sagemaker_CreateInferenceComponent("chat", [], **about)
    fake.calls.clear()
    with pytest.raises(NotOurs, match="component chat without the tag"):
        deploy(aws, wanted("component"))
    assert not [operation for _, operation, _ in fake.calls if operation.startswith(("Create", "Put"))]


def test_an_update_that_sagemaker_refuses_leaves_the_scaling(fake: FakeAws, aws: Aws) -> None:
    deploy(aws, wanted("async"))
    scaled = {kind: {*fake.things[kind]} for kind in ("target", "policy", "alarm")}
    with pytest.raises(SettingError, match="asynchronous"):
        deploy(aws, wanted("plain"))
    assert {kind: {*fake.things[kind]} for kind in scaled} == scaled


def test_a_component_that_fails_says_that_its_instances_run_on(fake: FakeAws, aws: Aws) -> None:
    deploy(aws, wanted("component", scaling=None))
    del fake.things["component"]["chat"]
    fake.fails = "The container did not start"
    with pytest.raises(DeploymentFailed) as caught:
        deploy(aws, wanted("component", scaling=None))
    assert "`neuron-endpoint delete chat` ends them" in caught.value.message


@pytest.mark.parametrize("moves", [["InService", "InService", "Deleting", ""], ["Deleting", "Failed"]])
def test_a_deletion_is_looked_at_until_it_is_one(
    fake: FakeAws, aws: Aws, monkeypatch: pytest.MonkeyPatch, moves: list[str]
) -> None:
    deploy(aws, wanted("plain"))
    endpoint = fake.things["endpoint"]["chat"]
    monkeypatch.setattr(fake, "sagemaker_DeleteEndpoint", lambda EndpointName: endpoint.update(moves=moves) or {})
    if moves[-1]:
        with pytest.raises(DeploymentFailed, match="deletion of endpoint chat failed"):
            remove(aws)
        assert fake.things["config"]
    else:
        remove(aws)
        assert not fake.things["config"]


TEXT_LOG = (
    "[   0.4 s] listening on port 8080; GET /ping shows the stage",
    "INFO something",
    "[  61.0 s] failed: The model needs 40 GiB of each core and 16 are there. Raise tensor_parallel_size.",
)


def json_log() -> list[str]:
    """The same by the container's own formatter."""
    written: list[str] = []
    logger = logging.Logger("container.serve")
    handler = logging.Handler()
    handler.emit = lambda record: written.append(JsonFormatter().format(record))  # type: ignore[method-assign]
    logger.addHandler(handler)
    for line in TEXT_LOG:
        since, bracket, text = line.removeprefix("[").partition(" s] ")
        fields = {"since_start_seconds": float(since)} if bracket else {}
        logger.info("%s", text or line, extra={"event": "stage", "fields": fields})
    return written


@pytest.mark.parametrize("log", [list(TEXT_LOG), json_log()], ids=["text", "json"])
def test_a_failure_is_explained_by_the_containers_own_words(fake: FakeAws, aws: Aws, log: list[str]) -> None:
    fake.fails = "The primary container for production variant AllTraffic did not pass the ping health check."
    fake.log = log
    with pytest.raises(DeploymentFailed) as caught:
        deploy(aws, wanted("plain"))
    assert caught.value.diagnosis is not None
    assert "Raise tensor_parallel_size" in caught.value.diagnosis.cause
    assert "did not pass the ping" in caught.value.message


def test_a_failed_start_is_replaced_by_the_next(fake: FakeAws, aws: Aws) -> None:
    fake.fails = "Failed to pull the image"
    with pytest.raises(DeploymentFailed, match="image cannot be pulled"):
        deploy(aws, wanted("plain"))
    fake.fails = ""
    deploy(aws, wanted("plain"))
    assert [operation for _, operation, _ in fake.calls].count("DeleteEndpoint") == 1
    assert fake.things["endpoint"]["chat"]["moves"] == ["InService"]


def test_an_update_that_was_rolled_back_is_no_success(fake: FakeAws, aws: Aws) -> None:
    deploy(aws, wanted("plain"))
    fake.fails = "Insufficient capacity"
    with pytest.raises(DeploymentFailed, match="update of endpoint chat failed: Insufficient capacity"):
        deploy(aws, wanted("plain", image="other:2"))


def test_the_stage_of_the_container_is_told_while_waiting(fake: FakeAws, aws: Aws) -> None:
    fake.log = ["[   9.0 s] fetch model: 8.4 s", "noise"]
    assert "endpoint chat: Creating; the container: fetch model: 8.4 s (at 9.0 s)" in deploy(aws, wanted("plain"))


def test_a_wait_ends(fake: FakeAws, aws: Aws) -> None:
    application = Application(aws, resources(wanted("plain")), lambda line: None, pace(longest=2))
    fake.sagemaker_CreateEndpoint = lambda EndpointName, EndpointConfigName, Tags: {  # type: ignore[method-assign]
        "EndpointArn": fake._add(
            "endpoint",
            EndpointName,
            {"EndpointConfigName": EndpointConfigName, "count": 1, "moves": ["Creating"]},
            Tags,
        )
    }
    with pytest.raises(StillGoing, match="Run the same command again"):
        application.run()


def test_the_role_is_found_when_it_is_the_only_one(fake: FakeAws, aws: Aws) -> None:
    from tests.model_packaging.fake_aws import THEN

    def role(name: str, trust: Any) -> dict[str, Any]:
        return {
            "RoleName": name,
            "Path": "/",
            "RoleId": "AROAXXXXXXXXXXXXXXXX",
            "CreateDate": THEN,
            "Arn": f"arn:aws:iam::123456789012:role/{name}",
            "AssumeRolePolicyDocument": json.dumps(trust),
        }

    assert role_arn(aws, ROLE) == ROLE
    with pytest.raises(SettingError, match="no role"):
        role_arn(aws, None)
    fake.roles = [
        role("lambda", {"Statement": [{"Principal": {"Service": "lambda.amazonaws.com"}}]}),
        role("anybody", {"Statement": {"Principal": "*"}}),
        role("sm", {"Statement": TRUST["Statement"][0]}),
    ]
    assert role_arn(aws, None) == "arn:aws:iam::123456789012:role/sm"
    assert role_arn(aws, "lambda").endswith("role/lambda")
    fake.roles.append(role("sm-2", TRUST))
    with pytest.raises(SettingError, match="2 roles trust"):
        role_arn(aws, None)
    fake.caller = "arn:aws:sts::123456789012:assumed-role/sm-2/notebook"
    assert role_arn(aws, None) == "arn:aws:iam::123456789012:role/sm-2"


@pytest.mark.parametrize(
    ("change", "setting"),
    [
        ({"name": "a_b"}, "NAME"),
        ({"name": "x" * 49}, "NAME"),
        ({"environment": {"A": "x" * 1025}}, "A"),
        ({"environment": {f"A{i}": "x" for i in range(101)}}, "--env-file"),
        ({"environment": {"MY-NAME": "x"}}, "MY-NAME"),
        ({"environment": {f"A{i}": "x" * 1000 for i in range(40)}}, "--env-file"),
        ({"scaling": ScalingRequest(0, 2, 1.0)}, "--min"),
        ({"scaling": ScalingRequest(3, 2, 1.0)}, "--min"),
        ({"scaling": ScalingRequest(1, 2, 0.0)}, "--concurrency"),
        ({"scaling": ScalingRequest(1, 4, 2.0), "instances": 5}, "--instances"),
        ({"network": Network(("subnet-1",), ())}, "--subnet"),
        ({"network": Network(isolation=True), "environment": {"ENDPOINT_MODEL": "s3://b/x"}}, "--isolated"),
        ({"network": Network(isolation=True), "environment": {"ENDPOINT_CONFIG": '{"model": "s3://x"}'}}, "--isolated"),
    ],
)
def test_what_cannot_be_deployed_is_refused(change: dict[str, Any], setting: str) -> None:
    with pytest.raises(SettingError) as caught:
        wanted("plain", **change)
    assert caught.value.param == setting


def test_routing_is_within_what_the_service_takes() -> None:
    import botocore.session

    model = botocore.session.get_session().get_service_model("sagemaker")
    routing, prefixes = model.shape_for("RoutingStrategy"), model.shape_for("PrefixAwareRoutingConfig")
    assert isinstance(routing, StringShape)
    assert isinstance(prefixes, StructureShape)
    assert set(STRATEGIES.values()) == set(routing.enum) - {"KV_AWARE"}
    limits = prefixes.members
    for member, option, more in (
        ("PrefixLength", "prefix_bytes", {"threshold": 1}),
        ("ConcurrencyThreshold", "threshold", {}),
    ):
        least, most = (limits[member].metadata[end] for end in ("min", "max"))
        for value in (least, most):
            chosen = Routing("prefix", **{**more, option: value}).members()["PrefixAwareRoutingConfig"]
            assert isinstance(chosen, dict)
            assert chosen[member] == value
        for value in (least - 1, most + 1):
            with pytest.raises(SettingError):
                Routing("prefix", **{**more, option: value})
    with pytest.raises(SettingError, match="--prefix-threshold"):
        Routing("prefix")
    with pytest.raises(SettingError, match="reports its cache"):
        Routing("kv-aware")


def test_scaling_that_somebody_else_registered_stays(fake: FakeAws, aws: Aws) -> None:
    deploy(aws, wanted("plain"))
    where = {"ServiceNamespace": "sagemaker", "ScalableDimension": "sagemaker:variant:DesiredInstanceCount"}
    fake.application_autoscaling_RegisterScalableTarget(
        "endpoint/chat/variant/AllTraffic", **where, MinCapacity=1, MaxCapacity=2, Tags={TAG: "other"}
    )
    remove(aws)
    assert set(fake.things["target"]) == {"endpoint/chat/variant/AllTraffic"}


def test_a_creation_whose_answer_was_lost_counts(fake: FakeAws, aws: Aws) -> None:
    """boto3 repeats a call whose answer did not come, and is told that it is there already."""
    members = resources(wanted("plain")).model
    create(aws.sagemaker.create_model, members)
    create(aws.sagemaker.create_model, members)
    with pytest.raises(ClientError, match="Could not find"):
        create(aws.sagemaker.create_endpoint, resources(wanted("plain")).endpoint)
