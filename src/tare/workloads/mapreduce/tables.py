"""Generate the tables for queries, equal on every machine, and the expected answers.

There are two tables of comma-separated values, as in the query benchmarks that HiBench adopted from
Pavlo et al. (2009). *visits* has the source, the page and the revenue in cents of each visit.
*pages* has the rank of each page. All numbers are whole, so that sums do not depend on their order.
"""

from __future__ import annotations

from dataclasses import dataclass

from tare.workloads.mapreduce.configuration import DATA

VISITS, PAGES = "visits", "pages"
COLUMNS = {
    VISITS: (("source", "STRING"), ("page", "STRING"), ("cents", "BIGINT")),
    PAGES: (("page", "STRING"), ("rank", "BIGINT")),
}
RANKS = 1000
ROW_BYTES = 20
"""The approximate size of a visit's row, in bytes."""
# Pseudorandom numbers: x -> 16807 x mod (2^31 - 1) (Park and Miller, 1988), exact in awk's numbers.
_ROWS = """visits() { awk -v rows=$TARE_ROWS -v seed=$1 -v sources=$TARE_SOURCES \\
  -v pages=$TARE_PAGES '
  function next_one() { state = (state * 16807) % 2147483647; return state }
  BEGIN {
    state = (seed * 104729) % 2147483646 + 1; next_one()
    for (row = 0; row < rows; row++) {
      source = next_one() % sources; page = next_one() % pages
      printf "s%.0f,p%.0f,%.0f\\n", source, page, next_one() % 10000
    }
  }'
}
pages() { awk -v pages=$TARE_PAGES 'BEGIN {
  for (page = 0; page < pages; page++) printf "p%.0f,%.0f\\n", page, (page * 7919) % RANKS }'
}
""".replace("RANKS", str(RANKS))
_PUT = f"""put() {{ hdfs PUT "$1?op=CREATE&overwrite=true" -T {DATA}/table || exit 1; }}
for file in $(seq $TARE_FILES); do
  visits $file >{DATA}/table && put "$TARE_FOLDER/{VISITS}/$file" || exit 1
done
pages >{DATA}/table && put "$TARE_FOLDER/{PAGES}/1" || exit 1
rm -f {DATA}/table
"""
_SUMS = """for file in $(seq $TARE_FILES); do visits $file; done |
awk -F, '{ sum[$1] += $3 } END { for (name in sum) printf "%s\\t%.0f\\n", name, sum[name] }' |
sort | sha256sum
"""
_JOINED = f"""pages >{DATA}/table
for file in $(seq $TARE_FILES); do visits $file; done |
awk -F, -v table={DATA}/table '
  BEGIN {{ while ((getline <table) > 0) rank[$1] = $2 }}
  {{ sum[$1] += $3; ranks[$1] += rank[$2] }}
  END {{ for (name in sum) printf "%s\\t%.0f\\t%.0f\\n", name, sum[name], ranks[name] }}' |
sort | sha256sum; rm -f {DATA}/table
"""


@dataclass(frozen=True)
class Tables:
    """The sizes of the tables.

    Args:
        rows: The number of visits in each file.
        files: The number of files of visits.
        sources: The number of sources of visits; an answer has about as many rows.
        pages: The number of pages.
    """

    rows: int
    files: int
    sources: int
    pages: int

    def put(self, folder: str) -> str:
        """Return a shell script that makes both tables and puts them into a folder of HDFS."""
        return f"TARE_FOLDER={folder} {self._made}{_PUT}"

    @property
    def sums(self) -> str:
        """A shell script that prints the SHA-256 of sorted lines with the cents of each source."""
        return self._made + _SUMS

    @property
    def joined(self) -> str:
        """A script as :attr:`sums`, whose lines also have the sum of the ranks of visited pages."""
        return self._made + _JOINED

    @property
    def _made(self) -> str:
        return (
            f"TARE_ROWS={self.rows} TARE_FILES={self.files} TARE_SOURCES={self.sources} "
            f"TARE_PAGES={self.pages}\n{_ROWS}"
        )


def columns(table: str) -> str:
    """Return a table's columns with their types, as SQL names them."""
    return ", ".join(f"{name} {kind}" for name, kind in COLUMNS[table])
