"""Captions of scenes: what a person might say of a picture, seldom all of it, in 6 to 24 words.

A caption picks one to three of the things in view (alike ones are named together), leaves attributes out, and
says some of: where a thing is, how two lie to each other, what the background is.
"""

import random
from dataclasses import dataclass

from in2r.demo.drawing import SIDE, Scene, Thing, overlap

WORDS = (6, 24)  # fewest and most words of a caption

# (singular, plural); the first is the usual one
NOUNS = {
    "ball": (("ball", "balls"), ("circle", "circles"), ("disc", "discs")),
    "box": (("square", "squares"), ("box", "boxes"), ("block", "blocks")),
    "triangle": (("triangle", "triangles"), ("pyramid", "pyramids"), ("wedge", "wedges")),
    "diamond": (("diamond", "diamonds"), ("kite", "kites"), ("rhombus", "rhombuses")),
    "star": (("star", "stars"), ("five-pointed star", "five-pointed stars")),
    "heart": (("heart", "hearts"), ("heart shape", "heart shapes")),
    "ring": (("ring", "rings"), ("hoop", "hoops"), ("donut", "donuts")),
    "cross": (("cross", "crosses"), ("plus sign", "plus signs")),
    "moon": (("moon", "moons"), ("crescent", "crescents"), ("half moon", "half moons")),
    "house": (("house", "houses"), ("hut", "huts"), ("cottage", "cottages")),
    "fish": (("fish", "fish"), ("goldfish", "goldfish")),
    "flower": (("flower", "flowers"), ("blossom", "blossoms"), ("daisy", "daisies")),
}
VAGUE = (("thing", "things"), ("shape", "shapes"), ("object", "objects"))
COLOUR_WORDS = {
    "red": ("red", "red", "bright red", "crimson"),
    "orange": ("orange",),
    "yellow": ("yellow", "yellow", "golden"),
    "green": ("green",),
    "blue": ("blue", "blue", "dark blue"),
    "purple": ("purple", "purple", "violet"),
    "pink": ("pink", "pink", "rosy"),
    "brown": ("brown",),
    "black": ("black", "black", "dark"),
    "white": ("white", "white", "pale"),
    "turquoise": ("turquoise", "teal"),
}
SIZE_WORDS = {
    "small": ("small", "small", "little", "tiny"),
    "medium": ("medium-sized", "mid-sized"),
    "large": ("large", "big", "big", "huge"),
}
TEXTURE_WORDS = {  # before the noun, and after it
    "plain": (("plain",), ("in one colour",)),
    "striped": (("striped", "stripy"), ("with stripes",)),
    "dotted": (("dotted", "spotted"), ("with dots", "with light spots")),
    "checkered": (("checkered", "checked"), ("with a checkered pattern", "with checks")),
}
BACKGROUND_WORDS = {
    "sky": ("in the sky", "in front of a blue sky", "among the clouds", "against a cloudy sky"),
    "grass": ("on the grass", "on a green lawn", "in a meadow", "over green grass"),
    "sand": ("on the sand", "on a sandy beach", "in the desert", "on yellow sand"),
    "wall": ("on a brick wall", "in front of a wall", "against the bricks", "on a wall of bricks"),
    "night": ("at night", "in the night sky", "under the stars", "in the dark"),
    "water": ("on the water", "in the sea", "over the waves", "in blue water"),
    "snow": ("in the snow", "on white snow", "against the pale snow", "on snow"),
    "wood": ("on a wooden floor", "on the planks", "on a table of wood", "on wooden boards"),
}
RELATION_WORDS = {
    "left": ("to the left of", "left of", "on the left side of"),
    "right": ("to the right of", "right of", "on the right side of"),
    "above": ("above", "over", "higher up than"),
    "below": ("below", "under", "beneath"),
    "behind": ("behind", "partly hidden by", "half covered by"),
    "front": ("in front of", "partly covering", "overlapping"),
    "near": ("next to", "near", "close to", "beside"),
    "far": ("far from", "away from", "apart from"),
}
_NEVER_FIRST = (
    "left of",
    "right of",
    "higher up than",
    "partly hidden by",
    "half covered by",
    "partly covering",
    "overlapping",
)
_VERBS = (("is", "are"), ("lies", "lie"), ("can be seen", "can be seen"), ("sits", "sit"))
_NUMBERS = ("no", "one", "two", "three", "four")
_COLUMNS = ("left", "middle", "right")
_ROWS = ("top", "middle", "bottom")


