"""`neuron-endpoint node`."""

from __future__ import annotations

import os

import click

from model_packaging.console.options import dry_run_option
from model_packaging.console.output import print_json, refuse


@click.command("node")
@click.option("--rank", type=click.IntRange(min=1), envvar="LWS_WORKER_INDEX", required=True, help="Take this rank.")
@dry_run_option
def command(rank: int, dry_run: bool) -> None:
    """Runs a further node of an engine that spans several nodes. It has vLLM's workers and no HTTP.

    The environment is that of `serve` on the first node, with the first node's address in SM_VLLM_MASTER_ADDR.
    LeaderWorkerSet sets the rank. The command fetches what is in S3 and replaces itself with `vllm serve --headless`.
    """
    from handler.config.config_rows import secrets, without_secrets
    from handler.config.loading.config_loader import load
    from handler.config.secret_values import mask
    from handler.engine.headless_node import address_of, headless_words
    from handler.errors import SettingError
    from handler.model.companions import fetch_companions
    from handler.model.model_source import fetch_model
    from handler.neuron.planning.examination import examine_config, rejected_settings

    try:
        config = load(os.environ)
    except SettingError as error:
        refuse(rejected_settings(error), False)
    if (config.nodes or 1) > 1:
        problem = "this command runs nodes of vLLM (nnodes), and none of the fork's"
        fix = "Start the fork's other ranks with its own launcher (examples/neuron/multi_node)."
        raise SettingError(config.source("nodes").name or "nodes", problem, fix)
    examination = examine_config(config, os.environ)
    if examination.plan is None or examination.failed:
        refuse(examination, False)
    plan = examination.plan
    words = headless_words({**plan.engine_args, "model": config.model}, rank, line=plan.line, resolve=str)
    known = secrets(config)
    if dry_run:
        environment = without_secrets(dict(plan.env), known)
        print_json({"command": without_secrets([*words], known), "environment": environment})
        return
    plan = fetch_companions(config, compiled_in=plan.line != "cpu").rewritten(plan)
    arguments = {**plan.engine_args, "model": fetch_model(config).path}
    words = headless_words(arguments, rank, line=plan.line, resolve=address_of)
    click.echo(mask(f"node {rank}: {' '.join(words)}", known), err=True)
    os.environ.update(plan.env)
    os.execvp(words[0], words)
