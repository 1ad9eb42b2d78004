"""Writes the task sets of `gannet eval nano`: held-out items of the generators, answered by the engine itself.

    python -m nano.make_eval --corpus DIR --out ../models/nano/eval [--seed N]

Needs no packages. One file of JSON lines for each family (README.md says what a line holds), and lines.txt,
from which the command puts the long documents of recall together. What is held out is what `data/` holds out: operands,
facts, values and contents in the split "test", wordings, tools and keys as well in the split "wording".
"""
from __future__ import annotations

import argparse
import itertools
import json
import pathlib
from collections.abc import Callable, Iterator

from .data import arithmetic, json_tasks, knowledge, recall, toolcalls
from .data.base import Item, Source, Turn, conversation, dress, user
from .data.mix import Generators

POOL_LINES = 1600
POOL_FACTS = 0.4
DISTANCES = {200: 50, 1000: 50, 4000: 40, 16000: 24}


def message(m: dict) -> dict:
    """A message as Chat Completions take it."""
    out = {"role": m["role"], "content": m["content"]}
    if m.get("reasoning"):
        out["reasoning_content"] = m["reasoning"]
    if m.get("calls"):
        out["tool_calls"] = [{"id": f"call_{i}", "type": "function", "function": {
            "name": c["name"], "arguments": json.dumps(c["arguments"], ensure_ascii=False)}} for i, c in enumerate(m["calls"])]
    return out


def messages(given: list[dict]) -> list[dict]:
    """Results answer the calls in front of them, in order."""
    out: list[dict] = []
    results = 0
    for m in given:
        out.append(message(m))
        results = results + 1 if m["role"] == "tool" else 0
        if results:
            out[-1]["tool_call_id"] = f"call_{results - 1}"
    return out


def task(name: str, item: Item, judge: dict, at: int = -1) -> dict:
    """`at`: the message that the model shall write; what follows it is left out."""
    out: dict = {"set": name, "messages": messages(item.messages[:at]), "judge": judge}
    if item.tools:
        out["tools"] = [{"type": "function", "function": t} for t in item.tools]
    if item.response_format == {"type": "json_object"}:
        out["response_format"] = item.response_format
    elif item.response_format:
        out["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": item.response_format}}
    return out


def last_number(text: str) -> int:
    return int("".join(c if c.isdigit() else " " for c in text).split()[-1])


def until(make: Callable[[], object], fits: Callable[[object], bool]):
    while not fits(made := make()):
        pass
    return made


# ---- families: name of a set -> (number of items, maker)

def arithmetic_sets(seed: int) -> dict:
    def sums(name: str, signs: str) -> Callable[[], dict]:
        src = Source(seed, "test")

        def make() -> dict:
            turn = until(lambda: arithmetic.sum_turn(src), lambda t: t.answer.split()[1] in signs)
            return task(name, conversation(src, "sum", [turn]), {"number": last_number(turn.answer)})
        return make

    def problems(name: str, split: str) -> Callable[[], dict]:
        src = Source(seed + 1, split)

        def make() -> dict:
            item = arithmetic.problems(src)
            return task(name, item, {"number": last_number(item.messages[-1]["content"])})
        return make
    return {"sums and differences": (50, sums("sums and differences", "+-")),
            "products and quotients": (50, sums("products and quotients", "*/")),
            "word problems": (50, problems("word problems", "test")),
            "word problems, new wordings": (50, problems("word problems, new wordings", "wording"))}


def pool(g: Generators, seed: int) -> tuple[list[str], set[tuple[str, str]]]:
    """Lines for documents, no two equal, and the pairs of person and attribute that they tell of."""
    src, lines, pairs = Source(seed), {}, set()
    while len(lines) < POOL_LINES:
        more, facts = recall.facts_text(src, g.recall.filler, 40, POOL_FACTS)
        if any((n, a) in pairs for n, a, _ in facts):
            continue
        pairs.update((n, a) for n, a, _ in facts)
        lines.update(dict.fromkeys(more))
    return list(lines)[:POOL_LINES], pairs


def recall_sets(g: Generators, seed: int, taken: set[tuple[str, str]]) -> dict:
    def at(tokens: int) -> Callable[[], dict]:
        src = Source(seed + tokens, "test")
        documents = itertools.count()

        def draw():
            name, attribute = recall.person(src), src.pick(list(recall.ATTRIBUTES))
            v = recall.ATTRIBUTES[attribute](src)
            return f"recall|{name}|{attribute}|{v}", (name, attribute, v)

        def make() -> dict:
            name, attribute, v = until(lambda: src.search(draw, 0.2), lambda f: (f[0], f[1]) not in taken)
            fact = src.wording("fact", recall.STYLES).format(N=name, a=attribute, v=v)
            ask = src.wording("question", recall.QUESTIONS).format(N=name, a=attribute)
            text = f"{src.wording('intro', recall.INTROS)}\n\n{{document}}\n\n{ask}"
            item = dress(src, Item("recall", [user(text), {}]), system=0.3)
            document = {"seed": tokens * 1000 + next(documents), "tokens": tokens, "fact": fact[0].upper() + fact[1:]}
            return {**task(f"{tokens:,} tokens", item, {"contains": v}), "document": document}
        return make

    def told() -> Callable[[], dict]:
        src = Source(seed, "test")

        def make() -> dict:
            item = g.recall.about_me(src)
            return task("told by the user", item, {"exact": item.messages[-1]["content"]})
        return make
    return {"told by the user": (36, told()), **{f"{t:,} tokens": (n, at(t)) for t, n in DISTANCES.items()}}


