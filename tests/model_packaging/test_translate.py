"""`neuron-endpoint translate`: the five guides' commands, other servers' forms, and input that is broken or hostile."""

from __future__ import annotations

import json
import random
import re
import shlex
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

import sample_model
from handler.config.dialects.vllm_names import OPENED, SPECULATIVE_FLAGS
from handler.config.endpoint_config import EndpointConfig
from handler.config.fields import fields
from handler.config.loading.config_loader import load
from handler.config.loading.file_reader import LIMIT
from handler.config.loading.line_formats import parse_env_file
from handler.config.vllm_argument_table import known, server_arguments
from handler.engine.headless_node import option_words
from handler.errors import EndpointError
from handler.neuron.neuron_config.keys import KEYS
from handler.neuron.planning.examination import examine_config
from model_packaging.cli import main
from model_packaging.translation.source_text import read_text
from model_packaging.translation.translation import translated

GUIDES = yaml.safe_load(Path(__file__).with_name("guide_commands.yaml").read_text())
CASES = [pytest.param(case, id=f"{guide[:12]}-{n}") for guide, cases in GUIDES.items() for n, case in enumerate(cases)]


def run(*words: str, text: str = "") -> Result:
    return CliRunner().invoke(main, ["translate", *words], input=text, env={"COLUMNS": "200"}, catch_exceptions=False)


def read(text: str) -> tuple[dict[str, Any], dict[str, str]]:
    """The settings, and what is not among them: the name, and its kind."""
    found = translated(read_text(text))
    lines, document = "\n".join(found.lines(False)), "\n".join(found.lines(True))
    environ = parse_env_file(lines, "x.env", {found.config.source("hf_token").name: found.config.hf_token or ""})
    assert "use --yaml" in lines or values(load(environ, fetch=lambda _: None)) == values(found.config), lines
    again = load({"ENDPOINT_CONFIG": "x.yaml"}, fetch=lambda name: document.encode() if name == "x.yaml" else None)
    assert values(again) == {**values(found.config), "hf_token": None}, "the document means something else"
    return flat(found.config), {one.setting: one.severity.value for one in found.findings}


def values(config: EndpointConfig) -> dict[str, Any]:
    return {name: getattr(config, name) for name in fields()}


def flat(config: EndpointConfig) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for target in config.sources:
        name, _, key = target.partition(".")
        value = getattr(config, name)[key] if key else getattr(config, name)
        found[target] = list(value) if isinstance(value, tuple) else value
    return found


@pytest.mark.parametrize("case", CASES)
def test_what_the_guides_print(case: dict[str, Any]) -> None:
    result = run("--json", text=case["text"])
    if "refused" in case:
        assert result.exit_code == 1
        assert case["refused"] in result.stderr
        return
    document = json.loads(result.stdout)
    settings, _ = read(case["text"])
    assert settings == case["settings"]
    assert all(set(row) == {"name", "value", "source"} and row["source"] for row in document["settings"])
    without = [f"{one['setting']}: {one['why']}" for one in document["findings"]]
    assert sorted(text.partition(":")[0] for text in without) == sorted(case.get("without", []))
    assert all(any(text.startswith(error) for text in without) for error in case.get("errors", []))
    assert result.exit_code == (1 if "errors" in case else 0)
    config = translated(read_text(case["text"])).config
    examination = examine_config(replace(config, instance="ml.trn2.48xlarge"))
    assert examination.plan is not None or examination.failed


def test_the_counts_of_the_guides() -> None:
    cases = [case for guide in GUIDES.values() for case in guide]
    assert (len(cases), sum("settings" in case for case in cases), sum("errors" in case for case in cases)) == (
        41,
        19,
        2,
    )


