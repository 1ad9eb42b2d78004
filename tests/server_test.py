#!/usr/bin/env python3
"""What an operator sees of `gannet serve`: metrics, logs, keys, TLS, limits, draining.

usage: server_test.py [--gannet build/gannet] [--model nano] [unittest arguments]
"""

import concurrent.futures
import http.client
import json
import pathlib
import re
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.parse

from gannet_process import PATIENCE, Server, parse_arguments, run_tests

CHAT = {
    "messages": [{"role": "user", "content": "Say hello."}],
    "thinking": {"type": "disabled"},
    "temperature": 0,
    "max_tokens": 8,
}


class Reply:
    def __init__(self, response):
        self.status = response.status
        self.headers = response.headers
        self.text = response.read().decode()

    def json(self):
        return json.loads(self.text)


def ask(server, method, path, body=None, tls=None, **headers):
    """One request on a connection of its own."""
    url = urllib.parse.urlsplit(server.url)
    if url.scheme == "https":
        connection = http.client.HTTPSConnection(url.hostname, url.port, timeout=PATIENCE, context=tls)
    else:
        connection = http.client.HTTPConnection(url.hostname, url.port, timeout=PATIENCE)
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    if body is not None:
        headers.setdefault("Content-Type", "application/json")
        body = json.dumps(body)
    try:
        connection.request(method, path, body=body, headers=headers)
        return Reply(connection.getresponse())
    finally:
        connection.close()


def metrics(server):
    """Samples by name, summed over their labels."""
    found = {}
    for line in ask(server, "GET", "/metrics").text.splitlines():
        if line.startswith("#"):
            continue
        name, value = re.match(r"(\S+?)(?:\{.*\})? (\S+)$", line).groups()
        if not name.endswith("_bucket"):
            found[name] = found.get(name, 0) + float(value)
    return found


