"""Tool calls whose names, parameters, descriptions, values and wordings come from the open vocabulary.

What a tool does is said by its name, or by its description alone; the request says it in one of some thousand forms.
Among the tools of a conversation there are some that differ in one word. Tools, keys and forms that are held out
(toolcalls.py) do not occur.
"""
from __future__ import annotations

import json
from dataclasses import dataclass

from . import words as W
from .base import Item, Source, assistant, dress, held_out, user
from .open_parameters import LISTED, STATED, Parameters, Slot, cased, shown
from .phrases import apart, known, patterns, spoken, tidy
from .toolcalls import ACTIONS, DESCRIPTIONS, OTHER_REQUESTS, REQUESTS, THINGS, VERBS, call_reasoning, phrase
from .vocabulary import Vocabulary

PATTERNS = patterns("tools")

# other words for what a tool does
SYNONYMS = dict(line.split(": ") for line in """delete: remove, get rid of, throw away, erase
create: make, set up, produce
get: fetch, show me, give me, look up
find: look for, locate, search for
send: transmit, dispatch, pass on
update: change, edit, modify
start: launch, begin, switch on
stop: halt, end, switch off
list: enumerate, show all of
open: unlock, make accessible
close: shut, finish
move: shift, transfer
copy: duplicate, make a copy of
rename: give a new name to, call differently
buy: purchase, get hold of
repair: fix, mend
inspect: examine, have a look at
show: display, present
hide: conceal, put out of sight
save: keep, store
measure: find the size of, gauge
sort: put in order, arrange
merge: join, combine
split: divide, cut apart
approve: accept, agree to
reject: refuse, turn down
clean: tidy, wash
lend: hand out for a while, loan
rent: hire, take on lease
share: pass around, let others see
print: put on paper, make a printout of
fill: top up, make full
empty: clear out, drain
weigh: find the weight of, put on the scales
count: find the number of, tally
build: construct, put together
assign: allot, hand over
cancel: call off, drop
renew: extend, prolong
review: go through, look over
track: follow, keep an eye on
call: phone, ring, telephone
book: reserve, arrange
search: look through, go looking in
add: put in, append
check: verify, look at
write: put down, compose
read: go over, have a read of
order: ask for, request
pay: settle, hand out the money for
draw: sketch, make a picture of
heat: warm up, make hotter
cool: chill, make colder
pull: draw in, drag
push: shove, press on
sell: give away for money, offer for sale
sign: put a name under, put a signature on
scan: look over, run a scanner over
load: read in, bring in
replay: play again, play once more
plan: think ahead about, work out a plan for
rate: give marks to, judge
record: tape, take down
restore: bring back, get back
archive: put into the archive, store for later
lock: make fast, secure
enable: activate, turn on
disable: deactivate, turn off""".splitlines())
# other words for what it is about
THING_SYNONYMS = dict(line.split(": ") for line in """parcel: package, shipment
photo: picture, snapshot
meeting: appointment, get-together
task: to-do, piece of work
invoice: bill
bill: invoice
customer: client, buyer
employee: worker, member of staff
vehicle: car, means of transport
trip: journey, voyage
shop: store
shop window: display
student: learner, pupil
lesson: class
gift: present
error: mistake, fault
bug: defect, fault in the program
file: document
booking: reservation
ticket: slip, ticket paper
salary: pay, wages
house: home, building
machine: device, apparatus
message: note
list: register
robot: automaton
film: movie
song: tune, piece of music
lamp: light
street: road
meal: dish, food
photo album: book of pictures
statement: declaration
reward: prize
loan: credit
slide: transparency
screen: display
permit: permission
guest: visitor
team: crew
member: participant
license: permit
budget: finances
garden: yard
diary: journal""".splitlines())
DESCRIBING = PATTERNS["describing"]
ASKING = PATTERNS["asking"]
NAMING = PATTERNS["naming"]
ASIDES = ["[I am in a hurry|It is for my [sister|brother|boss|neighbour|teacher]|I forgot it yesterday|It is quite important|There is no rush|My friend asked for it|I have waited for days]. ",
          "[Good morning|Hello|Hi there|Good evening|Dear assistant|Hey nano][!|,|.] ", "[Sorry to bother you|Thanks for your help so far|That was good|One more thing|Now something else]. "]
