"""Short stories for children's requests, and questions about short passages."""
from __future__ import annotations

from . import words as W
from .base import Item, Source, Turn, conversation, dress, user, assistant

ASKS = ["Tell me a short story about {a}.", "Tell me a story about {a}.", "Write a short story about {a}.",
        "Please tell me a short story about {a}.", "Can you tell me a story about {a}?", "I want to hear a story about {a}.",
        "Write a story about {a}.", "Tell a story about {a}.", "Give me a short story about {a}.", "A short story about {a}, please.",
        "Make up a story about {a}.", "Could you write a little story about {a}?", "Story about {a}"]
PLAIN_ASKS = ["Tell me a story.", "Tell me a short story.", "Write a short story.", "I want to hear a story.", "Please tell a story."]

# trait -> (what it makes the hero do)
TRAITS = "small young brave curious clever shy lonely kind quiet cheerful old hungry playful careful".split()
HOMES = {"forest": "in a deep forest", "hill": "on a green hill", "river": "by a wide river", "village": "near a small village",
         "sea": "by the sea", "garden": "in an old garden", "farm": "on a quiet farm", "mountain": "at the foot of a mountain",
         "lake": "beside a clear lake", "meadow": "in a sunny meadow"}
WISHES = [("wanted to see the sea", "the sea", "It was blue and wide, and the waves sang softly."),
          ("wanted to find a friend", "a friend", "Now there was someone to talk to every day."),
          ("wanted to climb the highest hill", "the top of the hill", "From there the whole world looked small and bright."),
          ("looked for a warm place for the winter", "a warm place", "It was dry and soft, and the cold wind stayed outside."),
          ("had lost a golden key", "the golden key", "It lay under a leaf and shone in the sun."),
          ("wanted to learn a song", "the song", "It was a happy song, and everyone hummed along."),
          ("wanted to taste sweet honey", "the honey", "It was as sweet as a summer day."),
          ("dreamed of a boat", "a little boat", "It had a white sail and danced on the water."),
          ("wanted to see the first snow", "the first snow", "It fell softly and made the world white."),
          ("searched for the way home", "the way home", "The light in the window was still on.")]
START = ["Once upon a time there was {a} who lived {home}.", "Long ago, {a} lived {home}.", "There once was {a} who lived {home}.",
         "{A} lived {home}.", "One day, {a} woke up early {home}."]
WISH = ["The {w} {wish}.", "More than anything, the {w} {wish}.", "Every day the {w} {wish}.", "One morning the {w} {wish}."]
LEAVE = ["So it set out on a long walk.", "So it packed a little bag and went away.", "It took a deep breath and began to walk.",
         "It left its home before the sun was up."]
TROUBLE = ["On the way, a storm came and the rain fell hard.", "Soon the path ended at a broken bridge.",
           "After a while it became dark, and the {w} was afraid.", "Then a big stone blocked the way.",
           "But the way was long, and the {w} grew tired.", "Then the fog came, and the {w} could not see the path."]
HELP = ["There it met {b}. \"{ask}\" said the {h}.", "Then {b} came along. \"{ask}\" asked the {h}.",
        "Luckily, {b} was near. \"{ask}\" said the {h}."]
HELP_SAYS = ["Do not be afraid. I can help you,", "Come with me, I know the way,", "Let us try it together,", "I will show you a better path,"]
TOGETHER = ["Together they walked until the morning.", "They shared some bread and went on together.",
            "Side by side they went on, step by step.", "They laughed and talked, and the way was not so long any more."]
FIND = ["At last the {w} found {goal}. {joy}", "In the end they found {goal}. {joy}", "When the sun came up, there was {goal}. {joy}"]
END = ["The {w} thanked the {h}, and they stayed friends for ever.", "From that day on, the {w} and the {h} were best friends.",
       "The {w} was happy, and it never forgot the kind {h}.", "And the {w} learned that a good friend makes every way shorter.",
       "That night the {w} slept well and smiled."]


def story_text(src: Source, w: str) -> str:
    h = src.pick([a for a in W.ANIMALS if a != w])
    trait, home = src.pick(TRAITS), src.pick(list(HOMES.values()))
    wish, goal, joy = src.pick(WISHES)
    a, b = W.article(f"{trait} {w}"), W.article(src.pick(["old", "wise", "friendly", "little", "big"]) + " " + h)
    slots = dict(a=a, A=W.capital(a), w=w, h=h, b=b, home=home, wish=wish, goal=goal, joy=joy)
    help_line = src.pick(HELP).replace("{ask}", src.pick(HELP_SAYS))
    parts = [src.pick(START), src.pick(WISH), src.pick(LEAVE), src.pick(TROUBLE), help_line, src.pick(TOGETHER), src.pick(FIND),
             src.pick(END)]
    text = " ".join(p.format(**slots) for p in parts)
    return text.replace(',\" asked', ',\" said')


