"""The one kind of error that a user sees: a sentence, and a hint what to do.

Docker reads meaning into some words of a runtime's error text (it turns "permission denied" into
exit status 126 and "no such file or directory" into 127), so a rendered error never holds them.
"""

from __future__ import annotations

import errno

_ERRNO_WORDS = {
    errno.ENOENT: "it does not exist",
    errno.EACCES: "access to it is refused",
    errno.EPERM: "the operation is not allowed",
    errno.EISDIR: "it is a folder",
    errno.ENOTDIR: "a part of its path is not a folder",
    errno.EROFS: "the file system is read-only",
    errno.ENOSPC: "the file system is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.ELOOP: "a part of its path is a symbolic link",
}

# What Docker (moby, daemon/start.go and errors of the runc wrapper) searches an error text for.
_WORDS_WITH_MEANING = (
    ("no such file or directory", "not there"),
    ("executable file not found", "program not found"),
    ("permission denied", "access refused"),
    ("is a directory", "is a folder"),
)


_LONGEST = 8000


class GpushimError(Exception):
    """Something that a user or a host caused, told in a sentence.

    `sentence` says what was asked and what is there; `hint` says what to do about it. The exit
    status is the one that runc uses for its own failures.
    """

    exit_status = 1

    def __init__(self, sentence: str, hint: str = "") -> None:
        super().__init__(sentence)
        self.sentence = _shortened(sentence)
        self.hint = _shortened(hint)

    def __str__(self) -> str:
        return harmless(f"{self.sentence} {self.hint}" if self.hint else self.sentence)


def _shortened(text: str) -> str:
    """A sentence that engines and people can take, whatever names and values are in it."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def harmless(text: str) -> str:
    """`text` on one line, in valid UTF-8, without the words that Docker gives a meaning of its own.

    Control characters, which a terminal might obey, become question marks.
    """
    text = " ".join(text.encode("utf-8", "replace").decode("utf-8").split())
    # Go's ToLower makes an i of this letter, and so "permission denied" of a word with it; it is
    # also the one whose lower case is longer, which would move all positions found below.
    text = text.replace("\u0130", "I")
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    for word, other in _WORDS_WITH_MEANING:
        start = text.lower().find(word)
        while start >= 0:
            text = text[:start] + other + text[start + len(word) :]
            start = text.lower().find(word, start + len(other))
    return text


def why(error: OSError) -> str:
    """The reason of an OSError in words that no engine misreads."""
    if error.errno in _ERRNO_WORDS:
        return _ERRNO_WORDS[error.errno]
    return harmless(error.strerror or str(error))
