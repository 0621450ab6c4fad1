"""What `neuron-endpoint check` says of a model's files, typed as a user types it. None of it was said before."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import sample_model
from handler.config.endpoint_config import EndpointConfig
from handler.config.loading.config_loader import load
from handler.errors import SettingError
from handler.json_value import Json
from handler.model.model_source import fetch_model
from handler.neuron.checkpoint.checkpoint_reader import read_facts
from handler.neuron.checkpoint.file_findings import FROM_UNQUANTIZED, quantization_findings
from handler.neuron.planning.planner import make_plan
from handler.processes import free_port
from tests.installed_vllm import version
from tests.model_packaging.command import run
from tests.small_model import write_small_model

Change = Callable[[Path], Any]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return Path(shutil.copytree(sample_model.path(), tmp_path / "model"))


def check(model: Path, *words: str, **variables: str) -> tuple[int, dict[str, dict[str, str]]]:
    """The status of `check` and its findings by setting, with these variables in a file."""
    if variables:
        file = model.parent / "env"
        file.write_text("".join(f"{name}={value}\n" for name, value in variables.items()))
        words = (*words, "--env-file", str(file))
    result = run("check", "--json", *words, model)
    findings = json.loads(result.stdout)["findings"]
    return result.exit_code, {one["setting"].removeprefix(f"{model}/"): one for one in reversed(findings)}


def edited(name: str, **keys: Any) -> Change:
    def change(model: Path) -> None:
        document = json.loads((model / name).read_text())
        document = {key: value for key, value in (document | keys).items() if value != "REMOVED"}
        (model / name).write_text(json.dumps(document))

    return change


def renamed(old: str, new: str) -> Change:
    return lambda model: (model / old).rename(model / new)


def written(name: str, text: str | bytes) -> Change:
    return lambda model: (model / name).write_bytes(text if isinstance(text, bytes) else text.encode())


def both(*changes: Change) -> Change:
    return lambda model: [change(model) for change in changes]


def cut(model: Path) -> None:
    os.truncate(model / "model.safetensors", (model / "model.safetensors").stat().st_size - 1)


def transformers_4(*fault: Any) -> Any:
    return pytest.param(*fault, marks=pytest.mark.vllm_016("transformers 5 reads it"))


INDEX = {"weight_map": {"model.norm.weight": "model.safetensors", "lm_head.weight": "model-2.safetensors"}}


@pytest.mark.parametrize(
    ("change", "setting", "words"),
    [
        (cut, "model.safetensors", "has"),
        (written("model.safetensors", b"<html>"), "model.safetensors", "fewer"),
        (written("model.safetensors", "version https://git-lfs.github.com/spec/v1\n"), "model.safetensors", "Git LFS"),
        (lambda model: (model / "model.safetensors").unlink(), "weights", "no files with weights"),
        (written("model.safetensors.index.json", json.dumps(INDEX)), "model-2.safetensors", "it is not there"),
        (
            both(
                written(
                    "model.safetensors.index.json", json.dumps({"weight_map": {"gone.weight": "model.safetensors"}})
                ),
                edited("config.json", quantization_config={"quant_method": "fp8"}),
            ),
            "model.safetensors",
            "gone.weight",
        ),
        (edited("config.json", num_hidden_layers=5), "weights", "model.layers.4.input_layernorm.weight is missing"),
        (edited("config.json", num_hidden_layers=3), "model.safetensors", "no tensor model.layers.3."),
        (edited("config.json", intermediate_size=256), "model.safetensors", "has the shape"),
        (edited("config.json", num_attention_heads=3, num_key_value_heads=2), "config.json", "3 attention heads"),
        (edited("config.json", tie_word_embeddings=True), "config.json", "not a copy"),
        (edited("config.json", model_type="llama5"), "config.json", "llama5"),
        (edited("config.json", architectures=["Llama5ForCausalLM"]), "config.json", "Llama5ForCausalLM"),
        (edited("config.json", dtype="torch.bfloat16"), "config.json", "Write bfloat16"),
        (edited("config.json", dtype="auto"), "config.json", "dtype is 'auto'"),
        (edited("config.json", dtype="REMOVED", torch_dtype="nope"), "config.json", "torch_dtype is 'nope'"),
        (edited("config.json", architectures="LlamaForCausalLM"), "config.json", "a list"),
        (edited("config.json", max_position_embeddings="4096"), "config.json", "'4096', and not a number"),
        (edited("config.json", quantization_config="fp8"), "config.json", "'fp8', and not an object"),
        (edited("config.json", rope_scaling="linear"), "config.json", "'linear', and not an object"),
        (edited("config.json", rope_scaling={"type": "linear", "factor": None}), "config.json", "not a number above 0"),
        (edited("config.json", rope_scaling={"rope_type": "llama3", "factor": 8}), "config.json", "low_freq_factor"),
        (edited("config.json", auto_map=None), "config.json", "auto_map is null"),
        transformers_4(edited("config.json", quantization_config=None), "config.json", "quantization_config is null"),
        transformers_4(edited("config.json", rope_scaling={}), "config.json", "rope_scaling has no rope_type"),
        transformers_4(
            edited("config.json", rope_scaling={"type": "yarn", "factor": 4.0}), "config.json", "is yarn without"
        ),
        transformers_4(
            edited("config.json", rope_parameters={"rope_type": "yarn", "factor": 4.0, "rope_theta": 10000.0}),
            "config.json",
            "rope_parameters is yarn without",
        ),
        (lambda model: (model / "tokenizer.json").unlink(), "tokenizer.json", "no tokenizer"),
        (written("tokenizer.json", "{}"), "tokenizer.json", "cannot be loaded"),
        transformers_4(
            edited("tokenizer_config.json", tokenizer_class="TokenizersBackend"), "tokenizer_config.json", "Tokenizers"
        ),
        transformers_4(
            edited("tokenizer_config.json", extra_special_tokens=["<a>"]), "tokenizer_config.json", "a list"
        ),
        (edited("tokenizer_config.json", tokenizer_class="REMOVED"), "tokenizer_config.json", "no tokenizer_class"),
        (written("tokenizer_config.json", "{"), "ENDPOINT_MODEL", "tokenizer_config.json is not a JSON object"),
        (written("tokenizer_config.json", b"\xef\xbb\xbf{}"), "ENDPOINT_MODEL", "UTF-8"),
        (written("tokenizer_config.json", "{}".encode("utf-16")), "ENDPOINT_MODEL", "UTF-8"),
        (edited("tokenizer_config.json", chat_template="{% if x %}"), "chat_template.jinja", "endif"),
        (written("chat_template.jinja", "{{ 9**(9**(9**9)) }}"), "tokenizer.json", "time or memory"),
        (written("chat_template.jinja", b"\xff{{ messages }}"), "chat_template.jinja", "it is not UTF-8"),
        (written("tokenizer.json", b'{"x": "\xff"}'), "tokenizer.json", "it is not UTF-8"),
        (written("chat_template.jinja", ""), "chat_template.jinja", "it is empty"),
        (written("generation_config.json", "[]"), "generation_config.json", "not a JSON object"),
        (edited("generation_config.json", temperature="0.7"), "generation_config.json", "temperature is '0.7'"),
        (edited("generation_config.json", top_p=0), "generation_config.json", "above 0"),
        (edited("generation_config.json", top_k=50.0), "generation_config.json", "whole number"),
        (edited("generation_config.json", min_p=float("nan")), "generation_config.json", "min_p is nan"),
        (edited("generation_config.json", max_new_tokens=0), "generation_config.json", "1 or more"),
    ],
)
def test_a_fault_is_an_error_of_check_and_of_the_start(model: Path, change: Change, setting: str, words: str) -> None:
    change(model)
    status, findings = check(model)
    assert status == 1
    assert words in json.dumps(findings[setting])
    with pytest.raises(SettingError) as caught:
        fetch_model(load({"ENDPOINT_MODEL": str(model)}))
    assert setting in caught.value.message
    packed = run("pack", model, "--to", model.parent / "out", "--dry-run")
    assert (packed.exit_code, setting in packed.stderr) == (1, True), packed.output


def tensors(change: Callable[[dict[str, Any]], dict[str, Any]], name: str = "model.safetensors") -> Change:
    """Changes the header of a safetensors file. The data stay as they are."""

    def changed(model: Path) -> None:
        content = (model / name).read_bytes()
        size = int.from_bytes(content[:8], "little")
        text = json.dumps(change(json.loads(content[8 : 8 + size]))).encode()
        (model / name).write_bytes(len(text).to_bytes(8, "little") + text + content[8 + size :])

    return changed


def added(header: dict[str, Any]) -> dict[str, Any]:
    end = max(entry["data_offsets"][1] for entry in header.values())
    empty = {"dtype": "BF16", "shape": [0], "data_offsets": [end, end]}
    return header | {"model.layers.0.self_attn.rotary_emb.inv_freq": empty, "model.layers.0.mlp.up_proj.bias": empty}


@pytest.mark.parametrize(
    ("change", "variables", "status"),
    [
        (tensors(added), {}, 0),
        (written("model.safetensors.index.json", '{"weight_map": {"gone": "model.safetensors"}}'), {}, 0),
        (written("notes.bin", "x"), {}, 0),
        (written("._model.safetensors", b"\x00\x05\x16\x07" + bytes(100)), {}, 0),
        (written("hf_quant_config.json", "{}"), {}, 5),
        (written("consolidated.safetensors", "x"), {}, 5),
        (tensors(lambda header: {name.removeprefix("model."): entry for name, entry in header.items()}), {}, 5),
        (edited("config.json", num_hidden_layers=9), {"SM_VLLM_RUNNER": "pooling"}, 5),
        (lambda model: (model / "model.safetensors").unlink(), {"NEURON_COMPILED_ARTIFACTS": "/opt/neff"}, 5),
        (renamed("tokenizer.json", "tokenizer.model"), {}, 0),
        (lambda model: (model / "tokenizer.json").unlink(), {"SM_VLLM_SKIP_TOKENIZER_INIT": "true"}, 0),
        (edited("config.json", architectures="REMOVED"), {}, 0),
        (edited("config.json", dtype="bfloat16", torch_dtype="nope"), {}, 0),
        (edited("config.json", dtype="half"), {}, 0),
        (edited("config.json", auto_map={}, compression_config=None), {}, 0),
        (
            edited(
                "config.json",
                rope_scaling={"type": "yarn", "factor": 4.0},
                original_max_position_embeddings=512,
            ),
            {},
            0,
        ),
        (written("generation_config.json", "{"), {}, 0),
        (written("generation_config.json", '{"temperature": null, "top_k": -1, "top_p": 1}'), {}, 0),
        (written("generation_config.json", f'{{"top_k": {10**400}}}'), {}, 0),
        (written("generation_config.json", '{"top_p": 0}'), {"SM_VLLM_GENERATION_CONFIG": "vllm"}, 0),
        (
            written("generation_config.json", '{"top_p": 0}'),
            {"SM_VLLM_OVERRIDE_GENERATION_CONFIG": '{"top_p": 0.9}'},
            0,
        ),
    ],
)
def test_a_model_that_works_is_not_refused(
    tmp_path: Path, change: Change, variables: dict[str, str], status: int
) -> None:
    model = write_small_model(tmp_path / "model")
    change(model)
    found = check(model, **variables)
    assert found[0] == status, found


@pytest.mark.parametrize(
    ("change", "method", "words"),
    [
        (lambda _: None, "awq", "not quantized"),
        (lambda _: None, "gptq_marlin", "not quantized"),
        *[(lambda _: None, each, "not quantized") for each in ("compressed-tensors", "modelopt", "moe_wna16", "quark")],
        (edited("config.json", quantization_config={"quant_method": "gptq"}), "awq", "quantized by gptq"),
        (edited("config.json", text_config={"compression_config": {"quant_method": "fp8"}}), "awq", "by fp8"),
        (edited("config.json", quantization_config={"quant_method": "awq"}), "awq_marlin", None),
        (edited("config.json", quantization_config={"quant_method": "awq"}), "moe_wna16", None),
        (written("quantize_config.json", "{}"), "gptq", None),
        (lambda _: None, FROM_UNQUANTIZED[version()][-1], None),
        (lambda _: None, "bitsandbytes", "bitsandbytes"),  # vLLM 0.29 has no such method any more
    ],
)
def test_a_method_that_the_weights_are_not_quantized_by(
    model: Path, change: Change, method: str, words: str | None
) -> None:
    change(model)
    _, findings = check(model, "--line", "cpu", SM_VLLM_QUANTIZATION=method)
    finding = findings.get("SM_VLLM_QUANTIZATION")
    assert (finding is not None) is (words is not None)
    assert words is None or (finding is not None and words in finding["why"])


def test_a_template_below_sagemakers_directory_is_a_file_of_the_model(model: Path) -> None:
    (model / "mine.jinja").write_text("{{ messages[0]['content'] }}")
    assert check(model, ENDPOINT_CHAT_TEMPLATE="/opt/ml/model/mine.jinja")[0] == 0
    (model / "mine.jinja").unlink()
    status, findings = check(model, ENDPOINT_CHAT_TEMPLATE="/opt/ml/model/mine.jinja")
    assert (status, "there is no file" in findings["ENDPOINT_CHAT_TEMPLATE"]["why"]) == (1, True)


@pytest.mark.parametrize("name", ["TOKENIZER", "GENERATION_CONFIG"])
def test_a_path_below_sagemakers_directory_is_one_of_the_model(model: Path, name: str) -> None:
    status, findings = check(model, **{f"SM_VLLM_{name}": "/opt/ml/model/other"})
    assert (status, "there is nothing at" in findings[f"SM_VLLM_{name}"]["why"]) == (1, True)
    shutil.copytree(sample_model.path(), model / "other")
    assert check(model, **{f"SM_VLLM_{name}": "/opt/ml/model/other"})[0] == 0


@pytest.mark.parametrize("variable", ["ENDPOINT_TOOL_PARSER_PLUGIN", "SM_VLLM_REASONING_PARSER_PLUGIN"])
def test_the_file_of_a_parser_must_be_there(model: Path, variable: str) -> None:
    def missing(path: str, *words: str) -> str:
        """The code of the finding; empty if there is none."""
        settings = {"ENDPOINT_TOOL_CALL_PARSER": "mine", "ENDPOINT_TRUST_REMOTE_CODE": "true", variable: path}
        finding = check(model, *words, **settings)[1].get(variable, {})
        assert not finding or f"there is no file '{path}'" in finding["why"]
        return finding.get("code", "")

    assert missing("/nothing.py") == missing("mine.py") == missing("/opt/ml/model/mine.py") == "model-files"
    assert missing("/nothing.py", "--instance", "ml.trn2.48xlarge") == "not-checked"
    (model / "mine.py").touch()
    assert missing("/opt/ml/model/mine.py") == missing(str(model / "mine.py")) == missing("installed.module") == ""
    assert missing("mine.py") == ("" if variable == "ENDPOINT_TOOL_PARSER_PLUGIN" else "model-files")


def test_the_file_of_vllms_logging_must_be_there(model: Path) -> None:
    setting = "SM_VLLM_LOGGING_CONFIG"
    for path, missing in (("auto", True), ("/opt/ml/model/log.json", True), (str(model / "config.json"), False)):
        findings = check(model, **{setting: json.dumps({"pylogging_config_file": path})})[1]
        assert (f"{setting}.pylogging_config_file" in findings) is missing


@pytest.mark.parametrize("name", ["org/name", "s3://bucket/prefix", "/nothing", "/" + "x" * 300])
def test_a_tokenizer_elsewhere_is_not_checked(model: Path, name: str) -> None:
    status, findings = check(model, SM_VLLM_TOKENIZER=name)
    assert (status, findings["SM_VLLM_TOKENIZER"]["code"]) == (5, "not-checked")
    assert name[:200] in findings["SM_VLLM_TOKENIZER"]["why"]


def test_a_tokenizer_in_another_directory_is_read(model: Path, tmp_path: Path) -> None:
    other = Path(shutil.copytree(sample_model.path(), tmp_path / "other"))
    (model / "tokenizer.json").unlink()
    assert check(model, SM_VLLM_TOKENIZER=str(other))[0] == 0
    (other / "tokenizer.json").write_text("{}")
    status, findings = check(model, SM_VLLM_TOKENIZER=str(other))
    assert (status, findings["SM_VLLM_TOKENIZER"]["why"].partition(":")[0]) == (1, "tokenizer.json")


def test_only_an_engine_without_a_tokenizer_goes_without_its_files(model: Path) -> None:
    (model / "tokenizer.json").unlink()
    assert [check(model, SM_VLLM_SKIP_TOKENIZER_INIT=value)[0] for value in ("true", "false")] == [0, 1]


@pytest.mark.parametrize(
    "variables",
    [
        {"OPTION_QUANTIZE": "static_int8"},
        {"SM_VLLM_TOOL_CALL_PARSER": "gemma4", "SM_VLLM_TENSOR_PARALLEL_SIZE": "3"},
    ],
)
def test_without_a_plan_the_files_are_still_for_the_line_that_was_asked(model: Path, variables: dict[str, str]) -> None:
    status, findings = check(model, "--instance", "ml.trn2.48xlarge", **variables)
    assert status == 1
    assert not [one for one in findings.values() if "of vLLM 0.16.0" in one["why"]]


def test_mistrals_own_format_needs_its_own_file(model: Path) -> None:
    setting = "SM_VLLM_CONFIG_FORMAT"
    assert "params.json" in check(model, **{setting: "mistral"})[1][setting]["why"]
    assert setting not in check(model, **{setting: "hf"})[1]
    (model / "params.json").write_text("{}")
    assert setting not in check(model, **{setting: "mistral"})[1]


@pytest.mark.parametrize("elsewhere", [False, True])
def test_mistrals_tokenizer_needs_its_own_file(model: Path, tmp_path: Path, elsewhere: bool) -> None:
    setting, place = "SM_VLLM_TOKENIZER_MODE", model
    variables = {setting: "mistral"}
    if elsewhere:
        place = Path(shutil.copytree(sample_model.path(), tmp_path / "other"))
        variables["SM_VLLM_TOKENIZER"] = str(place)
    status, findings = check(model, **variables)
    assert status == 1
    assert "tekken.json" in findings[setting]["why"]
    (place / "tokenizer.json").unlink()
    for name in ("tekken.json", "tokenizer.model.v3", "tokenizer.model"):
        (place / name).write_text("x")
        assert check(model, **variables)[0] == 0, name
        (place / name).unlink()


def test_defaults_of_the_endpoint_that_requests_would_fail_of(model: Path) -> None:
    status, findings = check(model, SM_VLLM_OVERRIDE_GENERATION_CONFIG='{"temperature": "x"}')
    assert status == 1
    assert "temperature is 'x'" in findings["SM_VLLM_OVERRIDE_GENERATION_CONFIG"]["why"]


def test_deploy_creates_nothing_of_such_a_model(model: Path) -> None:
    cut(model)
    words = ["deploy", "chat", "--image", "i", "--instance", "ml.trn1.32xlarge", "--set", f"ENDPOINT_MODEL={model}"]
    result = run(*words, "--dry-run", COLUMNS="400")
    assert result.exit_code == 1
    assert "Nothing was created" in result.output
    assert "its header describes" in result.output


class Hub(BaseHTTPRequestHandler):
    """A hub with one model, org/there."""

    def do_HEAD(self) -> None:
        self.send_response(200 if self.path.startswith("/org/there/") else 404)
        for name, value in {"ETag": '"a"', "X-Repo-Commit": "b" * 40, "Content-Length": "10"}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


def test_a_hub_id_is_looked_up_on_the_hub(tmp_path: Path) -> None:
    """Row 9. What is there is not looked at; what is not there, and a hub that is not reached, are errors."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as hub:
        threading.Thread(target=hub.serve_forever, daemon=True).start()
        url, nowhere = f"http://127.0.0.1:{hub.server_port}", f"http://127.0.0.1:{free_port()}"
        for name, endpoint, status, words in [
            ("org/there", url, 5, "not checked: the files of org/there"),
            ("org/gone", url, 1, "404"),
            ("org/there", nowhere, 1, "cannot be reached on the hub"),
        ]:
            environ = {**os.environ, "HF_HUB_OFFLINE": "0", "HF_ENDPOINT": endpoint, "HF_HOME": str(tmp_path)}
            command = [sys.executable, "-m", "model_packaging", "check", "--json", name]
            done = subprocess.run(command, env=environ, capture_output=True, text=True)
            assert (done.returncode, words in done.stdout) == (status, True), done.stdout + done.stderr
        hub.shutdown()


