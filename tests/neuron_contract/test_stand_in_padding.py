"""The stand-in computes the padded tokens that a tuning promised, to the token."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from handler.config.loading.config_loader import load
from handler.neuron.checkpoint.checkpoint_reader import read_facts
from handler.neuron.hardware.instance_catalogue import find
from handler.neuron.planning.planner import make_plan
from model_packaging.sizing.request_log import read_lengths
from model_packaging.sizing.tuned_plan import Tuning, tune
from tests.neuron_contract.engine_run import run_engine

# Prompt and output: of several buckets, at the ends of them, and the longest.
REQUESTS = ((5, 9), (31, 3), (32, 4), (33, 1), (100, 60), (127, 5), (128, 2), (130, 30), (255, 3), (400, 20), (900, 40))
LOG = [json.dumps({"prompt_tokens": prompt, "output_tokens": output}) for prompt, output in REQUESTS]


def tuned(model: Path, line: str, instance: str, graphs: int | None) -> Tuning:
    environ = {"SM_VLLM_MAX_MODEL_LEN": "1024", "SM_VLLM_MAX_NUM_SEQS": "4", "ENDPOINT_LINE": line}
    environ |= {"ENDPOINT_INSTANCE": instance, "SM_VLLM_TENSOR_PARALLEL_SIZE": "2" if line.startswith("nxdi") else "1"}
    config = load(environ, model=str(model))
    lengths = read_lengths(LOG, "the test's log")
    return tune(config, read_facts(config.model), find(instance), lengths, graphs=graphs)


@pytest.mark.engine
@pytest.mark.parametrize(
    ("line", "instance", "graphs", "stand_in"),
    [
        pytest.param("nxdi-0.16", "ml.inf2.xlarge", None, "1", marks=pytest.mark.nxdi_stand_in),
        pytest.param("native-0.24", "ml.trn2.48xlarge", 16, "native"),
    ],
)
def test_the_device_computes_the_tokens_that_were_promised(
    site: Path, model: Path, tmp_path: Path, line: str, instance: str, graphs: int | None, stand_in: str
) -> None:
    tuning = tuned(model, line, instance, graphs)
    plan = make_plan(tuning.config, read_facts(str(model)), find(instance)).plan
    assert plan is not None
    environment = {**plan.env, "NEURON_STAND_IN": stand_in, "STAND_IN_TRACE": str(tmp_path / "steps")}
    environment["NEURON_COMPILED_ARTIFACTS"] = str(tmp_path / "artifacts")
    batches = [
        [{"prompt": [17] * prompt, "max_tokens": output, "ignore_eos": True, "temperature": 0}]
        for prompt, output in REQUESTS
    ]
    engine = {"model": str(model), **({"enforce_eager": True} if stand_in == "1" else {}), **plan.engine_args}
    run = run_engine(site, tmp_path / "run", environment, engine=engine, within=280, batches=batches)
    assert [len(run.request(number)["ids"]) for number in range(len(REQUESTS))] == [output for _, output in REQUESTS]
    steps = [json.loads(line)["tokens"] for line in (tmp_path / "steps").read_text().splitlines()]
    for promised in (tuning.proposed.prefill, tuning.proposed.decode):
        counted = [step[promised.phase] for step in steps if promised.phase in step]
        assert tuple(map(sum, zip(*counted, strict=True))) == (promised.asked, promised.computed)
    assert tuning.proposed.prefill.computed <= tuning.today.prefill.computed
    assert tuning.proposed.decode.computed < tuning.today.decode.computed
