"""Printed figures, the paper's own and those of other papers: shown beside ours, never ranked with them."""

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from in2r.errors import InputError

TITLES = {"flickr30k": "Flickr30K", "mscoco_1k_5fold": "MS-COCO 1K", "cc152k": "CC152K"}
"""What tables call the paper's data sets."""

_COLUMNS = {f"{ours}_r{k}": f"{paper}_r{k}" for ours, paper in (("i2t", "text"), ("t2i", "image")) for k in (1, 5, 10)}
"""Our name of a recall → the paper's, which names what is retrieved."""

_OWN = ("Table ", "ablation: ")
"""how the source of a figure of the paper itself begins"""


@dataclass(frozen=True)
class PaperFigure:
    """One printed row: of a table of the paper, or of another paper."""

    dataset: str
    noise: float | None
    """None = mismatches of the data themselves (CC152K)"""
    method: str
    venue: str
    source: str
    """where it is printed: a table of the paper, or what other paper it is of and why it is quoted"""
    recalls: Mapping[str, float] | None
    """i2t_r1 ... t2i_r10 in percent; None where only their sum is printed"""
    printed: float
    """rSum as printed"""

    @property
    def rsum(self) -> float:
        """The sum of the six printed recalls, else the printed rSum."""
        return self.printed if self.recalls is None else round(sum(self.recalls.values()), 1)

    @property
    def is_elsewhere(self) -> bool:
        """Whether it is printed elsewhere than in the paper."""
        return not self.source.startswith(_OWN)

    @property
    def disagrees(self) -> bool:
        """Whether the printed rSum is not the sum of the recalls that are printed with it."""
        return abs(self.rsum - self.printed) > 0.05


def paper_figure(dataset: str, noise: float | None, method: str) -> PaperFigure | None:
    """Return the printed figure, or None where there is none.

    Args:
        dataset: flickr30k, mscoco_1k_5fold or cc152k.
        noise: ratio of injected mismatches; None = none injected.
        method: name in the paper's table (IN2R, NCR, ...), of an ablation's row (`refiner: gcn`), or of a method that
            another paper prints (UCPM).
    """
    return _figures().get((dataset, noise, method))


def paper_methods(dataset: str) -> list[str]:
    """Return the methods that the paper has any figure of on a data set."""
    return list(dict.fromkeys(method for found, _, method in _figures() if found == dataset))


def require_paper_rows(dataset: str, methods: Iterable[str]) -> None:
    """Refuse a data set, or a method on it, that the paper has no figure of.

    Raises:
        InputError: names those that it has.
    """
    if dataset not in TITLES:
        raise InputError(f"the paper has no data set {dataset}; it has {', '.join(TITLES)}")
    known = paper_methods(dataset)
    for method in methods:
        if method not in known:
            raise InputError(f"the paper has no figure of {method} on {dataset}; it has {', '.join(known)}")


@cache
def _figures() -> dict[tuple[str, float | None, str], PaperFigure]:
    text = files("in2r.bench").joinpath("paper.csv").read_text(encoding="utf-8")
    found = {}
    for line in csv.DictReader(text.splitlines()):
        noise = None if line["noise"] == "real" else float(line["noise"])
        recalls = {ours: float(line[paper]) for ours, paper in _COLUMNS.items()} if line["text_r1"] else None
        found[line["dataset"], noise, line["method"]] = PaperFigure(
            line["dataset"], noise, line["method"], line["venue"], line["source"], recalls, float(line["rsum_printed"])
        )
    return found
