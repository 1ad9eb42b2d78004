"""Held-out accuracy by teacher forcing: an answer counts when every one of its tokens is the model's first choice.

    python -m nano.evaluate --model DIR --corpus DIR [--items N] [--out FILE.json] [--sets NAME ...] [--device cuda]

Reads a checkpoint as an engine would (quantised weights and caches, selection, Q8 activations) and also reports every
set under decoder-side bounded replay, where each answer is computed with a window cut 128 tokens before it; and the bits
for each byte of English text that was held out.
"""
from __future__ import annotations

import argparse
import fnmatch
import json
import math
import multiprocessing
import pathlib
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import torch

from .checkpoint import load_model
from .data.mix import Generators, held_out_sets
from .data.pack import english_rows, follow_parent, held_out_rows
from .model import Batch, Mode, Model

TOKENS = 65536
ENGLISH = "English"


def to_batch(part: dict[str, np.ndarray], device) -> Batch:
    def move(name, dtype):
        return torch.from_numpy(part[name].astype(dtype, copy=False)).to(device, non_blocking=True)
    return Batch(move("ids", np.int64), move("pos", np.int32), move("doc", np.int32), move("encoder_seg", np.int32),
                 move("decoder_seg", np.int32), move("target", np.int64), move("weight", np.float32))


def padded(rows: dict[str, np.ndarray], at: int, count: int) -> dict[str, np.ndarray]:
    """Rows at..at+count; the last ones repeat the final row when there are not enough."""
    index = np.minimum(np.arange(at, at + count), len(rows["ids"]) - 1)
    return {k: v[index] for k, v in rows.items()}


def replay_cut(rows: dict[str, np.ndarray]) -> np.ndarray:
    """decoder_seg of rows in which every conversation is cut 128 tokens before its last graded answer."""
    seg = rows["decoder_seg"].copy()
    for r in range(len(seg)):
        for doc in np.unique(rows["doc"][r]):
            where = np.flatnonzero(rows["doc"][r] == doc)
            turns = rows["turn"][r][where]
            if (turns >= 0).any():
                start = int(np.flatnonzero(turns == turns.max())[0])
                if start + 1 > 128:
                    seg[r][where[start + 1 - 128:]] += 1
    return seg


