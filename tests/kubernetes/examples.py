"""The manifests in kubernetes/, as the command prints them; `python -m tests.kubernetes.examples` writes them anew."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from tests.recipes.golden_plans import published_models

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "kubernetes"
IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/neuron-endpoint:0.1"
ROLE = "arn:aws:iam::123456789012:role/llm-pods"
STORE = "--set ENDPOINT_ARTIFACT_STORE=s3://bucket/store --compiled"
ON_TRN2 = f"--instance trn2.48xlarge --role {ROLE} {STORE}"
# file -> the recipe whose settings it has, if any, and the words beside --image and --config.
EXAMPLES: dict[str, tuple[str, str]] = {
    "deployment-inf2.yaml": (
        "llama-3.1-8b-inf2.24xlarge",
        f"llama-8b --instance inf2.24xlarge --role {ROLE} {STORE} --set HF_TOKEN=hf_x",
    ),
    "deployment-trn2-scaled.yaml": (
        "llama-3.3-70b-trn2.48xlarge",
        f"llama-70b {ON_TRN2} --namespace models --min 2 --max 6 --concurrency 0.5",
    ),
    "kserve-trn1.yaml": (
        "qwen3-8b-trn1.32xlarge",
        f"qwen3-8b --instance trn1.32xlarge --role {ROLE} {STORE} --kserve --max 3 --concurrency 4 "
        "--prometheus http://prometheus.monitoring:9090",
    ),
    "gateway-dra-trn2.yaml": (
        "qwen3-8b-trn2.48xlarge",
        f"qwen3-8b {ON_TRN2} --gateway infra/inference --max 4 --concurrency 16 "
        "--prometheus http://prometheus.monitoring:9090 --dra --efa 1 --karpenter neuron",
    ),
    "llm-service-trn2.yaml": ("qwen3-8b-trn2.48xlarge", f"qwen3-8b {ON_TRN2} --llm-service --replicas 2"),
    "hyperpod-trn2.yaml": (
        "qwen3-8b-trn2.48xlarge",
        f"qwen3-8b {ON_TRN2} --hyperpod --max 3 --concurrency 4 "
        "--prometheus https://aps-workspaces.us-east-1.amazonaws.com/workspaces/ws-1",
    ),
    "compile-job-trn2.yaml": ("qwen3-8b-trn2.48xlarge", f"qwen3-8b {ON_TRN2} --compile-job"),
    "node-group-trn2.yaml": (
        "",
        f"llama-405b meta-llama/Llama-3.1-405B-Instruct --instance trn2.48xlarge --nodes 2 {STORE} "
        "--set ENDPOINT_LINE=native-0.24 --set SM_VLLM_TENSOR_PARALLEL_SIZE=128 --set SM_VLLM_MAX_MODEL_LEN=8192 "
        "--set SM_VLLM_MAX_NUM_SEQS=4",
    ),
}


def example(name: str) -> str:
    """Called within `published_models()`, where the recipes' models are by their hub ids."""
    from model_packaging.cli import main

    recipe, words = EXAMPLES[name]
    settings = ["--config", str(ROOT / "recipes" / f"{recipe}.yaml")] if recipe else []
    result = CliRunner().invoke(main, ["kubernetes", *words.split(), "--image", IMAGE, *settings])
    if result.exit_code:
        raise SystemExit(f"{words}: {result.output}")
    return result.stdout


if __name__ == "__main__":
    with published_models():
        for name in EXAMPLES:
            (FOLDER / name).write_text(example(name), encoding="utf-8")
