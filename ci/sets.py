"""Other sets of versions that the book is tried on, each in an environment of its own.

``python -m ci.sets NAME FOLDER`` makes the environment of a set that ``pyproject.toml`` describes
under ``[tool.proof-by-running.sets]``; ``make SET=NAME run`` does so by itself. It needs nothing
but Python, since it runs before anything is installed.

A set has ``require`` (what it asks for), ``free`` (packages whose pins in requirements.txt do not
hold; ``"*"`` frees all), ``index`` (one more place to look), and ``inherit`` (packages that are
taken as the machine has them, as in Colab's image).
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import venv
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class VersionSet:
    """One entry of ``[tool.proof-by-running.sets]``."""

    name: str
    require: tuple[str, ...] = ()
    free: tuple[str, ...] = ()
    index: str = ""
    inherit: tuple[str, ...] = ()


def load(root: Path, name: str) -> tuple[VersionSet, list[str]]:
    """Return a set, and the direct dependencies of the project.

    Raises:
        ValueError: there is no such set, or it has a key that is not known.
    """
    data = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    sets = data.get("tool", {}).get("proof-by-running", {}).get("sets", {})
    if name not in sets:
        raise ValueError(f"pyproject.toml: there is no set {name!r}. One of: {', '.join(sets)}")
    values = dict(sets[name])
    index = str(values.pop("index", ""))
    lists = {key: tuple(values.pop(key, ())) for key in ("require", "free", "inherit")}
    if values:
        raise ValueError(f"pyproject.toml: set {name!r}: {', '.join(values)} is not known. A set "
                         "has require, free, index and inherit")
    return VersionSet(name, index=index, **lists), data["project"]["dependencies"]


def requirements(root: Path, wanted: VersionSet, direct: list[str]) -> list[str]:
    """Return what is to be installed for a set, as lines of a requirements file."""
    instead = {name_of(line) for line in (*wanted.require, *wanted.inherit)}
    if wanted.inherit or "*" in wanted.free:
        lines = [line for line in direct if name_of(line) not in instead]
    else:
        gone = instead | {canonical(name) for name in wanted.free}
        text = (root / "requirements.txt").read_text(encoding="utf-8")
        lines = [line for line in text.splitlines()
                 if line.strip() and not line.startswith("#") and name_of(line) not in gone]
    head = [f"--extra-index-url {wanted.index}"] if wanted.index else []
    return [*head, *wanted.require, *lines]


def name_of(line: str) -> str:
    """Return the name of the package that a line of requirements asks for."""
    match = NAME.match(line)
    return canonical(match[0]) if match else ""


def canonical(name: str) -> str:
    """Return a package's name as PEP 503 normalises it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def make(root: Path, name: str, folder: Path) -> None:
    """Make the environment of a set from nothing.

    Raises:
        ValueError: see :func:`load`.
        subprocess.CalledProcessError: pip found no solution.
    """
    wanted, direct = load(root, name)
    lines = requirements(root, wanted, direct)
    venv.create(folder, clear=True, with_pip=True, system_site_packages=bool(wanted.inherit))
    listed = folder / "requirements.txt"
    listed.write_text("\n".join(lines) + "\n", encoding="utf-8")
    subprocess.run([folder / "bin" / "python", "-m", "pip", "install", "--quiet",
                    "--disable-pip-version-check", "-r", listed], check=True)


def main(arguments: list[str]) -> int:
    """Make an environment; return the exit status."""
    if len(arguments) != 2:
        print("usage: python -m ci.sets NAME FOLDER", file=sys.stderr)
        return 2
    try:
        make(ROOT, arguments[0], Path(arguments[1]))
    except (ValueError, OSError) as error:
        print(f"Error: {error}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError:
        print(f"Error: the set {arguments[0]!r} cannot be installed, see above", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
