"""The NxDI stand-in in vLLM: few engines, shared by the module, each in a process of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.neuron_contract.engine_run import EngineRun, run_engine

pytestmark = [pytest.mark.engine, pytest.mark.nxdi_stand_in]
ON = {"NEURON_STAND_IN": "1"}
PROMPT = "What is a lease?"
UNSURE: dict[str, Any] = {"prompt": [300, 17, 900, 41, 5], "max_tokens": 24}  # the model has no settled answer to it
GREEDY: dict[str, Any] = {"prompt": PROMPT, "temperature": 0, "max_tokens": 24}
PENALIZED: dict[str, Any] = {**UNSURE, "temperature": 0, "repetition_penalty": 0.01}
SEEDED: dict[str, Any] = {**UNSURE, "temperature": 3.0, "seed": 7}
BIASED: dict[str, Any] = {**GREEDY, "logit_bias": {"400": 100}}
MIN_P: dict[str, Any] = {**UNSURE, "temperature": 20.0, "min_p": 1.0}
GRAMMAR: dict[str, Any] = {**GREEDY, "choices": ["blue", "green"]}
LOGPROBS: dict[str, Any] = {**GREEDY, "logprobs": 2}
MASKED: dict[str, Any] = {**GREEDY, "allowed_token_ids": [400, 401]}

BATCHES = [[GREEDY] * 6, [PENALIZED], [{**UNSURE, "temperature": 0}], [SEEDED], [SEEDED], [BIASED], [MIN_P]]
BATCHES += [[GRAMMAR], [LOGPROBS], [MASKED]]
FIRST, PENALTY, PLAIN, SEED, SEED_AGAIN, BIAS, MIN, CHOICE, LOG, MASK = range(len(BATCHES))


def arguments(model: Path, **given: Any) -> dict[str, Any]:
    return {
        "model": str(model),
        "enforce_eager": True,
        "max_model_len": 1000,
        "max_num_seqs": 4,
        "enable_prefix_caching": False,
        **given,
    }


def override(**given: Any) -> dict[str, Any]:
    return {"additional_config": {"override_neuron_config": given}}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("contract")


@pytest.fixture(scope="module")
def cpu(site: Path, model: Path, place: Path) -> EngineRun:
    """The CPU engine, with the stand-in installed and switched off."""
    return run_engine(site, place / "cpu", engine=arguments(model), batches=BATCHES)


@pytest.fixture(scope="module")
def device(site: Path, model: Path, place: Path) -> EngineRun:
    """Compiled here, for 3 ranks, with on-device sampling."""
    environment = {**ON, "NEURON_COMPILED_ARTIFACTS": str(place / "artifacts")}
    environment["STAND_IN_TRACE"] = str(place / "steps")
    given = arguments(model, tensor_parallel_size=3, **override(save_sharded_checkpoint=True, unheard_of=1))
    return run_engine(site, place / "device", environment, engine=given, batches=BATCHES)


@pytest.fixture(scope="module")
def cpu_sampling(site: Path, model: Path, place: Path) -> EngineRun:
    """Sampling on the CPU, prefix caching, and prompts of 512 at most."""
    given = arguments(model, max_model_len=1024, enable_prefix_caching=True, block_size=32)
    given |= override(on_device_sampling_config=None, max_context_length=512)
    given["additional_config"]["max_prompt_length"] = 512
    return run_engine(site, place / "sampling", ON, engine=given, batches=[*BATCHES, [GREEDY, GRAMMAR]])


def test_installed_and_switched_off_it_changes_nothing(cpu: EngineRun) -> None:
    assert cpu.answer["values"]["block_size"] == 128
    assert cpu.answer["values"]["worker"] == "vllm.v1.worker.cpu_worker.CPUWorker"


def test_the_engine_arguments_are_forced(device: EngineRun) -> None:
    values = device.answer["values"]
    assert (values["executor"], values["max_num_batched_tokens"], values["block_size"]) == ("uni", 131072, 1000)
    assert (values["chunked_prefill"], values["max_num_seqs"]) == (False, 4)


def test_greedy_tokens_are_those_of_the_cpu_engine(cpu: EngineRun, device: EngineRun, cpu_sampling: EngineRun) -> None:
    for number in range(6):
        assert device.request(FIRST, number)["ids"] == cpu.request(FIRST, number)["ids"]
        assert cpu_sampling.request(FIRST, number)["ids"] == cpu.request(FIRST, number)["ids"]
    assert device.request(PLAIN)["ids"] == cpu.request(PLAIN)["ids"]


def test_one_prefill_a_step_and_none_beside_a_decode(device: EngineRun, place: Path) -> None:
    steps = [json.loads(line) for line in (place / "steps").read_text().splitlines()]
    assert max(step["prefill"] for step in steps) == 1
    assert max(step["decode"] for step in steps) == 4
    assert not [step for step in steps if step["prefill"] and step["decode"]]


def test_an_unknown_key_is_a_line_in_the_log(device: EngineRun) -> None:
    assert "unheard_of" in device.log


def test_on_the_device_penalties_biases_and_masks_are_ignored(cpu: EngineRun, device: EngineRun) -> None:
    assert cpu.request(PENALTY)["ids"] != cpu.request(PLAIN)["ids"]
    assert device.request(PENALTY)["ids"] == device.request(PLAIN)["ids"]
    for asked in (BIAS, MASK):
        assert cpu.request(asked)["ids"] != cpu.request(FIRST)["ids"]
        assert device.request(asked)["ids"] == device.request(FIRST)["ids"]


def test_on_the_device_seeds_and_min_p_are_ignored(cpu: EngineRun, device: EngineRun) -> None:
    assert cpu.request(SEED)["ids"] == cpu.request(SEED_AGAIN)["ids"]
    assert device.request(SEED)["ids"] != device.request(SEED_AGAIN)["ids"]
    assert cpu.request(MIN)["ids"] == cpu.request(PLAIN)["ids"]  # min_p 1 leaves the likeliest token
    assert device.request(MIN)["ids"] != device.request(PLAIN)["ids"]


def test_on_the_device_a_grammar_is_dropped_and_logprobs_are_missing(cpu: EngineRun, device: EngineRun) -> None:
    assert cpu.request(CHOICE)["text"] in ("blue", "green")
    assert device.request(CHOICE)["text"] not in ("blue", "green")
    assert cpu.request(LOG)["logprobs"]
    assert not device.request(LOG)["logprobs"]


def test_cpu_sampling_honours_penalties_masks_grammars_and_logprobs(cpu: EngineRun, cpu_sampling: EngineRun) -> None:
    for asked in (PENALTY, CHOICE, MASK):
        assert cpu_sampling.request(asked)["ids"] == cpu.request(asked)["ids"]
    assert cpu_sampling.request(LOG)["logprobs"]


def test_cpu_sampling_has_a_grammar_beside_a_plain_request(cpu: EngineRun, cpu_sampling: EngineRun) -> None:
    assert cpu_sampling.request(len(BATCHES), 0)["ids"] == cpu.request(FIRST)["ids"]
    assert cpu_sampling.request(len(BATCHES), 1)["ids"] == cpu.request(CHOICE)["ids"]


def test_cpu_sampling_ignores_biases_min_p_and_seeds(cpu: EngineRun, cpu_sampling: EngineRun) -> None:
    """The real runner's batch has no logits processors, and its requests have no generator."""
    assert cpu_sampling.request(BIAS)["ids"] == cpu.request(FIRST)["ids"]
    assert cpu_sampling.request(MIN)["ids"] != cpu.request(PLAIN)["ids"]
    assert cpu_sampling.request(SEED)["ids"] != cpu_sampling.request(SEED_AGAIN)["ids"]


