"""``lethe swap``: fuse a face into photos, animated pictures, videos and folders of them."""

import dataclasses
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from edge.cli.parsing import (
    SourceChoice,
    check_faces,
    check_side_file,
    choose_sources,
    faces_for,
    parse_trim,
)
from shared.commandline import note
from shared.errors import UsageError

if TYPE_CHECKING:
    from edge.memory import FaceMemory
    from edge.memory.settings import MemorySettings
    from edge.report import JobReport
    from edge.settings import Settings
    from edge.swap import Pair, SwapOptions
    from edge.video import Trim
    from shared.config import Loaded

HELP = (
    "Fuse the face of a source photo onto the faces of photos and videos.\n\n"
    "Sound, timing and every pixel outside of the faces stay as they are. "
    "An input that fails does not stop the others; Ctrl-C finishes cleanly."
)
EXAMPLES = """[bold]Examples:[/bold]

lethe swap --source me.jpg party.jpg --output party-me.jpg

lethe swap -s me.jpg -s me-left.jpg clip.mp4 -o fused.mp4 --trim 0:10-0:25

lethe swap -s me.jpg photos/ clip.mov -o fused/ --report report.json

lethe swap -s me.jpg --reference anna.jpg group.jpg -o group-me.jpg

lethe swap --map me.jpg=anna.jpg --map you.jpg=ben.jpg clip.mp4 -o both.mp4

lethe swap -s me.jpg --remember me clip.mp4 -o fused.mp4; lethe swap -s @me other.mp4 -o other-me.mp4
"""

_CHOOSING, _ENCODING, _FUSING, _WATCHING = "Who onto whom", "Output", "Fusion", "Watching the job"
_REMEMBERING = "Face memory"


def swap(
    inputs: Annotated[
        list[Path],
        typer.Argument(
            metavar="INPUT", help="Photos, animated pictures, videos, folders.", show_default=False
        ),
    ],
    output: Annotated[
        str,  # not a Path, which would lose the closing slash of a folder that is yet to be made
        typer.Option(
            "--output", "-o", help="File, or folder for several inputs.", metavar="PATH", show_default=False
        ),
    ],
    source: Annotated[
        list[Path] | None,
        typer.Option(
            "--source",
            "-s",
            metavar="FILE|@NAME",
            help="Photo of the face to fuse; several photos of one person make a better likeness. "
            "@NAME is somebody the face memory knows.",
            show_default=False,
            rich_help_panel=_CHOOSING,
        ),
    ] = None,
    source_face: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Which face of a source photo that shows several, from the left.",
            show_default=False,
            rich_help_panel=_CHOOSING,
        ),
    ] = None,
    faces: Annotated[
        Literal["all", "largest", "match"] | None,
        typer.Option(
            help="Which faces to cover: all (default), the largest, or those that match --reference.",
            show_default=False,
            rich_help_panel=_CHOOSING,
        ),
    ] = None,
    reference: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE|@NAME",
            help="Photo of the person to cover, or somebody remembered; means --faces match.",
            show_default=False,
            rich_help_panel=_CHOOSING,
        ),
    ] = None,
    mapping: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="SOURCE=REFERENCE",
            help="Cover the person on REFERENCE with the face on SOURCE; once for each person.",
            show_default=False,
            rich_help_panel=_CHOOSING,
        ),
    ] = None,
    match_threshold: Annotated[
        float | None,
        typer.Option(
            metavar="0..1",
            help="How alike a face and the reference must be, as a cosine (0.45).",
            show_default=False,
            rich_help_panel=_CHOOSING,
        ),
    ] = None,
    trim: Annotated[
        str | None,
        typer.Option(
            metavar="START-END",
            help="Only this part of a video; seconds or h:mm:ss, either end may be left out.",
            show_default=False,
            rich_help_panel=_ENCODING,
        ),
    ] = None,
    codec: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="auto (what suits the file), h264, h265, vp9, av1, ffv1 or prores.",
            show_default=False,
            rich_help_panel=_ENCODING,
        ),
    ] = None,
    quality: Annotated[
        int | None,
        typer.Option(
            metavar="0..100",
            help="From small to finest; as the input if left out.",
            show_default=False,
            rich_help_panel=_ENCODING,
        ),
    ] = None,
    tier: Annotated[
        Literal["quality", "balanced", "fast"] | None,
        typer.Option(help="Likeness against speed (quality).", show_default=False, rich_help_panel=_FUSING),
    ] = None,
    shape_strength: Annotated[
        float | None,
        typer.Option(
            metavar="0..1.25",
            help="How far the shape of the face goes over, not only its looks (1.15).",
            show_default=False,
            rich_help_panel=_FUSING,
        ),
    ] = None,
    no_cache: Annotated[
        bool,
        typer.Option(
            "--no-cache", help="Compute everything anew, to measure the caches.", rich_help_panel=_FUSING
        ),
    ] = False,
    remember: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Enrol the person of --source, who consents, in the face memory under this name.",
            show_default=False,
            rich_help_panel=_REMEMBERING,
        ),
    ] = None,
    no_remember: Annotated[
        bool,
        typer.Option(
            "--no-remember",
            help="Leave the face memory alone: nobody is recognised, nothing is kept.",
            rich_help_panel=_REMEMBERING,
        ),
    ] = False,
    face_recognition_score: Annotated[
        float | None,
        typer.Option(
            metavar="0..1",
            help="How alike a face and a known person must be (cosine); grows with the memory by default.",
            show_default=False,
            rich_help_panel=_REMEMBERING,
        ),
    ] = None,
    face_cache_lifetime: Annotated[
        float | None,
        typer.Option(
            metavar="DAYS",
            help="Forget enrolled people so long after they were last seen (30).",
            show_default=False,
            rich_help_panel=_REMEMBERING,
        ),
    ] = None,
    face_cache_limit: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Keep at most so many people; those not seen for longest go first (10000).",
            show_default=False,
            rich_help_panel=_REMEMBERING,
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write what was done and what it cost, as JSON.",
            show_default=False,
            rich_help_panel=_WATCHING,
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write a trace for ui.perfetto.dev.",
            show_default=False,
            rich_help_panel=_WATCHING,
        ),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Events on stdout, one JSON object a line.", rich_help_panel=_WATCHING),
    ] = False,
    quiet: Annotated[
        bool,
        typer.Option("--quiet", "-q", help="Say only what went wrong.", rich_help_panel=_WATCHING),
    ] = False,
) -> None:
    """Fuse faces; ``HELP`` says it to the user."""
    choices = choose_sources(source or (), reference, mapping or ())
    window = parse_trim(trim) if trim is not None else (None, None)
    photos = [photo for choice in choices for photo in choice.photos()]
    _check_side_files(report, trace, [*inputs, Path(output), *photos])

    # Here and not on top: they bring OpenCV and the like, and nobody waits for those to read the help.
    from edge.cli.rendering import make_renderer
    from edge.cli.stopping import stop_on_signals
    from edge.progress import JobFinished
    from edge.settings import load
    from edge.swap import swap_files
    from edge.video import Trim
    from shared.config import Flag

    loaded = load(
        os.environ,
        {
            "selection.faces": Flag(*faces_for(faces, choices)),
            "selection.match_threshold": Flag("--match-threshold", match_threshold),
            "fusion.tier": Flag("--tier", tier),
            "fusion.shape_strength": Flag("--shape-strength", shape_strength),
            "output.codec": Flag("--codec", codec),
            "output.quality": Flag("--quality", quality),
            "cache.enabled": Flag("--no-cache", False if no_cache else None),
            "memory.recognition_score": Flag("--face-recognition-score", face_recognition_score),
            "memory.ttl_enrolled_days": Flag("--face-cache-lifetime", face_cache_lifetime),
            "memory.limit_people": Flag("--face-cache-limit", face_cache_limit),
        },
    )
    check_faces(loaded.values.selection.faces, choices)
    options = dataclasses.replace(
        _options(loaded.values, Trim(*window), source_face, keep_spans=trace is not None),
        remember_as=remember,
    )
    pairs = [_pair(choice) for choice in choices]
    wants_memory = remember is not None or any(pair.person or pair.covers for pair in pairs)
    if no_remember and wants_memory:
        raise UsageError("--no-remember contradicts --remember and @NAME: leave out one of them")
    if no_cache and wants_memory:
        raise UsageError("--no-cache leaves the face memory alone too: leave it out, or --remember and @NAME")
    with (
        make_renderer(as_json=as_json, quiet=quiet) as renderer,
        stop_on_signals() as stop,
        _memory(loaded.values.memory, needed=wants_memory, off=no_remember) as memory,
    ):
        result = swap_files(pairs, inputs, output, options, events=renderer, stop=stop, memory=memory)
        _write_side_files(result, loaded, report, trace)
        renderer(JobFinished(report))
    result.raise_for_status()


