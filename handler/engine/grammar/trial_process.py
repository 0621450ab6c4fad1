"""The process in which each grammar is compiled first. It may crash, be killed, or run out of memory.

`python -m handler.engine.grammar.trial_process TOKENIZER VOCABULARY WHITESPACE` gets on its standard input, a socket,
the seconds that a child may take for a grammar, and with them the child's end of a pipe. The child sends its pid. Then
it reads one JSON object after the other, `{"kind": ..., "spec": ...}`, and answers each, `{"problem": ..., "seconds":
...}`: what is wrong with the grammar, and the processor time that it took. When a
grammar has ended the child, the answer is this process's, `{"signal": number}`. The next child is a fork away: the
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
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
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
    tokenizer, vocabulary, whitespace = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "any"
    os.nice(NICE)
    control = socket.socket(fileno=0)
    tried = compiler_for(tokenizer, vocabulary, whitespace)
    tried("json", '{"type": "object"}')  # makes what is made lazily, before the memory is measured
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    control.sendall(b"ready")
    serve(control, tried)


def serve(control: socket.socket, tried: Trial) -> None:
    """Makes a child for each message, and says how it has ended. Returns when the other side has closed."""
    context = get_context("fork")
    children: dict[int, tuple[ForkProcess, Connection]] = {}
    while True:
        for ready in wait([control, *children]):
            if isinstance(ready, int):
                child, pipe = children.pop(ready)
                child.join()
                with suppress(OSError), pipe:  # nobody may wait for it any more
                    pipe.send_bytes(json.dumps({"signal": -(child.exitcode or 0)}).encode())
                continue
            seconds, files, _, _ = socket.recv_fds(control, 64, 1)
            if not seconds:
                return
            pipe = Connection(files[0])
            child = context.Process(target=try_each, args=(tried, float(seconds), pipe, os.getpid()), daemon=True)
            child.start()
            children[child.sentinel] = child, pipe


def try_each(tried: Trial, seconds: float, pipe: Connection, parent: int) -> None:
    """Tries grammars until the other side has closed. Runs in a child."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        return
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    resource.setrlimit(resource.RLIMIT_STACK, (STACK, STACK))
    pipe.send_bytes(str(os.getpid()).encode())
    with suppress(EOFError):
        while True:
            request = json.loads(pipe.recv_bytes())
            signal.setitimer(signal.ITIMER_PROF, seconds)  # of processor time. The signal ends the process
            began = time.process_time()
            problem = tried(request["kind"], request["spec"])
            signal.setitimer(signal.ITIMER_PROF, 0)
            pipe.send_bytes(json.dumps({"problem": problem, "seconds": time.process_time() - began}).encode())


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
        if kind == "lark":
            lark: xgrammar.CompiledGrammar = getattr(compiler, "compile_lark")(spec)  # noqa: B009  since 0.2
            return lark
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
