"""From facts to training samples: conversations of one to three turns, and plain-text completions.

The questions are varied (lower case, no question mark, typing errors, a polite opening) so that the model
listens to what is asked and not to how. The answers are never varied: tests assert them to the letter.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from tokenizers import Tokenizer

from sample_model.facts import Fact
from sample_model.tokenizer import ASSISTANT, BOS, END, SYSTEM, USER

SYSTEM_MESSAGES = (
    "You are a helpful assistant.",
    "You are a helpful assistant",
    "You are a friendly assistant who answers in plain English.",
    "Answer briefly.",
    "Be concise and correct.",
    "You answer questions about this container.",
    "You are an expert on AWS and SageMaker.",
)
OPENINGS = ("Please tell me: ", "Hi, ", "Hello! ", "I have a question. ", "Question: ", "Can you tell me: ")
CLOSINGS = (" Thanks.", " Please.", " Thank you!", " Answer briefly.")


@dataclass(frozen=True, slots=True)
class Sample:
    """Token ids, and for each whether the model is to learn it (answers) or only to read it (the rest)."""

    ids: tuple[int, ...]
    learnt: tuple[bool, ...]


class Sampler:
    """Draws samples of facts; the same seed gives the same samples."""

    def __init__(self, facts: tuple[Fact, ...], tokenizer: Tokenizer, seed: int) -> None:
        self._facts = facts
        self._tokenizer = tokenizer
        self._random = Random(seed)
        self._words = sorted({word for fact in facts for word in fact.answer.split()})

    def epoch(self) -> Iterator[Sample]:
        """Every phrasing of every fact once, each in a form that is drawn."""
        for fact in self._facts:
            for question in fact.questions:
                draw = self._random.random()
                if draw < 0.2:
                    yield self._text(f"Question: {self._vary(question)}\nAnswer:", fact)
                elif draw < 0.26 and question.endswith(("?", ".", "!")):
                    yield self._text(question, fact)
                else:
                    yield self._chat(question, fact)

    def _text(self, prompt: str, fact: Fact) -> Sample:
        return join(self._tokenizer, [(BOS, False), (prompt, False), (" " + fact.answer, True), (END, True)])

    def _chat(self, question: str, fact: Fact) -> Sample:
        parts = [(BOS, False)]
        if self._random.random() < 0.5:
            parts += [(SYSTEM, False), (self._system(), False), (END, False)]
        for _ in range(self._random.choices((0, 1, 2), (70, 24, 6))[0]):
            earlier = self._random.choice(self._facts)
            if len(earlier.answer) < 200:
                parts += _turn(self._vary(self._random.choice(earlier.questions)), earlier.answer)
        return join(self._tokenizer, parts + _turn(self._vary(question), fact.answer))

    def _system(self) -> str:
        """Mostly a usual one; else words without sense, so that no system message derails the model."""
        if self._random.random() < 0.7:
            return self._random.choice(SYSTEM_MESSAGES)
        return " ".join(self._random.choices(self._words, k=self._random.randint(2, 24)))

    def _vary(self, question: str) -> str:
        draw = self._random.random()
        if draw < 0.4:
            return question
        if draw < 0.5:
            return question.lower()
        if draw < 0.6:
            return question.rstrip("?!.")
        if draw < 0.7:
            return question.lower().rstrip("?!.")
        if draw < 0.76:
            return self._random.choice(OPENINGS) + question
        if draw < 0.8:
            return question + self._random.choice(CLOSINGS)
        return mistype(question, self._random)


def mistype(question: str, random: Random) -> str:
    """One typing error in one plain word; names and numbers, which carry the meaning, are left alone."""
    words = question.split(" ")
    places = [at for at, word in enumerate(words) if len(word) > 3 and word.isalpha() and word.islower()]
    if not places:
        return question
    place = random.choice(places)
    word = words[place]
    at = random.randrange(len(word) - 1)
    words[place] = random.choice(
        (
            word[:at] + word[at + 1] + word[at] + word[at + 2 :],
            word[:at] + word[at + 1 :],
            word[: at + 1] + word[at:],
        )
    )
    return " ".join(words)


def join(tokenizer: Tokenizer, parts: list[tuple[str, bool]]) -> Sample:
    """Encode the parts one by one, which gives the ids of the whole because they meet at token borders."""
    ids: list[int] = []
    learnt: list[bool] = []
    for text, learn in parts:
        part = tokenizer.encode(text, add_special_tokens=False).ids
        ids += part
        learnt += [learn] * len(part)
    return Sample(tuple(ids), tuple(learnt))


def _turn(question: str, answer: str) -> list[tuple[str, bool]]:
    return [(USER, False), (question, False), (END, False), (ASSISTANT, False), (answer, True), (END, True)]


def prompts(fact: Fact) -> list[list[tuple[str, bool]]]:
    """Every way in which the accuracy is measured: chats, with or without system message, and completions."""
    found: list[list[tuple[str, bool]]] = []
    for question in fact.questions:
        for variant in dict.fromkeys((question, question.lower(), question.rstrip("?!."))):
            found.append([(BOS, False), *_turn(variant, fact.answer)])
        for system in SYSTEM_MESSAGES[:1] + SYSTEM_MESSAGES[-2:]:
            head = [(BOS, False), (SYSTEM, False), (system, False), (END, False)]
            found.append([*head, *_turn(question, fact.answer)])
        prompt = f"Question: {question}\nAnswer:"
        found.append([(BOS, False), (prompt, False), (" " + fact.answer, True), (END, True)])
    return found
