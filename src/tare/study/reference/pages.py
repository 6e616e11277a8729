"""Write the reference of the study file from the models, so that it cannot be out of date."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from tare.events.metric import Metric
from tare.study.model.scenario import Companion, Neighbours, Scenario, Subject
from tare.study.model.shape import Shape
from tare.study.model.study import ArmFrame, Catalog, StudyFrame, WorkloadSpec
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
        _table(HostSpec, without=["kind"]),
        "### `host`: `boot`\n",
        _table(Boot),
        "### `lab`\n",
        _table(LabSpec),
        "## Arms\n",
        _ARMS,
        _table(ArmFrame),
    ]
    for name, options in sorted(catalog.platforms.items()):
        parts += [f"### Platform `{name}`\n", *_summary(catalog, f"platform/{name}")]
        # What every arm has is said once; the arm's own key is what counts.
        own = set(options.model_fields) - set(ArmFrame.model_fields)
        parts.append(_table(options, ArmFrame.model_fields) if own else "It has no options.\n")
    for name, model in _nested(catalog.platforms.values()).items():
        parts += [f"### `{name}`\n", f"{inspect.cleandoc(model.__doc__ or '')}\n", _table(model)]
    parts += [
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
        _table(WorkloadSpec, without=["points"], optional=["workload"]),
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
    """Return the options that hold keys of their own; of those with the same keys, the first."""
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


def _table(
    model: type[BaseModel], without: Iterable[str] = (), optional: Iterable[str] = ()
) -> str:
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
    """Return in words what values a key takes."""
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

A study is one YAML file that says what to measure. `tare plan FILE` shows what would run,
`tare run FILE` runs it. `tare study KEY` prints one part of this page, such as
`tare study blocks.precision` or `tare study tick`. All mistakes in a file are reported at once,
with line and column, before anything starts.

Both commands may change the study without touching the file, and what they change is checked like
the file, written into the run's events, and told in its report:

```sh
tare run realtime --host xen1                    # where: local, lab, or a host by name
tare run FILE --arm kvm,xen-pv --scenario pinned --workload tick --blocks 8   # less of it
tare run FILE --set shape.memory=1GiB --set arms.kvm.cpu=EPYC --set workloads.tick.samples=1000
```

`--arm` keeps the baseline. `--set` takes a path of keys and a value as YAML; what stands in a list
is counted from 0, as in `scenarios.loaded.neighbours[0].count=2`.

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
`tare study schema > study.schema.json`, and begin the study with
`# yaml-language-server: $schema=study.schema.json`.

A *duration* is seconds as a number, or a number with `ns`, `us`, `ms`, `s`, `min` or `h`
(`68us`, `1.5 min`). A *size* is bytes as a whole number, or a number with `B`, `KiB`, `MiB`,
`GiB`, `TiB`, `kB`, `MB`, `GB` or `TB` (`512MiB`). Names have at most 40 lower-case letters,
digits, `-`, `_` and `.`. Aliases, tags and second documents of YAML are refused.
"""

_SECTIONS = """\
Beside these stand the three parts below: `arms` and `workloads`, which every study has, and
`scenarios`; left out, there is one scenario, `alone`, with an unpinned subject.
"""

_SESSIONS = """\
Where arms need one computer booted differently: from other disks, or from the live image and from
its hypervisor in turns. [boot-in-turns.md](../how-to/boot-in-turns.md) shows how.

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
host: local                      # this computer; so it is when left out
host: lab                        # an emulated computer with KVM and Xen: `tare help lab`
host: xen1                       # a name from ~/.config/tare/hosts.yaml: `tare help hosts`
host: {ssh: xen1.example, user: root, known-hosts: keys/known_hosts}
```

Arms may run on different computers. `hosts` names them, and `on` says which is an arm's own;
names from the user's hosts file and `local` and `lab` need no entry. An arm without `on` runs on
`host`, or on the first of `hosts`.

```yaml
hosts:
  kvm1: {ssh: 10.0.0.2}
  xen1: {ssh: xen1.example}
arms:
  bare: {platform: bare, on: kvm1}         # is run on xen1 too, as bare@xen1
  kvm: {platform: qemu, accelerator: kvm, on: kvm1}
  xen: {platform: xen, on: xen1}
```

The baseline, and its twin where it has one, are run on each host that has arms, and every ratio is
to the baseline on the same host. An arm that is the baseline in all but `on` is that host's
baseline. Where the baseline cannot run, plan and report say that arm and host cannot be told apart.

No secret stands in a study: it says where one is found. `tare help hosts` tells what a host over
SSH must have, and what happens when it is lost.
"""

_ARMS = """\
`arms` maps a name to one platform with its options, the way it is compared. Beside the keys
of this table stand the options of the platform. An arm's `shape` replaces only what it names.
What a platform lacks on the host (pinning, so many vCPUs, a device model) is skipped with its
reason, in the plan and in the report.
"""

_SCENARIOS = """\
`scenarios` maps a name to the roles and where they run. A pinned subject gets the last CPUs of
the host, one per core as far as there are enough, so that the first CPU stays free for the
host's own work. How a scenario was adapted to the host is said in the plan and in the report.

```yaml
scenarios:
  alone: {}
  pinned: {subject: {cpus: pinned}}
  contended:
    subject: {cpus: pinned}
    neighbours: [{load: cpu-load, cpus: same}]
  crowded:
    neighbours: [{load: memory-load, count: fill}]
  every-cpu: {subject: {vcpus: all}}     # beside `alone`: what more CPUs bring
```
"""

_WORKLOADS = """\
`workloads` maps a label to what is measured. Beside the keys of this table stand the
parameters of the workload. A list on a parameter that takes a single value measures each of
them, several lists every combination. The metrics in bold stand for the workload on the
report's first screen.
"""
