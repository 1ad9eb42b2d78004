"""Chat in composed wordings: known intents, definitions, things that nano does not know, stories and poems about anything."""
from __future__ import annotations

from . import intents, stories
from . import words as W
from .base import Item, Source, Turn, casual, conversation
from .chat import DEFINE_ASKS, FIXED, POEM, POEM_ASKS, UNKNOWN_ANSWER, UNKNOWN_ASKS, Chat
from .phrases import apart, known, patterns, spoken, tidy
from .vocabulary import Vocabulary

PATTERNS = patterns("chat")
DEFINE = PATTERNS["define"]
UNKNOWN = PATTERNS["unknown"]
STORY = PATTERNS["story"]
POEMS = PATTERNS["poems"]
FORBIDDEN = apart("define", DEFINE_ASKS) | apart("unknown", UNKNOWN_ASKS) | apart("story", stories.ASKS) | apart("poem", POEM_ASKS)


# words of the known intents, some of which ask what a thing is
ANSWERED = {word.strip(",.?!'\"").lower() for _, _, wordings in FIXED for wording in wordings for word in wording.split()}


class OpenChat:
    def __init__(self, vocabulary: Vocabulary, chat: Chat):
        self.vocabulary, self.chat = vocabulary, chat

    def definition(self, src: Source) -> Turn:
        def draw():
            w, ask = src.pick(self.chat.words), known(src, DEFINE, FORBIDDEN)
            return f"define|{w}|{ask}", (w, ask)
        w, ask = src.search(draw)
        sentence = self.chat.definitions[w]
        thing = w if sentence.split()[0].lower() == w else W.article(w)
        return Turn(casual(src, ask.format(w=w, a=thing)), sentence, f"The user wants to know what {thing} is.")

    def unknown(self, src: Source) -> Turn:
        v = self.vocabulary
        x = src.pick([lambda: src.pick(v.phrases), lambda: src.pick(v.phrases), lambda: v.pseudo(src), lambda: f"the {v.noun(src)} of {v.place(src)}", lambda: v.name(src),
                      lambda: f"{src.pick(v.adjectives)} {src.pick(v.countable)[1]}"])()
        ask = known(src, UNKNOWN, FORBIDDEN).format(x=x)
        return Turn(ask, UNKNOWN_ANSWER.format(x=x), f"I do not know enough about {x}.")

    def undefined(self, src: Source) -> Turn:
        """The question for a definition, as for the words that have one, about any other word."""
        v = self.vocabulary
        while True:
            one, many = src.pick(v.countable)
            known_word = src.pick(self.chat.words)
            w = src.pick([one, one, one, one, src.pick(v.words), f"{one} {known_word}", f"{known_word} {one}", v.pseudo(src)])
            if w not in self.chat.definitions and w not in ANSWERED:
                break
        if src.chance(0.12) and w == one and many not in self.chat.definitions:
            ask = spoken(src, "[What are {w}|Tell me what {w} are|Explain {w} to me|What do you call {w}|Do you know what {w} are][?|?|, please.]").format(w=many)
            return Turn(casual(src, ask), UNKNOWN_ANSWER.format(x=many), f"I do not know enough about {many}.")
        a = W.article(w)
        ask = known(src, DEFINE, FORBIDDEN) if src.chance(0.6) else src.wording("define", DEFINE_ASKS)
        return Turn(casual(src, ask.format(w=w, a=a)), UNKNOWN_ANSWER.format(x=a), f"I do not know enough about {a}.")

    def story(self, src: Source) -> Turn:
        hero = src.pick(W.ANIMALS) if src.chance(0.4) else self.vocabulary.noun(src)
        shown = src.pick(["", "", "", src.pick(stories.TRAITS) + " "]) + hero
        ask = known(src, STORY, FORBIDDEN).format(a=W.article(shown))
        return Turn(ask, stories.story_text(src, hero), f"The user wants a story about {W.article(hero)}. I tell a short one.", graded=False, answer_weight=0.4)

    def poem(self, src: Source) -> Turn:
        w = self.vocabulary.noun(src)
        a = W.article(w)
        text = src.pick(POEM).format(A=W.capital(a), a=a, a2=a, w=w, x=src.pick("small bright old young quiet happy brave kind soft wild".split()))
        return Turn(known(src, POEMS, FORBIDDEN).format(a=a), text, f"The user wants a poem about {a}. Four lines are enough.", graded=False, answer_weight=0.5)

    def turn(self, src: Source) -> Turn:
        return src.rng.choices([intents.composed, self.definition, self.unknown, self.undefined, self.poem], [0.62, 0.15, 0.11, 0.09, 0.03])[0](src)

    def item(self, src: Source, talk) -> Item:
        """One to four turns, now and then ten; `talk`: turns of other kinds."""
        count = src.number(6, 12) if src.chance(0.05) else 1
        while src.chance(0.35) and count < 4:
            count += 1
        return conversation(src, "chat", [self.turn(src) if src.chance(0.8) else talk(src) for _ in range(count)])

    def stories(self, src: Source) -> Item:
        return conversation(src, "story", [self.story(src)])
