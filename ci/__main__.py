"""``python -m ci VERB``: see :mod:`ci.cli`."""

from ci.cli import main

if __name__ == "__main__":
    main(prog_name="python -m ci")
