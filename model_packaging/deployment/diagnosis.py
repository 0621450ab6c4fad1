"""Explains a failed deployment: finds a known symptom in the logs, and gives cause and fix.

The table is searched from the top: messages of the container come before those of its libraries and of SageMaker. Two
messages of libraries come before those of the container, which quote them and do not know the fix.
`docs/troubleshooting.md` is the same table for readers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from handler.artifacts.lease.log_redaction import redacted
from handler.errors.base import one_line


class Symptom(NamedTuple):
    """A known symptom.

    :param pattern: matches a log line or the failure's reason.
    :param cause, fix: may refer to groups of the pattern.
    """

    pattern: str
    cause: str
    fix: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The explanation of a failure.

    :param evidence: the line that matched.
    """

    cause: str
    fix: str
    evidence: str

    def lines(self) -> list[str]:
        return [f"Cause: {self.cause.rstrip('.')}.", f"Fix: {self.fix}", f"Seen: {self.evidence}"]


SYMPTOMS = (
    Symptom(r"^serve: (.+)$", "the container refuses a setting: {1}", "Fix the setting, and deploy again."),
    Symptom(
        r"Cannot copy out of meta tensor",
        "a model by its hub id, with tied embeddings, was sharded at load",
        "Push the model to S3, or set ENDPOINT_SAVE_SHARDED_CHECKPOINT=true.",
    ),
    Symptom(
        r"cannot import name .default_dump_dir",
        "the image's triton is older than its vLLM needs",
        "Build the image with triton 3.0.0 or newer, installed after vLLM.",
    ),
    Symptom(
        r"^\[\s*[\d.]+ s\] failed: (?:.*: )?(the engine's process was ended by .*memory ran out)",
        "the host's memory is full: {1}",
        "Lower max_num_seqs, max_model_len or VLLM_CPU_KVCACHE_SPACE, or use a larger instance.",
    ),
    Symptom(
        r"^\[\s*[\d.]+ s\] failed: (the engine(?:'s process| made no progress).*)$",
        "the engine failed while it served: {1}",
        "The lines above it have the engine's own account.",
    ),
    Symptom(
        r"^\[\s*[\d.]+ s\] failed: (.+)$", "the container could not start: {1}", "Do what it says, and deploy again."
    ),
    Symptom(
        r"(?i)(?:driver.{0,60}(?:version|incompatible|not supported|mismatch).{0,60}(?:nrt|neuron)"
        r"|(?:nrt|neuron).{0,60}driver.{0,60}(?:version|incompatible|not supported|mismatch|upgrade))",
        "the host's Neuron driver does not fit the image's runtime",
        "Choose another host image with --ami, or an image of an older Neuron line.",
    ),
    Symptom(
        r"(?i)no neuron device|/dev/neuron\d*.{0,40}(?:no such|not found)|nrt_init.{0,60}fail",
        "the container sees no Neuron device",
        "Deploy to ml.inf2, ml.trn1 or ml.trn2, with the default --ami.",
    ),
    Symptom(
        r"(?i)NRT_RESOURCE|failed to allocate.{0,80}(?:hbm|device|nd\s*\d|tensor)|nrt.{0,40}out of memory",
        "a Neuron core's memory is full",
        "Raise tensor_parallel_size, or lower max_num_seqs or max_model_len; `neuron-endpoint check` estimates it.",
    ),
    Symptom(
        r"(?i)PytorchStreamReader failed|digest .{0,80}it was damaged|Expected.{0,40}model\.pt",
        "the compiled graphs are damaged",
        "Verify the package (`neuron-endpoint verify`), and push or compile it again.",
    ),
    Symptom(
        r"(?i)gatedrepo|access to model .{0,80} is restricted|cannot access gated repo",
        "the model on the hub is gated, and the container has no token for it",
        "Give HF_TOKEN with --env-file, or push the model to S3.",
    ),
    Symptom(r"(?i)no space left on device", "a disk is full", "Raise --volume, or use an instance with NVMe disks."),
    Symptom(
        r"(?i)read-only file system",
        "something writes into /opt/ml/model, which is read-only",
        "Let it write below ENDPOINT_SCRATCH.",
    ),
    Symptom(
        r"(?i)(?:is not authorized to perform:?|accessdenied\w*.{0,120}?allow) ?([a-z0-9]+:[A-Za-z]+)",
        "the role lacks {1}",
        "Add it to the role's policy: docs/policy.json has the least one.",
    ),
    Symptom(
        r"(?i)access ?denied|\b403\b.{0,40}forbidden",
        "the role may not read something",
        "Compare its policy with docs/policy.json.",
    ),
    Symptom(
        r"(?i)could not connect to the endpoint url|name resolution|failed to establish a new connection",
        "the container reaches no S3",
        "Give the VPC a gateway endpoint for S3, and the security group a way out.",
    ),
    Symptom(
        r"(?i)could not find (?:model data|s3 prefix)|nosuchbucket|nosuchkey|no objects",
        "the model is not where the endpoint looks",
        "Compare the package's URI with `neuron-endpoint inspect`.",
    ),
    Symptom(r"(?i)exec format error", "the image is for another processor", "Build it with --platform linux/amd64."),
    Symptom(
        r"(?i)cannotstartcontainer|executable file not found",
        "the image cannot be started with `serve`",
        "Use the image of this project; an entry point of its own must pass `serve` on.",
    ),
    Symptom(
        r"(?i)(?:pull|retrieve|access).{0,40}(?:image|ecr)|image .{0,120}(?:does not exist|not found)|repository",
        "the image cannot be pulled",
        "Check its name and region, and that the role may read the ECR repository.",
    ),
    Symptom(
        r"(?i)exit(?:ed with)? (?:code|status) 137|cannot allocate memory|\boom\b|out of memory",
        "the host's memory is full",
        "Use a larger instance, or store the weights sharded (save_sharded_checkpoint).",
    ),
    Symptom(
        r"(?i)insufficient.{0,20}capacity|unable to provision requested",
        "AWS has no such instance to give in this region now",
        "Try again, another zone (--subnet), or reserve capacity.",
    ),
    Symptom(
        r"(?i)resourcelimitexceeded|service limit|quota",
        "the account's quota of this instance for endpoints is used up",
        "Ask for more in Service Quotas: '<instance> for endpoint usage'.",
    ),
    Symptom(
        r"(?i)timed? ?out.{0,60}download|download.{0,80}timed? ?out",
        "SageMaker's download of the model took too long",
        "Raise --download-seconds (at most 3600), or leave the weights in S3 (ENDPOINT_MODEL=s3://...).",
    ),
    Symptom(
        r"(?i)did not pass the ping health check|ping health check|health check.{0,40}(?:fail|time)",
        "the container was not ready in time",
        "Compile first, so that the start only restores; else raise --startup-seconds (at most 3600).",
    ),
)


def diagnose(reason: str, log: Iterable[str]) -> Diagnosis | None:
    """Returns the first symptom of the table that is found, or None.

    :param reason: SageMaker's FailureReason.
    :param log: the container's lines, oldest first.
    """
    lines = [*log, reason]
    for symptom in SYMPTOMS:
        pattern = re.compile(symptom.pattern)
        for line in reversed(lines):
            if match := pattern.search(line):
                groups = ("", *(group or "" for group in match.groups()))
                evidence = redacted(one_line(line.strip()[:400]), {})
                cause = redacted(one_line(symptom.cause.format(*groups)), {})
                return Diagnosis(cause, symptom.fix, evidence)
    return None
