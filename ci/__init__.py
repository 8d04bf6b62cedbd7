"""The line from text to site: one module per arrow of the data flow.

    book/*.md --pair--> notebooks/*.ipynb --run--> _build/executed/*.ipynb --site--> _build/html

``check`` reads all of it and changes nothing. ``python -m ci --help`` lists the verbs.
"""
