"""Conversations -> packed rows, and the worker processes that do it while the trainer runs."""
from __future__ import annotations

import multiprocessing as mp
import os
import signal
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection

import numpy as np

from ..tokenizer import Encoder
from .base import Item, Source
from .mix import LONGEST, Generators, held_out_sets, render

ALIGN = 8       # compressor pairs and candidate blocks start with the conversation
WINDOW = 128
ENGLISH_WEIGHT = 0.4
BOS, EOS = 0, 1


@dataclass
class Sequence:
    """One encoded conversation. turn: which graded answer a token belongs to (-1: none)."""
    ids: list[int]
    weight: list[float]
    turn: list[int]
    starts: list[int]           # where answers begin
    labels: list[str]           # what each graded answer is


def encode(item: Item, encoder: Encoder) -> Sequence:
    ids: list[int] = []
    weight: list[float] = []
    turn: list[int] = []
    starts: dict[int, int] = {}
    for piece, tokens in encoder.pieces(render(item)):
        if piece.answer and piece.turn not in starts:
            starts[piece.turn] = len(ids)
        ids += tokens
        weight += [item.answer_weight if piece.answer else item.prompt_weight] * len(tokens)
        turn += [piece.turn if piece.answer and item.graded else -1] * len(tokens)
    labels, previous = [], None
    for m in item.messages:
        if m["role"] == "assistant":
            labels.append("call" if m["calls"] else "result" if previous == "tool" else "text")
        previous = m["role"]
    return Sequence(ids, weight, turn, sorted(starts.values()), labels)


class Packer:
    """Fills rows of one length. The space that no conversation fits into is filled with English text."""

    def __init__(self, length: int, english: np.ndarray | None, rng: np.random.Generator, replay: float):
        self.length, self.english, self.rng, self.replay = length, english, rng, replay
        self.reset()

    def reset(self) -> None:
        n = self.length
        self.used = self.docs = 0
        self.row = {"ids": np.full(n, 2, np.uint16), "pos": np.zeros(n, np.uint16), "doc": np.full(n, 32000, np.int16),
                    "encoder_seg": np.full(n, 32000, np.int16), "decoder_seg": np.full(n, 32000, np.int16),
                    "weight": np.zeros(n, np.float32), "turn": np.full(n, -1, np.int32)}

    def room(self) -> int:
        return self.length - self.used

    def add(self, s: Sequence, first_turn: int = 0) -> None:
        """Places a conversation, perhaps with replay cuts: at a random place, or 128 tokens before an answer."""
        n, at, row = len(s.ids), self.used, self.row
        end = at + n + -n % ALIGN
        row["ids"][at:at + n] = s.ids
        row["pos"][at:end] = np.arange(end - at)
        row["doc"][at:end] = self.docs
        for name, p in (("encoder_seg", 0.4 * self.replay), ("decoder_seg", self.replay)):
            cut = end - at
            if n > WINDOW + 16 and self.rng.random() < p:
                places = [x - WINDOW for x in s.starts if x > WINDOW]
                cut = int(self.rng.choice(places)) if places and self.rng.random() < 0.7 else int(self.rng.integers(1, n))
            row[name][at:end] = 2 * self.docs + (np.arange(end - at) >= cut)
        # a token's weight stands where it is predicted
        row["weight"][at:at + n - 1] = s.weight[1:]
        turns = np.array(s.turn[1:])
        row["turn"][at:at + n - 1] = np.where(turns >= 0, turns + first_turn, -1)
        self.used, self.docs = end, self.docs + 1

    def finish(self) -> dict[str, np.ndarray]:
        """The row, filled up with a piece of English text (or left with padding that has no weight)."""
        room = self.room()
        if self.english is not None and room > 1:
            start = int(self.rng.integers(0, len(self.english) - room))
            ids = [BOS, *self.english[start:start + room - 1].tolist()]
            self.add(Sequence(ids, [0.0] + [ENGLISH_WEIGHT] * (room - 1), [-1] * room, [], []))
        row = self.row
        row["target"] = np.concatenate([row["ids"][1:], row["ids"][:1]])
        self.reset()
        return row


@dataclass(frozen=True)
class Stage:
    """What the workers produce."""
    name: str
    mix: str                    # a name in mix.SHARES
    length: int
    replay: float               # share of longer conversations with a simulated replay cut
    english: float = 0.05       # share of rows that are English only


