"""Finds in a model's files what would keep the engine from starting, or make it answer wrongly.

JSON files, the headers of the weights, the tokenizer and the chat template are read; no weights. The rules are those of
the loaders of vLLM 0.16 and transformers 4.57, each tried with files that have one fault.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from handler.config.finding import Finding, Severity
from handler.config.values import shown
from handler.config.vllm_argument_table import registered_names
from handler.errors import EndpointError, SettingError
from handler.json_value import Json, mapping
from handler.neuron.checkpoint.chat_template import FILE, own_template
from handler.neuron.checkpoint.checkpoint_files import (
    SAFETENSORS,
    CheckpointFiles,
    LocalFiles,
    holds_weights,
    read_json,
)
from handler.neuron.checkpoint.checkpoint_reader import INDEX, SINGLE, THREADS, header_of, shards_of
from handler.neuron.checkpoint.model_facts import LENGTHS, QUANTIZED, number, stored_quantization, text_part
from handler.neuron.checkpoint.model_layout import EMBEDDINGS, HEAD, expected_tensors, is_skipped
from handler.neuron.checkpoint.text_trial import tried
from handler.storage.safetensors_header import PREFIX, Tensor

CODE, UNCHECKED, NO_TEMPLATE = "model-files", "not-checked", "no-chat-template"
AGAIN, ONE_VERSION = "Upload the original file again.", "Upload config.json and all other files of one version."
# Files with a tokenizer that vLLM loads without tokenizer.json.
OTHER_TOKENIZERS: Final = (".model", ".tiktoken", ".spm", "tekken.json", "vocab.json", "vocab.txt")
TOKENIZER_FILES: Final = (TOKENIZER_CONFIG := "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
# Model types whose tokenizer is Llama's if no tokenizer_class is named, and the tokens that it adds.
LLAMA_TYPES, LLAMA_TOKENS = ("llama", "mistral"), ("<s>", "</s>", "<unk>")
# Types that run without `architectures`. vLLM takes others for an embedding model.
BY_TYPE: Final = ("llama", "mistral", "qwen2")
# torch's data types by name. A newer torch may have more of these kinds.
TORCH_TYPES: Final = re.compile(
    r"(bfloat|float|q?u?int|bits?|complex)\w*|half|double|long|short|bool|c(half|float|double)"
)
# Keys of config.json, the types that no loader reads there, and what it reads. Some numbers may be lists, by layer.
KINDS: Final[tuple[tuple[tuple[str, ...], tuple[type, ...], str], ...]] = (
    ((*LENGTHS, "model_max_length"), (str, list, dict), "a number"),
    (("head_dim", "hidden_size", "intermediate_size", "num_hidden_layers", "vocab_size"), (str,), "a number"),
    (("num_attention_heads", "num_key_value_heads", "rms_norm_eps", "rope_theta"), (str,), "a number"),
    ((*QUANTIZED, "rope_scaling", "rope_parameters"), (str, list, int, float), "an object"),
    (("architectures", "layer_types"), (int, float, dict), "a list"),
    (("dtype", "torch_dtype"), (list, float), "the name of a data type"),
)
# Kinds of rotary scaling by a factor.
BY_FACTOR: Final = ("linear", "dynamic", "yarn", "llama3")
ROPE_KEYS: Final = {"llama3": ("low_freq_factor", "high_freq_factor"), "longrope": ("short_factor", "long_factor")}
# Types whose class transformers chooses, which looks into auto_map before.
PLAIN_TYPES: Final = ("llama", "mistral", "qwen2", "qwen3")
# Tokens that a fine-tuned model's tokenizer may have beyond the model's vocabulary. More are another model's.
SPARE_TOKENS: Final = 64
# Methods of vLLM, and whose weights they read. What may say it in the place of config.json
# (vllm/model_executor/layers/quantization).
FAMILIES: Final = {
    **{method: method for method in ("awq", "gptq", "fp8", "bitsandbytes", "compressed-tensors", "mxfp4")},
    **{"awq_marlin": "awq", "gptq_marlin": "gptq"},
}
# Files beside config.json that say how the weights are quantized, by the method that reads them.
OWN_FILES: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("awq", "auto_awq", "awq_marlin"), ("quant_config.json", "quantize_config.json")),
    **dict.fromkeys(("gptq", "auto_gptq", "gptq_marlin", "cpu_awq", "moe_wna16"), ("quantize_config.json",)),
    **dict.fromkeys(("modelopt", "modelopt_fp4", "modelopt_mxfp8", "modelopt_mixed"), ("hf_quant_config.json",)),
    **dict.fromkeys(("petit_nvfp4",), ("hf_quant_config.json",)),
    "inc": ("quantization_config.json",),
}
# Methods with which vLLM loads weights that are not quantized, on a CPU (each was tried, on one without AVX-512; for
# fp8_per_block it wants AMX; 0.32.0 was tried up to the point at which it fails there without a method, too).
LATER_METHODS: Final = (
    *("experts_int8", "gpt_oss_mxfp4", "fp8_per_block", "fp8_per_channel", "int8_per_channel_weight_only"),
    "nvfp4_per_token",
)
FROM_UNQUANTIZED: Final = {
    "0.16.0": ("experts_int8", "mxfp4"),
    "0.24.0": ("experts_int8", "mxfp4", "gpt_oss_mxfp4", "fp8_per_block", "int8_per_channel_weight_only"),
    "0.29.0": LATER_METHODS,
    "0.32.0": (*LATER_METHODS, "deepseek_v4_fp8"),
}
# Bytes of two tensors that are compared to tell whether one is a copy of the other.
SAMPLE: Final = 4096


@dataclass(frozen=True, slots=True)
class Loader:
    """What reads the files, and for what."""

    vllm: str  # "" if the line has no fixed one
    transformers: int
    indexed: bool  # weights in several files need an index, as for NxD Inference and optimum-neuron; vLLM reads all
    trust: bool  # the model may bring a class of its own
    plain: bool  # it is read as it was saved: not as an embedding model, or as the head of an EAGLE draft
    exports: bool = False  # it loads what optimum-neuron has exported
    cpu: bool = False  # vLLM's own methods of quantization
    built: bool = False  # the model is built from what vLLM has read, with hf_overrides
    native: bool = False  # it reads *.safetensors, whatever load_format says


def error(name: str, why: str, fix: str = AGAIN) -> Finding:
    return Finding(CODE, Severity.ERROR, name, why, fix)


def not_checked(name: str, what: str) -> Finding:
    """A finding that says what could not be looked at."""
    return Finding(UNCHECKED, Severity.INFO, name, f"not checked: {what}", "A start shows whether it works.")


def config_findings(config: Mapping[str, Json], loader: Loader) -> Iterator[Finding]:
    """What is wrong with config.json itself."""
    text, name, kind, named = text_part(config), "config.json", config.get("model_type"), config.get("architectures")
    heads, groups = number(text, "num_attention_heads"), number(text, "num_key_value_heads")
    if groups and heads % groups:
        yield error(name, f"{heads} attention heads cannot share {groups} KV heads", "Correct the two numbers.")
    yield from _unloadable(config, loader)
    types, classes = registered_names(loader.vllm, "model_types"), registered_names(loader.vllm, "architectures")
    if loader.trust or not types:
        return
    if kind not in types:
        yield error(name, f"model_type is '{str(kind)[:60]}', which vLLM {loader.vllm} does not know")
    if isinstance(named, list) and named and not set(map(str, named)) & set(classes):
        yield error(name, f"vLLM {loader.vllm} has no architecture '{str(named[0])[:60]}'")
    if not named and kind not in BY_TYPE:
        yield error(name, "it has no architectures, without which vLLM does not generate")


def _unloadable(config: Mapping[str, Json], loader: Loader) -> Iterator[Finding]:
    """Values on which transformers or vLLM raise while they read config.json (tried on vLLM 0.16 to 0.32)."""
    text, name, named = text_part(config), "config.json", config.get("architectures")
    key = "torch_dtype" if text.get("dtype") is None else "dtype"
    if isinstance(value := text.get(key), str) and not TORCH_TYPES.fullmatch(value):
        short = value.removeprefix("torch.")
        fix = f"Write {short}." if TORCH_TYPES.fullmatch(short) else "Write the weights' data type, such as bfloat16."
        yield error(name, f"{key} is '{value[:60]}', which torch does not have", fix)
    if isinstance(named, str) and named:
        yield error(name, f"architectures is the text '{named[:60]}'", "Write a list of it.")
    for keys, wrong, what in KINDS:
        for key in (key for key in keys if text.get(key) and isinstance(text[key], wrong)):
            yield error(name, f"{key} is {shown(text[key])}, and not {what}", "Correct it, or remove it.")
    for key in ("rope_scaling", "rope_parameters"):
        scaling = mapping(text.get(key))
        method, factor = str(scaling.get("rope_type", scaling.get("type"))), scaling.get("factor")
        for part in (part for part in ROPE_KEYS.get(method, ()) if part not in scaling):
            yield error(name, f"{key} is {method} without {part}", "Write it as in the original file.")
        if method in BY_FACTOR and not (isinstance(factor, int | float) and factor > 0):
            yield error(name, f"the factor of {key} is {shown(factor)}, and not a number above 0", "Correct it.")
    if config.get("model_type") in PLAIN_TYPES and config.get("auto_map", {}) is None:
        yield error(name, "auto_map is null", "Remove it.")
    if loader.transformers >= 5 or not loader.vllm:
        return
    if config.get("quantization_config", {}) is None:
        yield error(name, "quantization_config is null, which transformers 4 does not read", "Remove it.")
    sized = "gemma3" in str(config.get("model_type"))  # vLLM does not compute its length
    for key in ("rope_scaling", "rope_parameters"):
        rope = config.get(key)
        if not isinstance(rope, dict) or any(isinstance(value, dict) for value in rope.values()):
            continue
        kind, original = rope.get("rope_type", rope.get("type")), "original_max_position_embeddings"
        if kind is None and key == "rope_scaling":
            yield error(name, f"{key} has no rope_type", "Write its type, or null if the embedding is not scaled.")
        elif kind == "yarn" and not rope.get(original, config.get(original)) and not sized:
            fix = "Write the length that the model had before, often max_position_embeddings / factor."
            yield error(name, f"{key} is yarn without {original}, which vLLM {loader.vllm} reads", fix)


def quantization_findings(
    config: Mapping[str, Json], sizes: Mapping[str, int], method: str, setting: str, vllm: str
) -> Iterator[Finding]:
    """Whether vLLM on a CPU loads these weights with the configured method.

    Source: config/model.py (`_verify_quantization`), and starts with each method over a small model.
    """
    stored = stored_quantization(config)
    own = None if stored is None else stored.get("quant_method")
    if isinstance(own, str) and {own, method} <= FAMILIES.keys() and FAMILIES[own] != FAMILIES[method]:
        why = f"it is {method}, and config.json says that the weights are quantized by {own[:40]}"
        yield error(setting, why, "Remove it: vLLM reads the method from config.json.")
    elif stored is None and not (sizes.keys() & {*OWN_FILES.get(method, ())} or _from_unquantized(method, vllm)):
        why = f"it is {method}, with which vLLM {vllm} loads on a CPU no weights that are not quantized"
        yield error(setting, f"{why}, and config.json has no quantization_config", "Remove it.")


def _from_unquantized(method: str, vllm: str) -> bool:
    return vllm not in FROM_UNQUANTIZED or method in FROM_UNQUANTIZED[vllm]


def weight_findings(
    files: CheckpointFiles, config: Mapping[str, Json], loader: Loader, *, complete: bool
) -> Iterator[Finding]:
    """What is wrong with the weights. They may be elsewhere if not `complete`: on the hub, in compiled artifacts."""
    sizes, index = files.listing(), read_json(files, INDEX)
    safetensors = sorted(name for name in sizes if holds_weights(name, SAFETENSORS))
    names = safetensors if index is None else shards_of(index.get("weight_map"))
    missing = [name for name in names if name not in sizes]
    if not complete and (missing or not names):
        yield not_checked("weights", "weights that are not here")
    elif any(name.startswith("consolidated") for name in safetensors):
        yield not_checked("weights", "weights in Mistral's own format")
    elif not names and any(holds_weights(name) for name in sizes):
        if loader.native:  # vllm-neuron 0.24.0.1.1.0, vllm_neuron/utils/checkpoints.py, SafetensorsCheckpoint
            yield error("weights", "the native plugin reads *.safetensors only", "Convert the weights to safetensors.")
            return
        yield not_checked("weights", "weights that are not safetensors")
    elif not names:
        yield error("weights", "there are no files with weights", "Upload the *.safetensors files.")
    elif missing:
        yield error(missing[0], f"{INDEX} names it, and it is not there{more(missing)}", ONE_VERSION)
    elif index is None and loader.indexed and SINGLE not in names:
        yield error(INDEX, f"it is missing, and the weights are not in {SINGLE}", "Upload the index.")
    else:
        with ThreadPoolExecutor(1 if isinstance(files, LocalFiles) else THREADS) as pool:
            headers = list(pool.map(lambda name: header_of(files, name, sizes[name]), names))
        expected = expected_tensors(config) if loader.plain and "hf_quant_config.json" not in sizes else None
        by_file = dict(zip(names, headers, strict=True))
        kind, weight_map = str(config.get("model_type")), (index or {}).get("weight_map") or {}
        yield from _tensor_findings(files, expected, by_file, weight_map, kind)


def _tensor_findings(
    files: CheckpointFiles,
    expected: Mapping[str, tuple[int, ...]] | None,
    headers: Mapping[str, Mapping[str, Tensor]],
    weight_map: Any,
    kind: str,
) -> Iterator[Finding]:
    places = {tensor: file for file, header in headers.items() for tensor in header}
    tensors = {tensor: entry for header in headers.values() for tensor, entry in header.items()}
    twice = next((name for file, header in headers.items() for name in header if places[name] != file), None)
    if EMBEDDINGS not in places and EMBEDDINGS.removeprefix("model.") in places:
        expected = None  # saved as an embedding model
    gone = next((name for name in weight_map if name not in places and name in (expected or weight_map)), None)
    if twice is not None:
        yield error(places[twice], f"its tensor {twice[:100]} is in another file too", "Remove the stale file.")
    elif gone is not None:
        yield error(str(weight_map[gone])[:100], f"{INDEX} says that it has {gone[:100]}, and it has not", ONE_VERSION)
    elif expected is None:
        yield not_checked("weights", "the tensors' names and shapes, of this architecture")
    else:
        wrong = [name for name, shape in expected.items() if name in places and tensors[name].shape != shape]
        missing = [name for name in expected if name not in places]
        extra = [name for name in places if name not in expected and name != HEAD and not is_skipped(name, kind)]
        for name in wrong[:1]:
            why = f"{name} has the shape {[*tensors[name].shape]}, and config.json means {[*expected[name]]}"
            yield error(places[name], f"{why}{more(wrong)}", ONE_VERSION)
        for name in missing[:1]:
            yield error("weights", f"the tensor {name} is missing{more(missing)}", ONE_VERSION)
        for name in extra[:1]:
            yield error(places[name], f"config.json means no tensor {name[:100]}{more(extra)}", ONE_VERSION)
        tied = (HEAD, EMBEDDINGS) if HEAD in places and HEAD not in expected and not missing else ()
        if len({_sample(files, places[name], tensors[name]) for name in tied}) > 1:
            why = f"tie_word_embeddings is true, and {HEAD} is not a copy of {EMBEDDINGS}"
            yield error("config.json", why, "Set it to false, or remove the tensor.")


def _sample(files: CheckpointFiles, file: str, tensor: Tensor) -> bytes:
    start = PREFIX + int.from_bytes(files.read_range(file, 0, PREFIX), "little") + tensor.begin
    return files.read_range(file, start, min(SAMPLE, tensor.size))


def text_findings(
    files: CheckpointFiles, config: Mapping[str, Json], loader: Loader, template: str | None, *, complete: bool
) -> Iterator[Finding]:
    """What is wrong with the tokenizer and the chat template: the configured one, or the model's own."""
    settings, *_ = [read_json(files, name) or {} for name in TOKENIZER_FILES]
    broken = [name for name in ("tokenizer.json", FILE) if not _is_utf8(files.read(name))]
    if broken:
        yield from (error(name, "it is not UTF-8, and transformers does not read it") for name in broken)
        return
    content, name = files.read("tokenizer.json"), FILE if template is None else "chat_template"
    template = own_template(files, settings) if template is None else template
    text = None if content is None else content.decode()
    named = settings.get("tokenizer_class") or config.get("tokenizer_class")
    asked = LLAMA_TOKENS if named is None and config.get("model_type") in LLAMA_TYPES else ()
    trial, most = tried(text, template, asked), number(text_part(config), "vocab_size")
    if template is None and complete:
        why = "the model has no chat template, so that chats are rejected"
        yield Finding(NO_TEMPLATE, Severity.WARNING, name, why, "Set chat_template to serve chats.")
    if trial.get("died"):
        yield error("tokenizer.json", "reading it or the chat template takes too much time or memory")
    elif trial.get("template"):
        yield error(name, f"the chat template is invalid: {trial['template']}", "Correct it.")
    if content is None and complete and not any(other.endswith(OTHER_TOKENIZERS) for other in files.listing()):
        yield error("tokenizer.json", "the model has no tokenizer", "Upload the tokenizer's files.")
    elif "missing" in trial:
        yield not_checked("tokenizer.json", "the tokenizer, because `tokenizers` is not installed")
    elif "tokenizer" in trial:
        yield error("tokenizer.json", f"it cannot be loaded: {trial['tokenizer']}")
    elif most and trial.get("size", 0) > most + SPARE_TOKENS:
        yield error("tokenizer.json", f"it has {trial['size']} tokens, and the model {most}", ONE_VERSION)
    if trial.get("absent"):
        why = f"no tokenizer_class is named, so Llama's is taken, and tokenizer.json has no {trial['absent'][0]}"
        yield error(TOKENIZER_CONFIG, why, "Upload the original file, or name PreTrainedTokenizerFast.")
    if loader.transformers < 5 and settings.get("tokenizer_class") == "TokenizersBackend":
        why = "tokenizer_class is TokenizersBackend, which transformers 4 does not have"
        yield error(TOKENIZER_CONFIG, why, "Set it to PreTrainedTokenizerFast.")
    if loader.transformers < 5 and isinstance(settings.get("extra_special_tokens"), list):
        why = "extra_special_tokens is a list, and transformers 4 reads an object"
        yield error(TOKENIZER_CONFIG, why, "Name it additional_special_tokens.")


