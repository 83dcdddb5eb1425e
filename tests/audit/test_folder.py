"""Columns, lists and evidence of an audit that is small enough to look through; whose files are spared."""

import csv
import json
import re
from dataclasses import replace

import numpy as np
import pytest

from in2r.audit.auditor import Auditor
from in2r.audit.folder import require_no_data, table_columns, write_audit
from in2r.audit.witnesses import Witness, Witnesses
from in2r.errors import InputError
from planted_pairs import planted


@pytest.fixture(scope="module")
def audit():
    """Of 80 pairs, of which row 3 has no words and row 9 is row 8 again."""
    made = planted(images=40)
    captions = made["captions"]
    captions[3], captions[9] = "", captions[8]
    return Auditor(draws=2).fit(made["features"], captions, image_of_caption=made["owner"]).audit_


def with_columns(audit, **columns):
    rows = len(audit.pairs.images)
    own = {name: [f"{text}{row}" for row in range(rows)] for name, text in columns.items()}
    return replace(audit, pairs=replace(audit.pairs, columns={**audit.pairs.columns, **own}))


def test_own_columns_never_replace_one_another(audit):
    columns = table_columns(with_columns(audit, your_score="a", score="b", row="c", plain="d", other_captions="e"))
    assert list(columns)[-5:] == ["your_score", "your_your_score", "your_row", "plain", "your_other_captions"]
    found = [columns[name][7] for name in list(columns)[-5:]]
    assert found == ["a7", "b7", "c7", "d7", "e7"]
    assert columns["score"] is audit.verdicts.score
    assert columns["row"].tolist() == list(range(80))


def test_what_is_not_known_is_an_empty_field(audit, tmp_path):
    write_audit(tmp_path, with_columns(audit, note='nan, "x"\r'))
    with (tmp_path / "pairs.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["note"] for row in rows] == [f'nan, "x"\r{row}' for row in range(80)]
    empty = rows[3]
    assert (empty["score"], empty["percentile"], empty["reason"], empty["verdict"]) == (
        "",
        "",
        "empty caption",
        "empty",
    )
    assert rows[2]["other_captions"] == ""  # its image has no other caption with words
    assert rows[9]["verdict"] in ("duplicate", "suspect", "mismatch")
    for name, values in (
        ("score", audit.verdicts.score),
        ("fits_other_images", audit.verdicts.strangers),
        ("fits_look_alikes", audit.verdicts.look_alikes),
    ):
        known = np.delete(values, 3)
        assert [float(row[name]) for row in rows if row[name]] == pytest.approx(known.tolist(), rel=1e-5)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert (summary["data"], summary["table"]) == (None, "pairs")
    assert not list(tmp_path.glob("cleaned*"))  # there is no table of the user's


def test_an_audit_that_is_cut_short_leaves_nothing_of_the_one_before(audit, tmp_path, monkeypatch):
    write_audit(tmp_path, audit)
    (tmp_path / "cleaned.tsv").write_text("of another table")

    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr("in2r.audit.folder._write_evidence", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_audit(tmp_path, replace(audit, config=replace(audit.config, cut=0.3)))
    left = {path.name for path in tmp_path.iterdir()}
    assert not left & {"summary.json", "report.html", "evidence.jsonl", "cleaned.tsv"}
    assert "keep.txt" in left  # by which the folder is known as an audit's, and may be written again


def test_identity_is_that_of_table_and_seed(audit):
    others = [
        replace(audit, config=replace(audit.config, seed=1)),
        replace(audit, pairs=replace(audit.pairs, captions=["x", *audit.pairs.captions[1:]])),
        replace(audit, pairs=replace(audit.pairs, images=["x", *audit.pairs.images[1:]])),
    ]
    assert len({audit.identity, *(one.identity for one in others)}) == 4
    rounded = replace(audit, verdicts=replace(audit.verdicts, score=audit.verdicts.score + 1e-4))
    assert rounded.identity == audit.identity  # another machine rounds otherwise
    assert re.fullmatch("[0-9a-f]{16}", audit.identity)


def test_witnesses_of_every_row(audit):
    rows = [79, 3, 0, 8, 9]
    found = Witnesses(audit).of(rows)
    assert found[1] == Witness()
    pairs, score = audit.pairs, audit.verdicts.score
    for row, one in zip(rows, found, strict=True):
        if row == 3:
            continue
        assert 0 < len(one.neighbors) <= 3
        images = {image for _, image, _ in one.neighbors}
        assert len(images | {pairs.images[row]}) == len(one.neighbors) + 1
        for other, image, caption in one.neighbors:
            assert (image, caption) == (pairs.images[other], pairs.captions[other])
            assert score[other] > 0.5
        assert one.suggestion in set(pairs.captions) - {pairs.captions[row], ""}
    assert Witnesses(audit).of([]) == []


def test_a_suggestion_is_the_caption_that_is_most_alike_of_each_row_in_blocks_of_any_size(audit):
    data, base, judged = audit.pairs.vectors, audit.base, audit.pairs.judged.tolist()
    best = []
    for pair, image in enumerate(data.image_of_pair.tolist()):
        maps = audit.judgement.maps[int(base.fold_of_image[image])]
        alike = (maps.embed_texts(data.texts) @ maps.embed_images(data.images)[image]).tolist()
        words = audit.pairs.same_caption
        best.append(max((value, other) for other, value in enumerate(alike) if words[other] != words[pair])[1])
    for block_bytes in (1, 1000, 2**20):
        found = Witnesses(audit, block_bytes).of(judged)
        assert [one.suggestion for one in found] == [audit.pairs.captions[judged[other]] for other in best]


def test_no_suggestion_where_all_captions_have_the_same_words_or_none(audit):
    same = replace(audit, pairs=replace(audit.pairs, same_caption=np.zeros(79, np.int64)))
    none = replace(audit, pairs=replace(audit.pairs, captions=[""] * 80))
    for one in (same, none):
        [found] = Witnesses(one).of([20])
        assert found.suggestion is None
        assert found.neighbors


def test_doubts(audit):
    few = "FEW PAIRS: 79; with fewer than 1,000, scores are a hint at most"
    assert audit.doubts() == [few]
    silent = replace(
        audit,
        verdicts=replace(audit.verdicts, told=False),
        judgement=replace(audit.judgement, separation=0.514),
    )
    assert silent.doubts() == [
        "NOTHING TOLD: given pairs look like pairs mismatched on purpose (AUROC 0.51, by chance 0.50): the features do "
        "not fit the captions, or nearly all pairs are wrong; no pair is called a suspect",
        few,
    ]
    assert silent.summary()["noise_rate"] is None
    assert audit.summary()["noise_rate"] == 1 - audit.judgement.share


@pytest.mark.parametrize(
    ("names", "fault"),
    [
        ([], None),
        (["pairs.csv", "keep.txt"], None),
        (["keep.txt"], None),
        (["notes.md"], None),
        (["pairs.tsv"], "pairs.tsv"),
        (["train_ims.npy", "keep.txt"], "train_ims.npy"),
        (["data.json", "keep.txt", "pairs.csv"], "data.json"),
    ],
)
def test_folders_of_data_are_spared(tmp_path, names, fault):
    for name in names:
        (tmp_path / name).touch()
    if fault is None:
        require_no_data(tmp_path)
    else:
        with pytest.raises(InputError, match=f"holds {re.escape(fault)}, which no audit wrote; give a new folder$"):
            require_no_data(tmp_path)
    require_no_data(tmp_path / "new")
