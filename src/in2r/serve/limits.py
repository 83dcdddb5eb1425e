"""How much a server gives: what its owner may set, and the constants beside, each with its reason."""

from dataclasses import dataclass

MIB = 2**20


@dataclass(frozen=True)
class Limits:
    """What the owner of a server may set.

    Attributes:
        rate: requests a second of one client, on average; 0 = any number.
        searches: searches by text or item that run at the same time; NumPy and FAISS use the cores of one search too.
        image_mib: the largest image that is taken as a query, in MiB.
    """

    rate: float = 20.0
    searches: int = 2
    image_mib: int = 20


BURST_SECONDS = 10
"""A client that was silent may ask as much at once as in so many seconds: a page with its pictures is 30 requests."""
CLIENTS = 10_000
"""addresses whose rates are known at a time; of more, the one that asked the longest ago is forgotten"""
WAITING = 64
"""searches that wait for their turn: some seconds of work; whoever comes later is told to come again"""
UPLOADS = 16
"""images that are received or wait at a time: with 20 MiB each they take 320 MiB"""
PICTURES_WAITING = 512
"""pictures that wait to be made: those of five largest pages"""
RETRY_SECONDS = 1
"""after which a client that was told that the server is busy should come again"""
BODY_SECONDS = 30
"""in which a request's body must have come: 20 MiB at 6 Mbit/s"""
GRACE_SECONDS = 30
"""for which a server that was told to end waits for running requests"""
LOGIN_BYTES = 4096
"""of a request to log in, which holds a token"""
TEXT_LENGTH = 2000
"""characters of a query: more than the longest caption, less than would keep a text encoder busy"""
CONDITIONS = 16
"""conditions on columns in a request"""
PAGE, LARGEST_PAGE = 24, 100
"""items in an answer: by default (2, 3, 4 and 6 columns come out even), and at most"""
FURTHEST = 1000
"""items that a query can reach by paging; nobody looks at more, and their lines are read from the disk each time"""
PICTURE_SIDE = 400
"""pixels: the longest side of a picture, twice as many as the page shows of it in its grid"""
PICTURES_BYTES = 64 * MIB
"""of pictures that are kept in memory: some 3,000 of photographs"""
PICTURE_SECONDS = 3600
"""for which a browser keeps a picture"""
TOKEN_LENGTH = 16
"""characters that a token has at least; `--make-token` makes one of 43 (256 bits)"""
LOGIN_DAYS = 30
"""for which a browser stays logged in"""
