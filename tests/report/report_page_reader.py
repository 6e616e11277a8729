"""Reads a page as a browser would, for what the tests ask of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "link", "br", "img", "input", "hr", "path", "line", "rect", "col"}
LOADING = ("src", "href", "xlink:href", "srcset", "data", "poster", "action", "background")


Attributes = list[tuple[str, str | None]]


@dataclass
class Element:
    """One start tag as read."""

    tag: str
    attributes: dict[str, str]


@dataclass
class Page(HTMLParser):
    """All elements and text of a page, and whatever was wrong with its nesting."""

    elements: list[Element] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    styles: list[str] = field(default_factory=list)
    _open: list[str] = field(default_factory=list)
    _kept_whole: int = 0
    """Pieces of text that continue the one before: that of a span, and the one after it."""

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: Attributes) -> None:
        self._take(tag, attrs)
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Attributes) -> None:
        self._take(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        self._kept_whole *= tag == "span"
        if tag in VOID and (not self._open or self._open[-1] != tag):
            return
        if not self._open or self._open.pop() != tag:
            self.faults.append(f"</{tag}> at {self.getpos()}")

    def handle_data(self, data: str) -> None:
        inside = self._open[-1] if self._open else ""
        if inside == "style":
            self.styles.append(data)
        elif self._kept_whole:
            # What must not break is a part of the text around it.
            self.text[-1] += data
            self._kept_whole -= 1
        else:
            self.text.append(data)

    def _take(self, tag: str, attrs: Attributes) -> None:
        self._kept_whole = 2 if ("class", "nb") in attrs and self.text else 0
        names = [name for name, _ in attrs]
        if len(names) != len(set(names)):
            self.faults.append(f"<{tag}> says an attribute twice at {self.getpos()}")
        self.elements.append(Element(tag, {name: value or "" for name, value in attrs}))

    @property
    def words(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.text))

    def of(self, tag: str) -> list[Element]:
        return [element for element in self.elements if element.tag == tag]

    def addresses(self) -> list[str]:
        """Every address that the page could load or lead to."""
        found = [
            value
            for element in self.elements
            for name, value in element.attributes.items()
            if name in LOADING
        ]
        css = [*self.styles]
        css += [v for e in self.elements for v in e.attributes.values() if "url(" in v]
        css += [e.attributes["style"] for e in self.elements if "style" in e.attributes]
        for text in css:
            found += re.findall(r"url\(\s*['\"]?([^'\")]*)", text)
            found += re.findall(r"@import\s+(\S+)", text)
        return found


def read(html: str) -> Page:
    page = Page()
    page.feed(html)
    page.close()
    page.faults += [f"<{tag}> is never closed" for tag in page._open]
    return page
