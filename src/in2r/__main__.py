"""`python -m in2r`: the command line, as a launcher of several processes starts it."""

import sys

from in2r.cli.main import main

sys.exit(main())
