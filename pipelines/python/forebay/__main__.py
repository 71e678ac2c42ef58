"""`python -m forebay`: the program."""

from ._program import main

main()
