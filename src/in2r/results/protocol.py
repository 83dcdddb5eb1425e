"""The protocol of a figure: everything that decides what it means."""

from datetime import UTC, datetime
from typing import Any

from in2r.config import to_dict
from in2r.data.fingerprint import changed_splits
from in2r.device import device_name
from in2r.results.best import Best, epochs_done
from in2r.runs.folder import RunFolder
from in2r.runs.identity import changed_settings, versions
from in2r.training.setup import Setup


def protocol(folder: RunFolder, setup: Setup, best: Best) -> dict[str, Any]:
    """Describe data, noise, method, training and selection of a run, and where it is looked at now."""
    config, info = setup.config, folder.info()
    done = epochs_done(folder)
    trained_on, now = info["data"]["fingerprint"], setup.source.fingerprint()
    imported = info.get("imported")  # absent from runs of an older in2r
    return {
        "data": {
            "path": info["data"]["path"],
            "fingerprint": now["hash"],
            "fingerprint_in_training": trained_on["hash"],
            "same_as_in_training": not changed_splits(trained_on, now),
            "encoder": setup.source.encoder(),
            "layout": config.data.layout,
            "left_out": now["splits"]["train"].get("left_out"),
            "dev_rule": config.data.dev_rule,
            "captions_as": setup.inputs.text,
            "caption_vectors": config.data.caption_vectors,
            "vocabulary": info["vocabulary"],
            "word_vectors": info["word_vectors"],
        },
        "noise": info["noise"],
        "oracle": config.noise.oracle,
        "changed_settings": changed_settings(info["settings"], config),
        "forced": {"training": info.get("forced", []), "now": list(setup.changes)},
        "method": info["method"],
        "method_config": to_dict(config.method) if imported is None else imported["options"],
        "method_file": info["method_file"],
        "seed": info["seed"],
        "epochs": config.train.epochs,
        "finished": done >= config.train.epochs,
        "epochs_done": done,
        "steps_per_network": steps_per_network(folder),
        "imported": imported,
        "selection": best.record() | ({} if imported is None else {"rule": "by the repository"}),
        "trained": {key: info[key] for key in ("created", "versions", "device", "device_name", "threads")},
        "versions": versions(),
        "device": str(setup.device),
        "device_name": device_name(setup.device),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def steps_per_network(folder: RunFolder) -> dict[str, int]:
    """Return the optimiser steps of each network over all epochs so far."""
    total: dict[str, int] = {}
    for record in folder.records():
        for name, steps in record["steps"].items():
            total[name] = total.get(name, 0) + int(steps)
    return total
