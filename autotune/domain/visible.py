"""Text from outside, made harmless. Reasons, notes and names come from kernels, compilers and who
pushed a record: none of them may move the cursor, change colours or turn the reading direction."""

_C0, _DELETE, _C1 = range(0x20), (0x7F,), range(0x80, 0xA0)
_LINES = (0x2028, 0x2029)
_DIRECTIONS = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_SURROGATES = range(0xD800, 0xE000)  # they cannot be encoded

_SHOWN = {
    code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
    for codes in (_C0, _DELETE, _C1, _LINES, _DIRECTIONS, _SURROGATES)
    for code in codes
    if code != ord("\t")
}


def visible(text: str) -> str:
    """The same text with every character that acts on a terminal spelt out."""
    return text if text.isascii() and text.isprintable() else text.translate(_SHOWN)


def visible_lines(text: str) -> str:
    """The same of a text whose line breaks stay."""
    return "\n".join(map(visible, text.split("\n")))


class Shown:
    """A value whose text, not its fields, is what a prompt and the cell of a notebook show."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        from html import escape  # a model shows nothing

        return f"<pre>{escape(visible_lines(str(self)))}</pre>"
