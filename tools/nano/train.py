"""Trains nano on the GPUs of one machine.

    python -m nano.train --corpus DIR --tokenizer FILE --out DIR --seconds 1200            # from nothing, both phases
    python -m nano.train ... --init-from MODEL_DIR --phases more --seconds 1080            # continue a released file
    python -m nano.train ... --resume STATE.pt                                             # continue an interrupted run
    python -m nano.train ... --gpus 2 --phases open far --shares 0.8 0.2                   # two GPUs, two phases
    python -m nano.train ... --phases short --stop-tokens 100 --no-engram                  # an ablation

Phase "short" trains rows of 1,024 tokens with plain arithmetic and every entry visible; phase "long" rows of 4,096 with
everything an engine does: quantised weights and caches, Q8 activations, top-k selection, simulated replay cuts. "more",
"open", "wide" and "far" are "long" with other mixes, "wide" in rows of 8,192 and "far" in rows of 16,384. The learning rate follows the clock, which a resumed
run continues: constant for the first half, then linear to 3 %. With --stop-tokens, rate, phases and end follow the number of
tokens instead, so that runs can be compared whatever else the machine does.

With --gpus N (or under torchrun) each GPU trains batches of its own and gradients are averaged: a step is N times as many
tokens. The first process alone keeps the clock, writes and evaluates.

OUT receives log.jsonl, status.json (how the run stands, rewritten with each line of the log), the newest checkpoint
(OUT/model) and, with --save-state, OUT/state.pt with everything needed to resume: masters, optimiser state and the number
of the next batch (batches are functions of seed and number).

SIGTERM, SIGINT or a file OUT/stop end a run after the step at hand, with a checkpoint; the exit status is 0. A failure in
any process ends all of them within half a minute, with a checkpoint where that is still possible; the exit status is 1.
"""
from __future__ import annotations

import argparse
import functools
import json
import os
import pathlib
import shutil
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import torch

from . import checkpoint, dense, parallel
from .config import MINIATURE, NANO
from .data.pack import Feed, Share, Stage
from .engram import bucket_primes, compressed_token_map
from .evaluate import build_sets, evaluate, graded, table, to_batch
from .generate import samples
from .model import Mode, Model
from .optim import Optimizer
from .parallel import FAILS, GOES_ON, STOPS, Requests, Team
from .params import Params
from .tokenizer import Encoder

WARM_UP_STEPS = 80
FINAL_RATE = 0.03
SHARE_EVERY = 200       # steps after which the leader's masters are taken over


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
    "open": Phase(Stage("open", "open", 4096, replay=0.35), FULL, True, 0.8),
    "wide": Phase(Stage("wide", "wide", 8192, replay=0.35), FULL, True, 0.2),
    "far": Phase(Stage("far", "far", 16384, replay=0.35), FULL, True, 0.2),
}
# Small held-out sets that are looked at while training, as far as they fit into the phase's rows.
WATCHED = ["chat, known intents in new wordings", "knowledge", "sums", "two-step problems, thinking", "tools",
           "tools, new tools and wordings", "JSON", "recall at *", "open: *"]


def configuration(tokenizer: str, engram: bool = True, window_only: bool = False, tiny: bool = False) -> tuple[dict, list[int]]:
    """nano's text_config completed by what the tokenizer decides, and the compressed token map. Without Engram, or with
    layers that read nothing but their window, for ablations; in miniature for tests."""
    c = {**NANO, **MINIATURE} if tiny else dict(NANO)
    if not engram:
        c["engram_layer_ids"] = []
    if window_only:
        c |= dict(compress_ratios=[0] * c["num_hidden_layers"], kv_source_layer_ids=[], index_source_layer_ids=[],
                  candidate_source_layer_id=-1)
    mapping, c["engram_compressed_vocab_size"] = compressed_token_map(tokenizer, c["vocab_size"])
    c["engram_num_embeddings"] = [sum(primes) for primes in bucket_primes(c)]
    return c, mapping


def chosen_phases(a: argparse.Namespace) -> list[Phase]:
    phases = [PHASES[name] for name in a.phases]
    if a.shares:
        phases = [replace(p, share=share) for p, share in zip(phases, a.shares, strict=True)]
    if a.length:  # small tests
        phases = [replace(p, stage=Stage(p.stage.name, "short", a.length, p.stage.replay)) for p in phases]
    return phases


