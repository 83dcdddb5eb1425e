"""Processes that train together, as a launcher starts them."""

import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch

import tiny_engine
from in2r.errors import InputError
from in2r.processes import Processes
from in2r.runs.settings import RunConfig
from in2r.training import launch, networks
from in2r.training.launch import joined
from in2r.training.train import Silent, resume_run, start_run


def free_port() -> int:
    """Return a port on which nobody listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def launched(children: Any, count: int, target: Callable[..., None], *args: Any) -> list[int]:
    """Run a function in so many processes, which may join; return their exit codes."""
    port = free_port()
    started = [children.Process(target=_run, args=(number, count, port, target, args)) for number in range(count)]
    for process in started:
        process.start()
    for process in started:
        process.join(120)
    return [process.exitcode for process in started]


def _run(number: int, count: int, port: int, target: Callable[..., None], args: Sequence[Any]) -> None:
    names = {"RANK": number, "LOCAL_RANK": number, "WORLD_SIZE": count, "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in names.items()} | {"MASTER_ADDR": "127.0.0.1"})
    torch.set_num_threads(1)
    target(*args)


def by_sgd(weights: list[torch.nn.Parameter], rate: float, _: Any) -> torch.optim.Optimizer:
    """Make an optimiser by which a wrong factor of the gradient shows."""
    return torch.optim.SGD(weights, lr=rate)


def by_adam(weights: list[torch.nn.Parameter], rate: float, _: Any) -> torch.optim.Optimizer:
    """Make Adam whose ε is above the rounding of gradients: a bias before a BatchNorm has nothing else."""
    return torch.optim.Adam(weights, lr=rate, eps=1e-2)


def train_all(folder: Path, configs: dict[str, RunConfig], optimizer: Callable[..., torch.optim.Optimizer]) -> None:
    """Train a run for each of the settings, in folders of their names."""
    networks._optimizer = optimizer
    for name, config in configs.items():
        start_run(folder / name, config)
        os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + 1)


@contextmanager
def noting(folder: Path) -> Iterator[None]:
    """Write the mistake by which this process ends beside the run, and exit as the command line does."""
    try:
        yield
    except InputError as error:
        folder.with_name(f"said by {os.environ['RANK']}").write_text(str(error), encoding="utf-8")
        sys.exit(2)


def said(folder: Path) -> dict[int, str]:
    """Return process → the mistake by which it ended."""
    files = sorted(folder.parent.glob("said by *"))
    return {int(file.name.removeprefix("said by ")): file.read_text(encoding="utf-8") for file in files}


def train(folder: Path, config: RunConfig) -> None:
    """Train a run."""
    with noting(folder):
        start_run(folder, config)


def train_each(folder: Path, configs: Sequence[RunConfig]) -> None:
    """Train a run of which each process has settings of its own."""
    train(folder, configs[int(os.environ["RANK"])])


def send_every_layout() -> None:
    """Give the others the first process's numbers, in memory in another order than they are counted."""
    with joined() as processes:
        tensor = torch.arange(6.0).view(2, 3).t() * (1 if processes.first else 0)
        assert not tensor.is_contiguous()
        processes.send_tensor(tensor)
        assert tensor.tolist() == [[0, 3], [1, 4], [2, 5]]


def train_and_die(folder: Path, config: RunConfig, who: int, point: str, count: int) -> None:
    """Train a run of which one process is killed."""
    if os.environ["RANK"] == str(who):
        tiny_engine.die_at(point, count)
    with noting(folder):
        start_run(folder, config)


def resume(folder: Path) -> None:
    """Resume a run."""
    with noting(folder):
        resume_run(folder)


class Signalling(Silent):
    """Sends this process a signal after so many iterations, twice, as a terminal and a launcher do."""

    def __init__(self, iterations: int, number: signal.Signals) -> None:
        self.left, self.number = iterations, number

    def step(self) -> None:
        """Count."""
        self.left -= 1
        if self.left == 0:
            for _ in range(2):
                os.kill(os.getpid(), self.number)


def train_and_signal(folder: Path, config: RunConfig, number: signal.Signals) -> None:
    """Train a run whose first process gets a signal after its third step."""
    with noting(folder):
        start_run(folder, config, Signalling(3, number))


def fail(folder: Path, faults: dict[int, str]) -> None:
    """Join, and let some of the processes find a mistake while all prepare."""

    def prepare(processes: Processes) -> None:
        if processes.number in faults:
            raise InputError(faults[processes.number])

    with noting(folder), joined() as processes:
        processes.together(lambda: prepare(processes))


def fail_later(folder: Path, faults: dict[int, str]) -> None:
    """Join, and let some of the processes find a mistake while the others go on."""
    launch.LAST_WORDS = timedelta(seconds=1)
    with noting(folder), joined() as processes:
        if processes.number in faults:
            raise InputError(faults[processes.number])
        processes.largest(1)
