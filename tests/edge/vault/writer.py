"""A process that writes to a vault and says on its standard output what is done; see `test_processes`."""

import sys
from pathlib import Path

from tests.edge.vault.tools import enrol, open_vault


def main() -> None:
    """Enrol without end; forget every third person."""
    with open_vault(Path(sys.argv[1])) as vault:
        print("open", flush=True)
        for number in range(int(sys.argv[2])):
            person = enrol(vault, bytes(600) + person_mark(number))
            print("enrolled", person.hex(), flush=True)
            if number % 3 == 2:
                print("forgetting", person.hex(), flush=True)
                vault.forget([person])
                print("forgotten", person.hex(), flush=True)
        print("waiting", flush=True)
        sys.stdin.readline()


def person_mark(number: int) -> bytes:
    """Makes payloads differ."""
    return number.to_bytes(8, "big")


if __name__ == "__main__":
    main()
