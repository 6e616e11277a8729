"""Generate the reference of the study file from its models."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from pydantic import BaseModel

from tare.events.metric import Metric
from tare.study.model.matrix import Matrix
from tare.study.model.scenario import Companion, Neighbours, Scenario, Subject
from tare.study.model.shape import Shape
from tare.study.model.study import ArmFrame, Catalog, NoiseGate, StudyFrame, WorkloadSpec
from tare.study.planning.blocks import Blocks
from tare.study.planning.session_plan import SessionBoot, Sessions
from tare.study.reading.checking import model_in, named_model_in
from tare.study.reading.hosting import Boot, HostSpec, LabSpec
from tare.study.reference.schema import Schema, kebab, properties_of, required_of, study_schema
from tare.units import format_duration, format_size


def render_schema(catalog: Catalog) -> str:
    """Return the JSON Schema of study files, as text.

    Args:
        catalog: The platforms and workloads.
    """
    return json.dumps(study_schema(catalog), indent=2, ensure_ascii=False) + "\n"


def render_markdown(catalog: Catalog, metrics: Mapping[str, Sequence[Metric]]) -> str:
    """Return the reference as Markdown.

    Args:
        catalog: The platforms and workloads, with their summaries.
        metrics: The metrics of each workload, by its name.
    """
    parts = [
        _INTRODUCTION,
        "## The study\n",
        _table(StudyFrame),
        _SECTIONS,
        "### `blocks`\n",
        _table(Blocks),
        "### `sessions`\n",
        _SESSIONS,
        _table(Sessions),
        "### `sessions`: `boots`, each\n",
        _table(SessionBoot),
        "### `shape`\n",
        _table(Shape),
        "### `host`\n",
        _HOST,
        _table(HostSpec, without=("kind",)),
        "### `host`: `boot`\n",
        _table(Boot),
        "### `lab`\n",
        _table(LabSpec),
        "### `noise`\n",
        _table(NoiseGate),
        "## Arms\n",
        _ARMS,
        _table(ArmFrame),
    ]
    for name, options in sorted(catalog.platforms.items()):
        parts += [f"### Platform `{name}`\n", *_summary(catalog, f"platform/{name}")]
        # The keys of every arm are listed once; the arm's own key takes precedence.
        own = set(options.model_fields) - set(ArmFrame.model_fields)
        parts.append(
            _table(options, tuple(ArmFrame.model_fields)) if own else "It has no options.\n"
        )
    for name, model in _nested(catalog.platforms.values()).items():
        parts += [f"### `{name}`\n", f"{inspect.cleandoc(model.__doc__ or '')}\n", _table(model)]
    parts += [
        "## `matrix`\n",
        _MATRIX,
        _table(Matrix),
        "## Scenarios\n",
        _SCENARIOS,
        _table(Scenario),
        "### `subject`\n",
        _table(Subject),
        "### `neighbours`, each\n",
        _table(Neighbours),
        "### `machines`, each\n",
        _table(Companion),
        "## Workloads\n",
        _WORKLOADS,
        _table(WorkloadSpec, without=("points",), optional=("workload",)),
    ]
    for name, model in sorted(catalog.workloads.items()):
        parts += [f"### Workload `{name}`\n", *_summary(catalog, f"workload/{name}")]
        parts.append(_table(model) if model.model_fields else "It has no parameters.\n")
        for key, inner in _nested([model]).items():
            meaning = inspect.cleandoc(inner.__doc__ or "")
            parts += [f"#### `{key}` of `{name}`\n", f"{meaning}\n", _table(inner)]
        if metrics.get(name):
            parts.append(_metrics(metrics[name]))
    return "\n".join(parts)


def _nested(models: Iterable[type[BaseModel]]) -> dict[str, type[BaseModel]]:
    """Return the options that have keys of their own; the first of those with the same keys."""
    found: dict[str, type[BaseModel]] = {}
    for model in models:
        for name, info in model.model_fields.items():
            inner = model_in(info.annotation) or named_model_in(info.annotation)
            if inner is not None and inner not in found.values():
                found[kebab(name)] = inner
    return found


def _summary(catalog: Catalog, key: str) -> list[str]:
    text = catalog.summaries.get(key, "")
    return [f"{text}\n"] if text else []


def _rows(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    cells = ((text.replace("|", "\\|").replace("\n", " ") for text in line) for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in cells) + "\n"


@lru_cache(maxsize=512)
def _table(
    model: type[BaseModel], without: tuple[str, ...] = (), optional: tuple[str, ...] = ()
) -> str:
    """Return a model's keys as a table, cached because the schema behind it is slow to build."""
    properties = properties_of(model, without)
    required = set(required_of(model, without)) - set(optional)
    factories = {
        kebab(name) for name, info in model.model_fields.items() if info.default_factory is not None
    }
    return _rows(
        ("key", "value", "default", "meaning"),
        (
            (
                f"`{key}`",
                _kind(schema),
                "*required*" if key in required else "" if key in factories else _default(schema),
                schema.get("description", ""),
            )
            for key, schema in properties.items()
        ),
    )


