"""A hub of models, through the library huggingface_hub: fetch a model by `owner/name`, send a folder there.

The library decides where the hub is, where the cache lies, who the user is, and whether there is a network at all
(HF_ENDPOINT, HF_HOME, HF_TOKEN, HF_HUB_OFFLINE); a model that is in the cache is read without one.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import in2r
from in2r.errors import InputError

CLIENT = {"library_name": "in2r", "library_version": in2r.__version__}
"""how the requests call themselves"""


def is_hub_id(name: str) -> bool:
    """Say whether a text may be `owner/name`."""
    return re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", name, re.ASCII) is not None


def fetch(repo: str, revision: str | None, files: Sequence[str]) -> Path:
    """Return the folder in the cache that holds a model's files, fetched if they are not there yet.

    Args:
        repo: owner/name.
        revision: a branch, tag or commit; None = the newest.
        files: the only names that are fetched.

    Raises:
        InputError: the library is not installed; no such model or revision; no network, and not in the cache.
    """
    place = f"{repo}: no such folder;"
    hub = _library(f"{place} to look for it on a hub")
    with _said(place):
        found = hub.snapshot_download(repo, revision=revision, allow_patterns=list(files), **CLIENT)
    if not (Path(found) / "config.json").is_file():
        raise InputError(f"{repo}: a model on the hub, but none of in2r's (no config.json)")
    return Path(found)


def send(folder: Path, repo: str, private: bool) -> str:
    """Make a model on the hub, if it is not there yet, and send all files of a folder; return the commit's address.

    Raises:
        InputError: the library is not installed, nobody is logged in, the hub refuses; the model is there and is public
            where `private` was asked for. Nothing is sent then.
    """
    hub = _library(f"{repo}: to send a model to a hub")
    api = hub.HfApi(**CLIENT)
    with _said(f"{repo}:"):
        api.create_repo(repo, private=private or None, exist_ok=True)
        if private and not api.model_info(repo).private:
            raise InputError(f"{repo}: on the hub already, for everybody to read; nothing was sent")
        message = f"Model of in2r {in2r.__version__}"
        return str(api.upload_folder(repo_id=repo, folder_path=folder, commit_message=message).commit_url)


def _library(why: str) -> Any:
    try:
        import huggingface_hub
    except ImportError:
        raise InputError(f'{why}, install huggingface_hub: pip install "in2r[hub]"') from None
    return huggingface_hub


@contextmanager
def _said(place: str) -> Iterator[None]:
    """Turn what the library and its HTTP client raise into one line."""
    from huggingface_hub import constants, errors

    client: Any = errors.HfHubHTTPError.__bases__[0]  # the base of the HTTP client's errors, whichever that is
    try:
        yield
    except errors.RepositoryNotFoundError:
        raise InputError(f"{place} {constants.ENDPOINT} has no model of this name that you may read") from None
    except errors.RevisionNotFoundError as error:
        raise InputError(f"{place} no such revision on the hub ({_first_line(error)})") from None
    except errors.LocalEntryNotFoundError as error:
        why = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else _first_line(error)
        raise InputError(f"{place} not in the hub's cache either, and the hub is not reached ({why})") from None
    except (client, OSError, errors.HFValidationError) as error:
        login = "; `hf auth login` or HF_TOKEN says who you are" if _refused(error) else ""
        unreached = (
            ""
            if hasattr(error, "response") or isinstance(error, errors.HFValidationError)
            else (f"the hub {constants.ENDPOINT} is not reached: ")
        )
        raise InputError(f"{place} {unreached}{_first_line(error)}{login}") from None


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _refused(error: Exception) -> bool:
    return getattr(getattr(error, "response", None), "status_code", None) in (401, 403)
