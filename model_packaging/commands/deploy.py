"""`neuron-endpoint deploy`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from model_packaging.console.options import (
    AMOUNT,
    COUNT,
    container_options,
    dry_run_option,
    json_option,
    line_option,
    local_option,
    network_options,
    pairs,
    poll_option,
    region_option,
)
from model_packaging.console.output import print_json, refuse

if TYPE_CHECKING:
    from handler.config.endpoint_config import EndpointConfig
    from handler.config.loading.file_reader import Fetch
    from model_packaging.deployment.definition.request import DeploymentRequest

NOT_CREATED = "Nothing was created. --no-check deploys it all the same."
AMI = "al2-ami-sagemaker-inference-neuron-2"


@click.command("deploy")
@click.argument("name")
@click.argument("package", required=False, metavar="[s3://BUCKET/PREFIX/]")
@click.option("--image", help="Run this container image in ECR.")
@click.option("--instance", help="Plan for this instance type, for example ml.trn2.48xlarge.")
@line_option
@click.option("--instances", default=1, show_default=True, type=COUNT, help="Start so many instances or copies.")
@container_options
@click.option("--role", help="Use this IAM role (name or ARN). Default: the only one that trusts SageMaker.")
@click.option("--component", is_flag=True, help="Create an inference component, which can scale to zero.")
@click.option("--min", "minimum", type=click.IntRange(min=0), help="Scale down to so many instances or copies.")
@click.option("--max", "maximum", type=COUNT, help="Scale up to so many instances or copies.")
@click.option("--concurrency", type=AMOUNT, help="Scale to so many requests in flight (async: queued) per instance.")
@click.option("--routing", default="least-outstanding", show_default=True, help="Route so, or: random, prefix.")
@click.option("--prefix-bytes", default=4096, show_default=True, help="Compare so many bytes, for prefix routing.")
@click.option("--prefix-threshold", type=int, help="Route by prefix up to so many in flight. Default: max_num_seqs.")
@click.option("--async-output", metavar="s3://", help="Answer asynchronously, below this S3 prefix.")
@click.option("--async-concurrency", type=click.IntRange(1, 1000), help="Run so many at once. Default: max_num_seqs.")
@click.option("--async-seconds", type=click.IntRange(1, 3600), help="End a request after so long (s). Default: 900.")
@network_options
@click.option("--isolated", is_flag=True, help="Isolate the containers from the network: everything is in the package.")
@click.option("--kms-key", help="Encrypt the instances' EBS volumes with this KMS key.")
@click.option("--volume", type=click.IntRange(1, 512), help="Attach so many GB, without NVMe. Default: from the sizes.")
@click.option("--ami", default=AMI, show_default=True, help="Boot this host image with a driver; 'none': SageMaker's.")
@click.option("--download-seconds", type=click.IntRange(60, 3600), help="Limit the download (s). Default: by size.")
@click.option("--startup-seconds", type=click.IntRange(60, 3600), help="Limit a start (s). Default: from the sizes.")
@click.option("--alarm-topic", metavar="ARN", help="Send the alarms to this SNS topic.")
@click.option("--no-alarms", is_flag=True, help="Create no CloudWatch alarms.")
@click.option("--tag", "tags", multiple=True, metavar="NAME=VALUE", help="Put this tag on what is new (repeatable).")
@click.option("--no-check", is_flag=True, help="Deploy without checking the settings.")
@click.option("--no-wait", is_flag=True, help="Return at once. Components and scaling then need a second run.")
@click.option("--template", is_flag=True, help="Print a CloudFormation template, and create nothing.")
@local_option
@poll_option
@region_option
@dry_run_option
@json_option
def command(name: str, package: str | None, **options: Any) -> None:
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

    local = options["local"]
    aws = Aws(options["region"])
    request = _request(name, package, options, aws)
    calls = resources(request)
    if options["template"]:
        click.echo(template(calls), nl=False)
        return
    document = {**_document(calls), "limits": request.limits.document()}
    if options["dry_run"]:
        print_json(shown(document))
        return
    from model_packaging.console.output import lines
    from model_packaging.local_endpoint import LocalLog

    with lines() as tell:
        for reason in request.limits.reasons:
            tell(reason)
        log = LocalLog(name) if local else None
        Application(aws, calls, tell, PollInterval(poll=options["poll"]), log=log).run(wait=not options["no_wait"])
    if options["as_json"]:
        print_json({"endpoint": name, "component": name if request.component else None, **shown(document)})
    else:
        component = f" --component {name}" if request.component else ""
        here = " --local" if local else ""
        output = options["async_output"]
        queued = f" --async {output.rstrip('/')}/hello.json --wait" if output else ""
        click.echo(f'Try: neuron-endpoint invoke{here} {name}{component}{queued} "Hello"')
        click.echo(f"End: neuron-endpoint delete{here} {name}")


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


def _request(name: str, package: str | None, options: Mapping[str, Any], aws: Any) -> DeploymentRequest:
    from handler.config.loading.network_isolation import VARIABLE as ISOLATION
    from handler.errors import SettingError
    from handler.neuron.hardware.instance_catalogue import find
    from model_packaging.deployment.definition.environment import environment
    from model_packaging.deployment.definition.instance_size import sizes_of
    from model_packaging.deployment.definition.limits import compute
    from model_packaging.deployment.definition.request import DeploymentRequest, Network
    from model_packaging.deployment.definition.role import role_arn
    from model_packaging.deployment.definition.routing import PREFIX, PREFIX_BYTES

    local, scaling = options["local"], scaling_of(options)
    if local and scaling is not None:
        advice = "Nothing on this machine measures the load. Leave it out."
        raise SettingError("--max", "does not go with --local", advice)
    instance_name = options["instance"] or ("ml.inf2.xlarge" if local else None)
    image = options["image"] or ("local" if local else None)
    if not instance_name or not image:
        raise click.UsageError("--instance and --image are needed.")
    if package and not package.startswith("s3://"):
        raise SettingError("PACKAGE", f"'{package}' is not in S3", "Push it first: `neuron-endpoint push`.")
    instance = find(instance_name, "--instance")
    variables = environment(options["variables"], options["document"], None if local else f"ml.{instance.name}")
    if options["line"]:
        variables["ENDPOINT_LINE"] = options["line"]
    if options["isolated"]:
        variables[ISOLATION] = "true"  # SageMaker does not tell the container
    if options["async_output"]:
        variables.setdefault("ENDPOINT_ASYNCHRONOUS", "true")
        if options["async_seconds"]:
            variables.setdefault("ENDPOINT_DEADLINE", str(max(1, options["async_seconds"] - 10)))
    elif options["async_seconds"] or options["async_concurrency"]:
        raise click.UsageError("--async-concurrency and --async-seconds go with --async-output.")
    if options["routing"] != PREFIX and (options["prefix_threshold"] or options["prefix_bytes"] != PREFIX_BYTES):
        raise click.UsageError("--prefix-bytes and --prefix-threshold go with --routing prefix.")
    if not local:
        _refuse_multi_model(variables)
    files = _files(package)
    config = _loaded(variables, files, options)
    if not package and config is not None and "model" not in config.sources:
        raise SettingError("PACKAGE", "no model is named", "Give the package's s3:// URI, or --set ENDPOINT_MODEL=...")
    plan = None
    if config is not None and not options["no_check"]:
        model = package if package and config.model.startswith("/") else config.model
        # What an isolated container cannot load was refused above. The check itself reads the package in S3.
        checked = {**variables, ISOLATION: "false"} if config.network_isolation else variables
        plan = _check(checked, model, files, None if local else f"ml.{instance.name}", options["as_json"])
    sizes = sizes_of(package, config, "cpu" if local else instance.platform)
    limits = compute(
        sizes,
        instance,
        download=options["download_seconds"],
        startup=options["startup_seconds"],
        volume=options["volume"],
    )
    if plan is not None and config is not None and not local:
        checked_line = f"line: the settings were checked for {plan.line}" + (
            "" if config.line else ". --line names another"
        )
        limits = replace(limits, reasons=(*limits.reasons, checked_line))
    role = options["role"] if options["role"] or not local else "arn:aws:iam::123456789012:role/local"
    return DeploymentRequest(
        name=name,
        image=image,
        role=role_arn(aws, role),
        instance=f"ml.{instance.name}",
        instances=options["instances"],
        limits=limits,
        model=package,
        environment=variables,
        ami=None if options["ami"] == "none" else options["ami"],
        component=options["component"],
        scaling=scaling,
        routing=_routing(options, plan),
        network=Network(options["subnets"], options["groups"], options["isolated"]),
        async_output=options["async_output"],
        async_concurrency=_async_concurrency(options, plan),
        kms_key=options["kms_key"],
        alarm_topic=options["alarm_topic"],
        alarms=not options["no_alarms"],
        tags=pairs(options["tags"], "--tag"),
    )


def scaling_of(options: Mapping[str, Any]) -> Any:
    from model_packaging.deployment.definition.request import ScalingRequest

    if options["maximum"] is None:
        if options["minimum"] is not None or options["concurrency"] is not None:
            raise click.UsageError("--min and --concurrency need --max.")
        return None
    if options["concurrency"] is None:
        raise click.UsageError("--max needs --concurrency: half of max_num_seqs is a good start.")
    minimum = options["instances"] if options["minimum"] is None else options["minimum"]
    return ScalingRequest(minimum, options["maximum"], options["concurrency"])


def _routing(options: Mapping[str, Any], plan: Any) -> Any:
    """Returns the routing. The default threshold is the plan's max_num_seqs."""
    from model_packaging.deployment.definition.routing import PREFIX, Routing

    arguments = plan.engine_args if plan is not None else {}
    threshold = options["prefix_threshold"] or arguments.get("max_num_seqs")
    if options["routing"] == PREFIX and arguments.get("enable_prefix_caching") is False:
        told = "No prefix is kept on an instance (enable_prefix_caching is off), so there is nothing to be routed to."
        click.echo(f"Warning: {told}", err=True)
    return Routing(options["routing"], options["prefix_bytes"], threshold)


