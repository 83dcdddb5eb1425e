"""The report of an audit: one page to look at, decide on and print; and the decisions read back."""

from in2r.report.choose import ChosenRows, choose_rows, score_histogram
from in2r.report.decisions import (
    Decisions,
    Share,
    changed,
    check_decisions,
    joined,
    noise_rate,
    precision,
    read_decisions,
    wilson,
    write_decisions,
)
from in2r.report.page import DuplicateGroup, Neighbor, NoiseRate, ReportPage, ReportPair, SourceRow
from in2r.report.write import write_report

__all__ = [
    "ChosenRows",
    "Decisions",
    "DuplicateGroup",
    "Neighbor",
    "NoiseRate",
    "ReportPage",
    "ReportPair",
    "Share",
    "SourceRow",
    "changed",
    "check_decisions",
    "choose_rows",
    "joined",
    "noise_rate",
    "precision",
    "read_decisions",
    "score_histogram",
    "wilson",
    "write_decisions",
    "write_report",
]
