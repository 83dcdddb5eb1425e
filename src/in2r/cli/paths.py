"""The types of arguments that name a file or a folder: `~` is the home folder, in `--out=~/x` too."""

import argparse
from pathlib import Path

from in2r.errors import InputError
from in2r.files import expand_home


def path_argument(text: str) -> Path:
    """Return the path of a file or folder."""
    return Path(name_or_path(text))


def name_or_path(text: str) -> str:
    """Return a path, or as it is the name of something that comes with the package, such as a preset."""
    try:
        return expand_home(text)
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
