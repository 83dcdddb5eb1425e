"""A loaded model as a folder for others: a copy of the model folder, or a model on a hub, with its card."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from in2r.config import fill
from in2r.errors import InputError
from in2r.models.build import ModelConfig
from in2r.models.card import front_matter, model_card
from in2r.models.description import description
from in2r.models.folder import save_model
from in2r.models.hub import is_hub_id, send

if TYPE_CHECKING:
    from in2r.models.retrieval import RetrievalModel


def save_copy(model: "RetrievalModel", folder: str | os.PathLike[str], card: str | None = None) -> Path:
    """Write a model folder of the networks that are loaded; paths of this machine are left out of its config.json.

    Args:
        model: a loaded model.
        folder: the folder to make; an older model there is replaced.
        card: the text of README.md; None = the card made from config.json.

    Raises:
        InputError: something else is there, or it cannot be written.
    """
    info = description(model)
    if card is None:
        with _complete():
            card = model_card(info)
    built = fill(ModelConfig, info["model"], "model")
    return save_model(folder, model.networks, built, model.inputs, model.vocabulary, card, info)


def save_for_hub(
    model: "RetrievalModel",
    folder: Path,
    repo: str,
    licence: str | None = None,
    test: Mapping[str, Any] | None = None,
    text: str | None = None,
) -> Path:
    """Write the folder that `push` sends, and nothing else: `save_copy` with a card for the hub.

    Args:
        model: a loaded model.
        folder: the folder to make.
        repo: owner/name.
        licence: the identifier of the licence that the model is given under, such as apache-2.0.
        test: a result of `in2r eval` of this model.
        text: in place of the card's own text; with a head of its own (`---`), none is added.

    Raises:
        InputError: `repo` is no such name, or `test` is of another epoch.
    """
    if not is_hub_id(repo):
        raise InputError(f"{repo}: expected owner/name, of letters, digits, and - _ .")
    info = description(model)
    if test is not None:
        _require_same_epoch(info, test)
    with _complete():
        if text is None:
            text = model_card(info, repo, test)
        card = text if text.startswith("---\n") else front_matter(info, repo, licence, test) + text
    return save_copy(model, folder, card)


def push(
    model: "RetrievalModel",
    repo: str,
    *,
    private: bool = False,
    licence: str | None = None,
    test: Mapping[str, Any] | None = None,
    text: str | None = None,
) -> str:
    """Send a model to a hub and return the commit's address; arguments and errors as in `save_for_hub`, `hub.send`."""
    with TemporaryDirectory(prefix="in2r-push-") as place:
        return send(save_for_hub(model, Path(place) / "model", repo, licence, test, text), repo, private)


@contextmanager
def _complete() -> Iterator[None]:
    """Say it in one line where a description, which may come from others, lacks what a card tells."""
    try:
        yield
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"config.json of the model: no card can be made of it, it is incomplete ({error})") from None


def _require_same_epoch(info: Mapping[str, Any], test: Mapping[str, Any]) -> None:
    """Refuse a result of a run that was trained on after its model was written, or before it was."""
    try:
        found, expected = test["protocol"]["selection"], info["protocol"]["selection"]
    except (KeyError, TypeError):
        raise InputError("`test`: expected the content of a result file of `in2r eval`, and a model of a run") from None
    if found != expected:
        raise InputError(
            f"the test result is of epoch {found.get('epoch')}, the model of epoch {expected.get('epoch')}; "
            "`in2r eval RUN` tests the model again"
        )
