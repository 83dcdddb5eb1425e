"""The audit from Python, in the manner of scikit-learn."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from in2r.audit.against import audit_against, keep
from in2r.audit.evidence import Vectors
from in2r.audit.folder import write_audit
from in2r.audit.kept import Kept, load_kept
from in2r.audit.page import write_page
from in2r.audit.pairs import (
    EMPTY,
    FEWEST,
    AuditPairs,
    require_comparable,
    require_pairs,
    same_rows,
    same_words,
    text_vectors,
)
from in2r.audit.result import Audit, audit_pairs
from in2r.audit.settings import AuditConfig
from in2r.config import fill
from in2r.data.features import UNUSABLE, unusable
from in2r.errors import InputError


class Auditor:
    """Judges which image each caption belongs to, without training.

    Args:
        settings: keys of `AuditConfig`, such as `cut=0.3` or `seed=1`.

    Attributes:
        scores_: (pairs,) the probability that each pair matches, in [0, 1]; NaN where it was not judged.
        verdicts_: (pairs,) "ok", "suspect", "mismatch", "vague", "duplicate" or "empty".
        components_: kind of evidence → (pairs,) in [0, 1].
        noise_rate_: estimated share of wrong pairs; None where the evidence tells nothing.
        audit_: all that was found.

    Raises:
        InputError: an unknown setting, or a value out of range.
    """

    def __init__(self, **settings: object) -> None:
        self.config = fill(AuditConfig, settings)
        self._kept: Kept | None = None

    @classmethod
    def load(cls, folder: str | Path) -> "Auditor":
        """Return an auditor that judges new pairs by an audit that was written; it has no results of its own.

        Raises:
            InputError: the folder has no kept audit, or its file is damaged.
        """
        kept = load_kept(Path(folder))
        found = cls(**asdict(kept.config))
        found._kept = kept
        return found

    def get_params(self, deep: bool = True) -> dict[str, object]:
        """Return the settings by name, as scikit-learn's tools ask for them."""
        return asdict(self.config)

    def set_params(self, **settings: object) -> "Auditor":
        """Change settings and return itself.

        Raises:
            InputError: an unknown setting, or a value out of range.
        """
        self.config = fill(AuditConfig, {**asdict(self.config), **settings})
        return self

    def __repr__(self) -> str:
        """Say what differs from the defaults."""
        usual = asdict(AuditConfig())
        changed = ", ".join(f"{name}={value!r}" for name, value in asdict(self.config).items() if value != usual[name])
        return f"Auditor({changed})"

    def fit(
        self,
        images: ArrayLike,
        captions: Sequence[str] | None = None,
        *,
        image_of_caption: ArrayLike | None = None,
        caption_vectors: ArrayLike | None = None,
        image_ids: Sequence[str] | None = None,
    ) -> "Auditor":
        """Judge pairs.

        Args:
            images: (images, dim) or (images, regions, dim), features of any vision model.
            captions: (pairs,) texts; None where `caption_vectors` are given.
            image_of_caption: (pairs,) the image of each caption; None: caption k belongs to image k.
            caption_vectors: (pairs, d), such as those of a sentence model; None: TF-IDF of the texts.
            image_ids: (images,) names for reports; None: row numbers.

        Returns:
            Itself.

        Raises:
            InputError: shapes or types that do not fit, values that are not finite, fewer than 50 pairs, or fewer
                than 10 images that are no copies of each other.
        """
        values = _matrix("images", images)
        texts = None if caption_vectors is None else _matrix("caption_vectors", caption_vectors)
        pairs = _pairs(self.config, values, captions, texts, image_of_caption, image_ids, None)
        self._kept = None
        return self._found(audit_pairs(pairs, self.config))

    def judge(
        self,
        images: ArrayLike,
        captions: Sequence[str] | None = None,
        *,
        image_of_caption: ArrayLike | None = None,
        caption_vectors: ArrayLike | None = None,
        image_ids: Sequence[str] | None = None,
    ) -> "Auditor":
        """Judge new pairs, one or more, by those that were fitted; the new ones do not speak for each other.

        Args:
            images: as `fit` takes them, of the new pairs, and so on.
            captions: texts.
            image_of_caption: the image of each.
            caption_vectors: of the kind that was fitted; None where captions were compared by their words.
            image_ids: names for reports.

        Returns:
            Another auditor, with the scores, verdicts, suspects and files of the new pairs.

        Raises:
            InputError: as `fit`, and if nothing was fitted, if the auditor was itself made by `judge`, or for vectors
                of another width or kind than those fitted.
        """
        if self._kept is None:
            if not hasattr(self, "audit_") or self.audit_.against is not None:
                raise InputError("nothing was fitted: call fit on pairs, or load an audit, before judge")
            self._kept = keep(self.audit_)
        values = _matrix("images", images)
        texts = None if caption_vectors is None else _matrix("caption_vectors", caption_vectors)
        pairs = _pairs(self.config, values, captions, texts, image_of_caption, image_ids, self._kept)
        return Auditor(**asdict(self.config))._found(audit_against(pairs, self._kept, self.config))

    def score_samples(
        self,
        images: ArrayLike,
        captions: Sequence[str] | None = None,
        *,
        image_of_caption: ArrayLike | None = None,
        caption_vectors: ArrayLike | None = None,
    ) -> NDArray[np.float64]:
        """Return the scores (pairs,) of new pairs: `judge(...).scores_`."""
        found = self.judge(images, captions, image_of_caption=image_of_caption, caption_vectors=caption_vectors)
        return found.scores_

    def _found(self, audit: Audit) -> "Auditor":
        """Take over what was found."""
        self.audit_ = audit
        found = audit.verdicts
        self.scores_: NDArray[np.float64] = found.score
        self.verdicts_: NDArray[np.str_] = found.names
        self.components_ = found.components
        self.noise_rate_: float | None = self.audit_.summary()["noise_rate"]
        return self

    def suspects(self, top: int | None = None) -> NDArray[np.int64]:
        """Return the pairs that are more likely wrong than right, the worst first, at most `top`.

        Raises:
            InputError: `top` is below 0.
        """
        if top is not None and top < 0:
            raise InputError(f"top must be at least 0, got {top}")
        self._require_fitted()
        flagged = np.flatnonzero(np.isin(self.verdicts_, ("suspect", "mismatch")))
        order: NDArray[np.int64] = flagged[np.argsort(self.scores_[flagged], kind="stable")]
        return order[:top]

    def _require_fitted(self) -> None:
        if not hasattr(self, "audit_"):
            raise InputError("this Auditor has judged no pairs; call fit, or use what judge returns")

    def report(self, path: str | Path) -> Path:
        """Write the page to look at, and return its path.

        Raises:
            InputError: the path is a folder.
        """
        if Path(path).is_dir():
            raise InputError(f"{path}: is a folder; give the file to write, such as {Path(path) / 'report.html'}")
        self._require_fitted()
        write_page(Path(path), self.audit_)
        return Path(path)

    def write(self, folder: str | Path) -> Path:
        """Write all files of an audit and the page into a folder, and return it."""
        self._require_fitted()
        write_audit(Path(folder), self.audit_)
        self.report(Path(folder) / "report.html")
        return Path(folder)