@dataclass(frozen=True)
class Mention:
    """One thing, or alike ones named together."""

    things: tuple[Thing, ...]
    depth: int  # place of the first one from back to front

    @property
    def x(self) -> float:
        """Mean column of the centres."""
        return sum(thing.x for thing in self.things) / len(self.things)

    @property
    def y(self) -> float:
        """Mean row of the centres."""
        return sum(thing.y for thing in self.things) / len(self.things)

    def be(self, singular: str, plural: str) -> str:
        """Return the verb in this mention's number."""
        return singular if len(self.things) == 1 else plural


def caption_scene(scene: Scene, count: int, rng: random.Random) -> list[str]:
    """Return `count` captions of a scene; they differ from each other unless forty tries find no new one."""
    captions: list[str] = []
    for _ in range(count):
        for _ in range(40):
            caption = _caption(scene, rng)
            if caption not in captions:
                break
        captions.append(caption)
    return captions


def _caption(scene: Scene, rng: random.Random) -> str:
    while True:
        words = _sentence(scene, rng).split()
        if WORDS[0] <= len(words) <= WORDS[1]:
            break
    text = " ".join(words).replace(" ,", ",")
    return text[0].upper() + text[1:] + rng.choice((".", ".", ""))


def _sentence(scene: Scene, rng: random.Random) -> str:
    mentions = _mentions(scene)
    rng.shuffle(mentions)
    told = min(len(mentions), rng.choices((1, 2, 3), (4, 36, 60))[0])
    form = (_one, _two, _three)[told - 1]
    where = rng.choice(BACKGROUND_WORDS[scene.background]) if rng.random() < 0.8 else ""
    return form(rng, mentions, where)


def _mentions(scene: Scene) -> list[Mention]:
    """Group alike things, in the order of the scene."""
    groups: dict[tuple[str, ...], list[Thing]] = {}
    for thing in scene.things:
        groups.setdefault(thing.look, []).append(thing)
    return [Mention(tuple(things), scene.things.index(things[0])) for things in groups.values()]


def _name(rng: random.Random, mention: Mention) -> str:
    """Return a noun phrase such as 'two small red stars with dots'; attributes are left out at random."""
    thing = mention.things[0]
    nouns = VAGUE if rng.random() < 0.05 else NOUNS[thing.kind]
    noun = nouns[0] if rng.random() < 0.5 else rng.choice(nouns)
    size = rng.choice(SIZE_WORDS[thing.size]) if rng.random() < (0.12 if thing.size == "medium" else 0.6) else ""
    colour = rng.choice(COLOUR_WORDS[thing.colour]) if rng.random() < 0.92 else ""
    before, after = "", ""
    if rng.random() < (0.08 if thing.texture == "plain" else 0.75):
        side = 0 if rng.random() < 0.65 else 1
        texture = rng.choice(TEXTURE_WORDS[thing.texture][side])
        before, after = (texture, "") if side == 0 else ("", texture)
    traits = [size, colour, before] if rng.random() < 0.75 else [size, before, colour]
    head = " ".join(word for word in (*traits, noun[len(mention.things) > 1], after) if word)
    return f"{_determiner(rng, mention, head)} {head}"


def _determiner(rng: random.Random, mention: Mention, head: str) -> str:
    if len(mention.things) > 1:
        number = ("two", "three", "four", "five")[len(mention.things) - 2]
        return rng.choice((number, number, "some" if len(mention.things) > 2 else "a pair of"))
    if rng.random() < 0.08:
        return "one"
    return "an" if head[0] in "aeiou" else "a"


