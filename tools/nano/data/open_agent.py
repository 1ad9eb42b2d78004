"""Tools as coding agents and assistants declare them, and requests in which values stand bare: "Open src/main.cc please."

What a tool is called, says and takes, how it is asked for, what it returns and what the answer says of that are patterns
(patterns/agent.txt). Names, descriptions and keys are chosen anew for every conversation, values are open. Later
requests take values out of results: a file of a listing, the address of a page, the id of a task.
"""
from __future__ import annotations

import json
import re

from . import words as W
from .agent_results import KINDS, AgentResults, Result
from .agent_values import OPTIONS, PATTERNS, SLOT
from .base import Item, Source, assistant, dress, held_out, user
from .open_parameters import Parameters, Slot, cased
from .open_tools import EVERYDAY, FORBIDDEN_ASKS, OpenTool, OpenTools
from .phrases import apart, known, spoken, tidy
from .toolcalls import AS_QUESTION, call_reasoning
from .vocabulary import Vocabulary

CORE = ["read", "list", "grep", "shell"]
DAILY = "event events cancel mail mails mailread timer alarm reminder note contact light heat play weather translate message phone".split()
SHARED = ["search", "fetch", "todoadd", "todos", "tododone"]
CODING = [k for k in KINDS if k not in DAILY]
TYPES = {"integer": "limit offset timeout minutes percent degrees".split(), "boolean": "recursive append all background ignore".split(), "array": ["tags"]}
LONG = ["text", "body", "code", "message", "task", "sql"]                       # nothing may follow them without a mark
TWICE = "path dir glob pattern url city name id".split()                          # a request may give two of them
LINKS = [" and then ", " and ", ", then ", ". Then ", ". Also ", ". After that, ", " and also ", "; then "]
NTH = "first second third fourth fifth".split()
FORBIDDEN = FORBIDDEN_ASKS | frozenset().union(*(apart("tool-question", forms) for forms in AS_QUESTION.values()))


