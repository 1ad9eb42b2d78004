"""Reading and writing checkpoints in the released format."""
from __future__ import annotations

import copy
import json
import pathlib
from dataclasses import replace

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from . import quant
from .config import config_json
from .engram import compressed_token_map
from .model import Model
from .params import Params

# group -> (layers it is stacked over, tensor name); {} is the layer
SIMPLE = {
    "attn_norm": "layers.{}.attn_norm.weight", "ffn_norm": "layers.{}.ffn_norm.weight",
    "q_norm": "layers.{}.attn.q_norm.weight", "kv_norm": "layers.{}.attn.kv_norm.weight",
    "wq_a": "layers.{}.attn.wq_a.weight", "wq_b": "layers.{}.attn.wq_b.weight", "wkv": "layers.{}.attn.wkv.weight",
    "wo_a": "layers.{}.attn.wo_a.weight", "wo_b": "layers.{}.attn.wo_b.weight", "sink": "layers.{}.attn.attn_sink",
    "compressor_wkv": "layers.{}.attn.compressor.wkv.weight",
    "compressor_wgate": "layers.{}.attn.compressor.wgate.weight",
    "compressor_norm": "layers.{}.attn.compressor.norm.weight",
    "index_wk": "layers.{}.attn.indexer.wk.weight", "k_norm": "layers.{}.attn.indexer.k_norm.weight",
    "index_wq_b": "layers.{}.attn.indexer.wq_b.weight",
    "index_weights": "layers.{}.attn.indexer.weights_proj.weight",
    "gate": "layers.{}.ffn.gate.weight", "gate_bias": "layers.{}.ffn.gate.bias",
    "engram_wkv": "layers.{}.engram.wkv.weight", "engram_q": "layers.{}.engram.q_weight",
    "engram_k": "layers.{}.engram.k_weight",
}
OVER_SOURCES = {"compressor_wkv", "compressor_norm", "index_wk", "k_norm"}


def _layers(name: str, c: dict) -> list[int]:
    """The layers that a stack runs over."""
    if name in OVER_SOURCES:
        return c["kv_source_layer_ids"]
    if name == "compressor_wgate":
        return [i for i in c["kv_source_layer_ids"] if c["compress_ratios"][i] > 1]
    if name in ("index_wq_b", "index_weights"):
        return c["index_source_layer_ids"]
    if name.startswith("engram"):
        return c["engram_layer_ids"]
    return list(range(c["num_hidden_layers"]))


def views(params: Params) -> dict[str, tuple[str, Tensor]]:
    """Tensor name -> (format in the file, the master's part that it holds, as a view)."""
    c, out = params.c, {}

    def add(name: str, kind: str, t: Tensor) -> None:
        out[name] = (kind, t)

    for name, g in params.groups.items():
        if name in SIMPLE:
            for layer, t in zip(_layers(name, c), g.master):
                add(SIMPLE[name].format(layer), g.kind, t.flatten(0, 1) if name == "wo_a" else t)
        elif name.startswith("engram_table"):
            add(f"layers.{c['engram_layer_ids'][int(name[12:])]}.engram.embed.weight", "table", g.master[0])
        elif name in ("embed", "head", "norm"):
            add(f"{name}.weight", g.kind, g.master[0])
        elif name in ("hc_fn", "hc_base", "hc_scale"):
            for layer in range(c["num_hidden_layers"]):
                for site, label in enumerate(("attn", "ffn")):
                    add(f"layers.{layer}.hc_{label}_{name[3:]}", "f32", g.master[layer, site])
    experts = c["n_routed_experts"]
    w13, w2 = params.groups["w13"].master, params.groups["w2"].master
    for layer in range(c["num_hidden_layers"]):
        for e in range(experts + 1):
            p = f"layers.{layer}.ffn." + (f"experts.{e}" if e < experts else "shared_experts")
            kind = "fp4" if e < experts else "fp8"
            add(f"{p}.w1.weight", kind, w13[layer, 0, e])
            add(f"{p}.w2.weight", kind, w2[layer, e].t())
            add(f"{p}.w3.weight", kind, w13[layer, 1, e])
    return out