JOINS = [" and then ", " and then ", ", then ", " and also ", " and ", ", and after that "]       # within one sentence
LINKS = ["Then", "Also", "And", "After that,", "Besides,", "Next,", "In addition,"]
MODULES = "api app srv tools home core sys my ext user web data".split()
FORBIDDEN_ASKS = apart("tool-request", REQUESTS) | apart("tool-other", OTHER_REQUESTS) | {"we have to _ __ _", "i would like to _ __ _"}
# everyday actions, with other ways to ask for them
EVERYDAY = {(verb, thing): others for head, *others in (line.split("|") for line in ACTIONS) for verb, thing in [head.split("/")]
            if not held_out(f"action|{head}", 0.12)}
FORBIDDEN_DESCRIPTIONS = apart("tool-description", DESCRIPTIONS)


@dataclass
class OpenTool:
    name: str
    verb: str
    thing: str
    description: str
    slots: list[Slot]
    required: list[str]

    def schema(self, rich: bool, strict: bool, listed: bool) -> dict:
        parameters: dict = {"type": "object", "properties": {s.key: s.schema(rich, strict) for s in self.slots}}
        if self.required or listed:
            parameters["required"] = self.required
        if strict:
            parameters["additionalProperties"] = False
        return {"name": self.name, "description": self.description, "parameters": parameters}