def _matrix(name: str, values: ArrayLike) -> torch.Tensor:
    if isinstance(values, torch.Tensor):
        if values.layout != torch.strided:
            raise InputError(f"{name}: a sparse tensor; expected a dense one, such as its to_dense()")
        values = values.detach().cpu()
        values = values.float() if values.is_floating_point() else values  # NumPy has no bfloat16
    array = np.asarray(values)
    if array.ndim not in (2, 3) or array.dtype.kind not in "fiu":
        raise InputError(f"{name}: {array.dtype} {array.shape}; expected numbers (rows, dim) or (rows, regions, dim)")
    if array.size == 0:
        raise InputError(f"{name}: shape {array.shape}; expected at least one row and one number in it")
    bad = np.flatnonzero(unusable(array))
    if len(bad):
        raise InputError(f"{name}: row {bad[0]} holds {UNUSABLE}")
    found = torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))
    return found.mean(dim=1) if found.ndim == 3 else found


def _pairs(
    config: AuditConfig,
    images: torch.Tensor,
    captions: Sequence[str] | None,
    texts: torch.Tensor | None,
    image_of_caption: ArrayLike | None,
    image_ids: Sequence[str] | None,
    against: Kept | None,
) -> AuditPairs:
    if captions is None and texts is None:
        raise InputError("captions or caption_vectors: expected one of them, got neither")
    words = None if captions is None else _texts(captions)
    count = len(words) if words is not None else len(texts) if texts is not None else 0
    if texts is not None and len(texts) != count:
        raise InputError(f"caption_vectors: {len(texts)} rows; expected one for each of the {count} captions")
    owner = _owners(image_of_caption, count, len(images))
    words = words or [""] * count
    names = [str(row) for row in range(len(images))] if image_ids is None else [str(name) for name in image_ids]
    _require_unicode("image_ids", names)
    if len(names) != len(images):
        raise InputError(f"image_ids: {len(names)}; expected one for each of the {len(images)} images")
    empty = np.array([captions is not None and not text.strip() for text in words], dtype=bool)
    judged = np.flatnonzero(~empty)
    require_pairs(len(judged), fewest=FEWEST if against is None else 1)
    spoken = [words[row] for row in judged.tolist()]
    if against is not None:
        against.require_like(None, texts is not None)
    own = None if texts is None else texts[torch.from_numpy(judged)]
    vectors, tfidf = text_vectors(own, spoken, config.text_dim, against)
    kept, image_of_pair = torch.unique(torch.from_numpy(owner[judged]), return_inverse=True)
    chosen = Vectors(images[kept], vectors, image_of_pair, same_rows(images[kept]))
    require_comparable(chosen, against)
    of_row = [names[image] for image in owner.tolist()]
    return AuditPairs(
        name="pairs",
        images=of_row,
        captions=words,
        columns={"image": of_row, "caption": words},
        judged=judged,
        unjudged=dict.fromkeys(np.flatnonzero(empty).tolist(), EMPTY),
        vectors=chosen,
        same_caption=same_words(spoken) if captions is not None else same_rows(vectors).numpy(),
        words=tfidf,
    )


