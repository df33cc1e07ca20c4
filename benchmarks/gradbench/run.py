"""Adze as a tool of GradBench: an adapter that speaks its protocol on standard input and output.

    python benchmarks/gradbench/run.py [--threads N | --multithreaded]

GradBench (https://github.com/gradbench/gradbench) compares tools for automatic differentiation. An *evaluation* writes
one message a line, in JSON, and the tool answers each with a line:

    {"id": 0, "kind": "start"}                                          {"id": 0, "tool": "adze", ...}
    {"id": 1, "kind": "define", "module": "hello"}                      {"id": 1, "success": true}
    {"id": 2, "kind": "evaluate", "module": "hello", "function":        {"id": 2, "success": true, "output": 9.0,
     "square", "input": 3.0}                                             "timings": [{"name": "evaluate", ...}]}
    {"id": 3, "kind": "analysis", "of": 2, "valid": true}               {"id": 3}

The programs of all twelve evaluations are those of benchmarks/programs, which know how an input is written. A function
is compiled for the sizes of its input before it runs, as the timing ``prepare``. Then it runs as often as the input
asks, and each run is a timing ``evaluate``: the call of the compiled program with NumPy's arrays. Its results are
written to the memory of those of the run before, as in GradBench's C++. JSON is no part of either.

A message that asks for what is not there, or that is malformed, is answered by ``"success": false`` and an ``"error"``;
the traceback goes to standard error, and the session goes on.
"""

import argparse
import functools
import importlib
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # where programs/ is

import adze as az
from adze.backends.llvm import control

EVALUATIONS = ("ba", "det", "gmm", "hello", "ht", "kmeans", "llsq", "lse", "lstm", "ode", "particle", "saddle")

Message = Mapping[str, Any]
Answer = dict[str, Any]


class Tool:
    """What answers messages, with programs compiled for so many threads."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.compiled = functools.cache(self._compiled)

    def answer(self, line: str) -> Answer:
        """The answer to a message; whatever is wrong with it is said there."""
        message: Any = None
        try:
            message = json.loads(line)
            if not isinstance(message, dict):
                raise TypeError("the message is not an object: {...}")
            return {"id": message["id"], **self._answer(message)}
        except Exception as error:
            traceback.print_exc()
            number = message.get("id") if isinstance(message, dict) else None
            return {"id": number, "success": False, "error": told(error)}

    def _answer(self, message: Message) -> Answer:
        match message["kind"]:
            case "start":
                return {"tool": "adze", "config": {"threads": self.threads, "version": az.__version__}}
            case "define":
                program(message["module"])
                return {"success": True}
            case "evaluate":
                return self._evaluate(message["module"], message["function"], message["input"])
        return {}

    def _evaluate(self, module: str, function: str, given: Any) -> Answer:
        name = name_of(module, function, given)
        call = self.compiled(module, name)
        arguments = program(module).arguments(given)
        asked = given if isinstance(given, dict) else {}
        prepared, _ = timed(lambda: call.bind(*arguments))
        runs, result = repeated(
            lambda last: call(*arguments, out=memory(last)), asked.get("min_runs", 1), asked.get("min_seconds", 0.0)
        )
        timings = [("prepare", prepared), *(("evaluate", run) for run in runs)]
        return {
            "success": True,
            "output": plain(program(module).answer(name, result)),
            "timings": [{"name": name, "nanoseconds": nanoseconds} for name, nanoseconds in timings],
        }

    def _compiled(self, module: str, name: str) -> az.Compiled:
        return az.compile(program(module).FUNCTIONS[name], threads=self.threads, flush_subnormals=control.X86)


def program(module: str) -> Any:
    """The module of benchmarks/programs for an evaluation."""
    if module not in EVALUATIONS:
        raise LookupError(f"there is no module {module!r}; there are {', '.join(EVALUATIONS)}")
    return importlib.import_module(f"programs.{module}")


def name_of(module: str, function: str, given: Any) -> str:
    """The name that a function of an evaluation has in benchmarks/programs.

    Hand tracking has two models under one name, of which an input with places on the surface takes the second. The
    Jacobian of bundle adjustment is wanted as a sparse matrix.
    """
    known = [name for name in program(module).FUNCTIONS if " " not in name]
    if function not in known:
        raise LookupError(f"there is no function {function!r} in {module}; there are {', '.join(known)}")
    if module == "ht" and given["us"]:
        return f"surface {function}"
    if (module, function) == ("ba", "jacobian"):
        return "compressed jacobian"
    return function


# Timings and results


def timed(call: Callable[[], Any]) -> tuple[int, Any]:
    """The nanoseconds of a call, and its result."""
    start = time.perf_counter_ns()
    result = call()
    return time.perf_counter_ns() - start, result


def repeated(call: Callable[[Any], Any], least: int, seconds: float) -> tuple[list[int], Any]:
    """The nanoseconds of each of at least so many calls, which take at least so long together, and the last result.

    A call is given the result of the one before, None at first.
    """
    runs: list[int] = []
    result, spent = None, 0
    while len(runs) < max(1, least) or spent < 1e9 * seconds:
        nanoseconds, result = timed(functools.partial(call, result))
        runs.append(nanoseconds)
        spent += nanoseconds
    return runs, result


def memory(result: Any) -> Any:
    """The arrays of a result, to which the next may be written."""
    if isinstance(result, tuple):
        return tuple(map(memory, result))
    return result if isinstance(result, np.ndarray) else None


def plain(value: Any) -> Any:
    """An answer with lists and Python's numbers in the place of NumPy's."""
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    return np.asarray(value).tolist()


def told(error: Exception) -> str:
    """What an answer says of an error."""
    match error:
        case json.JSONDecodeError():
            return f"the message is not JSON: {error}"
        case KeyError():
            return f"{error.args[0]!r} is missing"
    return f"{type(error).__name__}: {error}"


# The session


def session(lines: Iterable[str], tool: Tool) -> Iterator[str]:
    """The answers to messages, a line each."""
    for line in lines:
        answer = tool.answer(line)
        try:
            yield json.dumps(answer, allow_nan=False)
        except ValueError:
            error = "the output has numbers that are not finite, which JSON does not have"
            yield json.dumps({"id": answer["id"], "success": False, "error": error})


def main() -> None:
    parser = argparse.ArgumentParser(description="Adze as a tool of GradBench, on standard input and output.")
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--threads", type=int, default=1, help="of compiled programs; 1 if not said")
    chosen.add_argument("--multithreaded", action="store_true", help="as many as there are cores: GradBench's own flag")
    options = parser.parse_args()
    threads = len(os.sched_getaffinity(0)) if options.multithreaded else options.threads
    for line in session(sys.stdin, Tool(threads)):
        print(line, flush=True)


if __name__ == "__main__":
    main()
