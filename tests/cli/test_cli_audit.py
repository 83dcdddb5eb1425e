"""`in2r audit` as a user types it, on a folder whose exchanged captions are known: printed figures, each file."""

import csv
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_pages import Read
from sklearn.metrics import roc_auc_score

from in2r.audit.evidence import NAMES
from in2r.cli.main import main
from planted_pairs import COPY_ROW, EMPTY_ROW, QUOTED_ROW, TORN_ROW, plain_folder, planted, planted_folder

FLAGGED = ("suspect", "mismatch")
COMPONENTS = [name.replace(" ", "_") for name in NAMES]


@dataclass
class Audited:
    """A folder with known faults, its audit, and what was printed."""

    data: Path
    out: Path
    made: dict[str, Any]
    said: str

    @property
    def rows(self) -> list[dict[str, str]]:
        """The rows of pairs.csv."""
        with (self.out / "pairs.csv").open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    @property
    def summary(self) -> dict[str, Any]:
        """summary.json."""
        found: dict[str, Any] = json.loads((self.out / "summary.json").read_text(encoding="utf-8"))
        return found


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Audited:
    folder = tmp_path_factory.mktemp("audited")
    made = planted_folder(folder / "data")
    with pytest.MonkeyPatch.context() as patch, (folder / "said").open("w+") as said:
        patch.setenv("COLUMNS", "200")
        patch.setattr("sys.stdout", said)
        assert main(["audit", str(folder / "data"), "--out", str(folder / "out")]) == 0
        said.seek(0)
        return Audited(folder / "data", folder / "out", made, said.read())


