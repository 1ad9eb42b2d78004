"""Draws items from every generator and every held-out set, and looks for those that fail.

    python -m nano.check_data --corpus DIR --tokenizer FILE [--draws 20000] [--processes 2] [--seed 1] [--only PATTERN ...]

Every item has a seed of its own, which is printed with a fault. A fault is an exception, a draw that takes longer than
two seconds, a call that its tool's schema does not allow, or an answer to a schema that is no object of it. One item in
eight is encoded as well: it needs an answer, and whole numbers of tokens, weights and turns. What is too long for its
rows is counted, since training leaves it out.
"""
from __future__ import annotations

import argparse
import collections
import fnmatch
import json
import multiprocessing
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from .data.base import Item, Source
from .data.mix import LONGEST, SHARES, Generators, held_out_sets
from .data.pack import ALIGN, encode
from .tokenizer import Encoder

LIMIT = 2.0             # seconds that a draw may take
ENCODED = 8             # one item in so many is encoded
LONG = ("recall", "far")
ROWS = {"short": 1024, "wide": 8192, "far": 16384}
TYPES = {"string": str, "integer": int, "number": (int, float), "boolean": bool, "array": list, "object": dict}


@dataclass(frozen=True)
class Kind:
    """What is drawn: a family of a stage, or a held-out set."""
    name: str
    length: int             # of the rows that it goes into
    split: str
    make: Callable[[Source], Item]

    @property
    def weight(self) -> float:
        """Long documents take a hundred times as long."""
        return 0.02 if any(word in self.name for word in LONG) and self.length > 1024 else 0.1 if "recall" in self.name else 1.0


@dataclass
class Found:
    drawn: int = 0
    encoded: int = 0
    too_long: collections.Counter = field(default_factory=collections.Counter)
    longest: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    slowest: tuple[float, str] = (0.0, "")

    def add(self, other: "Found") -> None:
        self.drawn, self.encoded = self.drawn + other.drawn, self.encoded + other.encoded
        self.too_long += other.too_long
        for name, n in other.longest.items():
            self.longest[name] = max(n, self.longest.get(name, 0))
        self.faults += other.faults
        self.slowest = max(self.slowest, other.slowest)


def kinds(g: Generators) -> Iterator[Kind]:
    """Every family at every length of documents, and every held-out set."""
    seen = set()
    for stage, shares in SHARES.items():
        for family in shares:
            longest = LONGEST[stage] if "recall" in family else 0
            if (family, longest) not in seen:
                seen.add((family, longest))
                name = f"{stage}: {family}" if longest else family
                yield Kind(name, ROWS.get(stage, 4096), "train", lambda src, f=family, n=longest: g.make(f, src, n or 850))
    for name, (length, make, split) in held_out_sets(g).items():
        yield Kind(f"held out: {name}", length, split, make)


def fits(value: object, schema: dict) -> bool:
    """Is a value of the kind that the schema asks for?"""
    wanted = TYPES[schema["type"]]
    if not isinstance(value, wanted) or isinstance(value, bool) and schema["type"] != "boolean":
        return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    if schema["type"] == "array":
        return all(fits(x, schema["items"]) for x in value)
    if schema["type"] == "object":
        known = schema.get("properties", {})
        return set(schema.get("required", [])) <= set(value) <= set(known) and all(fits(x, known[k]) for k, x in value.items())
    return True


def check_item(item: Item) -> None:
    tools = {t["name"]: t["parameters"] for t in item.tools or []}
    assert len(tools) == len(item.tools or []), "two tools of one name"
    for m in item.messages:
        for call in m.get("calls") or []:
            assert fits(call["arguments"], tools[call["name"]]), f"call does not fit: {call}"
    if "properties" in (item.response_format or {}):
        assert fits(json.loads(item.messages[-1]["content"]), item.response_format), f"no object of the schema: {item.messages[-1]['content']}"


def too_slow(*_) -> None:
    raise TimeoutError(f"a draw of more than {LIMIT:.0f} s")


def fuzz(corpus: str, tokenizer: str, draws: int, seed: int, only: list[str]) -> Found:
    """About `draws` items of all kinds together."""
    g, encoder, found = Generators(corpus), Encoder(tokenizer), Found()
    chosen = [k for k in kinds(g) if any(fnmatch.fnmatchcase(k.name, p) for p in only)]
    signal.signal(signal.SIGALRM, too_slow)
    total = sum(k.weight for k in chosen)
    for number, kind in enumerate(chosen):
        for i in range(max(3, round(draws * kind.weight / total))):
            at = (seed * 1000 + number) * 10_000_000 + i
            started = time.perf_counter()
            signal.setitimer(signal.ITIMER_REAL, LIMIT)
            try:
                item = kind.make(Source(at, kind.split))
                found.slowest = max(found.slowest, (time.perf_counter() - started, f"{kind.name}, seed {at}"))
                check_item(item)
                if i % ENCODED == 0:
                    look_at_tokens(item, encoder, kind, found)
            except Exception:
                found.faults.append(f"{kind.name}, seed {at}, split {kind.split}\n{traceback.format_exc(limit=-4)}")
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            found.drawn += 1
    return found


def look_at_tokens(item: Item, encoder: Encoder, kind: Kind, found: Found) -> None:
    s = encode(item, encoder)
    assert s.starts and len(s.ids) == len(s.weight) == len(s.turn), "no answer, or lists of different lengths"
    assert any(w > 0 for w in s.weight), "no loss"
    found.encoded += 1
    found.longest[kind.name] = max(len(s.ids), found.longest.get(kind.name, 0))
    if len(s.ids) > kind.length - ALIGN:
        found.too_long[kind.name] += 1


def check_generators(corpus: str, tokenizer: str, draws: int = 20000, seed: int = 1, only: list[str] = ["*"]) -> None:
    """Raises with the first faults."""
    found = fuzz(corpus, tokenizer, draws, seed, only)
    assert not found.faults, f"{len(found.faults)} faults in {found.drawn} draws, for example {found.faults[0]}"


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--corpus", required=True)
    p.add_argument("--tokenizer", required=True)
    p.add_argument("--draws", type=int, default=20000)
    p.add_argument("--processes", type=int, default=2)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--only", nargs="*", default=["*"], help="patterns for names of families and sets")
    a = p.parse_args()
    found, started = Found(), time.time()
    with multiprocessing.get_context("spawn").Pool(a.processes) as pool:
        jobs = [(a.corpus, a.tokenizer, a.draws // a.processes, a.seed + i, a.only) for i in range(a.processes)]
        for part in pool.starmap(fuzz, jobs):
            found.add(part)
    for name, n in sorted(found.longest.items()):
        print(f"  {name:55s} longest {n:6d} tokens" + (f", {found.too_long[name]} too long" if found.too_long[name] else ""))
    for fault in found.faults[:20]:
        print(fault)
    print(f"{found.drawn} draws, {found.encoded} encoded, {time.time() - started:.0f} s; {len(found.faults)} faults; "
          f"slowest {found.slowest[0]:.2f} s: {found.slowest[1]}")
    raise SystemExit(1 if found.faults else 0)


if __name__ == "__main__":
    main()