@pytest.mark.parametrize(
    ("variables", "setting", "words"),
    [
        ({"ENDPOINT_CHAT_TEMPLATE": "none.jinja"}, "ENDPOINT_CHAT_TEMPLATE", "there is no file 'none.jinja'"),
        ({"ENDPOINT_CHAT_TEMPLATE": "{% if %}"}, "chat_template", "Expected an expression"),
        ({"ENDPOINT_TOOL_CALL_PARSER": "hermess"}, "ENDPOINT_TOOL_CALL_PARSER", "hermes, "),
        ({"SM_VLLM_REASONING_PARSER": "qwen4"}, "SM_VLLM_REASONING_PARSER", "qwen3, "),
        ({"SM_VLLM_QUANTIZATION": "eetq"}, "SM_VLLM_QUANTIZATION", "fp8, "),
        (
            {"SM_VLLM_KV_TRANSFER_CONFIG": '{"kv_connector": "Nixl", "kv_role": "kv_both"}'},
            *("SM_VLLM_KV_TRANSFER_CONFIG", "NixlConnector, "),
        ),
        (
            {"SM_VLLM_EC_TRANSFER_CONFIG": '{"ec_connector": "ECExample", "ec_role": "ec_producer"}'},
            *("SM_VLLM_EC_TRANSFER_CONFIG", "ECExampleConnector"),
        ),
        ({"SM_VLLM_LOAD_FORMAT": "safetensor"}, "SM_VLLM_LOAD_FORMAT", "safetensors, "),
        ({"SM_VLLM_TOKENIZER_MODE": "fast"}, "SM_VLLM_TOKENIZER_MODE", "mistral, "),
        ({"SM_VLLM_GENERATION_CONFIG": "vlm"}, "SM_VLLM_GENERATION_CONFIG", "cannot be reached on the hub"),
        ({"SM_VLLM_HF_CONFIG_PATH": "word"}, "SM_VLLM_HF_CONFIG_PATH", "cannot be reached on the hub"),
    ],
)
def test_a_template_and_parts_of_vllm_that_are_set(
    model: Path, variables: dict[str, str], setting: str, words: str
) -> None:
    status, findings = check(model, **variables)
    assert status == 1
    assert words in json.dumps(findings[setting])


