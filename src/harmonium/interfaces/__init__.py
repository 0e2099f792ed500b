"""How people reach the library: the command line and the web explorer."""
