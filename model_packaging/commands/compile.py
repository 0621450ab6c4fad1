"""`neuron-endpoint compile`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from model_packaging.console.options import (
    dry_run_option,
    json_option,
    network_options,
    plan_options,
    region_option,
    settings_options,
)
from model_packaging.console.output import print_json, size_text

if TYPE_CHECKING:
    from handler.json_value import Json
    from model_packaging.compilation.compile_job import CompileJob


OF_A_JOB = ("image", "role", "on_demand", "longest", "subnets", "groups", "again", "stop", "region")


@click.command("compile")
@click.argument("model")
@click.option("--store", required=True, help="Put the artifacts here: s3://bucket/prefix, or file:///directory.")
@settings_options
@plan_options
@click.option("--on", metavar="INSTANCE", help="Compile in a training job on this instance type, not on this machine.")
@click.option("--cpu", is_flag=True, help="Compile on this machine's CPU, without Neuron devices (native lines).")
@click.option("--image", help="Run the job with this container image in ECR.")
@click.option("--role", help="Give the job this IAM role (name or ARN). Default: the only one that trusts SageMaker.")
@click.option("--on-demand", is_flag=True, help="Rent an on-demand instance, not a spot instance.")
@click.option(
    "--longest", default=14400, show_default=True, type=click.IntRange(600, 432000), help="End the job after so many s."
)
@network_options
@click.option("--again", is_flag=True, help="Start another job, although one has compiled this already.")
@click.option("--stop", is_flag=True, help="Stop the running job for these artifacts.")
@region_option
@dry_run_option
@json_option
def command(model: str, environ: Mapping[str, str], **options: Any) -> None:
    """Compiles MODEL with these settings and puts the artifacts into a store. A start finds them there by their key.

    MODEL is a folder, s3://bucket/prefix or a hub id. On this machine, the container is started, and stopped when it is
    ready. With --on, a training job compiles. Ctrl-C leaves the job running; the same command follows it again. The
    native lines compile on a CPU: --on ml.c7i.24xlarge --instance ml.trn2.48xlarge, or --cpu here.
    """
    _require_used()
    if options["on"]:
        _on_a_job(model, environ, options)
    else:
        _here(model, environ, options)


def _require_used() -> None:
    """An option without an effect is wrong usage: `--stop` without `--on` would compile here, and the job goes on."""
    context = click.get_current_context()
    unused = ("cpu",) if context.params["on"] else OF_A_JOB
    for parameter in context.command.params:
        if parameter.name in unused and context.get_parameter_source(parameter.name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{parameter.opts[0]} goes {'without' if context.params['on'] else 'with'} --on.")


def _here(model: str, environ: Mapping[str, str], options: Mapping[str, Any]) -> None:
    from handler.neuron.engine_plan import CPU_COMPILE
    from model_packaging.compilation.local_compile import child_environment, compile_here, failure_file
    from model_packaging.console.output import lines
    from model_packaging.examination_report import require_startable

    chosen = {**environ, "ENDPOINT_MODEL": os.path.abspath(model) if os.path.isdir(model) else model}  # noqa: PTH100, PTH112
    for name, value in (("ENDPOINT_INSTANCE", options["instance"]), ("ENDPOINT_LINE", options["line"])):
        if value:
            chosen[name] = value
    if options["cpu"]:
        chosen[CPU_COMPILE] = "1"
        require_startable({**chosen, "ENDPOINT_ARTIFACT_STORE": options["store"]})
    if options["dry_run"]:
        from model_packaging.deployment.definition.environment import shown

        print_json(shown({"here": True, "store": options["store"], "environment": dict(chosen)}))
        return
    with lines() as tell, failure_file(os.environ):
        made = compile_here(child_environment(chosen, os.environ), options["store"], tell)
    sizes = [sum(file.size for file in entry.files) for entry in made.entries]
    if options["as_json"]:
        entries: list[Json] = [
            {"kind": entry.kind, "key": entry.key, "size": size, "files": len(entry.files)}
            for entry, size in zip(made.entries, sizes, strict=True)
        ]
        print_json({"store": options["store"], "seconds": round(made.seconds, 1), "made": entries})
        return
    if not made.entries:
        click.echo(f"Everything was in {options['store']} already ({made.seconds:.0f} s to find out and to start).")
    for entry, size in zip(made.entries, sizes, strict=True):
        click.echo(
            f"{entry.kind} {entry.key[:16]}: {len(entry.files)} files, {size_text(size)}, in {options['store']}."
        )


def _on_a_job(model: str, environ: Mapping[str, str], options: Mapping[str, Any]) -> None:
    from model_packaging.compilation.compile_job import job_environment, members
    from model_packaging.compilation.compile_job_run import run, stop
    from model_packaging.console.output import lines
    from model_packaging.deployment.aws import Aws
    from model_packaging.deployment.definition.environment import shown
    from model_packaging.examination_report import require_startable

    aws = Aws(options["region"])
    wanted = _job(model, environ, options, aws)
    if options["stop"]:
        stopped = stop(aws, wanted)
        if options["as_json"]:
            print_json({"stopped": stopped})
            return
        click.echo(f"Stopping {stopped}." if stopped else "No such job runs.")
        return
    require_startable(job_environment(wanted))
    if options["dry_run"]:
        print_json(shown({"create_training_job": members(wanted, "TIME")}))
        return
    with lines() as tell:
        about = run(aws, wanted, tell, again=options["again"])
    billed = about.get("BillableTimeInSeconds")
    if options["as_json"]:
        print_json({"job": about["TrainingJobName"], "store": wanted.store, "billable_seconds": billed})
    else:
        click.echo(f"{about['TrainingJobName']} has put the artifacts into {wanted.store}; {billed} s are billed.")


def _job(model: str, environ: Mapping[str, str], options: Mapping[str, Any], aws: Any) -> CompileJob:
    from model_packaging.compilation.compile_job import CompileJob, machines
    from model_packaging.deployment.definition.environment import environment
    from model_packaging.deployment.definition.request import Network
    from model_packaging.deployment.definition.role import role_arn

    if not options["image"]:
        raise click.UsageError("--on needs --image.")
    on, target = machines(options["on"], options["instance"])
    source = click.get_current_context().params
    if source["own"]:
        raise click.UsageError("--env is this machine's environment; for a job give --env-file or --config.")
    variables = environment(environ, source["document"], target)
    if options["line"]:
        variables["ENDPOINT_LINE"] = options["line"]
    return CompileJob(
        image=options["image"],
        role=role_arn(aws, options["role"]),
        model=model,
        store=options["store"],
        on=on,
        target=target,
        environment=variables,
        spot=not options["on_demand"],
        longest=options["longest"],
        network=Network(options["subnets"], options["groups"]),
    )
