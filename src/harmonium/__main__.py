from harmonium.cli import main

main()
