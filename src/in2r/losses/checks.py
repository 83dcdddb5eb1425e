"""What every loss checks of its arguments, and the last step: the reduction."""

from torch import Tensor


def reduce(cost: Tensor, reduction: str) -> Tensor:
    """Return the mean of costs (B,), or the costs themselves for "none"."""
    check_choice("reduction", reduction, ("mean", "none"))
    return cost.mean() if reduction == "mean" else cost


def check_choice(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Raise `ValueError` unless an option has one of the allowed values."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}, got {value!r}")


def check_positive(temperature: float, epsilon: float = 1.0) -> None:
    """Raise `ValueError` unless temperature and epsilon are positive."""
    if not (temperature > 0 and epsilon > 0):
        raise ValueError(f"temperature and epsilon must be positive, got {temperature} and {epsilon}")


def check_square(similarity: Tensor, ignore: Tensor | None) -> None:
    """Raise `ValueError` unless the similarity is (B, B), and `ignore` of its shape."""
    if similarity.ndim != 2 or similarity.shape[0] != similarity.shape[1]:
        raise ValueError(f"similarity must be a square matrix (B, B), got shape {tuple(similarity.shape)}")
    if ignore is not None and ignore.shape != similarity.shape:
        raise ValueError(f"ignore has shape {tuple(ignore.shape)}, similarity {tuple(similarity.shape)}")
