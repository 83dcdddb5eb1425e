"""What a method returns, checked where the engine takes it: a mistake is one line that names the method."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from torch import Tensor

from in2r.errors import MethodError
from in2r.methods import Division, Step


def require_steps(found: Any, method: str) -> Iterable[Any]:
    """Refuse what yields no steps."""
    if not isinstance(found, Iterable):
        raise MethodError(f"method {method}: steps() must yield steps (`yield Step(...)`), it returned {_what(found)}")
    return found


def require_step(step: Any, optimizers: Collection[str], method: str) -> Step:
    """Refuse a step that no optimiser can take; nothing here waits for the device."""
    if not isinstance(step, Step):
        raise MethodError(f"method {method}: steps() must yield `Step`, got {_what(step)}")
    if step.of not in optimizers:
        raise MethodError(f"method {method}: a step of {step.of!r}; there is an optimiser of {', '.join(optimizers)}")
    if "total" not in step.losses:
        raise MethodError(f"method {method}: a step has no loss `total`; it has {', '.join(step.losses) or 'none'}")
    for name, loss in step.losses.items():
        if not isinstance(loss, Tensor) or loss.ndim:
            raise MethodError(f"method {method}: loss `{name}` must be a tensor of one number, got {_what(loss)}")
    for name, note in step.notes.items():
        if (note.ndim > 0) if isinstance(note, Tensor) else not _is_figure(note):
            raise MethodError(f"method {method}: note `{name}` must be one number, got {_what(note)}")
    if not step.losses["total"].requires_grad:
        raise MethodError(f"method {method}: loss `total` has no gradient; it does not depend on the network")
    return step


def require_observed(found: Any, pairs: int) -> Mapping[str, Tensor]:
    """Refuse observations that are not a number per pair; None is none."""
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise MethodError(f"the method's observe() must return names with tensors, got {_what(found)}")
    for name, values in found.items():
        if not isinstance(values, Tensor) or values.shape != (pairs,):
            raise MethodError(
                f"the method's observe() must return `{name}` of shape ({pairs},), one per pair; got {_what(values)}"
            )
    return found


def require_divisions(found: Any, networks: Iterable[str], pairs: int, method: str) -> dict[str, Division]:
    """Refuse divisions that are not one per network, or whose sets or columns are not of all training pairs."""
    if not isinstance(found, Mapping):
        raise MethodError(f"method {method}: divide() must return network → `Division`, got {_what(found)}")
    for name in networks:
        division = found.get(name)
        if not isinstance(division, Division):
            raise MethodError(
                f"method {method}: divide() must return a `Division` of network {name}, got {_what(division)}"
            )
        images = {} if division.images is None else {"images": division.images}
        for what, values in {"sets": division.sets, **images, **division.columns}.items():
            if not isinstance(values, Tensor) or len(values) != pairs:
                raise MethodError(
                    f"method {method}: divide() must return `{what}` with a row for each of the {pairs} training "
                    f"pairs, got {_what(values)}"
                )
        for what, value in division.figures.items():
            if not _is_figure(value):
                raise MethodError(f"method {method}: figure `{what}` of divide() must be a number, got {_what(value)}")
    return dict(found)


def _is_figure(value: Any) -> bool:
    return value is None or isinstance(value, (int, float))


def _what(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return "nothing" if value is None else f"{type(value).__name__} {value!r}"[:80]
