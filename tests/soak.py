#!/usr/bin/env python3
"""Random clients, many at a time, that often leave in the middle: afterwards nothing may be left of them.

usage: soak.py [--gannet build/gannet] [--model nano] [--seconds 300] [--clients 64] [--seed 1]

Looks at /metrics for requests and KV blocks, and at the server's process for memory, file descriptors and threads.
Exits 0 if nothing leaked and no client waited in vain. soak_test.py runs a short one.
"""

import argparse
import json
import pathlib
import random
import re
import socket
import sys
import threading
import time
import urllib.parse
import urllib.request

from gannet_process import PATIENCE, ROOT, Server

STALL = 120  # seconds without a byte, on a machine that does other work, too
SETTLED = 60  # seconds for the last requests to end
MEMORY_SLACK = 64 << 20  # bytes; caches that fill up to their limits


class Client(threading.Thread):
    """One request after another until told to stop."""

    def __init__(self, soak, seed):
        super().__init__(daemon=True)
        self.soak = soak
        self.random = random.Random(seed)

    def run(self):
        while not self.soak.over.is_set():
            try:
                self.request()
            except (OSError, AssertionError) as error:
                self.soak.failures.append(f"{type(error).__name__}: {error}")
                return

    def body(self):
        words = " ".join(self.random.choice(("sea", "bird", "two", "plus", "rock")) for _ in range(self.random.choice((2, 40, 400))))
        limit = self.random.choice((1, 8, 32, 128))
        body = {
            "model": self.soak.model,
            "max_tokens": limit,
            "stream": self.random.random() < 0.8,
            "temperature": self.random.choice((0, 1)),
            "seed": self.random.randrange(1 << 30),
        }
        path = self.random.choice(("/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"))
        if path == "/v1/completions":
            body |= {"prompt": words, "n": self.random.choice((1, 1, 2))}
        elif path == "/v1/responses":
            body["input"] = words
            body["max_output_tokens"] = body.pop("max_tokens")
            body.pop("seed")
        else:
            body["messages"] = [{"role": "user", "content": words}]
        return path, body

    def request(self):
        path, body = self.body()
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(data)}\r\n\r\n".encode()
        most = self.random.choice((0, 1, 500, 2000, 1 << 30, 1 << 30))  # bytes that this client reads
        with socket.create_connection(self.soak.address, timeout=STALL) as connection:
            connection.sendall(head + data)
            read = b""
            while len(read) < most:
                piece = connection.recv(65536)
                if not piece:
                    break
                read += piece
            else:
                if self.random.random() < 0.5:  # a reset, not an orderly end
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
                self.soak.count("left")
                return
        status = int(read.split()[1])
        assert status in (200, 429), f"{path} was answered {read[:300]!r}"
        self.soak.count("answered" if status == 200 else "refused")


class Soak:
    def __init__(self, gannet, model, clients, seed):
        self.server = Server(gannet, model, "--max-model-len", "4096", "--kv-cache-tokens", "32768", "--served-model-name", "m")
        self.model = "m"
        url = urllib.parse.urlsplit(self.server.url)
        self.address = (url.hostname, url.port)
        self.over = threading.Event()
        self.failures = []
        self.counts = {}
        self.lock = threading.Lock()
        self.clients = [Client(self, seed * 1000 + number) for number in range(clients)]

    def count(self, what):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + 1

    def metrics(self):
        with urllib.request.urlopen(self.server.url + "/metrics", timeout=PATIENCE) as reply:
            lines = reply.read().decode().splitlines()
        found = {}
        for line in lines:
            if match := re.match(r"([a-z:_]+)(?:\{.*\})? (\S+)$", line):
                found[match.group(1)] = float(match.group(2))
        return found

    def state(self):
        found = self.metrics()
        names = ("process_resident_memory_bytes", "process_open_fds", "process_threads", "gannet:kv_blocks_held",
                 "vllm:num_requests_running", "vllm:num_requests_waiting")
        return {name: found[name] for name in names}

    def settle(self):
        """The state once nothing runs any more, or after a while."""
        end = time.monotonic() + SETTLED
        while True:
            state = self.state()
            at_rest = state["vllm:num_requests_running"] == 0 and state["vllm:num_requests_waiting"] == 0
            if (at_rest and state["gannet:kv_blocks_held"] == 0) or time.monotonic() > end:
                return state
            time.sleep(0.2)

    def run(self, seconds):
        """Problems found; empty if there were none."""
        for client in self.clients:
            client.start()
        # Memory grows until caches and allocators have seen everything once; what counts is whether it goes on.
        time.sleep(seconds / 2)
        middle = self.state()
        generated = self.metrics()["vllm:generation_tokens_total"]
        time.sleep(seconds / 2)
        progress = self.metrics()["vllm:generation_tokens_total"] - generated
        self.over.set()
        for client in self.clients:
            client.join(STALL)
        stuck = sum(client.is_alive() for client in self.clients)
        end = self.settle()
        status, log = self.server.stop()

        problems = list(self.failures)
        if stuck:
            problems.append(f"{stuck} clients still wait")
        if progress <= 0:
            problems.append("no tokens came in the second half")
        for name in ("gannet:kv_blocks_held", "vllm:num_requests_running", "vllm:num_requests_waiting"):
            if end[name] != 0:
                problems.append(f"{name} is {end[name]:.0f} at the end")
        if end["process_threads"] > middle["process_threads"]:
            problems.append(f"threads grew from {middle['process_threads']:.0f} to {end['process_threads']:.0f}")
        if end["process_open_fds"] > 40:
            problems.append(f"{end['process_open_fds']:.0f} files are open at the end")
        grown = end["process_resident_memory_bytes"] - middle["process_resident_memory_bytes"]
        if grown > MEMORY_SLACK:
            problems.append(f"memory grew by {grown / 2**20:.0f} MiB in the second half")
        if status != 0:
            problems.append(f"the server ended with status {status}: {log}")
        print(f"soak: {seconds:.0f} s, {len(self.clients)} clients, requests {self.counts}", file=sys.stderr)
        print(f"soak: middle {middle}", file=sys.stderr)
        print(f"soak: end    {end}", file=sys.stderr)
        return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gannet", default=str(pathlib.Path(ROOT, "build", "gannet")))
    parser.add_argument("--model", default="nano")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    problems = Soak(options.gannet, options.model, options.clients, options.seed).run(options.seconds)
    for problem in problems:
        print(f"soak: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
