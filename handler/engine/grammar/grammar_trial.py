"""Tries a grammar in a process of its own, so that the engine's core compiles only what has been compiled once.

Native code compiles grammars, regular expressions and schemas. Some of them end the process that compiles them, and
some take minutes or all memory (seen with xgrammar 0.1.29). No list of them is complete, so each grammar is first
compiled in a process whose end harms no request.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections import OrderedDict
from hashlib import sha256
from typing import Final

from handler.engine.grammar.trial_lane import (
    TakesLonger,
    TrialLane,
    TrialProcess,
    TrialResult,
    TrialUnavailable,
)

logger = logging.getLogger(__name__)
# Seconds of processor time. A schema of 64 KB takes 0.2 s. What takes longer than the first waits for the others that
# do, and lets the rest pass.
QUICK_SECONDS: Final = 0.5
COMPILE_SECONDS: Final = 10.0
PROGRAM: Final = "handler.engine.grammar.trial_process"
# How many results are kept, each under the grammar's digest.
KEPT: Final = 4096
UNTRIED: Final = TrialResult(None)


class GrammarTrial:
    """Tries grammars. Thread-safe. The process starts with the first grammar and ends with `close`.

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
        self.process = TrialProcess((sys.executable, "-m", PROGRAM, tokenizer, str(vocabulary), whitespace))
        self.quick = TrialLane(self.process, QUICK_SECONDS)
        self.slow = TrialLane(self.process, compile_seconds)
        self._lock = threading.Lock()
        self._results: OrderedDict[bytes, TrialResult] = OrderedDict()

    def known(self, kind: str, spec: str) -> TrialResult | None:
        """The result of a grammar that has been tried or let through. Never waits for a trial."""
        return self._results.get(_digest(kind, spec))

    def is_untried(self, kind: str, spec: str) -> bool:
        """Whether this grammar was let through, because the process could not be started when it came."""
        return self.known(kind, spec) == UNTRIED

    def quick_problem(self, kind: str, spec: str) -> str | None:
        """What is wrong with a grammar that takes up to `QUICK_SECONDS`. None: the core can compile it, or is to try.

        Waits for trials before it. A grammar that comes while the process cannot be started is let through, and stays
        so: no request is stopped half-way by a process that has started since.

        :param kind: json, regex, ebnf or structural_tag.
        :raises TakesLonger: `slow_problem` tells.
        """
        return self._problem(self.quick, kind, spec)

    def slow_problem(self, kind: str, spec: str) -> str | None:
        """As `quick_problem`, for a grammar that takes longer. Waits for others that do."""
        try:
            return self._problem(self.slow, kind, spec)
        except TakesLonger:
            logger.warning("a grammar takes longer than %g s to compile", self.slow.seconds)
            return self._kept(
                _digest(kind, spec), TrialResult(f"it takes longer than {self.slow.seconds:g} s to compile")
            )

    def _problem(self, lane: TrialLane, kind: str, spec: str) -> str | None:
        known, key = self.known(kind, spec), _digest(kind, spec)
        if known is not None:
            return known.problem
        try:
            return self._kept(key, lane.result(kind, spec))
        except TrialUnavailable:
            return self._kept(key, UNTRIED)

    def _kept(self, key: bytes, result: TrialResult) -> str | None:
        with self._lock:
            self._results[key] = result
            while len(self._results) > KEPT:
                self._results.popitem(last=False)
        return result.problem

    def close(self) -> None:
        """Ends the process, and with it the trials that are running."""
        self.process.close()


def _digest(kind: str, spec: str) -> bytes:
    return sha256(f"{kind}\0{spec}".encode("utf-8", "surrogatepass")).digest()
