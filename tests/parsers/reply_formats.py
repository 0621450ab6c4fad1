"""How each family of models writes its tool calls and its reasoning, as far as a stand-in has to say it.

The formats are those that the parsers of vLLM 0.16.0 name (vllm/tool_parsers, vllm/reasoning), and the model cards.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a tool."""

    name: str
    arguments: Arguments


@dataclass(frozen=True, slots=True)
class ToolFormat:
    """A way to write tool calls.

    :param write: from the calls to their text.
    :param tokens: what the family's tokenizer has as tokens of their own. A `!` marks those that it calls special.
    :param content: whether text may stand before the calls.
    :param parallel: whether there may be several calls.
    """

    write: Callable[[Sequence[Call]], str]
    tokens: tuple[str, ...] = ()
    content: bool = True
    parallel: bool = True


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _objects(calls: Sequence[Call], key: str = "arguments") -> list[str]:
    return [_json({"name": call.name, key: call.arguments}) for call in calls]


def _raw(value: object) -> str:
    """A value between XML tags: text as it is, everything else as JSON."""
    return value if isinstance(value, str) else _json(value)


def _each(before: str, after: str, between: str = "\n") -> Callable[[Sequence[Call]], str]:
    return lambda calls: between.join(f"{before}{one}{after}" for one in _objects(calls))


def _array(before: str, after: str = "", key: str = "arguments") -> Callable[[Sequence[Call]], str]:
    return lambda calls: f"{before}[{', '.join(_objects(calls, key))}]{after}"


def _python(before: str = "[", after: str = "]", between: str = ", ") -> Callable[[Sequence[Call]], str]:
    def write(calls: Sequence[Call]) -> str:
        texts = [f"{call.name}({', '.join(f'{k}={v!r}' for k, v in call.arguments.items())})" for call in calls]
        return f"{before}{between.join(texts)}{after}"

    return write


def _deepseek_v3(calls: Sequence[Call]) -> str:
    texts = [
        f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{call.name}\n```json\n{_json(call.arguments)}\n```<｜tool▁call▁end｜>"
        for call in calls
    ]
    return "<｜tool▁calls▁begin｜>" + "\n".join(texts) + "<｜tool▁calls▁end｜>"


def _deepseek_v31(calls: Sequence[Call]) -> str:
    texts = [
        f"<｜tool▁call▁begin｜>{call.name}<｜tool▁sep｜>{_json(call.arguments)}<｜tool▁call▁end｜>" for call in calls
    ]
    return "<｜tool▁calls▁begin｜>" + "".join(texts) + "<｜tool▁calls▁end｜>"


def _invokes(call_mark: str, value_mark: str, *, typed: bool = False) -> Callable[[Sequence[Call]], str]:
    """XML with `invoke` and `parameter`."""

    def value(name: str, given: object) -> str:
        kind = f' string="{"true" if isinstance(given, str) else "false"}"' if typed else ""
        return f'<{value_mark} name="{name}"{kind}>{_raw(given)}</{value_mark}>\n'

    def write(calls: Sequence[Call]) -> str:
        texts = []
        for call in calls:
            values = "".join(value(*one) for one in call.arguments.items())
            texts.append(f'<{call_mark} name="{call.name}">\n{values}</{call_mark}>\n')
        return "".join(texts)

    return write


def _deepseek_v32(calls: Sequence[Call]) -> str:
    written = _invokes("｜DSML｜invoke", "｜DSML｜parameter", typed=True)(calls)
    return f"<｜DSML｜function_calls>\n{written}</｜DSML｜function_calls>"


def _minimax_m2(calls: Sequence[Call]) -> str:
    return f"<minimax:tool_call>\n{_invokes('invoke', 'parameter')(calls)}</minimax:tool_call>"


def _step3(calls: Sequence[Call]) -> str:
    texts = []
    for call in calls:
        values = "".join(
            f'<steptml:parameter name="{name}">{_raw(value)}</steptml:parameter>'
            for name, value in call.arguments.items()
        )
        invoke = f'<steptml:invoke name="{call.name}">{values}</steptml:invoke>'
        texts.append(f"<｜tool_call_begin｜>function<｜tool_sep｜>{invoke}<｜tool_call_end｜>")
    return "<｜tool_calls_begin｜>\n" + "\n".join(texts) + "\n<｜tool_calls_end｜>"


