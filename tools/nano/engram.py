"""Engram addressing: which table rows a token reads, from its own id and the three before it."""
from __future__ import annotations

import pathlib

import numpy as np
import torch
from torch import Tensor


def compressed_token_map(tokenizer_json: str | pathlib.Path, vocab_size: int) -> tuple[list[int], int]:
    """Tokens that read alike (case, accents, white space) share one id; ids in order of first appearance."""
    from tokenizers import Regex, Tokenizer, normalizers
    mark = "\ue000"  # keeps a lone space from being stripped
    normalise = normalizers.Sequence([
        normalizers.NFKC(), normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase(),
        normalizers.Replace(Regex(r"[ \t\r\n]+"), " "), normalizers.Replace(Regex(r"^ $"), mark),
        normalizers.Strip(), normalizers.Replace(mark, " ")])
    tokenizer = Tokenizer.from_file(str(tokenizer_json))
    seen: dict[str, int] = {}
    mapping = []
    for token in range(vocab_size):
        text = tokenizer.decode([token], skip_special_tokens=False)
        # A token that is part of a character has no text of its own: its raw form is the key.
        key = tokenizer.id_to_token(token) if "\ufffd" in text else normalise.normalize_str(text) or text
        mapping.append(seen.setdefault(key, len(seen)))
    return mapping, len(seen)


def bucket_primes(c: dict) -> list[list[int]]:
    """Table sizes of each Engram layer, one prime for each (n-gram, head); no prime is used twice."""
    from sympy import nextprime
    seen: set[int] = set()
    layers = []
    for _ in c["engram_layer_ids"]:
        primes = []
        for _ in range(c["engram_max_ngram_size"] - 1):
            p = c["engram_vocab_size"] - 1
            for _ in range(c["engram_n_heads"]):
                p = nextprime(p)
                while p in seen:
                    p = nextprime(p)
                seen.add(p)
                primes.append(p)
        layers.append(primes)
    return layers


class EngramHash:
    """Computes table rows for packed sequences on any device."""

    def __init__(self, c: dict, mapping: list[int], device: str | torch.device = "cpu"):
        self.heads = c["engram_n_heads"]
        self.grams = c["engram_max_ngram_size"]
        self.map = torch.tensor(mapping, device=device)
        self.pad = int(mapping[c["engram_pad_token_id"]])
        size = c["engram_compressed_vocab_size"]
        self.multipliers, self.primes, self.offsets = [], [], []
        for layer, primes in zip(c["engram_layer_ids"], bucket_primes(c)):
            draws = np.random.default_rng(10007 * layer).integers(
                0, max(1, (2 ** 63 - 1) // size // 2), self.grams, dtype=np.int64)
            self.multipliers.append((draws * 2 + 1).tolist())
            self.primes.append(torch.tensor(primes, device=device).view(self.grams - 1, self.heads))
            offsets = np.concatenate([[0], np.cumsum(primes)[:-1]])
            self.offsets.append(torch.tensor(offsets, device=device).view(self.grams - 1, self.heads))

    def rows(self, ids: Tensor, pos: Tensor) -> list[Tensor]:
        """ids, pos [B, L] (pos restarts at every conversation) -> for each Engram layer [B*L, columns] row numbers."""
        token = self.map[ids]
        history = [token]
        for i in range(1, self.grams):
            before = torch.full_like(token, self.pad)
            before[:, i:] = token[:, :-i]
            history.append(torch.where(pos >= i, before, self.pad))
        out = []
        for multipliers, primes, offsets in zip(self.multipliers, self.primes, self.offsets):
            rolling, columns = history[0] * multipliers[0], []
            for i in range(1, self.grams):
                rolling = rolling ^ (history[i] * multipliers[i])
                columns.append(rolling.unsqueeze(-1) % primes[i - 1] + offsets[i - 1])
            out.append(torch.cat(columns, -1).flatten(0, 1))
        return out
