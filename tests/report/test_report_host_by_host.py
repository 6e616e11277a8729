"""Host by host: few hosts have a column each, of many the page names the two at the ends."""

from __future__ import annotations

import pytest

from analysis.analysis_shared import shared
from tare.report.sections.over_hosts import MOST_COLUMNS, over_hosts_table


def headings(hosts: int) -> list[str]:
    return [cell.text for cell in over_hosts_table(shared(0.1, 0.02, hosts, 2, 3)).shown().headings]


def test_few_hosts_have_a_column_each() -> None:
    found = headings(MOST_COLUMNS)
    assert [f"h{host}" for host in range(MOST_COLUMNS)] == found[3:-3]


def test_with_many_hosts_the_page_names_the_extremes_and_the_file_has_all() -> None:
    hosts = 40
    (effect,) = found = shared(0.1, 0.02, hosts, 2, 3)
    table = over_hosts_table(found)
    texts = table.texts_of(effect)
    low, high = min(effect.ratios.values()), max(effect.ratios.values())
    for key, end in (("lowest", low), ("highest", high)):
        shown, host = texts[key].split()
        assert effect.ratios[host] == end
        assert float(shown.rstrip("×")) == pytest.approx(end, rel=0.01)
    assert "h7" not in headings(hosts)
    assert all(f"ratio-h{host}" in table.csv().splitlines()[0].split(",") for host in range(hosts))