def _place(rng: random.Random, mention: Mention) -> str:
    """Return where in the picture a mention is, by thirds."""
    column, row = _COLUMNS[int(mention.x * 3 // SIDE)], _ROWS[int(mention.y * 3 // SIDE)]
    if column == row:  # both the middle
        return rng.choice(("in the middle", "in the centre of the picture", "in the centre"))
    if row == "middle":
        return rng.choice((f"on the {column}", f"at the {column} edge", f"on the {column} side"))
    if column == "middle":
        return rng.choice((f"at the {row}", f"near the {row}", f"at the {row} of the picture"))
    return rng.choice((f"in the {row} {column} corner", f"at the {row} {column}", f"on the {column}", f"at the {row}"))


def _relation(rng: random.Random, a: Mention, b: Mention) -> str:
    """Return words for how `a` lies to `b`: which covers the other, else the clearer axis, else how far."""
    across, down = a.x - b.x, a.y - b.y
    if len(a.things) == len(b.things) == 1 and overlap(a.things[0], b.things[0]) > 0.1:
        kind = "behind" if a.depth < b.depth else "front"
    elif abs(across) > 1.3 * abs(down) + 8:
        kind = "left" if across < 0 else "right"
    elif abs(down) > 1.3 * abs(across) + 8:
        kind = "above" if down < 0 else "below"
    else:
        kind = "near" if abs(across) + abs(down) < 60 else "far"
    return rng.choice(RELATION_WORDS[kind])


def _one(rng: random.Random, mentions: list[Mention], where: str) -> str:
    a, place = _name(rng, mentions[0]), _place(rng, mentions[0])
    be, lie = mentions[0].be("is", "are"), mentions[0].be(*rng.choice(_VERBS))
    others = len(mentions) - 1
    rest = rng.choice(("and something else", "among other things", f"and {_NUMBERS[others]} other kinds of shape"))
    forms = [
        f"there {be} {a} {place} {where}",
        f"{place} {where} there {be} {a}",
        f"{a} {lie} {place} {where}",
    ]
    if others > 1:
        forms += [f"{a} {place} {rest}", f"a picture with {a} {place} {rest}"]
    return rng.choice(forms)


def _two(rng: random.Random, mentions: list[Mention], where: str) -> str:
    first, second = mentions[:2]
    a, b = _name(rng, first), _name(rng, second)
    be, lie = first.be("is", "are"), first.be(*rng.choice(_VERBS))
    relation = _relation(rng, first, second)
    forms = [
        f"{a} {relation} {b} {where}",
        f"{a} {be} {relation} {b} {where}",
        f"there {be} {a} {relation} {b}",
        f"{relation} {b} {lie} {a}" if relation not in _NEVER_FIRST else f"{a} {lie} {relation} {b}",
        f"{where} {a} {lie} {relation} {b}",
        f"{a} and {b} {where}",
        f"{a} {_place(rng, first)} and {b} {_place(rng, second)}",
        f"the picture shows {a} {relation} {b} {where}",
        f"{second.be('there is', 'there are')} {b} and {relation} {second.be('it', 'them')} {a}",
    ]
    return rng.choice(forms)


def _three(rng: random.Random, mentions: list[Mention], where: str) -> str:
    first, second, third = mentions[:3]
    a, b, c = (_name(rng, mention) for mention in mentions[:3])
    relation = _relation(rng, first, second)
    forms = [
        f"{a}, {b} and {c} {where}",
        f"{where} we see {a}, {b} and {c}",
        f"{a} {relation} {b}, and {c} {_place(rng, third)}",
        f"{a} {relation} {b} with {c} {_relation(rng, third, second)} {second.be('it', 'them')}",
        f"{c} {_place(rng, third)}, {a} {relation} {b}",
        f"an image of {a} and {b} {where}, also {c}",
    ]
    return rng.choice(forms)
