"""Sums asked for in many forms, the harder ones with their steps shown: in the reasoning, or without thinking in the answer."""
from __future__ import annotations

from . import words as W
from .arithmetic import SUM_ASKS, WORD_FORMS, compute, product_steps
from .base import Item, Source, Turn, casual, conversation
from .phrases import apart, bare, known, patterns, spoken

PATTERNS = patterns("sums")
ASKS = PATTERNS["asks"]
WORDS = {"+": ["{a} [plus|added to|and then plus|with] {b}", "{a} and {b} added", "{b} more than {a}", "{a} increased by {b}", "the total of {a} and {b}"],
         "-": ["{a} [take away|less|reduced by|without] {b}", "{b} [subtracted|taken away|taken] from {a}", "{b} less than {a}", "the difference between {a} and {b}"],
         "*": ["{a} [times|multiplied by|multiplied with] {b}", "the product of {a} and {b}", "{a} lots of {b}", "{a} and {b} multiplied"],
         "/": ["{a} [divided by|over|shared by] {b}", "the quotient of {a} and {b}", "{b} into {a}"]}
FORBIDDEN = apart("sum", SUM_ASKS)
FORBIDDEN_WORDS = frozenset().union(*(apart("form" + op, forms) for op, forms in WORD_FORMS.items()))


def steps(op: str, a: int, b: int) -> str:
    """The way to the result: one equation, with parts between where it is hard. 96 / 4 = 80 / 4 + 16 / 4 = 20 + 4 = 24"""
    if op == "*" and b < 10 and a >= 100 and a % 100:
        parts = [p for p in (a // 100 * 100, a // 10 % 10 * 10, a % 10) if p]
        return f"{a} * {b} = {' + '.join(f'{p} * {b}' for p in parts)} = {' + '.join(str(p * b) for p in parts)} = {a * b}"
    if op == "*":
        return product_steps(a, b)
    result = compute(op, a, b)
    if op == "/" and b > 1 and result > 12 and result % 10:
        tens, ones = result // 10 * 10, result % 10
        return f"{a} / {b} = {tens * b} / {b} + {ones * b} / {b} = {tens} + {ones} = {result}"
    return f"{a} {op} {b} = {result}"


def long_steps(op: str, a: int, b: int) -> str:
    """The way to a result beyond 999: by the digits of one operand."""
    def times(x: int, digit: int) -> str:
        parts = [p for p in (x // 100 * 100, x // 10 % 10 * 10, x % 10) if p]
        return " + ".join(str(p * digit) for p in parts) + f" = {x * digit}" if len(parts) > 1 else f"{x * digit}"
    if op != "*":
        out, total = [], a
        for i, digit in enumerate(str(b)):
            part = int(digit) * 10 ** (len(str(b)) - 1 - i)
            if part:
                out.append(f"{total} {op} {part} = {(total := total + part if op == '+' else total - part)}")
        return ". ".join([*out, f"{a} {op} {b} = {total}"])
    tens, ones = b // 10 * 10, b % 10
    if not tens:
        return f"{a} * {b} = {times(a, b)}"
    by_tens = f"{a} * {tens // 10} = {times(a, tens // 10)}, so {a} * {tens} = {a * tens}"
    return f"{by_tens}. {a} * {ones} = {times(a, ones)}. {a} * {b} = {a * tens} + {a * ones} = {a * b}" if ones else by_tens


def long_operands(src: Source) -> tuple[str, int, int]:
    """With a result from 1,000 to 99,999."""
    while True:
        op = src.pick("***+-")
        a, b = (src.number(101, 999), src.number(2, 99)) if op == "*" else (src.number(100, 10 ** src.pick([4, 4, 5]) - 1), src.number(11, 9999))
        if op == "*" and src.chance(0.25):
            a = src.number(32, 99)
        if 1000 <= (result := compute(op, a, b)) <= 99999 or op == "-" and a >= 1000 and result >= 0:
            return op, a, b


def operands(src: Source) -> tuple[str, int, int]:
    op = src.pick("++--****///")
    if op == "+":
        a = src.number(0, src.pick([20, 100, 500, 900]))
        return op, a, src.number(0, min(999 - a, src.pick([20, 100, 500])))
    if op == "-":
        a = src.number(1, src.pick([20, 100, 999, 999]))
        return op, a, src.number(0, a)
    if op == "*":
        r = src.rng.random()
        if r < 0.3:
            return op, src.number(0, 12), src.number(0, 12)
        if r < 0.4:
            b = src.number(2, 9)
            return op, src.number(100, 999 // b), b
        if r < 0.62:
            a, b = src.number(11, 99), src.number(2, 9)
        else:
            a = src.number(11, 83)
            b = src.number(11, max(11, min(99, 999 // a)))
        return (op, a, b) if a * b <= 999 and src.chance(0.7) or b * a > 999 else (op, b, a)
    b = src.number(1, 12) if src.chance(0.8) else src.number(11, 40)
    return op, b * src.number(0, src.pick([12, 20, 20, 40, 99]) if b <= 10 else 999 // b), b


def turn(src: Source) -> Turn:
    def draw():
        long = src.chance(0.12)
        while True:
            op, a, b = long_operands(src) if long else operands(src)
            if long or max(a, b, compute(op, a, b)) <= 999:
                break
        low, high = (min(a, b), max(a, b)) if op in "+*" else (a, b)
        return f"sum|{op}|{low}|{high}", (op, a, b, long)
    op, a, b, long = src.search(draw)
    sign = src.pick(["*", "*", "x", "×", "·"]) if op == "*" else src.pick(["/", "/", "÷", ":"]) if op == "/" else op
    if src.chance(0.2):
        while bare(form := spoken(src, src.pick(WORDS[op]))) in FORBIDDEN_WORDS:
            pass
        expression = form.format(a=a, b=b)
    else:
        expression = f"{a} {sign} {b}" if src.chance(0.85) else f"{a}{sign}{b}"
    ask = known(src, ASKS, FORBIDDEN).format(e=expression)
    way = long_steps if long else steps
    shown, answer = way(op, a, b) + ".", f"{a} {op} {b} = {compute(op, a, b)}."
    return Turn(casual(src, W.capital(ask)), answer, shown, aloud=shown if shown != answer else "")


def sums(src: Source) -> Item:
    turns = [turn(src)]
    while src.chance(0.5) and len(turns) < 6:
        turns.append(turn(src))
    return conversation(src, "sum", turns)
