"""Rows that are left out of training: what is left, under which numbers, and what a run knows of it."""

import numpy as np
import pytest
import torch
from tests.tiny_run import make_data, train

from in2r.data.left_out import LeftOut, read_row_numbers
from in2r.data.sources import open_data
from in2r.errors import InputError
from in2r.results import evaluate_run, score_run
from in2r.runs.settings import load_config
from in2r.training.train import reopen, resume_run


def test_the_left_pairs_keep_their_own_caption_image_vector_and_row(tmp_path):
    source = open_data(make_data(tmp_path / "data"), caption_vectors="vecs")
    whole = source.split("train")
    rows = np.array([0, 1, 2, 3, 4, 7, 58, 139])  # the first image is gone
    left = LeftOut(source, rows, "drop.txt")
    pairs = left.split("train")
    kept = [row for row in range(60) if row not in rows]
    assert left.caption_rows("train") == kept
    assert list(pairs.captions) == [whole.captions[row] for row in kept]
    assert pairs.image_ids == [whole.image_ids[image] for image in range(1, 12)]
    assert pairs.image_of_caption.tolist() == [row // 5 - 1 for row in kept]
    every = np.arange(len(kept))
    got, _ = pairs.caption_vectors.gather(torch.from_numpy(every))
    expected, _ = whole.caption_vectors.gather(torch.tensor(kept))
    assert torch.equal(got, expected)
    image, _ = pairs.images.gather(torch.tensor([0]))
    assert torch.equal(image, whole.images.gather(torch.tensor([1]))[0])
    assert left.caption_places("train", [0]) == source.caption_places("train", [5])
    assert len(left.split("dev").image_of_caption) == 30


def test_the_fingerprint_tells_which_rows_are_left_out_whatever_their_order(tmp_path):
    source = open_data(make_data(tmp_path / "data"))
    first, same, other = (LeftOut(source, np.array(rows), "x").fingerprint() for rows in ([3, 9], [9, 3, 3], [3, 10]))
    assert first == same
    assert first["hash"] != source.fingerprint()["hash"]
    assert first["splits"]["train"]["hash"] != other["splits"]["train"]["hash"]
    assert first["splits"]["dev"] == source.fingerprint()["splits"]["dev"]


@pytest.mark.parametrize(
    ("text", "said"),
    [("1\n2.5\n", "line 2 is '2\\.5'"), ("row\n", "line 1 is 'row'"), ("-1\n", "'-1'"), ("9" * 23, "'9999")],
)
def test_a_line_that_is_no_row_number_is_named(tmp_path, text, said):
    (tmp_path / "drop.txt").write_text(text)
    with pytest.raises(InputError, match=said):
        read_row_numbers(tmp_path / "drop.txt")


def test_the_rows_that_stay_are_no_rows_to_leave_out(tmp_path):
    (tmp_path / "keep.txt").write_text("3\n")
    with pytest.raises(InputError, match="rows that stay; give the rows to leave out"):
        read_row_numbers(tmp_path / "keep.txt")


def test_nothing_left_and_a_noise_index_are_refused(tmp_path):
    source = open_data(make_data(tmp_path / "data"))
    with pytest.raises(InputError, match="leaves none of the 60"):
        LeftOut(source, np.arange(60), "drop.txt")
    with pytest.raises(
        InputError, match=r"^drop.txt: line 2 is row 140; .*data has 140 rows, from 0; the file is that"
    ):
        LeftOut(source, np.array([139, 140, 3]), "drop.txt")
    with pytest.raises(InputError, match="does not go with a"):
        load_config("sce", ["data.path=x", "data.leave_out=drop.txt", "noise.index=n.npy"])


@pytest.mark.parametrize("words", [False, True])
def test_a_run_is_trained_scored_and_reopened_without_them(tmp_path, words):
    data = make_data(tmp_path / "data")
    drop = tmp_path / "drop.txt"
    drop.write_text("".join(f"{row}\n" for row in [0, 1, 2, 3, 4, 11]))
    run = train(tmp_path / "run", data, "in2r", f"data.leave_out={drop}", words=words)
    drop.unlink()  # the run has its own copy
    assert run.info()["training_pairs"] == 54
    scores = score_run(run.path).read_text().splitlines()
    named = sorted(int(line.split(",")[3]) for line in scores[1:])
    assert named == [row for row in range(60) if row not in (0, 1, 2, 3, 4, 11)]
    said = evaluate_run(run.path)["protocol"]["data"]
    assert said["left_out"]
    assert said["same_as_in_training"]
    resume_run(run.path)
    run.left_out_file.write_text("1\n")
    with pytest.raises(InputError, match="captions of train"):
        reopen(run)
