"""Held-out accuracy of a model as the engine computes it: the sets of `evaluate`, through `gannet logits`.

    python -m nano.evaluate_engine --engine ../build/gannet --model DIR --corpus DIR [--items N] [--sets NAME ...]
                                   [--replay] [--out FILE.json]

An answer counts when every one of its tokens is the engine's first choice given the true tokens before. With --replay,
only the last answer of each conversation is judged: the prompt is prefilled with bounded replay, the answer decoded.
"""
from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import tempfile

import numpy as np
from safetensors.numpy import load_file

from .data.base import Source
from .data.mix import Generators, held_out_sets
from .data.pack import Sequence, encode
from .tokenizer import Encoder


class Engine:
    """Runs `gannet logits` on one sequence."""

    def __init__(self, program: str, model: str):
        self.program, self.model = program, model
        self.folder = tempfile.TemporaryDirectory()

    def first_choices(self, ids: list[int], *options: str) -> np.ndarray:
        """The most likely next token of every position (-1 where the decoder did not run)."""
        folder = pathlib.Path(self.folder.name)
        (folder / "ids.json").write_text(json.dumps(ids))
        subprocess.run([self.program, "logits", self.model, "--ids", str(folder / "ids.json"), "--out",
                        str(folder / "out.safetensors"), *options], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        out = load_file(folder / "out.safetensors")
        choice = np.full(len(ids), -1)
        choice[out["rows"]] = out["logits"].argmax(1)
        return choice


def judge(engine: Engine, s: Sequence, replay: bool) -> dict[int, bool]:
    """Graded answer -> are all of its tokens the first choice?"""
    turn, ids = np.array(s.turn), np.array(s.ids)
    graded = sorted(set(turn[turn >= 0].tolist()))
    if not graded:
        return {}
    if replay:
        graded = graded[-1:]
        start, end = np.flatnonzero(turn == graded[0])[[0, -1]]
        choice = engine.first_choices(s.ids[:end + 1], "--swa-bounded-replay", "--decode", str(end + 1 - start))
    else:
        choice = engine.first_choices(s.ids)
    return {t: bool((choice[np.flatnonzero(turn == t) - 1] == ids[turn == t]).all()) for t in graded}


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--engine", required=True)
    p.add_argument("--model", required=True)
    p.add_argument("--corpus", required=True)
    p.add_argument("--items", type=int, default=100)
    p.add_argument("--seed", type=int, default=815)
    p.add_argument("--sets", nargs="*")
    p.add_argument("--replay", action="store_true")
    p.add_argument("--out")
    a = p.parse_args()
    generators, engine = Generators(a.corpus), Engine(a.engine, a.model)
    encoder, report = Encoder(pathlib.Path(a.model) / "tokenizer.json"), {}
    for i, (name, (_, make, split)) in enumerate(held_out_sets(generators).items()):
        if a.sets and name not in a.sets:
            continue
        src, right = Source(a.seed + i, split), {}
        for _ in range(a.items):
            s = encode(make(src), encoder)
            for t, good in judge(engine, s, a.replay).items():
                right.setdefault(s.labels[t], []).append(good)
        for label, results in right.items():
            share, n = float(np.mean(results)), len(results)
            error = (share * (1 - share) / n) ** 0.5
            report.setdefault(name, {})[label] = {"accuracy": round(share, 4), "error": round(error, 4), "n": n}
            print(f"{name:45s} {label:7s} {100 * share:5.1f} ± {100 * error:.1f} %  n {n}", flush=True)
        if a.out:
            pathlib.Path(a.out).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
