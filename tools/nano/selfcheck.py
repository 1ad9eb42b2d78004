"""Quick checks of the trainer's own parts; no framework, no files needed.

    python -m nano.selfcheck            # number formats, kernels' plain twins, export round trip; seconds on a CPU
    python -m nano.selfcheck --corpus DIR --tokenizer FILE      # and 20,000 items of all generators

On a machine with a GPU the Triton kernels and the compiled chains are compared with their plain twins as well.
"""
from __future__ import annotations

import argparse
import contextlib
import fractions
import functools
import io
import pathlib
import tempfile

import torch

from . import attention, average, chains, check_data, checkpoint, draft, kernels, quant
from .config import MINIATURE, NANO
from .data import open_sums, pack, phrases
from .data.base import Item, Source
from .draft_model import draft_params, draft_views, with_drafts
from .engram import bucket_primes
from .kernels import visible_mask, window_mask
from .model import Batch, Mode, Model
from .params import Params

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def tiny_config() -> dict:
    """nano in miniature: the same layer plan with short vectors."""
    c = {**NANO, **MINIATURE, "vocab_size": 64}
    c["engram_compressed_vocab_size"] = c["vocab_size"]
    c["engram_num_embeddings"] = [sum(p) for p in bucket_primes(c)]
    return c


def tiny_batch(c: dict, rows: int = 2, length: int = 64, device: str = "cpu") -> Batch:
    g = torch.Generator().manual_seed(3)
    ids = torch.randint(3, c["vocab_size"], (rows, length), generator=g)
    doc = (torch.arange(length) // 24).int().repeat(rows, 1)
    pos = (torch.arange(length) % 24).int().repeat(rows, 1)
    seg = doc * 2 + (pos >= 13).int()
    target = torch.roll(ids, -1, 1)
    weight = (pos < 20).float()
    return Batch(*(t.to(device) for t in (ids, pos, doc, doc, seg, target, weight)))


def check_formats() -> None:
    x = torch.randn(64, 128, generator=torch.Generator().manual_seed(1)) * 3
    known = torch.tensor([0.0, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 0.26, -2.4])
    assert quant.round_e2m1(known).tolist() == [0, 0, 1, 1, 2, 2, 4, 4, 0.5, -2]
    codes = [quant.scale_for(torch.tensor([a]), 448.0).view(torch.int32).item() >> 23 for a in (1, 448, 449, 3.5, 0.875, 6, 1e-4)]
    assert codes == [119, 127, 128, 120, 118, 121, 105], codes
    assert torch.equal(quant.q8(quant.q8(x)), quant.q8(x))
    for value, pack in ((quant.fp8_weight, quant.pack_fp8), (quant.fp4_weight, quant.pack_fp4), (quant.table_weight, quant.pack_table)):
        w = value(x)
        assert torch.equal(value(w), w), pack.__name__
        assert torch.equal(quant.unpack(*pack(x)), w) and torch.equal(quant.unpack(*pack(w)), w), pack.__name__


def check_attention_gradient() -> None:
    torch.manual_seed(0)
    rows, length, heads, dim, window = 1, 16, 2, 4, 4
    doc = (torch.arange(length) // 8).repeat(rows, 1).int()
    for ratio in (0, 2, 1):
        leaves = [torch.randn(rows, length, heads, dim), torch.randn(rows, length, dim), torch.randn(heads)]
        entries = torch.randn(rows, length // ratio, dim) if ratio else None
        inputs = [t.requires_grad_() for t in (*leaves, *([entries] if ratio else []))]
        q, kv, sink = inputs[:3]
        keys, mask = kv, window_mask(doc, window)
        slots = (torch.arange(length) // window - 1).unsqueeze(1) * window + torch.arange(2 * window)
        dense = torch.zeros(rows, length, length, dtype=torch.bool)
        dense[0].scatter_(1, slots.clamp(0, length - 1), mask[0])
        if ratio:
            keys, dense = torch.cat([kv, inputs[3]], 1), torch.cat([dense, visible_mask(doc, ratio)], -1)
        score = torch.einsum("blhd,bnd->blhn", q, keys) * dim ** -0.5
        score = score.masked_fill(~dense.unsqueeze(2), float("-inf"))
        score = torch.cat([score, sink.view(1, 1, -1, 1).expand(rows, length, heads, 1)], -1)
        want = torch.einsum("blhn,bnd->blhd", score.softmax(-1)[..., :-1], keys)
        got, _ = attention.Attend.apply(q, kv, inputs[3] if ratio else None, sink, doc, doc, None, ratio, window)
        g = torch.randn_like(want)
        for a, b in zip(torch.autograd.grad(want, inputs, g), torch.autograd.grad(got, inputs, g)):
            assert torch.allclose(a, b, atol=1e-5), ratio


def check_spans() -> None:
    """Long rows computed span by span give what they give as a whole."""
    c, results, kept = tiny_config(), {}, (attention.WHOLE, attention.SPAN)
    modes = [Mode(False, False, False)] + ([Mode(False, False, exact_ties=True)] if DEVICE == "cpu" else [])
    for attention.WHOLE, attention.SPAN in ((4096, 2048), (32, 32)):
        params = Params(c, DEVICE, seed=5)
        network = Model(params, list(range(c["vocab_size"])))
        for mode in modes:
            params.zero_grad()
            loss, out = network.loss(tiny_batch(c, length=128, device=DEVICE), mode)
            (loss + out.index_loss).backward()
            results.setdefault(mode, []).append([loss.detach(), out.index_loss.detach(), out.logits.detach(),
                                                 *(g.grad.clone() for g in params.groups.values())])
    attention.WHOLE, attention.SPAN = kept
    for whole, parts in results.values():
        for a, b in zip(whole, parts):
            assert torch.allclose(a, b, atol=1e-5 * float(1 + a.abs().max())), (a - b).abs().max()


def check_round_trip() -> None:
    """What is exported, read back, gives the same losses as the quantised working copies in training."""
    c = tiny_config()
    with tempfile.TemporaryDirectory() as folder:
        params = Params(c, seed=5)
        params.refresh(True)
        network = Model(params, list(range(c["vocab_size"])))
        batch = tiny_batch(c)
        loss, out = network.loss(batch, Mode(exact_ties=True))
        (loss + out.index_loss).backward()
        for g in params.groups.values():
            assert g.rule == "none" or torch.isfinite(g.grad).all() and g.grad.abs().sum() > 0, g.name
        (tokenizer := tempfile.NamedTemporaryFile("w", suffix=".json")).write("{}")
        checkpoint.save(params, folder, tokenizer.name, shards=2)
        again = Params(c, seed=6)
        checkpoint.load(again, folder)
        same, _ = Model(again, list(range(c["vocab_size"]))).loss(batch, Mode(exact_ties=True))
        assert torch.equal(loss, same), (loss, same)


def check_average() -> None:
    """The ends of an average are the two models, between them weights lie between theirs, draft blocks stay as they were."""
    def read(directory: pathlib.Path) -> dict[str, torch.Tensor]:
        params = Params(checkpoint.read_config(directory))
        checkpoint.load(params, directory)
        return {name: g.master for name, g in params.groups.items()}

    c = tiny_config()
    with tempfile.TemporaryDirectory() as folder:
        plain, first, second = (pathlib.Path(folder) / name for name in ("plain", "first", "second"))
        (tokenizer := pathlib.Path(folder) / "tokenizer.json").write_text("{}")
        checkpoint.save(Params(c, seed=5), first, tokenizer, shards=2)
        checkpoint.save(Params(c, seed=6), plain, tokenizer, shards=2)
        drafts = checkpoint.encode(draft_views(draft_params(with_drafts(c, 3), seed=7)))
        draft.write(drafts, with_drafts(c, 3), plain, second)
        start, end, found = read(first), read(second), {}
        for share in (0, 0.25, 1):
            out = pathlib.Path(folder) / f"share-{share}"
            average.save(average.averaged(first, second, share), second, out)
            found[share] = read(out)
            kept = draft.draft_tensors(out)
            assert kept.keys() == drafts.keys()
            assert all(torch.equal(kept[name].view(torch.uint8), drafts[name].view(torch.uint8)) for name in kept)
    for name in start:
        assert torch.equal(found[0][name], start[name]) and torch.equal(found[1][name], end[name]), name
        exact = 0.75 * start[name] + 0.25 * end[name]
        assert (found[0.25][name] - exact).abs().max() <= exact.abs().max() / 4, name   # FP4 next to its largest value


def check_phrases() -> None:
    """Composed wordings: their number, and none that is held out; the steps of sums are true."""
    src = Source(1)
    assert phrases.forms("[a|b [c|d]] e[ f|]") == 6
    assert {phrases.spoken(src, "[a|b [c|d]] e") for _ in range(200)} == {"a e", "b c e", "b d e"}
    assert phrases.bare("Hello, {N}! Are you OK?") == "hello _ are you ok"
    assert {phrases.known(src, "[Go|Stop|Wait].", frozenset({"stop"})) for _ in range(100)} == {"Go.", "Wait."}
    assert phrases.tidy("a  b , c .") == "a b, c."
    for _ in range(3000):
        op, a, b = open_sums.operands(src)
        values = {fractions.Fraction(eval(side, {}, {})) if "/" not in side else sum(divided(p) for p in side.split(" + "))
                  for side in open_sums.steps(op, a, b).split(" = ")}
        assert len(values) == 1, (op, a, b)
        op, a, b = open_sums.long_operands(src)
        text = open_sums.long_steps(op, a, b)
        assert text.endswith(f"= {eval(f'{a} {op} {b}', {}, {})}"), (op, a, b)
        for part in text.replace(", so ", ". ").split(". "):
            assert len({eval(side, {}, {}) for side in part.split(" = ")}) == 1, part


class Failing:
    """Generators of which one item in `every` cannot be made."""

    def __init__(self, every: int):
        self.every, self.count = every, 0

    def family(self, src: Source, mix: str) -> str:
        return "sum"

    def make(self, family: str, src: Source, longest: int) -> Item:
        self.count += 1
        if self.count % self.every == 0:
            raise IndexError("list index out of range")
        return Item("sum", [], effort=self.count)


def check_faults() -> None:
    """An item that cannot be made is left out; too many of them are an error."""
    kept, pack.encode = pack.encode, lambda item, encoder: item.effort
    try:
        with contextlib.redirect_stderr(io.StringIO()) as said:
            drawing = pack.Drawing(Failing(30000), None)
            assert [drawing.next(Source(1), "open", "batch 1") for _ in range(59000)][-1] == 59001 and drawing.failed == 1
            try:
                drawing = pack.Drawing(Failing(2), None)
                for _ in range(100):
                    drawing.next(Source(1), "open", "batch 1")
                assert False, "faults without end"
            except pack.TooManyFaults as e:
                assert drawing.failed == 11 and "sum, batch 1" in str(e)
        assert "an item is left out (1 of 30000): sum, batch 1: IndexError" in said.getvalue()
    finally:
        pack.encode = kept


def divided(text: str) -> fractions.Fraction:
    a, b = text.split(" / ")
    return fractions.Fraction(int(a), int(b))


def check_gpu() -> None:
    """Triton and compiled paths against plain PyTorch, values and gradients."""
    c = tiny_config()
    results = []
    for plain in (True, False):
        chains.on_gpu = kernels.on_gpu = (lambda t: False) if plain else (lambda t: t.is_cuda)
        chains.COMPILE = not plain
        params = Params(c, DEVICE, torch.bfloat16, seed=5)
        network = Model(params, list(range(c["vocab_size"])))
        for mode in (Mode(False, False, False), Mode(exact_ties=True)):
            params.refresh(mode.cache_quant)
            params.zero_grad()
            loss, out = network.loss(tiny_batch(c, device=DEVICE), mode)
            (loss + out.index_loss).backward()
            grads = {g.name: g.grad.float().clone() for g in params.groups.values()}
            results.append((float(loss.detach()), float(out.index_loss.detach()), grads))
    for name, a, b in (("plain arithmetic", results[0], results[2]), ("everything on", results[1], results[3])):
        worst = min((float(torch.nn.functional.cosine_similarity(a[2][k].flatten(), b[2][k].flatten(), 0)), k)
                    for k in a[2] if a[2][k].abs().sum() > 0)
        print(f"  GPU, {name}: loss {a[0]:.4f} / {b[0]:.4f}, index {a[1]:.4f} / {b[1]:.4f}, worst gradient cosine {worst}")
        assert abs(a[0] - b[0]) < 0.05
    x = torch.randn(256, 128, device=DEVICE) * 2
    compiled = torch.compile(lambda t: (quant.q8(t), quant.q4mx(t), quant.q4nv(t)))(x)
    for a, b in zip(compiled, (quant.q8(x), quant.q4mx(x), quant.q4nv(x))):
        assert (a != b).float().mean() < 1e-3, (a != b).float().mean()
    logits = torch.randn(1000, 4, 4, device=DEVICE, requires_grad=True)
    g = torch.randn_like(logits)
    a, b = kernels.sinkhorn_plain(logits, 20, 1e-6), kernels.Sinkhorn.apply(logits, 20, 1e-6)
    assert torch.allclose(a, b, atol=1e-6)
    assert torch.allclose(*(torch.autograd.grad(t, logits, g)[0] for t in (a, b)), atol=1e-5)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--corpus")
    p.add_argument("--tokenizer")
    a = p.parse_args()
    checks = [check_formats, check_attention_gradient, check_spans, check_round_trip, check_average, check_phrases, check_faults]
    checks += [check_gpu] if DEVICE == "cuda" else []
    if a.corpus:
        checks.append(functools.update_wrapper(functools.partial(check_data.check_generators, a.corpus, a.tokenizer), check_data.check_generators))
    for check in checks:
        check()
        print(f"{check.__name__}: fine", flush=True)
    print(f"{len(checks)} passed, 0 failed")


if __name__ == "__main__":
    main()
