"""A grid's tables in files: Markdown and LaTeX to read, CSV and JSON with every figure of every seed."""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from in2r.bench.compare import RSUM, SINGLE, Block, Line, Run
from in2r.bench.notes import notes
from in2r.bench.sheets import Sheet, Text, heading_lines, sheets
from in2r.bench.tables import Table
from in2r.files import csv_lines

_LATEX = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}"},
    **{">": r"\textgreater{}", "±": r"$\pm$", "†": r"\dag{}", "‡": r"\ddag{}", "²": r"\textsuperscript{2}"},
    **{"§": r"\S{}", "[": "{}[", "*": "{}*"},  # right after \\ or a rule, LaTeX reads these two as an option
    **{"λ": r"$\lambda$", "γ": r"$\gamma$", "τ": r"$\tau$", "∞": r"$\infty$"},
}


def render(tables: Sequence[Table], form: str, command: str) -> str:
    """Return tables as a file's text.

    Args:
        tables: what to show.
        form: md, latex, json or csv.
        command: the command that makes them, for the notes.
    """
    if form == "csv":
        return to_csv(tables)
    return {"md": to_markdown, "latex": to_latex, "json": to_json}[form](tables, command)


def to_markdown(tables: Sequence[Table], command: str) -> str:
    """Return tables with a heading per group and per block, and notes under each."""
    parts = []
    for table in tables:
        parts.append(f"### {_markdown(table.title)}")
        for block in table.shown:
            parts.append(f"**{_markdown(block.heading)}**")
            parts += [_markdown_sheet(sheet) for sheet in sheets(table, block)]
        parts.append("\n".join(f"- {note}" for note in notes(table, command)))
    return "\n\n".join(parts) + "\n"


def _markdown_sheet(sheet: Sheet) -> str:
    rules = ["---"] * sheet.labels + ["---:"] * (len(sheet.header) - sheet.labels)
    rows = [[_mark(cell) for cell in row] for row in sheet.rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in [list(map(_markdown, sheet.header)), rules, *rows])


def _mark(cell: Text) -> str:
    text = _markdown(cell.text)
    return f"**{text}**" if cell.best else f"*{text}*" if cell.unrankable else text


def _markdown(text: str) -> str:
    text = " ".join(text.splitlines())  # a row is a line
    for sign in ("\\", "|", "*", "_", "<"):
        text = text.replace(sign, f"\\{sign}")
    return text


def to_latex(tables: Sequence[Table], command: str) -> str:
    """Return tables for `booktabs`, one tabular per sheet."""
    parts = []
    for table in tables:
        parts.append(f"% {_latex(table.group)}: needs \\usepackage{{booktabs}}\n\\subsection*{{{_latex(table.title)}}}")
        for block in table.shown:
            parts.append(f"\\paragraph{{{_latex(block.heading)}}}")
            parts += [_latex_sheet(sheet) for sheet in sheets(table, block)]
        items = "\n".join(f"\\item {_latex(note.replace('`', ''))}" for note in notes(table, command))
        parts.append(f"{{\\footnotesize\\begin{{itemize}}\n{items}\n\\end{{itemize}}}}")
    return "\n\n".join(parts) + "\n"


def _latex_sheet(sheet: Sheet) -> str:
    columns = "l" * sheet.labels + "r" * (len(sheet.header) - sheet.labels)
    header = [_latex_heading(text, side) for text, side in zip(sheet.header, columns, strict=True)]
    rows = [" & ".join(map(_latex_cell, row)) + r" \\" for row in sheet.rows]
    lines = [r"\toprule", " & ".join(header) + r" \\", r"\midrule", *rows, r"\bottomrule"]
    return "\n".join([rf"\begin{{tabular}}{{{columns}}}", *lines, r"\end{tabular}", ""])


def _latex_heading(text: str, side: str) -> str:
    lines = heading_lines(text)
    stack = r" \\ ".join(map(_latex, lines))
    return stack if len(lines) == 1 else rf"\shortstack[{side}]{{{stack}}}"