def _async_concurrency(options: Mapping[str, Any], plan: Any) -> int | None:
    """Returns as many requests as the engine decodes at once. Fewer would leave slots empty, more would wait."""
    from model_packaging.deployment.definition.request import MOST_CONCURRENT

    if not options["async_output"]:
        return None
    slots = plan.engine_args.get("max_num_seqs") if plan is not None else None
    return options["async_concurrency"] or (min(slots, MOST_CONCURRENT) if slots else None)


def _refuse_multi_model(variables: Mapping[str, str]) -> None:
    """Refuses a multi-model endpoint, also without a check. SageMaker hosts none on instances with Neuron cores."""
    from handler.config.assignment import assign
    from handler.errors import SettingError
    from handler.neuron.planning.platform_findings import MULTI_MODEL, MULTI_MODEL_FIX

    for name in ("SAGEMAKER_MULTI_MODEL", "ENDPOINT_MULTI_MODEL"):
        if variables.get(name) and assign("multi_model", variables[name], name).value:
            raise SettingError(name, MULTI_MODEL, MULTI_MODEL_FIX)


def _files(package: str | None) -> Fetch:
    """Returns what reads small files as the container does: SageMaker puts the package into a directory of it."""
    from handler.config.loading.file_reader import fetch
    from handler.config.loading.model_file_rules import MOUNT
    from model_packaging.package.package_writer import ARCHIVES

    def read(location: str) -> bytes | None:
        if not location.startswith(f"{MOUNT}/"):
            return fetch(location)
        if not package or package.endswith(ARCHIVES):
            return None
        return fetch(f"{package.rstrip('/')}{location.removeprefix(MOUNT)}")

    return read


