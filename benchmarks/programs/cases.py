"""The cases of tests/data: one JSON object a line, with an input and what each function of the program must give."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parents[2] / "tests" / "data"


@dataclass(frozen=True)
class Case:
    """An input, and the right outputs by the names of the functions, both as the suite writes them."""

    program: str
    description: str
    given: dict[str, Any]
    wanted: dict[str, Any]


def read_cases(program: str, folder: Path = DATA) -> list[Case]:
    """The cases of a program, in the order of its file."""
    lines = (folder / f"{program}.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    return [Case(program, record["description"], record["input"], record["outputs"]) for record in records]
