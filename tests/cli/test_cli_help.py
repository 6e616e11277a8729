"""`tare help` prints the pages of docs/, and every text that names one names one that exists."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tare.cli.help import KINDS, complete_topic, find_page, help_about, list_topics, pages, title_of
from tare.cli.manual import COMMANDS, commands_page
from tare.errors import InputError

ROOT = Path(__file__).parents[2]
MENTION = r"tare help ([a-z][a-z-]*)"


def test_every_page_has_a_kind_and_a_topic_of_its_own() -> None:
    files = [path for path in (ROOT / "docs").rglob("*.md") if path.name != "index.md"]
    assert sorted(path.stem for path in files) == sorted(pages())
    assert {path.parent.name for path in files} == set(KINDS)


def test_topics_are_listed_with_their_titles() -> None:
    listed = list_topics()
    for topic, page in pages().items():
        assert re.search(rf"^  {topic} +{re.escape(title_of(page))}$", listed, re.MULTILINE)


@pytest.mark.parametrize("topic", ["hosts", "Hosts", "how-to/hosts", "how-to/hosts.md", "hosts.md"])
def test_a_page_is_printed(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    help_about(topic)
    assert capsys.readouterr().out.startswith(find_page("hosts").read_text(encoding="utf-8"))


def test_without_a_topic_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    help_about()
    assert capsys.readouterr().out == list_topics() + "\n"


def test_a_wrong_topic_is_refused_with_similar_ones() -> None:
    with pytest.raises(InputError, match=r"no topic 'proxmo'; did you mean proxmox") as refused:
        find_page("proxmo")
    assert "`tare help`" in refused.value.hint
    with pytest.raises(InputError, match=r"no topic 'qqqq'; `tare help` lists"):
        find_page("qqqq")


def test_topics_are_completed() -> None:
    assert {"statistics", "study"} <= set(complete_topic("st"))


def test_every_topic_that_a_text_names_exists() -> None:
    listed = ["src", "docs", "studies", "examples", "benchmarks", "scripts", "agent", "*.md"]
    command = ["git", "grep", "-hoE", MENTION, "--", *listed, "Makefile", ":!CHANGELOG.md"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    topics = {match[1] for match in re.finditer(MENTION, found)}
    assert len(topics) > 10
    assert topics - set(pages()) == set()


def test_the_reference_of_the_commands_is_current() -> None:
    assert (ROOT / COMMANDS).read_text(encoding="utf-8") == commands_page(), "run `make docs`"