def _texts(captions: Sequence[str]) -> list[str]:
    if isinstance(captions, str):
        raise InputError(f"captions: one text {captions!r:.60}; expected a list of texts, one for each pair")
    for row, text in enumerate(captions):
        if not isinstance(text, str):
            raise InputError(f"captions: entry {row} is {type(text).__name__} {text!r:.60}; expected text")
    _require_unicode("captions", captions)
    return list(captions)


def _require_unicode(name: str, texts: Sequence[str]) -> None:
    """Raise `InputError` for half of a surrogate pair, which no file can hold."""
    for row, text in enumerate(texts):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"{name}: entry {row} holds half of a surrogate pair, {text[error.start]!r}; expected text"
            ) from None


def _owners(given: ArrayLike | None, count: int, images: int) -> NDArray[np.int64]:
    """Return the image of each caption, (count,)."""
    if given is None:
        if count != images:
            raise InputError(f"{count} captions but {images} images; image_of_caption says which image each belongs to")
        return np.arange(count)
    found = np.asarray(given)
    if found.shape != (count,) or (count and found.dtype.kind not in "iu"):
        raise InputError(
            f"image_of_caption: {found.dtype} {found.shape}; expected a row of `images` for each of {count} captions"
        )
    if count and not 0 <= found.min() <= found.max() < images:
        raise InputError(f"image_of_caption: {found.min()} to {found.max()}; expected 0 to {images - 1}")
    return found.astype(np.int64)
