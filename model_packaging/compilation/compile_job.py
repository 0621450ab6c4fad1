"""Defines a compile as a SageMaker training job. It runs `neuron-endpoint compile` in the same image.

The job uses spot instances by default. An interrupted job resumes with the graphs that it had: the compiler's cache is
the job's checkpoint directory, which SageMaker copies to S3 and back.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from handler.errors import SettingError
from handler.neuron.engine_plan import CPU_COMPILE, TARGET
from handler.neuron.hardware.instance_catalogue import (
    TRAINING,
    CpuInstance,
    InstanceType,
    cpu_instance,
    find,
    find_for_plan,
)
from handler.neuron.lines.native.native_lines import NATIVE_029
from model_packaging.deployment.definition.request import Network
from model_packaging.deployment.definition.resources import tag_list

Members = dict[str, Any]
CHECKPOINTS = "/opt/ml/checkpoints"
CACHE = f"{CHECKPOINTS}/neff-cache"
TAG = "neuron-endpoint:compile"
# TrainingEnvironmentMap in the API reference.
MOST_VARIABLES, LONGEST_VALUE = 100, 512
# Neuron instances have NVMe disks. A job cannot request more than they have: ml.trn1.2xlarge has 474 GB.
VOLUME = 400
SPOT_WAIT = 4 * 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileJob:
    """One compile job.

    :param on: the instance that runs the job.
    :param target: the instance that the artifacts are for.
    :param longest: the time limit of the job in seconds.
    """

    image: str
    role: str
    model: str
    store: str
    on: str
    target: str
    environment: Mapping[str, str]
    spot: bool = True
    longest: int = 4 * 3600
    network: Network = field(default_factory=Network)

    def __post_init__(self) -> None:
        for name, place in (("--store", self.store), ("MODEL", self.model)):
            if name == "--store" and not place.startswith("s3://"):
                raise SettingError(name, f"'{place}' is not in S3", "A job can only read and write S3.")
            if place.startswith(("/", "./", "../", "file:")):
                raise SettingError(name, f"'{place}' is on this machine", "Push it first: `neuron-endpoint push`.")
        variables = job_environment(self)
        if len(variables) > MOST_VARIABLES:
            raise SettingError("--env-file", f"a job takes {MOST_VARIABLES} variables", "Use a document in S3.")
        for name, value in variables.items():
            if len(value) > LONGEST_VALUE:
                problem = f"a job takes {LONGEST_VALUE} characters a value, not {len(value)}"
                raise SettingError(name, problem, "Put the settings into a document in S3: --config s3://...")


def machines(on: str, instance: str | None) -> tuple[str, str]:
    """Returns the instance that runs the job, and the one that it compiles for.

    SageMaker has no training jobs on Inf2. Trn1 has the same cores (NeuronCore-v2), so the job runs there with Inf2 as
    the compiler's target.

    :param on: the value of --on.
    :param instance: the instance to compile for, if it is another.
    :raises SettingError: the first cannot compile for the second.
    """
    cpu = cpu_instance(on)
    if cpu is not None:
        return f"ml.{cpu.name}", _target_of_cpu(cpu, instance)
    rented, target = find(on, "--on"), find(instance or on, "--instance")
    if rented.name not in TRAINING:
        target = find(instance, "--instance") if instance else rented
        rented = find("trn1.2xlarge" if target.physical_cores <= 2 else "trn1.32xlarge")
    if not _fits(rented, target):
        problem = f"{rented.name} cannot compile for {target.name}"
        raise SettingError(
            "--on", problem, "Inf2 and Trn1 are compiled for on ml.trn1.32xlarge, Trn2 on ml.trn2.48xlarge."
        )
    return f"ml.{rented.name}", f"ml.{target.name}"


def _target_of_cpu(cpu: CpuInstance, instance: str | None) -> str:
    """The instance that a CPU instance compiles for. It is named, because nothing of a CPU instance tells it."""
    if cpu.arm:
        fix = "Use one with an Intel or AMD processor, as ml.c7i.24xlarge."
        raise SettingError("--on", f"{cpu.name} has an Arm processor, and the compiler runs on x86 only", fix)
    if not instance:
        fix = "Give --instance, for example ml.trn2.48xlarge."
        raise SettingError("--instance", f"{cpu.name} can compile for any Neuron instance of a native line", fix)
    target = find_for_plan(instance, "--instance")  # the artifacts may be for EC2, EKS or HyperPod
    if target.platform not in NATIVE_029.platforms:
        problem = f"only the native lines compile on a CPU, and they do not run on {target.name}"
        raise SettingError("--on", problem, "Inf2 and Trn1 are compiled for on ml.trn1.32xlarge.")
    return f"ml.{target.name}" if target.hosting else target.name


def members(spec: CompileJob, moment: str) -> Members:
    """Returns the parameters of CreateTrainingJob.

    :param moment: makes the name unique, for example `20260131-120000`. A job's name can never be used again.
    """
    job: Members = {
        "TrainingJobName": f"{prefix(spec)}{moment}",
        "AlgorithmSpecification": {
            "TrainingImage": spec.image,
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["neuron-endpoint"],
            "ContainerArguments": ["compile", "--env", "--store", spec.store, spec.model],
        },
        "RoleArn": spec.role,
        # The API requires an output path. Nothing is written there: the artifacts go to the store.
        "OutputDataConfig": {"S3OutputPath": f"{spec.store.rstrip('/')}/jobs"},
        "ResourceConfig": {"InstanceType": spec.on, "InstanceCount": 1, "VolumeSizeInGB": VOLUME},
        "StoppingCondition": {"MaxRuntimeInSeconds": spec.longest},
        "CheckpointConfig": {
            "S3Uri": f"{spec.store.rstrip('/')}/checkpoints/{digest(spec)}",
            "LocalPath": CHECKPOINTS,
        },
        "Environment": job_environment(spec),
        "EnableManagedSpotTraining": spec.spot,
        "Tags": tag_list({TAG: digest(spec)}),
    }
    if spec.spot:
        job["StoppingCondition"]["MaxWaitTimeInSeconds"] = spec.longest + SPOT_WAIT
    return {**job, **spec.network.members()}


def prefix(spec: CompileJob) -> str:
    """Returns the name prefix of all jobs for the same artifacts. So a running job is found and not started twice."""
    return f"compile-{digest(spec)}-"


def digest(spec: CompileJob) -> str:
    content = [spec.image, spec.model, spec.store, spec.on, spec.target, dict(spec.environment)]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def job_environment(spec: CompileJob) -> dict[str, str]:
    """Returns the variables of the job: the endpoint's settings, and where to compile what for which target."""
    target = find_for_plan(spec.target)
    variables = {
        **spec.environment,
        "ENDPOINT_INSTANCE": spec.target,
        "ENDPOINT_ARTIFACT_STORE": spec.store,
        "ENDPOINT_MODEL": spec.model,
        "NEURON_COMPILE_CACHE_URL": CACHE,
    }
    if cpu_instance(spec.on) is not None:
        variables |= {CPU_COMPILE: "1", TARGET: target.platform}
    elif find(spec.on).platform != target.platform:
        variables[TARGET] = target.platform
    return dict(sorted(variables.items()))


def _fits(rented: InstanceType, target: InstanceType) -> bool:
    same = rented.platform == target.platform or {rented.platform, target.platform} == {"trn1", "inf2"}
    return same and rented.physical_cores >= target.physical_cores and rented.platform != "inf2"