def right_tokens(model: Model, rows: dict[str, np.ndarray], mode: Mode, tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """Of each target [rows, L]: whether it is the first choice, and its loss."""
    length = rows["ids"].shape[1]
    count, right, losses = max(1, tokens // length), [], []
    for at in range(0, len(rows["ids"]), count):
        batch = to_batch(padded(rows, at, count), model.p.device)
        logits = model.forward(batch, mode).logits.detach()
        target = batch.target.flatten()
        right.append((logits.argmax(-1) == target).view(-1, length).cpu().numpy())
        losses.append(torch.nn.functional.cross_entropy(logits, target, reduction="none").view(-1, length).cpu().numpy())
    n = len(rows["ids"])
    return np.concatenate(right)[:n], np.concatenate(losses)[:n]


def answers(rows: dict[str, np.ndarray], right: np.ndarray, labels: list[str]) -> dict[str, np.ndarray]:
    """label -> whether every token is right, for each of its answers."""
    turn = rows["turn"]
    wrong = np.zeros(len(labels), bool)
    seen = np.zeros(len(labels), bool)
    np.logical_or.at(wrong, turn[turn >= 0], ~right[turn >= 0])
    seen[turn[turn >= 0]] = True
    out = {}
    for label in sorted(set(labels)):
        mine = seen & np.array([x == label for x in labels])
        if mine.any():
            out[label] = ~wrong[mine]
    return out


def loss_entry(rows: dict[str, np.ndarray], losses: np.ndarray) -> dict[str, float]:
    """The mean loss of tokens that weigh at least 0.4 and, where the length of the text is known, bits for each byte."""
    counted = losses[rows["weight"] >= 0.4]
    entry = {"loss": round(float(counted.sum()) / max(1, len(counted)), 4)}
    if "bytes" in rows:
        entry["bits_per_byte"] = round(float(counted.sum()) / float(rows["bytes"].sum()) / math.log(2), 4)
    return entry


def evaluate(model: Model, sets: dict, mode: Mode, tokens: int = TOKENS, replay: bool = True) -> dict:
    """sets: name -> (rows, labels). Returns name -> label -> {accuracy, error, n} (and the same with replay), beside the
    set's loss."""
    report: dict = {}
    for name, (rows, labels) in sets.items():
        right, losses = right_tokens(model, rows, mode, tokens)
        entry = loss_entry(rows, losses)
        for label, correct in answers(rows, right, labels).items():
            share, n = float(correct.mean()), len(correct)
            error = (share * (1 - share) / n) ** 0.5
            entry[label] = {"accuracy": round(share, 4), "error": round(error, 4), "n": n}
        if replay and labels:
            cut, _ = right_tokens(model, {**rows, "decoder_seg": replay_cut(rows)}, mode, tokens)
            for label, correct in answers(rows, cut, labels).items():
                entry[label]["with_replay"] = round(float(correct.mean()), 4)
        report[name] = entry
    return report


def graded(report: dict) -> Iterator[tuple[str, str, dict]]:
    """(set, label, result) of everything that has an accuracy."""
    for name, entry in report.items():
        for label, r in entry.items():
            if isinstance(r, dict):
                yield name, label, r


def row_length(usual: int, lengths: tuple[int, ...]) -> int:
    """The shortest of `lengths` that holds a set's usual rows; 0 when none does."""
    return min((n for n in lengths if n >= usual), default=0) if lengths else usual


def build_sets(corpus: str, tokenizer: str, items: int, seed: int = 4711, names: list[str] | None = None,
               length: int | tuple[int, ...] = 0) -> dict:
    """Packed held-out sets, those whose names match a pattern of `names`. `length` makes all rows that long (one shape, one
    compilation), or each set's rows as long as the first of several lengths that holds them; sets that need longer rows
    are left out. Every set is made by a process of its own: a trainer waits for them."""
    lengths = (length,) if isinstance(length, int) and length else tuple(sorted(length or ()))
    out = {}

    def wanted(name: str, usual: int) -> int:
        matches = not names or any(fnmatch.fnmatchcase(name, pattern) for pattern in names)
        return row_length(usual, lengths) if matches else 0
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn"), initializer=follow_parent) as pool:
        for i, (name, (usual, *_)) in enumerate(held_out_sets(Generators(corpus)).items()):
            if size := wanted(name, usual):
                count = items if usual <= 1024 else max(32, items // 2)
                out[name] = pool.submit(held_out_rows, corpus, tokenizer, name, size, count, seed + i)
        if size := wanted(ENGLISH, 1024):
            english = pool.submit(english_rows, corpus, tokenizer, size, items)
        sets = {name: rows.result() for name, rows in out.items()}
        return {**sets, ENGLISH: (english.result(), [])} if size else sets


def table(report: dict) -> str:
    lines = [f"{name:45s} {label:7s} {100 * r['accuracy']:5.1f} ± {100 * r['error']:.1f} %  n {r['n']:5d}"
             + (f"  replay {100 * r['with_replay']:5.1f}" if "with_replay" in r else "") for name, label, r in graded(report)]
    lines += [f"{name:45s} {entry['bits_per_byte']:.4f} bits per byte" for name, entry in report.items()
              if "bits_per_byte" in entry]
    return "\n".join(lines)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", required=True)
    p.add_argument("--corpus", required=True)
    p.add_argument("--items", type=int, default=256)
    p.add_argument("--out")
    p.add_argument("--sets", nargs="*")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    a = p.parse_args()
    directory = pathlib.Path(a.model)
    on_gpu = a.device.startswith("cuda")
    model = load_model(directory, torch.bfloat16 if on_gpu else torch.float32, a.device)
    sets = build_sets(a.corpus, str(directory / "tokenizer.json"), a.items, names=a.sets)
    with torch.set_grad_enabled(on_gpu):  # the compiled functions exist with gradients only
        report = evaluate(model, sets, Mode(exact_ties=not on_gpu), TOKENS if on_gpu else 4096)
    print(table(report))
    if a.out:
        pathlib.Path(a.out).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
