"""`neuron-endpoint kubernetes`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from model_packaging.console.options import AMOUNT, COUNT, container_options, environ_of, line_option
from model_packaging.console.output import refuse

if TYPE_CHECKING:
    from handler.config.endpoint_config import EndpointConfig
    from model_packaging.kubernetes.workload import Workload

TMP = "/tmp"  # noqa: S108  # the only place where the pod may write


@click.command("kubernetes")
@click.argument("name")
@click.argument("model", metavar="[s3://BUCKET/PREFIX/ | HUB ID]", required=False)
@click.option("--image", required=True, help="Run this container image, named with its registry.")
@click.option("--instance", help="Run on nodes of this instance type, for example trn2.48xlarge.")
@line_option
@click.option("--cpu", is_flag=True, help="Run the CPU engine, instead of --instance.")
@container_options
@click.option("--namespace", help="Put the manifests into this namespace. Default: kubectl's.")
@click.option("--replicas", default=1, show_default=True, type=COUNT, help="Run so many replicas.")
@click.option("--nodes", default=1, show_default=True, type=COUNT, help="Use so many pods for a model.")
@click.option("--min", "minimum", type=COUNT, help="Keep at least so many. Default: --replicas.")
@click.option("--max", "maximum", type=COUNT, help="Turn autoscaling on, up to so many replicas.")
@click.option("--concurrency", type=AMOUNT, help="Scale to so many requests in flight per replica.")
@click.option("--role", metavar="ARN", help="Give the pods this IAM role (IRSA). Default: the cluster's Pod Identity.")
@click.option("--kserve", "kind", flag_value="inference_service", help="Print KServe's InferenceService.")
@click.option("--llm-service", "kind", flag_value="llm_inference_service", help="Print KServe's LLMInferenceService.")
@click.option("--hyperpod", "kind", flag_value="hyperpod_endpoint", help="Print HyperPod's InferenceEndpointConfig.")
@click.option("--compile-job", "kind", flag_value="compile_job", help="Print a Job that compiles into the store.")
@click.option("--prometheus", metavar="URL", help="Let KEDA scale by this Prometheus. Default: the metrics adapter.")
@click.option("--gateway", metavar="[NAMESPACE/]NAME", help="Add an InferencePool and an HTTPRoute of this Gateway.")
@click.option("--dra", is_flag=True, help="Claim devices by DRA (ResourceClaimTemplate), not by device plugins.")
@click.option("--efa", default=0, type=click.IntRange(min=0), help="Give each pod so many EFA interfaces.")
@click.option("--karpenter", "node_class", metavar="NODECLASS", help="Add a NodePool with this EC2NodeClass.")
@click.option("--store-class", "storage_class", help="Keep the store on a shared volume of this StorageClass.")
@click.option("--compiled/--compiles", "compiled", default=None, help="Say if a store has graphs. Default: as listed.")
@click.option("--startup-seconds", type=click.IntRange(min=60), help="Limit a start (s). Default: from the sizes.")
def command(name: str, model: str | None, **options: Any) -> None:
    """Prints manifests for a cluster with Neuron devices: `... | kubectl apply -f -`.

    Devices, memory, disk and the probes' times are computed from the same configuration and plan that `check` uses. If
    the endpoint would not start, the findings are printed instead.
    """
    from model_packaging.kubernetes import manifests

    kind, several = options["kind"] or "deployment", options["nodes"] > 1
    if several and options["kind"]:
        raise click.UsageError("--nodes does not go with --kserve, --llm-service, --hyperpod or --compile-job.")
    if kind == "llm_inference_service" and options["maximum"]:
        raise click.UsageError("--llm-service does not go with --max: KServe scales it by its own autoscaler.")
    if options["gateway"] and options["kind"]:
        raise click.UsageError("--gateway is for Deployments and --nodes. With --llm-service, KServe makes the route.")
    if options["prometheus"] and not options["maximum"]:
        raise click.UsageError("--prometheus goes with --max.")
    if kind == "compile_job" and (options["maximum"] or options["replicas"] > 1):
        raise click.UsageError("--compile-job goes without --max and --replicas: it is one pod.")
    work = _workload(name, model, options)
    documents = manifests.node_group(work, options["nodes"]) if several else getattr(manifests, kind)(work)
    click.echo(manifests.as_text(work, documents), nl=False)


def _workload(name: str, model: str | None, options: Mapping[str, Any]) -> Workload:
    from handler.config.config_rows import secrets
    from handler.config.secret_values import mask
    from handler.errors import SettingError
    from handler.neuron.hardware.instance_catalogue import find_for_plan
    from model_packaging.commands.deploy import scaling_of
    from model_packaging.deployment.definition.environment import require_one_document
    from model_packaging.deployment.definition.instance_size import sizes_of
    from model_packaging.kubernetes.manifests import MASTER, NODES
    from model_packaging.kubernetes.pod_size import pod_size
    from model_packaging.kubernetes.workload import Workload

    if bool(options["instance"]) == bool(options["cpu"]):
        raise click.UsageError("Give --instance or --cpu.")
    if options["line"] and options["cpu"]:
        raise click.UsageError("--line goes with --instance.")
    instance = None if options["cpu"] else find_for_plan(options["instance"], "--instance")
    variables = {**options["variables"], **({"ENDPOINT_LINE": options["line"]} if options["line"] else {})}
    named = variables.pop("ENDPOINT_CONFIG", "").strip()  # a file of this machine is in no pod
    require_one_document(options["document"], named)
    document, settings = options["document"] or named, None
    if model:
        variables = {**_graphs(model, options), **variables, "ENDPOINT_MODEL": model}
    if options["nodes"] > 1 and (twice := [name for name in (NODES, MASTER) if name in variables]):
        raise SettingError("--nodes", f"it sets {twice[0]} itself, on each pod", f"Leave {twice[0]} out.")
    spread = {NODES: str(options["nodes"]), MASTER: "$(LWS_LEADER_ADDRESS)"} if options["nodes"] > 1 else {}
    located = None if instance is None else instance.name
    config, plan, memory = _examined({**variables, **spread}, document, located, options["nodes"])
    if not model and (graphs := _graphs(config.model, options)):
        variables = {**graphs, **variables}
        config, plan, memory = _examined({**variables, **spread}, document, located, options["nodes"])
    if options["storage_class"] and config.artifact_store:
        setting = config.setting("artifact_store")
        raise SettingError("--store-class", f"{setting} names another store", "Leave one of them out.")
    _require_fit(config, options)
    platform = "cpu" if instance is None else instance.platform
    compiles = options["kind"] == "compile_job"
    compiled = False if compiles else options["compiled"]
    sizes = sizes_of(None, config if compiled is None else replace(config, artifact_store=None), platform)
    if compiled is not None:  # the user says it, so the store was not listed
        sizes = replace(sizes, compiles=not compiled and platform != "cpu")
    if compiles and config.artifact_store:
        variables["ENDPOINT_ARTIFACT_STORE"] = config.artifact_store
    if not sizes.weights and not options["startup_seconds"]:
        problem = f"the size of {config.model[:80]} is not known here, so neither is its start's time"
        raise SettingError("MODEL", problem, "Give --startup-seconds, or push the model to S3.")
    size = pod_size(plan, instance, sizes, memory, startup=options["startup_seconds"])
    if spread:
        unseen = f"{options['nodes']} pods serve one model, each a part of it; this was not tested with {plan.line}"
        size = replace(size, reasons=(*size.reasons, unseen))
    if document and document.startswith(("s3://", "{")):
        variables["ENDPOINT_CONFIG"] = document
    elif document:
        settings = Path(document).read_text(encoding="utf-8")
        if mask(settings, secrets(config)) != settings:
            fix = "Leave it out, and give it with --set NAME=VALUE: a Secret then holds it."
            raise SettingError("--config", f"{document} holds a secret, which a ConfigMap would show", fix)
    return Workload(
        name=name,
        image=options["image"],
        size=size,
        model=config.model,
        environment=variables,
        settings=settings,
        document=f"endpoint{Path(document).suffix}" if settings else "endpoint.yaml",
        instance=instance,
        namespace=options["namespace"],
        replicas=options["replicas"],
        scaling=scaling_of({**options, "instances": options["replicas"]}),
        prometheus=options["prometheus"],
        drain=config.drain,
        role=options["role"],
        transfers="kv_transfer_config" in plan.engine_args,
        **{key: options[key] for key in ("dra", "efa", "gateway", "node_class", "storage_class")},
    )


def _require_fit(config: EndpointConfig, options: Mapping[str, Any]) -> None:
    """:raises SettingError: a setting that the pod of the manifests does not fit."""
    from handler.errors import SettingError
    from model_packaging.kubernetes.manifests import PORT

    if config.port != PORT:
        problem = f"the manifests have port {PORT}, not {config.port}"
        raise SettingError(config.source("port").name, problem, "Leave it out.")
    for field in ("scratch", "batch_store", "artifact_store") if options["kind"] != "hyperpod_endpoint" else ():
        place = str(getattr(config, field) or TMP).removeprefix("file://")
        if not place.startswith("s3://") and not Path(place).is_relative_to(TMP):
            problem = f"{place} is read-only in the pod"
            raise SettingError(
                config.source(field).name, problem, f"Name a place below {TMP}, or for a store one in S3."
            )


def _examined(variables: Mapping[str, str], document: str | None, instance: str | None, nodes: int) -> Any:
    """Returns configuration, plan and memory. Ends the command with findings if the endpoint would not start.

    :raises SettingError: the model is on this machine, where a pod cannot read it; other nodes than the manifests'.
    """
    from handler.config.loading.config_loader import load
    from handler.errors import SettingError
    from model_packaging.console.options import examined

    environ = {**variables, **environ_of(None, document, False)}
    config = load(environ)
    if config.model.startswith(("/", "./", "../")):
        problem = f"'{config.model[:80]}' is on this machine, not in a pod"
        raise SettingError("MODEL", problem, "Push it to S3, and give s3://bucket/prefix.")
    if (config.nodes or 1) > 1:
        problem = "a pod would be rank 0 of the fork's nodes, and no command of the container runs the other ranks"
        fix = "Leave it out, or use a native line and --nodes."
        raise SettingError(config.source("nodes").name or "nodes", problem, fix)
    configured = config.engine_args.get("nnodes") or 1
    if configured != nodes:
        raise SettingError("--nodes", f"the settings have {configured} nodes", f"Give --nodes {configured}.")
    examination = examined(environ, config.model, instance, "cpu" if instance is None else None)
    if examination.failed or examination.plan is None:
        refuse(examination, False, "No manifest: it would not start.")
    return config, examination.plan, examination.memory


def _graphs(package: str, options: Mapping[str, Any]) -> dict[str, str]:
    """Returns the setting that names the package's graphs in S3: its own settings name them below /opt/ml/model.

    :raises SettingError: the package has graphs, and an option asks for others. Its settings forbid to compile them.
    """
    from handler.errors import SettingError

    if not package.startswith("s3://"):
        return {}
    from model_packaging.package.assembly import COMPILED, STORE
    from model_packaging.package.sources import items

    tops = {item.path.partition("/")[0] for item in items(package, "MODEL")}
    for option, others in (
        ("--store-class", options["storage_class"]),
        ("--compile-job", options["kind"] == "compile_job"),
    ):
        if others and not tops.isdisjoint((COMPILED, STORE)):
            fix = f"Leave {option} out, or give the model that was packed."
            raise SettingError(option, f"{package[:80]} has its own graphs, and its starts compile none", fix)
    root = package.rstrip("/")
    if COMPILED in tops:
        return {"ENDPOINT_COMPILED_ARTIFACTS": f"{root}/{COMPILED}/"}
    return {"ENDPOINT_ARTIFACT_STORE": f"{root}/{STORE}"} if STORE in tops else {}
