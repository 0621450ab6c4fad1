"""Manifests against the schemas that Kubernetes and KServe publish, and their figures against the plan."""

from __future__ import annotations

import json
import re
from functools import cache, partial
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import referencing
import yaml
from click.testing import CliRunner, Result

from handler.config.loading.config_loader import load
from handler.errors import SettingError
from handler.neuron.engine_plan import EnginePlan
from handler.neuron.hardware.instance_catalogue import find
from model_packaging.cli import main
from model_packaging.deployment.definition.limits import Sizes, start_seconds
from model_packaging.deployment.definition.request import ScalingRequest
from model_packaging.kubernetes import manifests
from model_packaging.kubernetes.manifests import (
    as_text,
    compile_job,
    deployment,
    hyperpod_endpoint,
    llm_inference_service,
    node_group,
)
from model_packaging.kubernetes.pod_size import CORES, DEVICES, PodSize, pod_size
from model_packaging.kubernetes.workload import Workload
from tests.kubernetes.examples import EXAMPLES, FOLDER, IMAGE, STORE, example
from tests.recipes.golden_plans import LOCAL, published_models
from tests.recipes.recipe_files import FILES, MODELS

KUBERNETES = "1.34"
SCHEMAS = Path(__file__).parent / "schemas"
META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
SCHEMA_CONTENTS = cache(kubernetes_validate.utils.schema_contents)


