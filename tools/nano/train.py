"""Trains nano on one GPU.

    python -m nano.train --corpus DIR --tokenizer FILE --out DIR --seconds 1200            # from nothing, both phases
    python -m nano.train ... --init-from MODEL_DIR --phases more --seconds 1080            # continue a released file
    python -m nano.train ... --resume STATE.pt                                             # continue an interrupted run

Phase "short" trains rows of 1,024 tokens with plain arithmetic and every entry visible; phase "long" rows of 4,096 with
everything an engine does: quantised weights and caches, Q8 activations, top-k selection, simulated replay cuts. "more"
is "long" with another mix, to go on from a trained model. The learning rate follows the clock, which a resumed run
continues: constant for the first half, then linear to 3 %.

OUT receives log.jsonl, the newest checkpoint (OUT/model) and, with --save-state, OUT/state.pt with everything needed to
resume: masters, optimiser state and the number of the next batch (batches are functions of seed and number).
"""
from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import time
from dataclasses import dataclass

import torch

from . import checkpoint
from .config import NANO
from .data.pack import Feed, Stage
from .engram import bucket_primes, compressed_token_map
from .evaluate import build_sets, evaluate, table, to_batch
from .generate import samples
from .model import Mode, Model
from .optim import Optimizer
from .params import Params
from .tokenizer import Encoder

WARM_UP_STEPS = 80
FINAL_RATE = 0.03


@dataclass(frozen=True)
class Phase:
    stage: Stage
    mode: Mode
    quantise: bool          # weights on the file's grid
    share: float            # of the time


PLAIN, FULL = Mode(cache_quant=False, act_quant=False, select=False), Mode()
PHASES = {
    "short": Phase(Stage("short", "short", 1024, replay=0.05), PLAIN, False, 0.42),
    "long": Phase(Stage("long", "long", 4096, replay=0.35), FULL, True, 0.58),
    "more": Phase(Stage("more", "more", 4096, replay=0.35), FULL, True, 1.0),
}
# Small held-out sets that are looked at while training.
WATCHED = ["chat, known intents in new wordings", "knowledge", "sums", "two-step problems, thinking", "tools",
           "tools, new tools and wordings", "JSON", "recall at 250 tokens"]
WATCHED_LONG = ["recall at 1,000 tokens", "recall at 3,500 tokens"]


def configuration(tokenizer: str) -> tuple[dict, list[int]]:
    """nano's text_config completed by what the tokenizer decides, and the compressed token map."""
    c = dict(NANO)
    mapping, c["engram_compressed_vocab_size"] = compressed_token_map(tokenizer, c["vocab_size"])
    c["engram_num_embeddings"] = [sum(primes) for primes in bucket_primes(c)]
    return c, mapping