class MetricsTest(unittest.TestCase):
    """A scripted run: each metric before and after it."""

    @classmethod
    def setUpClass(cls):
        cls.server = Server(OPTIONS.gannet, OPTIONS.model, "--max-model-len", "4096")

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def at_rest(self):
        """The metrics once no request runs; an answer may be read a little before the engine has counted its end."""
        end = time.monotonic() + PATIENCE
        while True:
            now = metrics(self.server)
            busy = ("vllm:num_requests_running", "vllm:num_requests_waiting", "gannet:kv_blocks_held")
            if all(now[name] == 0 for name in busy) or time.monotonic() > end:
                return now
            time.sleep(0.01)

    def changes(self, action):
        before = metrics(self.server)
        result = action()
        after = self.at_rest()
        return result, {name: after[name] - before.get(name, 0) for name in after}

    def test_counts_a_request(self):
        reply, changed = self.changes(lambda: ask(self.server, "POST", "/v1/chat/completions", CHAT))
        usage = reply.json()["usage"]
        self.assertEqual(changed["vllm:prompt_tokens_total"], usage["prompt_tokens"])
        self.assertEqual(changed["vllm:generation_tokens_total"], usage["completion_tokens"])
        self.assertEqual(changed["vllm:prompt_tokens_by_source_total"], usage["prompt_tokens"])
        self.assertEqual(changed["vllm:prefix_cache_queries_total"], usage["prompt_tokens"])
        self.assertEqual(changed["vllm:request_success_total"], 1)
        self.assertGreater(changed["gannet:steps_total"], 0)
        self.assertGreater(changed["gannet:encoder_rows_total"], 0)
        self.assertGreater(changed["gannet:decoder_rows_total"], 0)
        for name in (
            "vllm:time_to_first_token_seconds",
            "vllm:e2e_request_latency_seconds",
            "vllm:request_queue_time_seconds",
            "vllm:request_prefill_time_seconds",
            "vllm:request_decode_time_seconds",
            "vllm:request_inference_time_seconds",
            "vllm:request_time_per_output_token_seconds",
            "vllm:request_prompt_tokens",
            "vllm:request_generation_tokens",
            "vllm:request_max_num_generation_tokens",
            "vllm:request_params_max_tokens",
            "vllm:request_prefill_kv_computed_tokens",
        ):
            self.assertEqual(changed[name + "_count"], 1, name)
        self.assertEqual(changed["vllm:inter_token_latency_seconds_count"], usage["completion_tokens"] - 1)
        self.assertEqual(changed["vllm:request_prompt_tokens_sum"], usage["prompt_tokens"])
        self.assertEqual(changed["vllm:request_generation_tokens_sum"], usage["completion_tokens"])

    def test_counts_hits_once_and_as_the_answer_says(self):
        long = {**CHAT, "messages": [{"role": "user", "content": "one two three four " * 100}]}
        ask(self.server, "POST", "/v1/chat/completions", long)
        reply, changed = self.changes(lambda: ask(self.server, "POST", "/v1/chat/completions", long))
        cached = reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
        self.assertGreater(cached, 0)
        self.assertEqual(changed["vllm:prefix_cache_hits_total"], cached)
        self.assertEqual(changed["vllm:prompt_tokens_cached_total"], cached)
        self.assertEqual(ask(self.server, "POST", "/reset_prefix_cache").status, 200)
        reply = ask(self.server, "POST", "/v1/chat/completions", long)
        self.assertEqual(reply.json()["usage"]["prompt_tokens_details"]["cached_tokens"], 0)

    def test_is_at_rest_after_its_requests(self):
        ask(self.server, "POST", "/v1/chat/completions", CHAT)
        now = self.at_rest()
        self.assertEqual(now["vllm:num_requests_running"], 0)
        self.assertEqual(now["vllm:num_requests_waiting"], 0)
        self.assertEqual(now["vllm:kv_cache_usage_perc"], 0)
        self.assertEqual(now["gannet:kv_blocks_held"], 0)
        self.assertGreater(now["gannet:kv_blocks"], 0)

    def test_counts_http_requests(self):
        _, changed = self.changes(lambda: [ask(self.server, "GET", "/v1/models") for _ in range(3)])
        self.assertGreaterEqual(changed["http_requests_total"], 3)
        self.assertGreaterEqual(changed["http_request_duration_seconds_count"], 3)

    def test_own_routes(self):
        self.assertIn("Cache flushed", ask(self.server, "POST", "/flush_cache").text)
        self.assertGreater(ask(self.server, "GET", "/get_model_info").json()["max_model_len"], 0)
        self.assertIn("version", ask(self.server, "GET", "/version").json())
        for path in ("/health", "/live", "/ready", "/ping", "/"):
            self.assertEqual(ask(self.server, "GET", path).status, 200, path)
            head = ask(self.server, "HEAD", path)
            self.assertEqual((head.status, head.text), (200, ""), path)


class LogTest(unittest.TestCase):
    def run_server(self, *arguments):
        server = Server(OPTIONS.gannet, OPTIONS.model, *arguments, log_level="info")
        reply = ask(server, "POST", "/v1/chat/completions?key=hidden", CHAT, X_Request_Id="trace-7")
        ask(server, "GET", "/nowhere")
        _, log = server.stop()
        return reply, log

    def test_json_lines(self):
        reply, log = self.run_server("--log-format", "json")
        self.assertEqual(reply.headers["X-Request-Id"], "trace-7")
        lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
        [line] = [line for line in lines if line.get("path") == "/v1/chat/completions"]
        self.assertEqual(line["request_id"], "trace-7")
        self.assertEqual((line["method"], line["status"], line["level"]), ("POST", 200, "info"))
        self.assertEqual(line["tokens"], reply.json()["usage"]["completion_tokens"])
        self.assertGreater(line["bytes"], 100)
        self.assertGreater(line["seconds"], 0)
        [unknown] = [line for line in lines if line.get("path") == "/nowhere"]
        self.assertEqual(unknown["status"], 404)
        self.assertTrue(unknown["request_id"].startswith("req-"))

    def test_text_lines_and_no_content(self):
        reply, log = self.run_server()
        self.assertRegex(log, r"info \[trace-7\] request method=POST path=/v1/chat/completions status=200 ")
        for secret in ("Say hello", "hidden", reply.json()["choices"][0]["message"]["content"] or "Say hello"):
            self.assertNotIn(secret, log)


