"""Trains draft blocks for a released model, which stays as it is, and writes the model with them.

    python -m nano.draft --init-from MODEL_DIR --corpus DIR --tokenizer FILE --out DIR --seconds 200
    python -m nano.draft ... --resume STATE.pt                                 # continue an interrupted run
    python -m nano.draft ... --seconds 0                                       # evaluate the blocks that MODEL_DIR has

The backbone reads the training data once a batch, without gradients, as an engine does (quantised weights, caches and
inputs, selection). Where the data is its own greedy answer (draft_answers.py), five drafts at each of n random anchors in
every block of 128 tokens are trained: cross entropy against its choices and against its whole distribution, half and half,
with a weight that falls by POSITION_DECAY from draft to draft. The confidence head learns, on detached inputs, whether a
draft is accepted when all before it are. Rates, optimisers and schedule are the trainer's.

OUT receives log.jsonl, the newest checkpoint (OUT/model: the shards of MODEL_DIR, one for the blocks), evaluation.json and,
with --save-state, OUT/state.pt.
"""
from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import time
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from . import chains, checkpoint
from .chatfmt import SYSTEM
from .checkpoint import load_model
from .config import config_json
from .data.pack import Feed, Stage
from .draft_answers import Targets, read, sampled, targets
from .draft_evaluate import evaluate, set_names, table
from .draft_model import DraftModel, Drafts, draft_params, draft_views, with_drafts
from .evaluate import build_sets, to_batch
from .model import Mode, Model
from .optim import Optimizer
from .params import Params
from .tokenizer import Encoder

POSITION_DECAY, SOFT_SHARE = 0.9, 0.5
WARM_UP_STEPS, FINAL_RATE = 60, 0.03


# ---- the file ----------------------------------------------------------------------------------------------------------

def copy_backbone(source: pathlib.Path, out: pathlib.Path) -> tuple[list[str], dict[str, str], int]:
    """Copies the backbone's shards under names that count one more: (their names, tensor -> name, bytes of tensors). Files
    without draft tensors are copied byte for byte."""
    kept = []
    for file in sorted(source.glob("model-*.safetensors")):
        with safe_open(file, "pt") as f:
            tensors = {k: f.get_tensor(k) for k in f.keys()}
        backbone = {k: t for k, t in tensors.items() if not k.startswith("mtp.")}
        if backbone:
            kept.append((file, backbone, len(backbone) == len(tensors)))
    names, where, size = [], {}, 0
    for i, (file, tensors, whole) in enumerate(kept):
        name = f"model-{i + 1:05d}-of-{len(kept) + 1:05d}.safetensors"
        shutil.copyfile(file, out / name) if whole else save_file(tensors, out / name)
        names.append(name)
        where.update({k: name for k in tensors})
        size += sum(t.numel() * t.element_size() for t in tensors.values())
    return names, where, size


def write(tensors: dict[str, Tensor], c: dict, source: pathlib.Path, out: pathlib.Path) -> None:
    """Writes the checkpoint directory of the model in `source` with the draft blocks in tensors; c is its text_config."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    names, where, size = copy_backbone(source, out)
    name = f"model-{len(names) + 1:05d}-of-{len(names) + 1:05d}.safetensors"
    save_file({k: t.contiguous() for k, t in tensors.items()}, out / name)
    where.update({k: name for k in tensors})
    size += sum(t.numel() * t.element_size() for t in tensors.values())
    (out / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": size}, "weight_map": where}, indent=0) + "\n")
    (out / "config.json").write_text(json.dumps(config_json(c), indent=2) + "\n")
    shutil.copyfile(source / "tokenizer.json", out / "tokenizer.json")


def save(params: Params, c: dict, source: pathlib.Path, out: pathlib.Path) -> None:
    """Writes the checkpoint directory of the model in `source` with these draft blocks; c is its text_config."""
    write(checkpoint.encode(draft_views(params)), c, source, out)


def draft_tensors(directory: pathlib.Path) -> dict[str, Tensor]:
    """The draft blocks of a checkpoint as its files hold them; none where it has none."""
    found = {}
    for file in sorted(directory.glob("model-*.safetensors")):
        with safe_open(file, "pt") as f:
            found.update({k: f.get_tensor(k) for k in f.keys() if k.startswith("mtp.")})
    return found


def load(directory: pathlib.Path, c: dict, backbone: Model, seed: int = 0) -> DraftModel:
    """The draft blocks of a checkpoint, or new ones where it has none, on the backbone's device in its precision."""
    params = draft_params(c, backbone.p.device, backbone.dtype, seed)
    if checkpoint.read_config(directory)["num_nextn_predict_layers"]:
        checkpoint.load(params, directory, draft_views(params))
    return DraftModel(params, backbone)


# ---- losses ------------------------------------------------------------------------------------------------------------

