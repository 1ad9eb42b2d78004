"""Held-out accuracy by teacher forcing: an answer counts when every one of its tokens is the model's first choice.

    python -m nano.evaluate --model DIR --corpus DIR [--items N] [--out FILE.json] [--sets NAME ...] [--device cuda]

Reads a checkpoint as an engine would (quantised weights and caches, selection, Q8 activations) and also reports every
set under decoder-side bounded replay, where each answer is computed with a window cut 128 tokens before it.
"""
from __future__ import annotations

import argparse
import json
import multiprocessing
import pathlib
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import torch

from .check_reference import load_model
from .data.mix import Generators, held_out_sets
from .data.pack import held_out_rows
from .model import Batch, Mode, Model

TOKENS = 65536


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


def right_tokens(model: Model, rows: dict[str, np.ndarray], mode: Mode, tokens: int) -> tuple[np.ndarray, float]:
    """Whether each target is the first choice [rows, L], and the mean loss over tokens that weigh at least 0.4."""
    length = rows["ids"].shape[1]
    count, out, loss, weight = max(1, tokens // length), [], 0.0, 0.0
    for at in range(0, len(rows["ids"]), count):
        batch = to_batch(padded(rows, at, count), model.p.device)
        logits = model.forward(batch, mode).logits.detach()
        right = (logits.argmax(-1) == batch.target.flatten()).view(-1, length)
        counted = batch.weight.flatten() >= 0.4
        losses = torch.nn.functional.cross_entropy(logits, batch.target.flatten(), reduction="none")
        loss += float(losses[counted].sum())
        weight += float(counted.sum())
        out.append(right.cpu().numpy())
    return np.concatenate(out)[:len(rows["ids"])], loss / max(weight, 1.0)


def score(rows: dict[str, np.ndarray], right: np.ndarray, labels: list[str]) -> dict[str, tuple[float, int]]:
    """label -> (share of answers with every token right, number of answers)."""
    turn = rows["turn"]
    wrong = np.zeros(len(labels), bool)
    seen = np.zeros(len(labels), bool)
    np.logical_or.at(wrong, turn[turn >= 0], ~right[turn >= 0])
    seen[turn[turn >= 0]] = True
    out = {}
    for label in sorted(set(labels)):
        mine = seen & np.array([x == label for x in labels])
        if mine.any():
            out[label] = (float(1 - wrong[mine].mean()), int(mine.sum()))
    return out


def evaluate(model: Model, sets: dict, mode: Mode, tokens: int = TOKENS, replay: bool = True) -> dict:
    """sets: name -> (rows, labels). Returns name -> label -> {accuracy, error, n} (and the same with replay)."""
    report: dict = {}
    for name, (rows, labels) in sets.items():
        right, loss = right_tokens(model, rows, mode, tokens)
        entry = {"loss": round(loss, 4)}
        for label, (share, n) in score(rows, right, labels).items():
            error = (share * (1 - share) / n) ** 0.5
            entry[label] = {"accuracy": round(share, 4), "error": round(error, 4), "n": n}
        if replay:
            cut, _ = right_tokens(model, {**rows, "decoder_seg": replay_cut(rows)}, mode, tokens)
            for label, (share, n) in score(rows, cut, labels).items():
                entry[label]["with_replay"] = round(share, 4)
        report[name] = entry
    return report


def build_sets(corpus: str, tokenizer: str, items: int, seed: int = 4711, names: list[str] | None = None,
               length: int = 0) -> dict:
    """Packed held-out sets; `length` makes all rows that long (one shape, one compilation). Every set is made by a
    process of its own: a trainer waits for them."""
    out = {}
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        for i, (name, (usual, *_)) in enumerate(held_out_sets(Generators(corpus)).items()):
            if not names or name in names:
                count = items if usual <= 1024 else max(32, items // 2)
                out[name] = pool.submit(held_out_rows, corpus, tokenizer, name, length, count, seed + i)
        return {name: rows.result() for name, rows in out.items()}


def table(report: dict) -> str:
    lines = []
    for name, entry in report.items():
        for label, r in entry.items():
            if label != "loss":
                replay = f"  replay {100 * r['with_replay']:5.1f}" if "with_replay" in r else ""
                lines.append(f"{name:45s} {label:7s} {100 * r['accuracy']:5.1f} ± {100 * r['error']:.1f} %  n {r['n']:5d}{replay}")
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
