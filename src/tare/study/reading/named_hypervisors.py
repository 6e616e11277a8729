"""Arms on the user's own hypervisors, whose options are in the user's hosts file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tare.study.reading.checking import KeyStyle, StudyErrors, checked, known_keys, shown
from tare.study.reading.hosts_file import HYPERVISORS, KnownHosts

if TYPE_CHECKING:
    from tare.study.model.platform_options import PlatformOptions
    from tare.study.model.study import Catalog

YOURS = "yours"


def name_hypervisors(
    data: Mapping[str, Any], known: KnownHosts, catalog: Catalog, findings: StudyErrors
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a study's plain data with the options of the user's named hypervisors.

    An arm's own options take precedence.

    Args:
        data: The study as written, with changes.
        known: The user's hosts file.
        catalog: The available platforms.
        findings: Collects the problems.

    Returns:
        The data without the arms whose hypervisor is not named; and these arms, each with the
        reason.
    """
    arms = data.get("arms")
    if not isinstance(arms, Mapping):
        return dict(data), {}
    kept: dict[str, Any] = {}
    left: dict[str, str] = {}
    wrong: set[str] = set()
    for name, arm in arms.items():
        if not isinstance(arm, Mapping) or arm.get(YOURS) is not True:
            kept[name] = arm
            continue
        platform = arm.get("platform")
        own_keys = {key: value for key, value in arm.items() if key != YOURS}
        # A platform that has a product exists; it is not loaded to find out.
        if not isinstance(platform, str) or not (
            platform in catalog.platforms
            if platform in known.hypervisors
            else platform in catalog.products or platform in catalog.platforms
        ):
            kept[name] = own_keys
        elif platform in known.hypervisors:
            own = _options(platform, known, catalog, name, findings)
            if own is None:
                wrong.add(name)
                continue
            kept[name] = {**own, **own_keys}
        else:
            left[name] = platform
            for other in known.hypervisors:
                if other not in catalog.platforms:
                    where = f"{known.path}: {HYPERVISORS}.{other}"
                    words = catalog.without("platform", other)
                    findings.add(("arms", name, YOURS), f"{where}: {words}")
    for name, arm in list(kept.items()):
        of = arm.get("twin-of") if isinstance(arm, Mapping) else None
        if not isinstance(of, str):
            continue
        if of in left:
            left[name] = left[of]
        # Errors in the hosts file are reported once, not for each twin.
        if of in left or of in wrong:
            del kept[name]
    baseline = data.get("baseline")
    if isinstance(baseline, str) and baseline in left:
        findings.add(("baseline",), _reason([left[baseline]], catalog))
    reason = _reason(left.values(), catalog)
    return {**data, "arms": kept}, dict.fromkeys(left, reason)


def _reason(left: Iterable[str], catalog: Catalog) -> str:
    products = dict.fromkeys(catalog.products.get(platform, platform) for platform in left)
    return (
        f"no {', '.join(products)} is named under `{HYPERVISORS}` in the hosts file "
        "(`tare help my-hypervisor`)"
    )


def _options(
    platform: str, known: KnownHosts, catalog: Catalog, arm: str, findings: StudyErrors
) -> dict[str, Any] | None:
    """Return the options that the hosts file has for a platform; None if one is wrong."""
    options, wrong = options_named(platform, known, catalog.platforms[platform])
    for words in wrong:
        findings.add(("arms", arm, YOURS), words)
    return options


def options_named(
    platform: str, known: KnownHosts, model: type[PlatformOptions]
) -> tuple[dict[str, Any] | None, tuple[str, ...]]:
    """Return the options that the hosts file has for a platform, checked by the platform's keys.

    Args:
        platform: The platform's name.
        known: The hosts file.
        model: The platform's options.

    Returns:
        The options as written, empty if the file does not name the platform. None if one of them is
            wrong; and the errors, each with the file and the key.
    """
    written = known.hypervisors.get(platform, {})
    where = f"{known.path}: {HYPERVISORS}.{platform}"
    if not isinstance(written, Mapping):
        words = (
            f"{where}: must be keys with values, such as {{address: NAME}}, not {shown(written)}"
        )
        return None, (words,)
    own, style = StudyErrors(), KeyStyle(kebab=True)
    known_there = known_keys([model], written, (), style, own, instead=model.instead)
    checked(model, known_there, (), style, own)
    # A missing option may be set by the arm, which is checked for it.
    errors = [each for each in own.found if not each[1].startswith("is missing")]
    if errors:
        keys = ("".join(f".{part}" for part in path) for path, _ in errors)
        wrong = (f"{where}{key}: {message}" for key, (_, message) in zip(keys, errors, strict=True))
        return None, tuple(wrong)
    return dict(written), ()
