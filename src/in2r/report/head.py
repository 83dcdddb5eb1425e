"""The head of the page in HTML: key figures, verdicts, histogram, sources, what the components say."""

from collections.abc import Mapping, Sequence

from in2r.report.cards import NAME, SHORT
from in2r.report.page import VERDICTS, NoiseRate, ReportPage, SourceRow
from in2r.report.text import escaped, isolated

SOURCES, METHOD = 25, 1500
"""how many sources the table lists; characters of the text on how the scores were made"""


def head(page: ReportPage) -> str:
    """Return all that stands above the pairs."""
    return "".join([_figures(page), _verdicts(page.verdicts), _histogram(page), _meaning(page), _sources(page)])


def _figures(page: ReportPage) -> str:
    share = page.suspects / page.pairs if page.pairs else 0.0
    figures = [
        (f"{page.pairs:,}", "pairs", f"{page.images:,} images"),
        (f"{page.suspects:,}", "suspects and mismatches", f"{100 * share:.1f} % of the pairs"),
    ]
    if page.noise_by_hand is not None:
        figures.append(_rate(page.noise_by_hand, "noise rate by hand", 0))
    if page.noise is None:
        figures.append(("–", "estimated noise rate", "not known"))
    else:
        figures.append(_rate(page.noise, "estimated noise rate", 1))
    figures.append((f"{page.cut:.2f}", "suggested cut", "a lower score is a suspect or a mismatch"))
    items = "".join(
        f"<div><dt>{name}</dt><dd><b>{value}</b><small>{more}</small></dd></div>" for value, name, more in figures
    )
    return f'<dl class="figures">{items}</dl>\n'


def _rate(rate: NoiseRate, name: str, digits: int) -> tuple[str, str, str]:
    low, high = f"{100 * rate.low:.{digits}f}", f"{100 * rate.high:.{digits}f}"
    return f"{100 * rate.share:.{digits}f} %", name, f"probably {low} to {high}&nbsp;%"


def _verdicts(verdicts: Mapping[str, int]) -> str:
    items = "".join(
        f'<li><span class="chip{f" v-{name}" if name in VERDICTS else ""}">{escaped(name, NAME)}</span> {count:,}</li>'
        for name, count in verdicts.items()
        if count
    )
    return f'<ul class="verdicts" aria-label="pairs by verdict">{items}</ul>\n'


def _histogram(page: ReportPage) -> str:
    counts, cut = page.histogram, min(max(page.cut, 0.0), 1.0)
    bins, highest = len(counts), max([1, *counts])
    bars = "".join(_histogram_bar(place, count, bins, highest, cut) for place, count in enumerate(counts))
    below = f"{sum(counts):,} scored pairs; the suggested cut is at {page.cut:.2f}"
    return (
        '<figure class="histogram"><figcaption><h2>Scores</h2><p class="legend">'
        '<span class="key low">below the cut</span><span class="key high">above</span>'
        '<span class="key cut">suggested cut</span></p></figcaption>'
        f'<p class="most">{highest:,} pairs</p>'
        f'<svg viewBox="0 0 {bins} 100" preserveAspectRatio="none" role="img" aria-label="Histogram of {below}">{bars}'
        f'<line x1="{bins * cut:.3f}" x2="{bins * cut:.3f}" y1="0" y2="100"/></svg>'
        '<p class="axis"><span>0 <em>bad</em></span><span>0.25</span><span>0.5</span><span>0.75</span>'
        "<span><em>good</em> 1</span></p></figure>\n"
    )


def _histogram_bar(place: int, count: int, bins: int, highest: int, cut: float) -> str:
    """Return a bar; one that counts anything is high enough to be seen."""
    height = max(100 * count / highest, 0.8) if count else 0.0
    side = "low" if (place + 0.5) / bins < cut else "high"
    title = f"{place / bins:.3g} to {(place + 1) / bins:.3g}: {count:,} pairs"
    return (
        f'<rect class="{side}" x="{place + 0.06:.2f}" y="{100 - height:.2f}" width="0.88" height="{height:.2f}">'
        f"<title>{title}</title></rect>"
    )


def _meaning(page: ReportPage) -> str:
    rows = "".join(
        f"<div><dt>{escaped(name, NAME)}</dt><dd>{escaped(meaning, 2 * SHORT)}</dd></div>"
        for name, meaning in page.components.items()
    )
    return (
        f'<details class="meaning" open><summary>What the score means</summary><p>{escaped(page.method, METHOD)}</p>'
        f"<dl>{rows}</dl></details>\n"
    )


def _sources(page: ReportPage) -> str:
    if not page.sources:
        return ""
    ordered = sorted(page.sources, key=lambda source: -_suspect_share(source))
    more = "" if len(ordered) <= SOURCES else f"<p>The first {SOURCES} of {len(ordered):,}.</p>"
    return (
        f'<details class="sources" open><summary>By {isolated(page.source_column, NAME)}</summary>'
        '<div class="wide"><table><thead><tr><th scope="col">value</th><th scope="col">pairs</th>'
        '<th scope="col">suspects and mismatches</th><th scope="col">share</th><th scope="col">mean score</th>'
        "</tr></thead>"
        f"<tbody>{_source_rows(ordered[:SOURCES])}</tbody></table></div>{more}</details>\n"
    )


def _suspect_share(source: SourceRow) -> float:
    return source.suspects / source.pairs if source.pairs else 0.0


def _source_rows(sources: Sequence[SourceRow]) -> str:
    return "".join(
        f'<tr><th scope="row">{isolated(source.name, NAME)}</th><td>{source.pairs:,}</td><td>{source.suspects:,}</td>'
        f"<td>{100 * _suspect_share(source):.1f} %</td>"
        f"<td>{'–' if source.mean_score is None else f'{source.mean_score:.2f}'}</td></tr>"
        for source in sources
    )