def _loaded(variables: Mapping[str, str], files: Fetch, options: Mapping[str, Any]) -> EndpointConfig | None:
    """Returns the configuration as the container loads it.

    None if that is unknown: its document is not readable from here, or --no-check lets wrong settings pass.
    """
    from handler.config.loading.config_loader import load
    from handler.errors import SettingError
    from handler.neuron.planning.examination import rejected_settings

    if problem := _unreadable(variables.get("ENDPOINT_CONFIG", "").strip(), files):
        click.echo(f"The settings are not checked: {problem}.", err=True)
        return None
    try:
        return load(variables, fetch=files)
    except SettingError as error:
        if not options["no_check"]:
            refuse(rejected_settings(error), options["as_json"], NOT_CREATED)
        return None


def _unreadable(document: str, files: Fetch) -> str:
    """Returns why the document that ENDPOINT_CONFIG names cannot be read from here, or nothing."""
    from handler.config.loading.file_reader import Unreadable
    from handler.config.secret_values import LOCATION

    if not LOCATION.fullmatch(document) or document.startswith("{"):  # `load` says what is wrong with it
        return ""
    try:
        there = files(document) is not None or document.startswith("s3://")
    except Unreadable as problem:
        return f"{document}: {problem}"
    return "" if there else f"{document} is in the container"


def _check(variables: Mapping[str, str], model: str, files: Fetch, instance: str | None, as_json: bool) -> Any:
    """Returns the plan, if there is one. An endpoint that would not start is not deployed: that would cost an hour."""
    from model_packaging.package.package_writer import ARCHIVES

    if model.endswith(ARCHIVES):
        click.echo("The archive's settings are not checked: check the folder it was packed from.", err=True)
        return None
    from handler.neuron.planning.file_examination import with_files
    from model_packaging.examination_report import examine

    found = with_files(examine(variables, model, instance=instance, line=None, fetch=files))
    if found.failed:
        refuse(found, as_json, NOT_CREATED)
    return found.plan
