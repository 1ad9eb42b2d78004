"""What the tests of the whole program share: where it is, how to start it, how to report."""

import argparse
import atexit
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import unittest
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
PATIENCE = 120  # seconds


def parse_arguments(doc):
    """--gannet and --model; the rest is for unittest."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gannet", default=str(ROOT / "build" / "gannet"))
    parser.add_argument("--model", default="nano")
    options, rest = parser.parse_known_args()
    return options, [sys.argv[0], *rest]


def run_tests(name, argv, warnings=None):
    """Runs the tests of the calling script; returns how many failed."""
    outcome = unittest.main(argv=argv, exit=False, verbosity=2, warnings=warnings).result
    failed = len(outcome.failures) + len(outcome.errors) + len(outcome.unexpectedSuccesses)
    print(f"{name}: {outcome.testsRun - failed} passed, {failed} failed")
    return failed


class Server:
    """`gannet serve` on a free port, until stop() or the end of the tests."""

    def __init__(self, gannet, model, *arguments, log_level="warning", environment=None):
        command = [gannet, "serve", model, "--port", "0", *arguments]
        command += ["--log-level", log_level]  # nobody reads its log while it runs: more than a pipe holds stops it
        environment = {**os.environ, **(environment or {})}
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        atexit.register(self.process.kill)  # a test that fails must not leave its server behind
        lines = []
        for line in self.process.stderr:
            lines.append(line)
            ready = re.match(r"ready after .* at (https?://\S+)/v1$", line.strip())
            if ready:
                self.url = ready.group(1)
                self.plan = "".join(lines)  # what it said before it was ready
                return
        raise RuntimeError("the server did not become ready:\n" + "".join(lines))

    def is_idle(self):
        """Whether no request runs, waits or holds memory; what was just cancelled gets its time to end."""
        busy = r"^(?:vllm:num_requests_(?:running|waiting)|gannet:kv_blocks_held)(?:\{.*\})? (\S+)$"
        end = time.monotonic() + PATIENCE
        while True:
            with urllib.request.urlopen(self.url + "/metrics", timeout=PATIENCE) as response:
                values = re.findall(busy, response.read().decode(), re.MULTILINE)
            idle = len(values) == 3 and not any(map(float, values))
            if idle or time.monotonic() > end:
                return idle
            time.sleep(0.01)

    def stop(self, signal_number=signal.SIGTERM):
        """Exit status, and what it wrote since it was ready."""
        self.process.send_signal(signal_number)
        _, rest = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, rest
