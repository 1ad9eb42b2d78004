"""The processes of one training run, one for each GPU of a machine: each trains batches of its own, and gradients are
averaged. Masters and optimiser state are the same everywhere."""
from __future__ import annotations

import datetime
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch import Tensor

from .params import Params

PATIENCE = datetime.timedelta(hours=2)  # the others wait while the leader evaluates
GRACE = 25.0    # seconds in which a process that ends has to write what it has
GOES_ON, STOPS, FAILS = range(3)
# NVLink multicast can put the GPUs of a shared host out of service.
NO_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}


class Team:
    """This process and its peers; a single process is a team of one, for which everything here does nothing."""

    def __init__(self, device: str):
        self.rank, self.world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        self.leader = self.rank == 0
        if self.world > 1:
            os.environ.update(NO_MULTICAST)
            backend = "gloo"
            if device == "cuda":
                torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", self.rank)))
                backend = "cpu:gloo,cuda:nccl"
            dist.init_process_group(backend, timeout=PATIENCE)

    def agree(self, value: float) -> float:
        """The leader's value. Travels between the CPUs: no GPU is waited for."""
        if self.world == 1:
            return value
        shared = torch.tensor(value, dtype=torch.float64)
        dist.broadcast(shared, 0)
        return float(shared)

    def ending(self, mine: int) -> int:
        """The most serious of what the members say: GOES_ON, STOPS or FAILS. All of them leave a run at the same step."""
        if self.world == 1:
            return mine
        shared = torch.tensor(mine)
        dist.all_reduce(shared, dist.ReduceOp.MAX)
        return int(shared)

    def sum(self, t: Tensor) -> Tensor:
        """In place."""
        if self.world > 1:
            dist.all_reduce(t)
        return t

    def mean(self, t: Tensor) -> Tensor:
        """In place."""
        return self.sum(t).mul_(1 / self.world) if self.world > 1 else t

    def share(self, params: Params) -> None:
        """Takes over the leader's masters, so that roundings that differ cannot pile up."""
        if self.world > 1:
            for g in params.groups.values():
                dist.broadcast(g.master, 0)

    def close(self) -> None:
        """All members call it together; the leader may go on alone."""
        if self.world > 1:
            self.agree(0.0)
            dist.destroy_process_group()
            self.world = 1


class Requests:
    """Whether this process was asked to stop: by a signal, or because the one that started it has ended."""

    def __init__(self):
        self.parent, self.signalled = os.getppid(), False
        for name in (signal.SIGTERM, signal.SIGINT):
            signal.signal(name, self._note)

    def _note(self, *_) -> None:
        self.signalled = True

    def made(self) -> bool:
        return self.signalled or os.getppid() != self.parent

    @staticmethod
    def over() -> None:
        """From now on a signal ends the process at once."""
        for name in (signal.SIGTERM, signal.SIGINT):
            signal.signal(name, signal.SIG_DFL)


def end_soon() -> None:
    """Ends this process after the time of grace, even if it hangs in a GPU or in a peer that is gone."""
    timer = threading.Timer(GRACE - 5, os._exit, [1])
    timer.daemon = True
    timer.start()


def leave(status: int) -> None:
    """Ends this process and its children without waiting for any of them."""
    sys.stdout.flush()
    sys.stderr.flush()
    for child in multiprocessing.active_children():
        child.kill()
    os._exit(status)


def launched() -> bool:
    return "RANK" in os.environ


def launch(module: str, count: int) -> int:
    """Runs this command once for each of `count` GPUs. When one process fails, or this one is asked to stop, the others
    are, and are ended after the time of grace. Returns an exit status."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    shared = {**os.environ, **NO_MULTICAST, "WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    shared.setdefault("GLOO_SOCKET_IFNAME", "lo")
    requests = Requests()
    members = [subprocess.Popen([sys.executable, "-m", module, *sys.argv[1:]],
                                env={**shared, "RANK": str(i), "LOCAL_RANK": str(i)}) for i in range(count)]
    while any(m.poll() is None for m in members):
        if requests.made() or any(m.returncode for m in members):
            stop(members)
        time.sleep(0.2)
    return max(abs(m.returncode) for m in members)


def stop(members: list[subprocess.Popen]) -> None:
    """Asks them to stop, and ends those that do not."""
    for m in members:
        if m.poll() is None:
            m.terminate()
    until = time.time() + GRACE
    while any(m.poll() is None for m in members) and time.time() < until:
        time.sleep(0.2)
    for m in members:
        if m.poll() is None:
            m.kill()
            m.wait()
