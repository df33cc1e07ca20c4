"""Tables for people: rows with a name, and numbers below the heads of columns."""

from collections.abc import Sequence


def table(heads: Sequence[str], rows: Sequence[tuple[str, ...]]) -> str:
    """A line for each row: its name, then what stands in the columns, which are as wide as they must be.

    >>> print(table(["us", "runs"], [("array7", "12.0", "1"), ("in all", "12.0")]))
              us  runs
    array7  12.0     1
    in all  12.0
    """
    lines = [("", *heads), *rows]
    widths = [max([len(line[k]) for line in lines if k < len(line)]) for k in range(len(lines[0]))]

    def text(name: str, *numbers: str) -> str:
        parts = [f"{number:>{width}}" for number, width in zip(numbers, widths[1:], strict=False)]
        return "  ".join([f"{name:{widths[0]}}", *parts])

    return "\n".join([text(*line) for line in lines])


def us(seconds: float) -> str:
    """A time in microseconds."""
    return f"{1e6 * seconds:.1f}"
