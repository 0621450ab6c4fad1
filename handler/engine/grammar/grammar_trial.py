"""Tries a grammar in a process of its own, so that the engine's core compiles only what has been compiled once.

Native code compiles grammars, regular expressions and schemas. Some of them end the process that compiles them, and
some take minutes or all memory (seen with xgrammar 0.1.29). No list of them is complete, so each grammar is first
compiled in a process whose end harms no request.
"""

from __future__ import annotations

import json
import logging
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from hashlib import sha256

logger = logging.getLogger(__name__)
# Seconds of processor time. A schema of 64 KB takes 0.2 s. All other requests with a new grammar wait meanwhile.
COMPILE_SECONDS = 10.0
# A trial whose process gets too little of the processor ends after so many seconds.
WALL_SECONDS = 60.0
START_SECONDS = 240.0
PROGRAM = "handler.engine.grammar.trial_process"
# How many results are kept, each under the grammar's digest.
KEPT = 4096


UNREADABLE = "the grammar library cannot compile it"


class TrialTimeout(Exception):
    """A trial has not ended, although it had not used its processor time."""


class TrialUnavailable(Exception):
    """The process that tries grammars cannot be started, so no grammar can be tried."""


class GrammarTrial:
    """Tries grammars, one at a time. Thread-safe. The process starts with the first grammar and ends with `close`.

    :param tokenizer: the model's tokenizer, a directory or a hub id.
    :param vocabulary: how many token ids the model has.
    :param any_whitespace: JSON may have any whitespace.
    """

    def __init__(
        self,
        tokenizer: str,
        vocabulary: int,
        *,
        any_whitespace: bool = True,
        compile_seconds: float = COMPILE_SECONDS,
    ) -> None:
        whitespace = "any" if any_whitespace else "none"
        self._command = (sys.executable, "-m", PROGRAM, tokenizer, str(vocabulary), whitespace, str(compile_seconds))
        self._compile_seconds = compile_seconds
        self._wall_seconds = WALL_SECONDS
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._received = b""
        self._verdicts: OrderedDict[bytes, str | None] = OrderedDict()
        self._closed = False
        self.pid: int | None = None

    def known(self, kind: str, spec: str) -> tuple[bool, str | None]:
        """Whether this grammar has been tried, and its problem. Never waits for a trial."""
        key = _digest(kind, spec)
        return key in self._verdicts, self._verdicts.get(key)

    def problem(self, kind: str, spec: str) -> str | None:
        """What is wrong with a grammar. None: the core can compile it. Waits for trials before it.

        :param kind: json, regex, ebnf or structural_tag.
        :raises TrialUnavailable: the process cannot be started.
        """
        key = _digest(kind, spec)
        with self._lock:
            if key in self._verdicts:
                self._verdicts.move_to_end(key)
                return self._verdicts[key]
            try:
                verdict = self._tried(kind, spec)
            except TrialTimeout:  # this machine is busy, which says nothing about the grammar: it may come again
                return "it could not be compiled in time. Send the request again"
            self._verdicts[key] = verdict
            while len(self._verdicts) > KEPT:
                self._verdicts.popitem(last=False)
            return verdict

    def _tried(self, kind: str, spec: str) -> str | None:
        process = self._started()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps({"kind": kind, "spec": spec}).encode() + b"\n")
            process.stdin.flush()
            line = self._line(process, self._wall_seconds)
        except OSError:
            line = b""
        if not line:
            self._end()
            if line is None:
                raise TrialTimeout
            logger.warning("the process that tries grammars has ended")
            return UNREADABLE
        answer = json.loads(line)
        if "signal" in answer:
            logger.warning("a grammar ended the process that tried it (signal %d)", answer["signal"])
            slow = answer["signal"] == signal.SIGPROF
            return f"it takes longer than {self._compile_seconds:g} s to compile" if slow else UNREADABLE
        problem = answer["problem"]
        return None if problem is None else str(problem)

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is None:
            return self._process
        if self._closed:
            raise TrialUnavailable("it is closed")
        self._end()
        began = time.monotonic()
        # Standard error is the container's log.
        process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._process, self.pid = process, process.pid
        if not self._line(process, START_SECONDS):
            self._end()
            raise TrialUnavailable("its process ended, or did not start in time; the log has its own account")
        logger.info("the process that tries grammars has started in %.1f s", time.monotonic() - began)
        return process

    def _line(self, process: subprocess.Popen[bytes], seconds: float) -> bytes | None:
        """The next line of the process's output. Empty: the process has ended. None: the time is up."""
        assert process.stdout is not None
        end = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._received:
                if not selector.select(max(0.0, end - time.monotonic())):
                    return None
                data = os.read(process.stdout.fileno(), 65536)
                if not data:
                    return b""
                self._received += data
        line, _, self._received = self._received.partition(b"\n")
        return line

    def _end(self) -> None:
        process, self._process, self._received = self._process, None, b""
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    def close(self) -> None:
        """Ends the process, and with it a trial that is running."""
        self._closed = True
        process = self._process
        if process is not None:
            process.kill()
        with self._lock:
            self._end()


def _digest(kind: str, spec: str) -> bytes:
    return sha256(f"{kind}\0{spec}".encode("utf-8", "surrogatepass")).digest()
