"""Trains nano in miniature on the CPU and lets things go wrong.

    python -m nano.check_train --corpus DIR --tokenizer FILE [--only NAME ...]

Runs of two processes lose a data worker, a generator, or one of the two, or are asked to stop, by a signal or a file: each
ends within half a minute (or goes on, if a worker can be replaced), says so in its exit status and in status.json, leaves a
whole checkpoint and no process. And runs that were interrupted and resumed are compared with whole ones, bit for bit.
"""
from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import torch

LIMIT = 30.0
MODEL_FILES = 7     # four shards, index, config, tokenizer


class Trial:
    """A run in miniature in a folder of its own."""

    def __init__(self, corpus: str, tokenizer: str, out: pathlib.Path, *options: str, gpus: int = 2):
        self.out, self.mark = out, f"check_train={out}"
        arguments = f"--tiny --device cpu --phases open far --length 128 --tokens 256 --workers {2 * gpus} --log-every 1 --seed 3 " \
                    f"--stop-tokens 1 --final-items 0 --watch-items 2 --watch-every 1e9 --gpus {gpus}".split()
        self.errors = (out.parent / f"{out.name}.errors").open("w+")
        # every process of the run inherits the mark
        self.process = subprocess.Popen(
            [sys.executable, "-m", "nano.train", "--corpus", corpus, "--tokenizer", tokenizer, "--out", str(out), *arguments, *options],
            stdout=subprocess.DEVNULL, stderr=self.errors,
            env={**os.environ, "TORCHDYNAMO_DISABLE": "1", "OMP_NUM_THREADS": "1", "CHECK_TRAIN": self.mark})

    def status(self) -> dict:
        file = self.out / "status.json"
        return json.loads(file.read_text()) if file.exists() else {}

    def until_step(self, step: int) -> "Trial":
        wait_for(lambda: self.status().get("step", 0) >= step or self.process.poll() is not None, 120)
        assert self.process.poll() is None, self.said()
        return self

    def processes(self, word: str) -> list[int]:
        """Those of the run whose command line has the word."""
        return [pid for pid, line, inherited in running() if self.mark in inherited and word in line]

    def ended(self, limit: float = LIMIT) -> int:
        """The exit status, and nothing is left."""
        status = self.process.wait(limit)
        wait_for(lambda: not self.processes(""), 5)
        return status

    def said(self) -> str:
        self.errors.seek(0)
        return self.errors.read()


def running() -> list[tuple[int, str, str]]:
    """(id, command line, environment) of every process that can be read."""
    out = []
    for p in pathlib.Path("/proc").iterdir():
        try:
            if p.name.isdigit() and (p / "cmdline").read_bytes():
                out.append((int(p.name), (p / "cmdline").read_text().replace("\0", " "), (p / "environ").read_text()))
        except OSError:
            pass
    return out


def wait_for(condition: Callable[[], bool], limit: float) -> None:
    until = time.time() + limit
    while not condition():
        assert time.time() < until, "too late"
        time.sleep(0.1)


