#!/usr/bin/env python3
"""`gannet serve`, `chat` and `generate` as a person meets them at the command line.

usage: text_commands_test.py [--gannet build/gannet] [--model nano] [unittest arguments]

Works with any checkpoint: it judges the commands, not what the model says.
"""

import json
import os
import pathlib
import pty
import select
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

from gannet_process import PATIENCE, ROOT, Server, parse_arguments, run_tests

OPTIONS = None


def gannet(*arguments, **keywords):
    keywords.setdefault("input", b"")
    return subprocess.run([OPTIONS.gannet, *arguments], capture_output=True, timeout=PATIENCE, **keywords)


class CommandTest(unittest.TestCase):
    def expect_refused(self, *arguments, status=2, part="", **keywords):
        """One line on stderr that says what is wrong."""
        result = gannet(*arguments, **keywords)
        message = result.stderr.decode()
        self.assertEqual(result.returncode, status, message)
        self.assertEqual(message.count("\n"), 1, message)
        self.assertIn(part, message)
        self.assertEqual(result.stdout, b"")


class GenerateTest(CommandTest):
    def generate(self, *arguments, **keywords):
        return gannet("generate", OPTIONS.model, "--max-tokens", "12", "--seed", "5", *arguments, **keywords)

    def test_prompt_from_everywhere(self):
        text = "Once upon a time"
        result = self.generate("--prompt", text)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(self.generate("--prompt", text).stdout, result.stdout)
        self.assertEqual(self.generate(input=text.encode()).stdout, result.stdout)
        with tempfile.NamedTemporaryFile() as file:
            file.write(text.encode())
            file.flush()
            self.assertEqual(self.generate("--prompt-file", file.name).stdout, result.stdout)

    def test_bad_prompts(self):
        self.expect_refused("generate", OPTIONS.model, "--prompt", "", part="--prompt is empty")
        self.expect_refused("generate", OPTIONS.model, input=b"", part="standard input is empty")
        self.expect_refused("generate", OPTIONS.model, input=b"ab\xffcd", part="not UTF-8: byte 2")
        self.expect_refused("generate", OPTIONS.model, "--prompt-file", "/no/such/file", part="/no/such/file")
        self.expect_refused("generate", OPTIONS.model, "--prompt", "a", "--prompt-file", "b", part="only one")
        self.expect_refused(
            "generate", OPTIONS.model, "--max-model-len", "4", "--prompt", "far too long for four tokens", part="fit into 4"
        )

    def test_bad_options(self):
        self.expect_refused("generate", part="MODEL")
        self.expect_refused("generate", "no-such-model", "--prompt", "x", part="no-such-model")
        self.expect_refused("generate", OPTIONS.model, "--prompt", "x", "--temperature", "9", part="--temperature")
        self.expect_refused("generate", OPTIONS.model, "--prompt", "x", "--max-tokens", "0", part="--max-tokens")
        self.expect_refused("generate", OPTIONS.model, "--prompt", "x", "--top-p", "0", part="--top-p")
        self.expect_refused("generate", OPTIONS.model, "--prompt", "x", "--stop", "", part="--stop")
        self.expect_refused("generate", OPTIONS.model, "--prompt", "x", "--frobnicate", part="--frobnicate")
        self.expect_refused(
            "generate", OPTIONS.model, "--prompt", "x", "--max-model-len", "2000000000", part="--max-model-len"
        )

    def test_missing_tokenizer(self):
        model = pathlib.Path(OPTIONS.model)
        if not model.is_dir():
            model = ROOT / "models" / OPTIONS.model
        with tempfile.TemporaryDirectory() as folder:
            for file in model.iterdir():
                if file.name != "tokenizer.json":
                    os.symlink(file.resolve(), pathlib.Path(folder) / file.name)
            self.expect_refused("generate", folder, "--prompt", "x", part="tokenizer.json")

    def test_closed_output(self):
        command = [OPTIONS.gannet, "generate", OPTIONS.model, "--prompt", "x", "--ignore-eos"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        process.stdout.close()
        self.assertNotEqual(process.wait(timeout=PATIENCE), 0)


class ServeTest(CommandTest):
    def test_port_in_use(self):
        server = Server(OPTIONS.gannet, OPTIONS.model)
        port = server.url.rsplit(":", 1)[1]
        self.expect_refused("serve", OPTIONS.model, "--port", port, status=1, part=f"127.0.0.1:{port}")
        self.expect_refused("serve", OPTIONS.model, "--port", port, status=1, part="--port")
        self.assertEqual(server.stop(), (0, ""))

    def test_bad_options(self):
        self.expect_refused("serve", OPTIONS.model, "--api-key", "", part="--api-key")
        self.expect_refused("serve", OPTIONS.model, "--served-model-name", "", part="--served-model-name")
        self.expect_refused("serve", OPTIONS.model, "--port", "65536", part="--port")
        self.expect_refused("serve", OPTIONS.model, "--default-thinking", "maybe", part="--default-thinking")
        self.expect_refused("serve", OPTIONS.model, "--host", "no.such.host.invalid", status=1, part="no.such.host")

    def start_stream(self, server):
        body = {"prompt": "x", "stream": True, "ignore_eos": True}
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(server.url + "/v1/completions", json.dumps(body).encode(), headers)
        stream = urllib.request.urlopen(request, timeout=PATIENCE)
        self.assertTrue(stream.readline().startswith(b"data: "))
        return stream

    def test_second_signal_stops_at_once(self):
        server = Server(OPTIONS.gannet, OPTIONS.model)
        stream = self.start_stream(server)
        server.process.send_signal(signal.SIGTERM)
        while True:  # draining: alive, but not ready
            try:
                urllib.request.urlopen(server.url + "/ready", timeout=PATIENCE)
            except urllib.error.HTTPError as error:
                self.assertEqual(error.code, 503)
                break
            except (ConnectionError, urllib.error.URLError):
                pass  # connections without a request yet are closed when draining begins
        self.assertEqual(urllib.request.urlopen(server.url + "/live", timeout=PATIENCE).status, 200)
        status, _ = server.stop(signal.SIGINT)
        self.assertEqual(status, 0)
        stream.close()

    def test_drain_has_a_deadline(self):
        server = Server(OPTIONS.gannet, OPTIONS.model, "--drain-timeout", "1")
        stream = self.start_stream(server)
        begin = time.monotonic()
        status, _ = server.stop()
        self.assertEqual(status, 0)
        self.assertLess(time.monotonic() - begin, PATIENCE / 4)
        stream.close()


class ChatTest(CommandTest):
    ARGUMENTS = ["--max-tokens", "6", "--seed", "3", "--thinking", "off"]

    def test_without_a_terminal(self):
        lines = b"hi\n\n/system Be brief.\nhow are you\n/clear\n"
        result = gannet("chat", OPTIONS.model, *self.ARGUMENTS, input=lines)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stderr.count(b" tokens, first after"), 2)
        self.assertNotIn(b"\x1b", result.stdout)
        self.assertEqual(gannet("chat", OPTIONS.model, *self.ARGUMENTS, input=lines).stdout, result.stdout)

    def test_with_a_server(self):
        local = gannet("chat", OPTIONS.model, *self.ARGUMENTS, input=b"hi\n")
        server = Server(OPTIONS.gannet, OPTIONS.model, "--api-key", "k")
        for url in (server.url, server.url + "/v1/"):
            remote = gannet("chat", "--url", url, "--api-key", "k", *self.ARGUMENTS, input=b"hi\n")
            self.assertEqual(remote.returncode, 0, remote.stderr)
            self.assertEqual(remote.stdout, local.stdout)
        self.expect_refused("chat", "--url", server.url, status=1, part="401", input=b"hi\n")
        self.assertEqual(server.stop(), (0, ""))
        self.expect_refused("chat", "--url", server.url, status=1, part="cannot be reached", input=b"hi\n")

    def test_bad_options(self):
        self.expect_refused("chat", part="either MODEL or --url")
        self.expect_refused("chat", OPTIONS.model, "--url", "http://127.0.0.1:1", part="either MODEL or --url")
        self.expect_refused("chat", "--url", "https://127.0.0.1", part="https is not supported")
        self.expect_refused("chat", "--url", "nonsense", part="nonsense")
        self.expect_refused("chat", OPTIONS.model, "--thinking", "maybe", part="--thinking")
        self.expect_refused("chat", OPTIONS.model, input=b"\xff\n", part="line 1 of standard input")
        self.expect_refused("chat", OPTIONS.model, input=b"/nonsense\n", part="/nonsense")