@pytest.mark.parametrize(
    "variables",
    [
        {"SM_VLLM_LOAD_FORMAT": "Safetensors"},
        {"SM_VLLM_TOKENIZER_MODE": "HF"},
        {"SM_VLLM_TOKENIZER_MODE": "auto", "ENDPOINT_LINE": "fork-0.9.1"},
        {"SM_VLLM_GENERATION_CONFIG": "vllm"},
    ],
    ids=str,
)
def test_parts_that_vllm_has(model: Path, variables: dict[str, str]) -> None:
    findings = check(model, **variables)[1]
    assert not {"SM_VLLM_LOAD_FORMAT", "SM_VLLM_TOKENIZER_MODE", "SM_VLLM_GENERATION_CONFIG"} & set(findings), findings


@pytest.mark.parametrize("vllm", ["0.16.0", "0.24.0", "0.29.0", "0.32.0"])
def test_methods_that_read_quantized_weights_only(vllm: str) -> None:
    def why(method: str, *, files: tuple[str, ...] = (), **stored: Json) -> str:
        config: dict[str, Json] = {"quantization_config": stored} if stored else {}
        found = quantization_findings(config, dict.fromkeys(files, 1), method, "SM_VLLM_QUANTIZATION", vllm)
        return " ".join(finding.why for finding in found)

    for method in ("fp8", "awq", "gguf", "compressed-tensors"):
        assert "loads on a CPU no weights that are not quantized" in why(method)
    for right in (why("experts_int8"), why("gptq", files=("quantize_config.json",)), why("fp8", quant_method="fp8")):
        assert not right