def _functions(before: str, after: str) -> Callable[[Sequence[Call]], str]:
    """Qwen3-Coder's XML: `function=NAME` and `parameter=NAME`."""

    def write(calls: Sequence[Call]) -> str:
        texts = []
        for call in calls:
            values = "".join(
                f"<parameter={name}>\n{_raw(value)}\n</parameter>\n" for name, value in call.arguments.items()
            )
            texts.append(f"{before}\n<function={call.name}>\n{values}</function>\n{after}")
        return "\n".join(texts)

    return write


def _glm(newlines: bool) -> Callable[[Sequence[Call]], str]:
    end = "\n" if newlines else ""

    def write(calls: Sequence[Call]) -> str:
        texts = []
        for call in calls:
            values = "".join(
                f"<arg_key>{name}</arg_key>{end}<arg_value>{_raw(value)}</arg_value>{end}"
                for name, value in call.arguments.items()
            )
            texts.append(f"<tool_call>{call.name}{end}{values}</tool_call>")
        return "\n".join(texts)

    return write


def _function_gemma(calls: Sequence[Call]) -> str:
    texts = []
    for call in calls:
        values = ",".join(f"{name}:<escape>{_raw(value)}<escape>" for name, value in call.arguments.items())
        texts.append(f"<start_function_call>call:{call.name}{{{values}}}<end_function_call>")
    return "".join(texts)


def _kimi(calls: Sequence[Call]) -> str:
    texts = [
        f"<|tool_call_begin|>functions.{call.name}:{place}<|tool_call_argument_begin|>{_json(call.arguments)}"
        "<|tool_call_end|>"
        for place, call in enumerate(calls)
    ]
    return "<|tool_calls_section_begin|>" + "".join(texts) + "<|tool_calls_section_end|>"


def _gigachat(calls: Sequence[Call]) -> str:
    return "".join(f"function call{_objects([call])[0]}" for call in calls)


def _minimax(calls: Sequence[Call]) -> str:
    return "<tool_calls>\n" + "\n".join(_objects(calls)) + "\n</tool_calls>"


def _internlm(calls: Sequence[Call]) -> str:
    return f"<|action_start|><|plugin|>\n{_objects(calls, 'parameters')[0]}<|action_end|>"


DEEPSEEK: Final = (
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁sep｜>",
)
TOOL_CALL: Final = ("<tool_call>", "</tool_call>")
KIMI: Final = (
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
)

TOOL_FORMATS: Final[Mapping[str, ToolFormat]] = {
    "deepseek_v3": ToolFormat(_deepseek_v3, DEEPSEEK),
    "deepseek_v31": ToolFormat(_deepseek_v31, DEEPSEEK),
    "deepseek_v32": ToolFormat(_deepseek_v32, ("｜DSML｜",)),
    "ernie45": ToolFormat(_each("<tool_call>\n", "\n</tool_call>\n"), TOOL_CALL),
    "functiongemma": ToolFormat(_function_gemma, ("<start_function_call>", "<end_function_call>", "<escape>")),
    "gigachat3": ToolFormat(_gigachat, parallel=False),
    "glm45": ToolFormat(_glm(True), (*TOOL_CALL, "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")),
    "glm47": ToolFormat(_glm(False), (*TOOL_CALL, "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")),
    "granite": ToolFormat(_array("<|tool_call|>"), ("<|tool_call|>",), content=False),
    "granite-20b-fc": ToolFormat(_each("<function_call> ", "", " "), content=False),
    "hermes": ToolFormat(_each("<tool_call>\n", "\n</tool_call>"), TOOL_CALL),
    "hunyuan_a13b": ToolFormat(_array("<tool_calls>", "</tool_calls>"), content=False),
    "internlm": ToolFormat(_internlm, ("!<|action_start|>", "!<|action_end|>", "!<|plugin|>"), parallel=False),
    "jamba": ToolFormat(_array("<tool_calls>", "</tool_calls>"), ("!<tool_calls>", "!</tool_calls>")),
    "kimi_k2": ToolFormat(_kimi, KIMI),
    "llama3_json": ToolFormat(lambda calls: "; ".join(_objects(calls, "parameters")), content=False),
    "llama4_json": ToolFormat(lambda calls: "; ".join(_objects(calls, "parameters")), content=False),
    "llama4_pythonic": ToolFormat(_python(), content=False),
    "longcat": ToolFormat(
        _each("<longcat_tool_call>\n", "\n</longcat_tool_call>"), ("<longcat_tool_call>", "</longcat_tool_call>")
    ),
    "minimax": ToolFormat(_minimax, ("<tool_calls>", "</tool_calls>")),
    "minimax_m2": ToolFormat(_minimax_m2, ("<minimax:tool_call>", "</minimax:tool_call>")),
    "mistral": ToolFormat(_array("[TOOL_CALLS]"), ("!<s>", "!</s>", "![TOOL_CALLS]"), content=False),
    "olmo3": ToolFormat(_python("<function_calls>\n", "\n</function_calls>", "\n"), content=False),
    "phi4_mini_json": ToolFormat(_array("functools"), content=False),
    "pythonic": ToolFormat(_python(), content=False),
    "qwen3_coder": ToolFormat(_functions("<tool_call>", "</tool_call>"), TOOL_CALL),
    "qwen3_xml": ToolFormat(_functions("<tool_call>", "</tool_call>"), TOOL_CALL),
    "seed_oss": ToolFormat(
        _functions("<seed:tool_call>", "</seed:tool_call>"),
        ("<seed:tool_call>", "</seed:tool_call>", "<seed:think>", "</seed:think>"),
    ),
    "step3": ToolFormat(
        _step3, ("<｜tool_calls_begin｜>", "<｜tool_calls_end｜>", "<｜tool_call_begin｜>", "<｜tool_call_end｜>")
    ),
    "step3p5": ToolFormat(_functions("<tool_call>", "</tool_call>"), TOOL_CALL),
    "xlam": ToolFormat(_array(""), content=False),
}


