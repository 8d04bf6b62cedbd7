"""Tools that npm installs, under ``_build`` and never into the environment."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from ci.project import BookError, Project


def npm_tool(project: Project, folder: str, package: str, version: str, otherwise: str,
             say: Callable[[str], None]) -> Path:
    """Return the folder of a package, installed under ``_build/FOLDER`` if it is not there.

    Args:
        project: the checkout.
        folder: where it is installed, a name under ``_build``.
        package: its name in the registry.
        version: its exact version.
        otherwise: how to do without it, as the end of a sentence, for the error.
        say: is told of an installation.

    Raises:
        BookError: there is no node, or npm could not install it.
    """
    home = project.build / folder
    place = home / "node_modules" / package
    described = place / "package.json"
    if described.is_file() and json.loads(described.read_bytes())["version"] == version:
        return place
    npm = shutil.which("npm")
    if not npm or not shutil.which("node"):
        raise BookError("node", f"{package} needs node 18 or later with npm, and there is none",
                        f"Install it (`apt-get install nodejs npm`), or {otherwise}")
    say(f"installing {package} {version} under {project.relative(home)}")
    home.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [npm, "install", "--prefix", str(home), "--no-audit", "--no-fund", "--no-save",
         "--ignore-scripts", f"{package}@{version}"],
        capture_output=True, text=True, check=False)
    if done.returncode or not described.is_file():
        last = (done.stderr.strip().splitlines() or ["npm said nothing"])[-1]
        raise BookError(project.relative(home), f"npm could not install {package} ({last})",
                        f"Mend that, or {otherwise}")
    return place