def test_shards_without_an_index_are_read_by_vllm_and_not_by_nxd_inference(model: Path) -> None:
    renamed("model.safetensors", "model-00001-of-00001.safetensors")(model)
    assert check(model)[0] == 0
    status, findings = check(model, "--instance", "ml.inf2.xlarge", "--line", "nxdi-0.16")
    assert (status, "model.safetensors.index.json" in findings) == (1, True)


@pytest.mark.parametrize(
    ("line", "variables", "severity"),
    [
        ("native-0.29", {}, "error"),
        ("native-0.24", {"SM_VLLM_LOAD_FORMAT": "pt"}, "error"),
        ("nxdi-0.16", {}, "info"),
    ],
)
def test_the_native_plugin_reads_safetensors_only(
    model: Path, line: str, variables: dict[str, str], severity: str
) -> None:
    renamed("model.safetensors", "pytorch_model.bin")(model)
    _, findings = check(model, ENDPOINT_LINE=line, ENDPOINT_INSTANCE="ml.trn2.48xlarge", **variables)
    assert findings["weights"]["severity"] == severity


def test_nxd_inference_needs_weights_whatever_the_load_format_is(model: Path) -> None:
    (model / "model.safetensors").unlink()
    _, findings = check(
        model, ENDPOINT_LINE="nxdi-0.16", ENDPOINT_INSTANCE="ml.inf2.xlarge", SM_VLLM_LOAD_FORMAT="dummy"
    )
    assert findings["weights"]["severity"] == "error"


