"""Finds in a model's files what would keep the engine from starting, or make it answer wrongly.

JSON files, the headers of the weights, the tokenizer and the chat template are read; no weights. The sources are the
loaders of vLLM 0.16 and transformers 4.57, each tried with files that have one fault.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from handler.config.finding import Finding, Severity
from handler.config.vllm_argument_table import registered_names
from handler.errors import SettingError
from handler.json_value import Json
from handler.neuron.checkpoint.chat_template import FILE, own_template
from handler.neuron.checkpoint.checkpoint_files import WEIGHT_SUFFIXES, CheckpointFiles, LocalFiles, read_json
from handler.neuron.checkpoint.checkpoint_reader import INDEX, SINGLE, THREADS, header_of, shards_of
from handler.neuron.checkpoint.model_config import number, text_part
from handler.neuron.checkpoint.model_layout import EMBEDDINGS, HEAD, SKIPPED, expected_tensors
from handler.neuron.checkpoint.text_trial import tried
from handler.storage.safetensors_header import PREFIX, Tensor

CODE, UNCHECKED, NO_TEMPLATE = "model-files", "not-checked", "no-chat-template"
AGAIN: Final = "Upload the original file again."
# Files with a tokenizer that vLLM loads without tokenizer.json.
OTHER_TOKENIZERS: Final = ("tokenizer.model", "tekken.json", "vocab.json", "spiece.model", "tiktoken.model")
TOKENIZER_JSON: Final = ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json")
# Model types whose tokenizer is Llama's if no tokenizer_class is named. It adds these tokens.
LLAMA_TOKENIZERS: Final = ("llama", "mistral")
LLAMA_TOKENS: Final = ("<s>", "</s>", "<unk>")
# Types that run without `architectures`. vLLM takes others for an embedding model.
BY_TYPE: Final = ("llama", "mistral", "qwen2")
# Tokens that a fine-tuned model's tokenizer may have beyond the model's vocabulary. More are another model's.
SPARE_TOKENS: Final = 64
# Bytes of two tensors that are compared to tell whether one is a copy of the other.
SAMPLE: Final = 4096


@dataclass(slots=True)
class FileFindings:
    """The findings about one model's files.

    :param config: the content of config.json.
    :param complete: all files are here. A hub id's files may be fetched at the start.
    :param every_loader: the loader needs `model.safetensors` or an index, as NxD Inference's does. vLLM's does not.
    :param transformers: the major version that the line has.
    :param trust: the model may bring a class of its own.
    :ivar tensors: the tensors of the weights, if they were read.
    """

    files: CheckpointFiles
    config: Mapping[str, Json]
    complete: bool = True
    every_loader: bool = False
    transformers: int = 4
    trust: bool = False
    vllm: str = ""
    found: list[Finding] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)

    def examine(
        self, template: str | None, parser: str | None, *, weights: bool = True, generates: bool = True
    ) -> None:
        """Reads the files.

        :param template: the configured chat template, if it is not the model's own.
        :param parser: the configured tool parser.
        :param generates: False for a draft model, whose tokenizer and template are not used.
        """
        for step in (self._config, self._weights if weights else None):
            try:
                if step is not None:
                    step()
            except SettingError as error:
                self._error(error.setting, error.problem, error.fix)
        if generates:
            self._parser(parser)
            try:
                self._texts(template)
            except SettingError as error:
                self._error(error.setting, error.problem, error.fix)

    def _config(self) -> None:
        text, name = text_part(self.config), "config.json"
        kind, architectures = self.config.get("model_type"), self.config.get("architectures")
        heads, groups = number(text, "num_attention_heads"), number(text, "num_key_value_heads")
        if groups and heads % groups:
            self._error(name, f"{heads} attention heads cannot share {groups} KV heads", "Correct the two numbers.")
        for key in ("torch_dtype", "dtype"):
            if str(text.get(key)).startswith("torch."):
                self._error(name, f"{key} is '{text[key]}'"[:80], f"Write {str(text[key])[6:40]}.")
        types, classes = registered_names(self.vllm, "model_types"), registered_names(self.vllm, "architectures")
        if self.trust or not types:
            return
        named = architectures if isinstance(architectures, list) else []
        if kind not in types:
            self._error(name, f"model_type is '{str(kind)[:60]}', which vLLM {self.vllm} does not know", AGAIN)
        if named and not set(map(str, named)) & set(classes):
            self._error(name, f"vLLM {self.vllm} has no architecture '{str(named[0])[:60]}'", AGAIN)
        if not named and kind not in BY_TYPE:
            self._error(name, "it has no architectures, without which vLLM does not generate", AGAIN)

    def _weights(self) -> None:
        sizes = self.files.listing()
        index = read_json(self.files, INDEX)
        present = sorted(name for name in sizes if name.endswith(".safetensors"))
        names = present if index is None else shards_of(index.get("weight_map"))
        if index is None and present and self.every_loader and SINGLE not in present:
            self._error(INDEX, f"it is missing, and the weights are not in {SINGLE}", "Upload the index.")
        missing = [name for name in names if name not in sizes]
        if not self.complete and (missing or not names):
            self._unchecked("weights", "the files that the start fetches from the hub")
            return
        for name in missing:
            self._error(name, f"{INDEX} names it, and it is not there", "Upload all files of one version.")
        if not names:
            if any(name.endswith(WEIGHT_SUFFIXES) for name in sizes):
                self._unchecked("weights", "weights that are not safetensors")
            else:
                self._error("weights", "there are no files with weights", "Upload the *.safetensors files.")
            return
        if missing:
            return
        with ThreadPoolExecutor(1 if isinstance(self.files, LocalFiles) else THREADS) as pool:
            headers = dict(
                zip(names, pool.map(lambda name: header_of(self.files, name, sizes[name]), names), strict=True)
            )
        places: dict[str, str] = {}
        for file, header in headers.items():
            for tensor in header:
                if places.setdefault(tensor, file) != file:
                    self._error(file, f"its tensor {tensor[:100]} is in {places[tensor]} too", "Remove the stale file.")
                    return
            self.tensors |= header
        weight_map = _mapping(index)
        stale = next((tensor for tensor in weight_map if tensor not in places), None)
        if stale is not None:
            why = f"{INDEX} says that it has {stale[:100]}, and it has not"
            self._error(str(weight_map[stale])[:100], why, "Upload all files of one version.")
            return
        self._layout(headers, places)

    def _layout(self, headers: Mapping[str, Mapping[str, Tensor]], places: Mapping[str, str]) -> None:
        expected = expected_tensors(self.config)
        if expected is None:
            self._unchecked("weights", "the tensors' names and shapes, of this architecture")
            return
        fix = "Upload config.json and the weights of one version."
        wrong = [name for name, shape in expected.items() if name in places and self.tensors[name].shape != shape]
        missing = [name for name in expected if name not in places]
        extra = [name for name in places if name not in expected and not _skipped(name)]
        tied = HEAD in extra and HEAD not in expected
        extra = [name for name in extra if name != HEAD or not tied]
        for name in wrong[:1]:
            why = f"{name} has the shape {[*self.tensors[name].shape]}, and config.json means {[*expected[name]]}"
            self._error(places[name], f"{why}{_more(wrong)}", fix)
        for name in missing[:1]:
            self._error("weights", f"the tensor {name} is missing{_more(missing)}", fix)
        for name in extra[:1]:
            self._error(places[name], f"config.json means no tensor {name[:100]}{_more(extra)}", fix)
        if (
            tied
            and EMBEDDINGS in places
            and self._sample(headers, places, HEAD) != self._sample(headers, places, EMBEDDINGS)
        ):
            why = f"tie_word_embeddings is true, and {HEAD} is not a copy of {EMBEDDINGS}"
            self._error("config.json", why, "Set it to false, or remove the tensor.")

    def _sample(self, headers: Mapping[str, Mapping[str, Tensor]], places: Mapping[str, str], tensor: str) -> bytes:
        file = places[tensor]
        start = PREFIX + int.from_bytes(self.files.read_range(file, 0, PREFIX), "little") + headers[file][tensor].begin
        return self.files.read_range(file, start, min(SAMPLE, self.tensors[tensor].size))

    def _texts(self, template: str | None) -> None:
        """The tokenizer and the chat template."""
        documents = {name: read_json(self.files, name) for name in TOKENIZER_JSON}
        config = documents["tokenizer_config.json"] or {}
        content = self.files.read("tokenizer.json")
        text = None if content is None else content.decode(errors="surrogateescape")
        own = own_template(self.files, config) if template is None else template
        named = config.get("tokenizer_class") or self.config.get("tokenizer_class")
        llama = named is None and self.config.get("model_type") in LLAMA_TOKENIZERS
        result = tried(text, () if own is None else (own,), LLAMA_TOKENS if llama else ())
        name = "chat_template" if template is not None else FILE
        if result.get("died"):
            self._error("tokenizer.json", "reading it or the chat template takes too much time or memory", AGAIN)
        elif own is None and self.complete:
            why = "the model has no chat template, so that chats are rejected"
            self._add(Finding(NO_TEMPLATE, Severity.WARNING, name, why, "Set chat_template to serve chats."))
        elif own is not None and (not own.strip() or result["templates"][0]):
            self._error(name, f"the chat template is invalid: {result['templates'][0] or 'it is empty'}", "Correct it.")
        if content is None:
            if self.complete and not any(other in self.files.listing() for other in OTHER_TOKENIZERS):
                self._error("tokenizer.json", "the model has no tokenizer", "Upload the tokenizer's files.")
            return
        if "missing" in result:
            self._unchecked("tokenizer.json", "the tokenizer, because `tokenizers` is not installed")
        if "tokenizer" in result:
            self._error("tokenizer.json", f"it cannot be loaded: {result['tokenizer']}", AGAIN)
        elif "size" in result:
            self._vocabulary(result["size"], named, [token for token, place in result["ids"].items() if place is None])
        if self.transformers < 5:
            self._newer(config)

    def _vocabulary(self, size: int, named: Json, absent: list[str]) -> None:
        most = number(text_part(self.config), "vocab_size")
        if most and size > most + SPARE_TOKENS:
            why = f"it has {size} tokens, and the model {most}"
            self._error("tokenizer.json", why, "Upload the tokenizer of this model.")
        if named is None and absent:
            why = f"no tokenizer_class is named, so Llama's is taken, and tokenizer.json has no {absent[0]}"
            self._error("tokenizer_config.json", why, "Upload the original file, or name PreTrainedTokenizerFast.")

    def _newer(self, config: Mapping[str, Json]) -> None:
        """What transformers 5 writes and transformers 4 does not read."""
        name = "tokenizer_config.json"
        if config.get("tokenizer_class") == "TokenizersBackend":
            why = "tokenizer_class is TokenizersBackend, which transformers 4 does not have"
            self._error(name, why, "Set it to PreTrainedTokenizerFast.")
        if isinstance(config.get("extra_special_tokens"), list):
            why = "extra_special_tokens is a list, and transformers 4 reads an object"
            self._error(name, why, "Name it additional_special_tokens.")

    def _parser(self, parser: str | None) -> None:
        known = registered_names(self.vllm, "tool_parsers")
        if parser is not None and not known:
            self._unchecked("tool_call_parser", "the tool parser's name")
        elif parser is not None and parser not in known:
            why = f"'{parser[:60]}' is no tool parser of vLLM {self.vllm}"
            self._error("tool_call_parser", why, f"Give one of {', '.join(known)}.")

    def _error(self, name: str, why: str, fix: str) -> None:
        self._add(Finding(CODE, Severity.ERROR, name, why, fix))

    def _unchecked(self, name: str, what: str) -> None:
        self._add(not_checked(name, what))

    def _add(self, finding: Finding) -> None:
        self.found.append(finding)


def not_checked(setting: str, what: str) -> Finding:
    """A finding that says what could not be looked at."""
    return Finding(UNCHECKED, Severity.INFO, setting, f"not checked: {what}", "A start shows whether it works.")


def _mapping(index: Mapping[str, Json] | None) -> Mapping[str, Json]:
    found = (index or {}).get("weight_map")
    return found if isinstance(found, dict) else {}


def _skipped(name: str) -> bool:
    return any(part in name for part in SKIPPED) or (name.startswith("model.") and name.endswith(".bias"))


def _more(names: list[str]) -> str:
    return f" (and {len(names) - 1} more)" if len(names) > 1 else ""
