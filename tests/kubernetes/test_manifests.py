"""Manifests against the schemas that Kubernetes and KServe publish, and their figures against the plan."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from handler.errors import SettingError
from handler.neuron.engine_plan import EnginePlan
from handler.neuron.hardware.instance_catalogue import find
from model_packaging.cli import main
from model_packaging.deployment.definition.limits import Sizes, start_seconds
from model_packaging.deployment.definition.request import ScalingRequest
from model_packaging.kubernetes.manifests import as_text, deployment, inference_service, node_group
from model_packaging.kubernetes.pod_size import CORES, DEVICES, PodSize, pod_size
from model_packaging.kubernetes.workload import Workload
from tests.kubernetes.examples import EXAMPLES, FOLDER, IMAGE, example
from tests.kubernetes.published_schemas import problems
from tests.recipes.golden_plans import published_models

MEMORY: dict[str, Any] = {"host": {"needed_gib": 30.0}}
GB = 10**9


def plan(degree: int, **env: str) -> EnginePlan:
    return EnginePlan("nxdi-0.16", {"tensor_parallel_size": degree}, env)


def size(instance: str = "inf2.24xlarge", degree: int = 8, **more: Any) -> PodSize:
    return pod_size(plan(degree), find(instance), Sizes(weights=16 * GB, fetched=16 * GB), MEMORY, **more)


def workload(**more: Any) -> Workload:
    return Workload(**{"name": "chat", "image": IMAGE, "size": size(), "instance": find("inf2.24xlarge"), **more})


def documents(work: Workload) -> dict[str, dict[str, Any]]:
    return {one["kind"]: one for one in deployment(work)}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_are_what_the_command_prints(name: str) -> None:
    with published_models():
        assert example(name) == (FOLDER / name).read_text(), "python -m tests.kubernetes.examples writes it anew"


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_fit_the_published_schemas(name: str) -> None:
    found = list(yaml.safe_load_all((FOLDER / name).read_text()))
    assert {one["kind"] for one in found} & {"Deployment", "InferenceService", "LeaderWorkerSet"}
    for document in found:
        assert problems(document) == [], document["kind"]


def test_a_group_of_pods_is_one_endpoint() -> None:
    found = {one["kind"]: one for one in node_group(workload(replicas=3), 2)}
    group = found["LeaderWorkerSet"]
    assert problems(group) == []
    assert (group["spec"]["replicas"], group["spec"]["leaderWorkerTemplate"]["size"]) == (3, 2)
    leader, worker = (
        group["spec"]["leaderWorkerTemplate"][part]["spec"]["containers"][0]
        for part in ("leaderTemplate", "workerTemplate")
    )
    assert (leader["args"], worker["args"]) == (["serve"], ["neuron-endpoint", "node"])
    assert "startupProbe" in leader
    assert not {"startupProbe", "readinessProbe", "livenessProbe"} & worker.keys()  # nothing listens there
    assert leader["resources"] == worker["resources"]
    assert found["Service"]["spec"]["selector"]["leaderworkerset.sigs.k8s.io/worker-index"] == "0"
    addresses = [next(one for one in part["env"] if one["name"] == "SM_VLLM_MASTER_ADDR") for part in (leader, worker)]
    assert addresses[0]["valueFrom"]["fieldRef"]["fieldPath"] == "status.podIP"  # vLLM binds to it
    assert addresses[1]["value"] == "$(LWS_LEADER_ADDRESS)"
    worker["securityContext"]["privilged"] = True
    assert problems(group)


BREAK: dict[str, Any] = {
    "a field that is none": lambda pod: pod.__setitem__("hostIpc", True),
    "a misspelt field of a container": lambda pod: pod["containers"][0].__setitem__("imagePullpolicy", "Always"),
    "text for a number": lambda pod: pod.__setitem__("terminationGracePeriodSeconds", "45"),
    "a probe without its port": lambda pod: pod["containers"][0]["startupProbe"]["httpGet"].pop("port"),
    "a volume without a name": lambda pod: pod["volumes"][0].pop("name"),
}


@pytest.mark.parametrize("way", BREAK)
@pytest.mark.parametrize("make", [deployment, inference_service], ids=["Deployment", "KServe"])
def test_a_broken_manifest_does_not_fit(make: Any, way: str) -> None:
    document = copy.deepcopy(make(workload())[-1])
    spec = document["spec"]
    assert problems(document) == []
    BREAK[way](spec["predictor"] if "predictor" in spec else spec["template"]["spec"])
    assert problems(document)


def test_kserves_own_fields_are_checked_too() -> None:
    document = inference_service(workload(scaling=ScalingRequest(1, 2, 4.0), prometheus="http://p:9090"))[-1]
    assert problems(document) == []
    metric = document["spec"]["predictor"]["autoScaling"]["metrics"][0]
    metric["external"]["metric"]["server"] = "x"
    document["spec"]["predictor"]["minReplicas"] = "1"
    assert len(problems(document)) == 2


@pytest.mark.parametrize(
    ("instance", "degree", "env", "resource", "count"),
    [
        ("inf2.48xlarge", 24, {}, DEVICES, 12),
        ("inf2.48xlarge", 3, {}, DEVICES, 2),
        ("inf2.xlarge", 1, {}, CORES, 1),
        ("trn2.48xlarge", 4, {}, DEVICES, 1),
        ("inf2.xlarge", 2, {}, DEVICES, 1),
        ("trn1.32xlarge", 1, {}, CORES, 1),
        ("trn2.48xlarge", 64, {}, DEVICES, 16),
        ("trn2.48xlarge", 64, {"NEURON_LOGICAL_NC_CONFIG": "1"}, DEVICES, 8),
        ("trn2.48xlarge", 1, {}, DEVICES, 1),
    ],
)
def test_devices_follow_from_the_plan(instance: str, degree: int, env: Any, resource: str, count: int) -> None:
    made = pod_size(plan(degree, **env), find(instance), Sizes(weights=GB), {"host": {"needed_gib": 2.0}})
    assert (made.resource, made.devices) == (resource, count)
    container = documents(workload(size=made, instance=find(instance)))["Deployment"]
    limits = container["spec"]["template"]["spec"]["containers"][0]["resources"]
    # Extended resources are never overcommitted: Kubernetes takes equal requests and limits only.
    assert limits["limits"][resource] == limits["requests"][resource] == count


def test_the_probes_give_a_start_its_time_and_a_drain_its_own() -> None:
    sizes = Sizes(weights=141 * GB, fetched=141 * GB, compiles=True)
    made = pod_size(plan(64), find("trn2.48xlarge"), sizes, None)
    assert made.startup >= start_seconds(sizes) > 3600  # longer than SageMaker would wait
    work = workload(size=made, instance=find("trn2.48xlarge"), drain=100.0)
    spec = documents(work)["Deployment"]["spec"]
    pod = spec["template"]["spec"]
    container = pod["containers"][0]
    startup = container["startupProbe"]
    assert startup["httpGet"]["path"] == "/ping"
    assert startup["periodSeconds"] * startup["failureThreshold"] >= made.startup
    assert spec["progressDeadlineSeconds"] > made.startup
    slept = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] >= slept + 100 + 10
    assert {"name": "ENDPOINT_DRAIN", "value": "100"} in container["env"]
    # While a dead engine is replaced the container is left alone, for as long as a start takes.
    alive = container["livenessProbe"]
    assert alive["periodSeconds"] * alive["failureThreshold"] >= made.startup
    assert container["readinessProbe"]["failureThreshold"] == 1


def test_a_pod_fits_its_share_of_the_node() -> None:
    half = size("inf2.24xlarge", 6)
    assert half.memory <= half.memory_limit <= find("inf2.24xlarge").host_gib / 2
    assert half.disk >= 36
    with pytest.raises(SettingError, match="400 GiB of the host"):
        pod_size(plan(12), find("inf2.24xlarge"), Sizes(), {"host": {"needed_gib": 400.0}})


def test_no_secret_is_printed_and_nothing_runs_as_root() -> None:
    work = workload(environment={"HF_TOKEN": "hf_VerySecret", "MAX_TOKENS": "5"})
    text = as_text(work, deployment(work))
    assert "hf_VerySecret" not in text
    assert "kubectl create secret generic chat --from-literal=HF_TOKEN=" in text
    pod = documents(work)["Deployment"]["spec"]["template"]["spec"]
    env = {one["name"]: one for one in pod["containers"][0]["env"]}
    assert env["HF_TOKEN"]["valueFrom"]["secretKeyRef"] == {"name": "chat", "key": "HF_TOKEN"}
    assert env["MAX_TOKENS"]["value"] == "5"
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True
    assert [one["mountPath"] for one in pod["containers"][0]["volumeMounts"]] == ["/tmp", "/dev/shm"]


def test_the_network_is_closed_but_for_the_port_and_what_a_start_needs() -> None:
    policy = documents(workload())["NetworkPolicy"]
    assert problems(policy) == []
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    (entry,) = policy["spec"]["ingress"]
    assert [port["port"] for port in entry["ports"]] == [8080]
    anywhere = [rule for rule in policy["spec"]["egress"] if "to" not in rule]
    assert [port["port"] for rule in anywhere for port in rule["ports"]] == [53, 53, 443]


def test_several_replicas() -> None:
    assert "PodDisruptionBudget" not in documents(workload())
    assert documents(workload(replicas=3))["Deployment"]["spec"]["replicas"] == 3
    scaled = documents(workload(scaling=ScalingRequest(2, 6, 8.0)))
    assert "replicas" not in scaled["Deployment"]["spec"]  # the autoscaler's to say
    target = scaled["HorizontalPodAutoscaler"]["spec"]["metrics"][0]["pods"]["target"]
    assert target["averageValue"] == "8000m"
    for document in scaled.values():
        assert problems(document) == []


@pytest.mark.parametrize(
    ("change", "setting"),
    [
        ({"name": "Chat"}, "NAME"),
        ({"name": "1chat"}, "NAME"),
        ({"name": "x" * 46}, "NAME"),
        ({"namespace": "a.b"}, "--namespace"),
        ({"scaling": ScalingRequest(0, 2, 1.0)}, "--min"),
        ({"scaling": ScalingRequest(1, 2, 0.0)}, "--concurrency"),
    ],
)
def test_what_a_cluster_would_refuse_is_refused(change: dict[str, Any], setting: str) -> None:
    with pytest.raises(SettingError) as caught:
        workload(**change)
    assert caught.value.setting == setting


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["kubernetes", "chat", *words, "--image", IMAGE], env={"COLUMNS": "200"})


def test_the_command_refuses_what_would_not_start() -> None:
    with published_models():
        model = "meta-llama/Llama-3.1-8B-Instruct"
        bad = run(model, "--instance", "inf2.xlarge", "--set", "SM_VLLM_TENSOR_PARALLEL_SIZE=8", "--compiled")
        assert (bad.exit_code, "No manifest" in bad.stdout) == (1, True)
        assert run(model, "--image").exit_code == 2
        assert "Give --instance or --cpu" in run(model).stderr
        unknown = run("nobody/knows", "--cpu")
        assert (unknown.exit_code, "--startup-seconds" in unknown.stderr) == (1, True)
        here = run("/opt/ml/model", "--cpu")
        assert (here.exit_code, "not in a pod" in here.stderr) == (1, True)
        assert run(model, "--cpu", "--nodes", "2", "--kserve").exit_code == 2
        spread = run(model, "--instance", "trn2.48xlarge", "--nodes", "2", "--set", "ENDPOINT_LINE=nxdi-0.16")
        assert (spread.exit_code, "in one process, whatever nnodes is" in " ".join(spread.stdout.split())) == (
            1,
            True,
        )
        scaled = run(model, "--cpu", "--kserve", "--max", "2", "--concurrency", "4")
        assert (scaled.exit_code, "--prometheus" in scaled.stderr) == (2, True)


def test_settings_of_any_length_go_along(tmp_path: Path) -> None:
    settings = tmp_path / "endpoint.yaml"
    settings.write_text("max_num_seqs: 4\n# " + "x" * 5000 + "\n")
    with published_models():
        result = run("meta-llama/Llama-3.1-8B-Instruct", "--cpu", "--config", str(settings))
    assert result.exit_code == 0, result.output
    found = {one["kind"]: one for one in yaml.safe_load_all(result.stdout)}
    assert found["ConfigMap"]["data"]["endpoint.yaml"] == settings.read_text()
    pod = found["Deployment"]["spec"]["template"]["spec"]
    assert {"name": "ENDPOINT_CONFIG", "value": "/etc/neuron-endpoint/endpoint.yaml"} in pod["containers"][0]["env"]
    assert "nodeSelector" not in pod
    assert all(problems(one) == [] for one in found.values())
    assert "aws.amazon.com" not in json.dumps(pod)