FORMS: list[tuple[str, dict[str, Any], dict[str, str]]] = [
    # text, settings, what is not among them
    (
        "vllm serve org/m -tp 8 --max_num_seqs=4 --seed -1 --served-model-name a b --lora-modules x=/x y=/y --headless",
        {"model": "org/m", "tensor_parallel_size": 8, "max_num_seqs": 4, "engine_args.seed": -1}
        | {"served_model_name": ["a", "b"], "lora_modules": {"x": "/x", "y": "/y"}},
        {"--headless": "info"},
    ),
    (
        "vllm serve org/m -dp 2 -dpl 1 -dpa 10.0.0.4 -dpp 29550 -dcp 2 -dpb mp -dph -asc 2",
        {"model": "org/m", "engine_args.data_parallel_size": 2, "engine_args.data_parallel_size_local": 1}
        | {"engine_args.data_parallel_address": "10.0.0.4", "engine_args.data_parallel_rpc_port": 29550}
        | {"engine_args.decode_context_parallel_size": 2, "engine_args.data_parallel_backend": "mp"}
        | {"engine_args.data_parallel_hybrid_lb": True},
        {"-asc": "info"},
    ),
    (
        "vllm serve org/m -dpn 1 -dpr 2 -pcp 2 -dpe -dpm",
        {"model": "org/m", "engine_args.data_parallel_rank": 1, "engine_args.data_parallel_start_rank": 2}
        | {"engine_args.prefill_context_parallel_size": 2, "engine_args.data_parallel_external_lb": True}
        | {"engine_args.data_parallel_multi_port_external_lb": True},
        {},
    ),
    (
        "vllm serve --enable-auto-tool-choice org/m --tool-call-parser hermes --api-key s --dtype auto",
        {"model": "org/m", "enable_auto_tool_choice": True, "tool_call_parser": "hermes", "dtype": None},
        {"--api-key": "info"},
    ),
    (
        "vllm serve org/m --speculative-config.model d --speculative-config.num_speculative_tokens 5",
        {"model": "org/m"},
        {"--speculative-config.model": "error", "--speculative-config.num_speculative_tokens": "error"},
    ),
    (
        "vllm serve org/m --max-num-seqs 4 --max-num-seqs 8 --max-model-len 8K 2>&1 | tee log.txt",
        {"model": "org/m", "max_num_seqs": 8, "max_model_len": 8192},
        {"tee": "info", "--max-num-seqs": "info"},
    ),
    ("vllm serve org/m -O3", {"model": "org/m", "engine_args.optimization_level": "3"}, {}),
    ("vllm serve org/m --max-num-seqs four", {"model": "org/m"}, {"--max-num-seqs": "error"}),
    ("vllm serve org/m --max-num-seqs", {"model": "org/m"}, {"--max-num-seqs": "error"}),
    ("vllm serve org/m --max-nm-seqs 4", {"model": "org/m"}, {"--max-nm-seqs": "error"}),
    (
        "vllm serve org/m stray --tp $(nproc --all) --seed `id -u`",
        {"model": "org/m"},
        {"a word": "error", "--tp": "error", "--seed": "error"},
    ),
    (
        "MODEL=/m\nvllm serve $MODEL --served-model-name ${MODEL##*/} --tokenizer ${MODEL}/t",
        {"model": "/m", "engine_args.tokenizer": "/m/t"},
        {"MODEL": "info", "--served-model-name": "error"},
    ),
    (
        "docker run -dp 8080:80 --no-healthcheck -e MODEL_ID=org/m IMAGE",
        {"model": "org/m"},
        {"docker run -p": "info"},
    ),
    (
        "docker run -e SM_VLLM_MAX_NUM_SEQS=4 IMAGE bash -c 'vllm serve org/m'",
        {"max_num_seqs": 4},
        {"docker run": "error"},
    ),
    (
        "MODEL=/m  # it\nNEURON_RT_VISIBLE_CORES=0-7 sudo vllm serve $MODEL --tokenizer ${ELSEWHERE} \\\n  -q fp8\n",
        {"model": "/m", "quantization": "fp8", "neuron_env.NEURON_RT_VISIBLE_CORES": "0-7"},
        {"MODEL": "info", "--tokenizer": "error"},
    ),
    (
        "inference_demo --model-type llama --task-type causal-lm run --model-path /m --compiled-model-path /c "
        "--torch-dtype bfloat16 --tp-degree 32 --batch-size 2 --seq-len 256 --on-device-sampling "
        "--no-attn-kernel-enabled --context-encoding-buckets 64 128 --quantized --quantization-dtype f8e4m3 "
        "--cp-degree 2 --enable-prefix-caching --do-sample --top-k 1 --prompt I --prompt --benchmark --tp-degre 8",
        {"model": "/m", "compiled_artifacts": "/c", "dtype": "bfloat16", "tensor_parallel_size": 32, "max_num_seqs": 2}
        | {"max_model_len": 256, "on_device_sampling": True, "attn_kernel_enabled": False}
        | {"context_encoding_buckets": [64, 128], "neuron_config.quantized": True, "neuron_config.cp_degree": 2}
        | {"neuron_config.quantization_dtype": "f8e4m3", "enable_prefix_caching": True},
        dict.fromkeys(("--model-type", "--task-type", "--do-sample", "--top-k", "--prompt", "--benchmark"), "info")
        | {"--tp-degre": "info"},
    ),
    (
        "python -m neuronx_distributed_inference.inference_demo run --model-path /m stray",
        {"model": "/m"},
        {"a word": "error"},
    ),
    (
        "optimum-cli neuron serve -m org/m --batch_size 4 --sequence-length 4096 --allow_non_cached_model --port 8080 "
        "--block-size 8 --task embed",
        {"model": "org/m", "max_num_seqs": 4, "max_model_len": 4096, "block_size": 8},
        {"--allow_non_cached_model": "info", "--port": "info", "--task": "error"},
    ),
    (
        "docker run -it --rm --device=/dev/neuron0 -p 8080:8080 -eSM_VLLM_MAX_NUM_SEQS=4 -e HF_TOKEN=$HF_TOKEN "
        "--env 'SM_VLLM_ADDITIONAL_CONFIG={\"a\": 1}' -e AWS_REGION=x -e ENDPOINT_MODL=x vllm/vllm-openai:v1 "
        "--model org/m -tp 8",
        {"max_num_seqs": 4, "engine_args.additional_config": {"a": 1}, "model": "org/m", "tensor_parallel_size": 8},
        {"docker run --device": "info", "docker run -p": "info", "HF_TOKEN": "info", "AWS_REGION": "info"}
        | {"ENDPOINT_MODL": "error"},
    ),
    (
        "docker run -e SM_VLLM_ENFORCE_EAGER= -e SM_VLLM_NO_ENABLE_PREFIX_CACHING= -e SM_VLLM_SEED= "
        "-e SM_VLLM_MODEL=m image",
        {"engine_args.enforce_eager": True, "enable_prefix_caching": False, "model": "m"},
        {"SM_VLLM_SEED": "info"},
    ),
    (
        "docker run --env-file prod.env --env-file=more.env image --model org/m --config prod.yaml",
        {"model": "org/m"},
        {"docker run --env-file": "error", "--config": "error"},
    ),
    (
        "import os, vllm\nos.environ.setdefault('HF_TOKEN', 'hf_VerySecret1234')\n"
        "os.environ.update({'SM_VLLM_MAX_NUM_SEQS': '4'})\nvllm.LLM(model='m')",
        {"model": "m", "hf_token": "hf_VerySecret1234"},
        {"os.environ.update": "error"},
    ),
    (
        "from os import environ, putenv\nimport os, vllm\nfrom dotenv import load_dotenv\nload_dotenv()\n"
        "environ['NEURON_RT_NUM_CORES'] = os.environ['NEURON_CC_FLAGS'] = '8'\nenviron.setdefault('HF_TOKEN', 'hf_x')\n"
        "environ.update(A='1')\nos.environ |= {'A': '1'}\nputenv('A', '1')\nfor name in 'AB':\n  environ[name] = '1'\n"
        "vllm.LLM(model='m')",
        {"model": "m", "neuron_env.NEURON_RT_NUM_CORES": "8", "neuron_env.NEURON_CC_FLAGS": "8", "hf_token": "hf_x"},
        dict.fromkeys(("load_dotenv", "os.environ.update", "os.environ", "os.putenv", "os.environ[...]"), "error"),
    ),
    ("env $(cat a.env | xargs) vllm serve /m", {"model": "/m"}, {"$(...)": "error"}),
    ("export $(grep -v '^#' .env)\n$ vllm serve /m", {"model": "/m"}, {"$(...)": "error"}),
    ("source vars.env\n. ./more.env && vllm serve /m", {"model": "/m"}, {"source": "error", ".": "error"}),
    (
        "source /opt/venv/bin/activate && . ~/.bashrc\nvllm serve /m",
        {"model": "/m"},
        {"source": "info", ".": "info"},
    ),
    (
        "sudo docker run -e MODEL_ID=org/m -e HF_TOKEN=hf_VerySecret1234 image serve",
        {"model": "org/m", "hf_token": "hf_VerySecret1234"},
        {},
    ),
    (
        "docker run optimum-neuron-vllm:latest --batch-size 4 --model org/m",
        {"max_num_seqs": 4, "model": "org/m"},
        {},
    ),
    (
        "engine=Python\noption.model_id=s3://b/m\noption.rolling_batch=vllm\noption.n_positions=2048\noption.unroll=1\n"
        "option.entryPoint=\noption.model_loading_timeout=9\n",
        {"model": "s3://b/m", "max_model_len": 2048},
        {"engine": "info", "option.rolling_batch": "info", "option.entryPoint": "info", "option.unroll": "error"}
        | {"option.model_loading_timeout": "info"},
    ),
    (
        '# a file\nOPTION_MODEL_ID="org/m"\n'
        'SM_VLLM_ADDITIONAL_CONFIG={"override-neuron-config": {"async_mode": true}}\n',
        {"model": "org/m", "neuron_config.async_mode": True},
        {},
    ),
    (
        "HF_MODEL_ID='org/m'\nNEURON_CC_FLAGS=\"-O1 --tensorizer-options='--a --b=2'\"\nXLA_FLAGS=--b='c'\n",
        {"model": "org/m", "neuron_env.NEURON_CC_FLAGS": "-O1 --tensorizer-options='--a --b=2'"}
        | {"neuron_env.XLA_FLAGS": "--b='c'"},
        {},
    ),
    (
        "from vllm import AsyncEngineArgs\nsize = 4\nsize = 8\nconfig = {'seed': 1}\n"
        "AsyncEngineArgs('org/m', max_num_seqs=size, max_model_len=-(-1 // 1), seed=f'{1}', hf_overrides=config, **x)",
        {"model": "org/m"},
        {
            f"AsyncEngineArgs({name})": "error"
            for name in ("max_num_seqs", "max_model_len", "seed", "hf_overrides", "**")
        },
    ),
    (
        "import os, vllm\nos.environ['NEURON_QUANT_DTYPE'] = open('/etc/passwd').read()\n"
        "vllm.LLM(model='m', tokenizer=str(1), seed=None)",
        {"model": "m"},
        {"NEURON_QUANT_DTYPE": "error", "LLM(tokenizer)": "error", "LLM(seed)": "info"},
    ),
]


