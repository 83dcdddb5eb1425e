"""Delimited files: whatever a field holds, every reader gets it back, in as many rows as were written."""

import csv
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from in2r.cli.main import main
from in2r.data.rows import read_text, split_records
from in2r.data.table_rows import read_table
from in2r.files import write_csv
from tiny_run import make_data, train

ODD = st.text(
    st.sampled_from('a,;\t"\r\n \u2028\ufeff\x85\x0bé🙂')
    | st.characters(exclude_categories=["Cs"], exclude_characters="\0"),  # zero bytes are another encoding's
    max_size=8,
)
DELIMITERS = st.sampled_from([",", "\t", ";"])


@given(st.integers(2, 4).flatmap(lambda n: st.lists(st.lists(ODD, min_size=n, max_size=n), min_size=1)), DELIMITERS)
def test_pythons_reader_and_ours_read_back_what_is_written(records: list[list[str]], delimiter: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "table.csv"
        write_csv(file, records[0], records[1:], delimiter=delimiter)
        with file.open(encoding="utf-8", newline="") as lines:
            assert list(csv.reader(lines, delimiter=delimiter, strict=True)) == records
        assert [fields for fields, *_ in split_records(read_text(file), file, delimiter)] == records


@given(st.lists(st.tuples(ODD, ODD), min_size=1), st.sampled_from([",", "\t"]))
def test_a_pair_table_keeps_its_captions(pairs: list[tuple[str, str]], delimiter: str) -> None:
    """Our tables are read with the space around a field taken away."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "pairs.csv"
        write_csv(file, ["image", "caption"], pairs, delimiter=delimiter)
        columns = read_table(file, ["image", "caption"], []).columns
    assert columns == {"image": [image.strip() for image, _ in pairs], "caption": [text.strip() for _, text in pairs]}


def test_only_what_needs_quotes_gets_them(tmp_path: Path) -> None:
    rows = [[1, None, "plain text"], [0.5, 'say "hi"', "a\rb"], ["", ";", "é, ö"]]
    write_csv(tmp_path / "x.csv", ["a", "b b", "c"], rows)
    expected = 'a,b b,c\n1,,plain text\n0.5,"say ""hi""","a\rb"\n,;,"é, ö"\n'
    assert (tmp_path / "x.csv").read_bytes() == expected.encode()
    write_csv(tmp_path / "y.csv", ["a"], [[""], [None], ["x"]], bom=True)
    assert (tmp_path / "y.csv").read_bytes() == b'\xef\xbb\xbfa\n""\n""\nx\n'


def test_a_failure_within_the_rows_keeps_the_old_table(tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    write_csv(file, ["a"], [["old"]])
    with pytest.raises(ZeroDivisionError):
        write_csv(file, ["a"], ([1 / row] for row in (1, 0)))
    assert file.read_text() == "a\nold\n"
    assert [path.name for path in tmp_path.iterdir()] == ["x.csv"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A precomp folder with a carriage return in its first training caption."""
    folder = make_data(tmp_path_factory.mktemp("csv") / "data")
    file = folder / "train_caps.txt"
    file.write_bytes(b"a dog\rruns\n" + file.read_bytes().split(b"\n", 1)[1])
    return folder


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
def test_a_converted_caption_keeps_its_carriage_return(data: Path, tmp_path: Path, kind: str) -> None:
    assert main(["data", "convert", str(data), str(tmp_path / "new"), "--kind", kind]) == 0
    assert main(["data", "check", str(tmp_path / "new")]) == 0
    captions = read_table(tmp_path / "new" / f"pairs.{kind}", ["caption"], []).columns["caption"]
    assert captions[:2] == ["a dog\rruns", (data / "train_caps.txt").read_bytes().split(b"\n")[1].decode()]


def test_the_scores_of_such_a_caption_are_one_row(data: Path, tmp_path: Path) -> None:
    run = train(tmp_path / "run", data, "sce", "train.epochs=1", words=True).path
    assert main(["score", str(run)]) == 0
    with (run / "scores.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, strict=True))
    assert sorted(int(row["pair"]) for row in rows) == list(range(60))
    assert next(row["caption"] for row in rows if row["pair"] == "0") == "a dog\rruns"