class OpenAgent(AgentResults):
    def __init__(self, vocabulary: Vocabulary):
        super().__init__(vocabulary)
        self.parameters, self.others = Parameters(vocabulary), OpenTools(vocabulary)

    # ---- tools

    def tools(self, src: Source) -> list[OpenTool]:
        """Of one make: names and keys in one style, some tools that have nothing to do with it."""
        n, r = src.number(3, 14) if src.chance(0.4) else src.number(3, 7), src.rng.random()
        pool = CODING if r < 0.55 else DAILY + SHARED if r < 0.85 else list(KINDS)
        chosen = dict.fromkeys(src.sample(CORE, src.number(2, 4)) if pool is CODING and src.chance(0.8) else [])
        while len(chosen) < n:
            kind = src.pick(pool)
            chosen[kind] = None
            for line in KINDS[kind].get("@>", []):      # what goes on with its results
                if src.chance(0.6) and len(chosen) < 14:
                    chosen[line.split()[0]] = None
        style, key_style = src.pick([0, 0, 0, 1, 2, 3, 3]), src.pick([0, 0, 0, 0, 1, 1, 2])
        prefix = src.pick(["fs_", "mcp__files__", "api.", "my_", self.stem(src) + "_"]) if src.chance(0.1) else ""
        short, rich = src.chance(0.4), src.chance(0.85)
        tools = [self.tool(src, k, style, key_style, prefix, short, rich) for k in chosen]
        if len(tools) < 12 and src.chance(0.25):
            tools += [t for t in self.others.tools(src, src.number(1, 3)) if (t.verb, t.thing) not in EVERYDAY]
        src.rng.shuffle(tools)
        return tools if len({t.name for t in tools}) == len(tools) else self.tools(src)

    def tool(self, src: Source, kind: str, style: int, key_style: int, prefix: str, short: bool, rich: bool) -> OpenTool:
        lines = KINDS[kind]
        names = [n for n in lines["="][0].split(", ") if not any(held_out(f"action|{' '.join(n.split()[:i])}/{' '.join(n.split()[i:])}", 0.12)
                                                                  for i in range(1, len(n.split())))]
        name = src.pick([n for n in names if short and " " not in n] or names)
        more = lines.get("+", []) + PATTERNS["notes"]
        about = [spoken(src, src.pick(lines[":"])), *(spoken(src, m) for m in src.sample(more, min(len(more), src.pick([0, 0, 0, 1, 1, 2, 3]))))]
        description = "" if src.chance(0.04) and " " in name else self.fill(src, " ".join(about), {})
        slots, required = [], []
        for line in lines.get("*", []):
            head, described = line.split(" ; ")
            role, *keys = head.split()
            if role.endswith("?") and src.chance(0.35):
                continue
            key = cased(src.pick([k for k in dict.fromkeys(keys) if self.parameters.free(k, "tool-key")]), key_style)
            role, optional = role.rstrip("?"), role.endswith("?")
            type_ = next((t for t, roles in TYPES.items() if role in roles), "string")
            options = OPTIONS[role].split() if role in OPTIONS else None
            if key in [s.key for s in slots]:
                return self.tool(src, kind, style, key_style, prefix, short, rich)
            slots.append(Slot(key, role, W.capital(tidy(spoken(src, described))) if rich else "", None, type_, options))
            required += [] if optional else [key]
        return OpenTool(prefix + cased(name, style), kind, "", description, slots, required)

    # ---- requests

    def form(self, src: Source, tool: OpenTool, mark: str = ">", given: tuple[str, ...] = (), joined: bool = False) -> str | None:
        """A request to the tool, unfilled: it has all the values that the call needs, and none that it does not take."""
        roles = {s.said for s in tool.slots}
        needed = {s.said for s in tool.slots if s.key in tool.required}
        for _ in range(30):
            form = tidy(known(src, src.pick(KINDS[tool.verb][mark]), FORBIDDEN))
            has = {m.group(1) for m in SLOT.finditer(form)} - {"nth", "which"} | set(given)
            last = SLOT.search(form.rstrip(".!?") + "$", max(form.rfind("{"), 0))
            open_end = last is not None and last.group(1) in LONG and form.rstrip(".!?").endswith("}")
            if needed <= {r for r in has if r[0] != "_"} <= roles and not (joined and open_end):
                if re.match("c(an|ould) you", form, re.I) and form.endswith(".") and src.chance(0.7):
                    form = form[:-1] + "?"
                return W.capital(form) if src.chance(0.75) else form if form.startswith("I ") else form[0].lower() + form[1:]
        return None

    def ask(self, src: Source, tools: list[OpenTool]) -> tuple[str, list[tuple[OpenTool, dict]]] | None:
        """A request for one call, or for two in one sentence."""
        tool = src.pick(tools)
        two = src.chance(0.16) and len(tools) > 1
        form, values = self.form(src, tool, joined=two), {}
        if form is None:
            return None
        slots = SLOT.findall(form)
        if two and len(slots) == 1 and slots[0][0] in TWICE and src.chance(0.5):     # "Open a.txt and b.txt."
            role = slots[0][0]
            text = self.fill(src, form.replace(f"{{{role}}}", f"{{{role}}} and {{{role}2}}"), values, True)
            return text, [(tool, {role: values[role]}), (tool, {role: values[f"{role}2"]})]
        if not two:
            return self.fill(src, form, values, True), [(tool, values)]
        other, values2 = src.pick([t for t in tools if t is not tool]), {}
        second = self.form(src, other)
        if second is None:
            return None
        link = src.pick(LINKS)
        return self.fill(src, form.rstrip(".!?") + link, values, True) + self.fill(src, self.second(second), values2, True), [(tool, values), (other, values2)]

    @staticmethod
    def second(form: str) -> str:
        """As the second part of a sentence."""
        form = re.sub(r"^(okay, |hey, |now |next, |go and )", "", form, flags=re.I)
        return form if form.startswith("I ") else form[0].lower() + form[1:]

    def later(self, src: Source, tools: list[OpenTool], result: Result, seen: bool = True) -> tuple[str, list[tuple[OpenTool, dict]]] | None:
        """A request about a thing of the result before, which the user has seen or not yet."""
        options = [(t, i, role, x) for i, row in enumerate(result.rows) for kind, role, x in row.handles for t in tools if t.verb == kind]
        mark = "~1" if result.single else "~"
        options = [o for o in options if mark in KINDS[o[0].verb]]
        if not options:
            return None
        tool, i, role, x = src.pick(options)
        form = self.form(src, tool, mark, (role,))
        if form is None or "{which}" in form and (not seen or [r.asked for r in result.rows].count(result.rows[i].asked) > 1):
            return None
        values = {"nth": self.nth(src, i, len(result.rows)), "which": result.rows[i].asked, role: x}
        return self.fill(src, form, values, True), [(tool, values)]

    @staticmethod
    def nth(src: Source, i: int, n: int) -> str:
        return "last" if n > 1 and i == n - 1 and src.chance(0.5) else NTH[i]

    # ---- conversations

    def turn(self, src: Source, tools: list[OpenTool], before: Result | None) -> tuple[list[dict], Result | None] | None:
        """A request with all that follows it up to the answer. None: it is not of this split, or cannot be made."""
        mine = [t for t in tools if t.verb in KINDS and t.thing == ""]
        if before and not before.single and before.rows and src.chance(0.08):
            i = src.number(0, len(before.rows) - 1)
            nth = self.nth(src, i, len(before.rows))
            if src.split == "train":
                why = f"The result had {', '.join(f'{k + 1}: {r.called}' for k, r in enumerate(before.rows))}."
                return [user(W.capital(spoken(src, src.pick(PATTERNS["again"])).format(nth=nth))), assistant(f"The {nth} one was {before.rows[i].called}.", why)], before
        asked = self.later(src, tools, before) if before and src.chance(0.8) else None
        asked = asked or self.ask(src, mine)
        if asked is None:
            return None
        text, wanted = asked
        calls = [{"name": t.name, "arguments": {s.key: x[s.said] for s in t.slots if s.said in x}} for t, x in wanted]
        for tool, values in wanted:
            if before and before.written and tool.verb == "read" and values["path"] == before.written[0]:
                values["_text"] = before.written[1]
        results = [self.result(src, t.verb, x) for t, x in wanted]
        messages = [user(text), assistant("", call_reasoning(calls), calls), *({"role": "tool", "content": r.output} for r in results)]
        if len(wanted) == 1 and not results[0].single and src.chance(0.35):     # "... and open the first one": a second call after the result
            more = self.chained(src, tools, messages, results[0])
            if more is not None:
                messages, results, calls = *more, [m["calls"][0] for m in more[0] if m.get("calls")]
        key = "tool|" + json.dumps([c["arguments"] for c in calls], sort_keys=True)
        if not (src.wants(key) if any(c["arguments"] for c in calls) else src.split == "train"):
            return None
        answer = assistant("\n".join(r.answer for r in results), " ".join(r.reasoning for r in results))
        return [*messages, answer], results[0] if len(results) == 1 else None

    def chained(self, src: Source, tools: list[OpenTool], messages: list[dict], result: Result) -> tuple[list[dict], list[Result]] | None:
        """The same request with a second wish, which takes a value from the result of the first call."""
        later = self.later(src, tools, result, seen=False)
        if later is None or messages[0]["content"].rstrip(".!?").endswith("thanks"):
            return None
        text, [(tool, values)] = later
        call = {"name": tool.name, "arguments": {s.key: values[s.said] for s in tool.slots if s.said in values}}
        after = self.result(src, tool.verb, values)
        first = user(messages[0]["content"].rstrip(".!?") + src.pick(LINKS) + self.second(text))
        return [first, *messages[1:], assistant("", call_reasoning([call]), [call]), {"role": "tool", "content": after.output}], [after]

    def session(self, src: Source, small_talk) -> Item:
        tools = self.tools(src)
        messages: list[dict] = []
        if src.chance(0.55):
            rules = [spoken(src, r) for r in src.sample(PATTERNS["system rule"], src.pick([0, 0, 1, 1, 2, 3, 5, 9]))]
            text = self.fill(src, " ".join([spoken(src, src.pick(PATTERNS["system start"])), *rules]), {})
            messages.append({"role": "system", "content": text})
        before: Result | None = None
        for _ in range(src.number(1, 5)):
            if src.chance(0.1):
                t = small_talk(src)
                messages += [user(t.question), assistant(t.answer, t.reasoning, aloud=t.aloud)]
                before = None
                continue
            made = next(filter(None, (self.turn(src, tools, before if i < 30 else None) for i in range(200))), None)
            if made is None:            # these tools take no values that could be held out
                return self.session(src, small_talk)
            messages, before = messages + made[0], made[1]
        if len(messages) > 6 and src.chance(0.2):       # ends with a call
            while messages[-1]["role"] != "assistant" or not messages[-1]["calls"]:
                messages.pop()
                if not messages:
                    return self.session(src, small_talk)
        style = (True, src.chance(0.2), src.chance(0.7))
        item = Item("tool", messages, tools=[t.schema(*style) for t in tools], prompt_weight=0.05, answer_weight=1.5)
        return dress(src, item, thinking=0.5, system=0.2)
