"""
Names that a reader cannot tell apart, though they differ: letters of two scripts with one shape, forms of one letter.

Unicode's list of confusables (UTS 39) has thousands of pairs. Here are the letters of Cyrillic, Greek and Armenian with
the shape of a Latin one, in the case in which they have it; what NFKC and casefold make equal; and letters without any
shape. Digits count as what they are: `x0` and `xO` are two names.
"""

import unicodedata
from functools import lru_cache

_LETTERS = {
    # Cyrillic: ABESIJKMHOPCTYXYHGQWaesijopcyxyhdqwvl
    0x0410: "A",
    0x0412: "B",
    0x0415: "E",
    0x0405: "S",
    0x0406: "I",
    0x0408: "J",
    0x041A: "K",
    0x041C: "M",
    0x041D: "H",
    0x041E: "O",
    0x0420: "P",
    0x0421: "C",
    0x0422: "T",
    0x0423: "Y",
    0x0425: "X",
    0x04AE: "Y",
    0x04BA: "H",
    0x050C: "G",
    0x051A: "Q",
    0x051C: "W",
    0x0430: "a",
    0x0435: "e",
    0x0455: "s",
    0x0456: "i",
    0x0458: "j",
    0x043E: "o",
    0x0440: "p",
    0x0441: "c",
    0x0443: "y",
    0x0445: "x",
    0x04AF: "y",
    0x04BB: "h",
    0x0501: "d",
    0x051B: "q",
    0x051D: "w",
    0x0475: "v",
    0x04CF: "l",
    # Greek: ABEZHIKMNOPTYXCMovcjui
    0x0391: "A",
    0x0392: "B",
    0x0395: "E",
    0x0396: "Z",
    0x0397: "H",
    0x0399: "I",
    0x039A: "K",
    0x039C: "M",
    0x039D: "N",
    0x039F: "O",
    0x03A1: "P",
    0x03A4: "T",
    0x03A5: "Y",
    0x03A7: "X",
    0x03F9: "C",
    0x03FA: "M",
    0x03BF: "o",
    0x03BD: "v",
    0x03F2: "c",
    0x03F3: "j",
    0x03C5: "u",
    0x03B9: "i",
    # Armenian: SOULounhjgq
    0x054F: "S",
    0x0555: "O",
    0x054D: "U",
    0x053C: "L",
    0x0585: "o",
    0x057D: "u",
    0x0578: "n",
    0x0570: "h",
    0x0575: "j",
    0x0581: "g",
    0x0566: "q",
    # Latin: agiiyocvwzs
    0x0251: "a",
    0x0261: "g",
    0x0131: "i",
    0x0269: "i",
    0x028F: "y",
    0x1D0F: "o",
    0x1D04: "c",
    0x1D20: "v",
    0x1D21: "w",
    0x1D22: "z",
    0xA731: "s",
    # letters that are not seen
    0x115F: "",
    0x1160: "",
}


@lru_cache(maxsize=4096)
def shape(name: str) -> str:
    """
    The same text for names that look alike, whatever their case.
    """
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).translate(_LETTERS).casefold())


def differing(name: str, other: str) -> str:
    """
    The code points in which a name differs from another: those of the characters that are not ASCII in either.
    """
    one, two = (
        [f"U+{ord(char):04X} {unicodedata.name(char, '')}".strip() for char in text if not char.isascii()]
        for text in (name, other)
    )
    return f"{name!r} has {', '.join(one[:5]) or 'only ASCII'}; {other!r} has {', '.join(two[:5]) or 'only ASCII'}"
