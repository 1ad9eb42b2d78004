#!/usr/bin/env python3
"""Every command of the program, end to end, with good and with bad input.

usage: cli_test.py [--gannet build/gannet] [unittest arguments]

Needs no model: it writes small random ones. A wrong usage or input must end with status 2, anything else that goes
wrong with 1, and both with one line on standard error that says what is wrong and what would be right.
"""

import json
import pathlib
import resource
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import unittest

from gannet_process import PATIENCE, ROOT, Server, parse_arguments, run_tests

OPTIONS = None
TOKENIZER = ROOT / "tests" / "data" / "text" / "tokenizer-test.json"
VOCAB = 576  # ids of that tokenizer
WINDOW = 16  # of the small shape
IDS = [(i * i * 7 + i * 3 + 11) % VOCAB for i in range(60)]


def gannet(*arguments, input=b"", **keywords):
    command = [OPTIONS.gannet, *map(str, arguments)]
    keywords.setdefault("stdout", subprocess.PIPE)
    return subprocess.run(command, input=input, stderr=subprocess.PIPE, timeout=PATIENCE, **keywords)


def read_safetensors(path):
    """Names to (shape, bytes)."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    payload = data[8 + length :]
    tensors = {}
    for name, tensor in json.loads(data[8 : 8 + length]).items():
        begin, end = tensor["data_offsets"]
        tensors[name] = (tensor["shape"], payload[begin:end])
    return tensors


def write_ids(path, ids):
    payload = struct.pack(f"<{len(ids)}i", *ids)
    header = {"ids": {"dtype": "I32", "shape": [len(ids)], "data_offsets": [0, len(payload)]}}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + payload)


class CliTest(unittest.TestCase):
    """Two models and some ids in a directory that all tests share."""

    @classmethod
    def setUpClass(cls):
        cls.cleanup = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.cleanup.cleanup)
        cls.root = pathlib.Path(cls.cleanup.name)
        cls.small = cls.root / "small"
        cls.bytes = cls.root / "bytes"  # with a tokenizer of single bytes
        cls.ids = cls.root / "ids.json"
        cls.ids.write_text(json.dumps(IDS))
        cls.run_well("make-checkpoint", "--shape", "small", cls.bytes)
        shape = json.loads((cls.bytes / "config.json").read_text())
        shape["text_config"]["vocab_size"] = VOCAB
        del shape["text_config"]["engram_compressed_vocab_size"]
        (cls.root / "shape.json").write_text(json.dumps(shape))
        cls.run_well(
            "make-checkpoint", "--shape", cls.root / "shape.json", "--seed", 7, "--tokenizer", TOKENIZER, cls.small
        )

    @staticmethod
    def run_well(*arguments, **keywords):
        """Standard output of a command that must succeed and say nothing else."""
        result = gannet(*arguments, **keywords)
        if result.returncode != 0 or result.stderr:
            raise AssertionError(f"{arguments} ended with status {result.returncode}: {result.stderr.decode()}")
        return result.stdout

    def refused(self, *arguments, status=2, parts=(), **keywords):
        """One line on standard error with all these parts, and nothing on standard output."""
        with self.subTest(arguments=arguments):
            result = gannet(*arguments, **keywords)
            message = result.stderr.decode()
            self.assertEqual(result.returncode, status, message)
            self.assertTrue(message.startswith("gannet: "), message)
            self.assertEqual(message.count("\n"), 1, message)
            self.assertTrue(message.endswith("\n"), message)
            for part in parts:
                self.assertIn(str(part), message)
            self.assertFalse(result.stdout)

    def copy_model(self, name):
        copy = self.root / name
        shutil.copytree(self.small, copy)
        self.addCleanup(shutil.rmtree, copy)
        return copy


class UsageTest(CliTest):
    def test_commands(self):
        self.refused(parts=["command is missing", "serve", "inspect", "version"])
        self.refused("frobnicate", parts=["'frobnicate'", "serve", "inspect", "version"])
        self.refused("text", parts=["command is missing", "render", "tokenize", "detokenize", "parse"])
        self.refused("text", "frobnicate", parts=["'frobnicate'", "tokenize"])

    def test_unknown_options(self):
        self.refused("--frobnicate", parts=["--frobnicate", "gannet --help"])
        for command in [
            "serve",
            "chat",
            "generate",
            "eval",
            "logits",
            "inspect",
            "make-checkpoint",
            "version",
            "text tokenize",
        ]:
            self.refused(*command.split(), "--frobnicate", parts=["--frobnicate", f"gannet {command} --help"])

    def test_arguments_too_many_or_missing(self):
        self.refused("version", "now", parts=["'now'", "too many"])
        self.refused("inspect", self.small, "more", parts=["'more'", "too many"])
        self.refused("serve", parts=["MODEL is required"])
        self.refused("make-checkpoint", parts=["DIR is required"])
        self.refused("logits", self.small, "--ids", self.ids, parts=["--out is required"])
        self.refused("logits", self.small, "--ids", self.ids, "--out", parts=["--out"])
        self.refused("inspect", parts=["MODEL is missing", "--released"])
        self.refused("inspect", "--released", self.small, parts=["MODEL", self.small, "--released"])

    def test_a_value_with_a_line_break_does_not_break_the_line(self):
        self.refused("serve", self.small, "--port", "1\n2", parts=["--port", "0 to 65535"])

    def test_numbers(self):
        for value in ("-1", "abc", "1025", "2x", "", "1.5"):
            for command in (
                ["logits", self.small, "--ids", self.ids, "--out", self.root / "out"],
                ["serve", self.small],
            ):
                self.refused(*command, "--threads", value, parts=["--threads", f"'{value}'", "from 0 to 1024"])
        self.refused("make-checkpoint", "--seed", "-1", self.root / "new", parts=["--seed", "'-1'", "from 0 to"])
        self.refused("serve", self.small, "--port", "65536", parts=["--port", "'65536'", "from 0 to 65535"])

    def test_help(self):
        for command in (
            "",
            "serve",
            "chat",
            "generate",
            "eval",
            "logits",
            "inspect",
            "make-checkpoint",
            "version",
            "text parse",
        ):
            text = self.run_well(*command.split(), "--help").decode()
            if command:
                self.assertIn("Example: ", text)

    def test_full_standard_output(self):
        line = b'{"text": "hi"}\n'
        for command, input in (
            (["inspect", "--released"], b""),
            (["version"], b""),
            (["generate", self.small, "--prompt", "hi", "--max-tokens", 3], b""),
            (["text", "tokenize", "--model", self.small], line),
        ):
            with open("/dev/full", "wb") as full:
                self.refused(*command, status=1, parts=["standard output"], input=input, stdout=full)


class InspectTest(CliTest):
    def test_released(self):
        text = self.run_well("inspect", "--released").decode()
        for number in ("96,085", "510,286,023,000", "763,205,315,794", "890 bytes", "2,703,360"):
            self.assertIn(number, text)
        facts = json.loads(self.run_well("inspect", "--released", "--json"))
        total = {"tensors": 96085, "bytes": 510286023000, "parameters": 763205315794}
        self.assertEqual(facts["total"], total)
        self.assertEqual(facts["kv"]["global_bytes_per_token"], 890)
        self.assertEqual(facts["kv"]["window_bytes_per_sequence"], 2703360)
        self.assertEqual(len(facts["layers"]), 40)

    def test_small(self):
        facts = json.loads(self.run_well("inspect", self.small, "--json"))
        self.assertEqual(facts["vocab_size"], VOCAB)
        roles = ["SWA only", "SWA only", "Full", "Reuse", "Full", "Reuse", "Full", "Reuse", "Reindex", "Reuse"]
        self.assertEqual([layer["role"] for layer in facts["layers"]], roles)
        index = json.loads((self.small / "model.safetensors.index.json").read_text())
        self.assertEqual(facts["total"]["tensors"], len(index["weight_map"]))
        self.assertIn("SWA only", self.run_well("inspect", self.small).decode())

    def test_version(self):
        facts = json.loads(self.run_well("version", "--json"))
        text = self.run_well("version").decode()
        self.assertTrue(text.startswith(f"gannet {facts['version']}\n"), text)
        self.assertIn(facts["compiler"], text)


class MakeCheckpointTest(CliTest):
    def test_same_seed_same_bytes(self):
        for seed in (7, 8):
            self.run_well(
                "make-checkpoint",
                *("--shape", self.root / "shape.json", "--seed", seed, "--tokenizer", TOKENIZER, self.root / str(seed)),
            )
        shards = sorted(path.name for path in self.small.glob("*.safetensors"))
        self.assertGreaterEqual(len(shards), 2)
        for shard in shards:
            self.assertEqual((self.root / "7" / shard).read_bytes(), (self.small / shard).read_bytes())
            self.assertNotEqual((self.root / "8" / shard).read_bytes(), (self.small / shard).read_bytes())

    def test_bad_input(self):
        new = self.root / "new"
        self.refused("make-checkpoint", "--shape", "huge", new, parts=["--shape", "'huge'", "small", "config.json"])
        self.refused("make-checkpoint", "--tokenizer", "none.json", new, parts=["none.json"])
        self.refused("make-checkpoint", "--tokenizer", TOKENIZER, new, parts=["--tokenizer", VOCAB, "vocab_size", 512])
        shape = json.loads((self.root / "shape.json").read_text())
        shape["text_config"]["hidden_size"] = "many"
        (self.root / "bad.json").write_text(json.dumps(shape))
        self.refused(
            "make-checkpoint", "--shape", self.root / "bad.json", new, parts=["bad.json", "hidden_size", "many"]
        )
        self.refused("make-checkpoint", self.small, parts=[self.small])
        self.refused("make-checkpoint", self.ids / "below", status=1, parts=[self.ids])
        self.assertFalse(new.exists())


class LogitsTest(CliTest):
    def logits(self, *arguments, model=None, ids=None, input=b""):
        out = self.root / "out.safetensors"
        self.assertEqual(
            self.run_well(
                "logits", model or self.small, "--ids", ids or self.ids, "--out", out, *arguments, input=input
            ),
            b"",
        )
        return out

    def rows(self, path):
        """Row numbers, and the logits of each."""
        tensors = read_safetensors(path)
        (count, vocab), logits = tensors["logits"]
        rows = struct.unpack(f"<{count}i", tensors["rows"][1])
        self.assertEqual(vocab, VOCAB)
        return {row: logits[i * vocab * 4 : (i + 1) * vocab * 4] for i, row in enumerate(rows)}

    def test_passes_of_any_size_give_the_same_bytes(self):
        whole = self.logits().read_bytes()
        self.assertEqual(list(self.rows(self.root / "out.safetensors")), list(range(len(IDS))))
        for arguments in (["--chunk", 7], ["--decode", 5], ["--chunk", 7, "--decode", 5], ["--decode", len(IDS)]):
            self.assertEqual(self.logits(*arguments).read_bytes(), whole, arguments)
        for arguments in (["--threads", 1], ["--threads", 0], ["--no-swa-bounded-replay"]):
            self.assertEqual(self.logits(*arguments).read_bytes(), whole, arguments)
        self.assertNotEqual(self.logits("--act-quant", "off").read_bytes(), whole)
        self.assertNotEqual(self.logits("--activations", "fp32").read_bytes(), whole)

    def test_ids_from_everywhere(self):
        whole = self.logits().read_bytes()
        self.assertEqual(self.logits(ids="-", input=json.dumps(IDS).encode()).read_bytes(), whole)
        write_ids(self.root / "ids.safetensors", IDS)
        self.assertEqual(self.logits(ids=self.root / "ids.safetensors").read_bytes(), whole)

    def test_bounded_replay(self):
        replay = self.logits("--swa-bounded-replay").read_bytes()
        self.assertEqual(list(self.rows(self.root / "out.safetensors")), list(range(len(IDS) - WINDOW, len(IDS))))
        self.assertEqual(self.logits("--swa-bounded-replay", "--chunk", 7).read_bytes(), replay)
        decoded = self.rows(self.logits("--swa-bounded-replay", "--decode", 5))
        self.assertEqual(list(decoded), list(range(len(IDS) - 5 - WINDOW, len(IDS))))
        # A prompt within the window is not cut, so nothing changes.
        short = json.dumps(IDS[:WINDOW]).encode()
        cut = self.logits("--swa-bounded-replay", ids="-", input=short).read_bytes()
        self.assertEqual(self.logits(ids="-", input=short).read_bytes(), cut)

    def test_prefix(self):
        whole = self.rows(self.logits())
        behind = {row: whole[row] for row in range(40, len(IDS))}
        self.assertEqual(self.rows(self.logits("--prefix", 40)), behind)
        self.assertEqual(self.rows(self.logits("--prefix", 40, "--chunk", 7, "--decode", 5)), behind)

    def test_prefix_with_bounded_replay(self):
        whole = self.rows(self.logits("--swa-bounded-replay"))
        hit = self.rows(self.logits("--swa-bounded-replay", "--prefix", 40))
        self.assertEqual(list(hit), list(whole))
        self.assertNotEqual(hit, whole)  # the encoder's windows are cut too
        self.assertEqual(self.rows(self.logits("--swa-bounded-replay", "--prefix", 40, "--chunk", 7)), hit)
        # All of a prefix within the window runs again, and nothing is cut.
        self.assertEqual(self.rows(self.logits("--swa-bounded-replay", "--prefix", WINDOW)), whole)

    def test_trace(self):
        trace = self.root / "trace.safetensors"
        self.logits("--trace", trace)
        tensors = read_safetensors(trace)
        self.assertEqual(tensors["ids"][0], [len(IDS)])
        self.assertEqual(tensors["layer.9.streams_out"][0], [len(IDS), 4, 128])
        self.assertEqual(tensors["logits"][1], read_safetensors(self.root / "out.safetensors")["logits"][1])

    def test_bad_ids(self):
        file = self.root / "bad.json"
        out = self.root / "bad.safetensors"
        for text, *parts in (
            ("", "not valid JSON"),
            ("[]", "holds no token ids", "at least one"),
            ("{}", "is {}", "JSON array of token ids"),
            ("7", "is 7", "JSON array of token ids"),
            ("[1, 2", "not valid JSON"),
            ("[1] 2", "not valid JSON"),
            ("[1.5]", "element 0 is 1.5", "token id"),
            ('[1, "a"]', 'element 1 is "a"', "token id"),
            ("[1, [2]]", "element 1 is [2]", "token id"),
            ("[null]", "element 0 is null", "token id"),
            ("[true]", "element 0 is true", "token id"),
            ("[-1]", "element 0 is -1", "token id"),
            ("[99999999999]", "element 0 is 99999999999", "token id"),
            (f"[0, {VOCAB}]", f"id {VOCAB} at position 1", f"vocabulary of {VOCAB}"),
            ("[" + "1, " * 65536 + "1]", "65537", "65536"),
            ("[" * 100000, "not valid JSON"),
            ("[" * 100 + "]" * 100, "nested deeper"),
        ):
            file.write_text(text)
            self.refused("logits", self.small, "--ids", file, "--out", out, parts=[file, *parts])
            self.refused("logits", self.small, "--ids", "-", "--out", out, parts=parts, input=text.encode())
        file.write_bytes(b'["\xff"]')
        self.refused("logits", self.small, "--ids", file, "--out", out, parts=[file, "not UTF-8", "byte 2", "0xff"])
        broken = self.root / "broken.safetensors"
        for content in (b"", b"\xff", b"\xff" * 100):
            broken.write_bytes(content)
            self.refused("logits", self.small, "--ids", broken, "--out", out, parts=[broken])
        write_ids(broken, [])
        self.refused("logits", self.small, "--ids", broken, "--out", out, parts=[broken, "at least one"])
        write_ids(broken, [3, -1])
        self.refused("logits", self.small, "--ids", broken, "--out", out, parts=[broken, "id -1 at position 1"])
        self.refused("logits", self.small, "--ids", self.root / "none", "--out", out, parts=[self.root / "none"])
        self.refused("logits", self.small, "--ids", self.root, "--out", out, parts=[self.root])
        self.assertFalse(out.exists())

    def test_bad_options(self):
        for name, value, *parts in (
            ("--prefix", 3, "--prefix is 3", "multiple of 2"),
            ("--prefix", 60, "--prefix is 60", "less than the 60 ids"),
            ("--prefix", -2, "--prefix is '-2'", "from 0"),
            ("--decode", 61, "--decode is 61", "at most 60"),
            ("--chunk", "all", "--chunk is 'all'", "from 0"),
            ("--activations", "fp16", "--activations is 'fp16'", "bf16, fp32"),
            ("--act-quant", "yes", "--act-quant is 'yes'", "on, off"),
            ("--device", "tpu", "--device is 'tpu'", "cpu"),
        ):
            self.refused("logits", self.small, "--ids", self.ids, "--out", self.root / "bad", name, value, parts=parts)
        command = ["logits", self.small, "--ids", self.ids, "--out", self.root / "bad"]
        self.refused(*command, "--prefix", 58, "--decode", 3, parts=["--decode is 3", "at most 2"])

    def test_bad_places(self):
        for out in (self.ids / "below", self.root / "none" / "out", pathlib.Path("/proc/out")):
            self.refused("logits", self.small, "--ids", self.ids, "--out", out, status=1, parts=[out])
        # A link, so that a program that replaces what it is given does not harm the machine.
        full = self.root / "full"
        full.symlink_to("/dev/full")
        command = ["logits", self.small, "--ids", self.ids]
        for place in (full, self.root):
            self.refused(*command, "--out", place, status=1, parts=["--out", place])
            self.refused(*command, "--out", self.root / "bad", "--trace", place, status=1, parts=["--trace", place])
        self.assertTrue(full.is_char_device())
        self.refused("logits", self.small, "--ids", self.ids, "--out", "", parts=["--out is empty"])
        self.assertFalse((self.root / "bad").exists())

    def test_devices_stay(self):
        device = self.root / "pipe"
        subprocess.run(["mkfifo", device], check=True)
        self.refused("logits", self.small, "--ids", self.ids, "--out", device, status=1, parts=[device])
        self.assertTrue(device.is_fifo())

    def test_full_disk(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

        out = self.root / "full.safetensors"
        out.write_text("old")
        command = ["logits", self.small, "--ids", self.ids, "--out", out]
        # Without restore_signals the write fails rather than ending the program, as on a full disk.
        self.refused(*command, status=1, parts=[out], preexec_fn=limit, restore_signals=False)
        self.assertEqual(out.read_text(), "old")
        self.assertEqual([path.name for path in self.root.glob("full.*")], ["full.safetensors"])


class ModelTest(CliTest):
    """Directories that are no model, for every command that opens one."""

    def refused_by_all(self, model, parts):
        self.refused("inspect", model, parts=parts)
        self.refused("generate", model, "--prompt", "x", parts=parts)
        self.refused("serve", model, "--port", 0, parts=parts)
        self.refused("logits", model, "--ids", self.ids, "--out", self.root / "out", parts=parts)

    def test_missing(self):
        self.refused_by_all("no-such-model", ["MODEL", "'no-such-model'", "checkpoint directory", "models/"])
        self.refused_by_all("", ["MODEL", "checkpoint directory"])
        self.refused_by_all(self.ids, ["MODEL", self.ids, "checkpoint directory"])

    def test_missing_config(self):
        model = self.copy_model("no-config")
        (model / "config.json").unlink()
        self.refused_by_all(model, [model / "config.json"])

    def test_missing_tokenizer(self):
        model = self.copy_model("no-tokenizer")
        tokenizer = model / "tokenizer.json"
        tokenizer.unlink()
        self.run_well("inspect", model)
        self.refused("generate", model, "--prompt", "x", parts=[tokenizer])
        self.refused("serve", model, "--port", 0, parts=[tokenizer])
        self.refused("logits", model, "--ids", self.ids, "--out", self.root / "out", parts=[tokenizer])
        self.refused("text", "tokenize", "--model", model, parts=[tokenizer])

    def refused_with_faults(self, model, parts):
        """A line that counts the faults, then one a line."""
        for command in (
            ["inspect", model],
            ["generate", model, "--prompt", "x"],
            ["serve", model, "--port", 0],
            ["logits", model, "--ids", self.ids, "--out", self.root / "out"],
        ):
            with self.subTest(command=command):
                result = gannet(*command)
                message = result.stderr.decode()
                self.assertEqual(result.returncode, 2, message)
                first, *faults = message.splitlines()
                self.assertRegex(first, rf"^gannet: .*: {len(faults)} faults? in the checkpoint:$")
                for part in parts:
                    self.assertIn(str(part), message)
                self.assertFalse(result.stdout)

    def test_missing_shard(self):
        model = self.copy_model("no-shard")
        shard = next(iter(sorted(model.glob("*.safetensors"))))
        shard.unlink()
        self.refused_with_faults(model, [shard.name])

    def test_broken_shard(self):
        model = self.copy_model("broken-shard")
        shard = next(iter(sorted(model.glob("*.safetensors"))))
        content = shard.read_bytes()
        for damaged in (content[:-5], content[:100], b"", b"\xff" * 8 + content[8:]):
            shard.write_bytes(damaged)
            self.refused_with_faults(model, [shard.name])

    def test_broken_index(self):
        model = self.copy_model("broken-index")
        index = model / "model.safetensors.index.json"
        index.write_text("{")
        self.refused_by_all(model, [index])


class DeviceTest(CliTest):
    def test_without_a_gpu(self):
        cuda = json.loads(gannet("version", "--json").stdout)["cuda"]
        if cuda["usable_here"]:
            self.skipTest(f"this machine has {cuda['usable_here']}")
        status = 1 if cuda["built_in"] else 2
        said = "no GPU can be used: " + cuda["obstacle"] if cuda["built_in"] else "was built without CUDA"
        for command in (
            ("logits", self.small, "--ids", self.ids, "--out", self.root / "out.safetensors"),
            ("generate", "nano", "--prompt", "a"),
            ("serve", "nano", "--port", "0"),
            ("bench", "ops", "--rows", "1"),
            ("bench", "latency"),
            ("bench", "throughput"),
        ):
            done = gannet(*command, "--device", "cuda")
            with self.subTest(command=command[:2]):
                self.assertEqual(done.returncode, status, done.stderr)
                self.assertIn(said, done.stderr.decode())
                self.assertEqual(done.stdout, b"")


class BenchTest(CliTest):
    def bench(self, *arguments):
        return json.loads(self.run_well("bench", *arguments, "--device", "cpu", "--threads", 1, "--json"))

    def test_ops_of_a_model(self):
        result = self.bench("ops", self.small, "--rows", 2, "--context", 64)
        self.assertFalse(result["extrapolated"])
        self.assertGreater(result["read_gb_per_s"], 0)
        launches = {op["op"]: op["launches"] for op in result["ops"]}
        self.assertEqual(launches["wq_b"], 10)
        self.assertEqual(launches["engram"], 2)
        self.assertEqual(launches["attention output"], 10)
        self.assertAlmostEqual(sum(op["share"] for op in result["ops"]), 1)
        for op in result["ops"]:
            self.assertGreater(op["best_seconds"], 0, op["op"])

    def test_ops_of_a_prompt(self):
        table = self.run_well("bench", "ops", self.small, "--rows", 0, "--context", 100, "--threads", 1).decode()
        self.assertIn("The first 100 rows of a prompt of 100 tokens", table)
        self.assertIn("GFLOP/s", table)

    def test_throughput(self):
        results = self.bench("throughput", self.small, "--context", 128, "--sequences", 5)["results"]
        self.assertEqual([each["rows"] for each in results], [1, 2, 4, 5])
        for each in results:
            self.assertGreater(each["bound_seconds"], 0)
            self.assertAlmostEqual(each["tokens_per_s"] * each["seconds"], each["rows"])

    def test_latency(self):
        results = self.bench("latency", self.small, "--long-context", 2000)["results"]
        self.assertEqual([each["context"] for each in results if each["what"] == "decode step"], [1024, 2000])
        self.assertIn("prefill, replay on", [each["what"] for each in results])

    def test_kernels(self):
        results = self.bench("ops", "--variants", "best", "--filter", " 192x384 rows 1")["results"]
        self.assertEqual({each["kernel"] for each in results}, {"linear fp8", "linear mxfp4"})
        self.assertEqual({each["rows"] for each in results}, {1, 16})
        self.refused("bench", "ops", "--filter", "no such kernel", parts=["--filter no such kernel"])

    def test_bad_models(self):
        self.refused("bench", "latency", parts=["MODEL is missing", "--synthetic"])
        self.refused("bench", "ops", "nano", "--synthetic", "released", parts=["MODEL is 'nano'", "left out"])
        self.refused("bench", "ops", "nano", "--device", "cuda", parts=["MODEL is 'nano'", "--device cuda"])
        self.refused("bench", "ops", "nano", "--filter", "fp8", parts=["--filter is 'fp8'", "left out"])
        self.refused("bench", "ops", "--layers", 2, parts=["--layers", "--synthetic"])
        self.refused("bench", "latency", "nano", "--layers", 2, parts=["--layers is 2", "MODEL"])
        self.refused("bench", "latency", "nano", "--unique-experts", 9, parts=["--unique-experts is 9", "MODEL"])
        self.refused("bench", "throughput", "nowhere", parts=["'nowhere'"])
        self.refused("bench", "throughput", self.small, "--context", 70000, parts=["70064", "65536"])
        self.refused("bench", "ops", "--synthetic", "released", "--layers", 21, parts=["--layers", "21"])


class GenerateTest(CliTest):
    def generate(self, *arguments, **keywords):
        return self.run_well("generate", self.small, "--max-tokens", 8, "--seed", 5, *arguments, **keywords)

    def test_prompt_from_everywhere(self):
        text = "Once upon a time"
        (self.root / "prompt").write_text(text)
        expected = self.generate("--prompt", text)
        self.assertEqual(self.generate("--prompt", text, "--threads", 1), expected)
        self.assertEqual(self.generate("--prompt-file", self.root / "prompt"), expected)
        self.assertEqual(self.generate(input=text.encode()), expected)

    def test_bad_prompts(self):
        file = self.root / "bytes.txt"
        file.write_bytes(b"abc\xff")
        self.refused("generate", self.small, "--prompt", "", parts=["--prompt is empty", "at least one"])
        self.refused("generate", self.small, parts=["standard input is empty", "at least one"])
        self.refused("generate", self.small, "--prompt", b"a\xff".decode(errors="surrogateescape"), parts=["not UTF-8"])
        self.refused(
            "generate", self.small, "--prompt-file", file, parts=["--prompt-file", "not UTF-8", "byte 3", "0xff"]
        )
        self.refused("generate", self.small, input=b"\xc3", parts=["standard input", "not UTF-8", "byte 0"])
        self.refused("generate", self.small, "--prompt-file", self.root / "none", parts=[self.root / "none"])
        self.refused("generate", self.small, "--prompt-file", self.root, parts=[self.root])
        text = "a b " * 40000
        self.refused("generate", self.small, input=text.encode(), parts=["prompt has", "65536"])
        self.refused(
            "generate", self.small, "--prompt", text[:100], "--max-model-len", 9, parts=["prompt has", "into 9"]
        )


class EvalTest(CliTest):
    NANO = ROOT / "models" / "nano"

    def tasks(self, *lines):
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.root))
        (folder / "some.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return folder

    def test_nano(self):
        table = self.run_well("eval", self.NANO, "--limit", 3, "--thinking", "off").decode()
        for family in ("arithmetic", "chat", "recall", "structure", "tools"):
            self.assertRegex(table, rf"(?m)^{family} +all +off +3 +[0-9.]+ +[0-9.]+ +[0-9]+$")
        self.assertRegex(table, r"(?m)^ +1,000 tokens +off +1 +[0-9.]+ +[0-9.]+$")

    def test_json(self):
        options = ("--family", "arithmetic", "--limit", 6, "--json", "--no-swa-bounded-replay")
        report = json.loads(self.run_well("eval", self.NANO, *options))
        self.assertFalse(report["swa_bounded_replay"])
        rounds = [(family["family"], family["thinking"]) for family in report["families"]]
        self.assertEqual(rounds, [("arithmetic", False), ("arithmetic", True)])
        for family in report["families"]:
            self.assertEqual(family["n"], 6)
            self.assertEqual(family["accuracy"], family["right"] / 6)
            self.assertEqual(sum(s["n"] for s in family["sets"]), 6)
            self.assertEqual(sum(s["right"] for s in family["sets"]), family["right"])
            self.assertGreater(family["tokens_per_second"], 0)
            self.assertEqual(family["tokens_per_second"], family["answer_tokens"] / family["seconds"])

    def test_answers(self):
        file = self.root / "answers.jsonl"
        options = ("--family", "tools", "--limit", 6, "--thinking", "off", "--answers", file, "--json")
        report = json.loads(self.run_well("eval", self.NANO, *options, "--activations", "fp32", "--act-quant", "off"))
        self.assertEqual((report["activations"], report["act_quant"]), ("fp32", "off"))
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        self.assertEqual([line["number"] for line in lines], [1, 2, 3, 4, 5, 6])
        self.assertEqual(sum(line["right"] for line in lines), report["families"][0]["right"])
        self.assertTrue(any(json.loads(call["arguments"]) for line in lines for call in line["calls"]))
        folder = self.root / "no such folder"
        self.refused("eval", self.NANO, "--answers", folder / "file", parts=[folder], status=1)

    def test_answers_do_not_depend_on_their_number(self):
        task = {"set": "any", "messages": [{"role": "user", "content": "a {document}"}], "judge": {"contains": "x"}}
        folder = self.tasks(*({**task, "document": {"seed": i, "tokens": 40 + i, "fact": "f"}} for i in range(9)))
        (folder / "lines.txt").write_text("one line\n\nanother line\na third\n")

        def counts(seed, most):  # of nano, whose answers end by themselves: their lengths tell them apart
            options = ("--max-tokens", 60, "--temperature", 2, "--seed", seed, "--max-concurrency", most)
            report = json.loads(self.run_well("eval", self.NANO, "--tasks", folder, *options, "--json"))
            return [(f["prompt_tokens"], f["answer_tokens"], f["right"]) for f in report["families"]]

        expected = counts(3, 16)
        for most in (1, 4):
            self.assertEqual(counts(3, most), expected)
        self.assertNotEqual(counts(4, 16), expected)

    def test_bad_tasks(self):
        good = {"set": "any", "messages": [{"role": "user", "content": "a"}], "judge": {"exact": "x"}}
        self.refused("eval", self.small, parts=[self.small / "eval", "--tasks"])
        self.refused("eval", self.small, "--tasks", self.root / "none", parts=[self.root / "none", "--tasks"])
        self.refused("eval", self.NANO, "--family", "sums", parts=["--family is 'sums'", "arithmetic, chat, recall"])
        self.refused("eval", self.NANO, "--limit", 0, parts=["--limit", "'0'"])
        self.refused("eval", self.NANO, "--thinking", "some", parts=["--thinking", "'some'", "on, off, both"])
        self.refused("eval", self.small, "--tasks", self.tasks(), parts=["some.jsonl", "is empty"])
        for change, part in (
            ({"set": None}, "set is missing"),
            ({"judge": {}}, "judge: it is {}"),
            ({"judge": {"near": 1}}, "judge: 'near' is no rule"),
            ({"messages": []}, "messages"),
            ({"document": {"seed": 1}}, "document"),
            ({"document": {"seed": 1, "tokens": 9, "fact": "f"}}, "no message holds {document}"),
        ):
            folder = self.tasks(good, {**good, **change})
            self.refused("eval", self.small, "--tasks", folder, parts=["some.jsonl:2: ", part])
        folder = self.tasks({**good, "messages": [{"role": "user", "content": "a " * 50}]})
        self.refused("eval", self.small, "--tasks", folder, "--max-model-len", 9, parts=["set 'any'", "into 9"])


class ServeTest(CliTest):
    def test_port_in_use(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            self.refused("serve", self.small, "--port", port, status=1, parts=[f"127.0.0.1:{port}", "--port"])

    def test_serves_and_stops(self):
        server = Server(OPTIONS.gannet, str(self.small))
        self.assertEqual(server.stop(), (0, ""))


class TextTest(CliTest):
    def lines(self, *arguments, input):
        """The answers to lines of input, one JSON object each."""
        out = self.run_well("text", *arguments, "--tokenizer", TOKENIZER, input=input)
        return [json.loads(line) for line in out.decode().splitlines()]

    def test_tokenize_and_back(self):
        texts = ["Hello, world", "", "日本語 é", "a\nb"]
        lines = "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()
        ids = self.lines("tokenize", input=lines)
        self.assertEqual(len(ids), len(texts))
        lines = "".join(json.dumps(line) + "\n" for line in ids).encode()
        self.assertEqual(self.lines("detokenize", input=lines), [{"text": text} for text in texts])

    def test_added_tokens(self):
        line = b'{"text": "<\xef\xbd\x9cUser\xef\xbd\x9c>"}'
        (found,), (plain,) = self.lines("tokenize", input=line), self.lines("tokenize", "--plain", input=line)
        self.assertEqual(len(found["ids"]), 1)
        self.assertGreater(len(plain["ids"]), 1)

    def test_render(self):
        body = json.dumps({"messages": [{"role": "user", "content": "Hi"}]}).encode()
        (answer,) = self.lines("render", "--no-default-thinking", input=body)
        self.assertEqual(answer["prompt"], "<｜begin▁of▁sentence｜><｜User｜>Hi<｜Assistant｜></think>")
        (ids,) = self.lines("tokenize", input=json.dumps({"text": answer["prompt"]}).encode())
        self.assertEqual(answer["ids"], ids["ids"])

    def test_parse(self):
        (answer,) = self.lines("parse", "--stage", "reasoning", input=b'{"text": "Sums.</think>4"}')
        expected = {"reasoning": "Sums.", "content": "4", "tool_calls": [], "finish_reason": "stop"}
        self.assertEqual(answer, expected)

    def test_a_bad_line_does_not_stop_the_others(self):
        good = b'{"text": "a"}'
        for bad in (b"", b"{", b"[]", b"{}", b'{"text": 1}', b'{"text": "\xff"}', b'{"text": "\\ud800"}'):
            first, second, third = self.lines("tokenize", input=b"\n".join([good, bad, good]))
            self.assertEqual(first, third)
            self.assertEqual(second["status"], 400, bad)
            self.assertIsInstance(second["error"], str)
        for bad in (b"{}", b'{"ids": 1}', b'{"ids": [1.5]}', b'{"ids": [-1]}', b'{"ids": ["1"]}'):
            (answer,) = self.lines("detokenize", input=bad)
            self.assertEqual(answer["status"], 400, bad)

    def test_bad_tokenizers(self):
        self.refused("text", "tokenize", parts=["--tokenizer", "--model"])
        self.refused(
            "text", "tokenize", "--tokenizer", self.root / "none", parts=[self.root / "none", "tokenizer.json"]
        )
        self.refused("text", "tokenize", "--tokenizer", self.ids, parts=[self.ids])
        self.refused("text", "tokenize", "--model", "no-such-model", parts=["'no-such-model'"])
        self.refused("text", "render", "--api", "telnet", parts=["--api", "'telnet'", "chat, messages, responses"])


def main():
    global OPTIONS
    OPTIONS, argv = parse_arguments(__doc__)
    return 1 if run_tests("command line", argv) else 0


if __name__ == "__main__":
    sys.exit(main())
