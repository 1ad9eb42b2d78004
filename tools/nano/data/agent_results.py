"""What the tools of agents return, what the answer says of it, and what a later request can take out of it."""
from __future__ import annotations

import json
from dataclasses import dataclass, field

from . import words as W
from .agent_values import PATTERNS, SLOT, AgentValues
from .base import Source
from .phrases import spoken


def by_mark(lines: list[str]) -> dict[str, list[str]]:
    """The lines of a kind of tool, by what stands in front of them."""
    out: dict[str, list[str]] = {}
    for line in lines:
        mark, rest = line.split(" ", 1)
        out.setdefault(mark, []).append(rest.replace("\\n", "\n"))
    return out


KINDS = {name: by_mark(lines) for name, lines in PATTERNS.items() if " " not in name and name not in ("again", "notes", "errors")}


@dataclass
class Row:
    """One thing of a result: what it is called, and what later calls can take: (kind of tool, role, value)."""
    called: str
    asked: str
    handles: list[tuple[str, str, str]] = field(default_factory=list)


@dataclass
class Result:
    output: str
    answer: str
    reasoning: str
    rows: list[Row] = field(default_factory=list)
    single: bool = False            # not a list: later requests say "it"
    written: tuple[str, str] | None = None      # path and text of a file


class AgentResults(AgentValues):
    def result(self, src: Source, kind: str, values: dict) -> Result:
        lines = KINDS[kind]
        if src.chance(0.06):
            why = self.fill(src, spoken(src, src.pick(PATTERNS["errors"])), {})
            form = src.pick(["Error: {w}", '{{"error": "{w}"}}', "error: {w}", "ERROR {w}", '{{"status": "error", "message": "{w}"}}'])
            return Result(form.format(w=why), f"The tool reported an error: {why}.", f"The tool failed: {why}.")
        if kind in ("read", "shell"):
            return self.text_result(src, kind, values)
        if "<" in lines:
            output = self.fill(src, spoken(src, src.pick(lines["<"])), values)
            answer = self.fill(src, lines["!"][0], values, made=False)
            single = [Row("", "", [self.handle(src, h, values) for h in lines.get("@>", [])])]
            told = any(m.group(1).startswith("_") for m in SLOT.finditer(lines["!"][0]))
            written = (values["path"], values["code"]) if kind == "write" and "append" not in values else None
            return Result(output, answer, "The tool gave what is asked for." if told else "The tool has done it.", single, True, written)
        n = min(src.pick([0, 1, 2, 2, 3, 3, 4, 5]), values.get("limit", 5))
        folder = values.get("dir", "")
        values["_under"] = folder + "/" if folder and not folder.endswith("/") else folder
        form, rows, shown = spoken(src, src.pick(lines["&"])), [], []
        for i in range(n):
            row = {k: x for k, x in values.items() if not k.startswith("_") or k.startswith("__") or k == "_under"}
            row.update({"_i": i + 1} | (self.found(src, values) if kind in ("glob", "grep") else {}))
            text = self.fill(src, form, row)
            called = self.fill(src, lines["@"][0], row)
            if called in [r.called for r in rows]:
                continue
            values.update({k: x for k, x in row.items() if k.startswith("__")})
            handles = [] if called.endswith("/") else [self.handle(src, h, row) for h in lines.get("@>", [])]
            rows.append(Row(called, self.fill(src, lines.get("@=", lines["@"])[0], row), handles))
            shown.append(text)
        output = "[" + ", ".join(shown) + "]" if form[0] in '{"' and form[-1] in '}"' and form[1] != "_" else "\n".join(shown)
        if not rows and output == "":
            output = src.pick(["", "(none)", "No results", "(empty)", "0 results"])
        names = [r.called for r in rows]
        values.update(n=len(rows), things=W.listing(names) if names else "", first=names[0] if names else "")
        why = "The result has " + (", ".join(f"{i + 1}: {x}" for i, x in enumerate(names)) if names else "no entry") + "."
        return Result(output, self.fill(src, lines[self.number_mark(len(rows))][0], values, made=False), why, rows)

    def handle(self, src: Source, line: str, values: dict) -> tuple[str, str, str]:
        kind, role, form = line.split(" ", 2)
        return kind, role, self.fill(src, form, values)

    @staticmethod
    def number_mark(n: int) -> str:
        return "!" + {0: "0", 1: "1"}.get(n, "")

    def text_result(self, src: Source, kind: str, values: dict) -> Result:
        """What a file holds or a command prints: lines, of which the answer says the number and the first."""
        known_value = None
        if kind == "read":
            lines = values["_text"].split("\n") if "_text" in values else self.content(src, values["path"])
            if "_key" in values:
                known_value, lines = self.settings(src, values["_key"])
            lines = lines[:values.get("limit", 9)]
        else:
            lines = self.printed(src, values["command"])
        output = "\n".join(lines)
        if kind == "read" and lines and src.chance(0.25):
            start, form = values.get("offset", 1), src.pick(["{n:6d}\t{t}", "{n}: {t}", "{n}\t{t}", "{n:5d}| {t}"])
            output = "\n".join(form.format(n=start + i, t=line) for i, line in enumerate(lines))
        elif kind == "shell" and src.chance(0.25):
            output = json.dumps({"stdout": output, "stderr": "", "exit_code": 0} if src.chance(0.5) else {"exit_code": 0, "output": output}, ensure_ascii=False)
        elif not lines:
            output = src.pick(["", "(no output)", "(empty)"])
        rows = [Row("", "", [self.handle(src, h, values) for h in KINDS[kind].get("@>", [])])]
        if known_value is not None:
            return Result(output, f"The {values['_key']} is {known_value}.", f"The file says that the {values['_key']} is {known_value}.", rows, True)
        said = {"n": len(lines), "first": lines[0] if lines else ""}
        answer = self.fill(src, KINDS[kind][self.number_mark(len(lines))][0], said, made=False)
        return Result(output, answer, f"There {'is 1 line' if len(lines) == 1 else f'are {len(lines)} lines'}.", rows, True)
