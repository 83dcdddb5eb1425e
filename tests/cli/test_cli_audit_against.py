"""`in2r audit NEW --against AUDIT` as a user types it: tomorrow's pairs, some of images that were there before."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report_pages import Read
from sklearn.metrics import roc_auc_score

from in2r.cli.main import main
from in2r.data.encoder_record import write_encoder
from planted_pairs import part_of, plain_folder, planted

WORLD = planted(images=400)
OLD, NEW = part_of(WORLD, range(300)), part_of(WORLD, range(290, 400))
BEFORE = 10
"""images of the new table that are in the old one too, with the same captions"""


def rows_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "pairs.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def summary_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The old table, its audit, the new table, and that judged against it."""
    place = tmp_path_factory.mktemp("feed")
    plain_folder(place / "old", OLD)
    plain_folder(place / "new", NEW)
    assert main(["audit", str(place / "old"), "--out", str(place / "audit"), "--seed", "4"]) == 0
    command = ["audit", str(place / "new"), "--against", str(place / "audit"), "--out", str(place / "judged")]
    assert main(command) == 0
    return place


def test_tomorrows_wrong_pairs_are_found(place: Path) -> None:
    rows = rows_of(place / "judged")
    assert [row["caption"] for row in rows] == NEW["captions"]
    scores = np.array([float(row["score"]) for row in rows])
    assert roc_auc_score(NEW["right"], scores) > 0.9
    known = [row["other_captions"] != "" for row in rows]
    assert known == [image < BEFORE for image in NEW["owner"]]  # old captions of old images; never new ones
    old = rows_of(place / "audit")
    before = np.array([float(row["score"]) for row in old[-2 * BEFORE :]])
    assert np.abs(scores[: 2 * BEFORE] - before).max() < 0.2


def test_all_files_are_written_but_what_judges(place: Path) -> None:
    names = {path.name for path in (place / "judged").iterdir()}
    assert {path.name for path in (place / "audit").iterdir()} - names == {"judge.safetensors"}
    kept = [int(row) for row in (place / "judged" / "keep.txt").read_text().split()]
    lines = (place / "new" / "pairs.csv").read_text().splitlines()
    assert (place / "judged" / "cleaned.csv").read_text().splitlines() == [lines[0], *(lines[row + 1] for row in kept)]
    assert kept == [row for row, one in enumerate(rows_of(place / "judged")) if one["verdict"] in ("ok", "vague")]


def test_the_evidence_is_of_the_old_table(place: Path) -> None:
    old = rows_of(place / "audit")
    records = [json.loads(line) for line in (place / "judged" / "evidence.jsonl").read_text().splitlines()]
    assert records
    for one in records:
        for near in one["neighbors"]:
            there = old[near["row"]]
            assert (near["image"], near["caption"]) == (there["image"], there["caption"])
            assert float(there["score"]) > 0.5
        assert one["suggestion"] in OLD["captions"]


def test_the_summary_and_the_page_name_the_audit(place: Path) -> None:
    old, new = summary_of(place / "audit"), summary_of(place / "judged")
    assert old["against"] is None
    assert new["against"] == {
        "table": "old/pairs.csv",
        "identity": old["identity"],
        "noise_rate": pytest.approx(old["noise_rate"]),
    }
    assert new["settings"] == old["settings"]
    assert new["settings"]["seed"] == 4
    assert new["doubts"] == [
        "FEW IMAGES of old/pairs.csv: 300 different ones; with fewer than 1,000, scores and noise rate are a hint at "
        "most; decide the random sample of report.html"
    ]
    text = Read(place / "judged" / "report.html").text
    assert "220 pairs were judged by the audit of old/pairs.csv: its pairs alone were asked" in text


@pytest.mark.parametrize("kind", ["own similarity", "lemon"])
def test_an_audit_by_one_kind_of_evidence_judges_by_it(kind: str, place: Path, tmp_path: Path) -> None:
    kept, out = tmp_path / "audit", tmp_path / "judged"
    assert main(["audit", str(place / "old"), "--out", str(kept), "--evidence", kind]) == 0
    assert main(["audit", str(place / "new"), "--against", str(kept), "--out", str(out)]) == 0
    assert list(summary_of(out)["components"]) == [kind]
    assert summary_of(out)["settings"]["evidence"] == kind
    assert roc_auc_score(NEW["right"], [float(row["score"]) for row in rows_of(out)]) > 0.8