def tool_sets(g: Generators, seed: int) -> dict:
    def calls_of(m: dict) -> list[dict]:
        return m.get("calls") or []

    def single() -> Callable[[], dict]:
        src = Source(seed, "test")

        def make() -> dict:
            item = toolcalls.single_call(src)
            return task("one of a few usual tools", item, {"tool_call": calls_of(item.messages[-1])[0]})
        return make

    def session(name: str, split: str, number: int, fits: Callable[[Item, int], bool], judge: Callable[[dict], dict]):
        src = Source(seed + number, split)

        def make() -> dict:
            while True:
                item = toolcalls.session(src, g.small_talk)
                for i, m in enumerate(item.messages):
                    if m["role"] == "assistant" and fits(item, i):
                        return task(name, item, judge(m), i)
        return make

    def one_call(item: Item, i: int) -> bool:
        return len(item.tools) > 1 and len(calls_of(item.messages[i])) == 1

    def after_result(item: Item, i: int) -> bool:
        return item.messages[i - 1]["role"] == "tool"

    def as_call(m: dict) -> dict:
        return {"tool_call": calls_of(m)[0]}
    sets = {"several invented tools": (40, "test", one_call, as_call),
            "new tools, names and wordings": (40, "wording", one_call, as_call),
            "two calls": (25, "test", lambda item, i: len(calls_of(item.messages[i])) == 2, lambda m: {"tool_call": calls_of(m)}),
            "answer from a result": (30, "test", after_result, lambda m: {"no_call": True, "exact": m["content"]}),
            "no call": (25, "test", lambda item, i: not calls_of(item.messages[i]) and not after_result(item, i),
                        lambda m: {"no_call": True})}
    return {"one of a few usual tools": (40, single()),
            **{name: (n, session(name, split, i + 1, fits, judge)) for i, (name, (n, split, fits, judge)) in enumerate(sets.items())}}


def structure_sets(seed: int) -> dict:
    def of(name: str, number: int, split: str, draw: Callable[[Source], Item], by_schema: bool = False):
        src = Source(seed + number, split)

        def make() -> dict:
            item = until(lambda: draw(src), lambda i: not by_schema or "properties" in (i.response_format or {}))
            judge = {"json_schema": item.response_format} if by_schema else {"json": json.loads(item.messages[-1]["content"])}
            return task(name, item, judge)
        return make
    return {"values, new content": (50, of("values, new content", 0, "test", json_tasks.extraction)),
            "lists, new content": (30, of("lists, new content", 1, "test", json_tasks.lists)),
            "values, new keys and wordings": (60, of("values, new keys and wordings", 2, "wording", json_tasks.extraction)),
            "form by schema, new keys and wordings": (60, of("form by schema, new keys and wordings", 3, "wording",
                                                             json_tasks.extraction, True))}


def chat_sets(g: Generators, seed: int) -> dict:
    def last_of(name: str, number: int, split: str, count: int, draw: Callable[[Source], Turn]) -> Callable[[], dict]:
        src = Source(seed + number, split)

        def make() -> dict:
            turns = [until(lambda: draw(src), lambda t: t.graded) for _ in range(count)]
            return task(name, conversation(src, "chat", turns), {"exact": turns[-1].answer})
        return make
    return {"known intents, new wordings": (60, last_of("known intents, new wordings", 0, "wording", 1, g.chat.fixed)),
            "definitions, unknown things": (60, last_of("definitions, unknown things", 1, "test", 1, g.chat.turn)),
            "knowledge": (40, last_of("knowledge", 2, "test", 1, knowledge.turn)),
            "the tenth turn": (40, last_of("the tenth turn", 3, "test", 10, g.chat.turn))}


def in_turn(sets: dict) -> Iterator[dict]:
    """One of each set after the other, so that the first items of a file are a fair sample."""
    for i in range(max(count for count, _ in sets.values())):
        for count, make in sets.values():
            if i < count:
                yield make()


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--corpus", required=True)
    p.add_argument("--out", required=True, type=pathlib.Path)
    p.add_argument("--seed", type=int, default=90210)
    a = p.parse_args()
    g = Generators(a.corpus)
    lines, taken = pool(g, a.seed)
    families = {"arithmetic": arithmetic_sets(a.seed), "recall": recall_sets(g, a.seed, taken), "tools": tool_sets(g, a.seed),
                "structure": structure_sets(a.seed), "chat": chat_sets(g, a.seed)}
    a.out.mkdir(parents=True, exist_ok=True)
    (a.out / "lines.txt").write_text("\n".join(lines) + "\n")
    for family, sets in families.items():
        text = "".join(json.dumps(t, ensure_ascii=False) + "\n" for t in in_turn(sets))
        (a.out / f"{family}.jsonl").write_text(text)
        print(f"{family:12s} {text.count(chr(10)):5d} items  {len(text.encode()):8d} bytes")


if __name__ == "__main__":
    main()