def _latex_cell(cell: Text) -> str:
    text = _latex(cell.text)
    return rf"\textbf{{{text}}}" if cell.best else rf"\textit{{{text}}}" if cell.unrankable else text


def _latex(text: str) -> str:
    escaped = "".join(_LATEX.get(sign, sign) for sign in " ".join(text.splitlines()))
    return re.sub(r"(?<![\w-])-(?=\d)", "$-$", escaped)  # a minus, not a hyphen


def to_json(tables: Sequence[Table], command: str) -> str:
    """Return each table with all its figures, protocols and notes."""
    found = []
    for table in tables:
        values = asdict(table)
        for block, entry in zip(table.blocks, values["blocks"], strict=True):
            for line, into in zip(block.lines, entry["lines"], strict=True):
                if line.paper is not None:
                    into["paper"]["rsum"] = line.paper.rsum
        found.append({**values, "notes": notes(table, command)})
    return json.dumps(found, indent=2, ensure_ascii=False) + "\n"


def to_csv(tables: Sequence[Table]) -> str:
    """Return a line per row and seed, also of those that are not finished."""
    rows = []
    for table in tables:
        for number, block in enumerate(table.blocks, start=1):
            for line in block.lines:
                start = _csv_row(table, number, line)
                rows += [{**start, **_csv_cell(block, line, seed)} for seed in line.cells]
    columns = dict.fromkeys(name for row in sorted(rows, key=lambda row: -row["finished"]) for name in row)
    axes = dict.fromkeys(f"axis {axis}" for table in tables for axis in table.axes)
    header = list(dict.fromkeys(["group", *axes, *columns]))
    return "".join(csv_lines(header, ([row.get(name) for name in header] for row in rows)))


def _csv_row(table: Table, number: int, line: Line) -> dict[str, Any]:
    """Return what a row of a table has in all its lines of the file; truth values as 0 and 1."""
    paper = line.paper
    return {
        "group": table.group,
        **{f"axis {axis}": label for axis, label in zip(table.axes, line.labels, strict=True)},
        "block": number,
        "uses_truth": int(line.uses_truth),
        "is_forced": int(line.is_forced),
        "ranked": int(line.is_ranked),
        "baseline": table.baseline,
        "paper_rsum": None if paper is None else paper.rsum,
        "paper_rsum_printed": None if paper is None else paper.printed,
        "paper_source": None if paper is None else f"{paper.method}, {paper.dataset}, {paper.source}",
    }


def _csv_cell(block: Block, line: Line, seed: int) -> dict[str, Any]:
    run = line.runs.get(seed)
    start = {"seed": seed, "cell": line.cells[seed], "finished": int(run is not None)}
    if run is None:
        return start
    return {**start, **run.figures, **_csv_against(block, line, run, seed), **_csv_protocol(run)}


def _csv_against(block: Block, line: Line, run: Run, seed: int) -> dict[str, Any]:
    baseline = block.baseline_of(line)
    other = None if baseline is None else baseline.runs.get(seed)
    names = ("minus_baseline_ensemble", "minus_baseline_single", "time_over_baseline")
    if other is None:
        return dict.fromkeys(names)
    ratio = run.figures["seconds"] / other.figures["seconds"] if other.figures["seconds"] else None
    return dict(zip(names, (*(run.figures[name] - other.figures[name] for name in (RSUM, SINGLE)), ratio), strict=True))


def _csv_protocol(run: Run) -> dict[str, Any]:
    protocol, trained = run.protocol, run.protocol.trained
    sha256, realised = protocol.seed_noise or (None, None)
    return {
        **protocol.shared(),
        "noise_realised": realised,
        "noise_sha256": sha256,
        "forced": "; ".join((*protocol.forced.training, *protocol.forced.now)),
        "tested": protocol.date,
        **{name: getattr(trained, name) for name in ("created", "device", "device_name", "threads")},
        **{f"version_{name}": version for name, version in trained.versions.items()},
    }