def stacked(parts: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {k: np.stack([p[k] for p in parts]) for k in parts[0]}


class TooManyFaults(RuntimeError):
    """Generators fail more often than a run may overlook."""


def _too_long(*_) -> None:
    raise TimeoutError(f"no item within {Drawing.LIMIT} s")


class Drawing:
    """Encoded conversations, one after the other. One that cannot be made is reported and left out; what a source gives
    stays a function of its seed."""

    LIMIT = 60              # seconds for one item
    ALLOWED = 1e-4          # of the items
    ALWAYS = 10             # faults that are too few to tell a share

    def __init__(self, g: Generators, encoder: Encoder):
        self.g, self.encoder, self.drawn, self.failed = g, encoder, 0, 0
        signal.signal(signal.SIGALRM, _too_long)

    def next(self, src: Source, mix: str, where: str) -> Sequence:
        """`where` says which batch it is for."""
        while True:
            family = self.g.family(src, mix)
            self.drawn += 1
            signal.alarm(self.LIMIT)
            try:
                return encode(self.g.make(family, src, LONGEST[mix]), self.encoder)
            except Exception as e:
                self._failed(f"{family}, {where}: {e!r}")
            finally:
                signal.alarm(0)

    def _failed(self, what: str) -> None:
        self.failed += 1
        print(f"an item is left out ({self.failed} of {self.drawn}): {what}\n{traceback.format_exc()}", file=sys.stderr, flush=True)
        if self.failed > max(self.ALWAYS, self.ALLOWED * self.drawn):
            raise TooManyFaults(f"{self.failed} of {self.drawn} items cannot be made; the last: {what}")


MOST_WAITING = 4    # conversations that a row has no room for, before it is closed


def make_batch(drawing: Drawing, english: np.ndarray, stage: Stage, seed: int, number: int, tokens: int) -> dict[str, np.ndarray]:
    """Batch `number` of a stage: a function of its arguments alone, so that a run can be resumed at any step."""
    rng, src = np.random.default_rng([seed, number]), Source(seed * 1_000_003 + number)
    packer, done, count = Packer(stage.length, english, rng, stage.replay), [], 0
    wanted = tokens // stage.length
    waiting: list[Sequence] = []        # too long for what was left of a row
    while len(done) < wanted:
        if packer.used == 0 and rng.random() < stage.english:
            done.append(packer.finish())
            continue
        fitting = [i for i, s in enumerate(waiting) if len(s.ids) + ALIGN <= packer.room()]
        if fitting:
            s = waiting.pop(fitting[0])
        else:
            s, count = drawing.next(src, stage.mix, f"stage {stage.name}, seed {seed}, batch {number}, item {count}"), count + 1
        if len(s.ids) > stage.length - ALIGN:
            continue
        if len(s.ids) + ALIGN <= packer.room():
            packer.add(s)
            continue
        waiting.append(s)
        if packer.room() < stage.length // 16 or len(waiting) > MOST_WAITING:
            done.append(packer.finish())
    return stacked(done)


def training_english(file: str) -> np.ndarray:
    """The English text as ids, without the documents at its end that are held out."""
    ids = np.load(file)
    ends = np.flatnonzero(ids == EOS)
    return ids[:int(ends[kept_documents(len(ends)) - 1]) + 2]  # an end is followed by the next document's beginning


def kept_documents(count: int) -> int:
    return count - count // 50


# ---- worker processes --------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Share:
    """The batches that one process of several takes of each step: number * members + member."""
    member: int = 0
    members: int = 1


def follow_parent() -> None:
    """Ends this process, whatever it is doing, when the one that started it has ended."""
    parent = mp.parent_process().pid

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=watch, daemon=True).start()