def test_what_could_not_be_looked_at_has_a_status_of_its_own(tmp_path: Path, model: Path) -> None:
    edited("config.json", quantization_config={"quant_method": "awq"})(model)
    status, findings = check(model)
    assert (status, findings["weights"]["code"]) == (5, "not-checked")
    assert findings["weights"]["why"].startswith("not checked: ")
    text = run("check", model).stdout
    assert "Not everything could be checked." in text


ROPE = {"rope_type": "default", "rope_theta": 500000.0}
LLAMA3 = ROPE | {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


@pytest.mark.parametrize("rope", [ROPE, LLAMA3])
@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3", "mistral"])
def test_the_rotary_embedding_of_transformers_5_reaches_the_engine(
    kind: str, rope: dict[str, Any], tmp_path: Path
) -> None:
    """Row 3: the value for vLLM, or an error. `test_model_faults` has the tokens."""
    model = write_small_model(tmp_path / "model", model_type=kind, rope_parameters=rope)
    facts = read_facts(str(model))
    plan = make_plan(EndpointConfig(model=str(model), line="cpu"), facts, None).plan
    assert plan is not None
    assert plan.engine_args["hf_overrides"] == {"rope_parameters": rope, "rope_theta": 500000.0}
    outcome = make_plan(EndpointConfig(model=str(model), line="nxdi-0.16"), facts, None)
    assert [finding.code for finding in outcome.findings if finding.severity == "error"] == ["rope-parameters"]
    both = write_small_model(tmp_path / "both", model_type=kind, rope_parameters=ROPE, rope_theta=500000.0)
    plan = make_plan(EndpointConfig(model=str(both), line="cpu"), read_facts(str(both)), None).plan
    assert plan is not None
    assert "hf_overrides" not in plan.engine_args


def test_no_error_follows_from_another(tmp_path: Path) -> None:
    """Row 19: a wrong setting, and no lengths."""
    model = write_small_model(tmp_path / "m", max_position_embeddings=None, hidden_size=8192, num_hidden_layers=80)
    _, findings = check(model, "--instance", "ml.inf2.xlarge", ENDPOINT_LINE="nxdi-0.99")
    assert [one["code"] for one in findings.values() if one["severity"] == "error"] == ["unknown-line"]


SILENT = [
    ('{"is_eagle_draft": true}', "is_eagle_draft", "warning"),
    ('{"mlp_kernel_enabled": true, "quantized_mlp_kernel_enabled": true}', "quantized_mlp_kernel_enabled", "warning"),
    ('{"padding_side": "left"}', "padding_side", "warning"),
    ('{"is_continuous_batching": false}', "is_continuous_batching", "warning"),
    ('{"max_context_length": 0}', "max_context_length", "error"),
    ('{"draft_overrides": {"batch_siez": 1}}', "draft_overrides.batch_siez", "error"),
    ('{"enable_bucketing": false, "context_encoding_buckets": [128]}', "context_encoding_buckets", "warning"),
]


@pytest.mark.parametrize(("override", "key", "severity"), SILENT)
def test_a_setting_that_was_silent_is_a_finding(model: Path, override: str, key: str, severity: str) -> None:
    """Row 17."""
    lines = {"SM_VLLM_OVERRIDE_NEURON_CONFIG": override, "SM_VLLM_MAX_NUM_SEQS": "4", "SM_VLLM_MAX_MODEL_LEN": "512"}
    _, findings = check(model, "--instance", "ml.inf2.xlarge", "--line", "nxdi-0.16", **lines)
    assert any(setting.endswith(key) and one["severity"] == severity for setting, one in findings.items()), findings


@pytest.mark.parametrize(
    ("line", "variable", "value", "severity"),
    [
        ("nxdi-0.16", "NEURON_RT_EXEC_TIMEOUT", "ten minutes", "error"),
        ("optimum", "NEURON_COMPILED_ARTIFACTS", "/opt/neff", "warning"),
    ],
)
def test_a_variable_that_was_silent_is_a_finding(
    model: Path, line: str, variable: str, value: str, severity: str
) -> None:
    _, findings = check(model, "--instance", "ml.inf2.xlarge", "--line", line, **{variable: value})
    assert findings[variable]["severity"] == severity, findings


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    return Path(shutil.copytree(sample_model.adapter_path(), tmp_path / "adapter"))


def with_keys(rename: Callable[[str], str]) -> Change:
    return tensors(lambda header: {rename(name): entry for name, entry in header.items()}, "adapter_model.safetensors")


ADAPTER_FAULTS: list[tuple[Change, str]] = [
    (
        with_keys(lambda name: name.replace("base_model.model.", "base_model.model.language_model.")),
        "language_model.model.layers.0.",
    ),
    (with_keys(lambda name: name.replace("layers.", "layers.1")), "layers.10."),
    (with_keys(lambda name: name.replace("q_proj", "k_proj")), "k_proj"),
    (edited("adapter_config.json", r=4), "rank"),
    (edited("adapter_config.json", r=512, target_modules=["q_proj"]), "512"),
    (edited("adapter_config.json", modules_to_save=["lm_head"]), "modules_to_save"),
    (lambda adapter: (adapter / "adapter_model.safetensors").unlink(), "there is no adapter_model.safetensors"),
]


@pytest.mark.parametrize(("change", "words"), ADAPTER_FAULTS)
def test_check_reads_the_adapters_that_it_can_reach(model: Path, adapter: Path, change: Change, words: str) -> None:
    """Row 4. `tests/endpoint/test_adapters.py` registers the same ones by HTTP."""
    variables = {"ENDPOINT_LORA_MODULES": f"mine={adapter}", "ENDPOINT_MAX_LORA_RANK": "16"}
    assert check(model, **variables)[0] == 0
    change(adapter)
    status, findings = check(model, **variables)
    assert (status, words in findings["ENDPOINT_LORA_MODULES"]["why"]) == (1, True), findings


@pytest.mark.parametrize("line", ["cpu", "nxdi-0.16", "fork-0.9.1"])
@pytest.mark.parametrize(
    ("rank", "words"),
    [
        (17, "above 16: start the endpoint with max_lora_rank 32"),
        (64, "above 16: start the endpoint with max_lora_rank 64"),
        (513, "above 16: vLLM's largest is 512"),
    ],
)
def test_without_max_lora_rank_an_adapter_is_held_against_vllms_own(
    model: Path, adapter: Path, line: str, rank: int, words: str
) -> None:
    variables = {"ENDPOINT_LORA_MODULES": f"mine={adapter}", "ENDPOINT_LINE": line}
    assert "mine" not in str(check(model, **variables)[1].get("ENDPOINT_LORA_MODULES"))
    edited("adapter_config.json", r=rank)(adapter)
    status, findings = check(model, **variables)
    assert (status, words in findings["ENDPOINT_LORA_MODULES"]["why"]) == (1, True), findings


def test_the_target_modules_of_the_endpoint_are_held_against_the_adapter(model: Path, adapter: Path) -> None:
    variables = {"ENDPOINT_LORA_MODULES": f"mine={adapter}", "ENDPOINT_LORA_TARGET_MODULES": "q_proj,v_proj"}
    status, findings = check(model, **variables)
    assert (status, "not in lora_target_modules" in findings["ENDPOINT_LORA_MODULES"]["why"]) == (1, True)
