"""Trains nano's tokenizer and encodes conversations with it.

The file has the released tokenizer's form: byte-level BPE, its three pre-tokenizer patterns, BOS, EOS and pad as ids
0, 1 and 2, control tokens last. Digits never merge, so numbers are read digit by digit.

    python -m nano.tokenizer CORPUS_DIR OUT.json
    python -m nano.tokenizer CORPUS_DIR TOKENIZER.json english     # english.npy alone, with a tokenizer that stays

Also writes CORPUS_DIR/english.npy, the English text as ids, for the trainer's workers.
"""
from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Iterable, Iterator

import numpy as np

from .chatfmt import BOS, CONTROL, EOS, PAD, Piece

VOCAB = 4096
PATTERNS = [
    r"\p{N}{1,3}",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*"
    "|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
]


def pre_tokenizer(patterns: list[str]) -> dict:
    steps: list[dict] = [{"type": "Split", "pattern": {"Regex": p}, "behavior": "Isolated", "invert": False} for p in patterns]
    steps.append({"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False})
    return {"type": "Sequence", "pretokenizers": steps}


def added(token: str, index: int) -> dict:
    special = token not in ("<think>", "</think>", "｜DSML｜")
    return {"id": index, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": special}


def document(model: dict, added_tokens: list[dict], patterns: list[str] = PATTERNS) -> dict:
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added_tokens,
            "normalizer": {"type": "Sequence", "normalizers": []}, "pre_tokenizer": pre_tokenizer(patterns),
            "post_processor": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
            "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}, "model": model}


def train(texts: Iterable[str]) -> dict:
    """Texts -> the whole tokenizer.json."""
    from tokenizers import Tokenizer, pre_tokenizers, trainers
    empty = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
             "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": {}, "merges": []}
    learner = Tokenizer.from_str(json.dumps(document(empty, [], [r"\p{N}", *PATTERNS])))
    trainer = trainers.BpeTrainer(vocab_size=VOCAB - 3 - len(CONTROL), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False, max_token_length=24)
    learner.train_from_iterator(texts, trainer)
    model = json.loads(learner.to_str())["model"]
    ids = {token: i + 3 for token, i in model["vocab"].items()}
    specials = {BOS: 0, EOS: 1, PAD: 2, **{token: len(ids) + 3 + i for i, token in enumerate(CONTROL)}}
    assert len(ids) + len(specials) == VOCAB
    model = {**empty, "vocab": {BOS: 0, EOS: 1, PAD: 2, **ids}, "merges": model["merges"]}
    return document(model, [added(token, i) for token, i in specials.items()])


class Encoder:
    """Text is encoded without added tokens, so a control token's spelling inside a text stays plain text."""

    def __init__(self, tokenizer_json: str | pathlib.Path):
        from tokenizers import Tokenizer
        full = json.loads(pathlib.Path(tokenizer_json).read_text())
        self.control = {t["content"]: t["id"] for t in full["added_tokens"]}
        self.plain = Tokenizer.from_str(json.dumps({**full, "added_tokens": []}))
        self.full = Tokenizer.from_file(str(tokenizer_json))

    def texts(self, texts: list[str]) -> list[list[int]]:
        return [e.ids for e in self.plain.encode_batch_fast(texts, add_special_tokens=False)]

    def pieces(self, pieces: list[Piece]) -> list[tuple[Piece, list[int]]]:
        encoded: Iterator[list[int]] = iter(self.texts([p.text for p in pieces if not p.control]))
        return [(p, [self.control[p.text]] if p.control else next(encoded)) for p in pieces]

    def decode(self, ids: list[int]) -> str:
        return self.full.decode(ids, skip_special_tokens=False)


def write_english(corpus: pathlib.Path, encoder: Encoder) -> None:
    ids: list[int] = []
    for tokens in encoder.texts((corpus / "english.txt").read_text().splitlines()):
        ids += [*tokens, encoder.control[EOS], encoder.control[BOS]]
    np.save(corpus / "english.npy", np.array(ids, np.uint16))
    print(len(ids), "tokens of English")


def write_tokenizer(corpus: pathlib.Path, out: pathlib.Path) -> None:
    from .data.mix import Generators
    result = train(Generators(corpus).sample_texts())
    out.write_text(json.dumps(result, ensure_ascii=False, indent=0) + "\n")
    print(out, len(result["model"]["vocab"]), "entries,", len(result["model"]["merges"]), "merges")


def main() -> None:
    corpus, tokenizer = map(pathlib.Path, sys.argv[1:3])
    if sys.argv[3:] != ["english"]:
        write_tokenizer(corpus, tokenizer)
    write_english(corpus, Encoder(tokenizer))


if __name__ == "__main__":
    main()
