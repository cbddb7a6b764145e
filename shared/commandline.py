"""What the command lines of both sides share: from an exception to one line and an exit code.

==== ================================
code means
==== ================================
0    done
1    failed
2    usage or configuration
3    refused by policy
4    interrupted
5    some inputs failed
==== ================================
"""

import contextlib
import dataclasses
import json
import logging
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from shared.errors import FaceFusionError, InterruptedJobError

if TYPE_CHECKING:
    from shared.checks import Finding

_UNBOUNDED_WIDTH = 4096
_LEVEL_STYLES = {"ok": "green", "note": "yellow", "problem": "bold red"}

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")

DEBUG_VARIABLE = "LETHE_DEBUG"

# What a shell reports for a program that Ctrl-C ended; Typer uses it too.
_ENDED_BY_SIGINT = 130


def new_app(help_text: str) -> typer.Typer:
    """An application, or a group of commands, as we want all of them."""
    return typer.Typer(
        help=help_text,
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def run_app(app: typer.Typer, program: str, arguments: Sequence[str] | None = None) -> int:
    """Run a command line to its end.

    Args:
        app: The commands.
        program: The name the user calls it by.
        arguments: What follows that name; ``sys.argv[1:]`` if None.

    Returns:
        The exit code. No exception escapes; what went wrong is one line on stderr.
    """
    _prepare_streams()
    debug = is_debug(os.environ)
    _configure_logging(program, debug)
    try:
        try:
            app(args=arguments, prog_name=program)
        finally:
            sys.stdout.flush()
        return 0
    except SystemExit as err:
        code = err.code if isinstance(err.code, int) else int(err.code is not None)
        return InterruptedJobError.exit_code if code == _ENDED_BY_SIGINT else code
    except BrokenPipeError:
        _drop_output()
        return 1
    except FaceFusionError as err:
        _complain(program, str(err))
        _show_traceback(debug)
        return err.exit_code
    except KeyboardInterrupt:
        _complain(program, "stopped")
        return InterruptedJobError.exit_code
    except OSError as err:
        _drop_output()
        _complain(
            program, f"{err.filename or 'output'}: {err.strerror} (set {DEBUG_VARIABLE}=1 to see where)"
        )
        _show_traceback(debug)
        return 1
    except Exception as err:
        _complain(program, f"unexpected {type(err).__name__}: {err} (set {DEBUG_VARIABLE}=1 to see where)")
        _show_traceback(debug)
        return 1


def _prepare_streams() -> None:
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by whoever started us
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115, PTH123 (stays open to the end)
        else:
            # A path may hold bytes that are no text, and an old terminal may not know a character.
            stream.reconfigure(errors="backslashreplace")


class _StderrHandler(logging.Handler):
    """Looks ``sys.stderr`` up each time: a progress bar replaces it while it is drawn."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr)


def _configure_logging(program: str, debug: bool) -> None:
    handler = _StderrHandler()
    handler.setFormatter(logging.Formatter(f"{program}: %(name)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    if debug:
        for package in ("edge", "cloud", "shared"):
            logging.getLogger(package).setLevel(logging.DEBUG)


def stdout_console() -> Console:
    """A console on stdout; it wraps lines on a terminal only, so that programs read whole ones."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else _UNBOUNDED_WIDTH)


def tell_findings(findings: Sequence["Finding"], *, as_json: bool) -> None:
    """Print what a doctor found, and what to do about it.

    Raises:
        typer.Exit: With 1 if something stops the main job.
    """
    stopped = any(finding.level == "problem" for finding in findings)
    if as_json:
        plain = {"ok": not stopped, "findings": [dataclasses.asdict(finding) for finding in findings]}
        print(json.dumps(plain, indent=2))
    else:
        console = stdout_console()
        console.print(_findings_table(findings))
        console.print("something stops the main job: see above" if stopped else "ready")
    if stopped:
        raise typer.Exit(1)


def _findings_table(findings: Iterable["Finding"]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    for finding in findings:
        table.add_row(Text(finding.level, _LEVEL_STYLES[finding.level]), finding.area, Text(finding.text))
        if finding.advice:
            table.add_row("", "", Text(f"→ {finding.advice}", "dim"))
    return table


def is_debug(environ: Mapping[str, str]) -> bool:
    """Whether tracebacks and debug logs are wanted."""
    return environ.get(DEBUG_VARIABLE, "0") not in ("", "0")


def _complain(program: str, message: str) -> None:
    with contextlib.suppress(BrokenPipeError):
        print(f"{program}: {one_line(message)}", file=sys.stderr)


def one_line(text: str) -> str:
    """The text with control characters spelled out: a file name may hold line breaks and escape codes."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


def note(text: str) -> None:
    """Say what the user should know, on stderr."""
    print(one_line(f"note: {text}"), file=sys.stderr)


def _show_traceback(debug: bool) -> None:
    if debug:
        logging.getLogger(__name__).debug("traceback", exc_info=True)


def _drop_output() -> None:
    """Nobody takes our output: be quiet when the interpreter flushes what is left at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