class OpenTools:
    def __init__(self, vocabulary: Vocabulary):
        self.vocabulary, self.parameters = vocabulary, Parameters(vocabulary)

    # ---- tools

    def action(self, src: Source) -> tuple[str, str]:
        """Verb and thing of a tool, usual or from the open vocabulary."""
        v = self.vocabulary
        if src.chance(0.12):
            return src.pick(list(EVERYDAY))
        while True:
            verb = src.pick(VERBS) if src.chance(0.5) else src.pick(v.verbs)
            thing = src.pick(THINGS) if src.chance(0.35) else v.thing(src)
            if src.chance(0.12):
                thing = f"{src.pick(THINGS)} {src.pick(THINGS)}"
            if src.chance(0.06):
                verb = v.pseudo(src, 2)
            if not held_out(f"action|{verb}/{thing}", 0.12):
                return verb, thing

    def near(self, src: Source, verb: str, thing: str) -> tuple[str, str]:
        """A tool that differs from another in one word."""
        v = self.vocabulary
        while True:
            r = src.rng.random()
            if r < 0.4:
                other = (src.pick(VERBS) if src.chance(0.6) else src.pick(v.verbs), thing)
            elif r < 0.7:
                other = (verb, v.thing(src))
            elif r < 0.85:
                other = (verb, f"{thing} {v.noun(src)}")
            else:
                other = (verb, f"{v.noun(src)} {thing.split()[-1]}")
            if other != (verb, thing) and not held_out("action|" + "/".join(other), 0.12):
                return other

    def name(self, src: Source, verb: str, thing: str, style: int) -> str:
        words = f"{verb} {thing}"
        if style < 6:
            return cased(words.lower(), [0, 0, 1, 2, 3, 0][style])
        if style == 6:
            return src.pick(MODULES) + src.pick(["_", ".", "-"]) + cased(words, 0)
        if style == 7:
            return cased(f"{thing} {verb}", 0)
        return cased(words, 0) + src.pick(["_tool", "_v2", "_now", "_api"])

    def tools(self, src: Source, n: int) -> list[OpenTool]:
        """Tools of one make: names in one style, or names that say nothing."""
        v = self.vocabulary
        style, key_style = src.number(0, 8), src.pick([0, 0, 0, 0, 1, 1, 2, 3])
        opaque, usual = src.chance(0.2), src.pick([0.0, 0.3, 0.6, 0.8, 1.0])
        actions = [self.action(src)]
        while len(actions) < n:
            new = self.near(src, *src.pick(actions)) if src.chance(0.45) else self.action(src)
            if new not in actions and not self.alike(new, actions):
                actions.append(new)
        src.rng.shuffle(actions)
        tools, names = [], set()
        for verb, thing in actions:
            described = known(src, DESCRIBING, FORBIDDEN_DESCRIPTIONS).format(v=verb, V=W.capital(verb), o=thing)
            described = described.replace(f" a {thing}", " " + W.article(thing))
            if opaque:
                name = src.pick([f"{v.noun(src)}_{v.noun(src)}", f"{v.pseudo(src, 2)}", f"{v.letters(src, 2, 4)}{src.number(1, 99)}", f"tool_{src.number(1, 99)}"])
            else:
                name = self.name(src, verb, thing, style)
                described = "" if src.chance(0.12) else described
            if name in names:
                return self.tools(src, n)
            names.add(name)
            slots = self.parameters.several(src, "tool-key", key_style, thing, src.pick([0, 1, 1, 2, 2, 2, 3, 3, 4, 5]), usual)
            required = [s.key for s in slots if src.chance(0.7)]
            tools.append(OpenTool(name, verb, thing, described, slots, required))
        return tools

    @staticmethod
    def alike(new: tuple[str, str], actions: list[tuple[str, str]]) -> bool:
        """The same thing, or a word for it, with a verb of the same meaning."""
        for verb, thing in actions:
            if set(EVERYDAY.get((verb, thing), [])) & set(EVERYDAY.get(new, [])):
                return True
            same = thing == new[1] or thing in THING_SYNONYMS.get(new[1], "").split(", ") or new[1] in THING_SYNONYMS.get(thing, "").split(", ")
            if same and (verb == new[0] or new[0] in SYNONYMS.get(verb, "") or verb in SYNONYMS.get(new[0], "")):
                return True
        return False

    # ---- requests

    def call(self, src: Source, tool: OpenTool) -> tuple[str, dict]:
        """A request in words and the call that answers it."""
        arguments = {s.key: s.value(src) for s in tool.slots if s.key in tool.required or src.chance(0.55)}
        given = [s for s in tool.slots if s.key in arguments]
        src.rng.shuffle(given)
        # most values stand behind the verb, some in sentences or lines of their own
        how = src.rng.random()
        inline = given if how < 0.68 else given[:1] if how < 0.8 else []
        rest = [s for s in given if s not in inline]
        said = (" and " if src.chance(0.12) else ", " if src.chance(0.2) else " ").join(
            self.parameters.said(src, s, arguments[s.key]) for s in inline)
        if src.chance(0.06):
            text = spoken(src, src.pick(NAMING)).format(n=tool.name, p=said)
        else:
            verb = tool.verb
            if verb in SYNONYMS and src.chance(0.25):
                verb = src.pick(SYNONYMS[verb].split(", "))
            thing = src.pick(THING_SYNONYMS[tool.thing].split(", ")) if tool.thing in THING_SYNONYMS and src.chance(0.3) else tool.thing
            determiner = src.pick(["", "", "", "the ", "an " if thing[0] in "aeiou" else "a ", "this ", "my ", "our "])
            if (tool.verb, tool.thing) in EVERYDAY and src.chance(0.4):
                verb, _, thing = src.pick(EVERYDAY[tool.verb, tool.thing]).partition(" ")
                determiner = ""
            form = known(src, ASKING, FORBIDDEN_ASKS)
            text = W.capital(form.format(v=verb, V=W.capital(verb), d=determiner, o=thing, p=said)) if src.chance(0.95) else \
                form.format(v=verb, V=verb, d=determiner, o=thing, p=said)
        if rest and how < 0.9:
            stated = " ".join(spoken(src, src.pick(STATED)).format(k=self.parameters.called(src, s), v=shown(src, arguments[s.key], src.chance(0.4)))
                              for s in rest)
            text = f"{text} {stated}" if src.chance(0.75) else f"{stated} {text}"
        elif rest:
            line = src.pick(LISTED)
            text += "\n" + "\n".join(line.format(k=self.parameters.called(src, s), v=shown(src, arguments[s.key], True)) for s in rest)
        if src.chance(0.1):
            text = spoken(src, src.pick(ASIDES)) + text
        # the call's arguments come in the order of the schema
        return tidy(text), {"name": tool.name, "arguments": arguments}

    def request(self, src: Source, tools: list[OpenTool], parallel: bool) -> tuple[str, list[dict]] | None:
        """A request that belongs to the split, by its values. None: these tools take too few of them."""
        for _ in range(100):
            text, c = self.call(src, src.pick(tools))
            calls = [c]
            if parallel:
                text2, c2 = self.call(src, src.pick(tools))
                if not text2.startswith("I "):
                    text2 = text2[0].lower() + text2[1:]
                text = text.rstrip(".!?") + src.pick(JOINS) + text2 if src.chance(0.55) and "\n" not in text + text2 and ". " not in text2 else f"{text} {src.pick(LINKS)} {text2}"
                calls.append(c2)
            key = "tool|" + json.dumps([c["arguments"] for c in calls], sort_keys=True)
            # a call without values has nothing to hold out: it is for training only
            if src.wants(key) if any(c["arguments"] for c in calls) else src.split == "train":
                return text, calls
        return None

    # ---- results

    def result(self, src: Source) -> tuple[str, str, str]:
        """(tool output, answer, reasoning): as in toolcalls.result, with open keys and values."""
        v = self.vocabulary
        r = src.rng.random()
        if r < 0.1:
            why = src.pick([v.text, lambda s: s.pick(["not found", "access denied", "timeout", "out of stock", "bad request"])])(src)
            form = src.pick(['{{"error": "{w}"}}', "Error: {w}", '{{"status": "error", "message": "{w}"}}', "error: {w}"])
            return form.format(w=why), f"The tool reported an error: {why}.", f"The tool failed: {why}."
        if r < 0.25:
            text = src.pick([v.text, v.title, phrase])(src)
            return text, f"The result is: {text}.", "The tool gave a text."
        if r < 0.35:
            return src.pick(["ok", "done", "success", '{"status": "ok"}', '{"success": true}', '{"ok": true}', "OK"]), "Done.", "The tool has done it."
        values: dict[str, object] = {}
        for _ in range(src.number(1, 4)):
            values[cased(v.thing(src), 0)] = src.pick([v.string, v.string, v.integer, v.decimal, v.name])(src)
        facts = W.listing([f"the {k} is {x}" for k, x in values.items()])
        return json.dumps(values, ensure_ascii=False), W.capital(facts) + ".", "The tool says that " + facts + "."

    # ---- conversations

    def session(self, src: Source, small_talk, most: int = 5) -> Item:
        """Requests, calls, results and answers, sometimes a turn that needs no tool."""
        tools = self.tools(src, src.pick([1, 2, 2, 3, 3, 4, 5, 6]))
        style = (src.chance(0.6), src.chance(0.2), src.chance(0.7))
        messages: list[dict] = []
        for _ in range(src.number(1, most)):
            if src.chance(0.1):
                t = small_talk(src)
                messages += [user(t.question), assistant(t.answer, t.reasoning, aloud=t.aloud)]
                continue
            asked = self.request(src, tools, parallel=src.chance(0.2))
            if asked is None:
                return self.session(src, small_talk, most)
            text, calls = asked
            messages += [user(text), assistant("", call_reasoning(calls), calls)]
            outputs = [self.result(src) for _ in calls]
            messages += [{"role": "tool", "content": o[0]} for o in outputs]
            messages.append(assistant(" ".join(o[1] for o in outputs), " ".join(o[2] for o in outputs)))
        if messages[-1]["role"] == "assistant" and len(messages) > 3 and src.chance(0.3) and messages[-2]["role"] == "tool":
            while messages[-1]["role"] != "assistant" or not messages[-1]["calls"]:
                messages.pop()
        item = Item("tool", messages, tools=[t.schema(*style) for t in tools], prompt_weight=0.05, answer_weight=1.5)
        return dress(src, item, thinking=0.5, system=0.35)
