"""python -m harmonium is the harmonium command."""

from harmonium.cli.app import main

main()