class Checks:
    def __init__(self, corpus: str, tokenizer: str, folder: pathlib.Path):
        self.corpus, self.tokenizer, self.folder, self.count = corpus, tokenizer, folder, 0

    def start(self, *options: str, gpus: int = 2, corpus: str = "") -> Trial:
        self.count += 1
        return Trial(corpus or self.corpus, self.tokenizer, self.folder / f"run{self.count}", *options, gpus=gpus)

    def kept(self, t: Trial, state: str) -> None:
        """There is a checkpoint and a state of the last step, and the status says how it ended."""
        status = t.status()
        assert status["state"] == state, status
        assert len(list((t.out / "model").iterdir())) == MODEL_FILES
        assert torch.load(t.out / "state.pt")["step"] == status["step"] > 0, status

    def worker_killed(self) -> None:
        """One is replaced, and the run goes on; when they keep dying it ends."""
        t = self.start("--save-state").until_step(2)
        for number in range(1, 9):
            workers = t.processes("spawn_main")
            if not workers or t.process.poll() is not None:
                break
            os.kill(max(workers), signal.SIGKILL)
            step = t.status()["step"]
            wait_for(lambda: t.status()["step"] >= step + 6 or t.status()["state"] != "running", 60)
            assert number > 1 or t.status()["state"] == "running", t.said()
        assert t.ended() != 0 and "is replaced" in t.said()
        self.kept(t, "failed")

    def generator_fails(self) -> None:
        """Families that have no nouns to choose from fail again and again."""
        broken = self.folder / "corpus"
        shutil.copytree(self.corpus, broken)
        words = json.loads((broken / "words.json").read_text())
        (broken / "words.json").write_text(json.dumps({**words, "nouns": []}))
        t = self.start("--length", "0", "--tokens", "16384", corpus=str(broken))
        assert t.ended(60) != 0 and "items cannot be made" in t.said()
        status = t.status()
        assert status["state"] == "failed" and "items cannot be made" in status["error"], status

    def second_killed(self) -> None:
        t = self.start("--save-state").until_step(2)
        os.kill(self.members(t)[1], signal.SIGKILL)
        assert t.ended() != 0
        self.kept(t, "failed")

    def first_killed(self) -> None:
        t = self.start("--save-state", "--export-every", "0.1").until_step(4)
        os.kill(self.members(t)[0], signal.SIGKILL)
        assert t.ended() != 0 and t.status()["state"] == "failed"
        assert any(len(list(p.iterdir())) == MODEL_FILES for p in t.out.glob("model*"))

    def members(self, t: Trial) -> list[int]:
        """The ids of the run's processes by rank."""
        found = {inherited.split("\0RANK=")[1].split("\0")[0]: pid for pid, line, inherited in running()
                 if t.mark in inherited and "nano.train" in line and "\0RANK=" in inherited}
        return [found[k] for k in sorted(found)]

    def launcher_terminated(self) -> None:
        t = self.start("--save-state").until_step(2)
        t.process.terminate()
        assert t.ended() == 0, t.said()
        self.kept(t, "stopped")

    def launcher_killed(self) -> None:
        t = self.start("--save-state").until_step(2)
        t.process.kill()
        t.process.wait()
        wait_for(lambda: not t.processes(""), LIMIT)
        self.kept(t, "stopped")

    def stop_file(self) -> None:
        t = self.start("--save-state", gpus=1).until_step(2)
        (t.out / "stop").touch()
        assert t.ended() == 0, t.said()
        self.kept(t, "stopped")

    def resumed(self, gpus: int) -> None:
        """Interrupted at every second step of a run over two phases: the same weights, optimiser state and numbers."""
        tokens = ["--save-state", "--stop-tokens", str(8 * 256 * gpus / 1e6), "--shares", "0.5", "0.5"]
        whole, state = self.start(*tokens, gpus=gpus), ""
        assert whole.ended(120) == 0, whole.said()
        for steps in (2, 4, 6, 8):
            part = self.start(*tokens, "--steps", str(steps), *(["--resume", state] if state else []), gpus=gpus)
            assert part.ended(120) == 0, part.said()
            state = str(part.out / "state.pt")
        a, b = flat(torch.load(whole.out / "state.pt")), flat(torch.load(state))
        assert a.keys() == b.keys() and a["step"] == 8 and a["phase"] == 1
        for name in a.keys() - {"elapsed"}:  # by the clock
            assert torch.equal(a[name], b[name]) if torch.is_tensor(a[name]) else a[name] == b[name], name
        assert losses(whole)[-2:] == losses(part)

    def resumed_alone(self) -> None:
        self.resumed(1)

    def resumed_together(self) -> None:
        self.resumed(2)


def flat(state: dict, prefix: str = "") -> dict:
    out = {}
    for k, v in state.items():
        out |= flat(v, f"{prefix}{k}/") if isinstance(v, dict) else {prefix + k: v}
    return out


def losses(t: Trial) -> list[tuple[int, float]]:
    records = [json.loads(line) for line in (t.out / "log.jsonl").read_text().splitlines()]
    return [(r["step"], r["loss"]) for r in records if "loss" in r]


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--corpus", required=True)
    p.add_argument("--tokenizer", required=True)
    names = ["worker_killed", "generator_fails", "second_killed", "first_killed", "launcher_terminated", "launcher_killed",
             "stop_file", "resumed_alone", "resumed_together"]
    p.add_argument("--only", nargs="+", choices=names, default=names)
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        checks = Checks(a.corpus, a.tokenizer, pathlib.Path(folder))
        for name in a.only:
            started = time.time()
            getattr(checks, name)()
            print(f"{name}: fine, {time.time() - started:.0f} s", flush=True)
    print(f"{len(a.only)} passed, 0 failed")


if __name__ == "__main__":
    main()
