"""Fetches the English text: the glosses and example sentences of WordNet 3.0, from Debian's package dict-wn.

    python -m nano.corpus OUT_DIR

Writes english.txt (one document a line; stories of data/stories.py stand before the glosses, so that text goes on without a
conversation around it), definitions.json (word -> sentence), examples.json (short sentences),
unknown.json (phrases that nano need not know) and words.json (the open vocabulary: lists of words by kind). The package is
fetched with apt-get download and unpacked, not installed.

    python -m nano.corpus OUT_DIR words      # words.json alone
"""
from __future__ import annotations

import collections
import gzip
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile

from .data import words as W
from .data.base import Source
from .data.stories import story_text

PACKAGE = "dict-wn"
STORIES = 5000
# Text that a small public model should not learn to write.
RUDE = re.compile(r"\b(sex\w*|fuck\w*|shit\w*|whore\w*|slut\w*|penis|vagina\w*|rape\w*|bastard|nigg\w*|kill\w*|murder\w*|suicid\w*|"
                  r"breast\w*|genital\w*|copulat\w*|prostitut\w*|erotic\w*|slang|obscene|offensive|disparag\w*|vulgar|ethnic|"
                  r"jew\w*|nazi\w*|negro\w*|bitch|ass|anus|anal|feces|excret\w*|drunk\w*|heroin|cocaine)\b", re.I)
# Words that need not stand for tools, names or values either.
UNKIND = re.compile(r"\b(retard\w*|moron\w*|idiot\w*|imbecil\w*|cretin\w*|crippl\w*|spastic\w*|terroris\w*|bomb\w*|weapon\w*|tortur\w*|"
                    r"corpse\w*|slave\w*|fascis\w*|hitler|stalin|holocaust|lynch\w*|massacr\w*|assassin\w*|cancer\w*|tumou?r\w*|abort\w*|"
                    r"gypsy|gypsies|savages?|porn\w*|veneris|pubi[cs]|vulva\w*|testic\w*|phall\w*|scrot\w*|urin\w*|menstru\w*|nipple\w*|sperm\w*|semen|condom\w*|"
                    r"lust\w*|orgasm\w*|pimps?|brothel\w*|harlot\w*|wench\w*|piss\w*|crap\w*|poop\w*|fart\w*|turd\w*|dykes?|coons?|mulatto\w*|"
                    r"nympho\w*|bondage|narcot\w*|opium|cannabis|marijuana|lewd\w*|bawd\w*|strangl\w*|behead\w*|mutilat\w*|enema\w*|rectum|"
                    r"rectal|buttock\w*|bowels?|defecat\w*|diarrh\w*|vomit\w*|queer\w*|fag\w*|lesbian\w*|homosexual\w*|incest\w*|nude\w*|naked\w*|hell|damn\w*)\b", re.I)


def fetch(folder: pathlib.Path) -> str:
    """The dictionary's text."""
    subprocess.run(["apt-get", "download", PACKAGE], cwd=folder, check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)
    package = next(folder.glob("*.deb"))
    subprocess.run(["dpkg", "-x", package, folder / "x"], check=True)
    return gzip.decompress((folder / "x/usr/share/dictd/wn.dict.dz").read_bytes()).decode("utf-8", "replace")


def senses(text: str) -> list[tuple[str, str, str]]:
    """(headword, part of speech, gloss with examples) of every numbered sense."""
    out, head, kind, current = [], None, None, None

    def flush() -> None:
        if head and current:
            gloss = re.sub(r"\s+", " ", " ".join(current))
            out.append((head, kind, re.sub(r"\s*\[(syn|ant):.*?\]", "", gloss).replace("{", "").replace("}", "").strip()))
    for line in text.split("\n"):
        if line and not line.startswith(" "):
            flush()
            head, current = line.strip(), None
            continue
        m = re.match(r"^ {4}(n|v|adj|adv)(?: \d+)?: (.*)$", line) or re.match(r"^ {4,6}(\d+): (.*)$", line)
        if m:
            flush()
            kind = m.group(1) if m.group(1).isalpha() else kind
            current = [m.group(2)]
        elif current is not None:
            current.append(line.strip())
    flush()
    return out


def split_gloss(gloss: str) -> tuple[str, list[str]]:
    """Definition and example sentences."""
    examples = re.findall(r'"([^"]+)"', gloss)
    definition = re.sub(r'[;:]?\s*"[^"]*"', "", gloss).strip(" ;")
    return definition, examples


def clean_example(text: str) -> str | None:
    """Short sentences without proper names."""
    if not 15 <= len(text) <= 80 or RUDE.search(text) or not re.fullmatch(r"[A-Za-z]([a-z ,'\-]|\bI\b)+[a-z]", text):
        return None
    return W.capital(text) + "."


