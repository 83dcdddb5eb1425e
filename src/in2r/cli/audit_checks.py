"""What `in2r audit` reads of its options, and refuses, before anything slow begins."""

import argparse
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from in2r.errors import InputError

if TYPE_CHECKING:
    from in2r.report import Decisions

DECISIONS = "decisions.json"
"""where an audit keeps the decisions that it was given"""

OF_PHOTOS = ("text_encoder", "image_column", "caption_column", "split_column", "encoding", "max_pixels")
"""options that say nothing of a data folder"""


def refuse(args: argparse.Namespace, out: Path) -> None:
    """Raise `InputError` for options that make no sense, alone or together, before anything slow begins."""
    from in2r.runs.folder import RunFolder

    if args.top < 0:
        raise InputError(f"--top must be at least 0, got {args.top}")
    if Path(args.data).resolve() == out.resolve():
        raise InputError(f"--out: {out} is the folder that is audited; give a new folder")
    trained = args.train is not None or bool(args.runs)
    if trained and args.noise is not None:
        raise InputError("--train or --run, and --noise: give one; runs are trained on the pairs as they are")
    if args.against is not None:
        _refuse_with_against(args, out, trained)
    if args.noise is not None and not args.noise.is_file():
        raise InputError(f"{args.noise}: no such file; --noise names a noise index, as `in2r noise make` writes it")
    for run in args.runs or []:
        RunFolder(run).require()


def _refuse_with_against(args: argparse.Namespace, out: Path, trained: bool) -> None:
    if args.seed is not None:
        raise InputError("--seed and --against: give one; what is drawn was drawn by the earlier audit")
    if trained:
        raise InputError("--train or --run, and --against: give one; a kept audit does not keep networks")
    if args.evidence is not None:
        raise InputError("--evidence and --against: give one; the kinds of evidence are those of the earlier audit")
    if out.resolve() == Path(args.against).resolve():
        raise InputError(f"--out and --against: both are {args.out}; give a new folder, as the earlier audit would go")


def require_column(name: str, found: Collection[str]) -> None:
    """Raise `InputError` where a table has no such column."""
    if name not in found:
        raise InputError(f"--source {name!r}: no such column; found {', '.join(map(repr, found))}")


FIXED = ("data.path=", "data.layout=", "data.leave_out=", "data.caption_vectors=", "data.split_seed=", "noise.")
"""how settings begin that say which pairs a run is trained on"""


def training_of(args: argparse.Namespace) -> tuple[str, list[str]]:
    """Return the preset and the settings of --train.

    Raises:
        InputError: several presets, or a setting that is unknown or not theirs to choose.
    """
    from in2r.runs.settings import load_config

    named, settings = ([text for text in args.train if ("=" in text) == given] for given in (False, True))
    if len(named) > 1:
        raise InputError(f"--train {' '.join(args.train)}: one preset and settings such as train.epochs=20")
    fixed = [text for text in settings if text.startswith(FIXED)]
    if fixed:
        raise InputError(f"--train {fixed[0]}: the runs are trained on the audited pairs; leave it out")
    preset = named[0] if named else "corroborate"
    load_config(preset, settings, data={"path": str(args.data)})
    return preset, settings


@dataclass(frozen=True)
class DecisionFiles:
    """Files of decisions by hand: those that the folder keeps, then those of the command line.

    Attributes:
        files: in the order in which they count.
        parts: what they hold.
        kept: whether the first one is the folder's own.
    """

    files: Sequence[Path]
    parts: Sequence["Decisions"]
    kept: bool

    @classmethod
    def read(cls, out: Path, named: Sequence[Path]) -> "DecisionFiles":
        """Read the files.

        Raises:
            InputError: a file that holds no decisions.
        """
        from in2r.report import read_decisions

        own = out / DECISIONS
        kept = own.is_file() and own.resolve() not in [file.resolve() for file in named]
        files = [own, *named] if kept else list(named)
        return cls(files, [read_decisions(file) for file in files], kept)

    def check(self, audit: str, pairs: int, sample: Sequence[int] | None = None) -> None:
        """Raise `InputError` unless the decisions are those of an audit; arguments as `check_decisions` takes them."""
        from in2r.report import check_decisions

        if self.kept and self.parts[0].audit != audit:
            raise InputError(
                f"{self.files[0]}: decisions on another table or seed, kept by an earlier audit; give another "
                "--out, or remove the file"
            )
        for file, part in zip(self.files, self.parts, strict=True):
            check_decisions(part, file, audit=audit, pairs=pairs, sample=sample)

    def say(self, console: Console) -> None:
        """Print what was kept, and where later files decide otherwise."""
        from in2r.report import changed, joined

        lines = []
        if self.kept:
            count = len(self.parts[0].decisions)
            lines.append(f"by hand: {count:,} decisions were kept in {self.files[0]}; remove it to forget them")
        for number in range(1, len(self.parts)):
            count = changed(joined(self.parts[:number]), self.parts[number])
            if count:
                lines.append(f"by hand: {self.files[number]} decides {count:,} rows otherwise than before, and counts")
        for line in lines:
            console.print(line, markup=False, highlight=False, soft_wrap=True)
