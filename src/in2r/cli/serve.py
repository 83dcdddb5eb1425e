"""`in2r serve`: search an index by a page or by HTTP."""

import argparse
import math

from rich.console import Console

from in2r.cli.paths import name_or_path, path_argument
from in2r.errors import InputError

EXAMPLES = """\
examples:
  in2r serve myindex
                        then open http://127.0.0.1:8017
  in2r serve myindex mycaptions
                        images and captions in one page
  in2r serve myindex --host 0.0.0.0 --make-token
                        for other machines; prints a new token once
  in2r serve myindex --host 0.0.0.0 --token-file token.txt
  curl 'http://127.0.0.1:8017/api/search?q=two+dogs&k=5'

Only this machine is answered unless --host says otherwise, and then a token is
needed. ^C or SIGTERM ends it: running requests are answered, the status is 0.
"""


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the verb."""
    parser = subparsers.add_parser(
        "serve",
        help="search an index by a page with pictures, or by HTTP",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "indexes", type=name_or_path, nargs="+", metavar="INDEX",
        help="made by `in2r index`, a folder or a URL: one of images, one of captions, or both",
    )  # fmt: skip
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at; default: 127.0.0.1, this machine")
    parser.add_argument("--port", type=int, default=8017, help="0 = any free one; default: 8017")
    parser.add_argument(
        "--pictures", type=path_argument, metavar="FOLDER",
        help="pictures, found by the images' names; default: as the indexed data say",
    )  # fmt: skip
    token = parser.add_argument_group("who may ask").add_mutually_exclusive_group()
    token.add_argument(
        "--token-file", type=path_argument, metavar="FILE",
        help="what clients must show; default: the environment's IN2R_TOKEN",
    )  # fmt: skip
    token.add_argument("--make-token", action="store_true", help="make a token, and print it once")
    limits = parser.add_argument_group("limits")
    limits.add_argument(
        "--rate", type=float, default=20.0, metavar="R", help="requests a second of one client; 0 = any; default: 20"
    )
    limits.add_argument("--searches", type=int, default=2, metavar="N", help="searches at the same time; default: 2")
    limits.add_argument(
        "--image-mib", type=int, default=20, metavar="M", help="the largest image as a query, in MiB; default: 20"
    )
    limits.add_argument("--proxy", action="store_true", help="a proxy on this machine says who the client is")
    parser.add_argument("--model", type=path_argument, metavar="MODEL", help="where the model is now")
    parser.add_argument("--encoder", metavar="KIND:NAME", help="where the encoder of texts or images is now")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, mps; default: auto")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve until told to end."""
    from in2r.search.index import Index
    from in2r.serve import Limits, serve
    from in2r.serve.run import require_fastapi
    from in2r.serve.token import make_token, read_token

    require_fastapi()
    for name, least in (("rate", 0), ("searches", 1), ("image_mib", 1)):
        if not least <= getattr(args, name) < math.inf:
            raise InputError(f"--{name.replace('_', '-')} is {getattr(args, name)}; expected {least} or more")
    token = make_token() if args.make_token else read_token(args.token_file)
    indexes = [Index.open(path, model=args.model, encoder=args.encoder, device=args.device) for path in args.indexes]

    def say(address: str, lines: list[str]) -> None:
        console = Console()
        for line in lines:
            console.print(line, markup=False, highlight=False, soft_wrap=True)
        page = f"{address}/#token={token}" if args.make_token else address
        console.print(f"open {page}", markup=False, highlight=False, soft_wrap=True)
        console.file.flush()  # whoever started this reads where it is

    serve(
        indexes, host=args.host, port=args.port, token=token, pictures=args.pictures, proxy=args.proxy,
        limits=Limits(args.rate, args.searches, args.image_mib), started=say,
    )  # fmt: skip
    return 0
