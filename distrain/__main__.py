"""`python -m distrain`: the command line."""

from distrain.cli.main import main

if __name__ == "__main__":
    main()