class AccessTest(unittest.TestCase):
    def test_keys_of_the_environment(self):
        server = Server(OPTIONS.gannet, OPTIONS.model, environment={"GANNET_API_KEY": "of-the-environment"})
        try:
            self.assertEqual(ask(server, "GET", "/v1/models").status, 401)
            self.assertEqual(ask(server, "GET", "/v1/models", Authorization="Bearer of-the-environment").status, 200)
            self.assertEqual(ask(server, "GET", "/v1/models", X_Api_Key="of-the-environment").status, 200)
        finally:
            server.stop()

    def test_names(self):
        for options, expected in ([], 403), (["--allowed-hosts", "evil.example"], 200), (["--api-key", "k"], 200):
            server = Server(OPTIONS.gannet, OPTIONS.model, *options)
            try:
                self.assertEqual(ask(server, "GET", "/health", Host="evil.example").status, expected)
            finally:
                server.stop()

    def test_limits(self):
        arguments = ["--api-key", "a", "--api-key", "b", "--rate-limit", "3", "--max-request-bytes", "2000"]
        server = Server(OPTIONS.gannet, OPTIONS.model, *arguments)
        try:
            large = ask(server, "POST", "/v1/messages", {"x": "y" * 3000}, X_Api_Key="a")
            self.assertEqual(large.status, 413)
            self.assertEqual(large.json()["type"], "error")
            replies = [ask(server, "GET", "/v1/models", X_Api_Key="a") for _ in range(4)]
            self.assertEqual([reply.status for reply in replies], [200, 200, 200, 429])
            self.assertGreater(int(replies[3].headers["Retry-After"]), 0)
            self.assertEqual(ask(server, "GET", "/v1/models", X_Api_Key="b").status, 200)
        finally:
            server.stop()

    def test_request_timeout(self):
        server = Server(OPTIONS.gannet, OPTIONS.model, "--request-timeout", "1")
        try:
            endless = {**CHAT, "max_tokens": 100_000, "ignore_eos": True}
            if ask(server, "POST", "/v1/chat/completions", endless).status == 400:
                endless.pop("max_tokens")
            self.assertEqual(ask(server, "POST", "/v1/chat/completions", endless).status, 504)
        finally:
            server.stop()


class PlanTest(unittest.TestCase):
    """What a server says at its start."""

    def plan(self, *arguments):
        server = Server(OPTIONS.gannet, OPTIONS.model, *arguments)
        self.assertEqual(server.stop()[0], 0)
        return server.plan

    def test_defaults_and_sizes(self):
        plan = self.plan()
        self.assertRegex(plan, r"weights +\S+ MiB")
        self.assertRegex(plan, r"KV cache +\d+ bytes a token of context \(\S+ MiB for a full one\)")
        self.assertRegex(plan, r"context +\d+ tokens")
        self.assertRegex(plan, r"thinking +on unless a request says otherwise")
        block, least = map(int, re.search(r"hits are whole blocks of (\d+) tokens, (\d+) tokens or more", plan).groups())
        self.assertLessEqual(block, 128)
        self.assertLessEqual(least, 256)

    def test_what_was_turned_off(self):
        plan = self.plan("--default-thinking", "off", "--no-swa-bounded-replay")
        self.assertIn("thinking    off", plan)
        self.assertIn("bounded replay off", plan)
        self.assertRegex(plan, r"whole blocks of (\d+) tokens, \1 tokens or more")
        self.assertIn("prefixes    not cached", self.plan("--no-enable-prefix-caching"))


