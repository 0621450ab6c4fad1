"""A program: for each line of JSON it starts vLLM on a model's directory, in a fork of itself, and writes the tokens.

`{"args": the plan's engine arguments}` -> `{"completion": [...], "chat": [...]}`, each a list of token ids; in place of
one, why it did not come. A fork takes a second, because vLLM is imported already.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_LOGGING_LEVEL="ERROR", TORCHDYNAMO_DISABLE="1")

import torch
import vllm.model_executor.models.llama
import vllm.model_executor.models.qwen2
import vllm.model_executor.models.qwen3
import vllm.v1.engine.llm_engine
import vllm.v1.worker.cpu_worker  # noqa: F401  all of vLLM before the first fork
from vllm import LLM, SamplingParams

PROMPTS = (
    "the cat sat on the mat and the dog ran to the house where there was a king a long time ago in a far land",
    "a king in a far land sat on the house",
)
CHAT = [{"role": "user", "content": "the dog sat on the king"}]


def answers(args: dict[str, Any]) -> dict[str, Any]:
    sampling = SamplingParams(temperature=0, max_tokens=12)
    limits = {"max_model_len": 128, "max_num_seqs": 4, "enforce_eager": True}
    llm = LLM(**{**args, **limits, "disable_log_stats": True})
    found: dict[str, Any] = {
        "completion": [[*one.outputs[0].token_ids] for one in llm.generate(PROMPTS, sampling, use_tqdm=False)]
    }
    try:
        found["chat"] = [*llm.chat(CHAT, sampling, use_tqdm=False)[0].outputs[0].token_ids]
    except Exception as error:
        found["chat"] = f"{type(error).__name__}: {error}"[:300]
    return found


def judge(job: dict[str, Any]) -> str:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        try:
            found = answers(job["args"])
        except BaseException as error:
            reason = f"{type(error).__name__}: {error}"[-300:]
            found = {"completion": reason, "chat": reason}
        os.write(write, json.dumps(found).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        text = file.read()
    os.waitpid(pid, 0)
    return text or json.dumps({"completion": "the process ended", "chat": "the process ended"})


if __name__ == "__main__":
    torch.set_num_threads(1)
    for line in sys.stdin:
        print(judge(json.loads(line)), flush=True)