def test_one_pair_is_judged_and_the_cut_moves(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = plain_folder(
        tmp_path / "one", {**part_of(WORLD, range(399, 400)), "captions": ["a0 b1"], "owner": np.zeros(1, int)}
    )
    command = ["audit", str(one), "--against", str(place / "audit"), "--out", str(tmp_path / "out"), "--cut", "0.999"]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert re.search(r"rows +1, of which 1 were judged \(1 images\)", said)
    assert re.search(r"judged by +the audit of old/pairs.csv", said)
    [row] = rows_of(tmp_path / "out")
    assert row["verdict"] in ("suspect", "mismatch")
    assert summary_of(tmp_path / "out")["settings"]["cut"] == 0.999


def test_pictures_of_the_old_table_are_shown(tmp_path: Path) -> None:
    """Old and new images have the same names; each is shown with its own picture."""
    image = pytest.importorskip("PIL.Image")
    for name, part, colour in (
        ("old", part_of(WORLD, range(100)), "red"),
        ("new", part_of(WORLD, range(100, 130)), "blue"),
    ):
        plain_folder(tmp_path / name, part)
        (tmp_path / f"{name}_photos").mkdir()
        for number in range(len(part["features"])):
            image.new("RGB", (8, 8), colour).save(tmp_path / f"{name}_photos" / f"{number}.png")
    audited, judged = (tmp_path / "audit", tmp_path / "judged")
    assert main(["audit", str(tmp_path / "old"), "--out", str(audited), "--images", str(tmp_path / "old_photos")]) == 0
    command = ["audit", str(tmp_path / "new"), "--out", str(judged), "--against", str(audited)]
    assert main([*command, "--images", str(tmp_path / "new_photos")]) == 0
    both = len(set(Read(judged / "report.html").pictures))
    (tmp_path / "old_photos").rename(tmp_path / "gone")
    assert main([*command, "--images", str(tmp_path / "new_photos")]) == 0
    assert (both, len(set(Read(judged / "report.html").pictures))) == (2, 1)


def test_what_makes_no_sense_is_refused(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    audit = str(place / "audit")
    wide = plain_folder(tmp_path / "wide", {**NEW, "features": np.ones((110, 17), np.float32)})
    vectors = plain_folder(tmp_path / "vectors", NEW)
    np.save(vectors / "captions.npy", NEW["features"][NEW["owner"]])
    cases = [
        (["new", "--seed", "1"], audit, "--seed and --against: give one; what is drawn was drawn by the earlier audit"),
        (["new", "--evidence", "lemon"], audit,
         "--evidence and --against: give one; the kinds of evidence are those of the earlier audit"),
        ([str(wide)], audit, f"{wide}: image vectors have 17 numbers; old/pairs.csv was audited with 16"),
        ([str(vectors)], audit,
         f"{vectors}: captions with vectors of their own; old/pairs.csv was audited by its captions' words"),
        (["new"], str(place / "judged"),
         f"{place / 'judged'}: no judge.safetensors; expected a folder that `in2r audit DATA --out {place / 'judged'}` "
         "wrote, without --against"),
        (["new"], str(tmp_path / "absent"),
         f"{tmp_path / 'absent'}: no judge.safetensors; expected a folder that `in2r audit DATA --out "
         f"{tmp_path / 'absent'}` wrote, without --against"),
    ]  # fmt: skip
    out = tmp_path / "out"
    capsys.readouterr()
    for (data, *options), against, said in cases:
        assert main(["audit", str(place / data), "--out", str(out), "--against", against, *options]) == 2
        assert capsys.readouterr().err == f"in2r: {said}\n"
        assert not out.exists()
    assert main(["audit", str(place / "new"), "--out", audit + "/", "--against", audit]) == 2
    said = f"in2r: --out and --against: both are {audit}; give a new folder, as the earlier audit would go\n"
    assert capsys.readouterr().err == said
    assert (place / "audit" / "judge.safetensors").is_file()


def test_features_of_another_encoder_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = {"kind": "timm", "name": "small", "weights_sha256": "1", "dim": 16}
    for name, part, weights in (("old", part_of(WORLD, range(50)), "1"), ("new", part_of(WORLD, range(50, 60)), "2")):
        plain_folder(tmp_path / name, part)
        write_encoder(tmp_path / name, {**record, "weights_sha256": weights}, None)
    audit = str(tmp_path / "audit")
    assert main(["audit", str(tmp_path / "old"), "--out", audit]) == 0
    capsys.readouterr()
    command = ["audit", str(tmp_path / "new"), "--against", audit, "--out", str(tmp_path / "out")]
    assert main(command) == 2
    assert capsys.readouterr().err == (
        f"in2r: {tmp_path / 'new'}: not from the encoder of old/pairs.csv: the image encoder (timm:small, now "
        "timm:small: other weights sha256)\n"
    )
    (tmp_path / "new" / "encoder.json").unlink()
    assert main(command) == 2
    assert "new: no encoder.json, so nothing says whether its features are from the encoder of old/pairs.csv" in (
        capsys.readouterr().err
    )
    write_encoder(tmp_path / "new", record, None)
    assert main(command) == 0