def _work(worker: int, workers: int, seed: int, share: Share, corpus: str, tokenizer: str, english_file: str,
          stages: list[Stage], tokens: int, current, first: int, out: Connection) -> None:
    """A worker makes every workers-th batch of the current stage, from the step on at which the stage began, or from `first`
    on. It waits until a batch has been taken before it begins another."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    follow_parent()
    drawing, english, plan, number = Drawing(Generators(corpus), Encoder(tokenizer)), training_english(english_file), None, 0
    try:
        while True:
            if plan != tuple(current[:]):
                plan = tuple(current[:])
                number = plan[1] + worker
                number += -(-max(0, first - number) // workers) * workers
            batch = make_batch(drawing, english, stages[plan[0]], seed, number * share.members + share.member, tokens)
            out.send((plan, number, batch))
            number += workers
    except BrokenPipeError:
        return
    except TooManyFaults as e:
        out.send(str(e))
        raise SystemExit(1)


class DataFailure(RuntimeError):
    """No more batches can be made."""


class Feed:
    """Batches from worker processes, in the order of their numbers: the batch of a step is a function of seed, step and
    stage, so each worker's turn is known, and a worker that was killed is replaced by one that goes on where it stopped."""

    PATIENCE = 120.0    # seconds without a batch
    REPLACEMENTS = 3

    def __init__(self, workers: int, seed: int, first: int, corpus: str, tokenizer: str, english: str,
                 stages: list[Stage], tokens: int, stage: int = 0, share: Share = Share()):
        self.context = mp.get_context("spawn")
        self.step, self.begun, self.replaced = first, first, 0
        self.current = self.context.Array("q", [stage, first], lock=False)
        self.arguments = (workers, seed, share, corpus, tokenizer, english, stages, tokens, self.current)
        self.workers = [self._start(i) for i in range(workers)]

    def _start(self, worker: int) -> tuple[mp.Process, Connection]:
        # a pipe for each: one that dies while it writes harms no other, and ends its own
        ours, theirs = self.context.Pipe(duplex=False)
        process = self.context.Process(target=_work, daemon=True, args=(worker, *self.arguments, self.step, theirs))
        process.start()
        theirs.close()
        return process, ours

    def switch(self, stage: int) -> None:
        """The next batch, and all that follow, are of this stage."""
        self.begun = self.step
        self.current[:] = [stage, self.step]

    def next(self) -> dict[str, np.ndarray]:
        worker = (self.step - self.begun) % len(self.workers)
        plan, number = tuple(self.current[:]), -1
        while number != self.step:
            given, number, batch = self._receive(worker)
            number = number if given == plan else -1    # of an earlier stage
        self.step += 1
        return batch

    def _receive(self, worker: int):
        """What the worker has made next; if it was killed, what its successor makes."""
        waited = 0.0
        while True:
            process, pipe = self.workers[worker]
            try:
                if pipe.poll(1.0):
                    message = pipe.recv()
                    if isinstance(message, str):
                        raise DataFailure(message)
                    return message
            except (EOFError, OSError):      # the second in the middle of a batch
                process.join(5.0)
                self._replace(worker)
            waited += 1.0
            if waited > self.PATIENCE:
                raise DataFailure(f"no batch for {waited:.0f} s")

    def _replace(self, worker: int) -> None:
        process, pipe = self.workers[worker]
        self.replaced += 1
        if self.replaced > self.REPLACEMENTS or process.exitcode is None or process.exitcode >= 0:
            raise DataFailure(f"data worker {worker} has ended with status {process.exitcode}, {self.replaced} in all")
        print(f"data worker {worker} was ended by signal {-process.exitcode} and is replaced", file=sys.stderr, flush=True)
        pipe.close()
        self.workers[worker] = self._start(worker)

    def waiting(self) -> int:
        return sum(pipe.poll() for _, pipe in self.workers)

    def close(self) -> None:
        for process, _ in self.workers:
            process.kill()


def held_out_rows(corpus: str, tokenizer: str, name: str, length: int, items: int, seed: int):
    """(packed rows, label of each graded answer) of a held-out set, without English and without replay."""
    generators, encoder = Generators(corpus), Encoder(tokenizer)
    usual, make, split = held_out_sets(generators)[name]
    length = length or usual
    packer, src = Packer(length, None, np.random.default_rng(seed), 0.0), Source(seed, split)
    done, labels, count = [], [], 0
    while count < items:
        s = encode(make(src), encoder)
        if len(s.ids) > length - ALIGN:
            continue
        if len(s.ids) + ALIGN > packer.room():
            done.append(packer.finish())
        packer.add(s, len(labels))
        labels += s.labels
        count += 1
    done.append(packer.finish())
    return stacked(done), labels


def english_rows(corpus: str, tokenizer: str, length: int, items: int) -> dict[str, np.ndarray]:
    """Packed rows of held-out English, every token of which counts; `bytes` is the text that a row's targets spell."""
    encoder, packer, done = Encoder(tokenizer), Packer(length, None, np.random.default_rng(0), 0.0), []
    texts = Generators(corpus).english()
    size = 0

    def finish() -> None:
        done.append({**packer.finish(), "bytes": np.array(size)})
    for text in texts[kept_documents(len(texts)):][:items]:
        ids = [BOS, *encoder.texts([text])[0]]
        if len(ids) > length - ALIGN:
            continue
        if len(ids) + ALIGN > packer.room():
            finish()
            size = 0
        packer.add(Sequence(ids, [0.0] + [1.0] * (len(ids) - 1), [-1] * len(ids), [], []))
        size += len(text.encode())
    finish()
    return stacked(done)
