"""python -m harmonium is the harmonium command."""

from harmonium.interfaces.cli.app import main

main()
