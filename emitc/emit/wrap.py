"""Lines of C that are at most 120 columns wide.

Templates cannot know how long a line becomes, because names and numbers are put into it. So a line that is too long is broken
afterwards: comments between words, code after a comma or before an operator. Text in quotes is never broken. The tokens of the
code stay as they are.
"""

import re
from collections.abc import Iterator
from itertools import accumulate

WIDTH = 120
_WHOLE = " * regenerate: "
"""The beginning of a line that stays whole, because it has a command to copy."""
_LONG = re.compile(rf"[^\n]{{{WIDTH + 1}}}")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'')
_BREAK = re.compile(r"(?<=[,;]) | (?=(?:&&|\|\||[-+*/?:|&<>=]|[<>=!]=|<<|>>) )")
"""Where code may go on in the next line: after a comma, or before an operator."""
_DEEPER, _OPERATOR = 40, 20
"""Columns that a line may be shorter, if it is broken one parenthesis further out, or after a comma."""
_BRACKET = re.compile(r"[()\[\]{}]")
_ROW = re.compile(r" *(?:[-\w.]+, )*[-\w.]+,?")
"""Numbers of a table, as most long lines are: they can be broken after every comma, and nowhere better."""
_OPENED = re.compile(r"\((?=[^)\s])")
_BLANK = re.compile(r"(?<=\S) ")
"""Where it may go on if there is no such place: after a parenthesis, or between any two words."""
_TRAILING = re.compile(r"^(?P<indent> *)(?P<code>\S.*?) */\*(?P<comment>(?:(?!\*/).)*)\*/$")
_ITEM = re.compile(r"(?:- |\S+ {2,}(?=\S))")
"""The beginning of an item of a list, or a term before its text."""
_COMMENT = re.compile(r"^(?P<start> *(?:/\*|\*)? *)(?P<text>.*)$")


def wrapped(text: str) -> str:
    """The text with its long lines broken. A line of one word, or whose text is in quotes, may stay longer."""
    if _LONG.search(text) is None:
        return text
    lines = text.split("\n")
    result: list[str] = []
    inside = False
    for at, line in enumerate(lines):
        goes_on = _in_comment(line, inside)
        if len(line) <= WIDTH or line.startswith(_WHOLE):
            result.append(line)
        elif inside or _is_comment(line):
            row, rest, prefix = _of_comment(line)
            result.append(row)
            inside = goes_on
            if not rest:
                continue
            after = _COMMENT.match(lines[at + 1]) if goes_on else None
            if after is not None and _follows(line, after):
                lines[at + 1] = f"{after['start']}{rest} {after['text']}"
            else:
                result += _comment_rows(prefix + rest)
        else:
            *rows, last = _broken(line, lines[at - 1] if at else "")
            result += rows
            if rows and "/*" not in line and at + 1 < len(lines) and _joins(last, lines[at + 1]):
                lines[at + 1] = f"{last} {lines[at + 1].lstrip(' ')}"
            else:
                result.append(last)
        inside = goes_on
    return "\n".join(result)


def _in_comment(line: str, inside: bool) -> bool:
    """Whether a comment goes on after the line. inside: whether one goes on before it."""
    if not inside and "/*" not in line:  # as in nearly all lines
        return False
    plain = line if inside else _QUOTED.sub("", line)
    start, end = plain.rfind("/*"), plain.rfind("*/")
    return start > end or (inside and end < 0)


def _is_comment(line: str) -> bool:
    """Whether a line has the beginning of a comment and nothing else."""
    bare = line.lstrip(" ")
    return bare.startswith("/*") and bare.find("*/") in (-1, len(bare) - 2)


def _of_comment(line: str) -> tuple[str, str, str]:
    """The part of a line of a comment that fits, the words that do not, and how a line begins that has these words."""
    match = _COMMENT.match(line)
    assert match is not None
    start, text = match["start"], match["text"]
    width = WIDTH - len(start)
    cut = text.rfind(" ", 0, width + 1)
    if text[cut + 1 :] == "*/":  # which does not stand alone
        cut = text.rfind(" ", 0, cut)
    cut = cut if cut > 0 else text.find(" ")
    if cut < 0:
        return line, "", ""
    item = _ITEM.match(text)
    deeper = "" if item is None else " " * len(item[0])
    return (start + text[:cut]).rstrip(), text[cut + 1 :].strip(" "), start.replace("/*", " *") + deeper


