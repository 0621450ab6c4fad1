"""`neuron-endpoint deploy`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from model_packaging.console.options import (
    dry_run_option,
    environ_of,
    json_option,
    local_option,
    poll_option,
    region_option,
)
from model_packaging.console.output import print_json, refuse

if TYPE_CHECKING:
    from model_packaging.deployment.definition.request import DeploymentRequest

AMI = "al2-ami-sagemaker-inference-neuron-2"


@click.command("deploy")
@click.argument("name")
@click.argument("package", required=False, metavar="[s3://BUCKET/PREFIX/]")
@click.option("--image", help="The container's image in ECR.")
@click.option("--instance", help="ml.trn2.48xlarge for one.")
@click.option("--instances", default=1, show_default=True, type=click.IntRange(min=1), help="Or copies, to begin with.")
@click.option("--env-file", metavar="FILE", help="The container's environment.")
@click.option("--set", "variables", multiple=True, metavar="NAME=VALUE", help="One variable of it; may be repeated.")
@click.option("--config", "document", metavar="FILE", help="The endpoint's settings: a small file, or s3://.")
@click.option("--role", help="The instances' role: name or ARN; default: the only one that SageMaker may take.")
@click.option("--component", is_flag=True, help="As an inference component: can scale to zero.")
@click.option("--min", "minimum", type=click.IntRange(min=0), help="Scale: no fewer copies than these.")
@click.option("--max", "maximum", type=click.IntRange(min=1), help="Scale: no more copies than these.")
@click.option("--concurrency", type=float, help="Scale: requests in flight a copy should have.")
@click.option(
    "--routing", default="least-outstanding", show_default=True, help="To which instance: or random, or prefix."
)
@click.option("--prefix-bytes", default=4096, show_default=True, help="With prefix: how much of a body is compared.")
@click.option("--prefix-threshold", type=int, help="With prefix: requests in flight; default: the plan's max_num_seqs.")
@click.option("--async-output", metavar="s3://", help="An asynchronous endpoint, with its answers there.")
@click.option(
    "--async-concurrency", type=click.IntRange(1, 1000), help="With it: requests at once; default: max_num_seqs."
)
@click.option(
    "--async-seconds", type=click.IntRange(1, 3600), help="With it: how long a request may take; default: 900."
)
@click.option("--subnet", "subnets", multiple=True, help="Of a VPC; may be repeated.")
@click.option("--security-group", "groups", multiple=True, help="With --subnet; may be repeated.")
@click.option("--isolated", is_flag=True, help="No network at all: everything is in the package.")
@click.option("--kms-key", help="Encrypts the instances' volumes.")
@click.option("--volume", type=click.IntRange(1, 512), help="GB; default: computed. Not for instances with NVMe disks.")
@click.option(
    "--ami", default=AMI, show_default=True, help="The host's image, with its Neuron driver; 'none': SageMaker's."
)
@click.option("--download-seconds", type=click.IntRange(60, 3600), help="Default: computed from sizes.")
@click.option("--startup-seconds", type=click.IntRange(60, 3600), help="Default: computed from sizes.")
@click.option("--alarm-topic", metavar="ARN", help="An SNS topic for the alarms.")
@click.option("--no-alarms", is_flag=True)
@click.option("--tag", "tags", multiple=True, metavar="NAME=VALUE", help="On everything; may be repeated.")
@click.option("--no-check", is_flag=True, help="Do not check the settings first.")
@click.option("--no-wait", is_flag=True, help="Start it, and do not wait. What follows the endpoint is left out.")
@click.option("--template", is_flag=True, help="Print a CloudFormation template; create nothing.")
@local_option
@poll_option
@region_option
@dry_run_option
@json_option
def command(name: str, package: str | None, **given: Any) -> None:
    """Creates or updates the endpoint NAME, and waits until it is in service.

    After an interruption, the same command continues. It shows the status and the container's stages. A failure is
    explained from the logs. `delete NAME` removes everything.
    """
    from model_packaging.deployment.apply import Application
    from model_packaging.deployment.aws import Aws
    from model_packaging.deployment.definition.environment import shown
    from model_packaging.deployment.definition.resources import resources
    from model_packaging.deployment.definition.template import template
    from model_packaging.deployment.watch import PollInterval

    local = given["local"]
    aws = Aws(given["region"])
    wanted = _wanted(name, package, given, aws)
    calls = resources(wanted)
    if given["template"]:
        click.echo(template(calls), nl=False)
        return
    document = {**_document(calls), "limits": wanted.limits.document()}
    if given["dry_run"]:
        print_json(shown(document))
        return
    from model_packaging.console.live_progress import lines
    from model_packaging.local_endpoint import LocalLog

    with lines() as tell:
        for reason in wanted.limits.reasons:
            tell(reason)
        log = LocalLog(name) if local else None
        Application(aws, calls, tell, PollInterval(poll=given["poll"]), log=log).run(wait=not given["no_wait"])
    if given["as_json"]:
        print_json({"endpoint": name, "component": name if wanted.component else None, **shown(document)})
    else:
        component = f" --component {name}" if wanted.component else ""
        here = " --local" if local else ""
        click.echo(
            f'Try: neuron-endpoint invoke{here} {name}{component} "Hello"\nEnd: neuron-endpoint delete{here} {name}'
        )


def _document(calls: Any) -> dict[str, Any]:
    scaling = calls.scaling
    return {
        "model": calls.model,
        "endpoint_config": calls.config,
        "endpoint": calls.endpoint,
        "component": calls.component,
        "scaling": [part for part in (scaling.target, scaling.policy, scaling.from_zero) if part] if scaling else [],
        "alarms": [*calls.alarms, *([scaling.wake] if scaling and scaling.wake else [])],
    }


def _wanted(name: str, package: str | None, given: Mapping[str, Any], aws: Any) -> DeploymentRequest:
    from handler.errors import SettingError
    from handler.neuron.hardware.instance_catalogue import find
    from model_packaging.deployment.definition.environment import environment
    from model_packaging.deployment.definition.instance_size import sizes_of
    from model_packaging.deployment.definition.limits import compute
    from model_packaging.deployment.definition.request import DeploymentRequest, Network
    from model_packaging.deployment.definition.role import role_arn

    local, scaling = given["local"], scaling_of(given)
    if local and scaling is not None:
        advice = "Nothing on this machine measures the load. Leave it out."
        raise SettingError("--max", "does not go with --local", advice)
    instance_name = given["instance"] or ("ml.inf2.xlarge" if local else None)
    image = given["image"] or ("local" if local else None)
    if not instance_name or not image:
        raise click.UsageError("--instance and --image are needed.")
    if package and not package.startswith("s3://"):
        raise SettingError("PACKAGE", f"'{package}' is not in S3", "Push it first: `neuron-endpoint push`.")
    instance = find(instance_name, "--instance")
    variables = {**environ_of(given["env_file"], None, False), **pairs(given["variables"], "--set")}
    variables = environment(variables, given["document"], None if local else f"ml.{instance.name}")
    if given["async_output"]:
        variables.setdefault("ENDPOINT_ASYNCHRONOUS", "true")
        if given["async_seconds"]:
            variables.setdefault("ENDPOINT_DEADLINE", str(max(1, given["async_seconds"] - 10)))
    elif given["async_seconds"] or given["async_concurrency"]:
        raise click.UsageError("--async-concurrency and --async-seconds go with --async-output.")
    if not local:
        _refuse_multi_model(variables)
    if not package and not (variables.get("ENDPOINT_MODEL") or variables.get("SM_VLLM_MODEL") or given["document"]):
        raise SettingError("PACKAGE", "no model is named", "Give the package's s3:// URI, or --set ENDPOINT_MODEL=...")
    plan = None
    if not given["no_check"]:
        plan = _check(variables, package, None if local else f"ml.{instance.name}", given["as_json"])
    sizes = sizes_of(package, variables, "cpu" if local else instance.platform)
    limits = compute(
        sizes, instance, download=given["download_seconds"], startup=given["startup_seconds"], volume=given["volume"]
    )
    role = given["role"] if given["role"] or not local else "arn:aws:iam::123456789012:role/local"
    return DeploymentRequest(
        name=name,
        image=image,
        role=role_arn(aws, role),
        instance=f"ml.{instance.name}",
        instances=given["instances"],
        limits=limits,
        model=package,
        environment=variables,
        ami=None if given["ami"] == "none" else given["ami"],
        component=given["component"],
        scaling=scaling,
        routing=_routing(given, plan),
        network=Network(given["subnets"], given["groups"], given["isolated"]),
        async_output=given["async_output"],
        async_concurrency=_async_concurrency(given, plan),
        kms_key=given["kms_key"],
        alarm_topic=given["alarm_topic"],
        alarms=not given["no_alarms"],
        tags=pairs(given["tags"], "--tag"),
    )


def scaling_of(given: Mapping[str, Any]) -> Any:
    from model_packaging.deployment.definition.request import ScalingRequest

    if given["maximum"] is None:
        if given["minimum"] is not None or given["concurrency"] is not None:
            raise click.UsageError("--min and --concurrency need --max.")
        return None
    if given["concurrency"] is None:
        raise click.UsageError("--max needs --concurrency: half of max_num_seqs is a good start.")
    minimum = given["instances"] if given["minimum"] is None else given["minimum"]
    return ScalingRequest(minimum, given["maximum"], given["concurrency"])


def _routing(given: Mapping[str, Any], plan: Any) -> Any:
    """Returns the routing. The default threshold is the plan's max_num_seqs."""
    from model_packaging.deployment.definition.routing import PREFIX, Routing

    arguments = plan.engine_args if plan is not None else {}
    threshold = given["prefix_threshold"] or arguments.get("max_num_seqs")
    if given["routing"] == PREFIX and arguments.get("enable_prefix_caching") is False:
        told = "No prefix is kept on an instance (enable_prefix_caching is off), so there is nothing to be routed to."
        click.echo(f"Warning: {told}", err=True)
    return Routing(given["routing"], given["prefix_bytes"], threshold)