def story_turn(src: Source) -> Turn:
    heroes = W.ANIMALS + ["child", "boat", "star", "robot", "tree", "cloud", "king", "queen", "dragon", "wizard", "teacher",
                          "baker", "farmer", "snowman", "lighthouse", "train", "lamp", "leaf", "knight", "pirate"]
    w = src.pick(heroes)
    shown = src.pick(["", "", "", src.pick(TRAITS) + " "]) + w
    if src.chance(0.12):
        return Turn(src.wording("story0", PLAIN_ASKS), story_text(src, w), f"The user wants a story. I tell one about {W.article(w)}.",
                    graded=False, answer_weight=0.4)
    ask = src.wording("story", ASKS).format(a=W.article(shown))
    return Turn(ask, story_text(src, w), f"The user wants a story about {W.article(w)}. I tell a short one.", graded=False,
                answer_weight=0.4)


def stories(src: Source) -> Item:
    return conversation(src, "story", [story_turn(src)])


# ---- questions about a passage ------------------------------------------------------------------------------------------

ACTS = [("went to", "place", "Where did {N} go", "{N} went to the {v}."), ("bought", "thing", "What did {N} buy", "{N} bought {v}."),
        ("met", "person", "Whom did {N} meet", "{N} met {v}."), ("saw", "animal", "Which animal did {N} see", "{N} saw {v}."),
        ("drank", "drink", "What did {N} drink", "{N} drank {v}."), ("played", "sport", "What did {N} play", "{N} played {v}."),
        ("ate", "food", "What did {N} eat", "{N} ate {v}."), ("travelled by", "vehicle", "How did {N} travel", "{N} travelled by {v}."),
        ("wore", "hat", "What colour was the hat that {N} wore", "{N} wore a {v} hat."), ("lost", "thing", "What did {N} lose", "{N} lost {v}.")]


def value(src: Source, kind: str) -> str:
    return {"place": lambda: src.pick(W.PLACES), "thing": lambda: W.article(src.pick(W.COUNTABLE)[0]),
            "person": lambda: src.pick(W.FIRST_NAMES), "animal": lambda: W.article(src.pick(W.ANIMALS)),
            "drink": lambda: src.pick(W.DRINKS), "sport": lambda: src.pick(W.SPORTS), "food": lambda: src.pick(W.FOODS),
            "vehicle": lambda: src.pick(W.VEHICLES), "hat": lambda: src.pick(W.COLOURS)}[kind]()


def passage(src: Source) -> Item:
    """Three to nine things that a few people did on some days; questions about some of them."""
    def draw():
        people = src.sample(W.FIRST_NAMES, src.number(2, 4))
        facts, seen = [], set()
        for _ in range(src.number(3, 9)):
            name, act = src.pick(people), src.pick(ACTS)
            if (name, act[0]) in seen:
                continue
            seen.add((name, act[0]))
            facts.append((name, act, value(src, act[1])))
        return "passage|" + "|".join(f"{n} {a[0]} {v}" for n, a, v in facts), facts
    facts = src.search(draw)
    lines = []
    for name, act, v in facts:
        what = f"a {v} hat" if act[1] == "hat" else f"the {v}" if act[1] == "place" else v
        when = src.pick(["", "", "In the morning ", "On " + src.pick(W.DAYS) + " ", "Later ", "After lunch ", "Yesterday ", "Then "])
        lines.append(f"{when}{name} {act[0]} {what}.")
    text = " ".join(lines)
    asked = src.sample(facts, min(len(facts), src.number(1, 3)))
    messages = []
    for i, (name, act, v) in enumerate(asked):
        question = act[2].format(N=name) + "?"
        if i == 0:
            intro = src.wording("read", ["{t}\n\n{q}", "{t} {q}", "Read this: {t}\n{q}", "Text: {t}\n\nQuestion: {q}",
                                         "{q}\n\n{t}", "Here is a text. {t} Now my question: {q}"])
            question = intro.format(t=text, q=question)
        answer = act[3].format(N=name, v=v)
        messages += [user(question), assistant(answer, f"The text says: {lines[facts.index((name, act, v))]}")]
    return dress(src, Item("passage", messages))