def load(params: Params, directory: str | pathlib.Path, named: dict | None = None) -> None:
    """Fills the masters and the working copies with exactly the values of a checkpoint, of which only the tensors in
    `named` (a result of views; the backbone's without it) are looked at."""
    raw: dict[str, Tensor] = {}
    for file in sorted(pathlib.Path(directory).glob("model-*.safetensors")):
        with safe_open(file, "pt") as f:
            raw.update({k: f.get_tensor(k) for k in f.keys()})
    with torch.no_grad():
        for name, (_, view) in (named or views(params)).items():
            scale = raw.get(name.removesuffix(".weight") + ".scale") if name.endswith(".weight") else None
            t = raw[name].float() if scale is None else quant.unpack(raw[name], scale)
            view.copy_(t)
        for g in params.groups.values():
            g.work.copy_(g.master)


def encode(named: dict[str, tuple[str, Tensor]]) -> dict[str, Tensor]:
    """Every tensor of the file for a result of views, in file order."""
    out: dict[str, Tensor] = {}
    packers = {"fp8": quant.pack_fp8, "fp4": quant.pack_fp4, "table": quant.pack_table}
    for name, (kind, view) in named.items():
        t = view.detach().cpu().float().contiguous()
        if kind in packers:
            out[name], out[name.removesuffix(".weight") + ".scale"] = packers[kind](t)
        else:
            # hc_fn trains as bf16 values and is stored as fp32
            out[name] = t.to(torch.bfloat16) if kind == "bf16" else t
            if name.endswith("_fn"):
                out[name] = quant.bf16_weight(t)
        if name.endswith("gate.bias"):
            out[name + "_vl"] = t.clone()  # the router's bias on image tokens, which nano never sees
    return out


def frozen(params: Params) -> Params:
    """The masters as they are now, on the CPU: enough to save them while the training goes on."""
    kept = copy.copy(params)
    kept.groups = {name: replace(g, master=g.master.detach().to("cpu", copy=True), work=None, grad=None, leaves=None)
                   for name, g in params.groups.items()}
    return kept


def save(params: Params, directory: str | pathlib.Path, tokenizer_json: str | pathlib.Path, shards: int = 4) -> None:
    """Writes the whole checkpoint directory, tensors split into shards of about equal bytes."""
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    tensors = encode(views(params))
    size = {k: t.numel() * t.element_size() for k, t in tensors.items()}
    total, done, parts = sum(size.values()), 0, [[] for _ in range(shards)]
    for name in tensors:
        parts[min(shards - 1, done * shards // total)].append(name)
        done += size[name]
    index = {"metadata": {"total_size": total}, "weight_map": {}}
    for i, names in enumerate(parts):
        file = f"model-{i + 1:05d}-of-{shards:05d}.safetensors"
        save_file({k: tensors[k].contiguous() for k in names}, directory / file)
        index["weight_map"].update({k: file for k in names})
    (directory / "model.safetensors.index.json").write_text(json.dumps(index, indent=0) + "\n")
    (directory / "config.json").write_text(json.dumps(config_json(params.c), indent=2) + "\n")
    text = pathlib.Path(tokenizer_json).read_text()
    (directory / "tokenizer.json").write_text(text)


def read_config(directory: str | pathlib.Path) -> dict:
    """The text_config of a checkpoint, without its type tag."""
    c = json.loads((pathlib.Path(directory) / "config.json").read_text())["text_config"]
    c.pop("model_type", None)
    return c


def load_model(directory: pathlib.Path, dtype=torch.float32, device: str = "cpu") -> Model:
    """A whole model as the file holds it."""
    c = read_config(directory)
    params = Params(c, device, dtype)
    load(params, directory)
    mapping = compressed_token_map(directory / "tokenizer.json", c["vocab_size"])[0] if c["engram_layer_ids"] else None
    return Model(params, mapping)
