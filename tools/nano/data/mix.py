"""The families together: how often each is drawn, and the held-out sets."""
from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Iterator

from .. import chatfmt
from . import arithmetic, json_tasks, knowledge, open_sums, stories, toolcalls
from .base import Item, Source, Turn
from .chat import Chat
from .open_agent import OpenAgent
from .open_chat import OpenChat
from .open_copy import OpenCopy
from .open_json import OpenJson
from .open_problems import OpenProblems
from .open_recall import OpenRecall
from .open_tools import OpenTools
from .recall import Recall
from .vocabulary import Vocabulary

# Share of items by stage; recall and tools weigh more in tokens, being longer.
SHARES = {
    "short": {"chat": 0.18, "knowledge": 0.09, "sum": 0.12, "problem": 0.27, "story": 0.05, "passage": 0.05, "recall": 0.10,
              "about_me": 0.02, "tool": 0.07, "json": 0.05},
    "long": {"chat": 0.18, "knowledge": 0.09, "sum": 0.11, "problem": 0.25, "story": 0.05, "passage": 0.04, "recall": 0.13,
             "about_me": 0.02, "tool": 0.08, "json": 0.05},
    # continues a trained model: less recall, which it has, more calls
    "more": {"chat": 0.20, "knowledge": 0.11, "sum": 0.11, "problem": 0.20, "story": 0.02, "passage": 0.06, "recall": 0.06,
             "about_me": 0.02, "tool": 0.09, "single_call": 0.08, "json": 0.05},
    # open vocabulary and composed wordings; the earlier generators for the usual cases
    "open": {"open_chat": 0.145, "chat": 0.05, "open_copy": 0.07, "knowledge": 0.08, "open_sum": 0.085, "open_problem": 0.18, "problem": 0.04,
             "story": 0.01, "open_story": 0.02, "passage": 0.02, "open_recall": 0.04, "open_me": 0.025, "open_tool": 0.055, "usual_tool": 0.029,
             "single_call": 0.025, "open_agent": 0.026, "open_json": 0.09, "json": 0.01},
    # the same in rows of 8,192 and 16,384 tokens, with recall over nearly all of them
    "wide": {"open_chat": 0.145, "chat": 0.05, "open_copy": 0.075, "knowledge": 0.08, "open_sum": 0.09, "open_problem": 0.135, "problem": 0.03,
             "story": 0.01, "open_story": 0.02, "passage": 0.02, "open_recall": 0.025, "far_recall": 0.018, "open_me": 0.025, "open_tool": 0.055,
             "usual_tool": 0.028, "single_call": 0.025, "open_agent": 0.034, "open_json": 0.125, "json": 0.01},
    "far": {"open_chat": 0.145, "chat": 0.05, "open_copy": 0.075, "knowledge": 0.08, "open_sum": 0.09, "open_problem": 0.135, "problem": 0.03,
            "story": 0.01, "open_story": 0.02, "passage": 0.02, "open_recall": 0.018, "far_recall": 0.022, "open_me": 0.025, "open_tool": 0.055,
            "usual_tool": 0.028, "single_call": 0.025, "open_agent": 0.042, "open_json": 0.12, "json": 0.01},
}
# tokens of the longest documents in recall; "far_recall" has at least a quarter of it
LONGEST = {"short": 850, "long": 3700, "more": 3700, "open": 3700, "wide": 7500, "far": 15800}


