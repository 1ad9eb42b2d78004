#!/usr/bin/env python3
"""Gannet's matrix products beside those of PyTorch and numpy, for every matrix of a model, in one run.

usage: bench/compare_matmul.py [--device cpu|cuda] [--model nano|released|all] [--rows 1,4,16,64,256]

Needs numpy and torch, of PyPI, and a built program; nothing else of Gannet needs them. Gannet multiplies by the
checkpoint's own formats, the others by what they can: fp32 and bf16 (PyTorch), fp32 (numpy with OpenBLAS). All take
turns, `--rounds` times, with the same number of threads, and every call takes other weights, so that none finds them in
a cache. On a GPU PyTorch's bf16 (cuBLASLt) stands beside the ops of a decode step of the released model's shape.

A ratio is the time of the best other over Gannet's: 1 and more means that Gannet is at least as fast.
"""

import argparse
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
POOL_BYTES = 512 << 20  # of weights that calls take in turn

# (what it is, format, outputs, columns), as src/ops/linear/bench.cc has them.
RELEASED = [
    ("wq_a", "fp8", 1280, 5120),
    ("wq_b", "fp8", 32768, 1280),
    ("wkv", "fp8", 512, 5120),
    ("wo_a, one group", "fp8", 1024, 4096),
    ("wo_b", "fp8", 5120, 8192),
    ("index query", "fp8", 4096, 1280),
    ("index weights", "bf16", 32, 5120),
    ("compressor", "bf16", 512, 5120),
    ("router", "bf16", 384, 5120),
    ("expert w1, w3", "mxfp4", 2304, 5120),
    ("expert w2", "mxfp4", 5120, 2304),
    ("shared w1, w3", "fp8", 2304, 5120),
    ("shared w2", "fp8", 5120, 2304),
    ("Engram", "fp8", 25600, 6144),
    ("head", "bf16", 129280, 5120),
]
NANO = [
    ("wq_a; shared w1, w3", "fp8", 192, 384),
    ("wq_b", "fp8", 2048, 192),
    ("wkv", "fp8", 512, 384),
    ("wo_a, one group", "fp8", 128, 1024),
    ("wo_b", "fp8", 384, 256),
    ("index query", "fp8", 512, 192),
    ("router", "bf16", 12, 384),
    ("expert w1, w3", "mxfp4", 192, 384),
    ("expert w2", "mxfp4", 384, 192),
    ("shared w2", "fp8", 384, 192),
    ("head", "bf16", 4096, 384),
]
# Ops of a decode step on a GPU that are one product each: the groups of a product, outputs, columns.
CUDA_OPS = {
    "wq_a, wkv": (1, 1792, 5120),
    "wq_b": (1, 32768, 1280),
    "wo_a": (8, 1024, 4096),
    "wo_b": (1, 5120, 8192),
    "router": (1, 384, 5120),
    "index key": (1, 128, 512),
    "index query": (1, 4096, 1280),
    "index weights": (1, 32, 5120),
    "engram wkv": (1, 25600, 6144),
    "head": (1, 129280, 5120),
}
EXPERTS, TOP_K, HIDDEN, WIDTH = 384, 6, 5120, 2304


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gannet", default=str(ROOT / "build" / "gannet"), help="the program")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--model", choices=("nano", "released", "all"), default="all", help="whose shapes (cpu)")
    parser.add_argument("--rows", default="1,4,16,64,256", help="numbers of rows (cpu: of these)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of all (cpu)")
    parser.add_argument("--rounds", type=int, default=2, help="turns of all; the best counts (cpu)")
    parser.add_argument("--seconds", type=float, default=0.25, help="that a product is repeated in a turn")
    parser.add_argument("--statistic", choices=("median", "best"), default="median", help="of the calls of a turn")
    parser.add_argument("--json", action="store_true", help="machine-readable")
    options = parser.parse_args()
    options.rows = [int(rows) for rows in options.rows.split(",")]
    return options


def gannet(options, *arguments):
    command = [options.gannet, "bench", "ops", "--json", "--device", options.device, *map(str, arguments)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


# ---- processors ----


def time_calls(call, options):
    """Seconds of a call: the median or the best of as many as the time allows, five at least."""
    call()
    times = []
    begin = time.perf_counter()
    while len(times) < 5 or (len(times) < 1000 and time.perf_counter() - begin < options.seconds):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times) if options.statistic == "median" else min(times)


