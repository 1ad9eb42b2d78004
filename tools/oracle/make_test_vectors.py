#!/usr/bin/env python3
"""Writes the vectors that the C++ tests of the forward pass compare with.

    make_test_vectors.py --oracle DIR CHECKPOINT FROZEN.safetensors OUT.safetensors

OUT holds the frozen answers but the drafts' (ids, logits.*, noise.*, replay.logits, hit.*), Engram's token map
(token_map I32 [vocab]), and the oracle's own trace of the first TRACE_TOKENS ids with fp32 activations and without Q8:
trace.LAYER F32 [rows, hc, hidden] is what comes out of the layer.
"""
import argparse
import sys

import torch
from safetensors.torch import load_file, save_file

TRACE_TOKENS = 40  # enough for pending pairs, a full window and candidate cuts in the small shape


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--oracle", required=True)
    parser.add_argument("checkpoint")
    parser.add_argument("frozen")
    parser.add_argument("out")
    arguments = parser.parse_args()
    sys.path.insert(0, arguments.oracle)
    from reference import Model

    data = {name: t for name, t in load_file(arguments.frozen).items() if not name.startswith("draft.")}
    model = Model(arguments.checkpoint, act_quant=False)
    data["token_map"] = torch.as_tensor(model.token_map, dtype=torch.int32)
    trace = {}
    model.forward(data["ids"][:TRACE_TOKENS].tolist(), trace=trace)
    for layer in range(model.layers):
        data[f"trace.{layer}"] = trace[f"layer.{layer}.streams_out"]
    save_file({name: t.contiguous() for name, t in data.items()}, arguments.out)


if __name__ == "__main__":
    main()
