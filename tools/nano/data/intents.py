"""The known intents of chat in composed wordings, put together from the patterns in intents.txt.

Single wordings that chat.py holds out are never composed, so they stay new.
"""
from __future__ import annotations

import pathlib

from . import words as W
from .base import Source, Turn, casual
from .chat import FIXED
from .phrases import apart, bare, forms, spoken


def read_patterns(text: str) -> dict[str, list[str]]:
    """reasoning -> patterns, with the shared ones filled in."""
    shared: dict[str, str] = {}
    out: dict[str, list[str]] = {}
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        if line.startswith("$"):
            name, pattern = line.split(" = ", 1)
            shared[name] = pattern
        elif not line.startswith(" "):
            out[line] = patterns = []
        else:
            pattern = line.strip()
            for name, value in shared.items():
                pattern = pattern.replace(name, value)
            patterns.append(pattern)
    return out


PATTERNS = read_patterns((pathlib.Path(__file__).parent / "intents.txt").read_text())
# before a question; no greeting, that would be another intent
ASIDES = ("[So, |Well, |Nano, |Now, |One question: |And |Ok, |Just asking: |Please tell me: |Say, |Hm, |Another question: |By the way, "
          "|Next: ]")
HELD = apart("chat", [w for _, _, wordings in FIXED for w in wordings])
ANSWERS = {reasoning: answer for answer, reasoning, _ in FIXED}
# intents with more wordings come more often
WEIGHTS = {reasoning: min(sum(map(forms, patterns)), 300) ** 0.5 for reasoning, patterns in PATTERNS.items()}


def composed(src: Source) -> Turn:
    """A known intent in a wording put together from parts."""
    reasoning = src.rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    while bare(text := spoken(src, src.pick(PATTERNS[reasoning])).replace(" ,", ",")) in HELD:
        pass
    text = W.capital(text)
    if text.endswith("?") and src.chance(0.15):
        keep = src.chance(0.5) or text.startswith("I ")
        text = spoken(src, ASIDES) + (text if keep else text[0].lower() + text[1:])
    return Turn(casual(src, text), ANSWERS[reasoning], reasoning)
