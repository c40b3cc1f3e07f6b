# SPDX-License-Identifier: Apache-2.0
"""Programs that Ctrl-C reaches wherever the tests run.

What is started in the background or by ``nohup`` may ignore SIGINT, and a child inherits that: Python then
installs no handler of its own. A terminal's programs have the default.
"""

# To be put before a command; the process stays the same one.
REACHED_BY_CTRL_C = ("env", "--default-signal=INT")