class TlsTest(unittest.TestCase):
    def test_serves_https(self):
        with tempfile.TemporaryDirectory() as folder:
            certificate = pathlib.Path(folder, "certificate.pem")
            key = pathlib.Path(folder, "key.pem")
            command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
            command += ["-addext", "subjectAltName=IP:127.0.0.1", "-out", certificate, "-keyout", key]
            subprocess.run(command, check=True, capture_output=True)
            trust = ssl.create_default_context(cafile=certificate)
            server = Server(
                OPTIONS.gannet, OPTIONS.model, "--ssl-certfile", str(certificate), "--ssl-keyfile", str(key)
            )
            try:
                self.assertTrue(server.url.startswith("https://"))
                self.assertEqual(ask(server, "GET", "/health", tls=trust).status, 200)
                whole = ask(server, "POST", "/v1/chat/completions", CHAT, tls=trust)
                self.assertEqual(whole.status, 200)
                streamed = ask(server, "POST", "/v1/chat/completions", {**CHAT, "stream": True}, tls=trust)
                self.assertTrue(streamed.text.endswith("data: [DONE]\n\n"))
                with concurrent.futures.ThreadPoolExecutor(8) as pool:
                    many = list(pool.map(lambda _: ask(server, "GET", "/v1/models", tls=trust).status, range(32)))
                self.assertEqual(many, [200] * 32)
                with self.assertRaises(ssl.SSLError):
                    ask(server, "GET", "/health", tls=ssl.create_default_context())
                plain = http.client.HTTPConnection(urllib.parse.urlsplit(server.url).netloc, timeout=PATIENCE)
                with self.assertRaises((http.client.HTTPException, ConnectionError)):
                    plain.request("GET", "/health")
                    plain.getresponse()
                self.assertEqual(ask(server, "GET", "/health", tls=trust).status, 200)
            finally:
                self.assertEqual(server.stop()[0], 0)

    def test_names_what_is_wrong_with_its_files(self):
        with tempfile.TemporaryDirectory() as folder:
            nonsense = pathlib.Path(folder, "nonsense.pem")
            nonsense.write_text("nonsense")
            for arguments, part in (
                (["--ssl-certfile", str(nonsense)], "--ssl-keyfile is missing"),
                (["--ssl-certfile", str(nonsense), "--ssl-keyfile", str(nonsense)], str(nonsense)),
                (["--allowed-origins", "example.org"], "--allowed-origins"),
                (["--allowed-hosts", "http://example.org"], "--allowed-hosts"),
                (["--allowed-hosts", "example.org:80"], "--allowed-hosts"),
            ):
                command = [OPTIONS.gannet, "serve", OPTIONS.model, "--port", "0", *arguments]
                ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
                self.assertEqual(ended.returncode, 2)
                self.assertIn(part, ended.stderr)


class DrainTest(unittest.TestCase):
    def start_stream(self, server, tokens):
        """A stream that has begun; the connection and its response."""
        url = urllib.parse.urlsplit(server.url)
        connection = http.client.HTTPConnection(url.hostname, url.port, timeout=PATIENCE)
        body = json.dumps({**CHAT, "stream": True, "max_tokens": tokens, "ignore_eos": True})
        connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        self.assertTrue(response.readline().startswith(b"data: "))
        return connection, response

    def test_finishes_what_runs_and_refuses_the_rest(self):
        server = Server(OPTIONS.gannet, OPTIONS.model, "--drain-timeout", "600")
        connection, response = self.start_stream(server, 24)
        rest = []
        reader = threading.Thread(target=lambda: rest.append(response.read()))
        reader.start()
        server.process.send_signal(signal.SIGTERM)
        reader.join(PATIENCE)
        connection.close()
        self.assertTrue(rest[0].endswith(b"data: [DONE]\n\n"))
        _, log = server.process.communicate(timeout=PATIENCE)
        self.assertEqual(server.process.returncode, 0, log)

    def test_cuts_off_what_takes_too_long(self):
        server = Server(OPTIONS.gannet, OPTIONS.model, "--drain-timeout", "0")
        connection, response = self.start_stream(server, 2000)
        server.process.send_signal(signal.SIGTERM)
        with self.assertRaises((http.client.IncompleteRead, ConnectionError)):
            response.read()
        connection.close()
        server.process.communicate(timeout=PATIENCE)
        self.assertEqual(server.process.returncode, 0)


if __name__ == "__main__":
    OPTIONS, ARGUMENTS = parse_arguments(__doc__)
    sys.exit(run_tests("server_test", ARGUMENTS) != 0)
