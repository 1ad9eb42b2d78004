"""Values of agents' tools, and texts that they return: paths, commands, patterns, settings, lines of files.

A role is what a value is for. Some are made here, others are patterns that hold further roles ("value ROLE" in
patterns/agent.txt).
"""
from __future__ import annotations

import json
import re

from . import words as W
from .base import Source
from .open_parameters import cased
from .phrases import patterns, spoken
from .vocabulary import LOWER, Vocabulary

PATTERNS = patterns("agent")
SLOT = re.compile(r"\{(\w+)(?:=(\w+))?\}")
OPTIONS = {"state": "on off", "priority": "low medium high", "filter": "open done", "format": "text markdown html"}
ENDINGS = "txt md json py cc h cpp c js ts go rs java html css yaml toml xml csv log sh sql rb ini cfg tex".split()
COMMON = "README.md Makefile package.json Dockerfile CMakeLists.txt setup.py .gitignore .env requirements.txt main.py index.html config.yaml LICENSE notes.txt".split()
FOLDERS = "src lib docs tests test app include scripts config assets data tools build bin public internal pkg examples server client".split()
PLAIN = "path path2 dir pattern glob command url query title name channel branch old new".split()     # may stand in quotation marks


class AgentValues:
    def __init__(self, vocabulary: Vocabulary):
        v = self.vocabulary = vocabulary
        word = lambda s: s.pick([v.noun, v.noun, v.pseudo, v.letters, lambda t: t.pick(v.verbs)])(s)
        self.makers = {
            "path": self.path, "dir": self.dir, "folder": lambda s: s.pick(FOLDERS), "extension": lambda s: s.pick(ENDINGS), "file": self.file,
            "entry": lambda s: self.file(s) if s.chance(0.75) else self.stem(s) + "/", "url": v.link, "site": lambda s: v.link(s).split("/")[2],
            "query": lambda s: v.title(s) if s.chance(0.7) else v.text(s), "text": v.text, "body": v.text, "subject": v.title, "title": v.title,
            "old": self.piece, "new": self.piece, "to": v.mail, "mail": v.mail, "hash": lambda s: "".join(s.pick("0123456789abcdef") for _ in range(s.pick([7, 7, 8, 10]))),
            "id": lambda s: str(s.number(1, 99)) if s.chance(0.3) else v.ident(s), "limit": lambda s: s.number(1, s.pick([5, 20, 100])),
            "offset": lambda s: s.number(2, 400), "timeout": lambda s: s.number(1, s.pick([60, 600, 90000])), "minutes": lambda s: s.number(1, s.pick([12, 60, 240])),
            "date": v.date, "time": v.clock, "city": v.place, "language": lambda s: s.pick(W.LANGUAGES) if s.chance(0.7) else v.place(s),
            "percent": lambda s: s.number(1, 100), "degrees": lambda s: s.number(10, 30) if s.chance(0.8) else s.number(-20, 40), "phone": v.phone,
            "tags": lambda s: [v.noun(s) for _ in range(s.number(1, 3))], "database": word, "name": v.name, "number": lambda s: s.number(0, 10 ** s.number(1, 5)),
            "monthday": lambda s: s.number(1, 28), "line": lambda s: s.number(1, s.pick([9, 99, 400])), "word": word, "letter": lambda s: s.pick(LOWER), "decimal": v.decimal,
            "size": lambda s: s.number(1, 10 ** s.number(2, 5)), "user": lambda s: s.pick(W.FIRST_NAMES).lower() if s.chance(0.5) else v.pseudo(s, 2),
            "ident": self.ident, "column": self.column, "table": lambda s: s.pick(v.countable)[1].replace(" ", "_"), "thing": v.thing,
            "verb": lambda s: s.pick(v.verbs), "label": v.noun, "strange": lambda s: " ".join(v.pseudo(s) for _ in range(s.number(1, 4)))}

    def stem(self, src: Source) -> str:
        v = self.vocabulary
        return src.pick([v.noun(src), v.noun(src), v.pseudo(src, 2), f"{v.noun(src)}_{v.noun(src)}", f"{v.noun(src)}-{v.noun(src)}",
                         v.noun(src) + W.capital(v.noun(src)), v.letters(src), f"{v.noun(src)}{src.number(1, 30)}"]).replace(" ", "_")

    def file(self, src: Source) -> str:
        return src.pick(COMMON) if src.chance(0.12) else f"{self.stem(src)}.{src.pick(ENDINGS)}"

    def folders(self, src: Source, low: int, high: int) -> str:
        return "/".join(src.pick(FOLDERS) if src.chance(0.45) else self.stem(src) for _ in range(src.number(low, high)))

    def root(self, src: Source) -> str:
        return src.pick(["", "", "", "", "/", "~/", "./", "../", f"/home/{self.vocabulary.pseudo(src, 2)}/"])

    def path(self, src: Source) -> str:
        return self.file(src) if src.chance(0.3) else f"{self.root(src)}{self.folders(src, 1, src.pick([1, 2, 4]))}/{self.file(src)}"

    def dir(self, src: Source) -> str:
        return self.root(src) + self.folders(src, 1, src.pick([1, 1, 2, 3])) + ("/" if src.chance(0.25) else "")

    def matching(self, src: Source, glob: str) -> str:
        """A path that fits a pattern."""
        depth = src.pick(["", self.folders(src, 1, 2) + "/"])
        return glob.replace("**/", depth).replace("*", self.stem(src))

    def found(self, src: Source, values: dict) -> dict:
        """Path and line of a match, so that they fit what was looked for and where."""
        path = self.matching(src, values["glob"]) if "glob" in values else self.path(src)
        out = {"_path": values["_under"] + path.lstrip("/~.") if "dir" in values else path}
        if re.fullmatch(r"[\w ]+", x := values.get("pattern", "")):
            word, number = self.makers["word"](src), src.number(0, 99)
            out["_code"] = src.pick([f"{x} = {number}", f"{x}({word})", f"// {x}: {word}", f"{word} {x}", f"# {word} {x} {number}", f"{x}.{word}()", x])
        return out

    def ident(self, src: Source) -> str:
        words = [src.pick([self.vocabulary.noun, self.vocabulary.pseudo, lambda s: s.pick(self.vocabulary.verbs)])(src) for _ in range(src.pick([1, 2, 2, 3]))]
        return cased(" ".join(words), src.pick([0, 0, 1, 1, 3, 5]))

    def column(self, src: Source) -> str:
        return src.pick("id name price city date status amount title email".split()) if src.chance(0.4) else self.vocabulary.noun(src).replace(" ", "_")

    def piece(self, src: Source) -> str:
        """What is exchanged in a file."""
        v = self.vocabulary
        return src.pick([self.ident, self.ident, v.noun, lambda s: str(v.integer(s)), v.pseudo, lambda s: f"{v.noun(s)}-{s.number(1, 99)}"])(src)

    def make(self, src: Source, role: str):
        base = role.strip("_").rstrip("0123456789")
        if (forms := PATTERNS.get(f"value {base}")) is not None:
            return self.fill(src, spoken(src, src.pick(forms)), {})
        return src.pick(OPTIONS[base].split()) if base in OPTIONS else self.makers[base](src)

    def fill(self, src: Source, form: str, values: dict, asked: bool = False, made: bool = True) -> str:
        """Puts values into a pattern's slots and notes the new ones. asked: some in quotation marks. made: there may be new ones."""
        quoting = form.startswith('{"')

        def put(m: re.Match) -> str:
            role, constant = m.groups()
            if constant is not None:
                values[role] = True if constant == "true" else constant
                return ""
            if role not in values:
                assert made, f"{role} is not known: {form}"
                values[role] = self.make(src, role)
                while role == "new" and values["new"] == values.get("old"):
                    values[role] = self.make(src, role)
            x = values[role]
            text = W.listing(x) if isinstance(x, list) else json.dumps(x, ensure_ascii=False)[1:-1] if quoting and isinstance(x, str) else str(x)
            bare = asked and role in PLAIN and not {form[m.start() - 1:m.start()], form[m.end():m.end() + 1]} & {'"', "'"}
            mark = src.pick("`\"'") if bare and src.chance(0.3 if " " in text and role != "command" else 0.1) else ""
            return text if mark in text else f"{mark}{text}{mark}"
        return SLOT.sub(put, form)

    # ---- texts

    def content(self, src: Source, path: str) -> list[str]:
        v, n = self.vocabulary, src.pick([0, 1, 1, 2, 2, 3, 3, 4, 5])
        if path.endswith((".md", ".txt", ".tex", ".log", ".html")):
            title = ["# " + v.title(src)] if path.endswith(".md") else []
            return (title + [W.capital(v.text(src)) + src.pick([".", ""]) for _ in range(n)])[:5]
        if path.endswith((".csv", ".sql")):
            return [",".join(src.pick([v.noun, v.ident, lambda s: str(v.integer(s))])(src) for _ in range(3)) for _ in range(n)]
        if path.endswith((".yaml", ".toml", ".ini", ".cfg", ".env", ".json", ".xml")):
            return self.settings(src, None)[1]
        return [self.make(src, "code") for _ in range(n)]

    def settings(self, src: Source, wanted: str | None) -> tuple[str, list[str]]:
        """Lines of keys with values, the wanted key among them, and its value."""
        v = self.vocabulary
        keys = list(dict.fromkeys([*([wanted] if wanted else []), *(self.make(src, "key") for _ in range(src.number(1, 4)))]))
        values = [src.pick([v.noun, v.ident, v.name, v.measure, v.place, v.file, lambda s: str(v.integer(s))])(src) for _ in keys]
        order = src.sample(range(len(keys)), len(keys))
        line = src.pick(["{k} = {x}", "{k}: {x}", "{k}={x}", '{k} = "{x}"', '"{k}": "{x}",'])
        return values[0], [line.format(k=keys[i], x=values[i]) for i in order]

    def printed(self, src: Source, command: str) -> list[str]:
        """Lines that a command prints."""
        program = command.split()[0]
        forms = PATTERNS.get(f"value output{program}", PATTERNS["value output"])
        form = src.pick(forms)
        return [self.fill(src, spoken(src, form), {}) for _ in range(1 if program in ("pwd", "whoami") else src.pick([0, 1, 1, 1, 2, 3, 4]))]