def _pair(choice: SourceChoice) -> "Pair":
    """Photos and people of one choice; ``@NAME`` is somebody whom the face memory knows."""
    from edge.swap import Pair

    names = [str(path)[1:] for path in choice.source if str(path).startswith("@")]
    if names and len(choice.source) > 1:
        raise UsageError(
            f"--source @{names[0]}: stands for all photos of that person; give no others beside it"
        )
    reference = choice.reference
    covers = str(reference)[1:] if reference is not None and str(reference).startswith("@") else None
    return Pair(
        source=() if names else choice.source,
        reference=None if covers else reference,
        person=names[0] if names else None,
        covers=covers,
    )


@contextmanager
def _memory(settings: "MemorySettings", *, needed: bool, off: bool) -> Iterator["FaceMemory | None"]:
    """The face memory, where there is one or one is asked for; a job never makes one by itself."""
    if off or (settings.policy == "off" and not needed):
        yield None
        return
    if not (needed or settings.policy == "seen" or settings.folder.exists()):
        yield None
        return
    from edge.memory import FaceMemory

    with FaceMemory.open(settings, notify=note) as memory:
        yield memory


def _check_side_files(report: Path | None, trace: Path | None, others: Sequence[Path]) -> None:
    if report is not None:
        check_side_file("--report", report, others)
    if trace is not None:
        check_side_file("--trace", trace, [*others, report] if report else others)


def _options(
    settings: "Settings", trim: "Trim", source_face: int | None, *, keep_spans: bool
) -> "SwapOptions":
    from edge.swap import SwapOptions

    return SwapOptions(
        faces=settings.selection.faces,
        match_threshold=settings.selection.match_threshold,
        trim=trim,
        codec=settings.output.codec,
        quality=settings.output.quality,
        tier=settings.fusion.tier,
        shape_strength=settings.fusion.shape_strength,
        caches=settings.cache.enabled,
        source_face=source_face,
        runtime=settings.runtime,
        detection=settings.detection,
        tracking=settings.tracking,
        keep_spans=keep_spans,
    )


def _write_side_files(
    result: "JobReport", loaded: "Loaded[Settings]", report: Path | None, trace: Path | None
) -> None:
    from edge.report import write_report
    from edge.trace import write_trace

    if report is not None:
        command = ("lethe", *sys.argv[1:])
        write_report(
            report, dataclasses.replace(result, command=command, effective_config=loaded.effective())
        )
    if trace is not None:
        write_trace(trace, result.spans)