def audit(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main(["audit", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main(["audit", *map(str, arguments)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    return said.err


# --- what is found, printed and written


def test_exchanged_captions_are_found(audited: Audited) -> None:
    rows, right = audited.rows, audited.made["right"].copy()
    right[COPY_ROW] = right[16]
    known = np.array([row["score"] != "" for row in rows])
    scores = np.array([float(row["score"]) for row in rows if row["score"]])
    assert roc_auc_score(right[known], scores) > 0.9
    low, high = audited.summary["noise_rate_interval"]
    assert low < 1 - right[known].mean() < high
    flagged = np.array([row["verdict"] in FLAGGED for row in rows])
    assert (~right[flagged]).mean() > 0.8


def test_figures_are_printed(audited: Audited) -> None:
    found, (doubt, title, *lines) = audited.summary, audited.said.splitlines()
    assert doubt == "FEW PAIRS: 298; with fewer than 1,000, scores are a hint at most"
    assert title.strip() == f"Audit of {audited.data.name}/pairs.csv"
    figures = dict(re.split(r"\s{2,}", line.strip(), maxsplit=1) for line in lines[: lines.index(
        next(line for line in lines if "The worst pairs" in line)
    )])  # fmt: skip
    low, high = found["noise_rate_interval"]
    assert figures == {
        "rows": "300, of which 298 were judged (150 images)",
        "noise rate": f"{100 * found['noise_rate']:.1f} % of the judged pairs ({100 * low:.1f} to {100 * high:.1f})",
        **{name: str(count) for name, count in found["verdicts"].items() if count},
        "kept": f"{found['kept']} rows: cleaned.csv",
        "captions": "compared by their words (TF-IDF); vectors of a text encoder would tell more",
    }
    worst = [line for line in lines if re.match(r"│ +\d+ │", line)]
    assert len(worst) == 10
    order = sorted((float(row["score"]), int(row["row"])) for row in audited.rows if row["score"])
    assert {int(line.split("│")[1]) for line in worst} <= {row for score, row in order if score <= order[9][0]}
    assert lines[-2:] == [f"look at: {audited.out / 'report.html'}", f"every row: {audited.out / 'pairs.csv'}"]


def test_every_row_of_the_table_has_its_scores_and_own_columns(audited: Audited) -> None:
    rows, made = audited.rows, audited.made
    assert list(rows[0]) == [
        "row", "Bild", "Text", "score", "verdict", "decision", "percentile", *COMPONENTS, "fits_other_images",
        "fits_look_alikes", "reason", "your_score", "shop",
    ]  # fmt: skip
    assert [row["row"] for row in rows] == [str(row) for row in range(300)]
    assert [row["Bild"] for row in rows] == made["images"]
    assert [row["Text"] for row in rows] == [text.strip() for text in made["captions"]]
    assert [row["your_score"] for row in rows] == [f"{row}.50" for row in range(300)]
    assert [row["shop"] for row in rows] == made["shops"]
    verdicts = {row: rows[row]["verdict"] for row in (EMPTY_ROW, TORN_ROW, COPY_ROW)}
    assert verdicts == {EMPTY_ROW: "empty", TORN_ROW: "unreadable", COPY_ROW: "duplicate"}
    assert {int(row["row"]): row["reason"] for row in rows if row["reason"]} == {
        EMPTY_ROW: "empty caption",
        TORN_ROW: "truncated",
    }
    judged = ("score", "percentile", *COMPONENTS[:3], "fits_other_images", "fits_look_alikes")
    for number, row in enumerate(rows):
        values = [row[name] for name in judged]
        if number in (EMPTY_ROW, TORN_ROW):
            assert values == [""] * len(judged)
        else:
            assert all(0 <= float(value) <= (100 if name == "percentile" else 1) for name, value in row.items()
                       if name in judged)  # fmt: skip
    score, verdict = rows[40]["score"], rows[40]["verdict"]
    assert (verdict in FLAGGED) == (float(score) < 0.5)


def test_the_parquet_file_holds_the_same_as_the_csv(audited: Audited) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    table = parquet.read_table(audited.out / "pairs.parquet").to_pydict()
    rows = audited.rows
    assert list(table) == list(rows[0])
    for name, values in table.items():
        texts = [row[name] for row in rows]
        if name in ("score", "percentile", *COMPONENTS, "fits_other_images", "fits_look_alikes"):
            assert [value is None for value in values] == [text == "" for text in texts]
            assert [v for v in values if v is not None] == pytest.approx([float(t) for t in texts if t], rel=1e-5)
        else:
            assert [str(value) for value in values] == texts
    assert all(isinstance(row, int) for row in table["row"])


def test_lists_part_the_rows_and_weigh_them(audited: Audited) -> None:
    kept, dropped = (list(map(int, (audited.out / f"{name}.txt").read_text().split())) for name in ("keep", "drop"))
    assert kept == sorted(kept)
    assert sorted(kept + dropped) == list(range(300))
    rows = audited.rows
    assert kept == [row for row in range(300) if rows[row]["verdict"] in ("ok", "vague")]
    with (audited.out / "weights.csv").open(newline="") as file:
        header, *weights = csv.reader(file)
    assert header == ["row", "weight"]
    for row, (number, weight) in zip(rows, weights, strict=True):
        without = row["verdict"] in ("empty", "unreadable", "duplicate")
        assert (number, weight) == (row["row"], "0" if without else row["score"])


def test_the_cleaned_table_is_the_users_lines_as_they_stand(audited: Audited) -> None:
    kept = [int(row) for row in (audited.out / "keep.txt").read_text().split()]
    header, *lines = audited.made["lines"]
    assert QUOTED_ROW in kept  # or the field in quotes is not tried
    assert (audited.out / "cleaned.csv").read_bytes() == "".join([header, *(lines[row] for row in kept)]).encode(
        "cp1252"
    )


def test_evidence_is_of_the_suspects_and_names_trusted_strangers(audited: Audited) -> None:
    rows, lines = audited.rows, (audited.out / "evidence.jsonl").read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    suspects = [int(row["row"]) for row in rows if row["verdict"] in FLAGGED]
    assert sorted(one["row"] for one in records) == suspects
    scores = [float(rows[one["row"]]["score"]) for one in records]
    assert scores == sorted(scores)  # as far as they are written, some are equal
    captions = {row["Text"] for row in rows}
    for one in records:
        own = rows[one["row"]]
        assert len({near["image"] for near in one["neighbors"]}) == 3
        for near in one["neighbors"]:
            there = rows[near["row"]]
            assert (near["image"], near["caption"]) == (there["Bild"], there["Text"])
            assert near["image"] != own["Bild"]
            assert float(there["score"]) > 0.5
        assert one["suggestion"] in captions - {own["Text"]}


def test_the_nearest_neighbour_is_the_nearest_trusted_image(audited: Audited) -> None:
    rows, features = audited.rows, audited.made["features"]
    unit = features - features[audited.made["owner"]].mean(axis=0)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)

    def number(image: str) -> int:
        return int(re.findall(r"\d+", image)[0])

    trusted = {number(row["Bild"]) for row in rows if row["score"] and float(row["score"]) > 0.5}
    agreed = 0
    records = [json.loads(line) for line in (audited.out / "evidence.jsonl").read_text().splitlines()]
    for one in records:
        own = number(rows[one["row"]]["Bild"])
        best = max(trusted - {own}, key=lambda image: unit[image] @ unit[own])
        agreed += number(one["neighbors"][0]["image"]) == best
    assert agreed >= 0.9 * len(records)  # the mean that is taken off is of the judged pairs


def test_summary_has_the_key_figures(audited: Audited) -> None:
    found = audited.summary
    assert list(found) == [
        "identity", "table", "against", "runs", "rows", "judged", "images", "verdicts", "kept", "cut", "by_hand",
        "doubts", "noise_rate", "noise_rate_interval", "moved_alone", "separation", "components", "settings",
        "measurement_only", "versions", "data",
    ]  # fmt: skip
    verdicts = [row["verdict"] for row in audited.rows]
    assert found["verdicts"] == {name: verdicts.count(name) for name in found["verdicts"]}
    assert (found["rows"], found["judged"], found["images"], found["cut"]) == (300, 298, 150, 0.5)
    assert found["kept"] == verdicts.count("ok") + verdicts.count("vague")
    assert found["settings"]["seed"] == 0
    assert found["measurement_only"] is None
    assert found["data"]["hash"]
    assert all(isinstance(found[name], float) for name in ("noise_rate", "moved_alone", "separation"))
    assert list(found["components"]) == list(NAMES)


def test_the_report_shows_the_worst_rows_and_the_copy(audited: Audited) -> None:
    page = Read(audited.out / "report.html")
    scored = [(float(row["score"]), int(row["row"])) for row in audited.rows if row["score"]]
    worst = page.cards("worst")
    assert len(worst) == 200
    assert max(float(audited.rows[row]["score"]) for row in worst) <= sorted(scored)[199][0]
    assert len(page.cards("borderline")) == 60
    assert len(set(page.cards("sample"))) == 100
    assert sorted(page.cards("duplicates")) == [16, COPY_ROW]
    assert "pairs.csv" in page.text
    assert "298 pairs were compared with pairs mismatched on purpose. Kinds of evidence" in page.text
    assert "needs training: 5." in page.text


# --- options


@pytest.mark.parametrize("kind", ["own similarity", "lemon"])
def test_one_kind_of_evidence_alone(
    kind: str, audited: Audited, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    audit(capsys, audited.data, "--out", tmp_path / "out", "--evidence", kind)
    found = Audited(audited.data, tmp_path / "out", audited.made, "")
    assert list(found.summary["components"]) == [kind]
    assert found.summary["settings"]["evidence"] == kind
    columns = list(found.rows[0])
    assert columns[columns.index("percentile") + 1 : columns.index("fits_other_images")] == [kind.replace(" ", "_")]
    scores = {row["row"]: float(row["score"]) for row in found.rows if row["score"]}
    right = audited.made["right"]
    assert roc_auc_score([right[int(row)] for row in scores], list(scores.values())) > 0.8
    assert "needs training: 1." in Read(tmp_path / "out" / "report.html").text


def test_the_same_seed_gives_the_same_files_and_decisions_are_read_back(
    audited: Audited, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = audited.rows
    sample = Read(audited.out / "report.html").cards("sample")
    mismatches = [int(row["row"]) for row in rows if row["verdict"] == "mismatch"]
    suspects = [row for row in mismatches if row not in sample[:4]][:3]
    decisions = dict.fromkeys(suspects[:2], "wrong") | {suspects[2]: "right"}
    decisions |= {row: "unsure" if row in mismatches else "right" for row in sample[:4]}
    record = {
        "format": 1,
        "audit": audited.summary["identity"],
        "sample": sample,
        "decisions": [{"row": row, "decision": word} for row, word in decisions.items()],
    }
    file = tmp_path / "decisions.json"
    file.write_text(json.dumps(record))
    photos = tmp_path / "photos"
    photos.mkdir()
    image = pytest.importorskip("PIL.Image")
    worst = rows[Read(audited.out / "report.html").cards("worst")[0]]["Bild"]
    image.new("RGB", (8, 8), "red").save(photos / worst)
    out = tmp_path / "again"
    options = ["--decisions", file, "--source", "shop", "--images", photos, "--top", 0, "--bom", "--cut", 0.5]
    said = audit(capsys, audited.data, "--out", out, *options)
    with (out / "pairs.csv").open(encoding="utf-8-sig", newline="") as lines:
        again = list(csv.DictReader(lines))
    kept = set(map(int, (out / "keep.txt").read_text().split()))
    for row, (old, new) in enumerate(
        zip(rows, again, strict=True)
    ):  # the decided rows follow the decision, no other one
        decided = {"right": "ok", "wrong": "mismatch"}.get(decisions.get(row, ""))
        assert new["decision"] == ("" if decided is None else decisions[row])
        same = decided is None or (decided == "ok" and old["verdict"] not in FLAGGED)
        assert new["verdict"] == (old["verdict"] if same else decided)
        assert (row in kept) == (new["verdict"] in ("ok", "vague"))
        assert {**new, "verdict": "", "decision": ""} == {**old, "verdict": "", "decision": ""}
    weights = dict(line.split(",") for line in (out / "weights.csv").read_text().splitlines())
    assert [weights[str(row)] for row in suspects] == ["0", "0", "1"]
    assert (out / "pairs.csv").read_bytes().startswith(b"\xef\xbb\xbf")
    assert "The worst pairs" not in said
    assert "by hand, verdict mismatch: 2 of 3 are wrong (67 %; 95 %: 21 to 94)\n" in said
    assert re.search(r"^by hand, random sample: \d of \d are wrong", said, re.MULTILINE)
    assert "by hand, cut: 0.5 as --cut says; without it, the decisions would move the cut\n" in said
    page = Read(out / "report.html")
    assert len(page.pictures) == 1
    assert not Read(audited.out / "report.html").pictures
    shops = [row["shop"] for row in rows]
    cells = page.texts("td")
    for name in ("Müller", "[red]Sons"):
        assert f"{shops.count(name)}" in cells
        assert name in page.texts("bdi")
        assert str(sum(row["shop"] == name and row["verdict"] in FLAGGED for row in again)) in cells
    record["sample"] = [sample[0], sample[2], sample[1]]
    file.write_text(json.dumps(record))
    assert refused(capsys, audited.data, "--out", tmp_path / "no", "--decisions", file) == (
        f"in2r: {file}: sample[1]: row {sample[2]}, but this audit drew row {sample[1]}; the sample is chance's alone, "
        "so export the file again from this audit's report.html\n"
    )
    record["audit"] = "0123456789abcdef"
    file.write_text(json.dumps(record))
    assert refused(capsys, audited.data, "--out", tmp_path / "no", "--decisions", file) == (
        f"in2r: {file}: decisions of another audit (0123456789abcdef; this one is {audited.summary['identity']}); give "
        "the audit whose report.html they were made on\n"
    )
    assert not (tmp_path / "no").exists()


def test_decisions_move_the_cut(audited: Audited, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A strict person: all pairs next to the cut are wrong, and so are some above it."""
    page = Read(audited.out / "report.html")
    words = dict.fromkeys(page.cards("borderline"), "wrong")
    words |= {row: "right" for row in page.cards("sample") if row not in words}
    record = {
        "format": 1,
        "audit": audited.summary["identity"],
        "sample": [],
        "decisions": [{"row": row, "decision": word} for row, word in words.items()],
    }
    file = tmp_path / "decisions.json"
    file.write_text(json.dumps(record))
    out = tmp_path / "again"
    said = audit(capsys, audited.data, "--out", out, "--decisions", file)
    found = Audited(audited.data, out, {}, said)
    cut, more = found.summary["cut"], found.summary["by_hand"]["more_suspects"]
    assert cut > 0.55
    assert f"by hand, cut: {cut:.4g} in place of 0.5; {more} rows more are below it\n" in said
    for old, new in zip(audited.rows, found.rows, strict=True):
        assert old["score"] == new["score"]
        if new["score"] and not new["decision"]:
            assert (new["verdict"] in FLAGGED) == (float(new["score"]) < cut)
    flagged = [sum(float(row["score"] or 1) < one for row in found.rows) for one in (0.5, cut)]
    assert more == flagged[1] - flagged[0] > 0
    assert found.summary["kept"] == len((out / "keep.txt").read_text().split())
    assert "decisions by hand" in (out / "report.html").read_text(encoding="utf-8")
    record["decisions"] = [{"row": page.cards("worst")[0], "decision": "wrong"}]
    file.write_text(json.dumps(record))
    said = audit(capsys, audited.data, "--out", out, "--decisions", file)
    assert "by hand, cut: it stays; it moves when right and wrong pairs with scores are decided, the right ones" in said
    assert found.summary["by_hand"] is None


def test_the_cut_moves_suspects_but_not_scores(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = plain_folder(tmp_path / "data", planted(images=60))
    found: dict[float, Audited] = {}
    for cut in (0.05, 0.9):
        out = tmp_path / str(cut)
        found[cut] = Audited(folder, out, {}, audit(capsys, folder, "--out", out, "--cut", cut, "--seed", 3))
        for row in found[cut].rows:
            expected = "mismatch" if float(row["score"]) < min(cut, 0.1) else "suspect"
            assert (row["verdict"] == expected) if float(row["score"]) < cut else (row["verdict"] not in FLAGGED)
        assert found[cut].summary["settings"]["seed"] == 3
    low, high = found.values()
    assert [row["score"] for row in low.rows] == [row["score"] for row in high.rows]
    assert low.summary["identity"] == high.summary["identity"]
    assert low.summary["kept"] > high.summary["kept"]


def test_a_precomp_folder_has_its_splits_as_source(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    said = audit(capsys, data, "--out", out, "--source", "split", "--layout", "precomp")
    assert f"Audit of {data.name}" in said
    with (out / "pairs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["split"] for row in rows] == sorted(
        [row["split"] for row in rows], key=["train", "dev", "test"].index
    )  # fmt: skip
    assert not list(out.glob("cleaned*"))
    assert re.search(r"kept +[0-9,]+ rows: keep.txt", said)
    assert {"train", "dev", "test"} <= set(Read(out / "report.html").texts("bdi"))


def test_vectors_that_tell_nothing_make_no_suspect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Captions are vectors alone, of noise; the folder's name is no markup."""
    made, draws = planted(images=80, captions=1), np.random.default_rng(5)
    vectors = draws.normal(size=(80, 6)).astype(np.float32)
    folder = plain_folder(tmp_path / "[red]x[/bold]", made, captions=False, captions_=vectors)
    (folder / "captions_.npy").rename(folder / "captions.npy")
    said = audit(capsys, folder, "--out", tmp_path / "out")
    found = Audited(folder, tmp_path / "out", {}, said)
    line = found.said.splitlines()[0]
    assert re.fullmatch(
        r"NOTHING TOLD: given pairs look like pairs mismatched on purpose \(AUROC 0\.\d\d, by chance 0\.50\): the "
        r"features do not fit the captions, or nearly all pairs are wrong; no pair is called a suspect",
        line,
    )
    assert re.search(r"noise rate +not known", said)
    assert found.summary["noise_rate"] is found.summary["noise_rate_interval"] is None
    assert not {row["verdict"] for row in found.rows} & set(FLAGGED)
    assert list(found.rows[0])[:3] == ["row", "image", "score"]
    assert (found.out / "evidence.jsonl").read_text() == ""
    assert found.summary["doubts"] == said.splitlines()[:2]
    assert "NOTHING TOLD" in (found.out / "report.html").read_text(encoding="utf-8")
    assert "The worst pairs" not in said
    assert {line.split(",")[1] for line in (found.out / "weights.csv").read_text().splitlines()[1:]} == {"1"}
    assert Read(found.out / "report.html").cards("worst")


def test_a_name_that_looks_like_markup_is_printed_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = plain_folder(tmp_path / "data", planted(images=30))
    name = "pairs[bold].csv"
    (folder / "pairs.csv").rename(folder / name)
    (folder / "data.json").write_text(json.dumps({"table": name}))
    assert f"Audit of {folder.name}/{name}" in audit(capsys, folder, "--out", tmp_path / "out", "--top", 1)


# --- what is refused


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--source", "store"], "--source 'store': no such column; found 'Bild', 'Text', 'score', 'shop'"),
        (["--cut", "1.5"], "configuration: `cut` must be in [0, 1], got 1.5"),
        (["--cut", "-1"], "configuration: `cut` must be in [0, 1], got -1.0"),
        (["--cut", "nan"], "configuration: `cut` must be a finite number, got nan"),
        (["--seed", "-1"], "configuration: `seed` must be at least 0, got -1"),
        (["--top", "-1"], "--top must be at least 0, got -1"),
        (["--images", "nowhere"], "nowhere: no such folder of pictures"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    audited: Audited, tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    assert refused(capsys, audited.data, "--out", tmp_path / "out", *options) == f"in2r: {said}\n"
    assert not (tmp_path / "out").exists()


def test_too_few_pairs_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = plain_folder(tmp_path / "data", planted(images=24))
    assert refused(capsys, folder, "--out", tmp_path / "out") == (
        f"in2r: {folder}: 48 pairs can be judged; an audit needs 50 or more\n"
    )


def test_a_folder_that_holds_data_is_not_written_into(
    audited: Audited, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = (audited.data / "pairs.csv").read_bytes()
    assert refused(capsys, audited.data, "--out", audited.data) == (
        f"in2r: {audited.data}: holds data.json, which no audit wrote; give a new folder\n"
    )
    assert (audited.data / "pairs.csv").read_bytes() == table
    (tmp_path / "pairs.csv").write_text("mine")
    assert refused(capsys, audited.data, "--out", tmp_path) == (
        f"in2r: {tmp_path}: holds pairs.csv, which no audit wrote; give a new folder\n"
    )
    file = tmp_path / "pairs.csv"
    assert "cannot be made" in refused(capsys, plain_folder(tmp_path / "d", planted(images=30)), "--out", file)


@pytest.mark.parametrize("name", ["cleaned.xlsx", "report.html", "summary.json", "pairs.csv"])
def test_files_that_no_audit_wrote_stay(
    audited: Audited, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / name).write_text("mine")
    said = refused(capsys, audited.data, "--out", tmp_path / "mine")
    assert said == f"in2r: {tmp_path / 'mine'}: holds {name}, which no audit wrote; give a new folder\n"
    assert (tmp_path / "mine" / name).read_text() == "mine"
