#!/usr/bin/env python3
"""nano on the GPU against nano on the processor, through the program's own commands.

    tests/gpu_check.py --gannet build/gannet [--model nano]

Needs a GPU, so it is no part of `make test`; scripts/check_gpu.sh runs it. Both devices round at the same places and
differ by the order of sums, which is enough to turn a rounding of the caches here and there: nano's logits move by 0.07
standard deviations in the median, as they do on the processor between bf16 and fp32 activations. So logits must be that
close, and the likeliest token the same nearly wherever the processor's two likeliest are clearly apart.
"""

import argparse
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

import numpy as np

# Of the logits' standard deviation: how far the median row may be off, and how clear a choice must be to bind.
MEDIAN_ERROR = 0.1
CLEAR = 0.75
SAME = 0.97  # of the clear choices: one turned rounding can move a single row far

TEXT = """A user asks about the weather in three cities and the sum of two numbers. The assistant calls a tool for each
city, waits for the results, and answers with a table. Then the user says thank you and asks for a short story about a
gannet that dives for fish near the coast of Scotland, 137 + 245 = 382, and a list of the things that it saw there: waves,
boats, clouds, seals and one lighthouse. """


def read_tensor(path, name):
    data = pathlib.Path(path).read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    entry = json.loads(data[8 : 8 + length])[name]
    begin, end = entry["data_offsets"]
    dtype = {"F32": np.float32, "I32": np.int32}[entry["dtype"]]
    return np.frombuffer(data[8 + length + begin : 8 + length + end], dtype).reshape(entry["shape"])


class Checks:
    def __init__(self, gannet, model):
        self.gannet = gannet
        self.model = model
        self.failures = 0
        self.temporary = tempfile.TemporaryDirectory(prefix="gannet-gpu-")
        self.folder = pathlib.Path(self.temporary.name)

    def run(self, *arguments, text=None):
        command = [self.gannet, *map(str, arguments)]
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}: status {done.returncode}\n{done.stderr}")
        return done.stdout

    def tokens(self, count):
        line = json.dumps({"text": TEXT * 40})
        return json.loads(self.run("text", "tokenize", "--model", self.model, text=line + "\n"))["ids"][:count]

    def logits(self, device, ids, *options):
        source, target = self.folder / "ids.json", self.folder / f"{device}.safetensors"
        source.write_text(json.dumps(ids))
        self.run("logits", self.model, "--ids", source, "--out", target, "--device", device, *options)
        return read_tensor(target, "rows"), read_tensor(target, "logits")

    def report(self, name, good, text):
        self.failures += not good
        print(f"{'ok  ' if good else 'FAIL'} {name}: {text}", flush=True)

    def compare(self, name, ids, *options):
        rows, wanted = self.logits("cpu", ids, *options)
        gpu_rows, found = self.logits("cuda", ids, *options)
        if not np.array_equal(rows, gpu_rows) or not np.isfinite(found).all():
            self.report(name, False, "other rows, or numbers that are none")
            return
        spread = wanted.std(axis=1)
        error = np.sqrt(((found - wanted) ** 2).mean(axis=1)) / spread
        two = np.partition(wanted, -2, axis=1)[:, -2:]
        clear = (two[:, 1] - two[:, 0]) > CLEAR * spread
        same = found.argmax(axis=1) == wanted.argmax(axis=1)
        good = np.median(error) < MEDIAN_ERROR and (not clear.any() or same[clear].mean() >= SAME)
        self.report(name, good, f"{len(rows)} rows, error median {np.median(error):.4f}, largest {error.max():.4f} standard "
                    f"deviations; same choice in {same.mean():.1%}, in {same[clear].mean() if clear.any() else 1:.1%} of {clear.sum()} clear ones")

    def graphs(self, ids):
        """With --trace kernels are launched one by one, without it as graphs: the same bits."""
        _, graphs = self.logits("cuda", ids)
        _, launches = self.logits("cuda", ids, "--trace", self.folder / "trace.safetensors")
        self.report("graphs and plain launches", np.array_equal(graphs, launches), f"{len(ids)} rows, the same bits")

    def greedy(self, prompt):
        answers = {self.run("generate", self.model, "--prompt", prompt, "--temperature", 0, "--max-tokens", 64,
                            "--device", "cuda") for _ in range(2)}
        self.report(f"greedy answer to {prompt!r}, twice", len(answers) == 1, repr(answers.pop()[:60]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gannet", default="build/gannet")
    parser.add_argument("--model", default="nano")
    arguments = parser.parse_args()
    checks = Checks(arguments.gannet, arguments.model)
    ids = checks.tokens(900)
    checks.compare("whole", ids)
    checks.compare("one token", ids[:1])
    checks.compare("chunks of 100", ids, "--chunk", 100)
    checks.compare("chunks of 77", ids, "--chunk", 77)
    checks.compare("decoded 40", ids[:400], "--decode", 40)
    checks.compare("replay", ids, "--swa-bounded-replay")
    checks.compare("replay in chunks", ids, "--swa-bounded-replay", "--chunk", 200)
    checks.compare("replay behind a hit", ids, "--swa-bounded-replay", "--prefix", 512)
    checks.compare("hit, decoded 20", ids[:700], "--swa-bounded-replay", "--prefix", 512, "--decode", 20)
    checks.graphs(ids[:300])
    for prompt in ("Once upon a time", "The capital of France is", "12 + 7 ="):
        checks.greedy(prompt)
    sys.exit(1 if checks.failures else 0)


if __name__ == "__main__":
    main()
