"""``make fuzz``: random programs in the order of their seeds, with a log, until the time is over.

    make fuzz SECONDS=600                      more of them; what was done before is not done again
    make fuzz FUZZ="--mode cross"              all configurations of each; "opencl" is for a device
    make fuzz FUZZ="--again"                   those that failed when they were last run
    make fuzz FUZZ="--seed 17"                 one of them, shrunk and printed

The log ``.fuzz/log`` has a line for each case: mode, seed, digest of its text and configuration, outcome, check,
configuration. ``.fuzz/MODE-SEED.py`` is what failed, shrunk, with what to run. The exit status is 1 if anything fails.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

# Before the interpreter starts: see workers.py. ADZE_CACHE: entries would outlive the code that made them.
ENVIRONMENT = {"MALLOC_PERTURB_": "165", "ADZE_CACHE": "off"}

FOLDER = Path(__file__).resolve().parent.parent.parent / ".fuzz"
BAD = ("failed", "crash", "timeout")


def logged(folder: Path | None, mode: str) -> dict[int, tuple[str, str]]:
    """The digest and the last outcome of each seed in the log."""
    path = (folder or FOLDER) / "log"
    lines = path.read_text().splitlines() if folder and path.exists() else []
    entries = [line.split("\t") for line in lines]
    return {int(seed): (digest, kind) for of, seed, digest, kind, *_ in entries if of == mode}


def main() -> int:
    from fuzz.cases import drawn
    from fuzz.checks import MODES
    from fuzz.shrinking import shrunk
    from fuzz.workers import outcomes, prepare

    parser = argparse.ArgumentParser(prog="make fuzz", description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--mode", choices=MODES, default="base")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    parser.add_argument("--shrink", type=float, default=60.0, help="seconds for each failure")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--count", type=int, default=0, help="so many of them, however long they take")
    parser.add_argument("--folder", default=str(FOLDER), help="of the log; none: seeds from 0, and no log")
    options = parser.parse_args()
    folder = Path(options.folder) if options.folder else None
    if folder is not None:
        folder.mkdir(exist_ok=True)
    before, started = logged(folder, options.mode), time.monotonic()

    def seeds() -> Iterator[int]:
        if options.seed is not None:
            yield options.seed
            return
        again = [seed for seed, (_, kind) in before.items() if kind in BAD]
        remaining = iter(again) if options.again else (k for k in itertools.count() if k not in before)
        for number, seed in enumerate(remaining):
            if number >= options.count if options.count else time.monotonic() > started + options.seconds:
                return
            yield seed

    counts: Counter[str] = Counter()
    prepare()
    with (folder / "log" if folder else Path(os.devnull)).open("a") as log:
        for case, outcome in outcomes(map(drawn, seeds()), options.mode, options.jobs):
            counts[outcome.kind] += 1
            entry = (options.mode, case.seed, case.digest, outcome.kind, outcome.check, case.configuration)
            print(*entry, sep="\t", file=log, flush=True)
            if outcome.kind not in BAD:
                continue
            print(f"{options.mode} {case.seed}: {outcome.kind} {outcome.check}: {outcome.message[:200]}", flush=True)
            smaller, found = shrunk(case, outcome, options.mode, options.jobs, options.shrink)
            text = f'"""{found.kind} {found.check}\n\n{found.message}\n\n{smaller.configuration}\n"""\n\n'
            if folder is not None:
                (folder / f"{options.mode}-{case.seed}.py").write_text(f"{text}{smaller.text()}{found.calls}")
            print(f"{smaller.text()}{found.calls}# {smaller.configuration}\n", flush=True)
    print("in this run:", ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())) or "nothing")
    for mode in MODES:
        latest = Counter(kind for _, kind in logged(folder, mode).values())
        if latest:
            print(
                f"in all, {mode}: {sum(latest.values())}:",
                ", ".join(f"{n} {kind}" for kind, n in sorted(latest.items())),
            )
    return int(any(counts[kind] for kind in BAD))


if __name__ == "__main__":
    if any(os.environ.get(name) != value for name, value in ENVIRONMENT.items()):
        os.execve(sys.executable, [sys.executable, "-m", "fuzz", *sys.argv[1:]], {**os.environ, **ENVIRONMENT})
    sys.exit(main())