class Run:
    """One training run: model, optimiser, data and clock."""

    def __init__(self, a: argparse.Namespace):
        self.a, self.out = a, pathlib.Path(a.out)
        self.out.mkdir(parents=True, exist_ok=True)
        self.phases = [PHASES[name] for name in a.phases]
        if a.length:  # small tests
            self.phases = [Phase(Stage(p.stage.name, "short", a.length, p.stage.replay), p.mode, p.quantise, p.share)
                           for p in self.phases]
        c, mapping = configuration(a.tokenizer)
        self.params = Params(c, a.device, torch.bfloat16 if a.device == "cuda" else torch.float32, a.seed)
        if a.init_from:
            checkpoint.load(self.params, a.init_from)
        self.model, self.optimizer = Model(self.params, mapping), Optimizer(self.params)
        self.step, self.tokens, self.elapsed, self.phase = 0, 0, 0.0, 0
        if a.resume:
            self.restore(a.resume)
        self.feed = Feed(a.workers, a.seed, self.step, a.corpus, a.tokenizer, str(pathlib.Path(a.corpus) / "english.npy"),
                         [p.stage for p in self.phases], a.tokens, self.phase)
        self.log_file = (self.out / "log.jsonl").open("a")
        self.sets: dict[int, dict] = {}
        self.load = torch.zeros(c["num_hidden_layers"], c["n_routed_experts"], device=a.device)

    # ---- the clock --------------------------------------------------------------------------------------------------

    def schedule(self) -> float:
        """Share of the full learning rate."""
        progress = min(1.0, self.elapsed / self.a.seconds)
        decay = 1.0 if progress < 0.5 else 1 - (1 - FINAL_RATE) * (progress - 0.5) / 0.5
        return self.a.rate * decay * min(1.0, (self.step + 1) / WARM_UP_STEPS)

    def phase_ends(self) -> float:
        shares = [p.share for p in self.phases]
        return self.a.seconds * sum(shares[:self.phase + 1]) / sum(shares)

    # ---- records ----------------------------------------------------------------------------------------------------

    def log(self, **record) -> None:
        line = json.dumps({"step": self.step, "mtokens": round(self.tokens / 1e6, 2), "seconds": round(self.elapsed, 1),
                           "phase": self.phases[self.phase].stage.name, **record})
        print(line, flush=True)
        self.log_file.write(line + "\n")
        self.log_file.flush()

    def export(self) -> None:
        """Writes the checkpoint beside the last one, then swaps, so that there is always a whole one."""
        fresh, place = self.out / "model.new", self.out / "model"
        shutil.rmtree(fresh, ignore_errors=True)
        checkpoint.save(self.params, fresh, self.a.tokenizer)
        shutil.rmtree(place, ignore_errors=True)
        fresh.rename(place)

    def save(self) -> None:
        state = {"masters": {g.name: g.master for g in self.params.groups.values()}, "optimizer": self.optimizer.state(),
                 "step": self.step, "tokens": self.tokens, "elapsed": self.elapsed, "phase": self.phase}
        torch.save(state, self.out / "state.new")
        (self.out / "state.new").rename(self.out / "state.pt")

    def restore(self, file: str) -> None:
        state = torch.load(file, map_location=self.a.device)
        for g in self.params.groups.values():
            g.master.copy_(state["masters"][g.name])
        self.optimizer.restore(state["optimizer"])
        self.step, self.tokens = state["step"], state["tokens"]
        self.elapsed, self.phase = state["elapsed"], state["phase"]

    def watch(self) -> None:
        """A quick look at held-out accuracy, in the arithmetic of the current phase."""
        p = self.phases[self.phase]
        if self.phase not in self.sets:
            long = p.stage.length >= 4096
            self.sets[self.phase] = build_sets(self.a.corpus, self.a.tokenizer, self.a.watch_items,
                                               names=WATCHED + (WATCHED_LONG if long else []), length=p.stage.length)
        report = evaluate(self.model, self.sets[self.phase], p.mode, self.a.tokens, replay=False)
        self.log(watch={f"{name}: {label}": r["accuracy"] for name, e in report.items() for label, r in e.items()
                        if label != "loss"})

    # ---- training ---------------------------------------------------------------------------------------------------

    def one_step(self, p: Phase, totals: torch.Tensor) -> None:
        batch = to_batch(self.feed.next(), self.params.device)
        self.params.zero_grad()
        loss, out = self.model.loss(batch, p.mode)
        (loss + out.index_loss).backward()
        self.optimizer.step(self.schedule())
        self.load.lerp_(out.load, 0.1)
        self.optimizer.balance(out.load)
        self.params.refresh(p.quantise)
        totals += torch.stack([loss.detach(), out.index_loss.detach(), torch.ones_like(loss)])
        self.step += 1
        self.tokens += batch.ids.numel()

    def run(self) -> None:
        a, totals = self.a, torch.zeros(3, device=self.params.device)
        next_export, next_watch, reported = self.elapsed + a.export_every, self.elapsed + a.watch_every, time.time()
        self.params.refresh(self.phases[self.phase].quantise)
        first_in_phase = True
        while self.elapsed < a.seconds and (not a.steps or self.step < a.steps):
            p = self.phases[self.phase]
            started = time.time()
            self.one_step(p, totals)
            if first_in_phase:
                self.sync()
                self.log(compile=round(time.time() - started, 1), memory=self.memory())
                first_in_phase, started = False, time.time()
            if self.step % a.log_every == 0:
                ce, index, n = totals.tolist()
                now = time.time()
                self.log(loss=round(ce / n, 4), index_loss=round(index / n, 4), rate=round(self.schedule(), 4),
                         tokens_per_second=round(n * a.tokens / (now - reported)), load_max=round(float(self.load.max()), 3),
                         load_min=round(float(self.load.min()), 3), queue=self.feed.queue.qsize())
                totals.zero_()
                reported = now
            self.elapsed += time.time() - started
            if self.elapsed >= next_watch:
                next_watch += a.watch_every
                started = time.time()
                self.watch()
                self.elapsed += time.time() - started
                reported = time.time()
            if self.elapsed >= next_export:
                next_export += a.export_every
                started = time.time()
                self.export()
                if a.save_state:
                    self.save()
                self.elapsed += time.time() - started
                reported = time.time()
            if self.elapsed >= self.phase_ends() and self.phase + 1 < len(self.phases):
                self.phase += 1
                self.feed.switch(self.phase)
                self.params.refresh(self.phases[self.phase].quantise)
                first_in_phase = True
        self.sync()
        self.export()
        if a.save_state:
            self.save()
        self.log(finished=True, memory=self.memory())
        self.feed.close()

    def sync(self) -> None:
        if self.a.device == "cuda":
            torch.cuda.synchronize()

    def memory(self) -> float:
        return round(torch.cuda.max_memory_allocated() / 2 ** 30, 1) if self.a.device == "cuda" else 0.0


