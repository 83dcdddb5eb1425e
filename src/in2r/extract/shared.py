"""The work on a data folder in pieces, which several processes share, on one machine or on many that see the folder.

DATA/unfinished/pieces.json           settings and the size of a piece; while it is there, the folder is not finished
DATA/unfinished/claims/               who works on which piece, and who finishes the folder
DATA/unfinished/images-00003.npy      rows of a piece; captions-00003.npy likewise
DATA/unfinished/images-00003.json     what the piece holds; written last, so that the piece is done when it is there
"""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from in2r.claims import Claim, claim, holder
from in2r.data.verdicts import Verdict
from in2r.errors import InputError
from in2r.extract.unfinished import Progress, changed, refuse_others, was_made
from in2r.files import read_json, write_json, write_text
from in2r.form import read

FORMAT = 1
FINISH = "finish"
"""what a process claims that finishes the folder"""


@dataclass(frozen=True)
class Piece:
    """Images or captions from `start` to `stop`, without `stop`, in the order of the table."""

    side: Literal["images", "captions"]
    number: int
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start

    def __str__(self) -> str:
        """Return the name of its files."""
        return f"{self.side}-{self.number:05}"


@dataclass(frozen=True)
class Held:
    """What a piece holds.

    Attributes:
        rows: rows of its array; none where no image can be read.
        shape: shape of a row.
        regions: how its regions were pooled; empty of captions.
        verdicts: one for each image; none of captions.
    """

    rows: int
    shape: tuple[int, ...]
    regions: str = ""
    verdicts: tuple[Verdict, ...] = ()


@dataclass(frozen=True)
class Begun:
    """What the first process wrote down.

    Attributes:
        settings: what decides the result, as plain values.
        size: images, or captions, of a piece.
    """

    settings: dict[str, object]
    size: int


class Shared:
    """The shared work on a data folder; when all pieces are done, `progress` says what they hold together.

    Args:
        out: the data folder.
        settings: what decides the result, as plain values.
        size: images, or captions, of a piece.
        images: how many images there are.
        captions: how many captions are encoded.
    """

    def __init__(self, out: Path, settings: Mapping[str, object], size: int, images: int, captions: int) -> None:
        self.out, self.path = out, out / "unfinished"
        self._begun = Begun(dict(settings), size)
        self._file, self._claims = self.path / "pieces.json", self.path / "claims"
        self.pieces = [*_cut("images", images, size), *_cut("captions", captions, size)]
        self._left = self.pieces
        self.progress = Progress(self._begun.settings)

    def begin(self) -> None:
        """Begin the work, or join it.

        Raises:
            InputError: the folder holds something else, or other settings began it.
        """
        if not self.is_open():
            if was_made(self.out, self._begun.settings):  # since the caller looked
                return
            refuse_others(self.out, self._file.name)
            self._claims.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=self.path) as private, suppress(FileExistsError):
                own = Path(private) / self._file.name
                write_json(own, {"format_version": FORMAT, **asdict(self._begun)})
                os.link(own, self._file)  # one process alone succeeds
        self._join()

    def _join(self) -> None:
        values = read_json(self._file)
        if not isinstance(values, dict) or values.get("format_version") != FORMAT:
            raise InputError(f"{self._file}: of another version of in2r; remove {self.out} and start again")
        before = read(Begun, values, str(self._file))
        was, now = ({**begun.settings, "--pieces": begun.size} for begun in (before, self._begun))
        other = changed(was, now)
        if other:
            raise InputError(
                f"{self.out}: was begun with other settings: {', '.join(other)}; give the same command, or a new folder"
            )

    def is_open(self) -> bool:
        """Say whether the work has begun and is not finished."""
        return self._file.is_file()

    def left(self) -> list[Piece]:
        """Return the pieces that are not done; what it says is true if the work is open afterwards."""
        self._left = [piece for piece in self._left if not self._record(piece).is_file()]
        return self._left

    def claim(self, what: Piece | str) -> Claim | None:
        """Claim a piece, or the end; None where it is another's, is done, or the work is over."""
        try:
            held = claim(self._claim_file(what))
        except FileNotFoundError:  # the work is over
            return None
        # In this order: records are removed after the work was closed.
        is_done = isinstance(what, Piece) and self._record(what).is_file()
        if held is not None and (is_done or not self.is_open()):
            held.release()
            return None
        return held

    def holder_note(self, what: Piece | str) -> str | None:
        """Say who works on a piece or on the end; on another machine, which file to remove when that has ended."""
        found, file = holder(self._claim_file(what)), self._claim_file(what)
        if found is None or found.is_alive:
            return None if found is None else f"{what} ({found})"
        return f"{what} ({found}; if it has ended, remove {file})"

    def file(self, piece: Piece) -> Path:
        """Return where the rows of a piece go."""
        return self.path / f"{piece}.npy"

    def keep(self, piece: Piece, held: Held) -> None:
        """Write down that a piece is done; its rows are there."""
        write_text(self._record(piece), json.dumps(asdict(held), ensure_ascii=False) + "\n")

    def sum_up(self) -> None:
        """Put together what the pieces hold.

        Raises:
            InputError: the rows of two pieces differ in shape.
        """
        for side in ("images", "captions"):
            held = list(self._held(side))
            rows = sum(one.rows for _, one in held)
            shapes = {one.shape: piece for piece, one in held if one.rows}
            if len(shapes) > 1:
                named = " and ".join(f"{piece} of {shape}" for shape, piece in shapes.items())
                raise InputError(f"{self.out}: the encoder returned rows of several shapes: {named}; they must agree")
            shape = next(iter(shapes), ())
            if side == "captions":
                self.progress.captions, self.progress.caption_dim = rows, shape[0] if shape else 0
                continue
            self.progress.rows, self.progress.shape = rows, shape
            self.progress.looked_at = sum(len(one.verdicts) for _, one in held)
            self.progress.regions = next((one.regions for _, one in held if one.rows), "")

    def verdicts(self) -> Iterator[Verdict]:
        """Yield the verdicts on all images, in their order."""
        for _, held in self._held("images"):
            yield from held.verdicts

    def place(self) -> None:
        """Give the pieces that have rows their places in the data folder; those that have theirs are left alone."""
        for side in ("images", "captions"):
            pieces = [piece for piece, held in self._held(side) if held.rows]
            for number, piece in enumerate(pieces):
                target = self.out / side / f"{side}-{number:05}.npy"
                target.parent.mkdir(exist_ok=True)
                if self.file(piece).is_file():
                    self.file(piece).replace(target)

    def remove(self) -> None:
        """Close the work, then remove what is left of it."""
        self._file.unlink()
        shutil.rmtree(self.path, ignore_errors=True)  # others may be looking for something to claim

    def _held(self, side: str) -> Iterator[tuple[Piece, Held]]:
        for piece in self.pieces:
            if piece.side == side:
                file = self._record(piece)
                yield piece, read(Held, read_json(file), str(file))

    def _record(self, piece: Piece) -> Path:
        return self.path / f"{piece}.json"

    def _claim_file(self, what: Piece | str) -> Path:
        return self._claims / f"{what}.json"


def _cut(side: Literal["images", "captions"], count: int, size: int) -> Sequence[Piece]:
    return [Piece(side, number, start, min(start + size, count)) for number, start in enumerate(range(0, count, size))]
