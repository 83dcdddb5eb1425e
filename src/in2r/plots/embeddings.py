"""Two runs' embeddings as t-SNE maps, each with the figures that a map cannot prove."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from in2r.data.noise import describe_noise
from in2r.errors import InputError
from in2r.plots import style
from in2r.results.embeddings import NEIGHBORS, Embeddings, describe_embeddings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PERPLEXITY = 30.0
IMAGE, TEXT = style.LINES[2].color, style.LINES[1].color
EQUAL = 1e-6
"""spread of embeddings below which all of them are the same point"""


def draw_embeddings(figure: "Figure", first: Embeddings, second: Embeddings) -> None:
    """Draw both runs side by side, the figures below each.

    Args:
        figure: an empty one, from `style.canvas`.
        first: sample of one run.
        second: sample of another run, on the same split of the same data.

    Raises:
        InputError: the data differ, so that the samples hold different pairs.
    """
    for key in ("fingerprint", "split"):
        if first.about[key] != second.about[key]:
            raise InputError(
                f"runs on different data ({first.about['data']}, {second.about['data']}): their embeddings are not "
                "of the same pairs"
            )
    axes = style.panels(figure, 2, 2, 3.9)
    for panel, sample in zip(axes, (first, second), strict=True):
        _panel(panel, sample)
    _legend(figure)
    style.caption(figure, _caption(first, second))


def _caption(first: Embeddings, second: Embeddings) -> str:
    about = first.about
    return (
        f"t-SNE (perplexity {PERPLEXITY:g}, started from the principal components) of {len(first.images)} pairs of the "
        f"{about['split']} split of {about['data']} (the split's fingerprint: {about['fingerprint'][:12]}), the same "
        "for both runs, in the ensemble's space; axes and distances between far groups have no meaning. The figures "
        "are taken in the space itself: cosine distances, 0 to 2; neighbourhood overlap: of the "
        f"{NEIGHBORS} images nearest to an image, the share whose texts are among the {NEIGHBORS} nearest to its text. "
        f"{_describe(about)}; {_describe(second.about)}."
    )


def _panel(axes: "Axes", sample: Embeddings) -> None:
    axes.set_title(f"{sample.about['run']} (dev rSum {sample.about['dev_rsum']:.1f})")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(True)
    axes.set_xlabel(_figures(sample), fontsize=8, labelpad=6)
    points = project(np.concatenate([sample.images.numpy(), sample.texts.numpy()]))
    if points is None:
        axes.text(0.5, 0.5, "collapsed: all embeddings are equal", transform=axes.transAxes, ha="center")
        return
    images, texts = np.split(points, 2)
    links = np.stack([images, texts], axis=1)
    axes.plot(links[..., 0].T, links[..., 1].T, color="0.75", linewidth=0.4, zorder=1)
    axes.scatter(images[:, 0], images[:, 1], s=7, marker="o", color=IMAGE, linewidths=0, zorder=2)
    axes.scatter(
        texts[:, 0], texts[:, 1], s=11, marker="^", facecolors="none", edgecolors=TEXT, linewidths=0.6, zorder=3
    )


def _figures(sample: Embeddings) -> str:
    found = describe_embeddings(sample.images, sample.texts)
    return (
        f"mean distance: same pair {found['same_pair']:.3f}, other pairs {found['other_pair']:.3f}\n"
        f"neighbourhood overlap {found['overlap']:.3f} (by chance {found['overlap_by_chance']:.3f})"
    )


def project(vectors: NDArray[np.float32]) -> NDArray[np.float32] | None:
    """Return a t-SNE map (n, 2) of unit vectors (n, D), the same each time; None where all vectors are equal."""
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    if vectors.std(axis=0).max() < EQUAL:
        return None
    perplexity = min(PERPLEXITY, (len(vectors) - 1) / 3)
    with threadpool_limits(1):  # sums over threads end in another order each time
        found: NDArray[np.float32] = TSNE(perplexity=perplexity, init="pca", random_state=0).fit_transform(vectors)
    return found


def _describe(about: dict[str, Any]) -> str:
    forced = f", FORCED in spite of {' and '.join(about['forced'])}" if about["forced"] else ""
    run = f"{about['run']}: {about['method']}, seed {about['seed']}, epoch {about['epoch']}"
    return f"{run}, {describe_noise(about['noise'])}{forced}"


def _legend(figure: "Figure") -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=IMAGE, linestyle="none", marker="o", label="image"),
        Line2D([], [], color=TEXT, linestyle="none", marker="^", markerfacecolor="none", label="text"),
        Line2D([], [], color="0.75", linewidth=0.8, label="pair"),
    ]
    style.legend(figure, handles)
