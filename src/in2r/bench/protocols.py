"""What a record must hold, and what must be equal before two figures may be compared."""

from collections.abc import Iterable, Mapping
from typing import Any

NOISE = {"level": str, "nominal": (float, None), "realised": float, "sha256": str}
_RECALLS = {f"{way}_r{k}": float for way in ("i2t", "t2i") for k in (1, 5, 10)}
RESULT = {
    "chance?": {"rsum": float},  # an older in2r had no word of it
    "rows": {name: {**_RECALLS, "rsum": float, str: float} for name in ("A", "B", "ensemble")},
    "protocol": {
        "data": {
            **dict.fromkeys(("path", "fingerprint", "fingerprint_in_training", "captions_as", "dev_rule"), str),
            "caption_vectors": (str, None),
        },
        "noise": (NOISE, None),
        "forced?": {"training": [str], "now": [str]},  # an older in2r had no word of it
        "changed_settings?": [str],
        "finished": bool,
        "epochs_done": int,
        "steps_per_network": {"A": int, "B": int},
        "selection": {"rule": str, "epoch": int},
        "trained": {
            "created": str, "versions": {str: str}, "device": str, "device_name": (str, None), "threads": int,
        },
        "date": str,
        "evaluated": {
            "split": str, "images": int, "captions": int, "folds": int, "tie_rule": str,
            "duplicates?": {"counted_as": str, "images": int, "captions": int},
        },
    },
}  # fmt: skip
"""The form of a result, as far as tables and figures read it; see `form.require_form`."""


def shared_protocol(protocol: Mapping[str, Any]) -> dict[str, Any]:
    """Return what runs of any seed must agree in: noise, candidates, selection, data, as plain values.

    Args:
        protocol: as a result has it. The steps, the method and its settings are what is compared; they are left out.
    """
    noise, data, evaluated = protocol["noise"], protocol["data"], protocol["evaluated"]
    ratio = None if noise is None else noise["nominal"]
    if noise is not None and ratio is None:  # an index file that does not say what it was drawn for
        ratio = round(noise["realised"], 2)
    return {
        "noise_level": None if noise is None else noise["level"],
        "noise_ratio": ratio,
        **{name: evaluated[name] for name in ("split", "images", "captions", "folds", "tie_rule")},
        # an older in2r knew one way of counting only
        "duplicates": evaluated.get("duplicates", {"counted_as": "wrong"})["counted_as"],
        "selection": protocol["selection"]["rule"],
        **{
            name: data[name]
            for name in ("fingerprint", "fingerprint_in_training", "captions_as", "caption_vectors", "dev_rule")
        },
    }


def forced(protocol: Mapping[str, Any]) -> list[str]:
    """Return in spite of which changes of data or settings a run was trained or tested."""
    found = protocol.get("forced", {})
    return [change for changes in found.values() for change in changes]


def seed_noise(protocol: Mapping[str, Any]) -> tuple[str, float] | None:
    """Return the hash and the realised ratio of a run's noise index, which runs of one seed must agree in."""
    noise = protocol["noise"]
    return None if noise is None else (noise["sha256"], noise["realised"])


def agree(some: Mapping[int, Any], others: Mapping[int, Any]) -> bool:
    """Say whether two mappings from seed to protocol say nothing different of any seed, and are alike over seeds.

    Args:
        some: seed → the protocol of a run.
        others: the same of other runs.
    """
    shared = [shared_protocol(protocol) for protocol in (*some.values(), *others.values())]
    seeds = some.keys() & others.keys()
    return all(entry == shared[0] for entry in shared) and all(
        seed_noise(some[seed]) == seed_noise(others[seed]) for seed in seeds
    )


def describe(protocols: Mapping[int, Mapping[str, Any]]) -> str:
    """Say in a line what runs of one protocol have in common, with the index of every seed."""
    seeds = sorted(protocols)
    first = protocols[seeds[0]]
    shared = shared_protocol(first)
    folds = "all at once" if shared["folds"] == 1 else f"mean of {shared['folds']} folds"
    vectors = f" ({shared['caption_vectors']})" if shared["caption_vectors"] else ""
    trained = shared["fingerprint_in_training"]
    copies = ", copies of the right item count as right" if shared["duplicates"] == "right" else ""
    other = "" if trained == shared["fingerprint"] else f", TRAINED ON OTHER DATA {trained[:12]}"
    return "; ".join(
        [
            _noise({seed: protocols[seed] for seed in seeds}),
            f"{shared['split']} split, {shared['images']:,} images, {shared['captions']:,} captions, {folds}{copies}",
            f"data {first['data']['path']} {shared['fingerprint'][:12]}{other}",
            f"captions as {shared['captions_as']}{vectors}",
            f"dev rule {shared['dev_rule']}",
            f"selection: {shared['selection'].replace(';', ',')}",
        ]
    )


def _noise(protocols: Mapping[int, Mapping[str, Any]]) -> str:
    found = {seed: protocol["noise"] for seed, protocol in protocols.items()}
    first = next(iter(found.values()))
    if first is None:
        return "no injected noise"
    ratio = shared_protocol(next(iter(protocols.values())))["noise_ratio"]
    index = ", ".join(f"{noise['sha256'][:12]} (seed {seed})" for seed, noise in found.items())
    realised = _range(noise["realised"] for noise in found.values())
    return f"{first['level']}-level noise {ratio:g} (realised {realised}), index {index}"


def _range(values: Iterable[float]) -> str:
    texts = sorted({f"{value:.4f}" for value in values})
    return texts[0] if len(texts) == 1 else f"{texts[0]} to {texts[-1]}"
