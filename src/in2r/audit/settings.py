"""The settings of an audit."""

from dataclasses import dataclass
from typing import Literal

from in2r.config import key


@dataclass(frozen=True)
class AuditConfig:
    """What an audit decides by; each key with its reason."""

    seed: int = key(0, "of folds, references and pairs mismatched on purpose", low=0)
    evidence: Literal["all", "own similarity", "lemon"] = key("all", "one kind alone serves as a baseline: the linear "
        "maps, or LEMoN's fixed setting; all together are at least as good")  # fmt: skip
    folds: int = key(6, "parts of the images; the linear maps that judge a part are fitted on the others", low=2)
    ridge: float = key(0.3, "share of the mean variance that is added to each; 0.1 to 1 differ little", above=0)
    rounds: int = key(2, "passes; from the second on, pairs count as far as the pass before believed them", low=1)
    neighbors: int = key(50, "reference pairs asked about each image and each caption", low=1)
    temperature: float = key(0.1, "of cosines: at 0.1 less, a neighbour's word counts a third as much", above=0)
    references: int = key(20_000, "pairs that may be asked, drawn if there are more; bounds the cost", low=2)
    strangers: int = key(1000, "random pairs that each pair is compared with", low=1)
    lead_temperature: float = key(0.05, "of similarities to strangers; 0.02 to 0.1 differ little", above=0)
    siblings: int = key(16, "other captions of the image that are asked, drawn if there are more", low=1)
    mismatched: int = key(10_000, "pairs of each kind that are mismatched on purpose", low=100)
    draws: int = key(20, "draws of the images for the interval of the noise rate", low=2)
    text_dim: int = key(300, "width of TF-IDF vectors, where captions have no vectors of their own", low=1)
    cut: float = key(0.5, "score below which a pair is a suspect: it is more likely wrong than right", low=0, high=1)
    sure: float = key(0.1, "score below which it is called a mismatch: nine of ten such pairs are wrong", low=0, high=1)
    vague: float = key(0.2, "share of random images that fit as well as its own, above which a caption is vague",
        above=0, high=1)  # fmt: skip