@pytest.fixture(autouse=True)
def quick_parsers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each schema is read once, and YAML by libyaml."""
    monkeypatch.setattr(kubernetes_validate.utils, "schema_contents", SCHEMA_CONTENTS)
    monkeypatch.setattr(yaml, "safe_load_all", partial(yaml.load_all, Loader=yaml.CSafeLoader))


def problems(document: dict[str, Any]) -> list[str]:
    """What is wrong with a manifest by its published schema; unknown fields are. Rules in CEL are not evaluated."""
    schema = SCHEMAS / f"{document['kind']}.json"
    if not schema.exists():
        try:
            kubernetes_validate.validate(document, KUBERNETES, strict=True)
        except (kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError) as error:
            return [str(error.message)]
        return []
    errors = [*_validator(schema).iter_errors(document), *_metadata().iter_errors(document.get("metadata"))]
    return [f"{'.'.join(map(str, error.path))}: {error.message}" for error in errors]


@cache
def _validator(schema: Path) -> jsonschema.Draft202012Validator:
    pinned = json.loads(schema.read_text(encoding="utf-8"))
    structure = _strict(pinned["openAPIV3Schema"])
    structure["properties"]["apiVersion"] = {"const": pinned["apiVersion"]}
    structure["required"] = sorted({"apiVersion", "kind", "metadata", *structure.get("required", ())})
    return jsonschema.Draft202012Validator(structure)


def _strict(node: Any) -> Any:
    """An API server drops fields that the schema does not have, and `kubectl apply` rejects them. So do these."""
    if isinstance(node, list):
        return [_strict(item) for item in node]
    if not isinstance(node, dict):
        return node
    strict = {name: _strict(value) for name, value in node.items()}
    if isinstance(node.get("properties"), dict) and "additionalProperties" not in node:
        strict["additionalProperties"] = bool(node.get("x-kubernetes-preserve-unknown-fields"))
    return strict


@cache
def _metadata() -> jsonschema.Draft202012Validator:
    folder = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema" / f"v{KUBERNETES}.0-local-strict"
    whole = json.loads((folder / "_definitions.json").read_text(encoding="utf-8"))
    registry: Any = referencing.Resource.from_contents(whole) @ referencing.Registry()
    return jsonschema.Draft202012Validator({"$ref": f"{whole['$id']}#/$defs/{META}"}, registry=registry)


MEMORY: dict[str, Any] = {"host": {"needed_gib": 30.0}}
GB = 10**9
SCALED = ("--max", "3", "--concurrency", "4")
WORKSPACE = ("--prometheus", "https://aps-workspaces.us-east-1.amazonaws.com/workspaces/ws-1")
KEDA = ("--prometheus", "http://prometheus.monitoring:9090")


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


# How a recipe's manifests are printed, by mode, and the kinds that the mode must have.
MODES: dict[str, tuple[tuple[str, ...], set[str]]] = {
    "deployment": ((), {"Deployment", "NetworkPolicy"}),
    "plugins": (("--replicas", "3", "--efa", "1", "--karpenter", "neuron"), {"NodePool", "PodDisruptionBudget"}),
    "scaled": ((*SCALED, "--store-class", "efs"), {"HorizontalPodAutoscaler", "PersistentVolumeClaim"}),
    "gateway": ((*SCALED, *KEDA, "--gateway", "infra/main"), {"ScaledObject", "InferencePool", "HTTPRoute"}),
    "dra": (("--dra", "--efa", "1", "--karpenter", "neuron"), {"ResourceClaimTemplate", "NodePool"}),
    "kserve": ((*SCALED, *KEDA, "--kserve"), {"InferenceService"}),
    "llm-service": (("--llm-service", "--replicas", "2"), {"LLMInferenceService", "PodDisruptionBudget"}),
    "hyperpod": ((*SCALED, *WORKSPACE, "--hyperpod"), {"InferenceEndpointConfig", "ServiceAccount"}),
    "compile-job": (("--compile-job",), {"Job"}),
    "nodes": ((*SCALED, "--nodes", "2", "--gateway", "main"), {"LeaderWorkerSet", "HorizontalPodAutoscaler"}),
}
# Why a recipe has no manifest in a mode. Only the native lines go over several nodes; the DRA driver is Trainium's.
NONE = {"dra": "has Trainium's devices only", "nodes": "No manifest: it would not start"}


def printed(recipe: Path, mode: str) -> Result:
    model = yaml.safe_load(recipe.read_text())["model"]
    own = ("--compiled",) if "--store-class" in MODES[mode][0] else STORE.split()
    words = ("--config", str(recipe), "--instance", recipe.stem.rpartition("-")[2], *own, *MODES[mode][0])
    unknown = () if MODELS[model]["total_size"] else ("--startup-seconds", "3600")
    return run(LOCAL.get(model, model), *words, *unknown)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_each_recipe_is_valid_in_each_mode(mode: str) -> None:
    made = 0
    with published_models():
        for recipe in FILES:
            result = printed(recipe, mode)
            if result.exit_code and mode in NONE:
                assert NONE[mode] in " ".join(result.output.split()), result.output
                continue
            assert result.exit_code == 0, result.output
            documents = list(yaml.safe_load_all(result.stdout))
            assert {document["kind"] for document in documents} >= MODES[mode][1]
            for document in documents:
                assert problems(document) == [], f"{recipe.stem}: {document['kind']}"
            made += 1
    assert made >= (5 if mode == "nodes" else len(FILES) - 2)


# kind -> where in the document, and what is put there.
BROKEN: list[tuple[str, str, str, Any]] = [
    ("deployment", "Deployment", "spec.template.spec.hostIpc", True),
    ("deployment", "Deployment", "spec.template.spec.containers.0.imagePullpolicy", "Always"),
    ("deployment", "Deployment", "spec.template.spec.terminationGracePeriodSeconds", "45"),
    ("deployment", "Deployment", "spec.template.spec.containers.0.startupProbe.httpGet", {"path": "/ping"}),
    ("dra", "Deployment", "spec.template.spec.resourceClaims.0.resourceClaimTemplate", "chat"),
    ("dra", "ResourceClaimTemplate", "spec.spec.devices.requests.0.count", 8),
    ("dra", "ResourceClaimTemplate", "spec.spec.devices.constraints.0.matchAttributes", ["a"]),
    ("dra", "NodePool", "spec.template.spec.requirements.0.operator", "Is"),
    ("dra", "NodePool", "spec.template.spec.nodeClassRef", {"name": "neuron"}),
    ("scaled", "HorizontalPodAutoscaler", "spec.maxReplicas", "3"),
    ("scaled", "PersistentVolumeClaim", "spec.accessMode", "ReadWriteMany"),
    ("gateway", "ScaledObject", "spec.triggers.0.metadata.threshold", 4),
    ("gateway", "ScaledObject", "spec.minReplicas", 1),
    ("gateway", "InferencePool", "spec.targetPortNumber", 8080),
    ("gateway", "InferencePool", "spec.endpointPickerRef.failureMode", "Open"),
    ("gateway", "HTTPRoute", "spec.rules.0.timeouts.request", "never"),
    ("gateway", "HTTPRoute", "spec.parentRefs.0.gateway", "main"),
    ("plugins", "PodDisruptionBudget", "spec.maxUnavailable", True),
    ("kserve", "InferenceService", "spec.predictor.minReplicas", "1"),
    ("kserve", "InferenceService", "spec.predictor.containers.0.securityContext.privilged", True),
    ("llm-service", "LLMInferenceService", "spec.router.picker", {}),
    ("llm-service", "LLMInferenceService", "spec.template.containers.0.ports.0.containerPort", "8000"),
    ("llm-service", "LLMInferenceService", "apiVersion", "serving.kserve.io/v1alpha1"),
    ("hyperpod", "InferenceEndpointConfig", "spec.modelSourceConfig.modelSourceType", "none"),
    ("hyperpod", "InferenceEndpointConfig", "spec.worker.volumeMounts", []),
    ("hyperpod", "InferenceEndpointConfig", "spec.autoScalingSpec.prometheusTrigger.serverAddress", KEDA[1]),
    ("hyperpod", "InferenceEndpointConfig", "spec.instanceType", "trn2.48xlarge"),
    ("compile-job", "Job", "spec.backofLimit", 2),
    ("nodes", "LeaderWorkerSet", "spec.leaderWorkerTemplate.restartPolicy", "Always"),
    ("nodes", "LeaderWorkerSet", "spec.leaderWorkerTemplate.workerTemplate.spec.container", []),
    ("nodes", "LeaderWorkerSet", "metadata.lables", {}),
]


@pytest.mark.parametrize(("mode", "kind", "place", "value"), BROKEN)
def test_a_broken_manifest_is_refused(mode: str, kind: str, place: str, value: Any) -> None:
    recipe = next(file for file in FILES if file.stem == "qwen3-8b-trn2.48xlarge")
    with published_models():
        result = printed(recipe, mode)
    document = next(each for each in yaml.safe_load_all(result.stdout) if each["kind"] == kind)
    assert problems(document) == []
    *parents, field = place.split(".")
    node = document
    for name in parents:
        node = node[int(name) if name.isdigit() else name]
    node[field] = value
    assert problems(document)


def test_the_job_runs_a_command_that_exists() -> None:
    work = workload(model="org/model", environment={"ENDPOINT_ARTIFACT_STORE": "s3://bucket/store"})
    pod = compile_job(work)[-1]["spec"]["template"]["spec"]
    container = pod["containers"][0]
    assert "readinessProbe" not in container
    values = {variable["name"]: variable["value"] for variable in container["env"]}
    result = CliRunner().invoke(main, [*container["args"][1:], "--dry-run"], env=values)
    assert json.loads(result.stdout)["store"] == "s3://bucket/store", result.output
    for own in ({}, {"ENDPOINT_ARTIFACT_STORE": "file:///tmp/store"}):
        with pytest.raises(SettingError, match="need a store"):
            compile_job(workload(model="org/model", environment=own))


def test_nothing_of_the_endpoint_selects_the_pod_of_the_job() -> None:
    work = workload(environment={"ENDPOINT_ARTIFACT_STORE": "s3://bucket/store"}, replicas=2, gateway="main")
    labels = compile_job(work)[-1]["spec"]["template"]["metadata"]["labels"]
    selectors = [
        documents(work)["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        documents(work)["InferencePool"]["spec"]["selector"]["matchLabels"],
    ]
    assert not [selector for selector in selectors if selector.items() <= labels.items()]


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


def test_each_engine_has_its_devices() -> None:
    """The estimate has the memory of all of them."""
    two = EnginePlan("native-0.29", {"tensor_parallel_size": 8, "data_parallel_size": 2}, {})
    made = pod_size(two, find("trn2.48xlarge"), Sizes(weights=GB), MEMORY)
    assert (made.devices, made.memory) == (4, 30 + 4 + made.shm)
    one_of_two = {**two.engine_args, "data_parallel_address": "10.0.0.1", "data_parallel_size_local": 1}
    of_two_nodes = {**one_of_two, "nnodes": 2}
    for arguments in (one_of_two, of_two_nodes):
        spread = EnginePlan(two.line, arguments, {})
        assert pod_size(spread, find("trn2.48xlarge"), Sizes(weights=GB), MEMORY).devices == 2


def test_sharded_weights_have_room_without_a_compile() -> None:
    plain, sharded = (
        pod_size(plan(64), find("trn2.48xlarge"), Sizes(weights=141 * GB, fetched=141 * GB, sharded=size), None).disk
        for size in (0, 141 * GB)
    )
    assert sharded == plain + 141


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
    work = workload(environment={"HF_TOKEN": "hf_VerySecret", "MAX_TOKENS": "$(HOME)"})
    text = as_text(work, deployment(work))
    assert "hf_VerySecret" not in text
    assert "kubectl create secret generic chat --from-literal=HF_TOKEN=" in text
    pod = documents(work)["Deployment"]["spec"]["template"]["spec"]
    env = {one["name"]: one for one in pod["containers"][0]["env"]}
    assert env["HF_TOKEN"]["valueFrom"]["secretKeyRef"] == {"name": "chat", "key": "HF_TOKEN"}
    assert env["MAX_TOKENS"]["value"] == "$$(HOME)"  # which Kubernetes does not expand
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


@pytest.mark.parametrize("side", ["prefill", "decode"])
def test_prefill_and_decode_reach_each_others_side_channel(side: str) -> None:
    recipe = next(file for file in FILES if file.stem == f"qwen3-32b-{side}-trn2.48xlarge")
    with published_models():
        printed_documents = list(yaml.safe_load_all(printed(recipe, "deployment").stdout))
    (policy,) = [document for document in printed_documents if document["kind"] == "NetworkPolicy"]
    (pod,) = [each["spec"]["template"] for each in printed_documents if each["kind"] == "Deployment"]
    assert problems(policy) == []
    # The ports of the two sides differ, so a rule has none. It is for the project's pods of one namespace only.
    rules = [policy["spec"]["ingress"][-1].pop("from"), policy["spec"]["egress"][-1].pop("to")]
    assert (policy["spec"]["ingress"][-1], policy["spec"]["egress"][-1]) == ({}, {})
    for (peer,) in rules:
        assert peer.keys() == {"podSelector"}
        assert peer["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    (host,) = [each for each in pod["spec"]["containers"][0]["env"] if each["name"] == "VLLM_NIXL_SIDE_CHANNEL_HOST"]
    assert host["valueFrom"] == {"fieldRef": {"fieldPath": "status.podIP"}}


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
    ("kind", "pods"),
    [
        ("deployment", ["chat-7d9f8c6b5-abcde"]),
        ("inference_service", ["chat-predictor-7d9f8c6b5-abcde", "chat-predictor-7dabcde"]),
        ("node_group", ["chat-0", "chat-12"]),
    ],
)
def test_the_query_counts_the_workloads_own_pods_only(kind: str, pods: list[str]) -> None:
    work = workload(scaling=ScalingRequest(1, 2, 4.0), prometheus=KEDA[1])
    made = node_group(work, 2) if kind == "node_group" else getattr(manifests, kind)(work)
    (pattern,) = set(re.findall(r'pod=~\\?"([^"\\]+)', json.dumps(made)))
    of_others = ["chat-70b-7d9f8c6b5-abcde", "chat-70b-0", "chat-70b-0-1", "chat-70b-predictor-7d9f8c6b5-abcde"]
    of_others += ["chat-predictor-70b-predictor-7d9f8c6b5-abcde"]
    assert [pod for pod in [*pods, *of_others] if re.fullmatch(pattern, pod)] == pods


def test_karpenters_nodes_are_those_that_the_pods_select() -> None:
    trn2 = find("trn2.48xlarge")
    found = documents(workload(size=size(trn2.name, 4), instance=trn2, dra=True, node_class="neuron"))
    pool = found["NodePool"]["spec"]
    assert problems(found["NodePool"]) == []
    for namespace, name in ((None, "chat"), ("prod", "prod.chat"), ("n" * 63, f"{'n' * 54}-")):
        work = workload(size=size(trn2.name, 4), instance=trn2, dra=True, node_class="neuron", namespace=namespace)
        made = documents(work)["NodePool"]["metadata"]["name"]
        assert made.startswith(name)
        assert len(made) <= 63
    (types,) = [rule for rule in pool["template"]["spec"]["requirements"] if rule["key"].endswith("instance-type")]
    # A fixed number of nodes is made before any pod asks: of the family it could be the cheapest, which no pod fits.
    assert {types["key"]: types["values"][0]} == found["Deployment"]["spec"]["template"]["spec"]["nodeSelector"]
    assert {"nodes": "0", "reasons": ["Drifted"]} in pool["disruption"]["budgets"]


def test_hyperpod_gets_the_settings_in_a_variable() -> None:
    work = workload(settings="max_num_seqs: 4\n", environment={"HF_TOKEN": "hf_VerySecret"})
    account, endpoint = hyperpod_endpoint(work)
    assert [problems(document) for document in (account, endpoint)] == [[], []]
    worker = endpoint["spec"]["worker"]
    environment = {variable["name"]: variable for variable in worker["environmentVariables"]}
    assert json.loads(environment["ENDPOINT_CONFIG"]["value"]) == {"max_num_seqs": 4}
    assert environment["HF_TOKEN"]["valueFrom"]["secretKeyRef"] == {"name": "chat", "key": "HF_TOKEN"}
    pod = documents(work)["Deployment"]["spec"]["template"]["spec"]
    assert worker["resources"] == pod["containers"][0]["resources"]


def test_the_pod_of_a_llm_service_keeps_one_hook_when_kserve_merges_its_own_into_it() -> None:
    service = llm_inference_service(workload(model="org/model"))[-1]["spec"]
    (container,) = service["template"]["containers"]
    # KServe 0.20, config/llmisvcconfig/config-llm-template.yaml. It merges mappings; ours replace its values and lists.
    merged = {"exec": {"command": ["/bin/sleep", "15"]}} | container["lifecycle"]["preStop"]
    assert merged == {"exec": {"command": ["/bin/sleep", "5"]}}
    assert service["annotations"]["prometheus.io/port"] == str(container["ports"][0]["containerPort"])


@pytest.mark.parametrize(
    ("change", "setting"),
    [
        ({"instance": find("trn2.48xlarge"), "dra": True}, "--dra"),
        ({"node_class": "neuron"}, "--karpenter"),
        ({"storage_class": "efs"}, "--store-class"),
        ({"instance": None}, "--cpu"),
        ({"scaling": ScalingRequest(1, 2, 4.0), "prometheus": KEDA[1]}, "--max"),
    ],
)
def test_what_hyperpod_has_no_field_for_is_refused(change: dict[str, Any], setting: str) -> None:
    with pytest.raises(SettingError) as caught:
        hyperpod_endpoint(workload(**change))
    assert caught.value.setting == setting


@pytest.mark.parametrize(
    ("change", "setting"),
    [
        ({"name": "Chat"}, "NAME"),
        ({"name": "1chat"}, "NAME"),
        ({"name": "x" * 46}, "NAME"),
        ({"namespace": "a.b"}, "--namespace"),
        ({"scaling": ScalingRequest(0, 2, 1.0)}, "--min"),
        ({"scaling": ScalingRequest(1, 4, 1.0), "replicas": 5}, "--replicas"),
        ({"scaling": ScalingRequest(1, 2, 0.0)}, "--concurrency"),
        ({"gateway": "a/b/c"}, "--gateway"),
        ({"dra": True}, "--dra"),
        ({"dra": True, "efa": 16, "instance": find("trn2.48xlarge")}, "--efa"),
        ({"efa": 1, "instance": None}, "--efa"),
        ({"node_class": "neuron", "instance": None}, "--karpenter"),
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
        assert run(model, "--cpu", *KEDA).exit_code == 2
        assert run(model, "--cpu", *STORE, "--compile-job", "--replicas", "2").exit_code == 2
        for unfit in ("SAGEMAKER_BIND_TO_PORT=9999", "ENDPOINT_SCRATCH=/data", "SM_VLLM_NNODES=2"):
            refused = run(model, "--instance", "trn2.48xlarge", "--compiled", "--set", unfit)
            assert refused.exit_code in (1, 2), refused.output
            assert "No manifest" not in refused.output
        for twice in ("SM_VLLM_MASTER_ADDR=10.9.9.9", "SM_VLLM_NNODES=4"):
            refused = run(model, "--instance", "trn2.48xlarge", "--nodes", "2", "--compiled", "--set", twice)
            assert (refused.exit_code, f"Leave {twice.partition('=')[0]} out" in refused.stderr) == (2, True)
        fork = ("--line", "fork-0.9.1", "--set", "ENDPOINT_NODES=2", "--set", "MASTER_ADDR=h")
        refused = run(model, "--instance", "trn1.32xlarge", *fork, "--compiled")
        assert (refused.exit_code, "ENDPOINT_NODES" in refused.stderr) == (1, True)
        other = run(model, "--instance", "trn2.48xlarge", "--set", "ENDPOINT_INSTANCE=inf2.xlarge", "--compiled")
        assert "inf2.xlarge" not in other.stdout
        scaled = run(model, "--cpu", "--kserve", "--max", "2", "--concurrency", "4")
        assert (scaled.exit_code, "--prometheus" in scaled.stderr) == (2, True)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("settings.yaml", "max_num_seqs: 4\n# " + "x" * 5000 + "\n"),
        ("settings.toml", "max_num_seqs = 4"),
        ("settings.json", '{\n\t"max_num_seqs": 4}'),
        ("serving.properties", "option.max_rolling_batch_size=4"),
    ],
)
def test_the_pod_reads_the_document_in_its_own_format(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    words = ("meta-llama/Llama-3.1-8B-Instruct", "--config", str(path))
    with published_models():
        result = run(*words, "--cpu")
        named = run(words[0], "--set", f"ENDPOINT_CONFIG={path}", "--cpu")
        worker = run(*words, "--instance", "trn2.48xlarge", "--hyperpod", "--compiled")
    assert (result.exit_code, named.stdout) == (0, result.stdout), result.output
    found = {one["kind"]: one for one in yaml.safe_load_all(result.stdout)}
    assert all(problems(one) == [] for one in found.values())
    ((file, body),) = found["ConfigMap"]["data"].items()
    (tmp_path / file).write_text(body)
    assert load({"ENDPOINT_CONFIG": str(tmp_path / file)}).max_num_seqs == 4
    pod = found["Deployment"]["spec"]["template"]["spec"]
    assert {"name": "ENDPOINT_CONFIG", "value": f"/etc/neuron-endpoint/{file}"} in pod["containers"][0]["env"]
    assert "nodeSelector" not in pod
    assert "aws.amazon.com" not in json.dumps(pod)
    if name == "serving.properties":
        assert (worker.exit_code, "--config" in worker.stderr) == (2, True)
    else:
        assert '{"max_num_seqs": 4}' in worker.stdout


def test_a_document_with_a_secret_is_not_printed(tmp_path: Path) -> None:
    settings = tmp_path / "endpoint.yaml"
    for secret in ("hf_token: hf_VerySecret", "neuron_env: {MY_TOKEN: hf_VerySecret}"):
        settings.write_text(f"max_num_seqs: 4\n{secret}\n")
        with published_models():
            result = run("meta-llama/Llama-3.1-8B-Instruct", "--cpu", "--config", str(settings))
        assert (result.exit_code, "hf_Very" in result.output) == (2, False)
        assert "--config" in result.stderr


def test_the_job_compiles_into_the_store_of_the_settings(tmp_path: Path) -> None:
    settings = tmp_path / "endpoint.yaml"
    settings.write_text("artifact_store: s3://bucket/own\n")
    words = ("meta-llama/Llama-3.1-8B-Instruct", "--instance", "trn2.48xlarge", "--config", str(settings), "--compiled")
    with published_models():
        result = run(*words, "--compile-job")
    assert result.stdout.count("s3://bucket/own") == 3  # the document, the job's argument, its variable
    assert "and a compile" in result.stdout  # so its disk holds the graphs, too
