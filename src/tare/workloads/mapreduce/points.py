"""Points in clusters that lie far apart, and what a search for their centres must find.

All is whole numbers, so that sums do not depend on their order. Cluster *n* has its points around
``n × APART`` in every dimension, at most SPREAD from there in each.
"""

from __future__ import annotations

from dataclasses import dataclass

from tare.workloads.mapreduce.configuration import DATA

APART = 1000
SPREAD = 100
ASIDE = 200
"""How far from there a search begins, in each dimension: nearer to its own cluster's points than
any other's beginning is, which are at least ``APART - ASIDE - SPREAD`` away."""
# Numbers by chance: x -> 16807 x mod (2^31 - 1) (Park and Miller, 1988), exact in awk's numbers.
_POINTS = f"""points() {{ awk -v points=$TARE_POINTS -v dimensions=$TARE_DIMENSIONS \\
  -v clusters=$TARE_CLUSTERS -v seed=$1 '
  function next_one() {{ state = (state * 16807) % 2147483647; return state }}
  BEGIN {{
    state = (seed * 104729) % 2147483646 + 1; next_one()
    for (point = 0; point < points; point++) {{
      middle = next_one() % clusters * {APART} - {SPREAD}
      for (place = 1; place <= dimensions; place++)
        printf "%d%s", middle + next_one() % {2 * SPREAD + 1}, place < dimensions ? " " : "\\n"
    }}
  }}'
}}
"""
_PUT = f"""for file in $(seq $TARE_FILES); do
  points $file >{DATA}/points || exit 1
  hdfs PUT "$TARE_FOLDER/$file?op=CREATE&overwrite=true" -T {DATA}/points || exit 1
done
rm -f {DATA}/points
"""
# Each point is put to its cluster by what it was made from, and not by its distance to any centre.
_CENTRES = f"""for file in $(seq $TARE_FILES); do points $file; done |
awk '{{
  cluster = int(($1 + {APART // 2}) / {APART}); count[cluster]++
  for (place = 1; place <= NF; place++) sum[cluster, place] += $place
  dimensions = NF
}}
END {{ for (cluster in count) {{
  printf "%.0f\\t%.0f", count[cluster], count[cluster]
  for (place = 1; place <= dimensions; place++) printf "\\t%.0f", sum[cluster, place]
  print ""
}} }}' | sort | sha256sum
"""


@dataclass(frozen=True)
class Points:
    """How many points there are, and of what kind.

    Args:
        each: Points in each file.
        files: Files.
        dimensions: Numbers that a point has.
        clusters: In how many clusters they lie.
    """

    each: int
    files: int
    dimensions: int
    clusters: int

    def put(self, folder: str) -> str:
        """Return a shell's script that makes the points and puts them to a folder of HDFS."""
        return f"TARE_FOLDER={folder} {self._made}{_PUT}"

    @property
    def centres(self) -> str:
        """A shell's script that prints a SHA-256: of a line for each cluster, in order.

        It has the number of its points twice, as a search counts those that made its centre and
        those that it puts to it at the end, and what they add up to in each dimension.
        """
        return self._made + _CENTRES

    @property
    def _made(self) -> str:
        return (
            f"TARE_POINTS={self.each} TARE_FILES={self.files} "
            f"TARE_DIMENSIONS={self.dimensions} TARE_CLUSTERS={self.clusters}\n{_POINTS}"
        )
