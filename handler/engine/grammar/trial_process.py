"""The process in which each grammar is compiled first. It may crash, be killed, or run out of memory.

`python -m handler.engine.grammar.trial_process TOKENIZER VOCABULARY WHITESPACE SECONDS` reads one JSON object a line
from standard input, `{"kind": ..., "spec": ...}`, and answers each with exactly one, `{"problem": ...}`. A child does
the work. When a grammar has ended the child, the answer is `{"signal": number}`. The next child is a fork away: the
imports and the vocabulary, which take seconds, are there already.

It does what vLLM's core does with a grammar, with the same library and vocabulary, and computes the first token's mask
(vllm/v1/structured_output/backend_xgrammar.py, XgrammarBackend.compile_grammar, 0.16.0).
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import resource
import signal
import sys
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

# Bytes that a grammar may take beyond what the imports and the vocabulary have taken.
MEMORY = 1 << 30
# Bytes of the stack. The core compiles in threads, whose stacks have 8 MB, or 2 MB where the limit is `unlimited`
# (pthread_create(3)). A grammar that needs a part of that here cannot end the core by its depth.
STACK = 1 << 20
LONGEST = 300
# The engine and the requests of others come first.
NICE = 5
PR_SET_PDEATHSIG = 1  # linux/prctl.h
# What the library writes before its message: the time and its own source file.
SOURCE = re.compile(r"^\[\d\d:\d\d:\d\d\] \S+:\d+: ")
# Takes the kind and the text of a grammar, and returns its problem.
Trial = Callable[[str, str], str | None]


def main() -> None:
    tokenizer, vocabulary, whitespace, seconds = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "any", float(sys.argv[4])
    os.nice(NICE)
    answers = sys.stdout
    sys.stdout = sys.stderr  # a library's output must not be read as an answer
    tried = compiler_for(tokenizer, vocabulary, whitespace)
    tried("json", '{"type": "object"}')  # makes what is made lazily, before the memory is measured
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    print(json.dumps({"ready": True}), file=answers, flush=True)
    trials = ChildTrials(tried, seconds)
    for line in sys.stdin:
        print(json.dumps(trials.answer(json.loads(line))), file=answers, flush=True)


class ChildTrials:
    """Has a child try grammars, and makes another child when it has ended.

    :param seconds: of processor time that a grammar may take.
    """

    def __init__(self, tried: Trial, seconds: float) -> None:
        self._tried = tried
        self._seconds = seconds
        self._start()

    def _start(self) -> None:
        context = get_context("fork")
        self._pipe, theirs = context.Pipe()
        self._child = context.Process(target=_try_each, args=(self._tried, self._seconds, theirs, os.getpid()))
        self._child.start()
        theirs.close()
        self._used = False

    def answer(self, request: dict[str, str]) -> dict[str, str | int | None]:
        """Tries a grammar. If a child ends that has tried others before, another tries the grammar again."""
        while True:
            used, self._used = self._used, True
            try:
                self._pipe.send(request)
                return {"problem": self._pipe.recv()}
            except (EOFError, OSError):
                self._child.join()
                status = self._child.exitcode or 0
                self._pipe.close()
                self._start()
            if not used or status == -signal.SIGPROF:
                return {"signal": -status}


def _try_each(tried: Trial, seconds: float, pipe: Connection, parent: int) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    resource.setrlimit(resource.RLIMIT_STACK, (STACK, STACK))
    while True:
        request = pipe.recv()
        signal.setitimer(signal.ITIMER_PROF, seconds)  # of processor time. The signal ends the process
        problem = tried(request["kind"], request["spec"])
        signal.setitimer(signal.ITIMER_PROF, 0)
        pipe.send(problem)


def compiler_for(tokenizer: str, vocabulary: int, whitespace: bool) -> Trial:
    """Compiles grammars for a tokenizer.

    :param vocabulary: how many token ids the model has.
    :param whitespace: JSON may have any whitespace.
    """
    import xgrammar
    from transformers import AutoTokenizer

    info = xgrammar.TokenizerInfo.from_huggingface(AutoTokenizer.from_pretrained(tokenizer), vocab_size=vocabulary)
    compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
    mask = xgrammar.allocate_token_bitmask(1, vocabulary)

    def compiled(kind: str, spec: str) -> xgrammar.CompiledGrammar:
        if kind == "json":
            return compiler.compile_json_schema(spec, any_whitespace=whitespace)
        if kind == "regex":
            return compiler.compile_regex(spec)
        if kind == "ebnf":
            return compiler.compile_grammar(spec)
        tag = json.loads(spec)
        if "structures" not in tag:
            return compiler.compile_structural_tag(spec)
        items = [
            xgrammar.StructuralTagItem(begin=item["begin"], schema=json.dumps(item["schema"]), end=item["end"])
            for item in tag["structures"]
        ]
        return compiler.compile_structural_tag(items, tag["triggers"])

    def tried(kind: str, spec: str) -> str | None:
        try:
            xgrammar.GrammarMatcher(compiled(kind, spec)).fill_next_token_bitmask(mask)
        except Exception as error:
            return described(error)
        return None

    return tried


def described(error: Exception) -> str:
    """The first line of a library's message, without what concerns only its developers."""
    if isinstance(error, KeyError):
        return f"it has no {error}"[:LONGEST]
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return SOURCE.sub("", lines[0])[:LONGEST]


if __name__ == "__main__":
    main()
