"""``lethe memory``: who is remembered, and what becomes of it."""

import dataclasses
import json
import math
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer
from rich.table import Table
from rich.text import Text

from shared.commandline import new_app, note, one_line, stdout_console
from shared.errors import UsageError, VaultLockedError

if TYPE_CHECKING:
    from edge.memory.enrolment import FoundPeople, FoundPerson, PhotoFace, PhotoReader
    from edge.memory.people import Consenting, KnownPerson
    from edge.memory.rules import NeverRule
    from edge.memory.service import FaceMemory, Forgotten
    from edge.settings import Settings

app = new_app(
    "The face memory: who is known, for how long, and how to be forgotten.\n\n"
    "Only people who were enrolled are remembered, unless you choose otherwise; everything lies encrypted on "
    "this machine, and what is forgotten cannot be brought back."
)

_PATIENCE_S = 1.5
"""Another command is done by then; a job is not."""

_Json = Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")]
_Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
_People = Annotated[
    list[str], typer.Argument(metavar="NAME|ID", help="Names, or ids from the list.", show_default=False)
]
_Person = Annotated[
    str, typer.Argument(metavar="NAME|ID", help="A name, or an id from the list.", show_default=False)
]


def _examples(*lines: str) -> str:
    return "[bold]Examples:[/bold]\n\n" + "\n\n".join(lines)


# Opening -------------------------------------------------------------------------------------------------


def _settings() -> "Settings":
    from edge.settings import load

    return load(os.environ).values


@contextmanager
def _memory(*, writes: bool) -> Iterator["FaceMemory"]:
    """The memory, opened for this command; a command that writes fails where another one does."""
    from edge.memory.service import FaceMemory

    settings = _settings().memory
    with FaceMemory.manage(
        settings, notify=note, writer=writes, passphrase=_ask_passphrase, patience_s=_PATIENCE_S
    ) as memory:
        yield memory


def _ask_passphrase() -> str:
    from edge.memory.settings import PASSPHRASE_VARIABLE

    return _secret(PASSPHRASE_VARIABLE, "Passphrase of the memory", confirm=False)


def _secret(variable: str, prompt: str, *, confirm: bool) -> str:
    """A passphrase, from its variable or from the terminal."""
    given = os.environ.get(variable)
    if given:
        return given
    if not sys.stdin.isatty():
        raise UsageError(f"a passphrase is needed: set {variable}, or run this on a terminal")
    return str(typer.prompt(prompt, hide_input=True, confirmation_prompt=confirm, err=True))


