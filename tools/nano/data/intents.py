"""The known intents of chat in composed wordings, put together from the patterns in patterns/intents.txt.

Single wordings that chat.py holds out are never composed, so they stay new.
"""
from __future__ import annotations

from . import words as W
from .base import Source, Turn, casual
from .chat import FIXED
from .phrases import apart, bare, forms, patterns, spoken

PATTERNS = patterns("intents")    # reasoning of a fixed answer -> what a user says
# before a question; no greeting, that would be another intent
ASIDES = ("[So, |Well, |Nano, |Now, |One question: |And |Ok, |Just asking: |Please tell me: |Say, |Hm, |Another question: |By the way, "
          "|Next: ]")
HELD = apart("chat", [w for _, _, wordings in FIXED for w in wordings])
ANSWERS = {reasoning: answer for answer, reasoning, _ in FIXED}
# intents with more wordings come more often
WEIGHTS = {reasoning: min(sum(map(forms, below)), 300) ** 0.5 for reasoning, below in PATTERNS.items()}


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