class Generators:
    """All families over one corpus folder."""

    def __init__(self, corpus: str | pathlib.Path):
        corpus = pathlib.Path(corpus)
        self.corpus = corpus
        self.chat = Chat(json.loads((corpus / "definitions.json").read_text()), json.loads((corpus / "unknown.json").read_text()))
        examples = json.loads((corpus / "examples.json").read_text())
        self.recall = Recall(examples)
        vocabulary = Vocabulary(corpus)
        self.open_chat = OpenChat(vocabulary, self.chat)
        self.open_recall, self.copy = OpenRecall(vocabulary, examples), OpenCopy(vocabulary)
        self.agents = OpenAgent(vocabulary)
        self.tools, self.json, self.problems = OpenTools(vocabulary), OpenJson(vocabulary), OpenProblems(vocabulary)

    def open_talk(self, src: Source) -> Turn:
        """A turn of any kind that needs no tool, mostly in composed wordings."""
        return src.pick([self.open_chat.turn, self.open_chat.turn, self.chat.turn, knowledge.turn, open_sums.turn, self.copy.turn])(src)

    def open_json(self, src: Source) -> Item:
        return self.json.example(src) if src.chance(0.06) else self.json.item(src)

    def small_talk(self, src: Source):
        """A turn that needs no tool."""
        return src.pick([self.chat.turn, self.chat.turn, self.chat.turn, knowledge.turn, arithmetic.sum_turn])(src)

    def make(self, family: str, src: Source, longest: int = 850) -> Item:
        makers: dict[str, Callable[[], Item]] = {
            "chat": lambda: self.chat.item(src), "knowledge": lambda: knowledge.item(src), "sum": lambda: arithmetic.sums(src),
            "problem": lambda: arithmetic.problems(src), "story": lambda: stories.stories(src),
            "passage": lambda: stories.passage(src),
            "recall": lambda: self.recall.item(src, int(60 * (longest / 60) ** src.rng.random())),
            "about_me": lambda: self.recall.about_me(src), "tool": lambda: toolcalls.session(src, self.small_talk),
            "single_call": lambda: toolcalls.single_call(src), "json": lambda: json_tasks.item(src),
            "open_chat": lambda: self.open_chat.item(src, self.open_talk), "open_story": lambda: self.open_chat.stories(src), "open_copy": lambda: self.copy.item(src), "open_sum": lambda: open_sums.sums(src),
            "open_problem": lambda: self.problems.item(src), "open_json": lambda: self.open_json(src),
            "open_tool": lambda: self.tools.session(src, self.open_talk), "usual_tool": lambda: toolcalls.session(src, self.open_talk, parallel=0.2),
            "open_agent": lambda: self.agents.session(src, self.open_talk),
            "open_recall": lambda: self.open_recall.item(src, int(100 * (longest / 100) ** src.rng.random())),
            "far_recall": lambda: self.open_recall.item(src, src.number(longest // 4, longest)),
            "open_me": lambda: self.open_recall.about_me(src, self.open_talk)}
        return makers[family]()

    def family(self, src: Source, stage: str) -> str:
        """Which family comes next."""
        shares = SHARES[stage]
        return src.rng.choices(list(shares), list(shares.values()))[0]

    def draw(self, src: Source, stage: str) -> Item:
        return self.make(self.family(src, stage), src, LONGEST[stage])

    def english(self) -> list[str]:
        return (self.corpus / "english.txt").read_text().splitlines()

    def sample_texts(self, items: int = 20000) -> Iterator[str]:
        """What the tokenizer is trained on: conversations, and a part of the English text."""
        src = Source(12345)
        for _ in range(items):
            for piece in render(self.draw(src, "short")):
                if not piece.control:
                    yield piece.text
        for i, text in enumerate(self.english()):
            if i % 4 == 0:
                yield text


def render(item: Item) -> list[chatfmt.Piece]:
    return chatfmt.render(item.messages, item.thinking, item.effort, item.tools, item.response_format)


def held_out_sets(g: Generators) -> dict[str, tuple[int, Callable[[Source], Item], str]]:
    """name -> (row length, maker, split). "new wordings" also hold out tools, argument names and question forms."""
    def thinking(make):
        def made(src: Source) -> Item:
            while True:
                item = make(src)
                if item.thinking:
                    return item
        return made

    def family(name):
        return lambda src: g.make(name, src)

    def distance(tokens):
        return lambda src: g.recall.item(src, int(tokens * (0.9 + 0.2 * src.rng.random())), questions=3)

    def open_distance(tokens):
        return lambda src: g.open_recall.item(src, tokens, questions=3)
    two_step = thinking(lambda src: arithmetic.problems(src, two_step=True))
    return {
        "chat, known intents in new wordings": (1024, family("chat"), "wording"),
        "chat, definitions and unknown things": (1024, family("chat"), "test"),
        "knowledge": (1024, family("knowledge"), "test"),
        "sums": (1024, family("sum"), "test"),
        "two-step problems, thinking": (1024, two_step, "test"),
        "two-step problems, thinking, new wordings": (1024, two_step, "wording"),
        "word problems, 1 to 4 steps": (1024, family("problem"), "test"),
        "passages": (1024, family("passage"), "test"),
        "facts about the user": (1024, family("about_me"), "test"),
        "one call of a usual tool": (1024, toolcalls.single_call, "test"),
        "tools": (1024, family("tool"), "test"),
        "tools, new tools and wordings": (1024, family("tool"), "wording"),
        "JSON": (1024, family("json"), "test"),
        "JSON, new wordings and keys": (1024, family("json"), "wording"),
        "recall at 250 tokens": (1024, distance(250), "test"),
        "recall at 1,000 tokens": (4096, distance(1000), "test"),
        "recall at 2,000 tokens": (4096, distance(2000), "test"),
        "recall at 3,500 tokens": (4096, distance(3400), "test"),
        "open: tool calls, new values": (4096, family("open_tool"), "test"),
        "open: agents, new values": (4096, family("open_agent"), "test"),
        "open: JSON, new content": (1024, family("open_json"), "test"),
        "open: word problems, new operands": (1024, family("open_problem"), "test"),
        "open: sums, new operands": (1024, family("open_sum"), "test"),
        "open: copying": (1024, family("open_copy"), "test"),
        "open: recall at 3,500 tokens": (4096, open_distance(3400), "test"),
        "open: recall at 7,500 tokens": (8192, open_distance(7400), "test"),
        "open: recall at 15,500 tokens": (16384, open_distance(14900), "test"),
    }
