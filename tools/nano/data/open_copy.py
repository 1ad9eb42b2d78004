"""Copying and picking from open words and texts: what is asked for stands in the question, in words that no list holds."""
from __future__ import annotations

from . import words as W
from .base import Item, Source, Turn, conversation
from .phrases import apart, known, spoken
from .vocabulary import Vocabulary

REPEATED = ["Repeat after me: {t}", "Say this: {t}", "Write exactly this: {t}", "Copy this text: {t}", "Please repeat: {t}", "Repeat the following words: {t}", "Say exactly: {t}"]
REPEAT = ["[Please |Now |Can you |Could you |][repeat|copy|write down|say|echo|type|give back] [this|the following|exactly this|this text|these words|what comes now|the next words][:|, please:| word for word:| without change:] {t}",
          "[Repeat|Copy|Echo|Say]: {t}", "Say [only |just |]\"{t}\"", "{t}\n[Repeat that|Say this again|Write the line above|Copy the text above][.|, please.]", "[Answer|Reply] [only |]with [this text|these words|the following]: {t}"]
FORBIDDEN = apart("repeat", REPEATED)
ORDINALS = "first second third fourth fifth sixth".split()


class OpenCopy:
    def __init__(self, vocabulary: Vocabulary):
        self.vocabulary = vocabulary

    def words(self, src: Source) -> list[str]:
        v = self.vocabulary
        make = src.pick([lambda s: s.pick(v.words), v.noun, v.pseudo, v.ident, v.name, v.letters, v.thing, lambda s: str(v.integer(s))])
        return list(dict.fromkeys(make(src) for _ in range(src.number(2, 7))))

    def text(self, src: Source) -> str:
        v = self.vocabulary
        return " ".join(src.pick([v.text, v.text, v.title, v.string])(src) for _ in range(src.pick([1, 1, 1, 2, 3])))

    def turn(self, src: Source) -> Turn:
        while True:
            kind = src.pick(["repeat"] * 5 + ["list", "nth", "number", "joined", "quoted", "pair", "letters", "where", "json"])
            t = getattr(self, "_" + kind)(src)
            if src.wants("copy|" + t.question):
                return t

    def _repeat(self, src: Source) -> Turn:
        text = self.text(src)
        return Turn(W.capital(known(src, REPEAT, FORBIDDEN).format(t=text)), text, "I repeat the text exactly.")

    def _list(self, src: Source) -> Turn:
        w = self.words(src)
        ask = spoken(src, "[Make|Write|Give me] a [list|bullet list] [of|with] {t}[.|, please.|, one on each line.]").format(t=W.listing(w))
        return Turn(ask, "\n".join("- " + x for x in w), "I write one word on each line.")

    def _nth(self, src: Source) -> Turn:
        w = self.words(src)
        i = src.number(0, min(5, len(w) - 1))
        place, word = (ORDINALS[i], w[i]) if src.chance(0.7) else ("last", w[-1])
        ask = spoken(src, "[What|Which] is the {n} [entry|item|one|thing] [of|in] [this list|the list|these][:| here:] {t}").format(n=place, t=", ".join(w))
        return Turn(ask, f"The {place} entry is {word}.", f"The list is: {', '.join(w)}.")

    def _number(self, src: Source) -> Turn:
        w = self.words(src)
        lines = [f"{i + 1}. {x}" for i, x in enumerate(w)]
        return Turn(spoken(src, "[Number|Count off|Write with numbers] [these|the following][ words| entries|]: {t}").format(t=", ".join(w)), "\n".join(lines), "I number the entries.")

    def _joined(self, src: Source) -> Turn:
        w = self.words(src)
        sign, name = src.pick([("-", "dashes"), (", ", "commas"), ("; ", "semicolons"), (" / ", "slashes"), ("_", "underlines"), (" and ", 'the word "and"')])
        return Turn(spoken(src, "[Join|Connect|Put together|Link] [these|the words|these words][:|] {t} [with|using|by] {n}.").format(t=" ".join(f'"{x}"' for x in w), n=name), sign.join(w), "I join them.")

    def _quoted(self, src: Source) -> Turn:
        text = self.text(src).replace('"', "")
        return Turn(spoken(src, "[Put|Write|Set] [this|the following text|this text] [in|into] quotation marks: {t}").format(t=text), f'"{text}"', "I put the text in quotation marks.")

    def _pair(self, src: Source) -> Turn:
        v = self.vocabulary
        keys = list(dict.fromkeys(v.thing(src) for _ in range(src.number(2, 5))))
        values = [v.string(src) for _ in keys]
        i = src.number(0, len(keys) - 1)
        table = src.pick(["\n", "; ", ", "]).join(f"{k}: {x}" for k, x in zip(keys, values))
        ask = spoken(src, "{t}\n[What is|Which value has|Give me|Read off|What stands at] [the |]{k}[?|.]").format(t=table, k=keys[i])
        return Turn(W.capital(ask), f"The {keys[i]} is {values[i]}.", f"The text says {keys[i]}: {values[i]}.")

    def _letters(self, src: Source) -> Turn:
        w = self.vocabulary.pseudo(src, 2) if src.chance(0.5) else self.vocabulary.noun(src)
        return Turn(spoken(src, "[Spell|Please spell|How do you spell|Can you spell|Spell out] [the word |]\"{w}\"[.|?]").format(w=w), "-".join(w.upper()), f"The letters of {w} one by one.")

    def _where(self, src: Source) -> Turn:
        w = self.words(src)
        while len(w) < 2:
            w = self.words(src)
        i = src.number(0, len(w) - 1)
        before = src.chance(0.5) and i > 0 or i == len(w) - 1
        other, word = ("before", w[i - 1]) if before else ("after", w[i + 1])
        ask = spoken(src, "[What|Which word|Which entry] [comes|stands|is] {o} {x} in: {t}[?|]").format(o=other, x=w[i], t=", ".join(w))
        return Turn(ask, f"The entry {other} {w[i]} is {word}.", f"The list is: {', '.join(w)}.")

    def _json(self, src: Source) -> Turn:
        w = self.words(src)
        quoted = ", ".join(f'"{x}"' for x in w)
        ask = spoken(src, "[Write|Give|Return|Put|Format] {t} as [a JSON array|an array in JSON|JSON array].").format(t=W.listing(w))
        return Turn(ask, f"[{quoted}]", "I write the words as JSON.")

    def item(self, src: Source) -> Item:
        turns = [self.turn(src)]
        while src.chance(0.5) and len(turns) < 6:
            turns.append(self.turn(src))
        return conversation(src, "knowledge", turns)
