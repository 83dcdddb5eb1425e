"""Pages of docs in which the text between `<!-- NAME -->` and `<!-- end -->` is replaced."""

from collections.abc import Mapping, Sequence
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]], labels: int = 1) -> str:
    """Return a table; the columns after the labels are aligned to the right."""
    rules = ["---"] * labels + ["---:"] * (len(header) - labels)
    return "\n".join(f"| {' | '.join(row)} |" for row in [header, rules, *rows])


def replace_parts(page: Path, parts: Mapping[str, str]) -> None:
    """Put each part between its marker in a page and the end marker after it."""
    text = page.read_text(encoding="utf-8")
    for name, part in parts.items():
        start, end = f"<!-- {name} -->\n", "<!-- end -->"
        before, rest = text.split(start)
        text = f"{before}{start}{part}\n{end}{rest.split(end, 1)[1]}"
    page.write_text(text, encoding="utf-8")
