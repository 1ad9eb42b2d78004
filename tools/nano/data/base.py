"""What every generator shares: items, seeded choices, and the split into training and held-out."""
from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

# Splits: "train"; "test" = held-out operands, facts or requests in known wordings; "wording" = held-out wordings,
# tools or schemas as well.
SPLITS = ("train", "test", "wording")


def held_out(key: str, share: float) -> bool:
    """A fixed share of all keys, by hash, never occurs in training."""
    return zlib.crc32(key.encode()) % 10000 < share * 10000


@dataclass
class Item:
    """One conversation."""
    family: str
    messages: list[dict]
    thinking: bool = False
    effort: int = 75
    tools: list[dict] | None = None
    response_format: dict | None = None
    answer_weight: float = 1.0
    prompt_weight: float = 0.1
    graded: bool = True             # are the answers determined by the prompts?
    only_last: bool = False         # loss and grading on the last assistant turn only


class Source:
    """Seeded choices for one split."""

    def __init__(self, seed: int, split: str = "train"):
        assert split in SPLITS
        self.rng, self.split = random.Random(seed), split

    def chance(self, p: float) -> bool:
        return self.rng.random() < p

    def pick(self, options: Sequence):
        return options[int(self.rng.random() * len(options))]

    def sample(self, options: Sequence, n: int) -> list:
        return self.rng.sample(options, n)

    def number(self, low: int, high: int) -> int:
        return self.rng.randint(low, high)

    def wording(self, tag: str, options: Sequence[str], share: float = 0.12) -> str:
        """A wording: held-out ones are used in the split "wording" only, and there always when there are any."""
        apart = [o for o in options if held_out(tag + "|" + o, share)]
        if self.split == "wording" and apart:
            return self.pick(apart)
        known = [o for o in options if o not in apart]
        return self.pick(known or list(options))

    def wants(self, key: str, share: float = 0.04) -> bool:
        """Does an item with this key (operands, request, facts) belong to the split?"""
        return held_out(key, share) == (self.split != "train")

    def search(self, draw: Callable[[], tuple[str, object]], share: float = 0.04):
        """Draws (key, value) until the key belongs to the split."""
        while True:
            key, value = draw()
            if self.wants(key, share):
                return value


SYSTEM_PROMPTS = [
    "You are a helpful assistant.", "You are nano, a small model.", "You are a friendly assistant. Answer briefly.",
    "Be helpful and polite.", "You are an assistant that gives short answers.", "Answer the user's questions.",
    "You are a careful assistant.", "Keep your answers short and clear.", "You are a helpful, harmless assistant.",
    "Help the user with small tasks.", "You are nano, a demonstration model of the Gannet project.",
    "Today is a good day. Be kind to the user.", "Answer in plain English.", "You are a patient teacher.",
    "You answer questions in one or two sentences.", "Think first, then answer.", "You are a chat assistant.",
    "You are a helpful assistant. Do not make things up.", "Speak simply. Be honest when you do not know something.",
    "You work for a small office. Help with letters, numbers and lists.", "Be concise.",
    "You are an AI assistant running on the user's own machine.", "Respond to the user as well as you can.",
]
EFFORTS = [50, 75, 75, 100]


def dress(src: Source, item: Item, thinking: float = 0.55, system: float = 0.4) -> Item:
    """Chooses mode, effort and perhaps a system prompt for a conversation."""
    item.thinking = src.chance(thinking)
    item.effort = src.pick(EFFORTS) if src.chance(0.95) else src.number(1, 100)
    if item.messages[0]["role"] != "system" and src.chance(system):
        item.messages.insert(0, {"role": "system", "content": src.wording("system", SYSTEM_PROMPTS)})
    for m in item.messages:
        if not item.thinking and m.get("aloud"):
            m["content"] = m["aloud"]
    return item


def user(text: str) -> dict:
    return {"role": "user", "content": text}


def assistant(content: str, reasoning: str = "", calls: list[dict] | None = None, aloud: str = "") -> dict:
    """aloud: the content where thinking is off, if that differs: it shows the steps then."""
    return {"role": "assistant", "content": content, "reasoning": reasoning, "calls": calls or [], "aloud": aloud}


@dataclass
class Turn:
    """One question with its answer, to be used alone or as part of a longer conversation."""
    question: str
    answer: str
    reasoning: str
    graded: bool = True
    answer_weight: float = 1.0
    aloud: str = ""                 # the answer where thinking is off, if that differs


def conversation(src: Source, family: str, turns: list[Turn], **kw) -> Item:
    """Turns in a row. In thinking mode the server shows earlier turns without their reasoning, so does training."""
    messages = []
    for t in turns:
        messages += [user(t.question), assistant(t.answer, t.reasoning, aloud=t.aloud)]
    item = Item(family, messages, graded=all(t.graded for t in turns),
                answer_weight=min(t.answer_weight for t in turns))
    return dress(src, item, **kw)


def casual(src: Source, text: str) -> str:
    """People write carelessly: drops capitals or the final mark now and then."""
    r = src.rng.random()
    if r < 0.08:
        text = text.lower()
    if r > 0.85 or r < 0.04:
        text = text.rstrip(".?!")
    elif r > 0.82:
        text = text.rstrip(".?!") + "!"
    return text