@pytest.mark.parametrize(("text", "settings", "without"), FORMS, ids=lambda value: str(value)[:20])
def test_what_people_have(text: str, settings: dict[str, Any], without: dict[str, str]) -> None:
    assert read(text) == (settings, without)


def test_a_node_without_a_front_end_has_a_command_of_its_own() -> None:
    done = run("vllm serve org/m -tp 8 -n 2 -r 1 --headless")
    assert "neuron-endpoint node --rank" in done.output


REFUSED = [
    ("vllm serve 'org/m", "quotation mark that is not closed"),
    ("", "holds no setting"),
    ("import os\nLLM(model='a')\nLLM(model='b')", "is called in line 2 and in line 3"),
    ("import os\nLLM(model=__import__('os').system('id'))", "LLM(model): it is computed in line 2"),
    ("import os\n" + "[" * 5000, "it is not Python"),
    ("import os\nx = " + "-" * 100_000 + "1", "it is not Python"),
    ("vllm serve $(curl x) `id`", "has a variable or a command of the shell"),
    ("vllm serve org/m\0", "NUL character"),
    ("A=" + "a" * 4000 + "\nA=$A$A" * 40 + "\nvllm serve $A", "its value is the shell's own"),
    ("x" * (LIMIT + 1), "larger than"),
    ("\n" * (LIMIT - 1), "holds no setting"),
    ("a" * 1000 + " - (" * 40_000, "holds no setting"),
    ("vllm serve org/m " + " ".join(f"--a{n} 1" for n in range(20_000)), "more than 500 settings"),
    ("option.model_id=a\noption.model_id=b", "is given twice"),
    ("vllm bench serve --model org/m", "it is a command that serves no model"),
    ("docker ps -a", "it is a command that serves no model"),
    ("'vllm serve org/m'", "it is a command that serves no model"),
    ("'docker run image' --tp 2", "it is a command that serves no model"),
    ("docker run", "it is a command that serves no model"),
]