class Terminal:
    """A chat at a terminal of its own."""

    def __init__(self, *arguments):
        self.process_id, self.terminal = pty.fork()
        if self.process_id == 0:
            environment = {**os.environ, "TERM": "xterm", "LC_ALL": "C.UTF-8"}
            os.execve(OPTIONS.gannet, [OPTIONS.gannet, *arguments], environment)
        self.seen = b""

    def type(self, text):
        os.write(self.terminal, text.encode())

    def wait_for(self, text):
        """Everything up to `text`, which must come."""
        deadline = time.monotonic() + PATIENCE
        while text.encode() not in self.seen:
            ready, _, _ = select.select([self.terminal], [], [], max(0, deadline - time.monotonic()))
            piece = b""
            if ready:
                try:
                    piece = os.read(self.terminal, 65536)
                except OSError:  # the other side is closed
                    pass
            if not piece:
                raise AssertionError(f"no {text!r} in {self.seen!r}")
            self.seen += piece
        before, _, self.seen = self.seen.partition(text.encode())
        return before.decode(errors="replace")

    def end(self):
        end = time.monotonic() + PATIENCE
        while True:
            process_id, status = os.waitpid(self.process_id, os.WNOHANG)
            if process_id:
                break
            if time.monotonic() > end:
                os.kill(self.process_id, signal.SIGKILL)
                raise AssertionError("the program did not end")
            time.sleep(0.01)
        os.close(self.terminal)
        return os.waitstatus_to_exitcode(status)


