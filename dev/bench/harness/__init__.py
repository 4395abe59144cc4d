"""What dev/bench-generator is made of; dev/test-clients takes processes and keys.

credentials  keys and tokens
process      starting and stopping what is measured, whatever ends the script; CPU and memory from /proc
drivers      postern-load and other load drivers, as functions that return figures
generators   wrk, hey, h2load, oha, k6 and postern-load beside each other
generator    what the script measures
scenario     scenarios with checks
facts        machine, versions, commit
table        Markdown, and statistics over rounds
script       names on the command line, programs, work folder, report files

Only the Python standard library, and only programs that dev/setup installs.
"""