def _async_concurrency(given: Mapping[str, Any], plan: Any) -> int | None:
    """Returns as many requests as the engine decodes at once. Fewer would leave slots empty, more would wait."""
    from model_packaging.deployment.definition.request import MOST_CONCURRENT

    if not given["async_output"]:
        return None
    slots = plan.engine_args.get("max_num_seqs") if plan is not None else None
    return given["async_concurrency"] or (min(slots, MOST_CONCURRENT) if slots else None)


def _refuse_multi_model(variables: Mapping[str, str]) -> None:
    """Refuses a multi-model endpoint, also without a check. SageMaker hosts none on instances with Neuron cores."""
    from handler.config.assignment import assign
    from handler.errors import SettingError
    from handler.neuron.planning.examination import MULTI_MODEL, MULTI_MODEL_FIX

    for name in ("SAGEMAKER_MULTI_MODEL", "ENDPOINT_MULTI_MODEL"):
        if variables.get(name) and assign("multi_model", variables[name], name).value:
            raise SettingError(name, MULTI_MODEL, MULTI_MODEL_FIX)


def _check(variables: Mapping[str, str], package: str | None, instance: str | None, as_json: bool) -> Any:
    """Returns the plan, if there is one. An endpoint that would not start is not deployed: that would cost an hour."""
    if package and package.endswith((".tar.gz", ".tgz")):
        click.echo("The archive's settings are not checked: check the folder it was packed from.", err=True)
        return None
    from handler.neuron.planning.file_examination import with_files
    from model_packaging.examination_report import examine

    model = package or variables.get("ENDPOINT_MODEL") or variables.get("SM_VLLM_MODEL")
    if not model:
        return None  # named in a document, which the container reads
    found = with_files(examine(variables, model, instance=instance, line=None))
    if found.failed:
        refuse(found, as_json, "Nothing was created. --no-check deploys it all the same.")
    return found.plan


def pairs(given: tuple[str, ...], option: str) -> dict[str, str]:
    pairs = [one.partition("=") for one in given]
    for name, equals, _ in pairs:
        if not name or not equals:
            raise click.BadParameter("write NAME=VALUE", param_hint=option)
    return {name: value for name, _, value in pairs}