class TerminalTest(unittest.TestCase):
    PROMPT = "> \x1b[0m"

    def start(self, *arguments):
        terminal = Terminal("chat", OPTIONS.model, "--seed", "3", *arguments)
        terminal.wait_for("/help lists the commands")
        terminal.wait_for(self.PROMPT)
        return terminal

    def test_a_conversation(self):
        terminal = self.start("--max-tokens", "6", "--thinking", "off")
        terminal.type("hello\r")
        terminal.wait_for(" tokens, first after")
        terminal.wait_for(self.PROMPT)
        terminal.type("/help\r")
        terminal.wait_for("/thinking HOW")
        terminal.type("/frobnicate\r")
        terminal.wait_for("there is no command /frobnicate")
        terminal.type("/quit\r")
        self.assertEqual(terminal.end(), 0)

    def test_editing(self):
        terminal = self.start()
        # "é日c" typed out of order, then a word too much and a character too much removed.
        terminal.type("/日c\x1b[D\x1b[D\x1b[Dx\x7f\x01\x1b[Cé\x05 word\x17\x7f\r")
        terminal.wait_for("there is no command /é日c")
        terminal.type("\x1b[A\r")
        terminal.wait_for("there is no command /é日c")
        terminal.type("never sent\x15/quit\r")
        self.assertEqual(terminal.end(), 0)

    def test_thinking_is_dim(self):
        terminal = self.start("--max-tokens", "6", "--thinking", "on")
        terminal.type("hello\r")
        terminal.wait_for("\x1b[2m")
        terminal.wait_for(" tokens, first after")
        terminal.wait_for(self.PROMPT)  # what is typed before may be no key of the line editor
        terminal.type("\x04")
        self.assertEqual(terminal.end(), 0)

    def test_interrupts(self):
        terminal = self.start("--thinking", "on")
        terminal.type("tell me everything\r")
        terminal.wait_for("\x1b[2m")  # it has begun
        terminal.type("\x03")
        answer = terminal.wait_for("]")
        self.assertRegex(answer, r"\[(stopped|\d+ tokens)")
        terminal.wait_for(self.PROMPT)
        terminal.type("\x03")
        terminal.wait_for("Ctrl-C again to leave")
        terminal.wait_for(self.PROMPT)
        terminal.type("\x03")
        self.assertEqual(terminal.end(), 0)


def main():
    global OPTIONS
    OPTIONS, argv = parse_arguments(__doc__)
    return 1 if run_tests("text commands", argv) else 0


if __name__ == "__main__":
    sys.exit(main())
