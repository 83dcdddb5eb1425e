"""What a prototype knows: is it a better teacher than the query itself? `python benchmarks/prototypes.py RUN...`

For 1,000 mismatched pairs of a finished IN²R run, the image asks for one of its own captions (the truth, from the
noise index) among those of the 1,000 images. Asked are the image's embedding, which is what the network knows by
itself, and prototypes from the peer's memory, which is what rectification teaches it. A teacher that finds less than
its pupil has nothing to teach. The memory is filled anew: the newest of the elite pairs in a shuffled order.
"""

import argparse
import sys
from pathlib import Path

import torch
from in2r.training.scoring import judge_pairs, score_pairs
from torch import Tensor
from torch.nn.functional import normalize

from in2r.errors import InputError
from in2r.methods import build_method
from in2r.models.encode import encode_images, encode_texts
from in2r.results.best import load_best
from in2r.runs.folder import RunFolder
from in2r.training.train import reopen

QUERIES = 1000


def found(queries: Tensor, answers: Tensor, images: Tensor) -> str:
    """R@1 and R@10 in percent, answer i being right for query i; other captions of the same image do not count."""
    scores = queries @ answers.T
    same = images[:, None] == images[None, :]
    scores = scores.masked_fill(same & ~torch.eye(len(images), dtype=torch.bool), -torch.inf)
    rank = (scores > scores.diagonal()[:, None]).sum(1)
    return f"{100 * (rank < 1).float().mean():.1f} | {100 * (rank < 10).float().mean():.1f}"


def measure(folder: RunFolder, k: int) -> list[str]:
    """Return table rows: the query itself, and prototypes."""
    setup = reopen(folder)
    if setup.noise is None:
        raise InputError(f"{folder.path}: no noise was injected, so no pair is known to be mismatched")
    data, config = setup.training_data(), setup.config
    method = build_method(config.method, len(data.pairs))
    own, given = torch.as_tensor(setup.train.image_of_caption), data.image_of_pair
    judged, v, u = {}, {}, {}
    for name, encoder in load_best(folder, setup).encoders.items():
        losses = score_pairs(encoder, data, method.sample_losses, config.partition, config.train.seed)
        judged[name] = judge_pairs(losses, data.pairs, len(own), config.partition).partition
        v[name] = encode_images(encoder, data.images, setup.device).cpu()
        u[name] = encode_texts(encoder, data.texts, setup.device).cpu()
    generator = torch.Generator().manual_seed(0)

    def some(pairs: Tensor, count: int) -> Tensor:
        return pairs[torch.randperm(len(pairs), generator=generator)[:count]]

    # network A asks B's memory, which was filled from the partition that A made; A trains on the one that B made
    memory = some(torch.nonzero(judged["A"].elite).flatten(), method.memory_size or len(own))
    queries = some(torch.nonzero(~judged["B"].clean & (own != given)).flatten(), QUERIES)
    if len(queries) == 0:
        raise InputError(f"{folder.path}: no mismatched pair counts as noisy, so none is rectified")
    image = given[queries]
    answer = torch.stack([some(torch.nonzero(own == wanted).flatten(), 1)[0] for wanted in image.tolist()])
    scores = v["A"][image] @ v["B"][given[memory]].T
    mine = given[memory][None, :] == image[:, None]
    known = mine.any(1)

    def prototype(scores: Tensor, temperature: float | None = None) -> Tensor:
        best, entry = scores.topk(k)
        weight = torch.full_like(best, 1 / k) if temperature is None else torch.softmax(best / temperature, 1)
        return normalize((u["B"][memory[entry]] * weight[..., None]).sum(1), dim=-1)

    weighted = prototype(scores, 0.05)
    rows = {
        "the query image itself": v["A"][image],
        f"mean of its {k} nearest": prototype(scores),
        "the same, none from its own image": prototype(scores.masked_fill(mine, -torch.inf)),
        "weighted by softmax(cosine / 0.05)": weighted,
        "half the query, half the weighted": normalize(v["A"][image] + weighted, dim=-1),
    }
    answers = u["A"][answer]
    print(f"{folder.path.name}: {100 * known.float().mean():.0f} % of the queries' images are in the memory")
    return [f"| {name} | {found(asked, answers, image)} |" for name, asked in rows.items()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="finished runs with injected noise")
    parser.add_argument("--neighbors", type=int, default=5, metavar="K", help="neighbours of a prototype; default: 5")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for run in args.runs:
        try:
            rows = measure(RunFolder(run), args.neighbors)
        except InputError as error:
            print(error, file=sys.stderr)
            return 2
        print("\n".join(["| asked | R@1 | R@10 |", "| --- | --- | --- |", *rows]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