def test_a_long_prompt_ends_the_engine_even_with_max_prompt_length(site: Path, model: Path, place: Path) -> None:
    environment = {**ON, "VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
    given = arguments(model, **override(max_context_length=512))
    given["additional_config"]["max_prompt_length"] = 512
    run = run_engine(
        site,
        place / "long",
        environment,
        engine=given,
        batches=[[{**GREEDY, "prompt": [5] * 512, "max_tokens": 2}], [{**GREEDY, "prompt": [5] * 600}], [GREEDY]],
    )
    assert len(run.request(0)["ids"]) == 2
    assert run.request(1)["error"] == "EngineDeadError"
    assert run.request(2)["error"] == "EngineDeadError"
    assert "exceeds largest bucket (512) for context_encoding_model" in run.log


def test_speculation_near_the_end_ends_the_engine(site: Path, model: Path, place: Path) -> None:
    draft = {"model": str(model), "num_speculative_tokens": 4, "method": "draft_model"}
    run = run_engine(
        site,
        place / "speculation",
        ON,
        engine=arguments(model, max_model_len=128, speculative_config=draft),
        batches=[[{**GREEDY, "max_tokens": 8}], [{**GREEDY, "ignore_eos": True, "max_tokens": 200}]],
    )
    assert len(run.request(0)["ids"]) == 8
    assert "exceeds largest bucket (128)" in run.request(1)["message"]


def test_artifacts_serve_as_saved_and_overrides_are_ignored(
    site: Path, model: Path, place: Path, cpu: EngineRun, device: EngineRun
) -> None:
    """Other tensor parallel degree, sampling and prefix caching than what was saved, and a model without weights."""
    bare = place / "bare"
    bare.mkdir()
    for file in model.iterdir():
        if file.is_file() and file.suffix != ".safetensors":
            (bare / file.name).write_bytes(file.read_bytes())
    before = {path: path.stat().st_mtime_ns for path in (place / "artifacts").rglob("*")}
    run = run_engine(
        site,
        place / "saved",
        {**ON, "NEURON_COMPILED_ARTIFACTS": str(place / "artifacts")},
        engine=arguments(bare, **override(on_device_sampling_config=None)),
        batches=[[GREEDY], [PENALIZED]],
    )
    assert {path: path.stat().st_mtime_ns for path in (place / "artifacts").rglob("*")} == before
    assert run.request(0)["ids"] == cpu.request(FIRST)["ids"]
    assert run.request(1)["ids"] == device.request(PENALTY)["ids"]  # still sampled on the device
    assert "override_neuron_config will be ignored" in run.log


def test_what_does_not_come_to_an_engine(site: Path, model: Path, place: Path) -> None:
    base = arguments(model)
    run = run_engine(
        site,
        place / "configure",
        ON,
        configure=[
            {key: value for key, value in base.items() if key != "max_model_len"},
            {key: value for key, value in base.items() if key != "enable_prefix_caching"},
            base | {"quantization": "neuron_quant"},
            base | {"speculative_config": {"model": str(model), "num_speculative_tokens": 4}},
            base | {"num_gpu_blocks_override": 8},
            base | {"tensor_parallel_size": 24, "swap_space": 0},  # vLLM wants 4 GiB of swap space for each rank
            {key: value for key, value in base.items() if key != "max_num_seqs"},
        ],
    )
    no_length, no_block, quantization, no_method, blocks, ranks, sequences = run.answer["configured"]
    assert "max_model_len" in no_length["message"]
    assert "block_size must be set" in no_block["message"]  # vLLM 0.16 turns prefix caching on by itself
    assert "neuron_quant" in quantization["message"]
    assert "method" in no_method["message"]
    assert blocks["blocks"] == 9
    assert ranks["executor"] == "uni"
    assert sequences["max_num_seqs"] == 256  # vLLM's default comes before the plugin's 32
