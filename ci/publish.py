"""The finished site, put where a server reads it, in one step: whole and old, or whole and new.

``FOLDER/site`` is a link to ``FOLDER/versions/<digest>``, where the digest is that of all files in
it. A new version is copied beside the others under a temporary name, named, and then the link is
replaced by one rename. A publication that is killed at any moment leaves the link as it was.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

from ci.project import BookError, Project, digest
from ci.site import current_site

LINK, VERSIONS, NEW = "site", "versions", ".new"
KEPT = 2  # versions: the one shown, and the one before it, for readers in the middle of a page


def publish(project: Project, folder: Path, say: Callable[[str], None] = print) -> Path:
    """Publish the site that the texts and outputs make as they are now.

    Args:
        project: the checkout.
        folder: where versions are kept; a server's root is ``FOLDER/site``.
        say: is told what was done.

    Returns:
        The link to the version that is shown.

    Raises:
        BookError: the site is not current, or the folder is something else; nothing has changed.
    """
    return switch(current_site(project, say), folder, say)


def switch(site: Path, folder: Path, say: Callable[[str], None] = print) -> Path:
    """Publish a folder of files; see :func:`publish`."""
    link, versions = folder / LINK, folder / VERSIONS
    if folder.exists() and not versions.is_dir() and any(folder.iterdir()):
        raise BookError(folder, "holds something else than published versions",
                        "Give an empty folder, or one that does not exist")
    if link.exists() and not link.is_symlink():
        raise BookError(link, "is not the link that this makes", "Move it away")
    name = tree_digest(site)
    try:
        versions.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".lock"):
            new, place = versions / NEW, versions / name
            shutil.rmtree(new, ignore_errors=True)  # of a publication that was killed
            if place.is_dir() and tree_digest(place) != name:  # somebody wrote into it
                shutil.rmtree(place)
            if not place.is_dir():
                shutil.copytree(site, new)
                if tree_digest(new) != name:  # it was changed under our hands
                    raise BookError(site, "changed while it was copied", "Publish again")
                new.rename(place)
            shown = current(folder)
            if shown and shown.name == name:
                say(f"publish: {link} shows this site already")
                return link
            temporary = folder / f".{LINK}.new"
            temporary.unlink(missing_ok=True)
            temporary.symlink_to(Path(VERSIONS) / name)
            temporary.replace(link)
            os.utime(place)
            _forget(versions, keep={place.name, shown.name if shown else place.name})
    except OSError as error:
        raise BookError(folder, f"cannot be written ({error.strerror or error})",
                        "What was published before is still there; mend that and publish again"
                        ) from None
    say(f"publish: {link} shows version {name[:12]}")
    return link


def current(folder: Path) -> Path | None:
    """Return the version that is shown; None if nothing was published yet."""
    link = folder / LINK
    return folder / link.readlink() if link.is_symlink() else None


def is_whole(folder: Path) -> bool:
    """Return whether the version that is shown has exactly the files that its name says."""
    shown = current(folder)
    return shown is not None and shown.is_dir() and tree_digest(shown) == shown.name


def tree_digest(folder: Path) -> str:
    """Return the digest of all files below a folder, their names included."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return digest(*(part for path in files
                    for part in (path.relative_to(folder).as_posix(), path.read_bytes())))


def _forget(versions: Path, keep: set[str]) -> None:
    """Remove old versions, all but the newest ones and those to keep."""
    by_age = sorted((path for path in versions.iterdir() if path.is_dir()),
                    key=lambda path: path.stat().st_mtime, reverse=True)
    for path in [one for one in by_age if one.name not in keep][max(0, KEPT - len(keep)):]:
        shutil.rmtree(path, ignore_errors=True)
