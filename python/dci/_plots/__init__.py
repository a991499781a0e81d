# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Pictures and pages of what dci-bench and the scripts around it measured. dci.plot and dci.report are the ways in."""
