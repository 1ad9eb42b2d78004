#!/usr/bin/env python3
"""A short soak: 64 random clients for 20 seconds.

usage: soak_test.py [--gannet build/gannet] [--model nano] [unittest arguments]
"""

import sys
import unittest

from gannet_process import parse_arguments, run_tests
from soak import Soak


class SoakTest(unittest.TestCase):
    def test_nothing_is_left_of_clients_that_leave(self):
        self.assertEqual(Soak(OPTIONS.gannet, OPTIONS.model, clients=64, seed=1).run(20), [])


if __name__ == "__main__":
    OPTIONS, ARGUMENTS = parse_arguments(__doc__)
    sys.exit(run_tests("soak_test", ARGUMENTS) != 0)
