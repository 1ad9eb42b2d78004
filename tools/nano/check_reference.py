"""Compares the trainer's forward pass with an independent evaluation of the architecture.

    python -m nano.check_reference --oracle DIR [--checkpoint DIR] [--tokens N] [--seed S]

DIR holds reference.py, make_checkpoint.py and engram_map.py. Without --checkpoint, random checkpoints of the shapes
small, heads and long are made and compared; with it, that checkpoint on sample prompts. Both sides compute in fp32 on the CPU. A random
network amplifies single flipped roundings, so the figure to look at is the median row, next to the noise floor: what
remains between two reference runs whose embeddings differ by 1e-6.
"""
from __future__ import annotations

import argparse
import pathlib
import sys
import tempfile

import torch
from torch import Tensor

from .checkpoint import load_model, read_config
from .model import Batch, Mode

# A flipped rounding or a top-k near-tie moves a row by about this much; a wrong formula moves all rows by far more.
TOLERANCE = 2e-3


def single_row(ids: list[int], multiple: int, replay_at: int | None = None) -> Batch:
    """One conversation in one row, padded to a multiple of the window."""
    padded = torch.tensor([ids + [2] * (-len(ids) % multiple)])
    pos = torch.arange(padded.shape[1], dtype=torch.int32).unsqueeze(0)
    doc = (pos >= len(ids)).int()
    seg = doc if replay_at is None else doc + (pos >= replay_at).int()
    return Batch(padded, pos, doc, doc, seg)


def row_error(mine: Tensor, theirs: Tensor) -> Tensor:
    return (mine - theirs).square().mean(1).sqrt() / theirs.std()


def compare_drafts(directory: pathlib.Path, ids: list[int], reference) -> bool:
    """Draft blocks: logits and confidence at some positions, each draft told the reference's own predecessor. The taps
    come from each side's own backbone pass, with Q8 inputs off, and are compared as well."""
    from .draft import load
    theirs, ours = reference.Model(directory, False), load_model(directory)
    model, result, mode = load(directory, ours.c, ours), theirs.forward(ids), Mode(act_quant=False, exact_ties=True)
    k, window = ours.c["dspark_block_size"], ours.c["sliding_window"]
    batch = single_row(ids, window)
    places = [0, 1, window // 2, window - 1, window, len(ids) - 2, len(ids) - 1]
    want = [theirs.draft(result, p, ids[(p + 1) % len(ids)]) for p in places]
    at = torch.arange(0, batch.ids.numel(), window).unsqueeze(1).repeat(1, len(places))
    slots = [(p // window, i) for i, p in enumerate(places)]
    tokens = torch.zeros(*at.shape, k, dtype=torch.int64)
    for (block, i), p, (drafts, _, _) in zip(slots, places, want):
        at[block, i] = p
        tokens[block, i] = torch.tensor([ids[(p + 1) % len(ids)], *drafts[:-1]])
    with torch.no_grad():
        _, state = ours.hidden(batch, mode)
        got = model.forward(batch, state.tapped, at, tokens, mode)
    rows = [block * len(places) + i for block, i in slots]
    error = row_error(got.logits[rows].flatten(0, 1), torch.cat([w[1] for w in want]))
    confidence = (got.confidence[rows] - torch.stack([w[2] for w in want])).abs().max()
    taps = row_error(torch.cat(state.tapped, -1)[:len(ids)], result.hidden).median()
    fine = bool(error.median() <= TOLERANCE)
    print(f"  drafts: taps median {taps:.1e}  logits median {error.median():.1e}  max {error.max():.1e}  confidence max "
          f"{confidence:.1e}{'' if fine else '   <-- differs'}", flush=True)
    return fine


def prompt_ids(directory: pathlib.Path, count: int) -> list[int]:
    """Text that a trained model can read: sample prompts one after the other."""
    from .chatfmt import render
    from .generate import sample_prompts
    from .tokenizer import Encoder
    encoder, ids = Encoder(directory / "tokenizer.json"), []
    for _, arguments in sample_prompts():
        ids += [i for _, tokens in encoder.pieces(render(generate=True, **arguments)) for i in tokens]
    return ids[-count:]


def compare(directory: pathlib.Path, ids: list[int], reference) -> bool:
    """Prints the differences with and without Q8 inputs, and under decoder replay. True if all are at noise level."""
    good = True
    ours = load_model(directory)
    for act_quant in (False, True):
        theirs = reference.Model(directory, act_quant)
        floor = row_error(theirs.forward(ids, jitter=torch.Generator().manual_seed(1)).logits,
                          theirs.forward(ids).logits).median()
        cut = max(0, len(ids) - ours.c["sliding_window"])
        for replay in (None, cut):
            want = theirs.forward(ids, decoder_start=replay or 0)
            batch = single_row(ids, ours.c["sliding_window"], replay)
            mode = Mode(act_quant=act_quant, exact_ties=True)
            with torch.no_grad():
                got = ours.forward(batch, mode).logits[want.rows]
            error = row_error(got, want.logits)
            agree = (got.argmax(1) == want.logits.argmax(1)).float().mean()
            fine = bool(error.median() <= max(TOLERANCE, 10 * floor) and agree >= 0.7)
            good &= fine
            print(f"  act_quant={act_quant!s:5} replay={'yes' if replay else 'no ':3} rows {len(error):4d}  median "
                  f"{error.median():.1e}  mean {error.mean():.1e}  max {error.max():.1e}  floor {floor:.1e}  "
                  f"argmax {100 * agree:.1f} %{'' if fine else '   <-- differs'}", flush=True)
    return good


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--oracle", required=True)
    p.add_argument("--checkpoint")
    p.add_argument("--tokens", type=int, default=0, help="length of the random sequence (0: by shape)")
    p.add_argument("--seed", type=int, default=7)
    a = p.parse_args()
    sys.path.insert(0, a.oracle)
    import reference
    generator = torch.Generator().manual_seed(a.seed)

    def random_ids(vocab: int, n: int) -> list[int]:
        return torch.randint(3, vocab, (n,), generator=generator).tolist()
    good = True
    if a.checkpoint:
        ids = prompt_ids(pathlib.Path(a.checkpoint), a.tokens or 400)
        good = compare(pathlib.Path(a.checkpoint), ids, reference)
        if read_config(a.checkpoint)["num_nextn_predict_layers"]:
            good &= compare_drafts(pathlib.Path(a.checkpoint), ids, reference)
    else:
        import make_checkpoint
        for shape, tokens in (("small", 170), ("heads", 300), ("long", 700)):
            with tempfile.TemporaryDirectory() as out:
                make_checkpoint.main(shape, a.seed, out, pathlib.Path(a.oracle) / "tokenizer-tiny.json")
                ids = random_ids(512, a.tokens or tokens)
                good &= compare(pathlib.Path(out), ids, reference)
                if read_config(out)["num_nextn_predict_layers"]:
                    good &= compare_drafts(pathlib.Path(out), ids, reference)
    print("agrees" if good else "DIFFERS")
    raise SystemExit(0 if good else 1)


if __name__ == "__main__":
    main()
