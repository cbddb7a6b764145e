import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from shared.commandline import one_line

REPOSITORY = Path(__file__).resolve().parents[2]


def run(body: str, *, stdout: int = subprocess.PIPE, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run an application with one command whose body is given, in a process of its own."""
    script = textwrap.dedent(
        """
        import sys
        from pathlib import Path
        from shared import errors
        from shared.commandline import new_app, run_app
        app = new_app("a program for tests")
        @app.callback(invoke_without_command=True)
        def command(number: int = 0) -> None:
        {body}
        sys.exit(run_app(app, "prog", {arguments}))
        """
    ).format(
        body=textwrap.indent(textwrap.dedent(body), "    "),
        arguments=extra.pop("arguments", "['--number', '1']"),
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LETHE_")}
    return subprocess.run(
        [sys.executable, "-c", script],
        env=kept | {"PYTHONPATH": str(REPOSITORY)} | extra,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )


def test_a_command_that_ends_well_leaves_with_0() -> None:
    done = run("print('hello')")
    assert (done.returncode, done.stdout, done.stderr) == (0, "hello\n", "")


@pytest.mark.parametrize(
    ("error", "exit_code", "message"),
    [
        ("errors.InputError('a.jpg', 'is empty')", 1, "a.jpg: is empty"),
        ("errors.ConfigError('no such key')", 2, "no such key"),
        ("errors.PolicyError('no consent')", 3, "no consent"),
        ("errors.InterruptedJobError('stopped')", 4, "stopped"),
        ("errors.SomeInputsFailedError(failed=1, total=3)", 5, "1 of 3 inputs failed; the others are done"),
    ],
)
def test_our_errors_are_one_line_and_their_exit_code(error: str, exit_code: int, message: str) -> None:
    done = run(f"raise {error}")
    assert (done.returncode, done.stdout, done.stderr) == (exit_code, "", f"prog: {message}\n")


def test_an_unexpected_error_is_one_line_that_says_how_to_see_more() -> None:
    done = run("raise RuntimeError('oh\\nno')")
    assert done.returncode == 1
    assert done.stderr == "prog: unexpected RuntimeError: oh\\x0ano (set LETHE_DEBUG=1 to see where)\n"


def test_the_debug_variable_brings_the_traceback() -> None:
    done = run("raise RuntimeError('oh')", LETHE_DEBUG="1")
    assert done.returncode == 1
    assert "Traceback" in done.stderr


def test_a_wrong_option_is_a_usage_error_with_its_name() -> None:
    done = run("pass", arguments="['--nmber', '1']")
    assert done.returncode == 2
    assert "--nmber" in done.stderr


def test_ctrl_c_leaves_with_4() -> None:
    assert run("raise KeyboardInterrupt").returncode == 4


def test_a_reader_that_went_away_is_no_story() -> None:
    end, start = os.pipe()
    os.close(end)
    done = run("print('x' * 100000)", stdout=start)
    os.close(start)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_output_that_cannot_be_written_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        done = run("print('x')", stdout=full.fileno())
    assert done.returncode == 1
    assert done.stderr.startswith("prog: output: No space left on device")
    assert done.stderr.count("\n") == 1


def test_a_name_that_is_no_text_can_be_printed() -> None:
    done = run(r"print(Path('\udcff.jpg'))")
    assert (done.returncode, done.stdout) == (0, "\\udcff.jpg\n")


def test_control_characters_are_spelled_out() -> None:
    assert one_line("a\nb\x1b[2Jc") == "a\\x0ab\\x1b[2Jc"
    assert one_line("Ünï 面") == "Ünï 面"
