"""`in2r demo` at a toy size, without a network: the whole job, called again, and called with other wishes."""

import csv
import io
import socket
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest

import in2r
from in2r.cli import demo as cli_demo
from in2r.cli.main import main
from in2r.data.noise import load_index
from in2r.data.sources import open_data
from in2r.files import read_json

SMALL = ["--images", "40", "--epochs", "2"]


def no_network(*_: object) -> None:
    raise AssertionError("the demo must work without a network")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Run it once, where a demo was killed while drawing."""
    out = tmp_path_factory.mktemp("demo") / "out"
    half = out / ".data.new" / "pictures"
    half.mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        for way in ("connect", "connect_ex", "sendto"):
            patch.setattr(socket.socket, way, no_network)
        patch.setattr(socket, "getaddrinfo", no_network)
        for split in ("dev", "test"):
            patch.setitem(cli_demo.SIZES, split, 40)
        assert main(["demo", "--out", str(out), *SMALL]) == 0
        assert not half.exists()
        yield out


@pytest.fixture(scope="module")
def again(demo: Path) -> str:
    """Call it a second time; return what it shows."""
    kept = {path: path.read_bytes() for path in demo.glob("*/best.safetensors")}
    with redirect_stdout(io.StringIO()) as shown:
        assert main(["demo", "--out", str(demo), *SMALL]) == 0
    assert shown.getvalue().count("the run is finished already: nothing is trained") == len(kept) == 2
    assert all(path.read_bytes() == content for path, content in kept.items())
    return shown.getvalue()


def test_it_leaves_a_model_and_shows_what_was_found(demo: Path, again: str) -> None:
    for expected in ("plain training", "corroborate", "A alone", "noise rate found", "belong together least"):
        assert expected in again
    assert in2r.load(demo / "corroborate" / "model").dim == 256


def test_it_ends_with_an_audit_of_the_mismatched_pairs(demo: Path) -> None:
    images = open_data(demo / "data").split("train").image_of_caption
    noise = load_index(demo / "noise_0.6.npy", images)
    with (demo / "audit" / "pairs.csv").open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["split"] == "train"]
    ids = open_data(demo / "data").split("train").image_ids
    assert [row["image"] for row in rows] == [ids[image] for image in noise.index]
    summary = read_json(demo / "audit" / "summary.json")
    wrong = int((~noise.clean).sum())
    assert summary["measurement_only"]["noise_rate"] == pytest.approx(wrong / summary["judged"])
    page = (demo / "audit" / "report.html").read_text(encoding="utf-8")
    assert page.count("data:image/jpeg") > 100


def test_the_truth_that_is_shown_is_that_of_the_noise_index(demo: Path, again: str) -> None:
    images = open_data(demo / "data").split("train").image_of_caption
    clean = load_index(demo / "noise_0.6.npy", images).clean
    with (demo / "corroborate" / "scores.csv").open(newline="") as file:
        pairs = [int(row["pair"]) for row in csv.DictReader(file)]
    wrong = (~clean[pairs]).tolist()
    first = int((~clean).sum())
    found = f"{sum(wrong[:10])} of the 10 above, and {100 * sum(wrong[:first]) / first:.0f} %"
    assert f"{first:,} pairs are mismatched: {found} of the worst" in again
    assert f"injected: {100 * (~clean).mean():.1f} %" in again
    assert [line.split("│")[4].strip() for line in again.splitlines() if "│ train-" in line] == [
        "yes" if is_wrong else "no" for is_wrong in wrong[:10]
    ]


@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        (["--images", "41", "--epochs", "2"], "train is 40, now 41; choose another --out"),
        (
            ["--images", "40", "--epochs", "3"],
            "was started with other settings: train.epochs (2, now 3); choose another",
        ),
    ],
)
def test_other_wishes_than_those_it_was_begun_with_are_refused(
    demo: Path, wish: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--out", str(demo), *wish]) == 2
    assert expected in capsys.readouterr().err
