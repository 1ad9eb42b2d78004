"""What a trained model's accuracy owes to each part of its arithmetic: held-out accuracy with one thing changed at a time.

    python -m nano.ablate MODEL --corpus DIR [--items N] [--sets PATTERN ...] [--variants NAME ...] [--out FILE.json]

Prints one table. For every variant and held-out set: accuracy with its standard error, the difference against the first
variant with the standard error of the paired differences (the same answers are graded in all), and the bits for each byte
of held-out English. Nothing is trained: a model that learnt with a part may need it without being better for it.
"""
from __future__ import annotations

import argparse
import json
import pathlib
from dataclasses import dataclass

import numpy as np
import torch

from . import chains
from .checkpoint import load_model
from .evaluate import TOKENS, answers, build_sets, loss_entry, replay_cut, right_tokens
from .model import Mode, Model


@dataclass(frozen=True)
class Variant:
    mode: Mode = Mode()
    exact: bool = False             # activations in fp32
    replay: bool = False            # each answer's window cut 128 tokens before it


def variants(exact_ties: bool) -> dict[str, Variant]:
    def mode(**changed) -> Mode:
        return Mode(exact_ties=exact_ties, **changed)
    return {
        "as served": Variant(mode()),
        "bounded replay": Variant(mode(), replay=True),
        "fp32 activations": Variant(mode(), exact=True),
        "no Q8 inputs": Variant(mode(act_quant=False)),
        "fp32, no Q8 inputs": Variant(mode(act_quant=False), exact=True),
        "caches unquantised": Variant(mode(cache_quant=False)),
        "all entries read": Variant(mode(select=False)),
        "no Engram": Variant(mode(engram=False)),
    }


def graded(model: Model, variant: Variant, sets: dict, tokens: int) -> dict[str, dict]:
    """set -> {"right": array over its answers, "loss": ..., "bits_per_byte": ...}."""
    out = {}
    for name, (rows, labels) in sets.items():
        if variant.replay and labels:
            rows = {**rows, "decoder_seg": replay_cut(rows)}
        right, losses = right_tokens(model, rows, variant.mode, tokens)
        found = answers(rows, right, labels) if labels else {}
        out[name] = {**loss_entry(rows, losses),
                     "right": np.concatenate([*found.values(), np.zeros(0, bool)]).astype(np.float64)}
    return out


def compared(mine: dict, base: dict) -> dict:
    """set -> accuracy and difference, each with its standard error."""
    report = {}
    for name, entry in mine.items():
        result = {k: v for k, v in entry.items() if k != "right"}
        if n := len(entry["right"]):
            change = entry["right"] - base[name]["right"]
            result |= {"accuracy": float(entry["right"].mean()), "error": float(entry["right"].std() / n ** 0.5), "n": n,
                       "difference": float(change.mean()), "difference_error": float(change.std() / n ** 0.5)}
        report[name] = result
    return report


def table(report: dict[str, dict]) -> str:
    lines = ["| held-out set | n | " + " | ".join(report) + " |", "|---|---|" + "---|" * len(report)]
    first = next(iter(report))
    for name in report[first]:
        cells = []
        for variant, sets in report.items():
            r = sets[name]
            if "accuracy" not in r:
                cells.append(f"{r.get('bits_per_byte', float('nan')):.4f} bits per byte")
                continue
            cells.append(f"{100 * r['accuracy']:.1f} ± {100 * r['error']:.1f}")
            if variant != first:
                cells[-1] += f" ({100 * r['difference']:+.1f} ± {100 * r['difference_error']:.1f})"
        lines.append(f"| {name} | {report[first][name].get('n', '')} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("--corpus", required=True)
    p.add_argument("--items", type=int, default=512)
    p.add_argument("--sets", nargs="*", help="patterns of names of held-out sets")
    p.add_argument("--variants", nargs="*", choices=list(variants(False)), help="the first one is compared with")
    p.add_argument("--out")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return p.parse_args()


def main() -> None:
    a = arguments()
    on_gpu, directory = a.device.startswith("cuda"), pathlib.Path(a.model)
    chains.COMPILE = False  # most variants would compile everything anew
    sets = build_sets(a.corpus, str(directory / "tokenizer.json"), a.items, names=a.sets)
    models: dict[bool, Model] = {}
    known, results = variants(not on_gpu), {}
    for name in a.variants or known:
        variant = known[name]
        if variant.exact not in models:
            exact = variant.exact or not on_gpu
            models[variant.exact] = load_model(directory, torch.float32 if exact else torch.bfloat16, a.device)
        with torch.no_grad():
            results[name] = graded(models[variant.exact], variant, sets, TOKENS // 2 if on_gpu else 1024)
        print(name, flush=True)
    base = results[next(iter(results))]
    report = {name: compared(r, base) for name, r in results.items()}
    print(table(report))
    if a.out:
        pathlib.Path(a.out).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