def define(word: str, mass: bool, definition: str) -> str | None:
    """A sentence that defines the word."""
    text = re.sub(r"\([^)]*\)\s*", "", definition).split(";")[0].strip(" ,.")
    if not 8 <= len(text) <= 110 or RUDE.search(text):
        return None
    first = text.split()[0].lower()
    determined = first in {"a", "an", "the", "any", "one", "something", "someone", "either", "each", "that", "anything", "two"}
    if mass:
        return f"{W.capital(word)} is {text}."
    return f"{W.capital(W.article(word))} is {text if determined else W.article(text)}."


def plural(word: str) -> str:
    if re.search(r"[^aeiou]y$", word):
        return word[:-1] + "ies"
    return word + ("es" if re.search(r"(s|x|z|ch|sh)$", word) else "s")


def vocabulary(entries: list[tuple[str, str, str]]) -> dict[str, list]:
    """Words by kind. A word is common when the glosses use it, a noun countable when they use its plural."""
    used: collections.Counter[str] = collections.Counter()
    kinds: dict[str, set[str]] = collections.defaultdict(set)
    fragments, rude = set(), set()
    for head, kind, gloss in entries:
        if any(bad.search(text) for bad in (RUDE, UNKIND) for text in (gloss, head)) or not head.isascii():
            rude.add(head)
            continue
        used.update(re.findall(r"[a-z]+", gloss.lower()))
        kinds[kind].add(head)
        definition = re.sub(r"\([^)]*\)\s*", "", split_gloss(gloss)[0]).split(";")[0].strip(" ,.")
        if re.fullmatch(r"[a-z][A-Za-z ,'\-]{14,88}", definition):
            fragments.add(definition)
    rng = random.Random(2)

    def chosen(kind: str, form: str, least: int = 0) -> list[str]:
        return sorted(w for w in kinds[kind] - rude if re.fullmatch(form, w) and used[w] >= least)

    def some(options: list[str], most: int) -> list[str]:
        return sorted(rng.sample(options, min(most, len(options))))
    plain = r"[a-z]{3,11}"
    everything = sorted({w for kind in kinds for w in chosen(kind, r"[a-z]{3,12}")})
    return {"nouns": [[w, plural(w)] for w in chosen("n", plain, 6) if used[plural(w)] >= 3 and not w.endswith(("ing", "ss"))],
            "verbs": chosen("v", r"[a-z]{3,9}", 12), "adjectives": chosen("adj", r"[a-z]{3,10}", 8),
            "words": some(everything, 24000), "phrases": some(chosen("n", r"[a-z]+( [a-z]+){1,3}"), 10000),
            "names": some(chosen("n", r"[A-Z][a-z]{3,11}"), 5000), "fragments": some(sorted(fragments), 14000)}


def stories() -> list[str]:
    src = Source(3)
    return [story_text(src, src.pick(W.ANIMALS)) for _ in range(STORIES)]


def entries_of_package() -> list[tuple[str, str, str]]:
    with tempfile.TemporaryDirectory() as folder:
        return senses(fetch(pathlib.Path(folder)))


def write_words(out: pathlib.Path, entries: list[tuple[str, str, str]]) -> None:
    lists = vocabulary(entries)
    (out / "words.json").write_text(json.dumps(lists, indent=0))
    print("words.json: " + ", ".join(f"{len(v)} {k}" for k, v in lists.items()))


def build(out: pathlib.Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    entries = entries_of_package()
    write_words(out, entries)
    rng = random.Random(1)
    seen, lines, examples, first_noun, unknown = set(), [], [], {}, []
    for head, kind, gloss in entries:
        definition, quotes = split_gloss(gloss)
        if kind == "n" and head not in first_noun:
            first_noun[head] = definition
        if gloss in seen or RUDE.search(gloss) or not head.isascii() or len(definition) < 10:
            continue
        seen.add(gloss)
        good = [e for e in map(clean_example, quotes) if e]
        examples += good
        lines.append(f"{W.capital(head)}: {definition}." + "".join(" " + e for e in good))
        if kind == "n" and " " in head and re.fullmatch(r"[a-z][a-z ]{6,28}", head):
            unknown.append(head)
    definitions = {}
    for entry in W.DEFINED:
        word = entry.lstrip("~")
        sentence = W.OWN_DEFINITIONS.get(word) or define(word, entry.startswith("~"), first_noun.get(word, ""))
        if sentence:
            definitions[word] = sentence
    rng.shuffle(lines)
    documents = stories() + [" ".join(lines[i:i + 8]) for i in range(0, len(lines), 8)]
    (out / "english.txt").write_text("\n".join(documents) + "\n")
    (out / "definitions.json").write_text(json.dumps(definitions, indent=0))
    (out / "examples.json").write_text(json.dumps(sorted(set(examples)), indent=0))
    (out / "unknown.json").write_text(json.dumps(rng.sample(unknown, min(4000, len(unknown))), indent=0))
    print(f"{len(documents)} documents, {sum(map(len, documents))} characters; {len(definitions)} definitions; "
          f"{len(set(examples))} examples; {len(unknown)} phrases")


if __name__ == "__main__":
    if sys.argv[2:] == ["words"]:
        write_words(pathlib.Path(sys.argv[1]), entries_of_package())
    else:
        build(pathlib.Path(sys.argv[1]))
