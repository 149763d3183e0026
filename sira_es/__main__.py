"""`python -m sira_es` is `sira-es`."""

from sira_es.cli import main

main()
