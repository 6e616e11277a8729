"""A real browser that tests click in: one Chromium, spoken with over its own two pipes."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

PATIENCE_S = 120.0

OPEN = "document.querySelectorAll('details.part').forEach(e => { e.open = true; })"
"""Opens all parts of the page, which are closed at first."""
CUT = (
    "[...document.querySelectorAll('.scroll')].filter(e => e.checkVisibility() && "
    "e.scrollWidth > e.clientWidth + 1).map(e => e.getAttribute('aria-label'))"
)
"""The tables that are wider than what shows them."""
OUTSIDE = """
[...document.querySelectorAll('body *')].filter(e => e.checkVisibility() && !e.closest('svg') &&
  (!e.closest('.scroll') || e.matches('caption > span')) &&
  e.getBoundingClientRect().right > innerWidth + 1
).map(e => `${e.tagName}: ${e.textContent.slice(0, 60)}`)
"""
"""What is right of the window; what a table's own scrolling reaches is not listed."""
OVERLAPS = """
[...document.querySelectorAll('figure svg')].flatMap(svg => {
  const texts = [...svg.querySelectorAll('text')]
    .map(e => [e.textContent, e.getBoundingClientRect()]);
  return texts.flatMap(([one, a], i) => texts.slice(i + 1).filter(([_, b]) =>
    Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 &&
    Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3
  ).map(([other]) => `${svg.id}: ${one} | ${other}`));
})
"""
"""Words of figures that overlap."""

BROKEN_QUANTITIES = r"""
[...document.querySelectorAll('p, li, summary, figcaption, small, .lead, .cost b')].filter(
  e => e.checkVisibility() && !e.closest('svg')
).flatMap(e => {
  const walk = document.createTreeWalker(e, NodeFilter.SHOW_TEXT), found = [];
  for (let node; (node = walk.nextNode());) {
    for (const match of node.data.matchAll(/\d[\d.,]* (%|[nµm]?s|min|h|[kMGT]?i?B)(?!\w)/g)) {
      const range = document.createRange();
      range.setStart(node, match.index);
      range.setEnd(node, match.index + match[0].length);
      const tops = [...range.getClientRects()].map(r => Math.round(r.top));
      if (tops.some(top => top !== tops[0])) found.push(node.data);
    }
  }
  return found;
})
"""
"""Prose in which a line ends between a number and its unit."""


BEYOND = """
[...document.querySelectorAll('figure svg')].filter(e => e.checkVisibility()).flatMap(svg => {
  const all = svg.getBoundingClientRect();
  return [...svg.querySelectorAll('text')].filter(e => {
    const one = e.getBoundingClientRect();
    return one.left < all.left - 1 || one.right > all.right + 1 || one.bottom > all.bottom + 1;
  }).map(e => `${svg.id}: ${e.textContent}`);
})
"""
"""Words of figures that reach beyond their picture, where they are cut."""


class Browser:
    """Chromium without a window, and one page in it.

    Its protocol goes over file descriptors 3 and 4, so nothing listens anywhere.
    """

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM is not None
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        # A shell puts the pipes' ends where Chromium looks for them; not every sh can, beyond 9.
        script = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
        self._process = subprocess.Popen(
            [
                "bash", "-c", script, "bash", CHROMIUM, "--headless", "--no-sandbox",
                "--disable-gpu", "--no-first-run", "--disable-background-networking",
                "--remote-debugging-pipe",
                f"--user-data-dir={profile}", "about:blank",
            ],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        self._number = 0
        self._rest = b""
        self._session = ""
        self.complaints: list[str] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.ask(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)
        os.close(self._out)

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            heard = self._hear()
            if heard.get("id") == self._number:
                assert "error" not in heard, heard["error"]
                answer: dict[str, Any] = heard["result"]
                return answer

    def _hear(self) -> dict[str, Any]:
        until = time.monotonic() + PATIENCE_S
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._in], [], [], max(0.0, until - time.monotonic()))
            piece = os.read(self._in, 1 << 20) if ready else b""
            assert piece, "the browser says nothing"
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\0")
        heard: dict[str, Any] = json.loads(line)
        if heard.get("method") == "Log.entryAdded":
            self.complaints.append(heard["params"]["entry"]["text"])
        if heard.get("method") == "Runtime.exceptionThrown":
            self.complaints.append(str(heard["params"]["exceptionDetails"]))
        return heard

    def open(self, path: Path, fragment: str = "") -> None:
        """Load a page from scratch, at an anchor, and wait until it is there."""
        self.ask("Page.navigate", url="about:blank")
        self.ask("Page.navigate", url=path.as_uri() + fragment)
        # On a busy computer a document may call itself complete before anything is in it.
        self.wait(
            "document.readyState === 'complete' && location.protocol === 'file:' && "
            "document.querySelector('footer') !== null"
        )

    def run(self, script: str) -> Any:
        """Return the value of a JavaScript expression in the page."""
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait(self, script: str) -> None:
        """Wait until an expression is true."""
        until = time.monotonic() + PATIENCE_S
        while not self.run(script):
            assert time.monotonic() < until, f"never so: {script}"
            time.sleep(0.05)

    def click(self, selector: str) -> None:
        """Press the mouse's button in the middle of an element, in a part that is opened first."""
        self.run(
            f"(() => {{ for (let e = document.querySelector({json.dumps(selector)}); e; "
            "e = e.parentElement) if (e.tagName === 'DETAILS') e.open = true; })()"
        )
        place = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); "
            "e.scrollIntoView({block: 'center'}); const r = e.getBoundingClientRect(); "
            "return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.ask(
                "Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left",
                clickCount=1,
            )  # fmt: skip

    def press(self, key: str, code: int, text: str = "") -> None:
        """Press a key."""
        for kind in ("keyDown", "keyUp"):
            self.ask(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code,
                **({"text": text} if text and kind == "keyDown" else {}),
            )  # fmt: skip

    def choose(self, selector: str, value: str) -> None:
        """Choose an option of a select, as a reader's choice arrives at the page."""
        self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); "
            f"e.value = {json.dumps(value)}; "
            "e.dispatchEvent(new Event('change', {bubbles: true})); })()"
        )

    def texts(self, selector: str) -> list[str]:
        """Return the shown text of all such elements."""
        found: Sequence[str] = self.run(
            f"[...document.querySelectorAll({json.dumps(selector)})]"
            ".filter(e => e.checkVisibility()).map(e => e.innerText)"
        )
        return list(found)

    def width(self, pixels: int, height: int = 900) -> None:
        """Make the window as wide."""
        self.ask(
            "Emulation.setDeviceMetricsOverride", width=pixels, height=height, deviceScaleFactor=1,
            mobile=pixels < 600,
        )  # fmt: skip

    def picture(self, path: Path, *, whole: bool = False) -> None:
        """Write a picture of the window, or of the whole page."""
        answer = self.ask("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))

    def pdf(self) -> bytes:
        """Return the page in its printed form."""
        answer = self.ask("Page.printToPDF", printBackground=True, preferCSSPageSize=True)
        return base64.b64decode(answer["data"])