def _is_utf8(content: bytes | None) -> bool:
    try:
        (content or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class NamedPart:
    """An argument that names a part of vLLM.

    :param kind: of `registered_names`.
    :param plugin: the argument with a file or module of the user's own that may bring others.
    :param cpu: Neuron's plugins bring their own.
    :param lower: vLLM lowers its letters.
    """

    argument: str
    kind: str
    what: str
    plugin: str = ""
    cpu: bool = False
    lower: bool = False


PARTS: Final = (
    NamedPart("tool_call_parser", "tool_parsers", "tool parser", "tool_parser_plugin"),
    NamedPart("reasoning_parser", "reasoning_parsers", "reasoning parser", "reasoning_parser_plugin"),
    NamedPart("quantization", "quantizations", "quantization", "hf_overrides", cpu=True),
    NamedPart("kv_connector", "kv_connectors", "KV connector", "kv_connector_module_path", cpu=True),
    NamedPart("ec_connector", "ec_connectors", "EC connector", "ec_connector_module_path", cpu=True),
    NamedPart("load_format", "load_formats", "load format", cpu=True, lower=True),
    NamedPart("tokenizer_mode", "tokenizer_modes", "tokenizer mode", lower=True),
)


def part_findings(arguments: Mapping[str, Json], loader: Loader, setting: Callable[[str], str]) -> Iterator[Finding]:
    """Whether vLLM has the parts that are named.

    :param arguments: with those of `kv_transfer_config` and `ec_transfer_config` beside the others.
    :param setting: of an argument.
    """
    for part in PARTS:
        name, known = arguments.get(part.argument), registered_names(loader.vllm, part.kind)
        if name is None or arguments.get(part.plugin) or (part.cpu and not loader.cpu):
            continue
        if not known and name != "auto":
            yield not_checked(setting(part.argument), f"the {part.what}'s name")
        elif known and (str(name).lower() if part.lower else name) not in known:
            why = f"'{str(name)[:60]}' is no {part.what} of vLLM {loader.vllm}"
            yield error(setting(part.argument), why, f"Give one of {', '.join(known)}.")


def collected(*parts: Iterator[Finding]) -> Iterator[Finding]:
    """The findings of all parts. A part that meets a file that cannot be read ends with that."""
    for part in parts:
        try:
            yield from part
        except SettingError as problem:
            yield error(problem.setting, problem.problem, problem.fix)
        except EndpointError as problem:  # S3 cannot be reached
            yield not_checked("files", problem.message)


def more(names: list[str]) -> str:
    """How many files are named beside the first."""
    return f" (and {len(names) - 1} more)" if len(names) > 1 else ""