class Others:
    """Products of a row count with weights of one shape, by the libraries that a user would pick."""

    def __init__(self, outputs, columns):
        import numpy
        import torch

        self.torch = torch
        copies = max(1, POOL_BYTES // (outputs * columns * 2))
        weights = torch.rand(copies, outputs, columns) - 0.5
        self.weights = {
            "torch fp32": itertools.cycle(weights),
            "torch bf16": itertools.cycle(weights.to(torch.bfloat16)),
            "numpy fp32": itertools.cycle([weight.numpy().T for weight in weights]),
        }
        self.random = numpy.random.default_rng(1)

    def time(self, rows, columns, options):
        torch = self.torch
        x = self.random.random((rows, columns), dtype="float32") - 0.5
        single = torch.from_numpy(x)
        half = single.to(torch.bfloat16)
        linear = torch.nn.functional.linear
        calls = {
            "torch fp32": lambda: linear(single, next(self.weights["torch fp32"])),
            "torch bf16": lambda: linear(half, next(self.weights["torch bf16"])),
            "numpy fp32": lambda: x @ next(self.weights["numpy fp32"]),
        }
        with torch.inference_mode():
            return {name: time_calls(call, options) for name, call in calls.items()}


def time_ours(options, form, outputs, columns):
    """Rows to seconds."""
    shape = f" {outputs}x{columns} rows"
    result = gannet(options, "--variants", "best", "--threads", options.threads, "--filter", shape)
    key = f"{options.statistic}_s"
    return {each["rows"]: each[key] for each in result["results"] if each["kernel"] == f"linear {form}"}


def compare_shape(options, what, form, outputs, columns):
    others = Others(outputs, columns)
    ours, theirs = {}, {}
    for _ in range(options.rounds):
        for rows, seconds in time_ours(options, form, outputs, columns).items():
            ours[rows] = min(seconds, ours.get(rows, seconds))
        for rows in options.rows:
            for name, seconds in others.time(rows, columns, options).items():
                best = theirs.setdefault(rows, {})
                best[name] = min(seconds, best.get(name, seconds))
    shape = f"{outputs}x{columns}"
    return [
        {"what": what, "format": form, "shape": shape, "rows": rows, "ours": ours[rows], "others": theirs[rows]}
        for rows in options.rows
        if rows in ours
    ]


def compare_cpu(options):
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[variable] = str(options.threads)  # read when the libraries are loaded
    import torch

    torch.set_num_threads(options.threads)
    results = []
    for model, shapes in (("released", RELEASED), ("nano", NANO)):
        if options.model not in (model, "all"):
            continue
        for shape in shapes:
            print(f"{model}: {shape[0]}", file=sys.stderr)
            results += [{"model": model, **result} for result in compare_shape(options, *shape)]
    return results


# ---- GPUs ----


def time_on_gpu(torch, products):
    """Seconds of one of these calls, all of them replayed as one graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for product in products:
            product()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for product in products:
            product()
    times = []
    for _ in range(12):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e-3 / len(products))
    return statistics.median(times[2:])


def half(torch, *shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def time_product(torch, rows, groups, outputs, columns):
    copies = max(2, POOL_BYTES // (groups * outputs * columns * 2))
    weights = [half(torch, groups, outputs, columns) for _ in range(copies)]
    x = half(torch, groups, rows, columns)
    if groups > 1:
        return time_on_gpu(torch, [lambda w=w: torch.bmm(x, w.transpose(1, 2)) for w in weights])
    return time_on_gpu(torch, [lambda w=w: torch.nn.functional.linear(x[0], w[0]) for w in weights])


def time_experts(torch, rows):
    """Both halves of the experts that so many rows choose, each with its share of the rows, batched; in bf16 a layer
    reads four times what MXFP4 does."""
    active = max(TOP_K, round(EXPERTS * (1 - (1 - TOP_K / EXPERTS) ** rows)))
    share = -(-rows * TOP_K // active)
    up, down = half(torch, active, 2 * WIDTH, HIDDEN), half(torch, active, HIDDEN, WIDTH)
    x, v = half(torch, active, share, HIDDEN), half(torch, active, share, WIDTH)

    def product():
        torch.bmm(x, up.transpose(1, 2))
        torch.bmm(v, down.transpose(1, 2))

    return time_on_gpu(torch, [product] * 4)


def compare_cuda(options):
    import torch

    results = []
    for rows in options.rows:
        print(f"{rows} rows", file=sys.stderr)
        measured = gannet(options, "--synthetic", "released", "--rows", rows)
        ours = {op["op"]: op["seconds"] / op["launches"] for op in measured["ops"]}
        for op, (groups, outputs, columns) in CUDA_OPS.items():
            if op not in ours:
                continue
            shape = f"{outputs}x{columns}" + (f" x{groups}" if groups > 1 else "")
            theirs = {"torch bf16": time_product(torch, rows, groups, outputs, columns)}
            results.append({"what": op, "shape": shape, "rows": rows, "ours": ours[op], "others": theirs})
        theirs = {"torch bf16, batched": time_experts(torch, rows)}
        results.append({"what": "experts", "shape": "", "rows": rows, "ours": ours["experts"], "others": theirs})
        torch.cuda.empty_cache()
    return [{"model": "released", "format": "", **result} for result in results]


def print_table(results):
    print(f"{'model':<9} {'what':<20} {'format':<6} {'shape':<13} {'rows':>4} {'ours us':>10} {'best other us':>13}  "
          f"{'which':<19} {'ratio':>6}")
    for result in results:
        name, seconds = min(result["others"].items(), key=lambda other: other[1])
        print(f"{result['model']:<9} {result['what']:<20} {result['format']:<6} {result['shape']:<13} "
              f"{result['rows']:>4} {result['ours'] * 1e6:>10.1f} {seconds * 1e6:>13.1f}  {name:<19} "
              f"{seconds / result['ours']:>6.2f}")


def main():
    options = parse_arguments()
    results = compare_cpu(options) if options.device == "cpu" else compare_cuda(options)
    if options.json:
        json.dump(results, sys.stdout, indent=2)
    else:
        print_table(results)


if __name__ == "__main__":
    main()