@chains.fused
def draft_loss(logits: Tensor, teacher: Tensor, label: Tensor, weight: Tensor, soft: float):
    """Sum of cross entropies of rows of logits [R, vocab]: the share `soft` against the distribution of the teacher's
    logits, the rest against the label."""
    chosen = torch.arange(logits.shape[1], device=logits.device) == label.unsqueeze(1)
    target = soft * torch.softmax(teacher, -1) + (1 - soft) * chosen
    return -((target * torch.log_softmax(logits, -1)).sum(-1) * weight).sum()


@chains.fused
def confidence_loss(logit: Tensor, accepted: Tensor, counted: Tensor):
    return (F.binary_cross_entropy_with_logits(logit, accepted.float(), reduction="none") * counted).sum()


def losses(drafts: Drafts, t: Targets, teacher: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """teacher: Answers.logits. Returns (mean cross entropy, mean confidence loss, [accepted drafts an anchor, first draft
    right, anchors])."""
    decay = POSITION_DECAY ** torch.arange(t.labels.shape[1], device=t.labels.device)
    weight = (t.offered * decay).flatten()
    ce = draft_loss(drafts.logits.flatten(0, 1), teacher[t.place.flatten()], t.labels.flatten(), weight, SOFT_SHARE)
    ce = ce / weight.sum().clamp_min(1)
    with torch.no_grad():
        right = (drafts.logits.argmax(-1) == t.labels) & t.offered
        led = right.int().cumprod(1)
        counted = t.offered & F.pad(led[:, :-1] > 0, (1, 0), value=True)
        anchors = t.offered[:, 0].sum().float()
        seen = torch.stack([led.sum() / anchors.clamp_min(1), right[:, 0].sum() / anchors.clamp_min(1), anchors])
    confidence = confidence_loss(drafts.confidence.flatten(), right.flatten(), counted.flatten())
    return ce, confidence / counted.sum().clamp_min(1), seen


# ---- the run -----------------------------------------------------------------------------------------------------------

class Run:
    """One training run of draft blocks."""

    def __init__(self, a: argparse.Namespace):
        self.a, self.out, self.source = a, pathlib.Path(a.out), pathlib.Path(a.init_from)
        self.out.mkdir(parents=True, exist_ok=True)
        dtype = torch.bfloat16 if a.device.startswith("cuda") else torch.float32
        self.c = with_drafts(checkpoint.read_config(self.source), Encoder(a.tokenizer).control[SYSTEM])
        self.backbone = load_model(self.source, dtype, a.device)
        self.backbone.taps = self.c["dspark_target_layer_ids"]
        self.model = load(self.source, self.c, self.backbone, a.seed)
        self.params, self.mode = self.model.p, Mode()
        self.optimizer = Optimizer(self.params)
        self.step, self.tokens, self.elapsed = 0, 0, 0.0
        if a.resume:
            self.restore(a.resume)
        self.params.refresh(True)
        self.log_file = (self.out / "log.jsonl").open("a")

    def schedule(self) -> float:
        """Share of the full learning rate."""
        progress = min(1.0, self.elapsed / self.a.seconds)
        decay = 1.0 if progress < 0.5 else 1 - (1 - FINAL_RATE) * (progress - 0.5) / 0.5
        return self.a.rate * decay * min(1.0, (self.step + 1) / WARM_UP_STEPS)

    def log(self, **record) -> None:
        line = json.dumps({"step": self.step, "mtokens": round(self.tokens / 1e6, 2), "seconds": round(self.elapsed, 1), **record})
        print(line, flush=True)
        self.log_file.write(line + "\n")
        self.log_file.flush()

    def export(self) -> None:
        """Writes the checkpoint beside the last one, then swaps, so that there is always a whole one."""
        save(self.params, self.c, self.source, self.out / "model.new")
        shutil.rmtree(self.out / "model", ignore_errors=True)
        (self.out / "model.new").rename(self.out / "model")
        if self.a.save_state:
            state = {"masters": {g.name: g.master for g in self.params.groups.values()}, "step": self.step,
                     "optimizer": self.optimizer.state(), "tokens": self.tokens, "elapsed": self.elapsed}
            torch.save(state, self.out / "state.new")
            (self.out / "state.new").rename(self.out / "state.pt")

    def restore(self, file: str) -> None:
        state = torch.load(file, map_location=self.a.device)
        for g in self.params.groups.values():
            g.master.copy_(state["masters"][g.name])
        self.optimizer.restore(state["optimizer"])
        self.step, self.tokens, self.elapsed = state["step"], state["tokens"], state["elapsed"]

    def one_step(self, part: dict, totals: Tensor) -> None:
        batch = to_batch(part, self.params.device)
        generator = torch.Generator(self.params.device).manual_seed(self.a.seed * 1_000_003 + self.step)
        answers, tapped = read(self.backbone, batch, self.mode, self.a.strict)
        offered = answers.offered(self.c["dspark_block_size"])
        at = sampled(offered, self.c["sliding_window"], self.a.anchors, generator)
        t = targets(batch, answers, offered, at)
        self.params.zero_grad()
        drafts = self.model.forward(batch, tapped, at, t.tokens.view(*at.shape, -1), self.mode)
        ce, confidence, seen = losses(drafts, t, answers.logits)
        (ce + confidence).backward()
        self.optimizer.step(self.schedule())
        self.optimizer.balance(drafts.load)
        self.params.refresh(True)
        totals += torch.cat([torch.stack([ce.detach(), confidence.detach(), torch.ones_like(ce)]), seen])
        self.step += 1
        self.tokens += batch.ids.numel()

    def report(self, totals: Tensor, since: float) -> None:
        ce, confidence, n, accepted, first, anchors = totals.tolist()
        self.log(loss=round(ce / n, 4), confidence_loss=round(confidence / n, 4), accepted=round(accepted / n, 3),
                 first_draft=round(first / n, 4), anchors=round(anchors / n), rate=round(self.schedule(), 4),
                 tokens_per_second=round(n * self.a.tokens / (time.time() - since)))

    def train(self) -> None:
        a, totals = self.a, torch.zeros(6, device=self.params.device)
        feed = Feed(a.workers, a.seed, self.step, a.corpus, a.tokenizer, str(pathlib.Path(a.corpus) / "english.npy"),
                    [Stage(a.mix, a.mix, a.length, replay=0.35)], a.tokens)
        next_export, reported, first = self.elapsed + a.export_every, time.time(), True
        while self.elapsed < a.seconds and (not a.steps or self.step < a.steps):
            started = time.time()
            self.one_step(feed.next(), totals)
            if first:
                self.sync()
                self.log(compile=round(time.time() - started, 1), memory=self.memory())
                first, started, reported = False, time.time(), time.time()
            elif self.step % a.log_every == 0:
                self.report(totals, reported)
                totals.zero_()
                reported = time.time()
            self.elapsed += time.time() - started
            if self.elapsed >= next_export:
                next_export += a.export_every
                self.export()
        self.sync()
        feed.close()
        self.export()
        self.log(finished=True, memory=self.memory())

    def sync(self) -> None:
        if self.a.device.startswith("cuda"):
            torch.cuda.synchronize()

    def memory(self) -> float:
        return round(torch.cuda.max_memory_allocated() / 2 ** 30, 1) if self.a.device.startswith("cuda") else 0.0


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--init-from", required=True, help="checkpoint directory of the model")
    p.add_argument("--corpus", required=True, help="folder written by nano.corpus and nano.tokenizer")
    p.add_argument("--tokenizer", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--seconds", type=float, required=True, help="time for steps")
    p.add_argument("--rate", type=float, default=1.0, help="factor on all learning rates")
    p.add_argument("--seed", type=int, default=11)
    p.add_argument("--mix", default="open", help="mix of families, as in training")
    p.add_argument("--tokens", type=int, default=32768, help="tokens a step")
    p.add_argument("--length", type=int, default=4096, help="row length")
    p.add_argument("--anchors", type=int, default=32, help="anchors in every block of 128 tokens, a divisor of 128")
    p.add_argument("--strict", action="store_true", help="use answers up to the first deviation only")
    p.add_argument("--steps", type=int, default=0, help="stop after so many steps")
    p.add_argument("--workers", type=int, default=12)
    p.add_argument("--resume", help="state.pt of an interrupted run")
    p.add_argument("--save-state", action="store_true")
    p.add_argument("--export-every", type=float, default=120)
    p.add_argument("--log-every", type=int, default=25)
    p.add_argument("--final-items", type=int, default=256, help="items of each held-out set at the end (0: none)")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return p.parse_args()


def main() -> None:
    a = arguments()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    torch._dynamo.config.recompile_limit = 64
    torch.manual_seed(a.seed)
    with ThreadPoolExecutor(1) as beside:
        # the held-out sets are made by other processes while the blocks train
        sets = beside.submit(build_sets, a.corpus, a.tokenizer, a.final_items, names=set_names(a.length),
                             length=a.length) if a.final_items else None
        run = Run(a)
        if a.seconds:
            run.train()
            # the numbers that are reported come from the file, read back
            checkpoint.load(run.params, run.out / "model", draft_views(run.params))
        if sets:
            report = evaluate(run.model, run.backbone, sets.result(), run.mode, a.tokens, a.anchors)
            (run.out / "evaluation.json").write_text(json.dumps(report, indent=1) + "\n")
            print(table(report), flush=True)


if __name__ == "__main__":
    main()
