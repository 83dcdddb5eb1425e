"""What a prototype knows: is it a better teacher than the query itself? `python benchmarks/prototypes.py RUN...`

For 1,000 mismatched pairs of a finished IN²R run, the image asks for one of its own captions (the truth, from the
noise index) among those of the 1,000 images. Asked are the image's embedding, which is what the network knows by
itself, and prototypes from the peer's memory, which is what rectification teaches it. A teacher that finds less than
its pupil has nothing to teach. The memory is filled anew, as before a run's first epoch of the main phase.
"""

import argparse
import sys
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import normalize

from in2r.errors import InputError
from in2r.memory import Neighbors
from in2r.methods import Net, Now, build_method
from in2r.models.encode import encode_images, encode_texts
from in2r.results.best import load_best
from in2r.runs.folder import RunFolder
from in2r.training.division import observe_pairs
from in2r.training.train import reopen

QUERIES = 1000


def found(queries: Tensor, answers: Tensor, images: Tensor) -> str:
    """R@1 and R@10 in percent, answer i being right for query i; other captions of the same image do not count."""
    scores = queries @ answers.T
    same = images[:, None] == images[None, :]
    scores = scores.masked_fill(same & ~torch.eye(len(images), dtype=torch.bool), -torch.inf)
    rank = (scores > scores.diagonal()[:, None]).sum(1)
    return f"{100 * (rank < 1).float().mean():.1f} | {100 * (rank < 10).float().mean():.1f}"


def prototype(near: Neighbors, temperature: float = torch.inf) -> Tensor:
    """The neighbours' texts (Q, K, D), weighted by softmax(cosine / temperature), as one unit vector."""
    scores = (near.scores / temperature).masked_fill(near.scores.isneginf(), -torch.inf)  # places left empty
    return normalize((near.texts * torch.softmax(scores, 1)[..., None]).sum(1), dim=-1)


def measure(folder: RunFolder, k: int) -> list[str]:
    """Return table rows: the query itself, and prototypes."""
    setup = reopen(folder, device="cpu")
    data, config = setup.training_data(), setup.config
    method = build_method(config.method, config.partition)
    if setup.noise is None or not method.looks_up:
        raise InputError(f"{folder.path}: expected a run of in2r with injected noise")
    parts = config.model.dim, len(data.pairs), config.train.batch_size
    best = load_best(folder, setup).backbones
    nets = {name: Net(backbone, method.own(*parts)) for name, backbone in best.items()}
    seen = {name: observe_pairs(method.observe, net, data, config, name, 0) for name, net in nets.items()}
    division = method.divide(seen, nets, data, Now(0, 1, config.train.seed))["A"]
    memory = nets["B"].own.memory  # A's steps ask B's memory
    if memory is None or len(memory) < k:
        raise InputError(f"{folder.path}: its memory holds fewer than {k} pairs")
    generator = torch.Generator().manual_seed(0)

    def some(pairs: Tensor, count: int) -> Tensor:
        return pairs[torch.randperm(len(pairs), generator=generator)[:count]]

    own, given = torch.as_tensor(setup.train.image_of_caption), data.image_of_pair
    image = given[some(torch.nonzero((division.sets == 1) & (own != given)).flatten(), QUERIES)]
    answer = torch.stack([some(torch.nonzero(own == wanted).flatten(), 1)[0] for wanted in image.tolist()])
    query = encode_images(best["A"], data.images, setup.device, image).vector
    near = memory.nearest(query, k, by="image")
    others = memory.nearest(query, k, by="image", exclude_groups=image)
    weighted = prototype(near, 0.05)
    rows = {
        "the query image itself": query,
        f"mean of its {k} nearest": prototype(near),
        "the same, none from its own image": prototype(others),
        "weighted by softmax(cosine / 0.05)": weighted,
        "half the query, half the weighted": normalize(query + weighted, dim=-1),
    }
    known = torch.isin(image, memory.entries()[3]).float().mean()
    print(f"{folder.path.name}: {100 * known:.0f} % of the queries' images are in the memory")
    answers = encode_texts(best["A"], data.texts, setup.device, answer).vector
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
