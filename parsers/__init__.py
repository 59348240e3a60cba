# SPDX-License-Identifier: Apache-2.0
"""What came out: logs of a run -> records -> metrics -> tables, figures, a report."""
