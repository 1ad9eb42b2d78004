"""Sentences put together from parts: "[Please |]tell me [the |your ]name" stands for six of them.

Alternatives stand in brackets, divided by bars, and may be nested; an empty one is allowed. `{slots}` are left for
str.format. A composed form never becomes one that is held out (`known`).
"""
from __future__ import annotations

import functools
import pathlib
import re
from collections.abc import Iterable

from .base import Source, held_out

Part = str | tuple


@functools.cache
def parse(pattern: str) -> tuple[Part, ...]:
    """A sequence of texts and choices; a choice is a tuple of sequences."""
    def sequence(at: int, nested: bool) -> tuple[tuple[Part, ...], int]:
        parts: list[Part] = []
        text = ""
        while at < len(pattern) and not (nested and pattern[at] in "|]"):
            if pattern[at] == "[":
                options = []
                while pattern[at] != "]":
                    inner, at = sequence(at + 1, True)
                    options.append(inner)
                parts += [text, tuple(options)]
                text = ""
            else:
                text += pattern[at]
            at += 1
        return (*parts, text), at
    return sequence(0, False)[0]


def _spoken(src: Source, parts: tuple[Part, ...]) -> str:
    return "".join(p if isinstance(p, str) else _spoken(src, p[int(src.rng.random() * len(p))]) for p in parts)


def spoken(src: Source, pattern: str) -> str:
    """One of the sentences that a pattern stands for."""
    return _spoken(src, parse(pattern))


def forms(pattern: str) -> int:
    """How many sentences a pattern stands for."""
    def count(parts: tuple[Part, ...]) -> int:
        n = 1
        for p in parts:
            if not isinstance(p, str):
                n *= sum(count(option) for option in p)
        return n
    return count(parse(pattern))


def patterns(name: str) -> dict[str, list[str]]:
    """What patterns/NAME.txt holds. A line at the margin names the patterns below it; "$NAME = ..." is one that many share."""
    shared: dict[str, str] = {}
    out: dict[str, list[str]] = {}
    for line in (pathlib.Path(__file__).parent / "patterns" / f"{name}.txt").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        if line.startswith("$"):
            key, pattern = line.split(" = ", 1)
            shared[key] = pattern
        elif not line.startswith(" "):
            out[line] = below = []
        else:
            pattern = line.strip()
            for key, value in shared.items():
                pattern = pattern.replace(key, value)
            below.append(pattern)
    return out


def bare(text: str) -> str:
    """What makes two wordings the same: letters and digits in lower case; a slot is an underline."""
    return " ".join(re.sub(r"[^a-z0-9_' ]", " ", re.sub(r"\{[^}]*\}", "_", text).lower()).split())


def apart(tag: str, options: Iterable[str], share: float = 0.12) -> frozenset[str]:
    """The held-out wordings among some (Source.wording), as `known` compares them."""
    return frozenset(bare(o) for o in options if held_out(f"{tag}|{o}", share))


def known(src: Source, patterns: str | list[str], forbidden: frozenset[str] = frozenset()) -> str:
    """A sentence of one of the patterns that is not among the forbidden wordings."""
    while True:
        text = spoken(src, patterns if isinstance(patterns, str) else src.pick(patterns))
        if not forbidden or bare(text) not in forbidden:
            return text


def tidy(text: str) -> str:
    """After filling: single spaces, none before a mark."""
    return re.sub(r" +([.?!,;])(?=\s|$)", r"\1", re.sub(r" {2,}", " ", text)).strip()