def arguments() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--corpus", required=True, help="folder written by nano.corpus and nano.tokenizer")
    p.add_argument("--tokenizer", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--seconds", type=float, required=True, help="time for steps, looks and exports")
    p.add_argument("--phases", nargs="+", default=["short", "long"], choices=list(PHASES))
    p.add_argument("--rate", type=float, default=1.0, help="factor on all learning rates")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--tokens", type=int, default=65536, help="tokens a step")
    p.add_argument("--length", type=int, default=0, help="row length of every phase (0: the phase's own)")
    p.add_argument("--steps", type=int, default=0, help="stop after so many steps")
    p.add_argument("--workers", type=int, default=12)
    p.add_argument("--init-from", help="checkpoint directory to start from")
    p.add_argument("--resume", help="state.pt of an interrupted run")
    p.add_argument("--save-state", action="store_true")
    p.add_argument("--export-every", type=float, default=240)
    p.add_argument("--watch-every", type=float, default=90)
    p.add_argument("--watch-items", type=int, default=128)
    p.add_argument("--log-every", type=int, default=25)
    p.add_argument("--final-items", type=int, default=512, help="items of each held-out set at the end (0: none)")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return p.parse_args()


def main() -> None:
    a = arguments()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    torch._dynamo.config.recompile_limit = 64
    torch.manual_seed(a.seed)
    run = Run(a)
    run.run()
    if a.final_items:
        # the numbers that are reported come from the file, read back
        checkpoint.load(run.params, run.out / "model")
        length = run.phases[-1].stage.length
        sets = build_sets(a.corpus, a.tokenizer, a.final_items, length=length)
        report = evaluate(run.model, sets, FULL, a.tokens)
        (run.out / "evaluation.json").write_text(json.dumps(report, indent=1) + "\n")
        print(table(report), flush=True)
        text = samples(run.model, Encoder(a.tokenizer))
        (run.out / "samples.txt").write_text(text + "\n")
        print(text, flush=True)


if __name__ == "__main__":
    main()