class Run:
    """One training run: model, optimiser, data and clock."""

    def __init__(self, a: argparse.Namespace):
        self.a, self.out, self.team = a, pathlib.Path(a.out), Team(a.device)
        self.out.mkdir(parents=True, exist_ok=True)
        self.requests, self.failure = Requests(), None
        if self.team.leader:
            (self.out / "stop").unlink(missing_ok=True)
        self.phases = chosen_phases(a)
        self.build()
        self.optimizer = Optimizer(self.params)
        self.step, self.tokens, self.elapsed, self.phase = 0, 0, 0.0, 0
        if a.resume:
            self.restore(a.resume)
        self.team.share(self.params)
        self.feed = Feed(max(1, a.workers // self.team.world), a.seed, self.step, a.corpus, a.tokenizer,
                         str(pathlib.Path(a.corpus) / "english.npy"), [p.stage for p in self.phases], a.tokens, self.phase,
                         Share(self.team.rank, self.team.world))
        self.log_file = (self.out / "log.jsonl").open("a") if self.team.leader else None
        self.beside, self.final = ThreadPoolExecutor(2), None  # held-out sets are made while the run goes on
        self.writer, self.written = ThreadPoolExecutor(1), None  # so are checkpoints
        self.prepare()

    def build(self) -> None:
        """Parameters and model."""
        a, dtype = self.a, torch.bfloat16 if self.a.device == "cuda" else torch.float32
        c, mapping = configuration(a.tokenizer, a.engram, a.window_only, a.tiny)
        if a.dense:
            self.params = Params(c, a.device, dtype, a.seed, dense.groups_for(c["vocab_size"]))
            self.model = dense.DenseModel(self.params)
        else:
            self.params = Params(c, a.device, dtype, a.seed)
            self.model = Model(self.params, mapping)
        if a.init_from:
            checkpoint.load(self.params, a.init_from)

    # ---- the clock --------------------------------------------------------------------------------------------------

    def progress(self) -> float:
        """Share of the run that is done."""
        if self.a.stop_tokens:
            return self.tokens / (1e6 * self.a.stop_tokens)
        return self.elapsed / self.a.seconds

    def schedule(self) -> float:
        """Share of the full learning rate."""
        progress = min(1.0, self.progress())
        decay = 1.0 if progress < 0.5 else 1 - (1 - FINAL_RATE) * (progress - 0.5) / 0.5
        return self.a.rate * decay * min(1.0, (self.step + 1) / WARM_UP_STEPS)

    def phase_over(self) -> bool:
        shares = [p.share for p in self.phases]
        ends = sum(shares[:self.phase + 1]) / sum(shares)
        return self.phase + 1 < len(self.phases) and self.progress() >= ends

    # ---- records ----------------------------------------------------------------------------------------------------

    def log(self, **record) -> None:
        if not self.team.leader:
            return
        line = json.dumps({"step": self.step, "mtokens": round(self.tokens / 1e6, 2), "seconds": round(self.elapsed, 1),
                           "phase": self.phases[self.phase].stage.name, **record})
        print(line, flush=True)
        self.log_file.write(line + "\n")
        self.log_file.flush()
        self.status("running")

    def status(self, state: str, error: str = "") -> None:
        """Rewrites status.json. state: running, evaluating, finished, stopped or failed."""
        if not self.team.leader:
            return
        write_status(self.out, state=state, error=error, step=self.step, mtokens=round(self.tokens / 1e6, 2),
                     seconds=round(self.elapsed, 1), phase=self.phases[self.phase].stage.name)

    def keep(self) -> None:
        """Begins to write a checkpoint, of the weights as they are now, unless the last one is still being written."""
        if self.written and not self.written.done():
            return
        if self.written:
            self.written.result()
        self.written = self.writer.submit(self.write, checkpoint.frozen(self.params), self.state() if self.a.save_state else None)

    def keep_now(self) -> None:
        """Returns when the checkpoint is written."""
        if self.written:
            self.written.exception()  # the one before
        self.written = None
        self.keep()
        self.written.result()

    def write(self, params: Params, state: dict | None) -> None:
        """Writes beside the last checkpoint, then swaps, so that there is always a whole one."""
        fresh, place, old = self.out / "model.new", self.out / "model", self.out / "model.old"
        if not self.a.dense:  # which has no released format
            shutil.rmtree(fresh, ignore_errors=True)
            checkpoint.save(params, fresh, self.a.tokenizer)
            shutil.rmtree(old, ignore_errors=True)
            if place.exists():
                place.rename(old)
            fresh.rename(place)
            shutil.rmtree(old, ignore_errors=True)
        if state:
            torch.save({**state, "masters": {g.name: g.master for g in params.groups.values()}}, self.out / "state.new")
            (self.out / "state.new").rename(self.out / "state.pt")

    def state(self) -> dict:
        """What a resumed run needs beside the masters, on the CPU."""
        def kept(x):
            return {k: kept(v) for k, v in x.items()} if isinstance(x, dict) else x.to("cpu", copy=True) if torch.is_tensor(x) else x
        return {"optimizer": kept(self.optimizer.state()), "step": self.step, "tokens": self.tokens, "elapsed": self.elapsed,
                "phase": self.phase}

    def restore(self, file: str) -> None:
        state = torch.load(file, map_location=self.a.device)
        for g in self.params.groups.values():
            g.master.copy_(state["masters"][g.name])
        self.optimizer.restore(state["optimizer"])
        self.step, self.tokens = state["step"], state["tokens"]
        self.elapsed, self.phase = state["elapsed"], state["phase"]

    def prepare(self) -> None:
        """Begins to make the held-out sets that the phase needs."""
        if not self.team.leader:
            return
        make, a = functools.partial(self.beside.submit, build_sets, self.a.corpus, self.a.tokenizer), self.a
        self.watched = make(a.watch_items, names=WATCHED, length=self.phases[self.phase].stage.length)
        if a.final_items and not self.final and (a.steps or self.phase + 1 == len(self.phases)):
            self.final = make(a.final_items, length=tuple({p.stage.length for p in self.phases}))

    def watch(self) -> None:
        """A quick look at held-out accuracy, in the arithmetic of the current phase."""
        report = evaluate(self.model, self.watched.result(), self.phases[self.phase].mode, self.a.tokens, replay=False)
        self.log(watch={f"{name}: {label}": r["accuracy"] for name, label, r in graded(report)})

    # ---- training ---------------------------------------------------------------------------------------------------

    def fetch(self) -> dict | None:
        """The next batch, if all members have one and none is to stop; else None. Raises if one of them fails."""
        part, mine = None, GOES_ON
        try:
            part = self.feed.next()
        except Exception as e:
            self.failure, mine = e, FAILS
        if mine == GOES_ON and (self.requests.made() or self.team.leader and (self.out / "stop").exists()):
            mine = STOPS
        ending = self.team.ending(mine)
        if ending == FAILS:
            raise self.failure or RuntimeError("another process of this run has failed")
        return part if ending == GOES_ON else None

    def one_step(self, part: dict, p: Phase) -> torch.Tensor:
        """Returns both losses and the load of each expert in each layer, over all GPUs."""
        team, batch = self.team, to_batch(part, self.params.device)
        self.params.zero_grad()
        loss, out = self.model.loss(batch, p.mode, team.mean(batch.weight.sum()))
        (loss + out.index_loss if self.a.index_loss else loss).backward()
        for buffer in self.params.gradients:
            team.mean(buffer)
        seen = team.mean(torch.cat([torch.stack([loss.detach(), out.index_loss.detach()]), out.load.flatten()]))
        self.optimizer.step(self.schedule())
        self.optimizer.balance(seen[2:].view_as(out.load))
        self.step += 1
        self.tokens += batch.ids.numel() * team.world
        if self.step % SHARE_EVERY == 0:
            team.share(self.params)
        self.params.refresh(p.quantise)
        return seen

    def next_phase(self) -> None:
        if self.team.leader:
            self.keep()  # the first step of a phase may have to be compiled
        self.phase += 1
        self.feed.switch(self.phase)
        self.params.refresh(self.phases[self.phase].quantise)
        self.prepare()
        if self.a.device == "cuda":
            torch.cuda.empty_cache()  # rows of another length want blocks of other sizes

    def report(self, totals: torch.Tensor, steps: int, seconds: float) -> None:
        ce, index, *load = (totals / steps).tolist()
        self.log(loss=round(ce, 4), index_loss=round(index, 4), rate=round(self.schedule(), 4),
                 tokens_per_second=round(steps * self.a.tokens * self.team.world / seconds), load_max=round(max(load), 3),
                 load_min=round(min(load), 3), queue=self.feed.waiting())

    def train(self) -> bool:
        """To the end, or until asked to stop. Returns whether it is the end."""
        a, totals, counted = self.a, 0, 0
        due = {self.watch: [self.elapsed + a.watch_every, a.watch_every],
               self.keep: [self.elapsed + a.export_every, a.export_every]}
        self.params.refresh(self.phases[self.phase].quantise)
        first_in_phase, reported = True, time.time()
        while self.progress() < 1 and not (a.steps and self.step >= a.steps):
            if self.phase_over():
                self.next_phase()
                first_in_phase = True
            started = time.time()
            part = self.fetch()
            if part is None:
                return False
            totals, counted = totals + self.one_step(part, self.phases[self.phase]), counted + 1
            if first_in_phase:
                self.sync()
                self.log(compile=round(time.time() - started, 1), memory=self.memory())
                first_in_phase, started = False, time.time()
            if self.step % a.log_every == 0:
                self.report(totals, counted, time.time() - reported)
                totals, counted, reported = 0, 0, time.time()
            self.elapsed += time.time() - started
            for action, times in due.items():
                if self.team.leader and self.elapsed >= times[0]:
                    times[0] += times[1]
                    started = time.time()
                    action()
                    self.elapsed += time.time() - started
                    totals, counted, reported = 0, 0, time.time()
            self.elapsed = self.team.agree(self.elapsed)
        return True

    def close(self, whole: bool) -> None:
        """After the last step. whole: it is the end of the run, not a request to stop."""
        self.sync()
        self.feed.close()
        self.team.close()
        if self.team.leader:
            self.keep_now()
            self.log(finished=whole, memory=self.memory())
            self.status("evaluating" if whole and self.a.final_items else "finished" if whole else "stopped")
        self.requests.over()

    def fail(self, e: BaseException) -> None:
        """Reports, and writes what there is; the weights are those of the last whole step."""
        parallel.end_soon()
        traceback.print_exception(e)
        self.status("failed", f"{type(e).__name__}: {e}")
        if self.team.leader and self.step:
            self.keep_now()

    def finish(self) -> None:
        """The numbers that are reported: of the file, read back, if the last phase trained what the file holds."""
        p, a = self.phases[-1], self.a
        if p.quantise and not a.dense:
            checkpoint.load(self.params, self.out / "model")
        else:
            self.params.refresh(p.quantise)
        report = evaluate(self.model, self.final.result(), p.mode, a.tokens)
        (self.out / "evaluation.json").write_text(json.dumps(report, indent=1) + "\n")
        print(table(report), flush=True)
        if a.device == "cuda":  # 65,536 tokens at a time
            text = samples(self.model, Encoder(a.tokenizer), mode=p.mode)
            (self.out / "samples.txt").write_text(text + "\n")
            print(text, flush=True)
        self.status("finished")

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
    p.add_argument("--seconds", type=float, help="time for steps, looks and exports")
    p.add_argument("--stop-tokens", type=float, default=0, help="millions of tokens; rate and phases follow them, not the clock")
    p.add_argument("--phases", nargs="+", default=["short", "long"], choices=list(PHASES))
    p.add_argument("--shares", nargs="+", type=float, help="share of the run for each phase")
    p.add_argument("--rate", type=float, default=1.0, help="factor on all learning rates")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--gpus", type=int, default=1)
    p.add_argument("--tokens", type=int, default=65536, help="tokens a step on each GPU")
    p.add_argument("--length", type=int, default=0, help="row length of every phase (0: the phase's own)")
    p.add_argument("--steps", type=int, default=0, help="stop after so many steps")
    p.add_argument("--workers", type=int, default=12, help="processes that make data, for all GPUs together")
    p.add_argument("--init-from", help="checkpoint directory to start from")
    p.add_argument("--resume", help="state.pt of an interrupted run")
    p.add_argument("--save-state", action="store_true")
    p.add_argument("--export-every", type=float, default=60, help="seconds; written while the training goes on")
    p.add_argument("--watch-every", type=float, default=90)
    p.add_argument("--watch-items", type=int, default=128)
    p.add_argument("--log-every", type=int, default=25)
    p.add_argument("--final-items", type=int, default=512, help="items of each held-out set at the end (0: none)")
    p.add_argument("--no-engram", dest="engram", action="store_false", help="without n-gram tables")
    p.add_argument("--window-only", action="store_true", help="layers read their window, no global entries")
    p.add_argument("--no-index-loss", dest="index_loss", action="store_false", help="the indexer keeps its random weights")
    p.add_argument("--dense", action="store_true", help="a plain Transformer with as many active parameters instead")
    p.add_argument("--tiny", action="store_true", help="nano in miniature, for tests")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    a = p.parse_args()
    if not a.seconds and not a.stop_tokens:
        p.error("one of --seconds and --stop-tokens is needed")
    return a


def write_status(out: pathlib.Path, **fields) -> None:
    """OUT/status.json, replaced as a whole."""
    fresh = out / "status.new"
    fresh.write_text(json.dumps({**fields, "written": round(time.time(), 1)}) + "\n")
    fresh.rename(out / "status.json")


def launch(a: argparse.Namespace) -> int:
    """Runs one process for each GPU. A first process that was killed leaves its last status to this one."""
    status, out = parallel.launch("nano.train", a.gpus), pathlib.Path(a.out)
    if status:
        file = out / "status.json"
        last = json.loads(file.read_text()) if file.exists() else {}
        if last.get("state") != "failed":
            out.mkdir(parents=True, exist_ok=True)
            write_status(out, **{**last, "state": "failed", "error": f"a process has ended with status {status}"})
    return status


def main() -> None:
    a = arguments()
    if a.gpus > 1 and not parallel.launched():
        raise SystemExit(launch(a))
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    torch._dynamo.config.recompile_limit = 64
    torch.manual_seed(a.seed)
    run = Run(a)
    try:
        whole = run.train()
        run.close(whole)
        if whole and a.final_items and run.team.leader:
            run.finish()
    except BaseException as e:
        try:
            run.fail(e)
        finally:
            parallel.leave(1)
    parallel.leave(0)


if __name__ == "__main__":
    main()
