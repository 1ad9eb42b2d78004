"""Compares two evaluations of the same tasks, answer by answer.

    gannet eval nano --answers a.jsonl
    gannet eval nano --no-swa-bounded-replay --answers b.jsonl
    python -m nano.compare_answers a.jsonl b.jsonl

Needs no packages. For each family and mode: the shares that are right, their difference in points with its standard error
(answers to the same task are paired), and how many answers are word for word the same.
"""
from __future__ import annotations

import argparse
import json
import math
import pathlib

Key = tuple[str, bool, int]


def read(path: pathlib.Path) -> dict[Key, dict]:
    answers = map(json.loads, path.read_text().splitlines())
    return {(a["family"], a["thinking"], a["number"]): a for a in answers}


def difference(pairs: list[tuple[dict, dict]]) -> tuple[float, float]:
    """Of the second's share of right answers from the first's, and its standard error."""
    n = len(pairs)
    changes = [b["right"] - a["right"] for a, b in pairs]
    mean = sum(changes) / n
    variance = sum((c - mean) ** 2 for c in changes) / n
    return mean, math.sqrt(variance / n)


def line(name: str, mode: str, pairs: list[tuple[dict, dict]]) -> str:
    n = len(pairs)
    first, second = (sum(pair[i]["right"] for pair in pairs) / n for i in (0, 1))
    mean, error = difference(pairs)
    said = ("reasoning", "content", "calls")
    same = sum(all(a[k] == b[k] for k in said) for a, b in pairs) / n
    return f"{name:12s} {mode:8s} {n:5d} {100 * first:8.1f} {100 * second:8.1f} {100 * mean:+8.1f} ± {100 * error:4.1f} {100 * same:9.1f}"


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("first", type=pathlib.Path)
    p.add_argument("second", type=pathlib.Path)
    a = p.parse_args()
    first, second = read(a.first), read(a.second)
    if first.keys() != second.keys():
        p.error(f"{a.first} and {a.second} do not answer the same tasks")
    print(f"{'family':12s} {'thinking':8s} {'n':>5s} {'first %':>8s} {'second %':>8s} {'points':>15s} {'same %':>9s}")
    rounds = dict.fromkeys(key[:2] for key in first)
    for family, thinking in rounds:
        pairs = [(first[key], second[key]) for key in first if key[:2] == (family, thinking)]
        print(line(family, "on" if thinking else "off", pairs))
    print(line("all", "", [(first[key], second[key]) for key in first]))


if __name__ == "__main__":
    main()
