"""``python -m gateway.cli`` is ``iterion``."""

from gateway.cli.main import main

if __name__ == "__main__":
    main()
