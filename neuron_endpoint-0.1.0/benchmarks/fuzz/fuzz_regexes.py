"""Regular expressions and EBNF grammars for the fuzz: most can be compiled, some are odd, some are hostile."""

from __future__ import annotations

import random

ATOMS = (
    "a", "b", "yes", "0", " ", ".", r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", r"\.", r"\\", r"\/", r"\n", r"\t",
    "[a-z]", "[^a-z]", "[0-9_]", r"[\d\s]", r"[\w-]", "[^\n]", "[]a]", "[a-]", r"[\]]", "[é-ü]", "😀", "你", r"\x41",
    r"\u0041", r"\u{1F600}", "-", "_", '"', "'", "/", ",", ":",
)  # fmt: skip
# What regular expressions have elsewhere, and xgrammar only in part.
ODD_ATOMS = (
    r"\b", r"\B", "^", "$", r"\A", r"\Z", r"\z", r"\p{L}", r"\P{Lu}", r"\pL", r"\1", r"\k<n>", "(?i)", "(?s:.)",
    "(?#c)", "[[:alpha:]]", "[a-z&&[^b]]", "[z-a]", "[]", "[^]", "[", "]", "(", ")", "{", "}", "{2}", "*", "+", "?",
    "|", "\\", r"\x", r"\u12", r"\c", r"\Q", r"\0", "\x01", "\u2028", r"\uD800", r"[\b]", r"(?<n>a)", "(?P<n>a)",
    "(?=a)", "(?!a)", "(?<=a)", "(?<!a)", "(?>a)", "(?:)", "()", "(|)", "(*VERB)",
)  # fmt: skip
QUANTIFIERS = ("*", "+", "?", "{2}", "{0,3}", "{1,}", "*?", "+?", "??", "{3,3}")
ODD_QUANTIFIERS = (
    "{0}",
    "{0,0}",
    "{,3}",
    "{3,1}",
    "{}",
    "{1000}",
    "{1,10000}",
    "{99999999999}",
    "++",
    "{1,2}{3,4}",
    "**",
)


def regex(rng: random.Random, depth: int = 3, odd: float = 0.02) -> str:
    """:param odd: how often a part is one that few libraries read."""
    parts = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        if depth and rng.random() < 0.3:
            options = "|".join(regex(rng, depth - 1, odd) for _ in range(rng.choice((1, 1, 2, 3))))
            part = f"{rng.choice(('(', '(', '(?:'))}{options})"
        else:
            part = rng.choice(ODD_ATOMS if rng.random() < odd else ATOMS)
        if rng.random() < 0.35:
            part += rng.choice(ODD_QUANTIFIERS if rng.random() < odd else QUANTIFIERS)
        parts.append(part)
    return "".join(parts)


def hostile_regex(rng: random.Random) -> str:
    """One that is small and takes long, or much, or ends a library."""
    atom, count = rng.choice(("a", ".", "[a-z]", "(a|b)", r"\w")), rng.choice((30, 100, 1000, 5000))
    nested = atom
    for _ in range(rng.randrange(1, 5)):
        nested = f"({nested}){{{rng.choice((0, 1))},{count}}}"
    return rng.choice(
        (
            lambda: nested,
            lambda: "(a+)+" * rng.randrange(1, 30) + "b",
            lambda: "(.*)*" * rng.randrange(1, 30),
            lambda: "(" * rng.choice((50, 500, 2000)) + "a" + ")" * rng.choice((50, 500, 2000)),
            lambda: f"(a|b|c|d){{{count}}}" * rng.choice((1, 5, 100)),
            lambda: "|".join("ab" * number for number in range(1, 60)),
            lambda: "".join(f"(a|{letter}?)*" for letter in "bcdefghij"),
            lambda: rng.choice(ODD_ATOMS) * rng.choice((1, 2, 500)),
            lambda: "[" + "".join(chr(rng.randrange(33, 0x2FFFF)) for _ in range(200)).replace("\ud800", "") + "]*",
            lambda: f"(?=.*{atom})" * rng.randrange(1, 40),
            lambda: damaged(rng, regex(rng)),
            lambda: "",
        )
    )()


def damaged(rng: random.Random, text: str) -> str:
    """The text with some characters dropped, repeated or added."""
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(text) + 1)
        added = rng.choice(
            ("", "", "(", ")", "[", "{", "|", '"', "\\", "\x00", "\n", "::=", "\ud800", "*", text[at : at + 9])
        )
        text = text[:at] + added + text[at + rng.randrange(3) :]
    return text


def ebnf(rng: random.Random) -> str:
    """A grammar in xgrammar's EBNF."""
    names = ["root", *(f"rule{number}" for number in range(rng.randrange(4)))]
    return "\n".join(f"{name} ::= {_expression(rng, names, 2)}" for name in names)


def _expression(rng: random.Random, names: list[str], depth: int) -> str:
    alternatives = []
    for _ in range(rng.choice((1, 1, 2))):
        parts = []
        for _ in range(rng.choice((1, 2, 3))):
            dice = rng.random()
            if dice < 0.5 or not depth:
                part = rng.choice(
                    ('"a"', '"yes"', '"\\n"', '""', '"é"', "[a-z]", "[^a]", r"[\x41-\x5a]", '"\\u0041"', "/[a-z]+/")
                )
            elif dice < 0.8:
                part = rng.choice(names)
            else:
                part = f"({_expression(rng, names, depth - 1)})"
            if rng.random() < 0.25:
                part += rng.choice(("*", "+", "?", "{2}", "{1,3}", "{2,}"))
            parts.append(part)
        alternatives.append(" ".join(parts))
    return " | ".join(alternatives)


def hostile_ebnf(rng: random.Random) -> str:
    count = rng.choice((30, 1000, 10**6, 10**12))
    rules = rng.choice((30, 400))
    return rng.choice(
        (
            lambda: rng.choice(
                ("root ::=", "root ::= root", 'root ::= root "a"', "root ::= other", "", "root", "::=", "#")
            ),
            lambda: f'root ::= ((("a"{{1,{count}}}){{1,{count}}}){{0,{count}}})',
            lambda: (
                "\n".join(f"r{n} ::= r{n + 1} r{n + 1}" for n in range(rules)) + f'\nr{rules} ::= "a"?\nroot ::= r0'
            ),
            lambda: 'root ::= "" | "" root | root root | "a"',
            lambda: 'root ::= ("a"* "a"*)* "b"',
            lambda: "root ::= " + "(" * 400 + '"a"' + ")" * 400,
            lambda: 'root ::= "a"\nroot ::= "b"',
            lambda: "start: WORD+\nWORD: /[a-z]+/ " + rng.choice(("", "\n%import common.WS\n%ignore WS", '| "x"~3')),
            lambda: 'root ::= TagDispatch(("<a>", root), stop_eos=true)',
            lambda: 'root ::= (= "a") "b"',
            lambda: f"root ::= [{rng.choice(('', '^', 'z-a', chr(92), 'a-'))}]*",
            lambda: damaged(rng, ebnf(rng)),
        )
    )()
