"""What `in2r audit` prints: key figures, the worst pairs, decisions by hand."""

from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from in2r.audit.result import Audit
    from in2r.report import Decisions


def key_figures(audit: "Audit") -> Table:
    """Return the key figures."""
    from in2r.audit.settings import AuditConfig

    figures = audit.summary()
    table = Table(show_header=False, box=None, title=Text(f"Audit of {audit.pairs.name}"), title_justify="left")
    table.add_row(
        "rows", f"{figures['rows']:,}, of which {figures['judged']:,} were judged ({figures['images']:,} images)"
    )
    if audit.pairs.words is not None:
        table.add_row("captions", "compared by their words (TF-IDF); vectors of a text encoder would tell more")
    if audit.against is not None:
        table.add_row("judged by", Text(f"the audit of {audit.against.table}"))
    if figures["noise_rate"] is None:
        table.add_row("noise rate", "not known")
    else:
        low, high = figures["noise_rate_interval"]
        rate = f"{100 * figures['noise_rate']:.1f} % of the judged pairs ({100 * low:.1f} to {100 * high:.1f})"
        table.add_row("noise rate", rate)
    measured = figures["measurement_only"]
    if measured is not None:
        auroc = f"; AUROC {measured['auroc']:.3f}" if "auroc" in measured else ""
        table.add_row("injected", f"{100 * measured['noise_rate']:.1f} % of the judged pairs{auroc}")
    if audit.sampled is not None and audit.sampled.share is not None:
        low, high = audit.sampled.interval
        by_hand = (
            f"{100 * audit.sampled.share:.0f} % of the random sample are wrong ({100 * low:.0f} to {100 * high:.0f})"
        )
        table.add_row("by hand", by_hand)
    if audit.verdicts.told and audit.config.cut != AuditConfig().cut:
        table.add_row("cut", f"{audit.config.cut:.4g}; a lower score is a suspect or a mismatch")
    for name, count in figures["verdicts"].items():
        if count:
            table.add_row(name, f"{count:,}")
    where = "keep.txt" if audit.pairs.table is None else f"cleaned{audit.pairs.table.ending}"
    table.add_row("kept", f"{figures['kept']:,} rows: {where}")
    return table


def worst_pairs(audit: "Audit", top: int) -> Table:
    """Return the worst pairs."""
    table = Table(title="The worst pairs", title_justify="left")
    table.add_column("row", justify="right")
    table.add_column("score", justify="right")
    table.add_column("image", overflow="fold", max_width=20)
    table.add_column("caption", overflow="fold")
    order = audit.judgement.log_odds.argsort(stable=True)[:top].tolist()
    for pair in order:
        row = int(audit.pairs.judged[pair])
        score = f"{float(audit.judgement.score[pair]):.3f}"
        table.add_row(str(row), score, Text(audit.pairs.images[row]), Text(audit.pairs.captions[row]))
    return table


MOST_SOURCES = 10
"""sources in the terminal; report.html has more"""


def worst_sources(audit: "Audit", column: str) -> Table:
    """Return the sources with the most suspects and mismatches."""
    from in2r.audit.page import sources

    found = sources(audit, column)
    more = "" if len(found) <= MOST_SOURCES else f", {MOST_SOURCES} of {len(found):,}"
    table = Table(title=Text(f"By {column}{more}"), title_justify="left")
    table.add_column(Text(column), overflow="fold")
    for name in ("pairs", "suspects and mismatches", "share"):
        table.add_column(name, justify="right")
    for source in found[:MOST_SOURCES]:
        share = f"{100 * source.suspects / source.pairs:.1f} %"
        table.add_row(Text(source.name), f"{source.pairs:,}", f"{source.suspects:,}", share)
    return table


def say_decisions(console: Console, audit: "Audit", decisions: "Decisions") -> None:
    """Print what was decided by hand."""
    from in2r.report import noise_rate, precision

    found = {f"verdict {name}": each for name, each in precision(decisions, audit.verdicts.names.tolist()).items()}
    for name, share in {**found, "random sample": noise_rate(decisions)}.items():
        if share.share is not None:
            low, high = (f"{100 * end:.0f}" for end in share.interval)
            counted = f"{share.wrong} of {share.wrong + share.right} are wrong"
            line = f"by hand, {name}: {counted} ({100 * share.share:.0f} %; 95 %: {low} to {high})"
            console.print(line, highlight=False, soft_wrap=True)


def say_cut(console: Console, audit: "Audit", asked: float | None) -> None:
    """Print how the decisions have moved the cut, or why they have not; `asked`: the cut of the command line."""
    moved = audit.by_hand
    if moved is not None:
        more = moved["more_suspects"]
        change = f"{more:,} rows more are below it" if more >= 0 else f"{-more:,} rows fewer are below it"
        line = f"by hand, cut: {moved['cut']:.4g} in place of {moved['cut_before']:.4g}; {change}"
    elif asked is not None:
        line = f"by hand, cut: {audit.config.cut:.4g} as --cut says; without it, the decisions would move the cut"
    else:
        line = (
            "by hand, cut: it stays; it moves when right and wrong pairs with scores are decided, the right ones with "
            "higher scores"
        )
    console.print(line, highlight=False, soft_wrap=True)
