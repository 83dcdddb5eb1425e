"""Where the picture of an image lies: as image_verdicts.csv has it, or by its name in a folder of pictures."""

from pathlib import Path

from in2r.data.verdicts import FILE, read_verdicts
from in2r.errors import InputError


def recorded_pictures(folder: Path) -> dict[str, Path]:
    """Return image → picture, as image_verdicts.csv of a data folder has it; nothing where there is none."""
    path = folder / FILE
    if not path.is_file():
        return {}
    return {name: Path(one.file) for name, one in read_verdicts(path).items() if one.file}


def pictures_in(folder: Path) -> dict[str, Path]:
    """Return name → file of a folder of pictures and below it; a name may lack the folders, the ending, or both.

    Raises:
        InputError: no such folder.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder of pictures")
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    inside = [file.relative_to(folder) for file in files]
    found: dict[str, Path] = {}
    for names in (  # the whole name of one file goes before a part of another one's
        [path.as_posix() for path in inside],
        [path.with_suffix("").as_posix() for path in inside],
        [path.name for path in inside],
        [path.stem for path in inside],
    ):
        for name, file in zip(names, files, strict=True):
            found.setdefault(name, file)
    return found