def _metrics(metrics: Sequence[Metric]) -> str:
    return _rows(
        ("metric", "unit", "better", "kind", "meaning"),
        (
            (
                f"**`{metric.name}`**" if metric.headline else f"`{metric.name}`",
                metric.unit,
                metric.better,
                metric.kind,
                metric.summary,
            )
            for metric in metrics
        ),
    )


def _kind(schema: Schema) -> str:
    """Return a description of the values of a key."""
    if "x-quantity" in schema:
        return str(schema["x-quantity"])
    if "const" in schema:
        return f"`{_word(schema['const'])}`"
    if "enum" in schema:
        return ", ".join(f"`{_word(value)}`" for value in schema["enum"])
    if "anyOf" in schema:
        kinds = [_kind(option) for option in schema["anyOf"] if option.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    names = {
        "integer": "whole number",
        "number": "number",
        "boolean": "`true`, `false`",
        "string": "text",
        "object": "keys and values",
    }
    return names.get(str(schema.get("type")), "anything") + _bounds(schema)


def _bounds(schema: Schema) -> str:
    signs = {
        "minimum": "≥",
        "exclusiveMinimum": ">",
        "maximum": "≤",
        "exclusiveMaximum": "<",
    }
    return "".join(f", {sign} {schema[key]}" for key, sign in signs.items() if key in schema)


def _default(schema: Schema) -> str:
    value = schema.get("default")
    if value is None or value in ("", [], {}):
        return ""
    options = [schema, *schema.get("anyOf", ())]
    quantity = next((option["x-quantity"] for option in options if "x-quantity" in option), None)
    if isinstance(value, int | float) and not isinstance(value, bool):
        if quantity == "duration":
            return f"`{format_duration(value)}`"
        if quantity == "size":
            return f"`{format_size(value)}`"
    return f"`{_word(value)}`"


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


_INTRODUCTION = """\
# The study file

<!-- Generated by `make docs` from the models; do not edit. -->

A study is one YAML file that describes what to measure. `tare plan FILE` shows what would run, and
`tare run FILE` runs it. `tare study KEY` prints one part of this page, such as
`tare study blocks.precision` or `tare study tick`. All errors in a file are reported at once, with
line and column, before anything starts.

Both commands can change the study without changing the file. Changes are checked like the file,
written into the run's events, and listed in its report:

```sh
tare run realtime --host xen1                    # where: local, lab, or a host by name
tare run FILE --arm kvm,xen-pv --scenario pinned --workload tick --blocks 8   # less of it
tare run FILE --set shape.memory=1GiB --set arms.kvm.cpu=EPYC --set workloads.tick.samples=1000
```

`--arm` always keeps the baseline. `--set` takes a path of keys and a value as YAML. List items are
counted from 0, as in `scenarios.loaded.neighbours[0].count=2`.

```yaml
study: my-hosts
baseline: bare
arms:
  bare: {platform: bare}
  bare-again: {twin-of: bare}        # the A/A pair: a check, and more boots
  qemu: {platform: qemu, accelerator: kvm}
scenarios:
  pinned: {subject: {cpus: pinned}}
workloads:
  tick: {samples: 20000}
  switch: {threads: [2, 100]}        # a list on a single value: one cell for each
```

Editors that support JSON Schema complete and check the keys. Write the schema with
`tare study schema > study.schema.json`, and start the study with
`# yaml-language-server: $schema=study.schema.json`.

A *duration* is seconds as a number, or a number with `ns`, `us`, `ms`, `s`, `min` or `h`
(`68us`, `1.5 min`). A *size* is bytes as a whole number, or a number with `B`, `KiB`, `MiB`,
`GiB`, `TiB`, `kB`, `MB`, `GB` or `TB` (`512MiB`). Names have at most 40 lower-case letters,
digits, `-`, `_` and `.`. YAML aliases, tags and second documents are refused.
"""

_SECTIONS = """\
In addition, a study has the three parts below: `arms` and `workloads`, which are required, and
`scenarios`. Without scenarios there is one, `alone`, with an unpinned subject.
"""

_SESSIONS = """\
Use `sessions` if arms need one computer booted differently: from other disks, or alternately from
the live image and from its hypervisor. [boot-in-turns.md](../how-to/boot-in-turns.md) shows how.

```yaml
sessions:
  computer: rack-3
  blocks: 2
  boots:
    metal: {arms: [bare, bare-again], how: from the stick with the live image}
    esxi: {arms: [paravirtual, emulated], how: from its own disk, takes: 8min}
```
"""
_HOST = """\
```yaml
host: local                      # this computer (default)
host: lab                        # an emulated computer with KVM and Xen: `tare help lab`
host: xen1                       # a name from ~/.config/tare/hosts.yaml: `tare help hosts`
host: {ssh: xen1.example, user: root, known-hosts: keys/known_hosts}
```

Arms can run on different computers. `hosts` describes them, and an arm's `on` names its host. Names
from the user's hosts file, `local` and `lab` need no entry. An arm without `on` runs on `host`, or
on the first of `hosts`.

```yaml
hosts:
  kvm1: {ssh: 10.0.0.2}
  xen1: {ssh: xen1.example}
arms:
  bare: {platform: bare, on: kvm1}         # also runs on xen1, as bare@xen1
  kvm: {platform: qemu, accelerator: kvm, on: kvm1}
  xen: {platform: xen, on: xen1}
```

The baseline, and its twin if it has one, run on each host that has arms. Every ratio is relative to
the baseline on the same host. An arm that differs from the baseline only in `on` is that host's
baseline. If the baseline cannot run on a host, the plan and the report say that the effects of arm
and host cannot be separated.

A study holds no secrets, only where to find them. `tare help hosts` describes the requirements of
an SSH host, and what happens when it is lost.
"""

_ARMS = """\
`arms` maps a name to one platform with its options. An arm has the keys of this table and the
options of its platform. An arm's `shape` replaces only the keys that it contains. If a platform
lacks something on the host (pinning, enough vCPUs, a device model), the affected cells are skipped,
and the plan and the report give the reason.
"""

_MATRIX = """\
`matrix` makes arms from lists of values, as a list in a workload makes cells. Each matrix has a
name, and changes settings of one arm. The first value of each setting is the arm's own.

```yaml
arms:
  kvm: {platform: qemu, accelerator: kvm, network: tap}
matrix:
  alone:                                  # one arm for each value: kvm.disk-aio-native, ...
    arm: kvm
    settings:
      disk-aio: [default, native, io_uring]
      memory: {default: {}, huge: {hugepages: true}}
  network:                                # 8 combinations: network-04, ...
    arm: kvm
    design: fractional
    interactions: [[vhost, nic-queues]]
    settings:
      vhost: [auto, off]
      nic-queues: [1, 2]
      nic-offloads: [true, false]
```

`tare plan` shows the combinations, the effects that they cannot separate, and the reason. Matrices
share arms that are equal. `--arm` keeps a matrix if it is named.
"""

_SCENARIOS = """\
`scenarios` maps a name to roles and their CPUs. A pinned subject gets the last CPUs of the host,
one per core as far as there are enough, so that the first CPU stays free for the host's own work.
The plan and the report describe how a scenario was adapted to the host.

```yaml
scenarios:
  alone: {}
  pinned: {subject: {cpus: pinned}}
  contended:
    subject: {cpus: pinned}
    neighbours: [{load: cpu-load, cpus: same}]
  crowded:
    neighbours: [{load: memory-load, count: fill}]
  every-cpu: {subject: {vcpus: all}}     # compared with `alone`: the effect of more CPUs
```
"""

_WORKLOADS = """\
`workloads` maps a label to what is measured. A workload has the keys of this table and its own
parameters. If a parameter that takes a single value has a list, each value is measured; several
lists give every combination. The metrics in bold represent the workload on the report's first
screen.
"""
