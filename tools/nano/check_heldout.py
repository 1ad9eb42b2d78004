"""Checks that training never shows what the task sets hold out: forms, tool names, keys, facts and requests.

    python -m nano.check_heldout --corpus DIR [--eval ../models/nano/eval] [--stage open] [--items 20000]

Draws training items as the workers do and looks in them for every task's request, for the names and held-out keys of new
tools, for held-out JSON keys, and for every held-out wording of requests, tool descriptions, word problems and known intents.
"""
from __future__ import annotations

import argparse
import json
import pathlib
import re

from .data import chat, json_tasks
from .data.base import Item, Source, held_out
from .data.mix import SHARES, Generators
from .data.open_problems import CLAUSES, INSIDE
from .data.phrases import apart, bare

SLOTS = {"He": "(he|she)", "he": "(he|she)", "his": "(his|her)", "him": "(him|her)", "items": r"(?!of )[\w']+( [\w']+)?",
         **{letter: r"\d+" for letter in "nabckpqx"}}
WORDS = r"[\w']+( [\w']+)?"


def matcher(template: str) -> re.Pattern:
    """What a filled-in template looks like, as `bare` shows it."""
    parts = re.split(r"\{(\w+)\}", template)
    return re.compile(" ".join(filter(None, (bare(p) if i % 2 == 0 else SLOTS.get(p, WORDS) for i, p in enumerate(parts)))))


def sentences(text: str) -> list[str]:
    return [bare(s) for s in re.split(r"(?<=[.?!:])\s+", text)]


def plain(name: str) -> str:
    """A key or tool name without its style."""
    return "_".join(re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower().replace("-", "_").replace(".", "_").split())


def keys_of(schema: dict) -> set[str]:
    found = set()
    for key, inner in schema.get("properties", {}).items():
        found |= {plain(key)} | keys_of(inner)
    return found


class Seen:
    """What the drawn training items hold."""

    def __init__(self) -> None:
        self.requests: set[str] = set()             # all that users say
        self.asked: list[str] = []                  # what is answered by a call
        self.problems: set[str] = set()             # sentences of word problems
        self.tools: set[str] = set()
        self.tool_keys: set[str] = set()
        self.descriptions: set[str] = set()
        self.json_keys: set[str] = set()
        self.json_asks: set[str] = set()
        self.answers: set[str] = set()

    def add(self, item: Item) -> None:
        for m, after in zip(item.messages, [*item.messages[1:], None]):
            if m["role"] == "user":
                self.requests.add(bare(m["content"]))
                if after and after.get("calls"):
                    self.asked += sentences(m["content"])
                if item.family == "word problem":
                    self.problems.update(sentences(m["content"]))
                if item.family == "json":
                    self.json_asks.update(sentences(m["content"]))
            elif m["role"] == "assistant":
                self.answers.add(m["content"])
                if item.family == "json" and m["content"].startswith("{"):
                    self.json_keys.update(map(plain, json.loads(m["content"])))
        for t in item.tools or []:
            self.tools.add(plain(t["name"]))
            self.tool_keys |= keys_of(t["parameters"])
            self.descriptions.add(bare(t["description"]))
        if item.family == "json" and item.response_format:
            self.json_keys |= keys_of(item.response_format)


def tasks(folder: pathlib.Path) -> list[dict]:
    return [json.loads(line) for f in sorted(folder.glob("*.jsonl")) for line in f.read_text().splitlines()]


def faults(seen: Seen, given: list[dict]) -> dict[str, list[str]]:
    """name of a check -> what was found in training although it is held out"""
    new = [t for t in given if re.search("new (tools|keys|wordings)", t["set"])]
    # in chat and among the other facts it is the pair of fact and form that is held out, if anything
    last = {t["messages"][-1]["content"] for t in given if not {"exact", "contains"} & t["judge"].keys()}
    named = [c["tool_call"] for c in (t["judge"] for t in new) if "tool_call" in c]
    tool_keys = {plain(k) for c in named for k in c["arguments"]}
    json_keys = {plain(k) for t in new for k in [*t["judge"].get("json", {}), *t["judge"].get("json_schema", {}).get("properties", {})]
                 if isinstance(t["judge"].get("json", {}), dict)}
    clauses = [o for tag, options in CLAUSES.items() for o in options if held_out(f"{tag}|{o}", 0.12)] + INSIDE
    clause = [matcher(c) for c in clauses]
    asides = re.compile("^(" + "|".join(bare(a) for a in chat.ASIDES) + ") ")
    wordings = [w for _, _, wordings in chat.FIXED for w in wordings]
    # some differ from a known one in a comma alone
    intents = apart("chat", wordings) - {bare(w) for w in wordings if not held_out("chat|" + w, 0.12)}
    # where all spellings of a key are held out, training has them nevertheless
    fields = [keys for keys, *_ in json_tasks.FIELDS + json_tasks.ORDERS]
    shown = {k for keys in fields if all(held_out("json-key|" + k, 0.12) for k in keys) for k in keys}
    facts = {t["document"]["fact"] for t in given if "document" in t}
    forms = re.compile("(we have to|i would like to) ")
    return {
        "requests of tasks": sorted(seen.requests & {bare(t) for t in last if len(t) > 40}),
        "names of new tools": sorted(seen.tools & {plain(c["name"]) for c in named}),
        "held-out tool keys": sorted(k for k in seen.tool_keys & tool_keys if held_out("tool-key|" + k, 0.1)),
        "forms of tool requests": [a for a in seen.asked if forms.match(a)],
        "forms of descriptions": [d for d in seen.descriptions if re.match("function (?!(that|which|to) )", d) or d.endswith("internal service")],
        "held-out JSON keys": sorted(k for k in seen.json_keys & json_keys - shown if held_out("json-key|" + k, 0.12)),
        "forms of JSON requests": [a for a in seen.json_asks if a in apart("json-schema", json_tasks.SCHEMA_ASKS) or a.startswith("give me json for this")],
        "clauses of word problems": sorted(p for p in seen.problems if any(c.fullmatch(p) for c in clause)),
        "wordings of known intents": sorted(r for r in seen.requests if r in intents or asides.sub("", r) in intents),
        "facts of recall": sorted(f for f in facts if f in seen.answers),
    }


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--corpus", required=True)
    p.add_argument("--eval", type=pathlib.Path, default=pathlib.Path("../models/nano/eval"))
    p.add_argument("--stage", default="open", choices=sorted(SHARES))
    p.add_argument("--items", type=int, default=20000)
    p.add_argument("--seed", type=int, default=4)
    a = p.parse_args()
    generators, src, seen = Generators(a.corpus), Source(a.seed), Seen()
    for _ in range(a.items):
        seen.add(generators.draw(src, a.stage))
    found = faults(seen, tasks(a.eval))
    for name, cases in found.items():
        print(f"{name}: {len(cases)} found" + "".join(f"\n    {c}" for c in cases[:12]))
    print(f"{a.items} items: {len(seen.requests)} requests, {len(seen.tools)} tool names, {len(seen.tool_keys)} tool keys, {len(seen.json_keys)} JSON keys")
    raise SystemExit(1 if any(found.values()) else 0)


if __name__ == "__main__":
    main()