def _follows(line: str, after: re.Match[str]) -> bool:
    """Whether the words of a line may go on in the line after it: it has text, and it is no other item of a list."""
    match = _COMMENT.match(line)
    assert match is not None
    before, next_start = len(match["start"]), len(after["start"])
    if not after["text"].strip(" /*") or after["text"].startswith(("- ", "*/")):
        return False
    return next_start >= before if _ITEM.match(match["text"]) is None else next_start > before


def _comment_rows(line: str) -> Iterator[str]:
    """The last words of a comment, in as many lines as they need."""
    while len(line) > WIDTH:
        row, rest, prefix = _of_comment(line)
        yield row
        if not rest:
            return
        line = prefix + rest
    yield line


def _broken(line: str, before: str) -> Iterator[str]:
    """The lines of a long line that is no comment. before: the line before it."""
    bare = line.lstrip(" ")
    if bare.startswith("#") and not bare.startswith(("#if", "#elif", "#define")):
        yield line
        return
    macro = line.endswith("\\") or before.endswith("\\") or bare.startswith("#")
    trailing = None if macro or not line.endswith("*/") else _TRAILING.match(line)
    if trailing is not None and '"' not in trailing["code"]:
        yield from _comment_rows(f"{trailing['indent']}/*{trailing['comment']}*/")
        yield from wrapped(trailing["indent"] + trailing["code"]).split("\n")
        return
    listed = before.removesuffix("\\").rstrip().endswith(("(", ","))
    yield from _of_code(line, macro, 0 if listed else 4)


def _joins(last: str, after: str) -> bool:
    """Whether the end of a broken line and the line after it are parts of one list of arguments."""
    bare = after.lstrip(" ")
    plain = last.endswith(",") and bare != "" and not bare.startswith(("/*", "#", "."))
    return plain and not after.endswith("\\") and len(after) - len(bare) == len(last) - len(last.lstrip(" "))


def _depths(code: str) -> list[int]:
    """Before each character, and at the end: how many parentheses, brackets and braces are open."""
    if _BRACKET.search(code) is None:  # as in the rows of a table
        return [0] * (len(code) + 1)
    steps = ((character in "([{") - (character in ")]}") for character in code)
    return list(accumulate(steps, initial=0))


def _of_code(line: str, macro: bool, deeper: int) -> Iterator[str]:
    """A line of code. macro: it is part of a definition or of a condition, whose lines end with a backslash.

    deeper: columns by which the next lines are indented more.
    """
    end = " \\" if macro else ""
    rest = line.removesuffix("\\").rstrip() if macro else line
    last = "\\" if line.endswith("\\") else ""
    indent = " " * (len(rest) - len(rest.lstrip(" ")) + deeper)
    while len(rest) + len(end) > WIDTH:
        place = rest.rfind(", ", 0, WIDTH + 1 - len(end)) + 2
        if place > len(indent) + 2 and _ROW.fullmatch(rest):
            yield rest[:place].rstrip() + end
            rest = indent + rest[place:]
            continue
        masked = _QUOTED.sub(lambda quoted: '"' * len(quoted[0]), rest)
        places = [at.end() for at in _BREAK.finditer(masked) if len(indent) < at.start() <= WIDTH - len(end)]
        for other in (_OPENED, _BLANK):
            places = places or [at.end() for at in other.finditer(masked) if len(indent) < at.end() <= WIDTH - len(end)]
        if not places:
            break
        depths = _depths(masked)
        place = max(places, key=lambda at: at - _DEEPER * depths[at] - (masked[at - 2] not in ",;") * _OPERATOR)
        yield rest[:place].rstrip() + end
        rest = indent + rest[place:]
    yield f"{rest} {last}" if last else rest
