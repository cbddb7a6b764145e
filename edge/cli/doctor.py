"""``lethe doctor``: looks at this machine and says what to do."""

import os
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from shared.checks import Finding

EXAMPLES = """[bold]Examples:[/bold]

lethe doctor

lethe doctor --json | jq '.findings[] | select(.level != "ok")'
"""


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Check this machine and say what to do about each finding.

    Leaves with 1 if something stops the main job.
    """
    from edge.doctor import examine
    from shared.commandline import tell_findings
    from shared.ort import CPU

    config, providers = _check_config()
    tell_findings([*examine(wanted_providers=providers or (CPU,)), config], as_json=as_json)


def _check_config() -> tuple["Finding", tuple[str, ...]]:
    """Whether the settings are valid, and the execution providers they ask for."""
    from shared.checks import Finding
    from shared.errors import ConfigError

    try:
        # The schema is made of modules that need OpenCV and the like, which may be what is missing.
        from edge.settings import load, settings_file
    except ImportError as err:
        return Finding("config", "problem", f"not checked: {err}", "mend the packages first"), ()
    try:
        loaded = load(os.environ)
    except ConfigError as err:
        return Finding("config", "problem", str(err), "correct it; `lethe config path` says where"), ()
    file = settings_file(os.environ)
    text = f"{file}, valid" if file.exists() else f"no file ({file}), defaults apply"
    return Finding("config", "ok", text), loaded.values.runtime.providers
