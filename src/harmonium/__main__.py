"""python -m harmonium is the harmonium command."""

from harmonium.cli import main

main()