@dataclass(frozen=True, slots=True)
class ReasoningFormat:
    """A way to write reasoning.

    :param before, after: the marks around the reasoning. `before` is empty where the prompt has it.
    :param end: what follows the content.
    :param template: arguments of the chat template that the parser reads.
    """

    before: str
    after: str
    tokens: tuple[str, ...] = ()
    end: str = ""
    template: Mapping[str, bool] | None = None

    def write(self, reasoning: str, content: str) -> str:
        return f"{self.before}{reasoning}{self.after}{content}{self.end}"


THINK: Final = ("<think>", "</think>")
REASONING_FORMATS: Final[Mapping[str, ReasoningFormat]] = {
    "deepseek_r1": ReasoningFormat("", "</think>", THINK),
    "deepseek_v3": ReasoningFormat("", "</think>", THINK, template={"thinking": True}),
    "ernie45": ReasoningFormat("", "</think>", (*THINK, "<response>", "</response>", "<0x0A>")),
    "glm45": ReasoningFormat("<think>", "</think>", THINK),
    "granite": ReasoningFormat("Here is my thought process:", "Here is my response:"),
    "holo2": ReasoningFormat("", "</think>", THINK),
    "hunyuan_a13b": ReasoningFormat("<think>\n", "\n</think>\n<answer>\n", end="\n</answer>"),
    "kimi_k2": ReasoningFormat("<think>", "</think>", THINK),
    "minimax_m2": ReasoningFormat("", "</think>", THINK),
    "mistral": ReasoningFormat("[THINK]", "[/THINK]", ("![THINK]", "![/THINK]")),
    "olmo3": ReasoningFormat("<think>", "</think>"),
    "qwen3": ReasoningFormat("<think>", "</think>", THINK),
    "seed_oss": ReasoningFormat("<seed:think>", "</seed:think>", ("<seed:think>", "</seed:think>")),
    "step3": ReasoningFormat("", "</think>", THINK),
    "step3p5": ReasoningFormat("", "\n</think>\n", THINK),
}

# A tool parser and a reasoning parser that a family's model card names together.
FAMILIES: Final = (
    "hermes+qwen3",
    "qwen3_coder+qwen3",
    "deepseek_v3+deepseek_r1",
    "deepseek_v31+deepseek_v3",
    "deepseek_v32+deepseek_v3",
    "glm45+glm45",
    "glm47+glm45",
    "kimi_k2+kimi_k2",
    "minimax_m2+minimax_m2",
    "seed_oss+seed_oss",
    "step3+step3",
    "step3p5+step3p5",
    "ernie45+ernie45",
    "olmo3+olmo3",
)

TOKENS: Final[Mapping[str, tuple[str, ...]]] = {
    **{name: one.tokens for name, one in TOOL_FORMATS.items()},
    **{f"+{name}": one.tokens for name, one in REASONING_FORMATS.items()},
}
ALL: Final = ("", *TOOL_FORMATS, *(f"+{name}" for name in REASONING_FORMATS), *FAMILIES)