def _confirm(question: str, *, yes: bool) -> None:
    """Ask before what cannot be undone.

    Raises:
        UsageError: If there is nobody to ask.
        typer.Abort: If the answer is no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("this cannot be undone: add --yes to do it without being asked")
    typer.confirm(question, abort=True, err=True)


def _print_json(value: object) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


# Looking -------------------------------------------------------------------------------------------------


@app.command("list", epilog=_examples("lethe memory list", "lethe memory list --json | jq '.people[].name'"))
def list_people(as_json: _Json = False) -> None:
    """List who is remembered, and until when."""
    with _memory(writes=False) as memory:
        people = memory.people()
        counts = memory.artefact_counts()
    if as_json:
        _print_json({"people": [_person_json(p, counts.get(p.person_id, 0)) for p in people]})
    elif not people:
        print("nobody is remembered")
    else:
        stdout_console().print(_people_table(people, counts))


def _people_table(people: Sequence["KnownPerson"], counts: dict[bytes, int]) -> Table:
    from edge.memory.times import ago, until

    now_s = time.time()
    table = Table(
        "name", "id", "how", "views", "prepared", "last seen", "forgotten", box=None, pad_edge=False
    )
    for person in people:
        table.add_row(
            Text(one_line(person.name or "-")),
            person.short_id,
            person.origin,
            str(person.views),
            str(counts.get(person.person_id, 0)),
            ago(person.last_seen_s, now_s),
            "pinned" if person.pinned else until(person.expires_at_s, now_s),
        )
    return table


def _person_json(person: "KnownPerson", artefacts: int) -> dict[str, Any]:
    from edge.memory.times import iso

    consent = person.consent
    return {
        "id": person.person_id.hex(),
        "name": person.name,
        "origin": person.origin,
        "views": person.views,
        "artefacts": artefacts,
        "sources": list(person.sources),
        "created": iso(person.created_s),
        "last_seen": iso(person.last_seen_s),
        "expires": iso(person.expires_at_s),
        "pinned": person.pinned,
        "consent": None
        if consent is None
        else {
            "given_by": consent.given_by,
            "scope": consent.scope,
            "given": iso(consent.given_at_s),
            "expires": iso(consent.expires_at_s),
        },
    }


@app.command(epilog=_examples("lethe memory show Anna", "lethe memory show 3f9c12ab --json"))
def show(who: _Person, as_json: _Json = False) -> None:
    """Show everything that is known of one person, but for the numbers of their face."""
    with _memory(writes=False) as memory:
        person = memory.require(who)
        artefacts = memory.artefact_counts().get(person.person_id, 0)
        exports = memory.copies_of([person.person_id])
    plain = _person_json(person, artefacts) | {"exports": exports}
    if as_json:
        _print_json(plain)
    else:
        stdout_console().print(_fields(plain))


def _fields(plain: dict[str, Any]) -> Table:
    """One line for each value; what is nested is written out."""
    table = Table(box=None, show_header=False, pad_edge=False)
    for key, value in plain.items():
        if isinstance(value, dict):
            value = ", ".join(f"{name.replace('_', ' ')} {entry}" for name, entry in value.items() if entry)
        elif isinstance(value, (list, tuple)):
            value = ", ".join(map(str, value))
        shown = "-" if value is None or value == "" else "yes" if value is True else value
        table.add_row(key.replace("_", " "), Text(one_line(str("no" if shown is False else shown))))
    return table


@app.command(epilog=_examples("lethe memory status", "lethe memory status --json"))
def status(as_json: _Json = False) -> None:
    """Say where the memory lies, what it holds, how it is protected and what that does not protect from."""
    with _memory(writes=False) as memory:
        plain = memory.status()
    if as_json:
        _print_json(plain)
    else:
        stdout_console().print(_fields(plain))


@app.command(epilog=_examples("lethe memory audit", "lethe memory audit --last 20 --json"))
def audit(
    last: Annotated[int, typer.Option(min=1, metavar="N", help="Only the newest.")] = 100,
    as_json: _Json = False,
) -> None:
    """List what was done with the memory and when. It names nobody."""
    with _memory(writes=False) as memory:
        entries = memory.audit(last)
    if as_json:
        _print_json({"entries": [entry.to_json() for entry in entries]})
        return
    table = Table("when", "what", "people", "rule", "detail", box=None, pad_edge=False)
    for entry in entries:
        plain = entry.to_json()
        table.add_row(plain["when"], entry.action, str(entry.people), entry.rule, Text(entry.detail))
    stdout_console().print(table)


@app.command(
    "verify-forget", epilog=_examples("lethe memory verify-forget", "lethe memory verify-forget --json")
)
def verify_forget(
    also: Annotated[
        list[Path] | None,
        typer.Option(metavar="FOLDER", help="Look into copies, too, such as backups.", show_default=False),
    ] = None,
    as_json: _Json = False,
) -> None:
    """Read every byte of the memory's files and try every key there is on what was forgotten.

    Leaves with 1 if anything opens, or if the search itself cannot be trusted.
    """
    with _memory(writes=False) as memory:
        found = memory.verify_forget(also or ())
    plain = dataclasses.asdict(found) | {"clean": found.clean}
    if as_json:
        _print_json(plain)
    else:
        stdout_console().print(_fields(plain))
        print("nothing of anybody forgotten can be read" if found.clean else "NOT CLEAN: see problems")
    if not found.clean:
        raise typer.Exit(1)


# Remembering ---------------------------------------------------------------------------------------------


@app.command(
    no_args_is_help=True,
    epilog=_examples(
        "lethe memory enroll --name Anna anna.jpg anna-left.jpg",
        "lethe memory enroll --name Ben group.jpg --face 2 --consent-until 2027-01-01",
        "lethe memory enroll --from photos/",
        "lethe memory enroll --from photos/ --json",
    ),
)
def enroll(
    photos: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Photos of one person.", show_default=False),
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="What to call the person.", show_default=False)
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="FOLDER",
            help="Find the people of all photos of a folder and ask for their names; --json only lists them.",
            show_default=False,
        ),
    ] = None,
    face: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Which face of a photo that shows several, from the left.",
            show_default=False,
        ),
    ] = None,
    consent_by: Annotated[
        str | None,
        typer.Option(metavar="WHO", help="Who consented; the person, if left out.", show_default=False),
    ] = None,
    scope: Annotated[
        str, typer.Option(metavar="SCOPE", help="What they consented to: fusion, or recognition only.")
    ] = "fusion",
    consent_until: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN", help="When the consent ends: a date, or a span such as 30d.", show_default=False
        ),
    ] = None,
    yes: Annotated[
        bool,
        typer.Option("--yes", "-y", help="With --from: take names of sub-folders without asking."),
    ] = False,
    as_json: _Json = False,
) -> None:
    """Remember a person who has consented, by one or several photos. No picture is kept."""
    _check_enrolment(photos or [], name, folder, face)
    from edge.memory.people import Consenting
    from edge.memory.times import parse_moment_s

    consent = Consenting(
        given_by=consent_by or "",
        scope=scope,
        expires_at_s=None
        if consent_until is None
        else parse_moment_s(consent_until, time.time(), flag="--consent-until", ahead=True),
    )
    if folder is not None:
        _enroll_folder(folder, consent, yes=yes, as_json=as_json)
        return
    assert name is not None
    reader = _reader()
    people = reader.one_person(photos or [], face)
    with _memory(writes=True) as memory:
        enrolled = _enrol(memory, reader, name, people, consent)
        counts = memory.artefact_counts()
    if as_json:
        _print_json({"person": _person_json(enrolled, counts.get(enrolled.person_id, 0))})
    else:
        print(_enrolled_line(enrolled))


def _enrol(
    memory: "FaceMemory",
    reader: "PhotoReader",
    name: str,
    faces: Sequence["PhotoFace"],
    consent: "Consenting",
) -> "KnownPerson":
    """Remember a person, and what a job needs to fuse them by name if they consented to that."""
    from edge.source import key_of_person
    from shared.mesh.engine import MeshEngine

    sources = list(dict.fromkeys(str(face.path.absolute()) for face in faces))
    person = memory.enrol(name, [face.view for face in faces], consent, sources=sources)
    if consent.scope == "fusion":
        engine = MeshEngine()
        packed = engine.pack(engine.prepare(reader.source_photos(faces)))
        key = key_of_person(engine.card, person.person_id)
        memory.put_artefact(key, [person.person_id], packed, source=sources[0])
    return person


def _check_enrolment(photos: list[Path], name: str | None, folder: Path | None, face: int | None) -> None:
    if folder is not None:
        if name is not None or photos or face is not None:
            raise UsageError(
                "--from finds and names the people itself: leave out --name, --face and the photos"
            )
    elif not photos:
        raise UsageError("nobody to remember: give photos of one person and --name, or --from FOLDER")
    elif not name or not name.strip():
        raise UsageError("nameless: add --name NAME, what to call the person")


def _reader() -> "PhotoReader":
    from edge.memory.enrolment import PhotoReader

    settings = _settings()
    return PhotoReader(settings.runtime, settings.detection)


def _enrolled_line(person: "KnownPerson") -> str:
    from edge.memory.times import until

    views = "1 view" if person.views == 1 else f"{person.views} views"
    ends = "pinned" if person.pinned else f"forgotten {until(person.expires_at_s, time.time())}"
    return one_line(f"{person.name}: remembered ({person.short_id}, {views}, {ends} unless seen again)")


def _enroll_folder(folder: Path, consent: "Consenting", *, yes: bool, as_json: bool) -> None:
    from edge.memory.enrolment import find_people

    reader = _reader()
    found = find_people(folder, reader)
    if as_json and not yes:
        with _memory(writes=False) as memory:
            known = [memory.look_up(person.faces[0].embedding) for person in found.people]
        _print_json(_found_json(found, known))
        return
    for path, reason in found.unreadable:
        note(f"{path}: {reason}")
    enrolled = []
    with _memory(writes=True) as memory:
        for person in found.people:
            match = memory.look_up(person.faces[0].embedding)
            name = _name_of(person, match.name if match else None, yes=yes)
            if name:
                enrolled.append(_enrol(memory, reader, name, person.faces, consent))
                if not as_json:
                    print(_enrolled_line(enrolled[-1]))
        counts = memory.artefact_counts()
    if as_json:
        _print_json({"people": [_person_json(p, counts.get(p.person_id, 0)) for p in enrolled]})
    elif not enrolled:
        print("nobody was remembered")


def _found_json(found: "FoundPeople", known: Sequence["KnownPerson | None"]) -> dict[str, Any]:
    people = [
        {
            "photos": [{"path": str(face.path), "face": face.number} for face in person.faces],
            "proposal": person.proposal,
            "known_as": match.name if match else None,
        }
        for person, match in zip(found.people, known, strict=True)
    ]
    unreadable = [{"path": str(path), "reason": reason} for path, reason in found.unreadable]
    return {"photos": found.photos, "people": people, "unreadable": unreadable}


def _name_of(person: "FoundPerson", known: str | None, *, yes: bool) -> str | None:
    """What to call somebody found in a folder; None to pass them over."""
    proposal = known or person.proposal
    if yes:
        return proposal
    if not sys.stdin.isatty():
        raise UsageError("nobody to ask for names: add --yes to take those of sub-folders, or --json to list")
    where = [f"{face.path} (face {face.number})" for face in person.faces[:3]]
    more = f" and {len(person.faces) - 3} more" if len(person.faces) > 3 else ""
    print(one_line(f"somebody on {', '.join(where)}{more}"), file=sys.stderr)
    answer = typer.prompt("name (empty to pass over)", default=proposal or "", err=True)
    return str(answer).strip() or None


@app.command(
    "import",
    no_args_is_help=True,
    epilog=_examples("lethe memory import people.age --identity people.age.key"),
)
def import_people(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A bundle.", show_default=False)],
    identity: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="age or ssh key that opens it; else a passphrase.", show_default=False
        ),
    ] = None,
    as_json: _Json = False,
) -> None:
    """Take over the people of a bundle. Whoever was forgotten, here or there, stays forgotten."""
    from edge.memory.bundle import read_bundle
    from edge.memory.settings import BUNDLE_PASSPHRASE_VARIABLE

    passphrase = (
        None if identity else _secret(BUNDLE_PASSPHRASE_VARIABLE, "Passphrase of the bundle", confirm=False)
    )
    bundle = read_bundle(file, identity=identity, passphrase=passphrase)
    with _memory(writes=True) as memory:
        done = memory.take_over(bundle)
    plain = dataclasses.asdict(done)
    if as_json:
        _print_json(plain)
    else:
        stdout_console().print(_fields(plain))


@app.command(
    no_args_is_help=True,
    epilog=_examples(
        "lethe memory export people.age",
        "lethe memory export people.age --recipient age1…",
        "lethe memory export people.age --passphrase",
    ),
)
def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The bundle to write.", show_default=False)],
    recipient: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY", help="age1… or ssh public key of who may open it.", show_default=False),
    ] = None,
    passphrase: Annotated[bool, typer.Option("--passphrase", help="Seal it with a passphrase.")] = False,
    as_json: _Json = False,
) -> None:
    """Write who is remembered to an encrypted file (age). Without a recipient a fresh key is made beside it.

    A copy that has left this machine cannot be forgotten from here; forget says where copies went.
    """
    from edge.memory.bundle import write_bundle
    from edge.memory.settings import BUNDLE_PASSPHRASE_VARIABLE

    if passphrase and recipient:
        raise UsageError("--passphrase and --recipient cannot go together: a bundle has one kind of lock")
    secret = (
        _secret(BUNDLE_PASSPHRASE_VARIABLE, "Passphrase for the bundle", confirm=True) if passphrase else None
    )
    with _memory(writes=True) as memory:
        bundle = memory.give_away()
        key_file = write_bundle(file, bundle, recipients=recipient or (), passphrase=secret)
        memory.note_export(bundle, file.name)
    plain = {
        "file": str(file),
        "people": len(bundle.people),
        "key_file": None if key_file is None else str(key_file),
    }
    if as_json:
        _print_json(plain)
    else:
        stdout_console().print(_fields(plain))
        if key_file is not None:
            note(f"{key_file} opens the bundle: keep it apart from it")


# Changing ------------------------------------------------------------------------------------------------


@app.command(no_args_is_help=True, epilog=_examples("lethe memory rename Anna 'Anna B.'"))
def rename(
    who: _Person,
    name: Annotated[str, typer.Argument(metavar="NEW", help="The new name.", show_default=False)],
    as_json: _Json = False,
) -> None:
    """Call a person something else."""
    with _memory(writes=True) as memory:
        person = memory.rename(memory.require(who).person_id, name)
    _tell_people([person], as_json=as_json, done="renamed")


@app.command(no_args_is_help=True, epilog=_examples("lethe memory pin Anna"))
def pin(who: _People, as_json: _Json = False) -> None:
    """Keep people until they are forgotten on purpose: no time limit, never pushed out by others."""
    with _memory(writes=True) as memory:
        people = [memory.set_pinned(memory.require(one).person_id, True) for one in who]
    _tell_people(people, as_json=as_json, done="pinned")


@app.command(no_args_is_help=True, epilog=_examples("lethe memory unpin Anna"))
def unpin(who: _People, as_json: _Json = False) -> None:
    """Let the usual time limits apply again, counted from now."""
    with _memory(writes=True) as memory:
        people = [memory.set_pinned(memory.require(one).person_id, False) for one in who]
    _tell_people(people, as_json=as_json, done="unpinned")


def _tell_people(people: Sequence["KnownPerson"], *, as_json: bool, done: str) -> None:
    if as_json:
        _print_json(
            {"people": [{"id": p.person_id.hex(), "name": p.name, "pinned": p.pinned} for p in people]}
        )
        return
    for person in people:
        print(one_line(f"{person.name or person.short_id}: {done}"))


@app.command(
    no_args_is_help=True,
    epilog=_examples(
        "lethe memory forget Anna",
        "lethe memory forget --seen-since 2h --yes",
        "lethe memory forget --source holidays/ --yes",
        "lethe memory forget --all",
    ),
)
def forget(
    who: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME|ID", help="Names, or ids from the list.", show_default=False),
    ] = None,
    everybody: Annotated[bool, typer.Option("--all", help="Everybody; rules stay.")] = False,
    seen_since: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="Whoever was seen since: 2h, 3d, 2026-05-01.", show_default=False),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            metavar="SRC", help="Whoever became known by this file, folder or camera.", show_default=False
        ),
    ] = None,
    yes: _Yes = False,
    as_json: _Json = False,
) -> None:
    """Forget people, for good. Acknowledged only when the key to everything about them is destroyed."""
    chosen = [bool(who), everybody, seen_since is not None, source is not None]
    if sum(chosen) != 1:
        raise UsageError("forget whom? give names or ids, or one of --all, --seen-since WHEN, --source SRC")
    since_s = None
    if seen_since is not None:
        from edge.memory.times import parse_moment_s

        since_s = parse_moment_s(seen_since, time.time(), flag="--seen-since")

    def choose(memory: "FaceMemory") -> "Sequence[KnownPerson]":
        if since_s is not None:
            return memory.seen_since(since_s)
        if source is not None:
            from edge.memory.rule_texts import source_name

            return memory.from_source(source_name(source))
        if everybody:
            return memory.people()
        return list({(p := memory.require(one)).person_id: p for one in who or ()}.values())

    try:
        with _memory(writes=True) as memory:
            people = choose(memory)
            _confirm_forget(memory, people, everybody=everybody, yes=yes)
            ids = [person.person_id for person in people]
            done = memory.forget_all() if everybody else memory.forget(ids)
    except VaultLockedError:
        # Somebody else writes, perhaps for hours: have them do it.
        with _memory(writes=False) as memory:
            people = choose(memory)
            _confirm_forget(memory, people, everybody=everybody, yes=yes)
            done = memory.ask_to_forget([person.person_id for person in people])
    _tell_forgotten(done, as_json=as_json)


def _confirm_forget(
    memory: "FaceMemory", people: Sequence["KnownPerson"], *, everybody: bool, yes: bool
) -> None:
    """Say where copies went, and ask."""
    if not people and not everybody:
        return
    named = ", ".join(person.name or person.short_id for person in people[:5])
    more = f" and {len(people) - 5} more" if len(people) > 5 else ""
    copies = memory.copies_of([person.person_id for person in people])
    if copies:
        note(f"copies that left this machine cannot be recalled: {', '.join(copies)}")
    _confirm(f"Forget {'everybody' if everybody else one_line(named + more)} for good?", yes=yes)


def _tell_forgotten(done: "Forgotten", *, as_json: bool) -> None:
    if as_json:
        _print_json(dataclasses.asdict(done))
    elif not done.people and not done.records:
        print("nobody to forget")
    else:
        people = "1 person" if done.people == 1 else f"{done.people} people"
        records = "1 record" if done.records == 1 else f"{done.records} records"
        print(f"forgotten: {people}, {records} (level {done.level})")


@app.command(
    epilog=_examples(
        "lethe memory never",
        "lethe memory never --source 'clinic/*'",
        "lethe memory never --time 22:00-06:00 --days fri,sat",
        "lethe memory never --zone 0,0,0.5,1 --source camera:0",
        "lethe memory never --photo me.jpg --for 30d",
    )
)
def never(
    source: Annotated[
        str | None,
        typer.Option(
            metavar="SRC",
            help="Nobody seen here: file, folder, camera; * and ? stand for others.",
            show_default=False,
        ),
    ] = None,
    zone: Annotated[
        str | None,
        typer.Option(
            metavar="X0,Y0,X1,Y1",
            help="Nobody in this part of the picture, as shares of its size; of --source or of all.",
            show_default=False,
        ),
    ] = None,
    hours: Annotated[
        str | None,
        typer.Option("--time", metavar="HH:MM-HH:MM", help="Nobody at these hours.", show_default=False),
    ] = None,
    days: Annotated[
        str | None,
        typer.Option(metavar="mon,tue,…", help="Only on these days, with --time.", show_default=False),
    ] = None,
    label: Annotated[
        str | None, typer.Option(metavar="WORD", help="Nobody marked with this word.", show_default=False)
    ] = None,
    person: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|ID",
            help="This person, who is forgotten now; 256 bits of their face are kept to know them by.",
            show_default=False,
        ),
    ] = None,
    photo: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The person on this photo; as with --person.", show_default=False),
    ] = None,
    face: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Which face of the photo, from the left.", show_default=False),
    ] = None,
    lasting: Annotated[
        str | None,
        typer.Option(
            "--for", metavar="SPAN", help="Only for so long: 2h, 30d; else until allowed.", show_default=False
        ),
    ] = None,
    yes: _Yes = False,
    as_json: _Json = False,
) -> None:
    """Never remember: add a rule; without options list the rules. The strictest rule wins."""
    from edge.memory.times import parse_span_s

    kinds = [zone or source, hours, label, person, photo]
    given = sum(one is not None for one in kinds)
    if given > 1 or (days and not hours) or (face and not photo):
        raise UsageError("one rule at a time: --source, --zone, --time, --label, --person or --photo")
    if not given:
        with _memory(writes=False) as memory:
            _tell_rules(memory.rules(), as_json=as_json)
        return
    ends_s = math.inf if lasting is None else time.time() + parse_span_s(lasting, flag="--for")
    seen = None if photo is None else _reader().face(photo, face)
    with _memory(writes=True) as memory:
        if person is not None or seen is not None:
            rule = _never_person(memory, person, seen, ends_s, yes=yes)
        else:
            named = {"rule_id": memory.new_rule_id(), "expires_at_s": ends_s}
            rule = memory.never(_rule(source, zone, hours, days, label, named))
    _tell_rules([rule], as_json=as_json)


def _rule(
    source: str | None,
    zone: str | None,
    hours: str | None,
    days: str | None,
    label: str | None,
    named: dict[str, Any],
) -> "NeverRule":
    """The rule that the options ask for."""
    from edge.memory import rules
    from edge.memory.rule_texts import parse_days, parse_hours, parse_zone, source_name

    if zone is not None:
        return rules.NeverZone(pattern=source_name(source or "*"), box=parse_zone(zone), **named)
    if hours is not None:
        begin, end = parse_hours(hours)
        return rules.NeverTime(from_minute=begin, to_minute=end, weekdays=parse_days(days), **named)
    if label is not None:
        return rules.NeverLabel(label=label, **named)
    return rules.NeverSource(pattern=source_name(source or ""), **named)


def _never_person(
    memory: "FaceMemory", who: str | None, face: "PhotoFace | None", ends_s: float, *, yes: bool
) -> "NeverRule":
    """Make the rule, and forget whoever it is about."""
    known = memory.require(who) if who is not None else memory.look_up(face.embedding) if face else None
    views = [face.embedding] if face else [] if known is None else list(known.embeddings)
    if known is not None:
        named = one_line(known.name or known.short_id)
        _confirm(f"Forget {named} for good, and never remember them again?", yes=yes)
    rule = memory.never_person(views, ends_s)
    if known is not None:
        memory.forget([known.person_id])
    return rule


def _tell_rules(rules: "Sequence[NeverRule]", *, as_json: bool) -> None:
    from edge.memory.rule_texts import describe, rule_json

    if as_json:
        _print_json({"rules": [rule_json(rule) for rule in rules]})
        return
    if not rules:
        print("no rules")
        return
    table = Table("rule", "never", "until", box=None, pad_edge=False)
    for rule in rules:
        plain = rule_json(rule)
        table.add_row(plain["id"], Text(one_line(describe(rule))), plain["expires"] or "taken back")
    stdout_console().print(table)


@app.command(
    no_args_is_help=True, epilog=_examples("lethe memory allow 5c1f09ad", "lethe memory allow --all")
)
def allow(
    rule_ids: Annotated[
        list[str] | None, typer.Argument(metavar="RULE", help="Ids of rules.", show_default=False)
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every rule.")] = False,
    as_json: _Json = False,
) -> None:
    """Take rules back that lethe memory never made; --all takes back every one."""
    if bool(rule_ids) == everything:
        raise UsageError("allow what? give ids of rules, or --all")
    with _memory(writes=True) as memory:
        gone = memory.allow(None if everything else rule_ids or ())
    _print_json({"removed": gone}) if as_json else print(f"rules taken back: {len(gone)}")


@app.command(
    no_args_is_help=True,
    epilog=_examples("lethe memory rekey --key file", "lethe memory rekey --key passphrase"),
)
def rekey(
    key: Annotated[
        str,
        typer.Option(
            metavar="file|keyring|passphrase", help="What shall open the memory.", show_default=False
        ),
    ],
    as_json: _Json = False,
) -> None:
    """Put the memory under a new key; the old one opens nothing any more."""
    from edge.memory.settings import NEW_PASSPHRASE_VARIABLE, KeyPlace

    if key not in get_args(KeyPlace):
        raise UsageError(f"--key {key}: must be file, keyring or passphrase")
    secret = _secret(NEW_PASSPHRASE_VARIABLE, "New passphrase", confirm=True) if key == "passphrase" else None
    with _memory(writes=True) as memory:
        memory.rekey(cast(KeyPlace, key), lambda: secret or "")
    if as_json:
        _print_json({"key": key})
    else:
        print(f"the memory is under a new key ({key})")
