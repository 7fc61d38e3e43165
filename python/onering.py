"""onering from Python: train language models by group-based reinforcement learning, look at what
they answer, measure and serve them. It starts the program onering and reads what that writes;
it needs nothing but the standard library.

    import onering

    run = onering.train(objective="pmpo", train={"rounds": 8})
    for record in run:                      # the lines of metrics.jsonl as they come
        if record["kind"] == "round":
            print(record["round"], record["reward"])
    print(run.rollouts(8)[0]["response"])   # what was sampled in round 8
    print(onering.evaluate(run.folder, "problems.jsonl")["suites"])

    with onering.serve(run.folder) as server:
        client = openai.OpenAI(base_url=server.base_url, api_key="none")

Settings are those of docs/settings.md: a section is a dict, train={"rounds": 8}; anything else is
a flag of the command, model="DIR" for --model DIR.
"""
from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from typing import Any

Record = dict[str, Any]


class Error(Exception):
    """What the program says when it fails: its last lines on standard error."""


def program() -> str:
    """The path of the program: $ONERING, beside this Python, or on the PATH."""
    beside = os.path.join(os.path.dirname(sys.executable), "onering" + (".exe" if os.name == "nt" else ""))
    found = os.environ.get("ONERING") or (beside if os.path.exists(beside) else shutil.which("onering"))
    if not found:
        raise Error("the program onering is neither beside this Python nor on the PATH: pip install onering, or set ONERING")
    return found


def _arguments(settings: Record) -> list[str]:
    """Flags for settings: --set for the keys of a dict, else --name value."""
    flags: list[str] = []
    for name, value in settings.items():
        if value is None:
            continue
        if isinstance(value, dict):
            for key, inner in value.items():
                if inner is None:
                    continue
                flags += ["--set", f"{name}.{key}={json.dumps(inner)}"]
            continue
        flag = "--" + name.replace("_", "-")
        for one in value if isinstance(value, (list, tuple)) else [value]:
            flags.append(f"{flag}={json.dumps(one) if isinstance(one, bool) else one}")
    return flags


def _run(command: list[str], text: str | None = None) -> str:
    """The standard output of the program."""
    done = subprocess.run([program(), *command], input=text, capture_output=True, text=True, encoding="utf-8")
    if done.returncode != 0:
        raise Error(done.stderr.strip() or f"onering {command[0]} ended with exit code {done.returncode}")
    return done.stdout


class _Process:
    """A program that goes on, with its talk in a file."""

    def __init__(self, command: list[str]) -> None:
        self._talk = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        self._process = subprocess.Popen([program(), *command], stdout=subprocess.PIPE, stderr=self._talk, text=True, encoding="utf-8")

    def said(self) -> str:
        """What it has said on standard error so far."""
        self._talk.seek(0)
        return self._talk.read()

    def stop(self) -> None:
        """Ask it to end as Ctrl-C does, and wait: a run finishes its step and writes a checkpoint."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        self._process.wait()


class Run(_Process):
    """A run of training, and the records of its metrics as an iterator. It goes on beside Python."""

    def __init__(self, command: list[str], folder: str) -> None:
        super().__init__(command)
        #: The run's folder, which every function here takes as a model.
        self.folder = folder

    def __iter__(self) -> Iterator[Record]:
        """Yield the lines of metrics.jsonl from the first on, until the run ends; raise Error if it fails."""
        path, rest, at = os.path.join(self.folder, "metrics.jsonl"), "", 0
        while True:
            ended = self._process.poll() is not None
            if os.path.exists(path):
                with open(path, encoding="utf-8") as f:
                    f.seek(at)
                    rest += f.read()
                    at = f.tell()
            *lines, rest = rest.split("\n")
            yield from (json.loads(line) for line in lines if line)
            if ended:
                self.wait()
                return
            time.sleep(0.1)

    def wait(self) -> Record:
        """Wait for the end and return the summary that the program prints."""
        if not hasattr(self, "_printed"):
            self._printed, _ = self._process.communicate()
        if self._process.returncode != 0:
            raise Error(self.said().strip())
        return json.loads(self._printed)

    def rollouts(self, n: int) -> list[Record]:
        """The responses that were sampled in round n, from 1: prompt, text, reward, advantage, log-probs."""
        with open(os.path.join(self.folder, "rollouts", f"round-{n:05d}.jsonl"), encoding="utf-8") as f:
            return [json.loads(line) for line in f]

    def report(self) -> str:
        """Write the run's page of plots and responses, and return its path."""
        _run(["report", self.folder, "--quiet"])
        return os.path.join(self.folder, "report.html")


def train(config: str | None = None, *, out: str | None = None, **settings: Any) -> Run:
    """Begin a run: onering train. config is a run file, out the run's folder."""
    out = out or tempfile.mkdtemp(prefix="run-", dir=os.getcwd())
    flags = ([f"--config={config}"] if config else []) + _arguments(settings)
    return Run(["train", "--json", f"--out={out}", *flags], out)


def evaluate(model: str, *suites: str, **settings: Any) -> Record:
    """Measure a model, or a run by its own suites: onering eval --json."""
    return json.loads(_run(["eval", "--json", f"--model={model}", *(f"--suite={s}" for s in suites), *_arguments(settings)]))


def generate(model: str, prompts: Iterable[str | Record], **settings: Any) -> list[Record]:
    """Answer prompts, which are texts or rows such as {"messages": [...]}: onering generate."""
    prompts = [prompts] if isinstance(prompts, (str, dict)) else prompts
    rows = ({"prompt": p} if isinstance(p, str) else p for p in prompts)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    return [json.loads(line) for line in _run(["generate", f"--model={model}", *_arguments(settings)], text).splitlines()]


class Server(_Process):
    """A server of OpenAI's API; as a context manager it ends with the block."""

    def __init__(self, command: list[str]) -> None:
        super().__init__(command)
        while not (address := re.search(r"url=(http://\S+)", self.said())):
            if self._process.poll() is not None:
                raise Error(self.said().strip())
            time.sleep(0.05)
        #: The address for clients, such as openai.OpenAI(base_url=...).
        self.base_url = address[1]

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def serve(model: str, *, addr: str = "127.0.0.1:0", **settings: Any) -> Server:
    """Begin to serve a model: onering serve."""
    return Server(["serve", f"--model={model}", f"--addr={addr}", *_arguments(settings)])
