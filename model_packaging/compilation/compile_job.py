"""A compile as a SageMaker training job: the same image, its command `neuron-endpoint compile`, the store as output.

Spot by default: an interrupted job goes on with the graphs that it had, because the compiler's cache is the job's
checkpoint directory, which SageMaker copies to S3 and back.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from handler.errors import SettingError
from handler.neuron.hardware.instance_catalogue import find
from handler.neuron.hardware.instance_type import InstanceType
from model_packaging.deployment.definition.request import Network
from model_packaging.deployment.definition.resources import tag_list

Members = dict[str, Any]
CHECKPOINTS = "/opt/ml/checkpoints"
CACHE = f"{CHECKPOINTS}/neff-cache"
TAG = "neuron-endpoint:compile"
# TrainingEnvironmentMap in the API reference.
MOST_VARIABLES, LONGEST_VALUE = 100, 512
# These instances have NVMe disks, of which no more may be asked for than there is: ml.trn1.2xlarge has 474 GB.
VOLUME = 400
SPOT_WAIT = 4 * 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileJob:
    """:param on: the instance that is rented. :param target: the instance that the artifacts are for.
    :param longest: seconds that the job may run."""

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
    kms_key: str | None = None
    tags: Mapping[str, str]

    def __post_init__(self) -> None:
        for name, place in (("--store", self.store), ("MODEL", self.model)):
            if name == "--store" and not place.startswith("s3://"):
                raise SettingError(name, f"'{place}' is not in S3", "A job reads and writes S3 alone.")
            if place.startswith(("/", "./", "../", "file:")):
                raise SettingError(name, f"'{place}' is on this machine", "Push it first: `neuron-endpoint push`.")
        variables = _environment(self)
        if len(variables) > MOST_VARIABLES:
            raise SettingError("--env-file", f"a job takes {MOST_VARIABLES} variables", "Use a document in S3.")
        for name, value in variables.items():
            if len(value) > LONGEST_VALUE:
                problem = f"a job takes {LONGEST_VALUE} characters a value, not {len(value)}"
                raise SettingError(name, problem, "Put the settings into a document in S3: --config s3://...")


def machines(on: str, instance: str | None) -> tuple[str, str]:
    """The instance to rent, and the one that is compiled for.

    SageMaker has no training jobs on Inf2. Trn1 has the same cores (NeuronCore-v2), so the job runs there with Inf2 as
    the compiler's target.

    :param on: as typed. :param instance: what is compiled for, where that is another.
    :raises SettingError: one cannot compile for the other.
    """
    rented, target = find(on, "--on"), find(instance or on, "--instance")
    if rented.platform == "inf2":
        target = find(instance, "--instance") if instance else rented
        rented = find("trn1.2xlarge" if target.physical_cores <= 2 else "trn1.32xlarge")
    if not _fits(rented, target):
        problem = f"{rented.name} cannot compile for {target.name}"
        raise SettingError(
            "--on", problem, "Inf2 and Trn1 are compiled for on ml.trn1.32xlarge, Trn2 on ml.trn2.48xlarge."
        )
    return f"ml.{rented.name}", f"ml.{target.name}"


def members(wanted: CompileJob, moment: str) -> Members:
    """Of CreateTrainingJob.

    :param moment: makes the name unique, `20260131-120000`: a job's name is used up for ever.
    """
    job: Members = {
        "TrainingJobName": f"{prefix(wanted)}{moment}",
        "AlgorithmSpecification": {
            "TrainingImage": wanted.image,
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["neuron-endpoint"],
            "ContainerArguments": ["compile", "--env", "--store", wanted.store, wanted.model],
        },
        "RoleArn": wanted.role,
        # Nothing is written to it: the artifacts go into the store, one by one. The API wants one.
        "OutputDataConfig": {"S3OutputPath": f"{wanted.store.rstrip('/')}/jobs"},
        "ResourceConfig": {"InstanceType": wanted.on, "InstanceCount": 1, "VolumeSizeInGB": VOLUME},
        "StoppingCondition": {"MaxRuntimeInSeconds": wanted.longest},
        "CheckpointConfig": {
            "S3Uri": f"{wanted.store.rstrip('/')}/checkpoints/{digest(wanted)}",
            "LocalPath": CHECKPOINTS,
        },
        "Environment": _environment(wanted),
        "EnableManagedSpotTraining": wanted.spot,
        "Tags": tag_list({**wanted.tags, TAG: digest(wanted)}),
    }
    if wanted.spot:
        job["StoppingCondition"]["MaxWaitTimeInSeconds"] = wanted.longest + SPOT_WAIT
    if wanted.kms_key:
        job["OutputDataConfig"]["KmsKeyId"] = wanted.kms_key
    if wanted.network.subnets:
        subnets, groups = list(wanted.network.subnets), list(wanted.network.security_groups)
        job["VpcConfig"] = {"Subnets": subnets, "SecurityGroupIds": groups}
    return job


def prefix(wanted: CompileJob) -> str:
    """What all jobs for the same artifacts are called by: one that runs already is followed, not run twice."""
    return f"compile-{digest(wanted)}-"


def digest(wanted: CompileJob) -> str:
    content = [wanted.image, wanted.model, wanted.store, wanted.on, wanted.target, dict(wanted.environment)]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _environment(wanted: CompileJob) -> dict[str, str]:
    target = find(wanted.target)
    found = {
        **wanted.environment,
        "ENDPOINT_INSTANCE": wanted.target,
        "ENDPOINT_ARTIFACT_STORE": wanted.store,
        "ENDPOINT_MODEL": wanted.model,
        "NEURON_COMPILE_CACHE_URL": CACHE,
    }
    if find(wanted.on).platform != target.platform:
        found["NEURON_PLATFORM_TARGET_OVERRIDE"] = target.platform
    return dict(sorted(found.items()))


def _fits(rented: InstanceType, target: InstanceType) -> bool:
    same = rented.platform == target.platform or {rented.platform, target.platform} == {"trn1", "inf2"}
    return same and rented.physical_cores >= target.physical_cores and rented.platform != "inf2"
