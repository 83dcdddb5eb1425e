import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import binomtest

from in2r.errors import InputError
from in2r.files import write_json
from in2r.report import (
    Decisions,
    Share,
    changed,
    check_decisions,
    joined,
    noise_rate,
    precision,
    read_decisions,
    wilson,
)
from in2r.report.decisions import Decision


def plain(**changes: Any) -> dict[str, Any]:
    decisions = [{"row": 3, "decision": "wrong"}, {"row": 0, "decision": "right"}]
    return {"format": 1, "audit": "abc", "sample": [3, 1], "decisions": decisions, **changes}


def read(folder: Path, value: dict[str, Any]) -> Decisions:
    write_json(folder / "decisions.json", value)
    found = read_decisions(folder / "decisions.json")
    check_decisions(found, folder / "decisions.json", audit="abc", pairs=4)
    return found


def test_what_was_written_is_read(tmp_path: Path) -> None:
    assert read(tmp_path, plain()) == Decisions(1, "abc", (3, 1), (Decision(3, "wrong"), Decision(0, "right")))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"format": 2}, "format: expected 1, got 2; export it again from this report"),
        (
            {"audit": "xyz"},
            "decisions of another audit (xyz; this one is abc); give the audit whose report.html they were made on",
        ),
        ({"sample": None}, "sample: expected a list, got None"),
        (
            {"decisions": [{"row": 1, "decision": "maybe"}]},
            "decisions[0].decision: expected one of right, wrong, unsure, got 'maybe'",
        ),
        ({"decisions": [{"row": 4, "decision": "right"}]}, "decisions[0].row: expected a row from 0 to 3, got 4"),
        ({"sample": [0, -1]}, "sample[1]: expected a row from 0 to 3, got -1"),
        (
            {"decisions": [{"row": 1, "decision": "right"}, {"row": 1, "decision": "wrong"}]},
            "decisions[1].row: row 1 stands already in decisions[0].row",
        ),
    ],
)
def test_a_wrong_file_is_refused_with_its_place(tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError, match=rf"^{re.escape(f'{tmp_path}/decisions.json: {expected}')}$"):
        read(tmp_path, plain(**changes))


def test_decisions_of_several_files_are_joined_and_the_last_word_counts() -> None:
    mine = Decisions(1, "abc", (3,), (Decision(3, "wrong"), Decision(0, "unsure")))
    hers = Decisions(1, "abc", (3, 1), (Decision(0, "right"), Decision(2, "wrong")))
    assert joined([mine, hers]) == Decisions(
        1, "abc", (3, 1), (Decision(3, "wrong"), Decision(0, "right"), Decision(2, "wrong"))
    )


def test_what_was_taken_back_on_a_page_counts_no_more() -> None:
    before = Decisions(1, "abc", (3,), (Decision(3, "wrong"), Decision(0, "unsure")))
    after = Decisions(1, "abc", (3,), (Decision(0, "right"),), given=(3, 0))
    assert joined([before, after]).by_row() == {0: "right"}
    assert changed(before, after) == 2
    assert joined([before, replace(after, given=(0,))]).by_row() == {3: "wrong", 0: "right"}


def test_a_sample_that_was_not_drawn_is_refused(tmp_path: Path) -> None:
    write_json(tmp_path / "decisions.json", plain())

    def checked(*sample: int) -> Decisions:
        found = read_decisions(tmp_path / "decisions.json")
        check_decisions(found, tmp_path / "decisions.json", audit="abc", pairs=4, sample=sample)
        return found

    assert checked(3, 1).sample == checked(3, 1, 0).sample == (3, 1)  # a page may show the first rows alone
    place = f"{tmp_path}/decisions.json: sample"
    for sample, said in (
        ((3, 0), f"{place}[1]: row 1, but this audit drew row 0; the sample is chance's alone, so export the file "
         "again from this audit's report.html"),
        ((3,), f"{place}: 2 rows, but this audit drew 1; export the file again"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=f"^{re.escape(said)}$"):
            checked(*sample)


def made(sample: tuple[int, ...], **words: str) -> Decisions:
    """Decisions by row: r0="wrong"."""
    return Decisions(1, "abc", sample, tuple(Decision(int(name[1:]), word) for name, word in words.items()))  # type: ignore[arg-type]


def test_precision_is_counted_by_verdict() -> None:
    verdicts = ["mismatch", "mismatch", "suspect", "ok", "ok", "mismatch"]
    found = precision(made((), r0="wrong", r1="unsure", r2="right", r3="wrong"), verdicts)
    assert found == {
        "flagged": Share(1, 1, 1), "mismatch": Share(1, 0, 1), "suspect": Share(0, 1, 0), "ok": Share(1, 0, 0),
    }  # fmt: skip
    assert found["flagged"].share == 0.5
    assert precision(made(()), verdicts) == {"flagged": Share(0, 0, 0)}
    assert (Share(0, 0, 2).share, Share(0, 0, 2).interval) == (None, (0.0, 1.0))


def test_the_noise_rate_counts_the_sample_up_to_the_first_undecided_pair() -> None:
    """Row 9 is among the worst as well and was decided there; counted, it would make the rate too high."""
    decisions = made((4, 7, 2, 5, 9), r4="right", r7="wrong", r2="unsure", r9="wrong", r0="wrong")
    assert noise_rate(decisions) == Share(1, 1, 1)
    assert noise_rate(made((4, 9), r9="wrong")) == Share(0, 0, 0)


@pytest.mark.parametrize(("count", "total"), [(0, 1), (0, 30), (8, 10), (30, 30), (49, 100)])
def test_the_interval_is_that_of_scipy(count: int, total: int) -> None:
    expected = binomtest(count, total).proportion_ci(method="wilson")
    assert wilson(count, total) == pytest.approx((expected.low, expected.high), abs=1e-6)
