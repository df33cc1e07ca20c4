"""Consoles in documents: commands, and what they print.

A block behind ``<!-- file: NAME -->`` is a file beside the commands, and ``...`` in what is printed stands for what
varies. With UPDATE=1 in the environment the document gets what is printed now.
"""

import doctest
import os
import re
from collections.abc import Callable
from pathlib import Path

_FILE = re.compile(r"^<!-- file: (\S+) -->\n```\w+\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_CONSOLE = re.compile(r"^(<!-- [\w ]+ -->\n)?```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
_UPDATE = bool(os.environ.get("UPDATE"))


def write_files(page: Path, folder: Path) -> None:
    """Write the files that a document shows."""
    for name, text in _FILE.findall(page.read_text(encoding="utf-8")):
        (folder / name).write_text(text, encoding="utf-8")


def check_consoles(page: Path, part: str, is_there: Callable[[str], bool], run: Callable[[str], str]) -> None:
    """Run the commands in a part of a document, and compare what they print; or write it there.

    Blocks behind a mark are left out unless what it names is there.
    """
    wrong: list[str] = []

    def shown(match: re.Match[str]) -> str:
        if match[1] and not is_there(match[1]):
            return match[0]
        steps = []
        for step in re.split(r"^\$ ", match[2], flags=re.MULTILINE)[1:]:
            command, _, want = step.partition("\n")
            got = run(command)
            if not doctest.OutputChecker().check_output(want, got, _FLAGS):
                wrong.append(f"$ {command}\nexpected:\n{want}got:\n{got}")
                want = got
            steps.append(f"$ {command}\n{want}")
        return f"{match[1] or ''}```console\n{''.join(steps)}```"

    right = _CONSOLE.sub(shown, part)
    if _UPDATE:
        page.write_text(page.read_text(encoding="utf-8").replace(part, right), encoding="utf-8")
    else:
        assert not wrong, "\n".join(wrong)
