"""`python -m slowrank`: the same as the console script."""

from slowrank.cli import main

if __name__ == "__main__":
    main()
