# SPDX-License-Identifier: Apache-2.0
"""`python -m downpour`: the command without its script. `doctor` only needs Python."""

import sys


def main() -> int:
    """Run the command line of this process. Return its exit code."""
    try:
        if sys.argv[1:] == ["doctor"]:
            sys.dont_write_bytecode = True
            from common.terminal import open_closed
            from downpour import doctor

            open_closed()
            return doctor.main()
        from downpour import cli

        return cli.main()
    except KeyboardInterrupt:  # before a command could handle it
        return 130


if __name__ == "__main__":
    sys.exit(main())
