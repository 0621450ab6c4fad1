"""Writes the table of what NxD Inference, NxD and the plugin raise because of a configuration, beside our rule for it.

    python -m tests.nxdi_sources.error_table neuronx-distributed-inference neuronx-distributed vllm-neuron

The arguments are checkouts (docs/on-neuron.md). Their code is read, not run. The table has places and names, and no
code: `docs/nxdi-raises.md`. A row keeps its rule if a new release has the same place, whatever its line, and a row that
is new has the rule "none". So the difference of the table is what a new release changes.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from handler.neuron.neuron_config.keys import CHUNKED_PREFILL_KEYS, KEYS, PLUGIN, SAMPLING_KEYS

TABLE: Final = Path(__file__).parents[2] / "docs" / "nxdi-raises.md"
NONE: Final = "none"
COLUMNS: Final = ("file", "line", "where", "raises", "because of", "our rule")
# What a configuration holds besides NeuronConfig's keys: objects inside of it, LoRA's file, the engine's arguments.
OTHER_NAMES: Final = (
    "direct_cast k_quant_method v_quant_method quant_dtype block_sharding_strategy act_fn modules_to_capture "
    "max_intermediate_tensors ref_dir neuron_dir tf_map is_chunked_prefill is_medusa lora_ckpt_json lora_ckpt_paths "
    "lora_ckpt_paths_cpu max_cpu_loras max_loras max_prompt_length max_model_len max_num_seqs block_size "
    "num_gpu_blocks_override enable_prefix_caching enable_chunked_prefill speculative_config override_neuron_config "
    "kv_cache_update_with_kernel attention_chunk_size sliding_window num_key_value_heads num_kv_heads architectures "
    "dynamic_multi_lora adapter_id"
)
# Local variables there that hold a value of the configuration.
LOCAL_NAMES: Final = (
    "dp_heads_per_rank dtype_str dtype_string tp_group_size incompatible_features ActivationQuantizationType"
)
# Folders of each checkout that a start runs through. Scripts, tests and models that the plugin does not load are not.
FOLDERS: Final = (
    "src/neuronx_distributed_inference/models",
    "src/neuronx_distributed_inference/modules",
    "src/neuronx_distributed/quantization",
    "src/neuronx_distributed/modules/moe",
    "vllm_neuron",
)
SKIPPED: Final = frozenset({"experimental", "deepseek", "diffusers", "whisper", "t5", "clip"})


@dataclass(frozen=True, slots=True)
class Raise:
    """A statement that raises because of a configuration.

    :param where: the classes and functions around it.
    :param error: `assert`, or the name of the exception.
    :param names: the names of the configuration that its conditions read.
    """

    file: str
    line: int
    where: str
    error: str
    names: tuple[str, ...]

    @property
    def place(self) -> tuple[str, ...]:
        """What a later release may be expected to keep."""
        return self.file, self.where, self.error, ", ".join(self.names)


class _Finder(ast.NodeVisitor):
    def __init__(self, file: str, known: frozenset[str]) -> None:
        self.file, self.known = file, known
        self.around: list[str] = []
        self.conditions: list[ast.expr] = []
        self.found: list[Raise] = []

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._enter(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._enter(node)

    def _enter(self, node: ast.ClassDef | ast.FunctionDef) -> None:
        outer, self.conditions = self.conditions, []
        self.around.append(node.name)
        self.generic_visit(node)
        self.around.pop()
        self.conditions = outer

    def visit_If(self, node: ast.If) -> None:
        self.conditions.append(node.test)
        self.generic_visit(node)
        self.conditions.pop()

    def visit_Assert(self, node: ast.Assert) -> None:
        self._add(node.lineno, "assert", [*self.conditions, node.test])

    def visit_Raise(self, node: ast.Raise) -> None:
        error = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        self._add(node.lineno, error.id if isinstance(error, ast.Name) else "raise", self.conditions)

    def _add(self, line: int, error: str, conditions: Iterable[ast.expr]) -> None:
        read = {name for condition in conditions for node in ast.walk(condition) for name in _names(node)}
        names = tuple(sorted(read & self.known))
        if names:
            self.found.append(Raise(self.file, line, ".".join(self.around), error, names))


def _names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Attribute):
        yield node.attr
    elif isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value


def find_raises(checkouts: Iterable[Path]) -> list[Raise]:
    """Every raise and assert whose conditions read a name of the configuration, in the order of files and lines.

    :raises FileNotFoundError: a checkout has none of the folders.
    """
    keys = {*KEYS, *PLUGIN, *SAMPLING_KEYS, *CHUNKED_PREFILL_KEYS}
    known = frozenset(keys | set(OTHER_NAMES.split()) | set(LOCAL_NAMES.split()))
    found: list[Raise] = []
    for checkout in checkouts:
        files = [file for folder in FOLDERS for file in sorted((checkout / folder).rglob("*.py"))]
        if not files:
            raise FileNotFoundError(f"{checkout} has none of {', '.join(FOLDERS)}")
        for file in files:
            if not SKIPPED & set(file.parts):
                finder = _Finder(str(file.relative_to(checkout)).removeprefix("src/"), known)
                finder.visit(ast.parse(file.read_text(encoding="utf-8")))
                found += finder.found
    return found


def read_rules(text: str) -> dict[tuple[str, ...], list[str]]:
    """The rules of a table by the place of their rows, in order: the same place may be there more than once."""
    rules: dict[tuple[str, ...], list[str]] = {}
    for cells in rows(text):
        rules.setdefault((cells[0], *cells[2:5]), []).append(cells[5])
    return rules


def rows(text: str) -> Iterator[list[str]]:
    """The cells of each row, without the head."""
    for line in text.splitlines():
        if re.match(r"\| [\w/]+\.py \|", line):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def table(found: Iterable[Raise], rules: Mapping[tuple[str, ...], list[str]]) -> str:
    """The table, with the rules of an earlier one."""
    left = {place: list(named) for place, named in rules.items()}
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{' --- |' * len(COLUMNS)}"]
    for one in found:
        named = left.get(one.place)
        cells = (one.file, str(one.line), one.where, one.error, ", ".join(one.names), named.pop(0) if named else NONE)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main(checkouts: list[str]) -> None:
    """Replaces the table in the page, and keeps the text above it."""
    page = TABLE.read_text(encoding="utf-8")
    head, _, _ = page.partition(f"| {COLUMNS[0]} |")
    found = find_raises(Path(one) for one in checkouts)
    TABLE.write_text(head + table(found, read_rules(page)), encoding="utf-8")
    print(f"{len(found)} rows in {TABLE}")


if __name__ == "__main__":
    main(sys.argv[1:])