@pytest.mark.parametrize(("text", "words"), REFUSED, ids=lambda value: str(value)[:20])
def test_what_is_refused(text: str, words: str) -> None:
    result = run(text=text)
    assert (result.exit_code, result.stdout) == (1, "")
    assert words in result.stderr
    assert "Traceback" not in result.stderr


def test_a_file_words_and_standard_input(tmp_path: Path) -> None:
    file = tmp_path / "serve.sh"
    file.write_text("#!/bin/sh\nvllm serve org/m -tp 2\n")
    texts = {
        run(str(file)).stdout,
        run("vllm", "serve", "org/m", "-tp", "2").stdout,
        run("vllm serve org/m -tp 2").stdout,
    }
    assert texts == {run("-", text="vllm serve org/m -tp 2").stdout}
    assert "# SM_VLLM_TENSOR_PARALLEL_SIZE: from -tp\nSM_VLLM_TENSOR_PARALLEL_SIZE=2\n" in texts.pop()
    assert "there is no such file" in run(str(tmp_path / "none.sh")).stderr
    assert "it is a directory" in run(str(tmp_path)).stderr
    file.write_bytes(b"vllm serve \xff")
    assert "it is not UTF-8" in run(str(file)).stderr


@pytest.mark.parametrize("own", ["--yaml", "--json", "--json --line cpu", "--yaml --instance=ml.trn1.2xlarge"])
@pytest.mark.parametrize("words", ["serve.sh", "vllm serve org/m -tp 2", "'vllm serve org/m'", "-"])
def test_options_stand_on_either_side(own: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("serve.sh").write_text("vllm serve org/m -tp 2\n")
    orders = (f"{own} {words}", f"{words} {own}", f"{own} -- {words}")
    results = [run(*shlex.split(order), text="vllm serve org/m") for order in orders]
    assert len({(result.exit_code, result.output) for result in results}) == 1, results[1].output
    assert results[0].exit_code == 0


def test_after_two_dashes_every_option_is_the_commands() -> None:
    """And so is one between its words."""
    for words in (["--", "vllm", "serve", "m", "--check"], ["vllm", "serve", "m", "--check", "--seed", "1"]):
        result = run(*words)
        assert result.exit_code == 1
        assert "--check" in result.stdout
    assert run("vllm", "serve", "m", "--help").stdout == run("--help").stdout


def test_check_goes_on_to_check() -> None:
    model = str(sample_model.path())
    result = run("--check", "--instance", "ml.trn1.32xlarge", "vllm", "serve", model, "--max-model-len", "512")
    assert result.exit_code == 0, result.output
    assert f"SM_VLLM_MODEL={model}" in result.stdout
    assert "Nothing here would keep it from starting." in result.stdout
    bad = run("--check", "--json", "--instance", "ml.trn1.32xlarge", "vllm", "serve", model, "-tp", "64", "--foo")
    assert bad.exit_code == 1
    assert {"not-translated"} < {one["code"] for one in json.loads(bad.stdout)["findings"]}


def test_a_token_is_never_printed_and_a_control_character_neither() -> None:
    words = [
        "docker",
        "run",
        "-e",
        "HF_TOKEN=hf_VerySecret1234",
        "-e",
        "TOK\x1b[2J=1",
        "-e",
        "SM_VLLM_SEED\n=1",
        "image",
        "--hf-tokn",
        "hf_Other12345",
    ]
    for form in ([], ["--yaml"], ["--json"], ["--check"]):
        result = run(*form, *words, "--tokenizer", "org/t", "--reasoning-parser", "a\x1bb")
        assert not [text for text in ("hf_Very", "hf_Other", "\x1b") if text in result.output]
    lines = run(*words).stdout.splitlines()
    assert "HF_TOKEN" in lines
    assert all(line.startswith("#") or line.partition("=")[0].isidentifier() for line in lines), lines


def test_any_engine_arguments_come_back_from_their_own_command_line() -> None:
    """`option_words` writes what `translate` reads, for each argument of each vLLM. Seeded."""
    seeded = random.Random(39)
    samples: dict[str, list[Any]] = {
        "bool": [True, False],
        "int": [1, 7],
        "float": [0.5],
        "str": ["a b", "x=y"],
        "json": [{"k": ["'", 1]}],
    }
    names = [name for name in known() if name not in (*fields(), *OPENED, *SPECULATIVE_FLAGS, *server_arguments())]
    for _ in range(200):
        arguments: dict[str, Any] = {}
        for name in seeded.sample(names, 4):
            argument = known()[name]
            value: Any = seeded.choice(argument.choices or samples.get(argument.kind) or [[1, 2]])
            if (
                value is not None
                and argument.kind in samples
                and not (argument.kind == "json" and isinstance(value, str))
            ):
                arguments[name] = value
        words = [
            "vllm",
            "serve",
            "org/m",
            *(word for name in arguments for word in option_words(name, arguments[name])),
        ]
        found = translated(read_text(" ".join(map(json.dumps, words))))
        assert (dict(found.config.engine_args), found.findings) == (arguments, ()), words


def test_every_option_is_a_setting_or_a_finding() -> None:
    """Known options, others' and invented ones, with and without values. Seeded."""
    seeded = random.Random(393)
    names = [*known(), *server_arguments(), *KEYS, "nonsense", "model-path", "seed.x", "batch-size", "prompt"]
    for program in ("vllm serve m", "optimum-cli neuron serve --model m", "inference_demo run --model-path m"):
        for _ in range(150):
            options = [f"--{name.replace('_', '-')}" for name in seeded.sample(names, 5)]
            words = [word for option in options for word in (option, seeded.choice(["4", "a", "{}", "--x=y"]))]
            found = translated(read_text(f"{program} {' '.join(words)}"))
            told = " ".join([*(one.source for one in found.given.values()), *(one.setting for one in found.findings)])
            assert not [option for option in options if option not in told], words


def test_no_text_is_a_traceback() -> None:
    """Pieces of real inputs, in any order and broken anywhere. Seeded."""
    seeded = random.Random(3939)
    texts = [case["text"] for guide in GUIDES.values() for case in guide] + [text for text, *_ in FORMS]
    for _ in range(3000):
        pieces = [seeded.choice(texts) for _ in range(seeded.randint(1, 3))]
        text = seeded.choice(["\n", " ", ""]).join(
            piece[seeded.randint(0, 40) * seeded.randint(0, 1) :] for piece in pieces
        )
        for _ in range(seeded.randint(0, 4)):
            at = seeded.randrange(len(text) + 1)
            text = (
                text[:at]
                + seeded.choice(["'", '"', "\\", "\n", "{", ")", "$", "\u2028", "=", "--", ";", "\ud800"])
                + text[at:]
            )
        with suppress(EndpointError):
            read(text)


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("vllm serve --model", "--model"),
        ("vllm serve org/m --max-model-len", "--max-model-len"),
        ("vllm serve org/m --max-model-len --enable-lora", "--max-model-len"),
        ("vllm serve org/m -tp", "-tp"),
        ("vllm serve org/m --dtype=", "--dtype"),
        ("vllm serve org/m --hf-overrides ''", "--hf-overrides"),
        ("vllm serve org/m --served-model-name", "--served-model-name"),
        ("vllm serve org/m --chat-template", "--chat-template"),
        ("inference_demo --model-path /m run --batch-size", "--batch-size"),
        (
            "optimum-cli neuron serve --model org/m --sequence_length 64 --tensor-parallel-size",
            "--tensor-parallel-size",
        ),
    ],
)
def test_an_option_without_the_value_that_it_needs_is_named(command: str, option: str) -> None:
    result = run("--", *shlex.split(command), "--enforce-eager")
    assert result.exit_code == 1, result.output
    assert f"{option}: it needs a value and has none" in result.output
    assert not re.search(r"(?<!ENFORCE_EAGER)(?<!ENABLE_LORA)=true", result.output)
